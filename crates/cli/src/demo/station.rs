//! `sonde demo --station FOLDER`: a station on the demonstration's network, which probes over many
//! streams, watches the router's interfaces, judges what it measures and tells of a fault that is
//! made after a minute.

use std::io::{self, IsTerminal as _, Read, Write, stdout};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use sonde_lab::{Host, Topology, Uplinks};
use sonde_results::units::format_count;
use sonde_run::error::RunError;
use sonde_run::running::Stop;
use sonde_run::thread::{join_logged, spawn};
use sonde_station::client::StationClient;
use sonde_sys::clock::unix_now_ns;

use crate::args::DemoArgs;
use crate::exit::{Exit, Failure};
use crate::explain;
use crate::station::{self, Manner};
use crate::top::{self, TopArgs};

/// What the station is to send, once it is known what the network carries.
pub(super) struct Load {
    /// Destinations behind each uplink, as targets are written.
    pub targets: Vec<String>,
    /// DSCP of the streams to each destination.
    pub dscp: Vec<u8>,
    /// Between two packets of a stream, ns.
    pub interval: u64,
}

/// Namespaces of the network's hosts.
struct Names {
    probe: String,
    router: String,
    reflectors: Vec<String>,
}

impl Names {
    fn of(network: &Uplinks) -> Names {
        let name = |host: &Host| host.name().to_owned();
        let reflectors = network.reflectors.iter().map(name).collect();
        Names { probe: name(&network.probe), router: name(&network.router), reflectors }
    }
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
    std::fs::write(&config, configuration(&folder, &Names::of(network), &load))
        .with_context(|| format!("cannot write {}; free space there", config.display()))?;
    let traffic = start_traffic(network, stop)?;
    let ends = args.duration.map_or(DURATION, |ns| Duration::from_nanos(ns.unsigned_abs()));
    outln!(
        "{} streams, {} packets/s; configuration: {}; API: {}",
        format_count(streams),
        format_count(rate),
        config.display(),
        folder.join(SOCKET).display(),
    );
    outln!(
        "after {} s the router drops a fifth of the packets of class EF to 10.2.0.0/28 for {} s; \
         all ends after {} s, or with Ctrl-C",
        (ends / QUARTERS).as_secs(),
        (ends / QUARTERS).as_secs(),
        ends.as_secs(),
    );
    let fault = start_fault(network.router.clone(), ends / QUARTERS, stop.clone())?;
    let timer = end_after(ends, stop.clone())?;
    let loaded = station::load(&config)?;
    let socket = folder.join(SOCKET);
    // When most is known of the fault: as it ends.
    let asks = ask_at(ends / QUARTERS * 2, ends / QUARTERS, &socket, stop)?;
    let looks = stdout().is_terminal().then(|| show(&socket, stop)).transpose()?;
    let manner = Manner { confined: false, talks: looks.is_none() };
    let ended = station::run_loaded(&config, loaded, stop, manner);
    stop.ask();
    for thread in [Some(timer), Some(fault), looks].into_iter().flatten().chain(traffic) {
        join_logged(thread);
    }
    join_logged(asks).into_iter().flatten().for_each(|line| outln!("{line}"));
    outln!("alerts: {}; look at what was kept:", folder.join(ALERTS).display());
    outln!("  sonde query overview --store {}", folder.join("store").display());
    ended
}

/// The station's file. It is written for people, too: its comments say what each part is.
fn configuration(folder: &Path, names: &Names, load: &Load) -> String {
    let folder = folder.display();
    let Names { probe, router, reflectors } = names;
    let uplinks = reflectors.len();
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
metering = {{ active = \"10s\", idle = \"5s\" }}
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
    for (n, reflector) in reflectors.iter().enumerate() {
        text += &format!("\"reflect.far{n}\" = \"{reflector}\"\n");
    }
    text += &format!(
        "
[objective.loss]                    # of all classes: 2 of 3 windows that miss it are a breach
metric = \"loss_ratio\"
limit = \"1%\"
window = \"5s\"
breach = {{ n = 2, m = 3 }}
recovery = {{ n = 2, m = 3 }}
least_samples = 5

[objective.voice-delay]
match = {{ class = \"EF\" }}
metric = \"delay_percentile\"
percent = 95
limit = \"50ms\"
window = \"1m\"

[alert]
folder = \"{folder}/alerts\"
to = []                             # what no route takes, as that a window had too few samples
group_by = [\"class\"]
wait = \"2s\"
interval = \"10s\"

[[alert.route]]
severity = \"warning\"
to = [\"file\"]

[alert.receiver.file.exec]          # a line of JSON for each notification
command = [\"/usr/bin/tee\", \"-a\", \"{folder}/{ALERTS}\"]
"
    );
    text
}

/// A few TCP connections a second through the router, so that there is something to watch.
fn start_traffic(network: &Uplinks, stop: &Stop) -> Result<Vec<JoinHandle<()>>, Failure> {
    let mut threads = Vec::new();
    for n in 0..network.reflectors.len() as u8 {
        let server = server(n);
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
                // The router may be slow: that is what is to be seen.
                let _ = ask(server(turn));
                if stop.wait(BETWEEN) {
                    return;
                }
            }
        };
        if let Err(error) = probe.inside(asks) {
            errln!(WARN, "no TCP traffic passes the router: {error}");
        }
    };
    threads.push(spawn("demo-client", client)?);
    Ok(threads)
}

/// The server behind an uplink: the first of the destinations there.
fn server(uplink: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 2, uplink * 64, 1), PORT)
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

/// After a time the router drops some packets, for as long.
fn start_fault(router: Host, after: Duration, stop: Stop) -> Result<JoinHandle<()>, RunError> {
    let work = move || {
        if stop.wait(after) {
            return;
        }
        let began = router.run(&["nft", RULES]);
        match began {
            Ok(_) => errln!(INFO, "the router now drops a fifth of EF to 10.2.0.0/28"),
            Err(error) => return errln!(WARN, "no fault can be made: {error}"),
        }
        stop.wait(after);
        if let Err(error) = router.run(&["nft", "delete table ip demo"]) {
            return errln!(WARN, "the fault cannot be mended: {error}");
        }
        errln!(INFO, "the router forwards all again");
    };
    spawn("demo-fault", work)
}

/// Asks the station after `time` what explains the first breach since `fault`, both from now on; the
/// answer in lines. Before the fault a host that is slow may have missed something else.
fn ask_at(
    time: Duration,
    fault: Duration,
    socket: &Path,
    stop: &Stop,
) -> Result<JoinHandle<Vec<String>>, RunError> {
    let (client, stop) = (StationClient::new(socket), stop.clone());
    // A breach begins with its first window.
    let since = unix_now_ns() / 1_000_000 + fault.saturating_sub(WINDOW).as_millis() as i64;
    spawn("demo-explain", move || match stop.wait(time) {
        true => Vec::new(),
        false => match explain::first_breach(&client, since) {
            Ok(Some(lines)) => lines,
            Ok(None) => vec!["no breach was concluded".to_owned()],
            Err(error) => vec![format!("the station does not say what explains it: {error}")],
        },
    })
}

/// Shows the station at work.
fn show(socket: &Path, stop: &Stop) -> Result<JoinHandle<()>, RunError> {
    let (socket, stop) = (socket.to_owned(), stop.clone());
    spawn("demo-top", move || {
        // The socket is there once the station has started.
        while !socket.exists() && !stop.wait(IDLE) {}
        if let Err(error) = top::show(&TopArgs::of(&socket), &stop) {
            errln!(WARN, "the station cannot be shown: {error:?}");
        }
    })
}

/// Asks for the end after a time.
fn end_after(time: Duration, stop: Stop) -> Result<JoinHandle<()>, RunError> {
    spawn("demo-timer", move || {
        if !stop.wait(time) {
            stop.ask();
        }
    })
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
/// Before the fault, during it, and twice after it.
const QUARTERS: u32 = 4;
const RULES: &str = "add table ip demo; add chain ip demo forward { type filter hook forward priority 0; }; \
    add rule ip demo forward ip dscp ef ip daddr 10.2.0.0/28 numgen random mod 5 == 0 counter drop";
/// The window of the objective of losses.
const WINDOW: Duration = Duration::from_secs(5);
const PORT: u16 = 8_080;
const EXCHANGES: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use sonde_run::toml_file::TomlText;
    use sonde_station::config::{Config, ReadFile};

    use super::*;

    #[test]
    fn the_configuration_can_be_run() {
        let names = Names {
            probe: "p".into(),
            router: "r".into(),
            reflectors: vec!["a".into(), "b".into()],
        };
        let load = Load {
            targets: vec!["10.2.0.1-10.2.0.9".into(), "10.2.64.1-10.2.64.9".into()],
            dscp: vec![0, 46],
            interval: 200_000_000,
        };
        let text = configuration(Path::new("/tmp/x"), &names, &load);
        let text = TomlText { file: "sonde.toml".into(), text };
        let config = Config::of(&[ReadFile::parse(text).unwrap()]).unwrap();
        let units: Vec<(&str, Option<&str>)> =
            config.plan.iter().map(|(id, unit)| (id.as_str(), unit.netns.as_deref())).collect();
        assert_eq!(
            units,
            [
                ("flow.router", Some("r")),
                ("probe.streams", Some("p")),
                ("reflect.far0", Some("a")),
                ("reflect.far1", Some("b")),
                ("rtt.router", Some("r")),
            ]
        );
        assert_eq!(config.judge.objectives.len(), 2);
    }
}
