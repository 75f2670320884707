//! `sonde demo --station FOLDER`: a station on the demonstration's network, which probes over many
//! streams, watches the router's interfaces, judges what it measures and tells of a fault that is
//! made after a minute.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use sonde_lab::{Host, Topology, Uplinks};
use sonde_results::units::format_count;
use sonde_run::running::Stop;
use sonde_run::thread::join_logged;
use sonde_sys::clock::steady_now;

use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::station;

/// What the station is to send, once it is known what the network carries.
pub(super) struct Load {
    /// Destinations behind each uplink, as targets are written.
    pub targets: Vec<String>,
    /// DSCP of the streams to each destination.
    pub dscp: Vec<u8>,
    /// Between two packets of a stream, ns.
    pub interval: u64,
}

/// Runs the station in `folder` until its time is over, or `stop`.
pub(super) fn run(
    args: &DemoArgs,
    folder: &Path,
    network: &Uplinks,
    rate: u64,
    stop: &Stop,
) -> Result<Exit, Failure> {
    // The network carries this beside all that watches it.
    let rate = (rate / SHARE).min(MOST);
    let uplinks = network.reflectors.len() as u32;
    let destinations = args.destinations.min(DESTINATIONS);
    let streams = u64::from(destinations) * args.dscp.len() as u64;
    let load = Load {
        targets: (0..uplinks)
            .map(|n| Uplinks::target_range(n as u8, (destinations / uplinks) as u16))
            .collect(),
        dscp: args.dscp.clone(),
        interval: streams * 1_000_000_000 / rate.max(1),
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make {}; name another folder", folder.display()))?;
    let folder = folder
        .canonicalize()
        .with_context(|| format!("cannot find {}; name another folder", folder.display()))?;
    let config = folder.join("sonde.toml");
    std::fs::write(&config, configuration(&folder, network, &load))
        .with_context(|| format!("cannot write {}; free space there", config.display()))?;
    let traffic = Traffic::start(network, stop)?;
    let ends = args.duration.map_or(DURATION, |ns| Duration::from_nanos(ns.unsigned_abs()));
    outln!(
        "{} streams, {} packets/s; configuration: {}; API: {}",
        format_count(streams),
        format_count(rate),
        config.display(),
        folder.join(SOCKET).display(),
    );
    outln!(
        "after {} s the router drops a fifth of the packets of class EF to 10.2.0.0/24 for {} s; \
         all ends after {} s, or with Ctrl-C",
        BEFORE.as_secs(),
        FAULT.as_secs(),
        ends.as_secs(),
    );
    let fault = start_fault(network.router.clone(), stop.clone())?;
    let timer = end_after(ends, stop.clone())?;
    let loaded = station::load(&config)?;
    let ended = station::run_loaded(&config, loaded, stop, false);
    stop.ask();
    for thread in [timer, fault] {
        join_logged(thread);
    }
    traffic.join();
    outln!("alerts: {}; look at what was kept:", folder.join(ALERTS).display());
    outln!("  sonde query overview --store {}", folder.join("store").display());
    ended
}

/// The station's file. It is written for people, too: its comments say what each part is.
fn configuration(folder: &Path, network: &Uplinks, load: &Load) -> String {
    let folder = folder.display();
    let (probe, router) = (network.probe.name(), network.router.name());
    let uplinks = network.reflectors.len();
    let quoted = |texts: &[String]| {
        texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
    };
    let targets: Vec<String> = load
        .targets
        .iter()
        .enumerate()
        .map(|(n, range)| format!("{{ host = \"{range}\", name = \"uplink{n}\" }}"))
        .collect();
    let near: Vec<String> = (0..uplinks).map(|n| format!("near{n}")).collect();
    let (targets, near) = (targets.join(", "), quoted(&near));
    let Load { dscp, interval, .. } = load;
    let mut text = format!(
        "\
# The station of 'sonde demo --station'. Its network is there as long as that runs.

[station]
name = \"demo\"

[store]
path = \"{folder}/store\"

[api]
socket = \"{folder}/{SOCKET}\"

[probe.streams]                     # a stream of each class to each destination
target = [{targets}]
stream = {{ interval = \"{interval}ns\", dscp = {dscp:?}, size = 150 }}
run = {{ record_interval = \"1s\", timeout = \"1s\", late_limit = \"5ms\" }}
engine = {{ engine = \"af_xdp\", cpu = 0 }}

[rtt.router]                        # round trips of the traffic that passes the router
sources = [{near}]

[flow.router]                       # and its flows
sources = [{near}]
"
    );
    for n in 0..uplinks {
        text += &format!(
            "\n[reflect.far{n}]\nengine = {{ iface = \"{}\" }}\nkernel = true\nrate_limit = \"none\"\n",
            Topology::INTERFACE
        );
    }
    text += &format!(
        "\n[netns]                             # in which namespaces they work\n\
         \"probe.streams\" = \"{probe}\"\n\"rtt.router\" = \"{router}\"\n\"flow.router\" = \"{router}\"\n"
    );
    for (n, reflector) in network.reflectors.iter().enumerate() {
        text += &format!("\"reflect.far{n}\" = \"{}\"\n", reflector.name());
    }
    text += &format!(
        "
[objective.loss]                    # of all classes: 2 of 3 windows that miss it are a breach
metric = \"loss_ratio\"
limit = \"1%\"
window = \"10s\"
breach = {{ n = 2, m = 3 }}
recovery = {{ n = 2, m = 3 }}
least_samples = 20

[objective.voice-delay]
match = {{ class = \"EF\" }}
metric = \"delay_percentile\"
percent = 95
limit = \"50ms\"
window = \"1m\"

[alert]
folder = \"{folder}/alerts\"
to = [\"file\"]
group_by = [\"class\"]
wait = \"2s\"

[alert.receiver.file.exec]          # a line of JSON for each notification
command = [\"/usr/bin/tee\", \"-a\", \"{folder}/{ALERTS}\"]
"
    );
    text
}

/// A few TCP connections a second through the router, so that there is something to watch.
struct Traffic(Vec<JoinHandle<()>>);

impl Traffic {
    fn start(network: &Uplinks, stop: &Stop) -> Result<Traffic, Failure> {
        let mut threads = Vec::new();
        for n in 0..network.reflectors.len() as u8 {
            let server = SocketAddrV4::new(Ipv4Addr::new(10, 3, n, 1), PORT);
            let listener = network.reflectors[usize::from(n)]
                .inside(|| TcpListener::bind(server))
                .map_err(anyhow::Error::from)?
                .context("the demonstration's server cannot listen")?;
            listener.set_nonblocking(true).context("the demonstration's server cannot listen")?;
            let (stop, name) = (stop.clone(), format!("demo-server{n}"));
            threads.push(spawn(name, move || serve(&listener, &stop))?);
        }
        let (probe, clients) = (network.probe.clone(), network.reflectors.len() as u8);
        let stop = stop.clone();
        let client = move || {
            let asks = || {
                for turn in (0..clients).cycle() {
                    if stop.is_asked() {
                        return;
                    }
                    // The router may be slow: that is what is to be seen.
                    let _ = ask(SocketAddrV4::new(Ipv4Addr::new(10, 3, turn, 1), PORT));
                    std::thread::sleep(BETWEEN);
                }
            };
            if let Err(error) = probe.inside(asks) {
                errln!(WARN, "no TCP traffic passes the router: {error}");
            }
        };
        threads.push(spawn("demo-client".into(), client)?);
        Ok(Traffic(threads))
    }

    fn join(self) {
        for thread in self.0 {
            join_logged(thread);
        }
    }
}

/// Answers each connection, one after the other.
fn serve(listener: &TcpListener, stop: &Stop) {
    while !stop.is_asked() {
        match listener.accept() {
            Ok((mut stream, _)) => drop(answer(&mut stream)),
            Err(_) => std::thread::sleep(IDLE),
        }
    }
}

fn answer(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut octets = [0; 400];
    for _ in 0..EXCHANGES {
        stream.read_exact(&mut octets[..100])?;
        stream.write_all(&octets)?;
    }
    Ok(())
}

fn ask(server: SocketAddrV4) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&server.into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut octets = [0; 400];
    for _ in 0..EXCHANGES {
        stream.write_all(&octets[..100])?;
        stream.read_exact(&mut octets)?;
    }
    Ok(())
}

/// After a while the router drops some packets, for a while.
fn start_fault(router: Host, stop: Stop) -> Result<JoinHandle<()>, Failure> {
    let work = move || {
        if !wait(BEFORE, &stop) {
            return;
        }
        let began = router.run(&["nft", RULES]);
        match began {
            Ok(_) => errln!(INFO, "the router now drops a fifth of EF to 10.2.0.0/24"),
            Err(error) => return errln!(WARN, "no fault can be made: {error}"),
        }
        wait(FAULT, &stop);
        if let Err(error) = router.run(&["nft", "delete table ip demo"]) {
            return errln!(WARN, "the fault cannot be mended: {error}");
        }
        errln!(INFO, "the router forwards all again");
    };
    spawn("demo-fault".into(), work)
}

/// Asks for the end after a time.
fn end_after(time: Duration, stop: Stop) -> Result<JoinHandle<()>, Failure> {
    spawn("demo-timer".into(), move || {
        if wait(time, &stop) {
            stop.ask();
        }
    })
}

/// Whether the time has passed: it ends before where the end is asked for.
fn wait(time: Duration, stop: &Stop) -> bool {
    let until = steady_now() + time.as_nanos() as i64;
    while steady_now() < until {
        if stop.is_asked() {
            return false;
        }
        std::thread::sleep(IDLE);
    }
    true
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let thread = std::thread::Builder::new().name(name).spawn(work);
    thread.map_err(|e| anyhow!("cannot start a thread ({e}); 'ulimit -u' bounds them").into())
}

const SOCKET: &str = "api.sock";
const ALERTS: &str = "alerts.jsonl";
/// Of what the network carries at most, packets a second: others watch it, and the store writes.
const SHARE: u64 = 4;
const MOST: u64 = 10_000;
/// Destinations at most.
const DESTINATIONS: u32 = 400;
/// How long all lasts if nothing else is said: until the alert has ended.
const DURATION: Duration = Duration::from_secs(240);
/// Until the fault, and how long it lasts.
const BEFORE: Duration = Duration::from_secs(60);
const FAULT: Duration = Duration::from_secs(45);
const RULES: &str = "add table ip demo; add chain ip demo forward { type filter hook forward priority 0; }; \
    add rule ip demo forward ip dscp ef ip daddr 10.2.0.0/24 numgen random mod 5 == 0 counter drop";
const PORT: u16 = 8_080;
const EXCHANGES: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(2);
