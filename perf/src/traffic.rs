//! `--only gen`: what making traffic costs, with the truth about it.

use anyhow::{Context as _, Result};
use sonde_meter::traffic::{Config, FlowGenerator, PacketOrder, Sizes};
use sonde_run::running::Context;
use sonde_run::traffic::{Length, Reorder, Settings, Shares, start};
use sonde_sys::usage::Usage;

use crate::rtt::thread_cpu;

/// Millions of packets a processor second: the frames alone, and files with truth.
pub fn bench(repeat: usize) -> Result<()> {
    println!("\n## Making traffic: Mpps, processor time of one thread\n");
    println!("The frames in memory, each flow reported when it ends; best of {repeat}.\n");
    println!("| traffic | 2^11 flows at once | 2^18 | 2^21 |\n|---|---|---|---|");
    let round = |size| {
        let sizes = Sizes::constant(size);
        Config { order: PacketOrder::RoundRobin, sizes, ..Config::default() }
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
    let usual = Settings { packets: Some(FILE_PACKETS), ..Settings::default() };
    let round_robin =
        |flows| Settings { flows, round_robin: true, sizes: Sizes::constant(64), ..usual.clone() };
    for (options, settings) in [
        ("--flows 262144", Settings { flows: 1 << 18, ..usual.clone() }),
        ("--flows 2048 --round-robin --size 64", round_robin(1 << 11)),
        ("--flows 2097152 --round-robin --size 64", round_robin(1 << 21)),
        (
            "--flows 1 --length constant:1 --apps 0",
            Settings { flows: 1, length: Length::Constant(1), apps: 0.0, ..usual.clone() },
        ),
        (
            "--flows 262144 --encap vlan=0.2,mpls=0.2,gre=0.2,vxlan=0.2 --reorder 0.01 \
             --fragments 0.01",
            Settings {
                flows: 1 << 18,
                encapsulation: Some(Shares {
                    vlan: 0.2,
                    mpls: 0.2,
                    gre: 0.2,
                    vxlan: 0.2,
                    ..Shares::default()
                }),
                reorder: Some(Reorder { share: 0.01, distance: 1 }),
                fragments: 0.01,
                ..usual.clone()
            },
        ),
    ] {
        eprintln!("{options} ...");
        println!("| `{options}` | {} |", to_files(settings)?);
    }
    Ok(())
}

fn in_memory(config: Config) -> Result<f64> {
    let mut buffer = vec![0; config.longest_frame()];
    let mut generator = FlowGenerator::new(config)?;
    let before = thread_cpu()?;
    let (mut bytes, mut reported) = (0u64, 0u64);
    while let Some(at) = generator.next_at() {
        bytes += generator.emit(at, &mut buffer, &mut |_| reported += 1) as u64;
    }
    let packets = generator.packets();
    generator.finish(&mut |_| reported += 1);
    let seconds = thread_cpu()? - before;
    // What nobody looks at, nobody would make.
    std::hint::black_box((bytes, reported));
    Ok(packets as f64 / seconds / 1e6)
}

/// The last three columns of one run.
fn to_files(settings: Settings) -> Result<String> {
    let folder = std::env::temp_dir().join(format!("sonde-bench-gen-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let out = Some(folder.join("t.pcap"));
    let truth = Some(folder.join("t.csv"));
    let result = made(Settings { out, truth, ..settings });
    std::fs::remove_dir_all(&folder)?;
    result
}

fn made(settings: Settings) -> Result<String> {
    let before = Usage::read().cpu;
    let (made, ended) = start(settings, &Context::default())?.last();
    let seconds = (Usage::read().cpu - before).as_secs_f64();
    let made = made.with_context(|| format!("{:?}", ended.failure))?;
    let mpps = made.packets as f64 / seconds / 1e6;
    Ok(format!("{mpps:.2} | {} | {}", made.flows, made.bytes))
}

const PACKETS: u64 = 8_000_000;
const FILE_PACKETS: u64 = 4_000_000;
