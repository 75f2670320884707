//! Open vSwitch as a learning switch. Its daemons run in the device's namespace with files of
//! their own, and know nothing of another Open vSwitch on the host.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sonde_results::trial::Side;

use super::context::DeviceContext;
use super::counter::{CounterKind, DeviceCounter};
use super::function::Function;
use super::netlink;
use crate::LabError;

pub(crate) struct Ovs {
    /// Frames are forwarded by the daemon, not by the kernel's module.
    pub(crate) user_space: bool,
    /// Process ids: the database server, then the switch.
    pub(crate) processes: Vec<u32>,
}

impl Ovs {
    pub(crate) fn new(user_space: bool) -> Ovs {
        Ovs { user_space, processes: Vec::new() }
    }

    fn datapath(&self) -> &'static str {
        if self.user_space { "netdev" } else { "system" }
    }

    /// Runs one of its tools against its own daemons.
    fn tool(&self, at: &DeviceContext, command: &[&str]) -> Result<String, LabError> {
        let folder = at.folder.to_str().expect("made of plain names");
        let mut all = vec!["env"];
        let settings = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"]
            .map(|name| format!("{name}={folder}"));
        all.extend(settings.iter().map(String::as_str));
        all.extend_from_slice(command);
        at.host.run(&all).map_err(|e| e.or_missing(command[0], PACKAGE))
    }

    fn end(&mut self) {
        for pid in self.processes.drain(..) {
            let _ = crate::host::run(&["sh", "-c", "kill -9 \"$1\"", "sh", &pid.to_string()]);
            // A daemon is no child of ours: it is gone when its folder in /proc is.
            let limit = Instant::now() + PATIENCE;
            let path = format!("/proc/{pid}");
            while std::path::Path::new(&path).exists() && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn pid(&self, at: &DeviceContext, daemon: &str) -> Result<u32, LabError> {
        let path = at.folder.join(format!("{daemon}.pid"));
        let text =
            std::fs::read_to_string(&path).map_err(|e| super::run_dir::file_error(&path, e))?;
        text.trim().parse().map_err(|_| LabError::Bed(format!("{daemon} wrote no process id")))
    }
}

impl Function for Ovs {
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        if !self.user_space && !netlink::has_family("ovs_datapath")? {
            return Err(LabError::Bed(
                "this kernel has no Open vSwitch data path: 'modprobe openvswitch', or choose \
                 ovs-netdev"
                    .into(),
            ));
        }
        let database = at.folder.join("conf.db");
        let database = database.to_str().expect("made of plain names");
        std::fs::create_dir_all(&at.folder)
            .map_err(|e| super::run_dir::file_error(&at.folder, e))?;
        let _ = std::fs::remove_file(database);
        self.tool(at, &["ovsdb-tool", "create", database, SCHEMA])?;
        let socket = format!("--remote=punix:{}/db.sock", at.folder.display());
        let detach = ["--detach", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off"];
        self.tool(at, &[&["ovsdb-server", database, &socket], &detach[..]].concat())?;
        self.processes.push(self.pid(at, "ovsdb-server")?);
        self.tool(at, &["ovs-vsctl", "--no-wait", "init"])?;
        self.tool(at, &[&["ovs-vswitchd"], &detach[..]].concat())?;
        self.processes.push(self.pid(at, "ovs-vswitchd")?);
        let datapath = format!("datapath_type={}", self.datapath());
        let bridge = ["--", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, &datapath];
        let mut command = [&["ovs-vsctl", "--timeout=30"], &bridge[..]].concat();
        let ports = at.interfaces();
        for port in &ports {
            command.extend(["--", "add-port", BRIDGE, port]);
        }
        self.tool(at, &command).map(drop)
    }

    fn forget(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        self.tool(at, &["ovs-appctl", "fdb/flush", BRIDGE]).map(drop)
    }

    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        // In order where it is still there: a data path in the kernel outlives the daemon.
        let removed = self.tool(at, &["ovs-vsctl", "--timeout=30", "del-br", BRIDGE]);
        self.end();
        removed.map(drop)
    }

    fn counters(&self, at: &DeviceContext, all: &mut Vec<DeviceCounter>) -> Result<(), LabError> {
        let text = self.tool(at, &["ovs-appctl", "dpctl/show", "-s"])?;
        let mut counter = |location: String, name: &str, kind, value| {
            all.push(DeviceCounter {
                side: Side::Device,
                location,
                name: name.into(),
                kind,
                value,
            });
        };
        for line in text.lines() {
            let location = format!("{} ovs", at.name);
            // "  lookups: hit:12 missed:3 lost:0"
            if let Some(rest) = line.trim().strip_prefix("lookups: ") {
                for word in rest.split_whitespace() {
                    match word.split_once(':') {
                        Some(("hit", n)) => {
                            counter(location.clone(), "hit", CounterKind::Passed, count(n));
                        }
                        Some(("lost", n)) => {
                            counter(location.clone(), "lost", CounterKind::Dropped, count(n));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError> {
        let version = self.tool(at, &["ovs-vswitchd", "--version"])?;
        facts.insert("Open vSwitch".into(), version.lines().next().unwrap_or_default().into());
        facts.insert(at.fact("data path"), self.datapath().into());
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        // Only the switch forwards.
        self.processes.get(1).copied().into_iter().collect()
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        self.end();
    }
}

fn count(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

const BRIDGE: &str = "br0";
const PACKAGE: &str = "openvswitch-switch";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const PATIENCE: Duration = Duration::from_secs(10);
