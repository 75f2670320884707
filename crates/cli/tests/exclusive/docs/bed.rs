//! What the pages take for granted: interfaces with traffic, a reflector, a collector, captures,
//! plans and runs.
//!
//! ```text
//! client eth0 --- eth0 here eth1 --- eth0 server: a reflector, a collector
//!        eth1 --- eth2      eth3 --- eth1
//! ```

#[path = "../../support/saved_run.rs"]
mod saved_run;

use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use sonde_lab::{Host, Lab, LinkOptions};

use super::synthetic::{self, Recipe};
use crate::process::Process;

/// What docs/otg.md says of its `config.json` and `start.json`.
const OTG_CONFIG: &str = r#"{
  "ports": [{"name": "a", "location": "a/eth0"}, {"name": "b", "location": "b/eth0"}],
  "flows": [{
    "name": "f",
    "tx_rx": {"choice": "port", "port": {"tx_name": "a", "rx_names": ["b"]}},
    "packet": [
      {"choice": "ethernet", "ethernet": {"dst": {"choice": "value", "value": "02:00:00:00:00:02"}}},
      {"choice": "ipv4", "ipv4": {
        "src": {"choice": "value", "value": "198.18.0.2"},
        "dst": {"choice": "value", "value": "198.19.0.2"}
      }},
      {"choice": "udp", "udp": {}}
    ],
    "rate": {"choice": "pps", "pps": 5000},
    "duration": {"choice": "fixed_packets", "fixed_packets": {"packets": 30000}},
    "metrics": {"enable": true, "loss": true}
  }]
}"#;
const OTG_START: &str = r#"{
  "choice": "traffic",
  "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": "start"}}
}"#;

const SONDE: &str = env!("CARGO_BIN_EXE_sonde");

/// Where the commands are carried out. Dropping it removes all of it.
pub struct Bed {
    folder: PathBuf,
    /// Its mounts and its network are those of the commands.
    keeper: Process,
    #[expect(dead_code, reason = "held")]
    collector: UdpSocket,
    #[expect(dead_code, reason = "held")]
    peers: Vec<Process>,
    #[expect(dead_code, reason = "held")]
    lab: Lab,
}

impl Bed {
    pub fn new() -> Bed {
        let folder = std::env::temp_dir().join(format!("sonde-docs-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("programs")).unwrap();
        let (lab, [here, client, server]) = network();
        let ping = |to: &str| {
            let mut command = client.command("ping");
            command.args(["-q", "-i", "0.02", to]);
            Process::start(command)
        };
        let mut reflector = server.command(SONDE);
        reflector.arg("reflect");
        let peers = vec![ping("192.0.2.7"), ping("10.1.3.2"), Process::start(reflector)];
        let collector = server.inside(|| UdpSocket::bind("192.0.2.9:4739").unwrap()).unwrap();
        let bed = Bed { keeper: keeper(&here), folder, collector, peers, lab };
        bed.programs();
        bed.captures();
        bed.runs();
        bed
    }

    /// One for programs of others: what an address of the pages names is there, and the run that a
    /// report is made of.
    pub fn with_peers(peers: &Path) -> Bed {
        let bed = Bed::new();
        let line = "cp -r runs/before runs/router; ip netns add gen; \
                    ip link add eth2 netns gen type veth peer name gen2; \
                    ip -n gen link set eth2 up; ip link set gen2 up; \
                    until ip -n gen link | grep -q 'state UP'; do :; done";
        assert!(bed.command(line).status().unwrap().success());
        assert!(peers.join("venv").exists(), "{}: run scripts/interop.sh", peers.display());
        bed
    }

    /// A line for the shell, here, in the folder.
    pub fn command(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.keeper.id().to_string(), "-m", "-n", "bash", "-c"]);
        let folder = self.folder.display();
        command.arg(format!("set -o pipefail; cd '{folder}'; {line}"));
        command.env("PATH", format!("{}:{path}", self.file("programs").display()));
        command
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// `sonde` itself; and what stands for a privilege that is there, and for a host that is not.
    /// `make` only says what it would do. `verify-unit` has systemd look at a unit, which it calls
    /// fit whatever it complains of.
    fn programs(&self) {
        symlink(SONDE, self.file("programs/sonde")).unwrap();
        std::fs::create_dir_all(self.file("target/release")).unwrap();
        symlink(SONDE, self.file("target/release/sonde")).unwrap();
        let make = format!("PATH=${{PATH#*:}} exec make -n -C '{}' \"$@\"", root().display());
        let verify = format!(
            "sed 's#/usr/local/bin/sonde#{SONDE}#' \"$1\" >sonde-reflect.service
             said=$(systemd-analyze verify ./sonde-reflect.service 2>&1); ended=$?
             ! echo \"$said\" | grep sonde-reflect >&2 && exit $ended"
        );
        for (name, does) in [
            ("sudo", "exec \"$@\""),
            ("ssh", "exec cat capture.pcap"),
            ("make", &make),
            ("verify-unit", &verify),
        ] {
            let path = self.file("programs").join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }

    fn captures(&self) {
        let golden = root().join("tests/golden/rtt");
        for (name, from) in [
            ("capture.pcap", "tcp_dns.pcap"),
            ("day.pcap00", "echo.pcap"),
            ("day.pcap01", "dns.pcap"),
        ] {
            std::fs::copy(golden.join(from), self.file(name)).unwrap();
        }
        let plain = std::fs::read(golden.join("sctp.pcap")).unwrap();
        let packed = zstd::encode_all(&plain[..], 1).unwrap();
        std::fs::write(self.file("day.pcap02.zst"), packed).unwrap();
    }

    /// Plans; runs that the pages compare, or that are left out; an agent's files, which its page
    /// has people copy.
    fn runs(&self) {
        symlink(root().join("examples"), self.file("examples")).unwrap();
        std::fs::write(self.file("config.json"), OTG_CONFIG).unwrap();
        std::fs::write(self.file("start.json"), OTG_START).unwrap();
        for name in ["ca.pem", "192.0.2.1.pem", "192.0.2.1.key"] {
            symlink(Path::new("lab").join(name), self.file(name)).unwrap();
        }
        let mut run = synthetic::run(&Recipe::default());
        // What was measured once decides nothing.
        run.measurements.retain(|m| ["throughput", "latency"].contains(&&*m.case.procedure));
        for name in ["runs/before", "runs/after", "runs/vcpe", "runs/soak"] {
            saved_run::write(&self.file(name), &run);
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn network() -> (Lab, [Host; 3]) {
    let mut lab = Lab::new("docs").unwrap();
    let [here, client, server] = ["here", "client", "server"].map(|name| lab.host(name).unwrap());
    for (n, peer, theirs) in
        [(0, &client, "eth0"), (1, &server, "eth0"), (2, &client, "eth1"), (3, &server, "eth1")]
    {
        let ours = format!("eth{n}");
        lab.link(&here, &ours, peer, theirs, &LinkOptions::default()).unwrap();
        here.add_address(&ours, &format!("10.1.{n}.1/24")).unwrap();
        peer.add_address(theirs, &format!("10.1.{n}.2/24")).unwrap();
    }
    here.sysctl(&["net.ipv4.ip_forward=1"]).unwrap();
    for (host, prefix, via) in [
        (&client, "192.0.2.0/24", "10.1.0.1"),
        (&client, "10.1.3.0/24", "10.1.2.1"),
        (&server, "10.1.0.0/24", "10.1.1.1"),
        (&server, "10.1.2.0/24", "10.1.3.1"),
        (&here, "192.0.2.0/24", "10.1.1.2"),
    ] {
        host.add_route(prefix, &["via", via]).unwrap();
    }
    here.add_address("lo", "192.0.2.1/32").unwrap();
    server.add_address("lo", "192.0.2.7/32").unwrap();
    server.add_address("lo", "192.0.2.9/32").unwrap();
    (lab, [here, client, server])
}

/// A process whose `/run` and manual pages are empty and its own: beds, namespaces and files that
/// the commands make there meet none of this machine's.
fn keeper(here: &Host) -> Process {
    let mut command = here.command("sh");
    command.args([
        "-ec",
        "mount -t tmpfs none /run; mount -t tmpfs none /usr/local/share; \
                   mkdir /run/netns; echo ready; exec sleep infinity",
    ]);
    let mut keeper = Process::start(command);
    keeper.until("its mounts", |p| !p.out().is_empty());
    keeper
}
