//! `sonde gen flows` and `sonde flow verify` as they are typed: the same seed gives the same
//! files, other programs count the same, and what Sonde exports of it is exact.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
        println!("skipped: tshark is not installed");
        return;
    };
    let told: HashMap<String, (u64, u64)> = std::fs::read_to_string(truth)
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| {
            let f: Vec<&str> = line.split(',').collect();
            (f[2..7].join(","), (f[7].parse().unwrap(), f[8].parse().unwrap()))
        })
        .collect();
    assert!(told.len() > 500);
    assert_eq!(found, told);
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
