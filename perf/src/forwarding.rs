//! The load generator and its analyser beside others, through the same devices: frames a
//! second of processor time, pacing, and the latency floor.
//!
//! A device here is inline, that is, it runs inside its sender's system calls: so the processor
//! time of the sending process is that of sender, device and receiver together.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sonde_bpf::load_gen::XdpDropper;
use sonde_bpf::{FlowHeader, ForwardPort, Forwarder, XdpGenerator, XdpGeneratorConfig, XdpPace};
use sonde_lab::Mac;
use sonde_lab::device::{BedSpec, DeviceSpec, LabBed, LabPort};
use sonde_meter::load::{AddressRule, FCS_LEN, MacRule, PortRule, Traffic, headers};
use sonde_results::trial::{Direction, Offer};
use sonde_sys::clock::tai_now;
use sonde_sys::cpu_time::stat_field;
use sonde_sys::netns;
use sonde_sys::schedule::Precedence;
use sonde_testbed::tester::{
    DirectionSpec, LoadEngine, Tester, TesterPort, TesterSpec, port_facts,
};

pub fn bench(repeat: usize) -> Result<()> {
    println!("\n## Forwarding\n");
    println!("64-octet frames (60 without the FCS), one flow. Million frames received a second of");
    println!("processor time (sender, inline device and receiver), and in brackets a second of");
    println!(
        "time; medians of {repeat} interleaved rounds. Verified: signature, sequence, latency of"
    );
    println!("every frame.\n");
    println!("| sender | | wire | kernel router | XDP router |");
    println!("|---|---|---|---|---|");
    let devices = [Device::Wire, Device::Router, Device::Xdp];
    for sender in SENDERS {
        let mut cells = Vec::new();
        for device in devices {
            cells.push(match median(repeat, || sender.measure(device)) {
                Ok(reached) => reached,
                Err(e) => {
                    eprintln!("{} through {device:?}: {e:#}", sender.name());
                    "-".into()
                }
            });
        }
        println!("| {} | {} | {} |", sender.name(), sender.about(), cells.join(" | "));
    }
    println!(
        "\nTransmit only, into an XDP program that drops, a stamp for each batch of 64: {} Mpps.",
        median(repeat, || transmit_only(true))?
    );
    println!("With a stamp for each frame: {} Mpps.", median(repeat, || transmit_only(false))?);
    pacing(repeat)
}

/// Time between departures and the latency floor, frame by frame.
fn pacing(repeat: usize) -> Result<()> {
    println!("\n### Pacing and latency, through the kernel router\n");
    println!(
        "| frames/s | nominal | gap p1 | p50 | p99 | late p50 | p99 | latency p1 | p50 | p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for rate in [20_000.0, 200_000.0, 1_000_000.0] {
        let mut rounds = Vec::new();
        for _ in 0..repeat {
            let (bed, mut tester) = tester(Device::Router, LoadEngine::Xdp)?;
            rounds.push(run(&mut tester, &Offer::steady(rate, RUN_NS))?);
            drop((tester, bed));
        }
        // The round in which the machine disturbed least.
        let late = |d: &Direction| d.lateness.quantile(0.99).unwrap_or(i64::MAX);
        let best = rounds.iter().min_by_key(|d| late(d)).context("no round")?;
        let us = |ns: Option<i64>| format!("{:.2}", ns.unwrap_or(0) as f64 / 1e3);
        println!(
            "| {rate} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {} |",
            1e6 / rate,
            us(best.gaps.quantile(0.01)),
            us(best.gaps.quantile(0.5)),
            us(best.gaps.quantile(0.99)),
            us(best.lateness.quantile(0.5)),
            us(best.lateness.quantile(0.99)),
            us(best.latency.quantile(0.01)),
            us(best.latency.quantile(0.5)),
            us(best.latency.quantile(0.99)),
        );
    }
    println!("\nMicroseconds; the round of {repeat} with the least lateness.");
    Ok(())
}

/// What frames pass through.
#[derive(Clone, Copy, Debug)]
enum Device {
    Wire,
    Router,
    Xdp,
}

/// Who sends, and who counts.
#[derive(Clone, Copy)]
enum Sender {
    Sonde(LoadEngine),
    Trafgen,
    Testpmd(&'static str),
}

const SENDERS: [Sender; 6] = [
    Sender::Sonde(LoadEngine::Xdp),
    Sender::Sonde(LoadEngine::AfXdp),
    Sender::Sonde(LoadEngine::AfPacket),
    Sender::Trafgen,
    Sender::Testpmd("net_af_packet"),
    Sender::Testpmd("net_af_xdp"),
];

/// Frames received a second of processor time, and of time.
type Rates = (f64, f64);

impl Sender {
    fn name(self) -> &'static str {
        match self {
            Sender::Sonde(LoadEngine::Xdp) => "sonde, xdp",
            Sender::Sonde(LoadEngine::AfXdp) => "sonde, af_xdp",
            Sender::Sonde(LoadEngine::AfPacket) => "sonde, af_packet",
            Sender::Trafgen => "trafgen",
            Sender::Testpmd("net_af_xdp") => "testpmd, net_af_xdp",
            Sender::Testpmd(_) => "testpmd, net_af_packet",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Sender::Sonde(_) => "verified, stamped",
            _ => "counted by the interface",
        }
    }

    fn measure(self, device: Device) -> Result<Rates> {
        match self {
            Sender::Sonde(engine) => sonde(device, engine),
            Sender::Trafgen | Sender::Testpmd(_) => self.peer(device),
        }
    }

    /// Another's program: what arrives, and the time it takes, in the middle of its run.
    fn peer(self, device: Device) -> Result<Rates> {
        let (program, package) = match self {
            Sender::Trafgen => ("trafgen", "netsniff-ng"),
            _ => ("dpdk-testpmd", "dpdk-dev"),
        };
        let installed = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output()?;
        ensure!(installed.status.success(), "not installed (Debian package {package})");
        let (bed, _forwarder) = build(device)?;
        let [a, b] = [&bed.info().ports[0], &bed.info().ports[1]];
        let mut child = Running(self.start(a, b)?);
        std::thread::sleep(WARM_UP);
        let before = (received(b)?, processor_seconds(&a.netns)?, Instant::now());
        std::thread::sleep(Duration::from_nanos(RUN_NS as u64));
        let after = (received(b)?, processor_seconds(&a.netns)?, before.2.elapsed());
        ensure!(child.0.try_wait()?.is_none(), "{} ended early", self.name());
        let frames = after.0.saturating_sub(before.0) as f64;
        ensure!(frames > 0.0, "nothing arrived");
        Ok((frames / (after.1 - before.1).max(0.01), frames / after.2.as_secs_f64()))
    }

    fn start(self, a: &LabPort, b: &LabPort) -> Result<Child> {
        let [source, destination] = [a, b].map(|p| p.addresses[0].address.clone());
        let bare = |address: &str| address.split('/').next().unwrap_or(address).to_owned();
        let (source, destination) = (bare(&source), bare(&destination));
        let command = match self {
            Sender::Trafgen => {
                let config = format!(
                    "{{ eth(da={}, sa={}), ipv4(ttl=64, saddr={source}, daddr={destination}), \
                     udp(sp=1024, dp=9), fill(0, 18) }}",
                    text(a.next_hop_mac),
                    text(a.mac)
                );
                let file = std::env::temp_dir().join(format!("{}.trafgen", a.netns));
                std::fs::write(&file, config)?;
                format!("exec trafgen --dev {} --conf {} -P 1", a.interface, file.display())
            }
            _ => {
                let Sender::Testpmd(driver) = self else { unreachable!("only these are others") };
                // It ends with its standard input.
                format!(
                    "sleep 60 | exec dpdk-testpmd -l 0,1 --no-huge -m 256 --no-pci \
                     --file-prefix={} --vdev={driver}0,iface={} -- --forward-mode=txonly \
                     --txpkts=60 --nb-cores=1 --total-num-mbufs=16384 --eth-peer=0,{} --tx-ip={source},{destination}",
                    a.netns,
                    a.interface,
                    text(a.next_hop_mac)
                )
            }
        };
        let child = Command::new("ip")
            .args(["netns", "exec", &a.netns, "sh", "-c", &command])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.with_context(|| format!("start {}", self.name()))
    }
}

/// A program that is ended with this. What it started ends with the bed's namespaces.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sonde(device: Device, engine: LoadEngine) -> Result<Rates> {
    let (_bed, mut tester) = tester(device, engine)?;
    // Far more than can go: it ends after a second, and what was sent counts.
    let offer = Offer { rate_fps: ENDLESS, frames: (ENDLESS * 0.5) as u64, ..Offer::default() };
    let before = own_processor_seconds()?;
    let d = run(&mut tester, &offer)?;
    let took = own_processor_seconds()? - before;
    let seconds = (d.received_ns[1] - d.received_ns[0]) as f64 / 1e9;
    ensure!(d.received > 0 && d.corrupted == 0 && d.duplicates == 0, "wrong frames: {d:?}");
    Ok((d.received as f64 / took, d.received as f64 / seconds))
}

fn run(tester: &mut Tester, offer: &Offer) -> Result<Direction> {
    let mut outcome = tester.run(offer, &AtomicBool::new(false), &mut |_| {})?;
    outcome.directions.pop().context("one direction")
}

fn build(device: Device) -> Result<(LabBed, Option<Forwarder>)> {
    let spec = match device {
        Device::Wire => BedSpec::new(DeviceSpec::Loop),
        Device::Router | Device::Xdp => BedSpec::new(DeviceSpec::Router { routes: 0 }),
    };
    let bed = LabBed::build(&spec)?;
    let Device::Xdp = device else { return Ok((bed, None)) };
    let dut = &bed.info().devices[0];
    let port = |interface: &String| -> Result<ForwardPort> {
        let facts = port_facts(&TesterPort {
            name: "device".into(),
            interface: interface.clone(),
            netns: Some(dut.netns.clone()),
            cpu: None,
        })?;
        Ok(ForwardPort { ifindex: facts.ifindex, mac: facts.mac })
    };
    let ports = [port(&dut.interfaces[0])?, port(&dut.interfaces[1])?];
    let forwarder = netns::inside(Some(&dut.netns), || Forwarder::attach(ports))??;
    Ok((bed, Some(forwarder)))
}

/// A tester from a to b; the bed goes with what it holds.
fn tester(device: Device, engine: LoadEngine) -> Result<((LabBed, Option<Forwarder>), Tester)> {
    let bed = build(device)?;
    let [a, b] = [&bed.0.info().ports[0], &bed.0.info().ports[1]];
    let port = |p: &LabPort| TesterPort {
        name: p.name.clone(),
        interface: p.interface.clone(),
        netns: Some(p.netns.clone()),
        cpu: None,
    };
    let way = DirectionSpec {
        from: 0,
        to: 1,
        traffic: traffic(a, b)?,
        length_change: 0,
        for_mac: Some(b.mac),
    };
    let spec = TesterSpec {
        engine,
        ports: vec![port(a), port(b)],
        ways: vec![way],
        drain: Duration::from_millis(500),
    };
    let tester = Tester::open(&spec)?;
    Ok((bed, tester))
}

fn traffic(a: &LabPort, b: &LabPort) -> Result<Traffic> {
    let address = |p: &LabPort| -> Result<AddressRule> {
        let text = &p.addresses[0].address;
        Ok(AddressRule::fixed(text.split('/').next().unwrap_or(text).parse()?))
    };
    Ok(Traffic {
        sizes: vec![64],
        tags: Vec::new(),
        labels: Vec::new(),
        source_mac: MacRule::Fixed(a.mac),
        destination_mac: MacRule::Fixed(a.next_hop_mac),
        source: address(a)?,
        destination: address(b)?,
        source_port: PortRule::fixed(1024),
        destination_port: PortRule::fixed(9),
        flows: 1,
        tos: vec![0],
        ttl: 64,
        seed: 1,
    })
}

/// The generator alone: the other end drops, and its interface counts.
fn transmit_only(batch_stamps: bool) -> Result<Rates> {
    let (bed, _) = build(Device::Wire)?;
    let [a, b] = [&bed.info().ports[0], &bed.info().ports[1]];
    let index = |p: &LabPort| {
        port_facts(&TesterPort {
            name: p.name.clone(),
            interface: p.interface.clone(),
            netns: Some(p.netns.clone()),
            cpu: None,
        })
        .map(|facts| facts.ifindex)
    };
    let (from, to) = (index(a)?, index(b)?);
    let _sink = netns::inside(Some(&b.netns), || XdpDropper::attach(to))??;
    let header = headers(&traffic(a, b)?)?.swap_remove(0);
    let config = XdpGeneratorConfig {
        ifindex: from,
        batch: 64,
        batch_stamps,
        sizes: vec![64 - FCS_LEN as u32],
        header_len: header.len,
        l3_at: header.l3_at,
        l4_at: header.l4_at,
        ipv6: false,
        tag: 1,
        secret: [1, 2],
    };
    let flow = FlowHeader {
        header: header.octets,
        ip_sum: header.ip_sum,
        udp_sum: header.udp_sum,
        stream: 0,
    };
    let pace = XdpPace {
        frames: TRANSMITTED,
        counted_from: 0,
        burst: 1,
        rate_fps: 1e9,
        changes: Vec::new(),
        catch_up_ns: 20_000,
    };
    let generator = netns::inside(Some(&a.netns), || XdpGenerator::load(&config, &[flow], &pace))??;
    generator.start_at(tai_now().as_nanos());
    let before = (received(b)?, own_processor_seconds()?);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<()> {
            netns::enter(&a.netns)?;
            let _preferred = Precedence::of_this_thread(Duration::ZERO);
            Ok(generator.run()?)
        });
        while !thread.is_finished() {
            generator.end_if_done();
            std::thread::sleep(Duration::from_millis(2));
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let frames = (received(b)? - before.0) as f64;
    let took = own_processor_seconds()? - before.1;
    ensure!(frames >= TRANSMITTED as f64 * 0.999, "only {frames} frames arrived");
    let mut d = Direction::default();
    generator.read(&mut d);
    Ok((frames / took, frames * 1e9 / (d.sent_ns[1] - d.sent_ns[0]) as f64))
}

/// "1.05 [1.20]", of the round with the median of the first.
fn median(repeat: usize, measure: impl Fn() -> Result<Rates>) -> Result<String> {
    let mut rounds = (0..repeat).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    rounds.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (processor, wall) = rounds[rounds.len() / 2];
    Ok(format!("{:.2} [{:.2}]", processor / 1e6, wall / 1e6))
}

/// Frames that have arrived at a port so far.
fn received(port: &LabPort) -> Result<u64> {
    let file = format!("/sys/class/net/{}/statistics/rx_packets", port.interface);
    let output = Command::new("ip")
        .args(["netns", "exec", &port.netns, "cat", &file])
        .output()
        .context("read an interface's counter")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("the counter of {}", port.interface))
}

/// Of the processes in a namespace.
fn processor_seconds(netns: &str) -> Result<f64> {
    let output = Command::new("ip").args(["netns", "pids", netns]).output()?;
    let pids = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(pids
        .split_whitespace()
        // One may have just ended.
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| spent(&stat))
        .sum())
}

fn own_processor_seconds() -> Result<f64> {
    spent(&std::fs::read_to_string("/proc/self/stat")?).context("/proc/self/stat")
}

/// User and system time (proc(5): the 14th and 15th field, in hundredths of a second).
fn spent(stat: &str) -> Option<f64> {
    let ticks = |field: usize| stat_field::<f64>(stat, field);
    Some((ticks(14)? + ticks(15)?) / 100.0)
}

fn text(mac: Mac) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

/// Frames a second that nothing here reaches.
const ENDLESS: f64 = 1e8;
const TRANSMITTED: u64 = 10_000_000;
const RUN_NS: i64 = 2_000_000_000;
/// Until another's program sends evenly: testpmd takes most of it to start.
const WARM_UP: Duration = Duration::from_secs(3);
