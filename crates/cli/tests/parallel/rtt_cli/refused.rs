//! Hosts and kernels that refuse something: what can be measured is, and what cannot ends in
//! one line that says what to do.

use std::process::Command;

use sonde_lab::Host;
use sonde_sys::clock::unix_now_ns;

use super::support::{SONDE, lines, pair, ping, until_watching};
use crate::process::Process;

/// `sonde rtt eth0` with more arguments, run by a program that takes something from it.
fn under(host: &Host, wrapper: &[&str], arguments: &str) -> Command {
    let mut command = host.command(wrapper[0]);
    command.args(&wrapper[1..]).args([SONDE, "rtt", "eth0"]).args(arguments.split_whitespace());
    command
}

fn measures(host: &Host, command: Command) {
    let mut run = Process::start(command);
    until_watching(&mut run);
    ping(host, 5);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let grouped: u64 =
        lines(&ended.out, "group").iter().map(|g| g["clean"]["count"].as_u64().unwrap()).sum();
    assert_eq!(grouped, 5);
}

#[test]
fn where_ebpf_is_refused_the_message_names_what_is_missing_and_what_works() {
    let name = "where_ebpf_is_refused_the_message_names_what_is_missing_and_what_works";
    let Some(net) = pair(name) else { return };
    let dropped = |set| ["setpriv", set];
    let refused: [(&[&str], &str); 5] = [
        (
            &dropped("--bounding-set=-all,+net_raw"),
            "lacks CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON: run as root",
        ),
        (&dropped("--bounding-set=-all,+bpf,+net_admin"), "lacks CAP_PERFMON: run as root"),
        (&dropped("--bounding-set=-all,+bpf,+perfmon"), "lacks CAP_NET_ADMIN: run as root"),
        (&["setpriv", "--reuid=65534", "--clear-groups"], "lacks CAP_BPF, CAP_NET_ADMIN"),
        (&["unshare", "--user", "--map-root-user"], "the root of a user namespace"),
    ];
    for (wrapper, part) in refused {
        let ended = Process::start(under(&net.probe, wrapper, "")).end();
        assert_eq!(ended.code, 3, "{wrapper:?}: {}", ended.err);
        for part in [part, "'--engine af_packet' measures without it"] {
            assert!(ended.err.contains(part), "{wrapper:?}: '{part}' is missing: {}", ended.err);
        }
        assert_eq!(ended.err.lines().count(), 1, "{wrapper:?}: {}", ended.err);
    }
    let only_raw = dropped("--bounding-set=-all,+net_raw");
    measures(&net.probe, under(&net.probe, &only_raw, "--engine af_packet --format jsonl"));
    let needed = dropped("--bounding-set=-all,+bpf,+net_admin,+perfmon");
    measures(&net.probe, under(&net.probe, &needed, "--format jsonl"));
}

/// The kernel's own clock knows no time namespaces, and the program's stamps are of that.
#[test]
fn times_are_right_in_a_time_namespace() {
    let Some(net) = pair("times_are_right_in_a_time_namespace") else { return };
    for engine in ["", " --engine af_packet"] {
        let shifted =
            ["unshare", "--time", "--monotonic", "100000", "--boottime", "100000", "--fork"];
        let line = format!("--format jsonl --sample-limit none -i 200ms{engine}");
        let mut run = Process::start(under(&net.probe, &shifted, &line));
        until_watching(&mut run);
        let begin = unix_now_ns();
        ping(&net.probe, 5);
        let end = unix_now_ns();
        // The process in the namespace is the child of the one that was started.
        let children = format!("/proc/{0}/task/{0}/children", run.id());
        let child = std::fs::read_to_string(children).unwrap();
        net.probe.run(&["kill", "-s", "INT", child.trim()]).unwrap();
        let ended = run.end();
        let samples = lines(&ended.out, "sample");
        assert_eq!(samples.len(), 5, "{engine}: {}", ended.out);
        let flows = lines(&ended.out, "flow");
        assert_eq!((flows.len(), &flows[0]["reason"]), (1, &"stopped".into()), "{engine}");
        let times = samples.iter().map(|s| (&s["at_ns"], 0));
        // Those of a flow are kept in steps of 2^26 ns, cut off.
        let of_flow = ["start_ns", "end_ns"].map(|name| (&flows[0][name], 1 << 26));
        for (at, step) in times.chain(of_flow) {
            let at = at.as_i64().unwrap();
            assert!((begin - step..=end).contains(&at), "{engine}: {begin} {at} {end}");
        }
    }
}

#[test]
fn neither_the_kernels_types_nor_a_raised_limit_is_needed() {
    let Some(net) = pair("neither_the_kernels_types_nor_a_raised_limit_is_needed") else { return };
    // `ip netns exec` has given the shell a view of the mounts that is its own.
    let no_types = "mount -t tmpfs none /sys/kernel/btf && test ! -e /sys/kernel/btf/vmlinux \
                    && exec \"$@\"";
    for wrapper in [&["sh", "-c", no_types, "sh"][..], &["prlimit", "--memlock=0:0"]] {
        for hook in ["tc", "xdp"] {
            let arguments = format!("--format jsonl --hook {hook}");
            measures(&net.probe, under(&net.probe, wrapper, &arguments));
        }
    }
}
