//! How well, and how fast, `sonde bench` finds a no-drop rate on this machine: through a
//! device whose rate is known, because a policer sets it, and through one whose is not.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use sonde_lab::{Host, Lab, LinkOptions, Mac};
use sonde_results::bench::Measurement;

use crate::folder::WorkFolder;

pub fn bench(repeat: usize) -> Result<()> {
    println!("\n## The no-drop rate\n");
    println!("`sonde bench` with `mlrsearch` (goal NDR, 64 octets), {repeat} times each, in turn:");
    println!("the policed router lets {POLICED} frames a second pass. A search ends after 40 s of");
    println!("load, whether it has found a rate or not.\n");
    println!(
        "| device | found | median, frames/s | off the truth | variation (cv) | longest search | trials invalid |"
    );
    println!("|---|---|---|---|---|---|---|");
    let policed = Policed::new()?;
    let devices = [
        ("policed router", policed.plan()),
        ("router on its own processor", plan("[[device]]\nname = 'd'\nkind = 'router'\ncpu = 1\n")),
        ("router inside the sender", plan("[[device]]\nname = 'd'\nkind = 'router'\n")),
    ];
    let mut runs: Vec<Vec<Found>> = vec![Vec::new(); devices.len()];
    for _ in 0..repeat {
        for ((name, plan), runs) in devices.iter().zip(&mut runs) {
            let found = search(plan)?;
            match found.rate {
                Some(rate) => eprintln!("{name}: {rate:.0} frames/s in {:.0} s", found.seconds),
                None => eprintln!("{name}: nothing found in {:.0} s", found.seconds),
            }
            runs.push(found);
        }
    }
    for ((name, _), runs) in devices.iter().zip(&runs) {
        let mut rates: Vec<f64> = runs.iter().filter_map(|r| r.rate).collect();
        rates.sort_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let square = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>();
        let cv = (square / (rates.len().max(2) - 1) as f64).sqrt() / mean;
        let cell = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let off = median.filter(|_| *name == "policed router");
        let off = off.map(|m| format!("{:+.1} %", (m / POLICED as f64 - 1.0) * 100.0));
        let cv = (rates.len() > 1).then(|| format!("{:.1} %", cv * 100.0));
        let longest = runs.iter().map(|r| r.seconds).fold(0.0, f64::max);
        let (invalid, all) = runs.iter().fold((0, 0), |(i, a), r| (i + r.invalid, a + r.trials));
        println!(
            "| {name} | {} of {} | {} | {} | {} | {longest:.0} s | {invalid} of {all} |",
            rates.len(),
            runs.len(),
            cell(median.map(|m| format!("{m:.0}"))),
            cell(off),
            cell(cv),
        );
    }
    Ok(())
}

#[derive(Clone)]
struct Found {
    /// Frames/s; `None`: the search ended before it found any.
    rate: Option<f64>,
    seconds: f64,
    trials: usize,
    invalid: usize,
}

/// Runs the plan as a user would.
fn search(plan: &str) -> Result<Found> {
    let folder = WorkFolder::new()?;
    let file = folder.0.join("plan.toml");
    fs::write(&file, plan)?;
    let out = folder.0.join("run");
    let sonde = std::env::current_exe()?.with_file_name("sonde");
    let begin = Instant::now();
    let output = Command::new(sonde)
        .args(["bench", "--json"])
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .output()
        .context("run sonde, which 'make bench' builds beside this program")?;
    let seconds = begin.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().with_context(|| {
        format!("no measurement: {}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    let found: Measurement = serde_json::from_str(line)?;
    let rate = found.finding.value("conditional_throughput").map(|q| q.value);
    let trials = fs::read_to_string(out.join("trials.jsonl"))?;
    let invalid = trials.lines().filter(|l| !l.contains("\"invalid\":[]")).count();
    Ok(Found { rate, seconds, trials: trials.lines().count(), invalid })
}

fn plan(device: &str) -> String {
    format!(
        "title = 'no-drop rate'\n[bed]\ndrain = '200ms'\n{device}[run]\nloop = false\nback_off = '200ms'\n[[procedure]]\nkind = 'mlrsearch'\n\
         longest = '40s'\ngoals = [{{ name = 'ndr', like = 'ndr' }}]\n"
    )
}

/// A router that forwards so many frames a second and no more.
struct Policed {
    hosts: [Host; 3],
    /// The router's addresses towards a and b.
    macs: [Mac; 2],
    _lab: Lab,
}

impl Policed {
    fn new() -> Result<Policed> {
        let mut lab = Lab::new("policed")?;
        let (a, router, b) = (lab.host("a")?, lab.host("router")?, lab.host("b")?);
        let options = LinkOptions::default();
        let (_, left) = lab.link(&a, "port", &router, "eth0", &options)?;
        let (right, _) = lab.link(&router, "eth1", &b, "port", &options)?;
        router.sysctl(&["net.ipv4.ip_forward=1"])?;
        for (host, interface, address) in [
            (&a, "port", "198.18.0.2/24"),
            (&router, "eth0", "198.18.0.1/24"),
            (&router, "eth1", "198.19.0.1/24"),
            (&b, "port", "198.19.0.2/24"),
        ] {
            host.add_address(interface, address)?;
            host.run(&["ethtool", "-K", interface, "tso", "off", "gso", "off", "tx", "off"])?;
        }
        let rules = format!(
            "table ip police {{\n chain forward {{\n  type filter hook forward priority 0; \
             policy accept;\n  limit rate over {POLICED}/second burst 64 packets drop\n }}\n}}\n"
        );
        let folder = WorkFolder::new()?;
        let file = folder.0.join("rules");
        fs::write(&file, rules)?;
        router.run(&["nft", "-f", text(&file)?])?;
        Ok(Policed { hosts: [a, router, b], macs: [left, right], _lab: lab })
    }

    fn plan(&self) -> String {
        let [a, _, b] = &self.hosts;
        let port = |name: &str, host: &Host, address: &str, mac: Mac| {
            let mac: Vec<String> = mac.iter().map(|o| format!("{o:02x}")).collect();
            format!(
                "ports.{name} = {{ interface = 'port', netns = '{}', addresses = ['{address}'], \
                 mac = '{}' }}\n",
                host.name(),
                mac.join(":")
            )
        };
        plan(&format!(
            "[[device]]\nname = 'd'\nkind = 'external'\n{}{}",
            port("a", a, "198.18.0.2/24", self.macs[0]),
            port("b", b, "198.19.0.2/24", self.macs[1])
        ))
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the temporary folder's name is not text")
}

/// Frames a second that the policed router lets pass.
const POLICED: u32 = 200_000;
