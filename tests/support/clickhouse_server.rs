//! A ClickHouse server as Debian packages it, on ports of its own, with a folder of its own.
//!
//! `scripts/interop.sh` unpacks the package and sets `SONDE_CLICKHOUSE` to its folder; else one that is
//! installed is used. Who includes this has `skipped` at its root.

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sonde_store::ClickHouseServer;

use crate::skipped;

/// A running server.
pub struct Server {
    folder: PathBuf,
    command: Vec<OsString>,
    libraries: String,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts one. `None`: there is no such program here, which is said.
    pub fn start(test: &str) -> Option<Server> {
        let unpacked = std::env::var_os("SONDE_CLICKHOUSE").map(PathBuf::from);
        let root = unpacked.clone().unwrap_or_else(|| "/".into());
        let places = ["usr/sbin", "usr/bin"].map(|f| root.join(f).join("clickhouse-server"));
        let Some(program) = places.into_iter().find(|path| path.is_file()) else {
            skipped(test, "no clickhouse-server here; 'scripts/interop.sh' gets it");
            return None;
        };
        let folders = ["usr/lib", "lib"]
            .map(|f| root.join(f).join(format!("{}-linux-gnu", std::env::consts::ARCH)))
            .map(|path| path.display().to_string());
        let libraries = if unpacked.is_some() { folders.join(":") } else { String::new() };
        let folder = folder(test);
        let port = free_port();
        let config = folder.join("server/config.xml");
        let config = format!("--config-file={}", config.display());
        let command = vec![program.into_os_string(), config.into()];
        let mut server = Server { folder, command, libraries, port, child: None };
        server.configure();
        server.run();
        Some(server)
    }

    /// Starts the engine of today, behind `tests/interop/chdb_http.py`.
    pub fn start_engine(test: &str) -> Option<Server> {
        let Some(python) = std::env::var_os("SONDE_STORE_PYTHON") else {
            skipped(test, "no SONDE_STORE_PYTHON; 'scripts/interop.sh' installs chdb-core");
            return None;
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/interop/chdb_http.py");
        let (folder, port) = (folder(test), free_port());
        let path = folder.join("server");
        std::fs::create_dir_all(&path).unwrap();
        let command = vec![python, script.into(), port.to_string().into(), path.into_os_string()];
        let mut server = Server { folder, command, libraries: String::new(), port, child: None };
        server.run();
        Some(server)
    }

    fn configure(&self) {
        let path = self.folder.join("server");
        ["data", "tmp"].iter().for_each(|f| std::fs::create_dir_all(path.join(f)).unwrap());
        let at = path.display();
        let (http, tcp) = (self.port, free_port());
        let config = format!(
            "<yandex><logger><level>warning</level><log>{at}/log</log><errorlog>{at}/errors</errorlog>\
             </logger><http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>\
             <listen_host>127.0.0.1</listen_host><path>{at}/data/</path><tmp_path>{at}/tmp/</tmp_path>\
             <users_config>users.xml</users_config><default_profile>default</default_profile>\
             <default_database>default</default_database><mark_cache_size>50000000</mark_cache_size>\
             </yandex>"
        );
        let user = |name: &str, password: &str, profile: &str, more: &str| {
            format!(
                "<{name}><password>{password}</password><networks><ip>127.0.0.1</ip></networks>\
                 <profile>{profile}</profile><quota>default</quota>{more}</{name}>"
            )
        };
        let only = "<allow_databases><database>own</database></allow_databases>";
        let users = [
            user("default", "", "default", ""),
            user("keeper", "k", "default", only),
            user("reader", "r", "reads", only),
        ]
        .concat();
        let users = format!(
            "<yandex><profiles><default></default><reads><readonly>2</readonly></reads></profiles>\
             <users>{users}</users><quotas><default></default></quotas></yandex>"
        );
        std::fs::write(path.join("config.xml"), config).unwrap();
        std::fs::write(path.join("users.xml"), users).unwrap();
    }

    /// Starts it again where it was ended.
    pub fn run(&mut self) {
        let path = self.folder.join("server");
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(120);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            let log = std::fs::read_to_string(path.join("errors")).unwrap_or_default();
            assert!(ended.is_none(), "{:?} ended: {log}", self.command);
            assert!(Instant::now() < end, "{:?} does not listen: {log}", self.command);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Its HTTP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The database of that name.
    pub fn database(&self, name: &str) -> ClickHouseServer {
        ClickHouseServer::parse(&format!("http://127.0.0.1:{}/{name}", self.port)).unwrap()
    }

    /// The database `own`, as `keeper` may write it (password `k`), or as `reader` may read it (`r`).
    pub fn own_database(&self, user: &str, password: &str) -> ClickHouseServer {
        let url = format!("http://{user}@127.0.0.1:{}/own", self.port);
        ClickHouseServer::parse(&url).unwrap().with_password(password.into())
    }

    /// The folder of a station.
    pub fn spool(&self, station: &str) -> PathBuf {
        self.folder.join(Path::new(station))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A folder of that name, in memory where that can be.
fn folder(name: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let path = base.join(format!("sonde-store-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
