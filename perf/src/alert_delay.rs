//! How long it takes from a lost packet to an alert at a webhook: real packets through a router, whose
//! packet filter drops those to one target from a known time on.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sonde_lab::{Host, LinkOptions, Topology};

use crate::args::Args;
use crate::figures::quantile;
use crate::folder::WorkFolder;
use crate::reflectors;
use crate::station_process::StationProcess;

/// What decides how long it takes.
#[derive(Clone, Copy)]
struct AlertTiming {
    /// Window of the objective, s.
    window_s: u64,
    /// The group's wait, s.
    wait_s: u64,
}

/// One alert, s after the filter was told to drop.
struct Told {
    /// When the window with the loss was over.
    window_end: f64,
    /// When the webhook came.
    arrived: f64,
    /// How long telling the filter took.
    uncertain: f64,
}

/// Three settings, each with all targets.
pub fn bench(args: &Args) -> Result<()> {
    println!("\n## From a lost packet to the alert's delivery\n");
    let targets: u32 = if args.short { 15 } else { 100 };
    println!(
        "Probe, router, kernel reflector; {targets} targets, ten probes a second each, records of 1 s, a \
         probe is lost after {TIMEOUT_MS} ms; one window that misses 5 % of loss is a breach. At a random \
         time for each target the router's nftables begin to drop what goes there; each target is a group of its own. \
         Counted from before `nft` was started, so that its start and the wait for the next probe \
         (up to 100 ms) are in it.\n"
    );
    println!(
        "| window | group waits | alerts | from the drop to the delivery, s: p50 / p90 / p99 / most | until the \
         window is over, p50 | after it, p50 / p99 | of that: time-out and wait | the rest, p50 / p99 | `nft` took, p50 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for timing in [
        AlertTiming { window_s: 1, wait_s: 0 },
        AlertTiming { window_s: 10, wait_s: 0 },
        AlertTiming { window_s: 1, wait_s: 10 },
    ] {
        let AlertTiming { window_s, wait_s } = timing;
        eprintln!("alerts: window {window_s} s, group waits {wait_s} s ...");
        let told = measure(timing, targets)?;
        let known = wait_s as f64 + f64::from(TIMEOUT_MS) / 1e3;
        let of = |value: fn(&Told) -> f64, q| quantile(told.iter().map(value), q);
        let total = |q| of(|t| t.arrived, q);
        let after = |q| of(|t| t.arrived - t.window_end, q);
        println!(
            "| {window_s} s | {wait_s} s | {} of {targets} | {:.2} / {:.2} / {:.2} / {:.2} | {:.2} | {:.2} / \
             {:.2} | {known:.1} | {:.2} / {:.2} | {:.3} |",
            told.len(),
            total(0.5),
            total(0.9),
            total(0.99),
            total(1.0),
            of(|t| t.window_end, 0.5),
            after(0.5),
            after(0.99),
            after(0.5) - known,
            after(0.99) - known,
            of(|t| t.uncertain, 0.5),
        );
    }
    println!(
        "\nThe rest is what the station adds: the record is made, judged, told and delivered. With the \
         defaults (windows of 5 min, three of five, a wait of 10 s) the settings alone take 10 to 15 min: \
         choose them for how soon somebody has to know."
    );
    Ok(())
}

fn measure(timing: AlertTiming, targets: u32) -> Result<Vec<Told>> {
    let topology = Topology::three_hosts("bench", &LinkOptions::default())?;
    let router = topology.router.as_ref().context("the topology has a router")?;
    let _far = reflectors::start_kernel(&topology)?;
    router.run(&["nft", RULES])?;
    let folder = WorkFolder::new()?;
    let listener = topology.probe.inside(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
    let hook = Webhook::serve(listener)?;
    let text = configuration(timing, targets, &hook.url, &folder.0.join("alerts"));
    let mut station = StationProcess::start(&topology.probe, &folder.0, &text)?;
    station.wait_for_phase("probe.watch", "running")?;
    std::thread::sleep(SETTLE);
    let early = hook.firing();
    if !early.is_empty() {
        eprintln!("alerts before anything was dropped, whose targets are left out: {early:?}");
    }
    let mut random = crate::store_rows::Random(u64::from(targets));
    let mut dropped = BTreeMap::new();
    for n in (1..=targets).filter(|&n| !early.contains_key(&host(n))) {
        std::thread::sleep(Duration::from_secs_f64(random.exponential(BETWEEN_S).min(2.0)));
        let (target, before) = (host(n), unix_s()?);
        drop_packets(router, &target)?;
        dropped.insert(target, (before, unix_s()? - before));
    }
    let patience = PATIENCE + Duration::from_secs(timing.window_s + timing.wait_s);
    let begin = Instant::now();
    while hook.firing().len() < early.len() + dropped.len() && begin.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(50));
    }
    let firing = hook.firing();
    let lacking: Vec<&String> = dropped.keys().filter(|t| !firing.contains_key(*t)).collect();
    if !lacking.is_empty() {
        let events = station.get("/sonde/v1/station/health")?;
        eprintln!("no alert for {lacking:?}; health: {events}");
    }
    station.end()?;
    let told = dropped.iter().filter_map(|(target, (before, uncertain))| {
        let (arrived, starts) = firing.get(target)?;
        Some(Told {
            window_end: starts + timing.window_s as f64 - before,
            arrived: arrived - before,
            uncertain: *uncertain,
        })
    });
    let told: Vec<Told> = told.collect();
    ensure!(told.len() * 10 >= dropped.len() * 9, "only {} alerts came", told.len());
    Ok(told)
}

fn configuration(timing: AlertTiming, targets: u32, url: &str, alerts: &std::path::Path) -> String {
    let AlertTiming { window_s, wait_s } = timing;
    format!(
        "[probe.watch]\n\
         target = [{{ host = \"{}-{}\" }}]\n\
         stream = {{ interval = \"100ms\" }}\n\
         run = {{ timeout = \"{TIMEOUT_MS}ms\", record_interval = \"1s\", late_limit = \"100ms\" }}\n\
         [objective.loss]\n\
         metric = \"loss_ratio\"\nlimit = \"5%\"\nwindow = \"{window_s}s\"\nleast_samples = 5\n\
         breach = {{ n = 1, m = 1 }}\nrecovery = {{ n = 1, m = 1 }}\n\
         [alert]\n\
         folder = \"{}\"\nto = []\ngroup_by = [\"target\"]\nwait = \"{wait_s}s\"\ninterval = \"1s\"\n\
         [[alert.route]]\nseverity = \"error\"\nto = [\"hook\"]\n\
         [alert.receiver.hook.webhook]\nurl = \"{url}\"\n",
        host(1),
        host(targets),
        alerts.display()
    )
}

fn host(n: u32) -> String {
    Ipv4Addr::from(0x0a02_0000 + n).to_string()
}

fn drop_packets(router: &Host, target: &str) -> Result<()> {
    let element = format!("{{ {target} }}");
    router.run(&["nft", "add", "element", "ip", "bench", "lost", &element])?;
    Ok(())
}

/// A receiver of webhooks.
struct Webhook {
    url: String,
    /// By target: when it was first told of, and since when it lasts, s since 1970 UTC.
    firing: Arc<Mutex<BTreeMap<String, (f64, f64)>>>,
}

impl Webhook {
    /// Answers until the process ends.
    fn serve(listener: TcpListener) -> Result<Webhook> {
        let url = format!("http://{}/", listener.local_addr()?);
        let firing = Arc::new(Mutex::new(BTreeMap::new()));
        let known = firing.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let known = known.clone();
                std::thread::spawn(move || {
                    if let Err(error) = receive(stream, &known) {
                        eprintln!("the webhook's receiver: {error:#}");
                    }
                });
            }
        });
        Ok(Webhook { url, firing })
    }

    fn firing(&self) -> BTreeMap<String, (f64, f64)> {
        self.firing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Takes the notifications of a connection.
fn receive(stream: TcpStream, firing: &Mutex<BTreeMap<String, (f64, f64)>>) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut lines) = (0, 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(octets) = line.strip_prefix("content-length:") {
                length = octets.trim().parse().context("the length of a notification")?;
            }
            lines += 1;
            if line.is_empty() && lines > 1 {
                break;
            }
        }
        let arrived = unix_s()?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let notification: Value = serde_json::from_slice(&body)?;
        for alert in notification["alerts"].as_array().into_iter().flatten() {
            let (labels, since) = (&alert["labels"], &alert["startsAt"]);
            let target = labels["target"].as_str().unwrap_or_default().to_owned();
            if alert["status"] == "firing" && labels["alertname"] == "ObjectiveBreached" {
                let since = since_s(since.as_str().context("an alert without a begin")?)?;
                let mut all = firing.lock().unwrap_or_else(PoisonError::into_inner);
                all.entry(target).or_insert((arrived, since));
            }
        }
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
}

/// Seconds since 1970 UTC of "2026-11-29T03:11:31.000Z".
fn since_s(text: &str) -> Result<f64> {
    let wrong = || format!("'{text}' is no time");
    let (date, time) = text.trim_end_matches('Z').split_once('T').with_context(wrong)?;
    let part = |text: Option<&str>| -> Result<f64> {
        text.and_then(|text| text.parse().ok()).with_context(wrong)
    };
    let (mut date, mut time) = (date.split('-'), time.split(':'));
    let (year, month, day) = (part(date.next())?, part(date.next())?, part(date.next())?);
    let (hours, minutes, seconds) = (part(time.next())?, part(time.next())?, part(time.next())?);
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month > 2.0 { (year, month - 3.0) } else { (year - 1.0, month + 9.0) };
    let leaps = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor();
    let days = year * 365.0 + leaps + ((153.0 * month + 2.0) / 5.0).floor() + day - 1.0;
    Ok((days - 719_468.0) * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds)
}

fn unix_s() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

const RULES: &str = "add table ip bench; add set ip bench lost { type ipv4_addr; }; \
    add chain ip bench forward { type filter hook forward priority 0; }; \
    add rule ip bench forward ip daddr @lost drop";
const TIMEOUT_MS: u32 = 500;
/// Seconds between two targets, on average: a window of a second sees each phase.
const BETWEEN_S: f64 = 0.25;
/// Until records come.
const SETTLE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_alerts_are_read() {
        assert_eq!(since_s("1970-01-01T00:00:00.000Z").unwrap(), 0.0);
        assert_eq!(since_s("2026-11-26T00:00:00Z").unwrap(), 1_795_651_200.0);
        assert_eq!(since_s("2024-02-29T12:00:01.500Z").unwrap(), 1_709_208_001.5);
        assert_eq!(since_s("2024-03-01T00:00:00.000Z").unwrap(), 1_709_251_200.0);
        assert!(since_s("yesterday").is_err());
    }

    #[test]
    fn a_webhook_keeps_when_each_target_was_told_of_first() {
        let hook = Webhook::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
        let address = hook.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let send = |status: &str, at: &str| {
            let body = format!(
                "{{\"alerts\": [{{\"status\": \"{status}\", \"startsAt\": \"{at}\", \"labels\": \
                 {{\"alertname\": \"ObjectiveBreached\", \"target\": \"10.2.0.1\"}}}}]}}"
            );
            let mut stream = TcpStream::connect(&address).unwrap();
            write!(stream, "POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                .unwrap();
            let mut answer = [0; 15];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200 OK");
        };
        send("resolved", "2026-11-26T00:00:00Z");
        assert!(hook.firing().is_empty());
        send("firing", "2026-11-26T00:00:01Z");
        send("firing", "2026-11-26T00:00:02Z");
        assert_eq!(hook.firing()["10.2.0.1"].1, 1_795_651_201.0);
    }
}
