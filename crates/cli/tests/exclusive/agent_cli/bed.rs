//! Four hosts. Two have an agent each. A router stands between their test ports, or a bridge with
//! a further port on the second host. A controller has a link of its own to each agent.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use sonde_lab::{Host, Lab, LinkOptions};
use sonde_meter::load::{AddressRule, MacRule, PortRule, Traffic};
use sonde_results::units::format_mac;
use sonde_sys::cpu_time::{is_real_time, thread_nice};
use sonde_sys::schedule::prefer_with_children;
use sonde_testbed::agent::link::{AgentAddress, BUSY};
use sonde_testbed::agent::protocol::PortName;
use sonde_testbed::agent::rig::{AgentRig, AgentRigSpec};
use sonde_testbed::tester::{CopySpec, DirectionSpec};
use sonde_testbed::tls;
use sonde_wire::ethernet::Mac;

use crate::process::Process;
use crate::turn::{self, Turn};

pub struct Agents {
    running: Vec<Process>,
    hosts: [Host; 2],
    router: Host,
    controller: Host,
    /// Port a, the router towards a, towards b, port b.
    macs: [Mac; 4],
    certificates: Folder,
    environment: Vec<(usize, String, String)>,
    _lab: Lab,
    /// Dropped when all of the above is.
    _turn: Turn,
}

impl Agents {
    /// Both, with these variables in the environments of the agents, by their index. `None`:
    /// not root.
    pub fn start(name: &str, environment: &[(usize, &str, String)]) -> Option<Agents> {
        if sonde_lab::skip(name) {
            return None;
        }
        // Agents run before other work: those of two tests would keep each other's from answering.
        let turn = turn::alone();
        let mut lab = Lab::new(name).unwrap();
        let mut host = |name| lab.host(name).unwrap();
        let (a, router, b, controller) = (host("a"), host("dut"), host("b"), host("ctl"));
        for host in [&a, &router, &b] {
            // No packets of their own.
            host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        }
        let options = LinkOptions::default();
        let (mac_a, mac_1) = lab.link(&a, "eth0", &router, "eth1", &options).unwrap();
        let (mac_2, mac_b) = lab.link(&router, "eth2", &b, "eth0", &options).unwrap();
        lab.link(&router, "eth3", &b, "eth1", &options).unwrap();
        router.sysctl(&["net.ipv4.ip_forward=1"]).unwrap();
        for (interface, network, mac) in [("eth1", "198.18.0", mac_a), ("eth2", "198.19.0", mac_b)]
        {
            router.add_address(interface, &format!("{network}.1/24")).unwrap();
            router.set_neighbour(interface, &format!("{network}.2"), &format_mac(mac)).unwrap();
        }
        for (i, host) in [&a, &b].into_iter().enumerate() {
            let own = format!("ctl{i}");
            lab.link(&controller, &own, host, "mgmt", &options).unwrap();
            controller.add_address(&own, &format!("10.77.{i}.1/24")).unwrap();
            host.add_address("mgmt", &format!("10.77.{i}.2/24")).unwrap();
        }
        let certificates = Folder::new(name);
        make_certificates(&certificates.0.join("lab"));
        make_certificates(&certificates.0.join("strangers"));
        let mut agents = Agents {
            running: Vec::new(),
            hosts: [a, b],
            router,
            controller,
            macs: [mac_a, mac_1, mac_2, mac_b],
            certificates,
            environment: environment
                .iter()
                .map(|(i, k, v)| (*i, k.to_string(), v.clone()))
                .collect(),
            _lab: lab,
            _turn: turn,
        };
        agents.running = (0..2).map(|i| agents.run(i)).collect();
        Some(agents)
    }

    fn run(&self, i: usize) -> Process {
        let own = format!("10.77.{i}.2");
        let file = |name: &str| self.certificates.0.join("lab").join(name);
        let mut command = self.hosts[i].command(env!("CARGO_BIN_EXE_sonde"));
        command.arg("agent").arg("--listen").arg(format!("{own}:8620"));
        command.arg("--cert").arg(file(&format!("{own}.pem")));
        command.arg("--key").arg(file(&format!("{own}.key")));
        command.arg("--ca").arg(file("ca.pem"));
        command.envs(self.environment.iter().filter(|e| e.0 == i).map(|e| (&e.1, &e.2)));
        let mut process = Process::start(command);
        process.until("the agent", |p| p.err().iter().any(|line| line.contains("agent at")));
        process
    }

    pub fn kill(&self, i: usize) {
        self.running[i].signal("KILL");
    }

    /// How an agent gives way to others (proc(5)).
    pub fn nice(&self, i: usize) -> Option<i32> {
        thread_nice(self.running[i].id(), "sonde-agent")
    }

    /// Whether a thread of an agent is real-time.
    pub fn is_real_time(&self, i: usize) -> bool {
        is_real_time(self.running[i].id())
    }

    /// Starts an agent that was killed.
    pub fn again(&self, i: usize) -> Process {
        self.run(i)
    }

    /// Does something on the controller's host, before other work as a benchmark does: here the
    /// agents of other tests are on its processors.
    pub fn control<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let first = || {
            // Where that is not permitted the host may be too busy.
            let _ = prefer_with_children();
            work()
        };
        self.controller.inside(first).unwrap()
    }

    /// Makes a bridge of the router. It has heard nobody.
    pub fn bridge(&mut self) {
        self.router.run(&["ip", "link", "add", "br0", "type", "bridge"]).unwrap();
        for port in ["eth1", "eth2", "eth3"] {
            self.router.run(&["ip", "link", "set", port, "master", "br0"]).unwrap();
        }
        self.router.run(&["ip", "link", "set", "br0", "up"]).unwrap();
        // To each other directly.
        (self.macs[1], self.macs[2]) = (self.macs[3], self.macs[0]);
    }

    /// From a to b through the device, or back.
    pub fn way(&self, back: bool) -> DirectionSpec {
        let [mac_a, mac_1, mac_2, mac_b] = self.macs;
        let (from, to, source_mac, hop, for_mac, source, destination) = match back {
            false => (0, 1, mac_a, mac_1, mac_b, [198, 18, 0, 2], [198, 19, 0, 2]),
            true => (1, 0, mac_b, mac_2, mac_a, [198, 19, 0, 2], [198, 18, 0, 2]),
        };
        let traffic = Traffic {
            sizes: vec![64],
            tags: Vec::new(),
            labels: Vec::new(),
            source_mac: MacRule::Fixed(source_mac),
            destination_mac: MacRule::Fixed(hop),
            source: AddressRule::fixed(source.into()),
            destination: AddressRule::fixed(destination.into()),
            source_port: PortRule::RFC4814_SOURCE,
            destination_port: PortRule::RFC4814_DESTINATION,
            flows: 8,
            tos: vec![0],
            ttl: 64,
            seed: 7,
        };
        DirectionSpec { from, to, traffic, length_change: 0, for_mac: Some(for_mac) }
    }

    /// Waits for agents that are busy.
    pub fn rig(&self, ways: &[DirectionSpec]) -> AgentRig {
        self.rig_of_copies(ways, CopySpec::default())
    }

    /// With copies of the first direction's frames: port 2 is the bridge's further one.
    pub fn rig_of_copies(&self, ways: &[DirectionSpec], copies: CopySpec) -> AgentRig {
        // A machine that is too busy may keep an agent from answering in time.
        let mut tries = (0..5).map(|_| self.rig_with(ways, copies.clone(), CONTROLLER, BUSY));
        let opened =
            tries.find_map(|opened| opened.inspect_err(|e| eprintln!("{e:#}: again")).ok());
        opened.expect("agents that answer")
    }

    pub fn try_rig(&self, ways: &[DirectionSpec]) -> anyhow::Result<AgentRig> {
        self.rig_with(ways, CopySpec::default(), CONTROLLER, Duration::ZERO)
    }

    /// With a certificate that another authority has signed.
    pub fn try_rig_of_a_stranger(&self, ways: &[DirectionSpec]) -> anyhow::Result<AgentRig> {
        self.rig_with(ways, CopySpec::default(), "strangers/controller", Duration::ZERO)
    }

    /// With the certificate of an agent of the laboratory.
    pub fn try_rig_of_an_agent(&self, ways: &[DirectionSpec]) -> anyhow::Result<AgentRig> {
        self.rig_with(ways, CopySpec::default(), "lab/10.77.1.2", Duration::ZERO)
    }

    fn rig_with(
        &self,
        ways: &[DirectionSpec],
        copies: CopySpec,
        whose: &str,
        busy: Duration,
    ) -> anyhow::Result<AgentRig> {
        let own = |end: &str| self.certificates.0.join(format!("{whose}.{end}"));
        // The agents' certificates are checked, too, whoever asks.
        let authority = self.certificates.0.join("lab/ca.pem");
        let tls: ClientConfig = tls::client(&own("pem"), &own("key"), &authority)?;
        let agent = |i: usize, name: &str| AgentAddress {
            name: name.into(),
            address: format!("10.77.{i}.2:8620"),
        };
        let port = |i: usize, name: &str, interface: &str| {
            let (name, interface) = (name.into(), interface.into());
            (i, PortName { name, interface, netns: None, cpu: None })
        };
        Ok(AgentRig::open(AgentRigSpec {
            agents: vec![agent(0, "a"), agent(1, "b")],
            tls: Arc::new(tls),
            ports: vec![port(0, "a", "eth0"), port(1, "b", "eth0"), port(1, "c", "eth1")],
            ways: ways.to_vec(),
            copies,
            drain: Duration::from_millis(500),
            secret: [11, 22],
            busy,
        })?)
    }

    /// A folder for files of the controller, removed with the agents.
    pub fn folder(&self) -> PathBuf {
        self.certificates.0.clone()
    }

    /// Sonde, on the controller's host.
    pub fn controller_command(&self) -> Command {
        self.controller.command(env!("CARGO_BIN_EXE_sonde"))
    }

    /// A plan for both: 500 frames at 1,000 a second from a to b.
    pub fn plan(&self) -> String {
        let lab = self.certificates.0.join("lab");
        format!(
            "title = 'two agents'\n\
             [controller]\n\
             cert = '{0}/controller.pem'\nkey = '{0}/controller.key'\nca = '{0}/ca.pem'\n\
             [[agent]]\nname = 'west'\naddress = '10.77.0.2:8620'\n\
             [[agent]]\nname = 'east'\naddress = '10.77.1.2:8620'\n\
             [bed]\nmax_rate = '2000'\ndrain = '500ms'\n\
             [[device]]\nname = 'dut'\nkind = 'external'\n\
             [device.ports]\n\
             a = {{ agent = 'west', interface = 'eth0', addresses = ['198.18.0.2/24'], mac = '{1}' }}\n\
             b = {{ agent = 'east', interface = 'eth0', addresses = ['198.19.0.2/24'], mac = '{2}' }}\n\
             [[procedure]]\nkind = 'fixed_load'\nloads = ['1k']\ntrial = '500ms'\n",
            lab.display(),
            format_mac(self.macs[1]),
            format_mac(self.macs[2]),
        )
    }

    /// A command of the shell that keeps the router from forwarding for a while.
    pub fn outage(&self) -> String {
        let router = self.router.name();
        let forward =
            |on: u8| format!("ip netns exec {router} sysctl -q -w net.ipv4.ip_forward={on}");
        format!("{}; sleep 0.2; {}", forward(0), forward(1))
    }

    /// A command of the shell that has the bridge forget its stations.
    pub fn forget(&self) -> String {
        format!("ip -n {} link set br0 type bridge fdb_flush", self.router.name())
    }

    /// A connection to an agent on which nothing is said.
    pub fn dial(&self, i: usize) -> TcpStream {
        TcpStream::connect(format!("10.77.{i}.2:8620")).unwrap()
    }

    /// Until so many more frames have come to the router from a.
    pub fn wait_for_frames(&self, frames: u64) {
        let count = || -> u64 {
            let path = "/sys/class/net/eth1/statistics/rx_packets";
            self.router.run(&["cat", path]).unwrap().trim().parse().unwrap()
        };
        let (begin, before) = (Instant::now(), count());
        while count() < before + frames {
            assert!(begin.elapsed() < BOUND, "no frames come to the router");
        }
    }

    /// Takes the router's end of a's link down: a has no carrier any more.
    pub fn cut_cable(&self) {
        self.router.set_up("eth1", false).unwrap();
    }
}

fn make_certificates(folder: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    command.args(["agent", "cert", "--dir"]).arg(folder);
    let output = command.args(["10.77.0.2", "10.77.1.2", "controller"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A folder for certificates, removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-agent-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whose certificate it is.
const CONTROLLER: &str = "lab/controller";
/// For what must happen.
const BOUND: Duration = Duration::from_secs(300);
