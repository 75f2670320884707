//! `sonde gen flows` and `sonde flow verify` as they are typed: the same seed gives the same
//! files, other programs count the same, and what Sonde exports of it is exact.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use sonde_lab::{LinkOptions, Topology};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sonde(line: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_sonde")).args(line).output().unwrap();
    println!("sonde {}: {}", line.join(" "), String::from_utf8_lossy(&output.stderr));
    output
}

fn make(options: &str, pcap: &str, truth: &str) {
    let options = options.split_whitespace();
    let line: Vec<&str> =
        ["gen", "flows", "--out", pcap, "--truth", truth].into_iter().chain(options).collect();
    assert!(sonde(&line).status.success());
}

/// Exit code and report.
fn verify(line: &[&str]) -> (i32, serde_json::Value) {
    let line: Vec<&str> = ["flow", "verify", "--json"].iter().chain(line).copied().collect();
    let output = sonde(&line);
    let report = serde_json::from_slice(&output.stdout).unwrap();
    println!("{report:#}");
    (output.status.code().unwrap(), report)
}

#[test]
fn the_same_seed_gives_the_same_files_and_another_does_not() {
    let folder = Folder::new("gen-seed");
    let options = "--flows 200 --packets 20k --encap vlan=0.2,gtpu=0.2 --reorder 0.1:2 \
                   --fragments 0.05 --resolution us";
    let read = |seed: &str| {
        let (pcap, truth) = (folder.file("a.pcap"), folder.file("a.csv"));
        make(&format!("{options} --seed {seed}"), &pcap, &truth);
        (std::fs::read(pcap).unwrap(), std::fs::read(truth).unwrap())
    };
    let (first, again, other) = (read("7"), read("7"), read("8"));
    assert!(first == again, "seed 7 twice");
    assert!(first.0 != other.0 && first.1 != other.1, "seeds 7 and 8");
}

/// Packets and bytes of each direction, by tshark's own dissection.
fn tshark(pcap: &str) -> Option<HashMap<String, (u64, u64)>> {
    let fields = [
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "udp.srcport",
        "udp.dstport",
        "tcp.srcport",
        "tcp.dstport",
        "ip.proto",
        "ip.len",
        "ipv6.plen",
    ];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", pcap, "-T", "fields", "-E", "separator=,", "-E", "occurrence=f"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().ok().filter(|o| o.status.success())?;
    let mut found: HashMap<String, (u64, u64)> = HashMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let f: Vec<&str> = line.split(',').collect();
        let either = |a: usize, b: usize| if f[a].is_empty() { f[b] } else { f[a] };
        let protocol = match (f[4], f[6]) {
            ("", "") if f[0].is_empty() => "58",
            ("", "") => f[8],
            ("", _) => "6",
            _ => "17",
        };
        let port = |at: usize| match either(at, at + 2) {
            "" => "0",
            port => port,
        };
        let bytes = match f[9] {
            "" => f[10].parse::<u64>().unwrap() + 40,
            len => len.parse().unwrap(),
        };
        let key = format!("{protocol},{},{},{},{}", either(0, 2), either(1, 3), port(4), port(5));
        let sum = found.entry(key).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    Some(found)
}

#[test]
fn tshark_counts_what_the_truth_says() {
    let folder = Folder::new("gen-tshark");
    let (pcap, truth) = (folder.file("a.pcap"), folder.file("a.csv"));
    let options = "--flows 100 --packets 10k --seed 3 --encap vlan=0.2,qinq=0.2,mpls=0.2 \
                   --reorder 0.1 --truth-form uniflow";
    make(options, &pcap, &truth);
    let Some(found) = tshark(&pcap) else {
        sonde_lab::skipped("what tshark sees", "tshark is not installed");
        return;
    };
    let expected: HashMap<String, (u64, u64)> = std::fs::read_to_string(truth)
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| {
            let f: Vec<&str> = line.split(',').collect();
            (f[2..7].join(","), (f[7].parse().unwrap(), f[8].parse().unwrap()))
        })
        .collect();
    assert!(expected.len() > 500);
    assert_eq!(found, expected);
}

#[test]
fn the_truth_agrees_with_itself_in_all_its_forms_and_a_changed_line_is_found() {
    let folder = Folder::new("gen-verify");
    let pcap = folder.file("a.pcap");
    let forms = ["full", "uniflow", "biflow"].map(|form| {
        let truth = folder.file(form);
        make(&format!("--flows 100 --packets 10k --seed 5 --truth-form {form}"), &pcap, &truth);
        truth
    });
    for a in &forms {
        for b in &forms {
            let (code, report) = verify(&["--truth", a, b]);
            assert_eq!((code, &report["exact"]), (0, &true.into()));
            assert_eq!(report["segments"][0]["packets"], serde_json::json!([10_000, 10_000]));
        }
    }
    let text = std::fs::read_to_string(&forms[1]).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.remove(1);
    let changed = folder.file("changed.csv");
    std::fs::write(&changed, lines.join("\n")).unwrap();
    let (code, report) = verify(&["--truth", &forms[0], &changed]);
    assert_eq!((code, &report["differences"][0]["kind"]), (1, &"missing".into()));
    assert_eq!(report["differences"][0]["count"], 1);
}

#[test]
fn what_sonde_exports_is_what_was_made() {
    let folder = Folder::new("gen-flow");
    let (pcap, truth, flows) =
        (folder.file("a.pcap"), folder.file("a.csv"), folder.file("a.ipfix"));
    for (options, metering, model) in [
        ("--flows 500 --packets 50k", "", "validation"),
        ("--flows 500 --packets 50k", "--biflow --times ns", "validation"),
        ("--flows 500 --packets 50k --fragments 0.05 --reorder 0.1:3", "", "precise"),
        ("--flows 500 --packets 50k --encap vxlan=0.2,gre=0.2,mpls=0.2,qinq=0.2", "", "precise"),
        (
            "--flows 500 --packets 50k --keys inner --encap gtpu=0.3,geneve=0.3,vlan=0.3",
            "--keys inner",
            "precise",
        ),
    ] {
        make(options, &pcap, &truth);
        let mut line = vec!["flow", &pcap, "--write", &flows];
        line.extend(metering.split_whitespace());
        assert!(sonde(&line).status.success(), "{metering}");
        let timeouts = ["--idle", "30s", "--active", "5m", "--model", model];
        let files = ["--truth", &truth, &flows];
        let (code, report) = verify(&[&timeouts[..], &files[..]].concat());
        assert_eq!((code, &report["exact"]), (0, &true.into()), "{options} {metering}");
        assert!(Path::new(&flows).exists());
        std::fs::remove_file(&flows).unwrap();
    }
}

#[test]
fn clean_traffic_has_no_copies_of_a_mirror_port() {
    let folder = Folder::new("gen-copies");
    let (pcap, truth) = (folder.file("a.pcap"), folder.file("a.csv"));
    for options in [
        "--flows 1000 --packets 50000",
        "--flows 20 --packets 20k --size 64 --ipv6 1",
        "--flows 20 --packets 20k --encap vxlan=0.3,gre=0.3,gtpu=0.3 --reorder 0.1:3",
    ] {
        make(options, &pcap, &truth);
        for command in ["rtt", "flow"] {
            let output = sonde(&[command, &pcap]);
            let said = [output.stdout, output.stderr].map(|o| String::from_utf8(o).unwrap());
            assert!(said.iter().any(|s| s.contains("packets")), "{command} {options}: {said:?}");
            assert!(
                !said.concat().contains("within a millisecond"),
                "{command} {options}: {said:?}"
            );
        }
    }
}

/// `sonde flow verify --listen`, started and listening.
fn listening(protocol: &str, truth: &str) -> (Child, String) {
    let line = ["flow", "verify", "--truth", truth, "--until-idle", "10s", "--listen"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_sonde"))
        .args(line)
        .arg(format!("{protocol}://127.0.0.1:0"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.strip_prefix("sonde: listening on ").expect(&said);
    let (address, rest) = address.split_once([' ', '\n']).unwrap();
    assert_eq!(rest.contains("receive buffer"), protocol == "udp", "{said}");
    (child, format!("{protocol}://{address}"))
}

#[test]
fn what_is_collected_live_is_compared_too() {
    let folder = Folder::new("gen-listen");
    let (pcap, truth) = (folder.file("a.pcap"), folder.file("a.csv"));
    make("--flows 100 --packets 5k", &pcap, &truth);
    let flows = folder.file("a.ipfix");
    assert!(sonde(&["flow", &pcap, "--write", &flows]).status.success());
    let by_udp = |collector: &str| {
        assert!(sonde(&["flow", &pcap, "--export", collector]).status.success());
    };
    // A file is what a connection carries (RFC 5655, section 4), here in odd pieces.
    let by_tcp = |collector: &str| {
        let mut stream = TcpStream::connect(collector.strip_prefix("tcp://").unwrap()).unwrap();
        for piece in std::fs::read(&flows).unwrap().chunks(977) {
            stream.write_all(piece).unwrap();
        }
    };
    for (protocol, export) in [("udp", &by_udp as &dyn Fn(&str)), ("tcp", &by_tcp)] {
        let (verify, collector) = listening(protocol, &truth);
        export(&collector);
        let output = verify.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{protocol}: {text}");
        assert!(text.contains("precise model: nothing differs"), "{text}");
    }
}

#[test]
fn a_port_sends_what_the_truth_says() {
    if sonde_lab::skip("a_port_sends_what_the_truth_says") {
        return;
    }
    if Command::new("tcpdump").arg("--version").output().is_err() {
        sonde_lab::skipped("a_port_sends_what_the_truth_says", "tcpdump is not installed");
        return;
    }
    let folder = Folder::new("gen-port");
    let topology = Topology::pair("gen", &LinkOptions::default()).unwrap();
    for engine in ["af_packet", "af_xdp"] {
        let (pcap, truth, flows) =
            (folder.file("p.pcap"), folder.file("p.csv"), folder.file("p.ipfix"));
        // Ends by itself when all have come; if some are lost, by the time limit.
        let mut dump = topology.reflector.command("timeout");
        dump.args(["60", "tcpdump", "-i", Topology::INTERFACE, "-c", "20000", "-B", "65536"])
            .args(["-Z", "root", "-w", &pcap, "ether[0:4] == 0x02000000 and ether[4] == 0"])
            .stderr(Stdio::piped());
        let mut dump = dump.spawn().unwrap();
        let mut said = BufReader::new(dump.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("listening on")), "tcpdump listens");
        let mut send = topology.probe.command(env!("CARGO_BIN_EXE_sonde"));
        send.args(["gen", "flows", "--iface", Topology::INTERFACE, "--engine", engine])
            .args(["--rate", "20k", "--packets", "20k", "--flows", "200", "--json"])
            .args(["--truth", &truth]);
        let output = send.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        println!("{engine}: {made}");
        assert_eq!((&made["packets"], &made["own_drops"]), (&20_000.into(), &0.into()));
        assert!(dump.wait().unwrap().success(), "tcpdump saw all packets");
        assert!(sonde(&["flow", &pcap, "--write", &flows]).status.success());
        // The kernel stamps frames later than they were handed over.
        let (code, report) = verify(&["--truth", &truth, "--time-tolerance", "1m", &flows]);
        assert_eq!((code, &report["exact"]), (0, &true.into()), "{engine}");
        std::fs::remove_file(&flows).unwrap();
    }
}
