//! Flow metering from capture files, IPFIX written, beside the probes that Debian has: the
//! same files, the same process order, processor time of whole processes.
//!
//! The packets are those of the comparison that Sonde's targets come from: UDP over IPv4,
//! one microsecond apart, flow (i * 0x9E3779B1) mod F. So a flow's packets come far
//! apart: every one of them misses the caches that its flow's record does not fit in.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sonde_results::FlowRun;
use sonde_wire::checksum;

use crate::folder::WorkFolder;

pub fn bench(repeat: usize) -> Result<()> {
    install_peers()?;
    let folder = WorkFolder::new()?;
    println!("\n## Flow metering from a capture, IPFIX written\n");
    println!("Million packets per second of processor time (user and system, whole process),");
    println!(
        "median of {repeat} runs ({SLOW}: one); in brackets the greatest. File and free memory are warm. Flows exact: records that Sonde"
    );
    println!("wrote, of the flows that are in the file.\n");
    println!("| packets | frame | flows | {} | exact |", NAMES.join(" | "));
    println!("|---|---|---|{}---|", "---|".repeat(NAMES.len()));
    let file = folder.0.join("packets.pcap");
    for case in CASES {
        write(&file, case).context("writing the capture")?;
        let Case { packets, frame, flows } = case;
        let label = format!("| {packets} | {frame} | {flows} |");
        row(&label, packets.into(), &file, &folder, repeat, &|run| {
            let records: u64 = run.ends.values().sum();
            Ok(format!("{records} of {flows}"))
        })?;
    }
    mix(&file, &folder, repeat)
}

/// Traffic as it may be, with its truth: TCP, UDP and ICMP, a fifth of it IPv6, lengths of
/// flows by a power law.
fn mix(file: &Path, folder: &WorkFolder, repeat: usize) -> Result<()> {
    let (truth, flows) = (folder.0.join("truth.csv"), folder.0.join("flows.ipfix"));
    let sonde = std::env::current_exe()?.with_file_name("sonde");
    let made = Command::new(&sonde)
        .args(["gen", "flows", "--flows", "40000", "--packets", "4000000", "--seed", "1"])
        .args(["--json", "--truth", &text(&truth)?, "--out", &text(file)?])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(made.status.success(), "sonde gen flows ended with {}", made.status);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout)?;
    let count = |name: &str| made[name].as_u64().context("the summary of sonde gen flows");
    let (packets, open) = (count("packets")?, count("flows")?);
    row(&format!("| {packets} | mix | {open} |"), packets, file, folder, repeat, &|_| {
        let verdict = Command::new(&sonde)
            .args(["flow", "verify", "--truth", &text(&truth)?, &text(&flows)?])
            .stdout(Stdio::null())
            .status()?;
        Ok(if verdict.success() { "all" } else { "not all: sonde flow verify" }.into())
    })
}

#[derive(Clone, Copy)]
struct Case {
    packets: u32,
    /// Frame length on the wire, with its check sequence.
    frame: usize,
    flows: u32,
}

/// Measures all on one file. `exact`: how true the latest of Sonde's runs is.
fn row(
    label: &str,
    packets: u64,
    file: &Path,
    folder: &WorkFolder,
    repeat: usize,
    exact: &dyn Fn(&FlowRun) -> Result<String>,
) -> Result<()> {
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); NAMES.len()];
    let mut accuracy = String::new();
    for round in 0..repeat {
        for (i, name) in NAMES.iter().enumerate() {
            // A run of this one takes as long as all the others together.
            if *name == SLOW && round > 0 {
                continue;
            }
            eprintln!("flow {label} round {}, {name} ...", round + 1);
            warm(file)?;
            let seconds = match *name {
                "sonde" => {
                    let (seconds, run) = sonde(file, folder)?;
                    let seen: u64 = run.protocols.iter().map(|p| p.packets).sum();
                    ensure!(seen == packets, "sonde saw {seen} packets of {packets}");
                    if round == 0 {
                        accuracy = exact(&run)?;
                    }
                    seconds
                }
                "softflowd" => softflowd(file, folder)?,
                "nfpcapd" => nfpcapd(file, folder)?,
                _ => pmacctd(file, folder)?,
            };
            rates[i].push(packets as f64 / seconds / 1e6);
        }
    }
    let cells: Vec<String> = rates
        .iter_mut()
        .map(|r| {
            r.sort_by(f64::total_cmp);
            format!("{:.2} [{:.2}]", r[r.len() / 2], r[r.len() - 1])
        })
        .collect();
    println!("{label} {} | {accuracy} |", cells.join(" | "));
    Ok(())
}

/// Runs Sonde; its processor time and its run.
fn sonde(file: &Path, folder: &WorkFolder) -> Result<(f64, FlowRun)> {
    let me = std::env::current_exe()?.with_file_name("sonde");
    let (run, out) = (folder.0.join("run.json"), folder.0.join("flows.ipfix"));
    let seconds = timed(
        folder,
        &[
            &text(&me)?,
            "flow",
            &text(file)?,
            "--write",
            &text(&out)?,
            "--flows",
            "2097152",
            "-o",
            &text(&run)?,
        ],
    )?;
    Ok((seconds, serde_json::from_slice(&fs::read(&run)?)?))
}

fn softflowd(file: &Path, folder: &WorkFolder) -> Result<f64> {
    let sink = Sink::open()?;
    let to = format!("127.0.0.1:{}", sink.port);
    // With a control socket it would wait for somebody to connect to that.
    let options = ["-m", "4194304", "-d", "-v", "10", "-c", "none", "-n", &to];
    timed(folder, &[&["softflowd", "-r", &text(file)?][..], &options].concat())
}

fn nfpcapd(file: &Path, folder: &WorkFolder) -> Result<f64> {
    let out = folder.0.join("nf");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out)?;
    timed(folder, &["nfpcapd", "-r", &text(file)?, "-w", &text(&out)?])
}

fn pmacctd(file: &Path, folder: &WorkFolder) -> Result<f64> {
    let sink = Sink::open()?;
    let config = folder.0.join("pm.conf");
    fs::write(
        &config,
        format!(
            "plugins: nfprobe\nnfprobe_receiver: 127.0.0.1:{}\nnfprobe_version: 10\n\
             nfprobe_maxflows: 4194304\nplugin_pipe_size: 104857600\nplugin_buffer_size: 102400\n\
             aggregate: src_host,dst_host,src_port,dst_port,proto,tos\n",
            sink.port
        ),
    )?;
    timed(folder, &["pmacctd", "-f", &text(&config)?, "-I", &text(file)?])
}

/// Reads the file, so that every program finds it in memory, and writes to memory that is
/// free, so that none pays for getting it: hypervisors take back what a guest leaves idle for
/// some seconds, and giving it again costs the next user half a second for 200 MB.
fn warm(file: &Path) -> Result<()> {
    std::io::copy(&mut File::open(file)?, &mut std::io::sink())?;
    std::hint::black_box(vec![1u8; WARM_BYTES]);
    Ok(())
}

/// Runs a command to its end; its processor time and its children's, s.
fn timed(folder: &WorkFolder, command: &[&str]) -> Result<f64> {
    let out = folder.0.join("time");
    let status = Command::new("bash")
        .args(["-c", "TIMEFORMAT='%U %S'; { time \"${@:2}\" >/dev/null 2>&1; } 2>\"$1\"", "bash"])
        .arg(&out)
        .args(command)
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.success(), "{} ended with {status}", command.join(" "));
    let times = fs::read_to_string(&out)?;
    let seconds: Vec<f64> = times.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [user, system] = seconds[..] else { bail!("bash's time said '{times}'") };
    Ok(user + system)
}

/// A port that takes what probes export, so that they do not meet a closed one.
struct Sink {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sink {
    fn open() -> Result<Sink> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let (port, stop) = (socket.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let theirs = stop.clone();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !theirs.load(Ordering::Relaxed) {
                // Nothing in time: look whether this is the end.
                let _ = socket.recv(&mut buffer);
            }
        });
        Ok(Sink { port, stop, thread: Some(thread) })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(path: &Path, case: Case) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0])?;
    let captured = case.frame - 4;
    let mut frame = vec![0; captured];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14] = 0x45;
    // A 64-byte frame carries 46 bytes, as in the comparison.
    frame[16..18].copy_from_slice(&((captured - 14) as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[30..34].copy_from_slice(&[192, 168, 0, 1]);
    frame[34..38].copy_from_slice(&[0x30, 0x39, 0, 53]);
    frame[38..40].copy_from_slice(&((captured - 34) as u16).to_be_bytes());
    for i in 0..case.packets {
        let flow = i.wrapping_mul(0x9e37_79b1) % case.flows;
        let (seconds, micros) = (1_700_000_000 + i / 1_000_000, i % 1_000_000);
        for word in [seconds, micros, captured as u32, captured as u32] {
            out.write_all(&word.to_le_bytes())?;
        }
        frame[26..30].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum::finish(checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        out.write_all(&frame)?;
    }
    out.flush()?;
    Ok(())
}

/// Installs the Debian packages of peers that are missing.
fn install_peers() -> Result<()> {
    let missing: Vec<&str> =
        [("softflowd", "softflowd"), ("nfpcapd", "nfdump"), ("pmacctd", "pmacct")]
            .iter()
            .filter(|(program, _)| {
                !Command::new("sh")
                    .args(["-c", &format!("command -v {program}")])
                    .stdout(Stdio::null())
                    .status()
                    .is_ok_and(|s| s.success())
            })
            .map(|(_, package)| *package)
            .collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing the peers: {}", missing.join(", "));
    let status = Command::new("apt-get")
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()?;
    ensure!(status.success(), "cannot install {}; run apt-get update first", missing.join(", "));
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("a path is not text")?.to_string())
}

/// More than any of the programs takes.
const WARM_BYTES: usize = 1 << 30;
const SLOW: &str = "pmacctd";
const NAMES: [&str; 4] = ["sonde", "softflowd", "nfpcapd", "pmacctd"];
const CASES: [Case; 6] = [
    Case { packets: 8_388_608, frame: 64, flows: 1 << 11 },
    Case { packets: 8_388_608, frame: 64, flows: 1 << 18 },
    Case { packets: 8_388_608, frame: 64, flows: 1 << 21 },
    Case { packets: 2_097_152, frame: 128, flows: 1 << 18 },
    Case { packets: 2_097_152, frame: 256, flows: 1 << 18 },
    Case { packets: 2_097_152, frame: 512, flows: 1 << 18 },
];
