//! `--persist`: what is left when the process has ended, and that removing it removes all.

use std::process::Command;

use sonde_lab::{Host, LinkOptions};

use super::support::{SONDE, has_xdp, pair, ping, until_watching};
use crate::process::{Process, until};

/// A bpf file system that only these tests see: it lives as long as a process in it.
struct Mounted<'a> {
    host: &'a Host,
    holder: Process,
}

impl Mounted<'_> {
    fn new(host: &Host) -> Mounted<'_> {
        let mut command = host.command("sh");
        command.args(["-c", "mount -t bpf bpf /sys/fs/bpf && echo mounted && exec sleep 600"]);
        let mut holder = Process::start(command);
        holder.until("the file system", |p| p.out().iter().any(|line| line == "mounted"));
        Mounted { host, holder }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.host.command("nsenter");
        command.args([format!("--mount=/proc/{}/ns/mnt", self.holder.id()), program.to_owned()]);
        command
    }

    fn rtt(&self) -> Command {
        let mut command = self.command(SONDE);
        command.args(["rtt", "eth0", "--persist", "--hook", "xdp", "--format", "jsonl"]);
        command
    }

    fn watch(&self) -> Process {
        let mut run = Process::start(self.rtt());
        until_watching(&mut run);
        run
    }

    fn links(&self) -> Vec<String> {
        let out = self.command("ls").arg("/sys/fs/bpf/sonde").output().unwrap();
        let names = String::from_utf8(out.stdout).unwrap();
        names.lines().filter(|name| name.starts_with("link_")).map(String::from).collect()
    }

    fn remove(&self) {
        let removed = self.command("rm").args(["-r", "/sys/fs/bpf/sonde"]).status().unwrap();
        assert!(removed.success());
    }
}

#[test]
fn what_persists_follows_an_interface_that_returns_and_goes_with_its_folder() {
    let name = "what_persists_follows_an_interface_that_returns_and_goes_with_its_folder";
    let Some(mut net) = pair(name) else { return };
    let host = net.probe.clone();
    let mounted = Mounted::new(&host);
    let mut run = mounted.watch();
    let both = ["link_0_0", "link_0_1"];
    assert_eq!(mounted.links(), both);
    host.run(&["ip", "link", "del", "eth0"]).unwrap();
    run.until("the loss to be reported", |p| p.err().iter().any(|l| l.contains("has vanished")));
    assert_eq!(mounted.links(), [""; 0], "nothing is kept of what is gone");
    net.lab.link(&net.probe, "eth0", &net.reflector, "eth0", &LinkOptions::default()).unwrap();
    run.until("the return", |p| p.err().iter().any(|l| l.contains("is watched again")));
    assert_eq!(mounted.links(), both);
    net.probe.add_address("eth0", "10.1.0.1/24").unwrap();
    net.reflector.add_address("eth0", "10.1.0.2/24").unwrap();
    ping(&host, 3);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("left attached; 'rm -r /sys/fs/bpf/sonde'"), "{}", ended.err);
    assert!(has_xdp(&host), "the interface that returned is pinned");

    let second = Process::start(mounted.rtt()).end();
    assert_eq!(second.code, 3, "{}", second.err);
    assert!(second.err.contains("'rm -r /sys/fs/bpf/sonde' ends that one"), "{}", second.err);
    assert!(has_xdp(&host) && mounted.links() == both, "the refused run has touched nothing");
    mounted.remove();
    until("the programs to go", || !has_xdp(&host));

    // Killed, it persists too.
    let run = mounted.watch();
    run.signal("KILL");
    run.end();
    assert!(has_xdp(&host));
    mounted.remove();
    until("the programs to go", || !has_xdp(&host));
    ping(&host, 1);
}
