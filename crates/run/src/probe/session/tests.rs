//! Sessions on modelled ports, whose time is virtual: the workers are the real ones.

use std::sync::{Arc, Mutex};

use sonde_port::mem::PathModel;
use sonde_port::{Filter, Port};
use sonde_results::Interval;
use sonde_results::run::Health;
use sonde_results::units::SECOND;
use sonde_sys::netlink::NextHops;

use super::*;
use crate::probe::settings::{Family, RunOptions, StreamOptions, TargetEntry};
use crate::probe::targets;
use crate::running::{RecordReceiver, records};
use crate::virtual_time::ReflectedPort;

const MS: i64 = 1_000_000;
const BEGIN: Time = Time::ZERO;

/// Targets with a probe each 20 ms.
fn targets(hosts: &[&str]) -> Vec<Target> {
    let options = StreamOptions { interval: Some(20 * MS), ..StreamOptions::default() };
    let entries: Vec<TargetEntry> = hosts.iter().map(|host| TargetEntry::of(*host)).collect();
    targets::expand(&entries, &options, Family::Any, false).unwrap().targets
}

fn port(delay_ns: i64) -> ReflectedPort {
    ReflectedPort::new(BEGIN, &PathModel { delay_ns, ..PathModel::default() }).0
}

/// A session of 2 s to `targets`, each with one stream. `lanes`: ports, and the streams that
/// leave there.
fn session(targets: Vec<Target>, lanes: Vec<(ReflectedPort, Vec<u32>)>) -> ProbeSession {
    let source = |_| Ok::<_, String>(("10.0.0.1".parse().unwrap(), 0));
    let plan = targets::plan(&targets, 1, &HashSet::new(), &HashMap::new(), source).unwrap();
    let ways = vec![Ok(LinkHeader::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[]))];
    let options = RunOptions {
        // The thread is awake before the first stream's 101st probe is due, and sees the end first.
        duration: Some(2 * SECOND - 10_000),
        timeout: Some(SECOND),
        record_interval: Some(SECOND),
        ..RunOptions::default()
    };
    let n = targets.len();
    let mut session = ProbeSession {
        infos: plan.infos,
        caps: lanes.iter().map(|(port, _)| port.caps().clone()).collect(),
        start: BEGIN,
        lanes: Vec::new(),
        routing: Routing {
            routes: Routes::open().unwrap(),
            reported: Default::default(),
            next_hops: NextHops::watch(&[]).unwrap().0,
            targets: targets.into_iter().map(|target| (target, None)).collect(),
            lower: vec!["eth0".into(); n],
            target_of: plan.target_of,
            sources: vec!["10.0.0.1".parse().unwrap(); n],
            ways: ways.clone(),
            way_of: vec![0; n],
            plan: plan.streams,
            below_ip: false,
            refreshed: Instant::now(),
            changed: false,
        },
        engine: EngineSettings::default(),
        run: options.resolve(),
        options: SessionOptions::default(),
        clock: clock::clock_state(),
        clock_checked: Instant::now(),
        steps: clock::steady_scale().steps,
        without_way: Vec::new(),
        pace: Pace::new(Instant::now()),
        icmp: None,
        ours: HashSet::new(),
        complaint: None,
    };
    for (port, streams) in lanes {
        let filter = ports::filter(streams.iter().map(|&i| &session.routing.plan[i as usize]));
        let spec = OpenSpec::new(None, filter);
        let opened = OpenedPort { port: Box::new(port), spec, ifindex: 0, streams };
        let lane = session.start_lane(opened, &session.routing.plan, &ways, (BEGIN, None)).unwrap();
        session.lanes.push(lane);
    }
    session
}

/// Follows a session to its end. What it handed out by stream, and what it came to.
fn followed(mut session: ProbeSession) -> (Vec<Interval>, Ended, Progress) {
    let (sender, reader) = records(1 << 16);
    let mut outbox = Outbox::new(sender);
    let mut progress = Progress::default();
    while !session.is_finished() {
        progress = session.poll(&mut outbox);
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = session.close(&mut outbox, &Stop::default());
    drop(outbox);
    (totals(&reader), ended, progress)
}

fn totals(reader: &RecordReceiver<Event>) -> Vec<Interval> {
    let mut totals: Vec<Interval> = (0..4).map(Interval::empty).collect();
    while let Some(event) = reader.next_now() {
        if let Event::Record(record) = event {
            totals[record.stream as usize].merge(&record);
        }
    }
    totals
}

const FOUR: [&str; 4] = ["10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4"];

#[test]
fn records_of_all_lanes_carry_the_streams_of_the_run_and_their_counts_add_up() {
    let lanes = vec![(port(5 * MS), vec![0, 2]), (port(40 * MS), vec![1, 3])];
    let (totals, ended, progress) = followed(session(targets(&FOUR), lanes));
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    for (stream, total) in totals.iter().enumerate() {
        let c = &total.counters;
        assert_eq!((c.sent, c.received, c.lost), (100, 100, 0), "stream {stream}");
        let both_ways = [10 * MS, 80 * MS][stream % 2];
        assert!((total.rtt_net.max - both_ways).abs() <= 2, "{stream}: {}", total.rtt_net.max);
    }
    assert_eq!(ended.counters["sender_sent"], 400);
    assert_eq!(ended.counters["port_tx_frames"], 400);
    assert_eq!(ended.health.send_lateness.count, 400, "of both workers");
    assert!(progress.received <= progress.sent && progress.sent <= 400);
}

#[test]
fn a_lane_that_fails_is_the_failure_and_the_others_go_on_to_their_end() {
    let mut broken = port(MS);
    broken.fails_at = Some(BEGIN + SECOND);
    let lanes = vec![(broken, vec![1]), (port(MS), vec![0, 2, 3])];
    let (totals, ended, _) = followed(session(targets(&FOUR), lanes));
    let failure = ended.failure.expect("one has failed").to_string();
    assert!(failure.contains("the cable was cut"), "{failure}");
    let sent: Vec<u64> = totals.iter().map(|total| total.counters.sent).collect();
    assert_eq!(sent, [100, 50, 100, 100]);
    assert_eq!(ended.counters["sender_sent"], 350);
}

/// A lane that does nothing before `gate` is opened.
fn gated(gate: &Arc<Mutex<()>>, streams: Vec<u32>) -> (ReflectedPort, Vec<u32>) {
    let mut port = port(MS);
    port.gate = Some(gate.clone());
    (port, streams)
}

#[test]
fn streams_of_targets_that_are_gone_end_in_every_lane_and_the_others_go_on() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let lanes = vec![gated(&gate, vec![3, 0]), gated(&gate, vec![1, 2])];
    let mut session = session(targets(&FOUR), lanes);
    let mut ended = session.end(&HashSet::from([2, 3]));
    ended.sort_unstable();
    assert_eq!(ended, [2, 3]);
    assert!(session.routing.targets[2].1.is_some() && session.routing.targets[0].1.is_none());
    drop(closed);
    let (totals, ended, _) = followed(session);
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    let sent: Vec<u64> = totals.iter().map(|total| total.counters.sent).collect();
    assert_eq!(sent[..2], [100, 100]);
    // The order is seen at the first look, after 50 ms.
    assert!(sent[2..].iter().all(|n| (2..=3).contains(n)), "{sent:?}");
}

#[test]
fn an_end_that_is_asked_for_reaches_all_lanes() {
    for urgent in [false, true] {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let lanes = vec![gated(&gate, vec![0, 1]), gated(&gate, vec![2, 3])];
        let session = session(targets(&FOUR), lanes);
        assert!(!session.is_finished());
        match urgent {
            true => session.hurry(),
            false => session.stop(),
        }
        drop(closed);
        let (totals, ended, _) = followed(session);
        assert!(ended.failure.is_none(), "{:?}", ended.failure);
        assert!(totals.iter().all(|total| total.counters.sent <= 3), "urgent: {urgent}");
        assert!((8..=12).contains(&ended.counters["sender_sent"]), "{:?}", ended.counters);
    }
}

#[test]
fn a_trouble_is_logged_once_and_again_after_another() {
    let mut session = session(targets(&FOUR[..1]), Vec::new());
    assert!(session.is_finished(), "without a lane there is nothing to do");
    session.complain(Err(anyhow!("no route")));
    assert_eq!(session.complaint.as_deref(), Some("no route"));
    session.complain(Ok(()));
    assert_eq!(session.complaint.as_deref(), Some("no route"), "it is not forgotten");
    session.complain(Err(anyhow!("no neighbour")));
    assert_eq!(session.complaint.as_deref(), Some("no neighbour"));
    assert_eq!(session.health(), Health::default());
}

#[test]
fn only_what_differs_ends_or_is_new() {
    let mut session = session(targets(&FOUR), Vec::new());
    let mut wanted = targets(&["10.2.0.1", "10.2.0.2", "10.2.0.9"]);
    wanted[1].settings.dscp = vec![46];
    let (gone, new) = session.compare(wanted.clone());
    assert_eq!(gone, HashSet::from([1, 2, 3]));
    let new: Vec<&str> = new.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(new, ["10.2.0.2", "10.2.0.9"]);
    // One that has ended is new when it comes back, and does not end twice.
    session.end(&HashSet::from([0]));
    let (gone, new) = session.compare(targets(&FOUR));
    assert!(gone.is_empty(), "{gone:?}");
    let new: Vec<&str> = new.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(new, ["10.2.0.1"]);
}

#[test]
fn a_source_port_is_free_again_once_its_last_replies_are_settled() {
    let mut session = session(targets(&FOUR[..2]), Vec::new());
    let port_to = |session: &ProbeSession, host: &str| {
        session.ports_in_use().get(&host.parse::<std::net::IpAddr>().unwrap()).cloned()
    };
    let own = session.routing.plan[0].source.port();
    assert_eq!(port_to(&session, FOUR[0]), Some(HashSet::from([own])));
    session.end(&HashSet::from([0, 1]));
    assert_eq!(port_to(&session, FOUR[0]), Some(HashSet::from([own])), "replies may still come");
    // A minute and the timeout later.
    let before = Instant::now().checked_sub(Duration::from_secs(62));
    session.routing.targets[0].1 = Some(before.expect("this host is up for longer"));
    assert_eq!(port_to(&session, FOUR[0]), None);
    assert!(port_to(&session, FOUR[1]).is_some());
}

#[test]
fn a_stream_joins_a_port_that_receives_what_it_needs() {
    let filter = |addresses: &[&str], ports: &[u16]| Filter {
        local: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        local_ports: ports.to_vec(),
        ..Filter::default()
    };
    let open = filter(&["10.0.0.1", "10.0.0.2"], &[62_000, 62_001]);
    for (needs, fits) in [
        (filter(&["10.0.0.2"], &[62_001]), true),
        (filter(&["10.0.0.3"], &[62_001]), false),
        (filter(&["10.0.0.1"], &[62_002]), false),
    ] {
        assert_eq!(change::has_all(&open, &needs), fits, "{needs:?}");
    }
}

/// A target of a name that stands for this address.
fn named(name: &str, address: &str) -> Target {
    let mut target = targets(&[address]).remove(0);
    (target.name, target.looked_up) = (name.into(), Some(name.into()));
    target
}

#[test]
fn a_name_that_moves_is_followed_and_the_others_stay() {
    let run = RunOptions { duration: Some(60 * SECOND), ..RunOptions::default() }.resolve();
    let all =
        vec![named("a", "127.0.0.7"), named("b", "127.0.0.8"), targets(&["127.0.0.9"]).remove(0)];
    let engine = EngineSettings::default();
    let mut session = ProbeSession::open(all, &run, &engine, SessionOptions::default()).unwrap();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    // One stays, one moves; nothing was asked of the third.
    let found = vec![named("a", "127.0.0.7"), named("b", "127.0.0.18")];
    let changed = session.follow_names(found.clone(), &names(&["a", "b"])).unwrap();
    assert_eq!((changed.added.len(), changed.ended), (1, vec![1]));
    assert_eq!(
        changed.added[0].destination.ip(),
        "127.0.0.18".parse::<std::net::IpAddr>().unwrap()
    );
    let changed = session.follow_names(found, &names(&["a", "b"])).unwrap();
    assert_eq!((changed.added.len(), changed.ended.len()), (0, 0), "once");
    // A resolver that fails during a reload ends nobody.
    let wanted = targets(&["127.0.0.9"]);
    let changed = session.change(wanted.clone(), &names(&["a", "b"])).unwrap();
    assert_eq!(changed.ended, [0; 0]);
    assert_eq!(session.change(wanted, &names(&[])).unwrap().ended, [0, 3], "they are gone");
    session.hurry();
    let (sender, _reader) = records(1 << 10);
    assert!(session.close(&mut Outbox::new(sender), &Stop::default()).failure.is_none());
}
