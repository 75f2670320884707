//! `--only gen`: what making traffic costs, with the truth about it.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Parser;
use sonde_cli::traffic::args::FlowsArgs;
use sonde_meter::traffic::{Config, Generator, Order, Sizes};
use sonde_run::running::Context as Given;
use sonde_run::traffic::make;

use crate::rtt::thread_cpu;

/// As it stands behind `sonde gen flows`.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: FlowsArgs,
}

/// Millions of packets a processor second: the frames alone, and files with truth.
pub fn bench(repeat: usize) -> Result<()> {
    println!("\n## Making traffic: Mpps, processor time of one thread\n");
    println!("The frames in memory, each flow told when it ends; best of {repeat}.\n");
    println!("| traffic | 2^11 flows at once | 2^18 | 2^21 |\n|---|---|---|---|");
    let round = |size| {
        let sizes = Sizes::constant(size);
        Config { order: Order::RoundRobin, sizes, ..Config::default() }
    };
    let rows = [
        ("round robin, 64 bytes", round(64)),
        ("round robin, 512 bytes", round(512)),
        ("the default mix", Config::default()),
    ];
    for (name, config) in rows {
        print!("| {name} |");
        for flows in [1 << 11, 1 << 18, 1 << 21] {
            eprintln!("{name}, {flows} flows ...");
            let config = Config { flows, packets: Some(PACKETS), ..config.clone() };
            let mut best = 0.0f64;
            for _ in 0..repeat.max(1) {
                best = best.max(in_memory(config.clone())?);
            }
            print!(" {best:.2} |");
        }
        println!();
    }
    println!(
        "\n`sonde gen flows --packets {FILE_PACKETS} {{...}} --out FILE --truth FILE` with system \
         time, on {}:\n",
        std::env::temp_dir().display()
    );
    println!("| options | Mpps | flows | bytes of frames |\n|---|---|---|---|");
    for options in [
        "--flows 262144",
        "--flows 2048 --round-robin --size 64",
        "--flows 2097152 --round-robin --size 64",
        "--flows 1 --length constant:1 --apps 0",
        "--flows 262144 --encap vlan=0.2,mpls=0.2,gre=0.2,vxlan=0.2 --reorder 0.01 --fragments 0.01",
    ] {
        eprintln!("{options} ...");
        println!("| `{options}` | {} |", to_files(options)?);
    }
    Ok(())
}

fn in_memory(config: Config) -> Result<f64> {
    let mut buffer = vec![0; config.longest_frame()];
    let mut generator = Generator::new(config)?;
    let before = thread_cpu()?;
    let (mut bytes, mut told) = (0u64, 0u64);
    while let Some(at) = generator.next_at() {
        bytes += generator.emit(at, &mut buffer, &mut |_| told += 1) as u64;
    }
    let packets = generator.packets();
    generator.finish(&mut |_| told += 1);
    let seconds = thread_cpu()? - before;
    // What nobody looks at, nobody would make.
    std::hint::black_box((bytes, told));
    Ok(packets as f64 / seconds / 1e6)
}

/// The last three columns of one run.
fn to_files(options: &str) -> Result<String> {
    let folder = std::env::temp_dir().join(format!("sonde-bench-gen-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = made(options, &folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn made(options: &str, folder: &Path) -> Result<String> {
    let text = |name: &str| folder.join(name).to_str().map(str::to_owned).context("a path");
    let (out, truth) = (text("t.pcap")?, text("t.csv")?);
    let packets = FILE_PACKETS.to_string();
    let fixed = ["gen", "--packets", &packets, "--out", &out, "--truth", &truth];
    let line = Line::try_parse_from(fixed.into_iter().chain(options.split_whitespace()))?;
    let before = thread_cpu()?;
    let made = make(&line.args.settings(), &Given::default())?;
    let seconds = thread_cpu()? - before;
    let mpps = made.packets as f64 / seconds / 1e6;
    Ok(format!("{mpps:.2} | {} | {}", made.flows, made.bytes))
}

const PACKETS: u64 = 8_000_000;
const FILE_PACKETS: u64 = 4_000_000;
