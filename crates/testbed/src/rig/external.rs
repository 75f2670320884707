//! A device that is there: the plan says how the tester is joined to it, and which commands
//! of the shell start, stop and reset it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sonde_lab::device::DeviceCounter;
use sonde_results::units::parse_mac;
use sonde_sys::host::InterfaceFacts;
use sonde_sys::netlink::{Neighbour, Neighbours, interface_index};
use sonde_sys::netns;
use sonde_wire::ethernet::Mac;

use super::traffic::RigPort;
use crate::agent::remote::Remote;
use crate::cases::{Condition, DeviceUnderTest};
use crate::counters::of_port;
use crate::networks::port_networks;
use crate::plan::{DevicePlan, PortPlan};
use crate::tester::{TesterPort, port_facts};

/// A device of somebody else's. Dropping it runs its `stop`.
pub struct External {
    plan: DevicePlan,
    /// Where the tester's ports are, if not on this host.
    pub remote: Option<Remote>,
    /// Names of the tester's ports that are virtual Ethernet.
    virtual_ends: Vec<String>,
}

impl External {
    /// Runs its `start`, and the condition's command.
    pub fn start(
        device: &DeviceUnderTest,
        condition: &Condition,
        remote: Option<Remote>,
    ) -> Result<External> {
        let mut external = External { plan: device.plan.clone(), remote, virtual_ends: Vec::new() };
        if let Some(command) = external.plan.commands.get("start") {
            shell(command)?;
        }
        if let Some(command) = &condition.command {
            shell(command)?;
        }
        if external.remote.is_none() {
            let virtual_end = |(name, p): (&String, &PortPlan)| {
                let facts = port_facts(&tester_port(name, p)).ok()?;
                (facts.kind == "veth").then(|| name.clone())
            };
            external.virtual_ends = external.plan.ports.iter().filter_map(virtual_end).collect();
        }
        Ok(external)
    }

    /// Runs the command of that name.
    pub fn run(&self, action: &str) -> Result<()> {
        match self.plan.commands.get(action) {
            Some(command) => shell(command),
            None => bail!(
                "device {} has no command '{action}': add commands.{action} to its table",
                self.plan.name
            ),
        }
    }

    /// The tester's ports at it.
    pub fn ports(&self, plan: &DevicePlan) -> Result<[RigPort; 2]> {
        let port = |name| rig_port(name, &plan.ports[name], self.remote.as_ref());
        Ok([port("a")?, port("b")?])
    }

    /// The tester's monitoring port at it, where the plan names one.
    pub fn monitor(&self, plan: &DevicePlan) -> Result<Option<RigPort>> {
        let Some(port) = plan.ports.get("c") else { return Ok(None) };
        let mac = match &self.remote {
            Some(remote) => remote.look("c", port)?.mac,
            None => port_facts(&tester_port("c", port))?.mac,
        };
        Ok(Some(RigPort::monitor("c", &port.interface, port.netns.clone(), mac)))
    }

    /// How it is joined.
    pub fn diagram(&self) -> Vec<String> {
        let name = &self.plan.name;
        let line = |(port, p): (&String, &PortPlan)| {
            let of = p.agent.as_ref().map_or(String::new(), |agent| format!(" of {agent}"));
            format!("tester {port} ({}{of}) -- {name}", p.interface)
        };
        self.plan.ports.iter().map(line).collect()
    }

    /// What the plan knows of it, and what its command `facts` prints.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts: BTreeMap<String, String> = BTreeMap::new();
        for (name, command) in &self.plan.commands {
            facts.insert(format!("{} command {name}", self.plan.name), command.clone());
        }
        if let Some(command) = self.plan.commands.get("facts")
            && let Ok(output) = Command::new("sh").args(["-c", command]).output()
        {
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            facts.insert(self.plan.name.clone(), text);
        }
        facts
    }

    /// The tester's own ports: the device's counters are the device's.
    pub fn counters(&self) -> Vec<DeviceCounter> {
        if self.remote.is_some() {
            return Vec::new();
        }
        let of = |(name, p): (&String, &PortPlan)| {
            let virtual_end = self.virtual_ends.contains(name);
            of_port(name, p.netns.as_deref(), &p.interface, virtual_end)
        };
        self.plan.ports.iter().flat_map(of).collect()
    }
}

impl Drop for External {
    fn drop(&mut self) {
        if let Some(command) = self.plan.commands.get("stop")
            && let Err(e) = shell(command)
        {
            tracing::warn!("{e:#}");
        }
    }
}

fn tester_port(name: &str, plan: &PortPlan) -> TesterPort {
    TesterPort {
        name: name.into(),
        interface: plan.interface.clone(),
        netns: plan.netns.clone(),
        cpu: None,
    }
}

fn rig_port(name: &str, plan: &PortPlan, remote: Option<&Remote>) -> Result<RigPort> {
    let port = tester_port(name, plan);
    let (own_mac, speed_bps) = match remote {
        Some(remote) => {
            let found = remote.look(name, plan)?;
            (found.mac, found.speed_bps)
        }
        None => {
            let facts = port_facts(&port)?;
            let read = || InterfaceFacts::read(&plan.interface);
            let speed = netns::inside(plan.netns.as_deref(), read)??.speed_bps;
            (facts.mac, speed.filter(|_| facts.kind != "veth"))
        }
    };
    let nets = port_networks(name, plan)?;
    let next_hop = match (&plan.mac, &plan.gateway) {
        (Some(mac), _) => parse_mac(mac).map_err(anyhow::Error::msg)?,
        (None, Some(_)) if remote.is_some() => {
            bail!("port {name}: name the device's mac: agents do not ask for it")
        }
        (None, Some(gateway)) => resolve(name, plan, gateway)?,
        (None, None) => bail!("port {name}: name the device's mac, or its address as gateway"),
    };
    Ok(RigPort {
        name: name.into(),
        interface: plan.interface.clone(),
        netns: plan.netns.clone(),
        mac: own_mac,
        next_hop,
        nets,
        speed_bps,
        translated: false,
    })
}

/// Asks the device for the MAC address of one of its addresses, as the host would.
fn resolve(name: &str, plan: &PortPlan, gateway: &str) -> Result<Mac> {
    let address: IpAddr = gateway.parse().with_context(|| {
        format!("port {name}: gateway '{gateway}' is no IP address, as 198.18.0.1")
    })?;
    let ask = || -> Result<Option<Mac>> {
        let index = interface_index(&plan.interface)?;
        let mut neighbours = Neighbours::open()?;
        // A device that has just been started answers late, and the kernel gives up meanwhile.
        for _ in 0..TRIES {
            neighbours.solicit(index, address)?;
            for _ in 0..LOOKS {
                match neighbours.get(index, address)? {
                    Neighbour::Known { mac, .. } => return Ok(Some(mac)),
                    Neighbour::Failed => break,
                    Neighbour::Resolving | Neighbour::Absent => std::thread::sleep(LOOK),
                }
            }
        }
        Ok(None)
    };
    let interface = &plan.interface;
    let protocol = if address.is_ipv4() { "ARP" } else { "neighbour discovery" };
    let mac = netns::inside(plan.netns.as_deref(), ask)?.with_context(|| {
        format!(
            "port {name}: the kernel does not ask for {gateway} on {interface}: give {interface} \
             an address of that network, or name the device's MAC address in ports.{name}.mac"
        )
    })?;
    mac.with_context(|| {
        format!(
            "port {name}: the device does not answer {protocol} for {gateway} on {interface}: is it \
             on, is that its address there, is the cable in, and has {interface} an address of \
             that network? or name its MAC address in ports.{name}.mac"
        )
    })
}

/// Times that a neighbour is asked for.
const TRIES: usize = 5;
/// Between looks at what the kernel has found, and how many there are: more than the second
/// between the kernel's questions.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: usize = 150;

fn shell(command: &str) -> Result<()> {
    let output = Command::new("sh")
        .args(["-c", command])
        .output()
        .context("cannot run 'sh', which carries out the plan's commands; install one")?;
    ensure!(
        output.status.success(),
        "'{command}' failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use sonde_lab::{Lab, LinkOptions};

    use crate::cases::DeviceKind;

    use super::*;

    /// A file to which commands append lines; dropping it removes it.
    pub(crate) struct Log(PathBuf);

    impl Log {
        pub(crate) fn new(name: &str) -> Log {
            let name = format!("sonde-external-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_file(&path);
            Log(path)
        }

        /// A command that appends `line`.
        pub(crate) fn append(&self, line: &str) -> String {
            format!("echo {line} >> {}", self.0.display())
        }

        pub(crate) fn lines(&self) -> Vec<String> {
            let text = std::fs::read_to_string(&self.0).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        }
    }

    impl Drop for Log {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// A device "d" without ports.
    pub(crate) fn external(
        commands: &[(&str, String)],
        condition: Option<String>,
    ) -> Result<External> {
        let commands = commands.iter().map(|(name, command)| (name.to_string(), command.clone()));
        let plan = DevicePlan {
            name: "d".into(),
            kind: "external".into(),
            chain: 1,
            cpu: None,
            mtu: None,
            ports: BTreeMap::new(),
            commands: commands.collect(),
        };
        let device = DeviceUnderTest { name: "d".into(), kind: DeviceKind::External, plan };
        let condition = Condition { command: condition, ..Condition::default() };
        External::start(&device, &condition, None)
    }

    #[test]
    fn a_device_is_started_brought_to_its_condition_and_stopped() {
        let log = Log::new("order");
        let commands = ["start", "reset", "stop"].map(|name| (name, log.append(name)));
        let device = external(&commands, Some(log.append("condition"))).unwrap();
        device.run("reset").unwrap();
        assert_eq!(log.lines(), ["start", "condition", "reset"]);
        let unknown = device.run("power").unwrap_err().to_string();
        assert!(unknown.contains("device d") && unknown.contains("commands.power"), "{unknown}");
        drop(device);
        assert_eq!(log.lines(), ["start", "condition", "reset", "stop"]);
    }

    #[test]
    fn a_device_that_does_not_answer_for_its_address_is_the_cause_that_is_named() {
        if sonde_lab::skip("a_device_that_does_not_answer_for_its_address_is_the_cause") {
            return;
        }
        let mut lab = Lab::new("silent").unwrap();
        let (tester, device) = (lab.host("a").unwrap(), lab.host("dut").unwrap());
        tester.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        lab.link(&tester, "eth0", &device, "eth0", &LinkOptions::default()).unwrap();
        let port = |gateway: &str| PortPlan {
            agent: None,
            interface: "eth0".into(),
            netns: Some(tester.name().to_owned()),
            addresses: vec!["198.18.0.2/24".into()],
            mac: None,
            gateway: Some(gateway.into()),
        };
        let why = |gateway| format!("{:#}", resolve("a", &port(gateway), gateway).unwrap_err());
        let silent = why("198.18.0.1");
        for part in ["port a: the device does not answer ARP for 198.18.0.1 on eth0", "ports.a.mac"]
        {
            assert!(silent.contains(part), "{silent}");
        }
        // Not even a question can be sent.
        let mute = why("2001:2::1");
        for part in ["port a: the kernel does not ask for 2001:2::1 on eth0", "ports.a.mac"] {
            assert!(mute.contains(part), "{mute}");
        }
        device.add_address("eth0", "198.18.0.1/24").unwrap();
        assert!(resolve("a", &port("198.18.0.1"), "198.18.0.1").is_ok());
    }

    #[test]
    fn a_command_that_fails_is_named_with_its_output_and_the_device_is_stopped() {
        let log = Log::new("fails");
        let commands =
            [("start", "echo broken >&2; exit 3".to_owned()), ("stop", log.append("stop"))];
        let error = external(&commands, Some(log.append("condition"))).err().unwrap().to_string();
        for part in ["exit 3", "status: 3", "broken"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(log.lines(), ["stop"]);
    }

    #[test]
    fn the_facts_of_a_device_are_its_commands_and_what_it_prints() {
        let device = external(&[("facts", "echo ' firmware 7 '".into())], None).unwrap();
        let facts = device.facts();
        assert_eq!(facts["d"], "firmware 7");
        assert_eq!(facts["d command facts"], "echo ' firmware 7 '");
        assert!(device.counters().is_empty());
    }
}
