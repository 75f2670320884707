//! What a test of a receiver needs: a folder, a program that runs there, a station that tells it.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sonde_run::running::Stop;
use sonde_station::alert::alerting::{AlertInput, Teller};
use sonde_station::alert::delivery::{self, AlertService, ReceiverStatus};
use sonde_station::alert::model::{Alert, LabelSet};

/// How long a test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names a folder into which scripts/interop.sh unpacks packages that are not installed.
const UNPACKED: &str = "SONDE_RECEIVERS";

/// A folder that goes with the value.
pub struct Bed {
    pub folder: PathBuf,
}

impl Bed {
    pub fn new(name: &str) -> Bed {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sonde-receiver-{name}-{}-{next}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        Bed { folder }
    }

    /// A file in it. Nobody else reads it, so that it can hold a secret.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        let mut open = fs::OpenOptions::new();
        let mut file = open.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    pub fn read(&self, name: &str) -> String {
        let text = fs::read(self.folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// A certificate of `localhost` and 127.0.0.1 that has signed itself, and its private key.
    pub fn identity(&self) -> [String; 2] {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = made.signing_key.serialize_pem();
        [self.write("certificate.pem", &made.cert.pem()), self.write("key.pem", &key)]
    }

    /// Starts a program. What it says is in the file `out`.
    pub fn start(&self, command: Command) -> Program {
        start_in(&self.folder, command)
    }

    /// Waits until something is so; else says what the program said.
    pub fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is() {
            assert!(begin.elapsed() < PATIENCE, "{what} never came; out: {}", self.read("out"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A station that tells one receiver, whose table is given.
    pub fn station(&self, kind: &str, table: &str) -> Station {
        let text = format!(
            "to = ['it']\nfolder = '{}'\nwait = 0\ninterval = '10ms'\n[receiver.it.{kind}]\n{table}",
            self.path("alerts")
        );
        let stop = Stop::default();
        let teller = Teller { station: "ber".into(), link: Some("https://sonde.example".into()) };
        let service = delivery::start(&toml::from_str(&text).unwrap(), teller, stop.clone());
        Station { service: Some(service.unwrap()), stop }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts a program in a folder. What it says is in the file `out`.
pub fn start_in(folder: &Path, mut command: Command) -> Program {
    let out = File::create(folder.join("out")).unwrap();
    let errors = out.try_clone().unwrap();
    command.stdin(Stdio::null()).stdout(out).stderr(errors).current_dir(folder);
    Program(command.spawn().unwrap())
}

/// A process that ends with the value.
pub struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A station that ends with the value.
pub struct Station {
    service: Option<AlertService>,
    stop: Stop,
}

impl Station {
    /// The same alert, from its begin to its end.
    pub fn raise(&self, ends_ns: Option<i64>) {
        let labels = [("alertname", "loss"), ("severity", "error"), ("target", "192.0.2.1")];
        let set = |all: &[(&str, &str)]| -> LabelSet {
            all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let alert = Alert {
            labels: set(&labels),
            annotations: set(&[("summary", "ber to münchen loses packets")]),
            starts_ns: BEGAN_NS,
            ends_ns,
            evidence: "loss 2.1 % against 0.1 %".into(),
            link: Some("https://sonde.example/events/1".into()),
        };
        assert!(self.service.as_ref().unwrap().give(AlertInput::Alert(alert)));
    }

    /// Three minutes and five seconds after its begin.
    pub fn end(&self) {
        self.raise(Some(BEGAN_NS + 185_000_000_000));
    }

    pub fn status(&self) -> ReceiverStatus {
        let status = self.service.as_ref().unwrap().status.get();
        status.receivers.get("it").cloned().unwrap_or_default()
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.stop.ask();
        self.service.take().into_iter().for_each(AlertService::join);
    }
}

/// A program of a Debian package. It is installed, or unpacked. Without either the test is
/// skipped, and this says so.
pub fn program(test: &str, name: &str, package: &str) -> Option<Command> {
    let unpacked = std::env::var_os(UNPACKED).map(PathBuf::from);
    let folders = ["usr/bin", "usr/sbin", "bin", "sbin"];
    let roots = unpacked.iter().map(PathBuf::as_path).chain([Path::new("/")]);
    let mut all = roots.flat_map(|root| folders.map(|folder| root.join(folder).join(name)));
    let Some(found) = all.find(|path| path.is_file()) else {
        let why = format!("no '{name}' (Debian: {package}) here; scripts/interop.sh gets it");
        sonde_lab::skipped(test, why);
        return None;
    };
    let mut command = Command::new(found);
    if let Some(root) = &unpacked {
        command.env("LD_LIBRARY_PATH", root.join("usr/lib").join(multiarch()));
    }
    Some(command)
}

/// Folders in which libraries of packages may be.
pub fn library_folders() -> Vec<PathBuf> {
    let roots = std::env::var_os(UNPACKED).map(PathBuf::from).into_iter().chain(["/".into()]);
    roots.map(|root| root.join("usr/lib").join(multiarch())).collect()
}

fn multiarch() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// TCP and UDP ports of the loopback that nobody had a moment ago.
pub fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Whether someone has a UDP port of the loopback.
pub fn has_udp(port: u16) -> bool {
    let wanted = format!("0100007F:{port:04X} ");
    fs::read_to_string("/proc/net/udp").unwrap().contains(&wanted)
}

/// 2026-11-29 03:11:31 UTC.
pub const BEGAN_NS: i64 = 1_795_921_891_000_000_000;
