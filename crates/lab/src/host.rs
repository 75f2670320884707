//! One host: a network namespace, and the commands to set it up.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::LabError;

/// A network namespace. Cloning it clones the handle; its [`crate::Lab`] owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
}

impl Host {
    pub(crate) fn new(name: String) -> Self {
        Host { name }
    }

    /// The handle of a namespace that exists, by its name: that of a test bed's port.
    pub fn of(netns: &str) -> Self {
        Host::new(netns.to_owned())
    }

    /// The namespace's name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run `program` in this namespace. Its process id is that
    /// of `program` itself: `ip netns exec` replaces itself by it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        // What a terminal sends at Ctrl-C is for the program that has the lab: it ends what it
        // started, in order.
        command.args(["netns", "exec", &self.name, program]).process_group(0);
        command
    }

    /// Runs a command in this namespace to its end and returns its standard output.
    pub fn run(&self, command: &[&str]) -> Result<String, LabError> {
        let mut all = vec!["ip", "netns", "exec", &self.name];
        all.extend_from_slice(command);
        run(&all)
    }

    /// Runs `work` in a thread of its own inside this namespace, and waits for it. The sockets that
    /// it opens and the interfaces that it names are this host's.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into this namespace for the rest of its life.
    pub(crate) fn enter(&self) -> Result<(), LabError> {
        Ok(sonde_sys::netns::enter(&self.name)?)
    }

    /// Adds an address with its prefix length ("10.1.0.1/24", "fd00:1::1/64").
    /// IPv6 addresses can be used at once: there is no other host to clash with.
    pub fn add_address(&self, interface: &str, address: &str) -> Result<(), LabError> {
        let mut command = vec!["ip", "-n", &self.name, "addr", "add", address, "dev", interface];
        if address.contains(':') {
            command.push("nodad");
        }
        run(&command).map(drop)
    }

    /// Adds a route: `add_route("10.2.0.0/16", &["via", "10.1.0.2"])`.
    pub fn add_route(&self, prefix: &str, how: &[&str]) -> Result<(), LabError> {
        let mut command = vec!["ip", "-n", &self.name, "route", "add", prefix];
        command.extend_from_slice(how);
        run(&command).map(drop)
    }

    /// Makes every address of `prefix` one of this host's own.
    pub fn own_prefix(&self, prefix: &str) -> Result<(), LabError> {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let own = ["route", "add", "local", prefix, "dev", "lo"];
        run(&[&["ip", family, "-n", &self.name], &own[..]].concat()).map(drop)
    }

    /// Sets a permanent neighbour entry, instead of any other.
    pub fn set_neighbour(&self, interface: &str, address: &str, mac: &str) -> Result<(), LabError> {
        let entry = [address, "lladdr", mac, "dev", interface, "nud", "permanent"];
        run(&[&["ip", "-n", &self.name, "neigh", "replace"], &entry[..]].concat()).map(drop)
    }

    /// Sets kernel parameters of this namespace ("net.ipv4.ip_forward=1").
    pub fn sysctl(&self, settings: &[&str]) -> Result<(), LabError> {
        self.run(&[&["sysctl", "-q", "-w"], settings].concat()).map(drop)
    }

    /// Turns a feature of an interface on or off, by `ethtool -K`'s name for it
    /// ("gro", "tx").
    pub fn set_feature(&self, interface: &str, name: &str, on: bool) -> Result<(), LabError> {
        let state = if on { "on" } else { "off" };
        self.run(&["ethtool", "-K", interface, name, state]).map(drop)
    }

    /// Has an interface send and hand up packets as they are on a wire: segments neither
    /// joined nor left for a card to cut, checksums computed.
    pub fn offloads_off(&self, interface: &str) -> Result<(), LabError> {
        let off = ["tso", "off", "gso", "off", "gro", "off", "tx", "off"];
        self.run(&[&["ethtool", "-K", interface], &off[..]].concat()).map(drop)
    }

    /// Brings an interface up or down.
    pub fn set_up(&self, interface: &str, up: bool) -> Result<(), LabError> {
        let state = if up { "up" } else { "down" };
        run(&["ip", "-n", &self.name, "link", "set", interface, state]).map(drop)
    }

    /// Moves the IP stack's work for what `interface` receives to processor `cpu` (receive packet
    /// steering). So a router does not burden the sender's own.
    pub fn steer(&self, interface: &str, cpu: usize) -> Result<(), LabError> {
        let write = "for f in /sys/class/net/\"$1\"/queues/rx-*/rps_cpus; do \
                     echo \"$2\" > \"$f\" || exit 1; done";
        self.run(&["sh", "-c", write, "sh", interface, &cpu_mask(cpu)]).map(drop)
    }
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn run(command: &[&str]) -> Result<String, LabError> {
    let output = Command::new(command[0])
        .process_group(0)
        .args(&command[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| LabError::Start { command: command.join(" "), cause })?;
    if !output.status.success() {
        return Err(LabError::Failed {
            command: command.join(" "),
            status: output.status,
            message: String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The kernel's form of a processor set: hexadecimal, commas between words of 32 bits.
pub(crate) fn cpu_mask(cpu: usize) -> String {
    format!("{:x}{}", 1u32 << (cpu % 32), ",00000000".repeat(cpu / 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_mask_is_written_in_words_of_32() {
        assert_eq!(cpu_mask(0), "1");
        assert_eq!(cpu_mask(5), "20");
        assert_eq!(cpu_mask(31), "80000000");
        assert_eq!(cpu_mask(32), "1,00000000");
        assert_eq!(cpu_mask(70), "40,00000000,00000000");
    }

    #[test]
    fn a_failed_command_is_named_with_its_own_message() {
        let error = run(&["sh", "-c", "echo no such thing >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains("no such thing"), "{error}");
        let error = run(&["/nonexistent/tool"]).unwrap_err().to_string();
        assert!(error.contains("make setup"), "{error}");
    }
}
