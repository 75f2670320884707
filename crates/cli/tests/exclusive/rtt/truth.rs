//! Traffic of real stacks over a path of known delay: what the matcher finds in a capture
//! of it, against independent judges of the same capture.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use sonde_bpf::RttSide;
use sonde_lab::{Host, Impairment};
use sonde_results::rtt::{RttClass, RttKind, RttSample};

use super::capture::Frame;
use super::differential::disagreements;
use super::net::Net;
use super::oracle::{Direction, OracleSample, segment, timestamp_samples};
use super::subject::{MatcherResult, direction, user_space};
use super::tools::{Analysis, count, missing, tcptrace, tshark};
use super::traffic::{DnsServer, Exchange, dig, ping, tcp};

#[test]
fn timestamps_are_found_as_the_oracle_finds_them() {
    let test = "timestamps_are_found_as_the_oracle_finds_them";
    for (name, path) in [("clean", CLEAN), ("narrow", NARROW), ("lossy", LOSSY)] {
        let Some(net) = Net::new(test, path, path) else { return };
        let (_, frames) = record(&net, name);
        let found = compare_with_oracle(name, &frames, &user_space(&frames, false).samples);
        // One clock, and the instrument's steps.
        assert!(found.p99 < 64, "{name}: {found:?}");
    }
}

/// What an instrument's samples and the oracle's differ by, ns.
#[derive(Debug)]
pub struct Differences {
    pub p50: i64,
    pub p99: i64,
    /// The median of the round trips themselves.
    pub round_trip: i64,
}

/// At least 95 % of the oracle's samples.
pub fn compare_with_oracle(name: &str, frames: &[Frame], samples: &[RttSample]) -> Differences {
    let oracle = timestamp_samples(frames);
    assert!(oracle.len() > 500, "{name}: only {} samples to judge by", oracle.len());
    let mut found: HashMap<_, Vec<&RttSample>> = HashMap::new();
    // Where a clock does not tick within the round trip, the segments' sequence numbers are timed: the
    // packet gives its sample, but not of the segment whose timestamp it echoes.
    let timed = |s: &&RttSample| matches!(s.kind, RttKind::TcpTimestamp | RttKind::TcpSequence);
    for sample in samples.iter().filter(timed) {
        found.entry(direction(&sample.flow)).or_default().push(sample);
    }
    let of_packet = |o: &OracleSample| -> Vec<&RttSample> {
        let all = found.get(&o.direction).into_iter().flatten().copied();
        all.filter(|s| (s.at_ns - o.at_ns).abs() <= SAME_PACKET_NS).collect()
    };
    let difference = |o: &OracleSample| {
        let of_packet = of_packet(o);
        let alike = of_packet.iter().filter(|s| s.kind == RttKind::TcpTimestamp);
        let nearest = alike.min_by_key(|s| (s.at_ns - o.at_ns).abs())?;
        Some((nearest.rtt_ns as i64 - o.rtt_ns).abs())
    };
    let mut differences: Vec<i64> = oracle.iter().filter_map(difference).collect();
    differences.sort_unstable();
    assert!(differences.len() * 2 > oracle.len(), "{name}: only {} alike", differences.len());
    let with_sample = oracle.iter().filter(|o| !of_packet(o).is_empty()).count();
    let share = with_sample as f64 / oracle.len() as f64;
    let mut round_trips: Vec<i64> = oracle.iter().map(|o| o.rtt_ns).collect();
    round_trips.sort_unstable();
    let found = Differences {
        p50: differences[differences.len() / 2],
        p99: differences[differences.len() * 99 / 100],
        round_trip: round_trips[round_trips.len() / 2],
    };
    println!(
        "{name}: {with_sample} of the oracle's {} samples ({:.2} %), {found:?}",
        oracle.len(),
        share * 100.0,
    );
    assert!(share >= 0.95, "{name}: {share}");
    found
}

#[test]
fn sequence_numbers_are_matched_as_tcptrace_matches_them() {
    let test = "sequence_numbers_are_matched_as_tcptrace_matches_them";
    if missing(test, &["tcptrace"]) {
        return;
    }
    for (name, path) in [("clean", CLEAN), ("narrow", NARROW)] {
        let Some(net) = Net::new(test, path, path) else { return };
        net.without_timestamps();
        let (file, frames) = record(&net, name);
        let outcome = user_space(&frames, false);
        let samples = outcome.samples.iter();
        let ours: HashSet<_> =
            samples.map(|s| (direction(&s.flow.reversed()), s.at_ns / 1000)).collect();
        let theirs = tcptrace(&file, &net.file("tcptrace"));
        assert!(theirs.len() > 500, "{name}: only {} samples to judge by", theirs.len());
        let missed: Vec<_> =
            theirs.iter().filter(|s| !ours.contains(&(s.direction, s.at_us))).collect();
        let share = 1.0 - missed.len() as f64 / theirs.len() as f64;
        let flight = greatest_flight(&frames);
        println!(
            "{name}: {:.2} % of tcptrace's {} samples; {} of our own; up to {flight} in flight",
            share * 100.0,
            theirs.len(),
            outcome.samples.len()
        );
        assert!(share >= 0.99, "{name}: {:?}", &missed[..missed.len().min(5)]);
        assert_eq!(outcome.counter("slots_full"), 0, "{name}");
        // A slow start that nothing ends.
        assert!(flight >= 300 || path != CLEAN, "{name}: only {flight} in flight");
    }
}

/// The most segments of one direction that waited for their acknowledgement at once.
fn greatest_flight(frames: &[Frame]) -> usize {
    let mut waiting: HashMap<Direction, VecDeque<u32>> = HashMap::new();
    let mut greatest = 0;
    for segment in frames.iter().filter_map(|frame| segment(&frame.data)) {
        let there = segment.direction;
        let back = (there.2, there.3, there.0, there.1);
        if let (Some(ack), Some(sent)) = (segment.ack, waiting.get_mut(&back)) {
            while sent.front().is_some_and(|&seq| (ack.wrapping_sub(seq) as i32) > 0) {
                sent.pop_front();
            }
        }
        if segment.data > 0 {
            let sent = waiting.entry(there).or_default();
            sent.push_back(segment.seq);
            greatest = greatest.max(sent.len());
        }
    }
    greatest
}

#[test]
fn round_trips_and_losses_are_as_tshark_sees_them() {
    let test = "round_trips_and_losses_are_as_tshark_sees_them";
    if missing(test, &["tshark"]) {
        return;
    }
    for (timestamps, path) in [(false, CLEAN), (false, LOSSY), (true, LOSSY)] {
        let Some(net) = Net::new(test, path, path) else { return };
        if !timestamps {
            net.without_timestamps();
        }
        let (file, frames) = record(&net, "tshark");
        let (analysis, outcome) = (tshark(&file), user_space(&frames, false));
        assert_eq!(analysis.len(), frames.len());
        if path == CLEAN {
            compare_ack_rtt(&frames, &analysis, &outcome);
        }
        let sum = |of: fn(&sonde_results::rtt::RttFlowSide) -> u64| {
            outcome.flows.iter().map(|f| of(&f.forward) + of(&f.backward)).sum::<u64>()
        };
        let theirs = |of: fn(&Analysis) -> bool| analysis.iter().filter(|a| of(a)).count() as u64;
        // Whether a segment was sent again or overtaken is a guess of tshark's, and often a
        // wrong one: the sender's kernel knows better.
        let late = theirs(|a| a.retransmission || a.out_of_order);
        let zero_windows = theirs(|a| a.zero_window);
        about("sent again or overtaken", sum(|s| s.retransmitted + s.reordered), late..=late);
        about("zero windows", sum(|s| s.zero_windows), zero_windows..=zero_windows);
        // Those of nothing outstanding are none (RFC 5681, section 2): they report segments
        // that came twice (RFC 2883). tshark counts them.
        let (surely, all) =
            (theirs(|a| a.duplicate_ack && !a.duplicate_sack), theirs(|a| a.duplicate_ack));
        about("duplicate ACKs", sum(|s| s.duplicate_acks), surely..=all);
        // What the server sends again can be lost before it comes here, and what overtakes
        // and is overtaken on the way passes for it: nobody between the two can know.
        let (client, server) = (sent_again(&net.hosts.client), sent_again(&net.hosts.server));
        let ours = outcome.flows.iter().map(|f| f.forward.retransmitted).sum();
        about("sent again by the client", ours, client..=client);
        let ours = outcome.flows.iter().map(|f| f.backward.retransmitted).sum();
        about("sent again by the server", ours, server * 8 / 10..=server * 13 / 10);
    }
}

/// A count is within 5 % of a range, or off by no more than two.
fn about(what: &str, ours: u64, range: std::ops::RangeInclusive<u64>) {
    println!("{what}: {ours}, judge {range:?}");
    let (least, most) = (range.start() * 95 / 100, (range.end() * 105).div_ceil(100));
    let near = range.contains(&(ours + 2)) || range.contains(&ours.saturating_sub(2));
    assert!((least..=most).contains(&ours) || near, "{what}: {ours}, judge {range:?}");
}

/// TCP segments that a host's kernel has sent again (RFC 4022, tcpRetransSegs).
fn sent_again(host: &Host) -> u64 {
    let table = host.run(&["grep", "^Tcp:", "/proc/net/snmp"]).unwrap();
    let (names, values) = table.trim().split_once('\n').unwrap();
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "RetransSegs").unwrap().1.parse().unwrap()
}

/// tshark times each segment by the first acknowledgement that covers it, and shows the
/// time of the last one: where we have a sample, it must have the same.
fn compare_ack_rtt(frames: &[Frame], analysis: &[Analysis], outcome: &MatcherResult) {
    let by_time: HashMap<i64, &Analysis> = frames.iter().map(|f| f.at_ns).zip(analysis).collect();
    let (mut same, mut other) = (0, Vec::new());
    for sample in outcome.samples.iter().filter(|s| s.kind == RttKind::TcpSequence) {
        match by_time[&sample.at_ns].ack_rtt_ns {
            Some(theirs) if (theirs - sample.rtt_ns as i64).abs() <= 1000 => same += 1,
            theirs => other.push((sample, theirs)),
        }
    }
    println!("tcp.analysis.ack_rtt: {same} the same, {} not", other.len());
    assert!(same > 500, "{same}");
    assert!(other.len() * 20 <= same, "{:?}", &other[..other.len().min(5)]);
}

#[test]
fn dns_answers_take_as_long_as_tshark_says() {
    let test = "dns_answers_take_as_long_as_tshark_says";
    if missing(test, &["tshark", "dig", "dnsmasq"]) {
        return;
    }
    let Some(net) = Net::new(test, CLEAN, CLEAN) else { return };
    let _server = DnsServer::start(&net);
    let capture = net.capture("dns.pcap");
    dig(&net, false, 30);
    dig(&net, true, 30);
    let (file, frames) = capture.stop();
    let theirs: Vec<(i64, i64)> = tshark(&file)
        .iter()
        .zip(&frames)
        .filter_map(|(a, frame)| Some((frame.at_ns, a.dns_ns?)))
        .collect();
    let outcome = user_space(&frames, false);
    let ours: Vec<(i64, i64)> = outcome
        .samples
        .iter()
        .filter(|s| s.kind == RttKind::Dns)
        .map(|s| (s.at_ns, s.rtt_ns as i64))
        .collect();
    assert_eq!(theirs.len(), 60);
    let times = |pairs: &[(i64, i64)]| pairs.iter().map(|p| p.0).collect::<Vec<_>>();
    assert_eq!(times(&ours), times(&theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert!((ours.1 - theirs.1).abs() <= 1000, "{ours:?}, tshark {theirs:?}");
    }
}

#[test]
fn every_ping_is_timed() {
    let test = "every_ping_is_timed";
    if missing(test, &["ping"]) {
        return;
    }
    let Some(net) = Net::new(test, CLEAN, CLEAN) else { return };
    let capture = net.capture("ping.pcap");
    let ping_min = ping(&net, false, 50).min(ping(&net, true, 50));
    let (_, frames) = capture.stop();
    let outcome = user_space(&frames, false);
    let echoes: Vec<_> =
        outcome.samples.iter().filter(|s| s.kind == RttKind::IcmpEcho).map(|s| s.rtt_ns).collect();
    assert_eq!(echoes.len(), 100, "{:?}", outcome.counters);
    let least = *echoes.iter().min().unwrap();
    assert!(least >= 2 * CLEAN.delay.as_nanos() as u64, "{least}: shorter than the path");
    // ping's round trip is ours and the way to the monitor.
    assert!(least as i64 <= ping_min + 1000, "{least}, ping {ping_min}");
}

#[test]
fn losses_never_look_like_latency() {
    let test = "losses_never_look_like_latency";
    for timestamps in [true, false] {
        let Some(mut net) = Net::new(test, LOSSY, LOSSY) else { return };
        if !timestamps {
            net.without_timestamps();
        }
        let (_, frames) = record(&net, "lossy");
        let report = net.stop_relay();
        assert!(report.directions.iter().all(|d| d.lost > 20 && d.reordered > 20), "{report:?}");
        let samples = user_space(&frames, false).samples;
        let truth = 2 * LOSSY.delay.as_nanos() as i64;
        // The relay may have been late with a frame, each way.
        let limit = truth * 3 / 2 + 2 * report.late_max_ns;
        let of = |class| samples.iter().filter(move |s| s.class == class);
        let greatest = |class| of(class).map(|s| s.rtt_ns).max().unwrap_or(0);
        println!(
            "timestamps {timestamps}: {} clean, greatest {} ns; {} in recovery, greatest {} ns; \
             {} held back; limit {limit} ns",
            of(RttClass::Clean).count(),
            greatest(RttClass::Clean),
            of(RttClass::Recovery).count(),
            greatest(RttClass::Recovery),
            of(RttClass::DelayedAck).count(),
        );
        assert!(of(RttClass::Clean).count() > 500);
        let above: Vec<_> = of(RttClass::Clean).filter(|s| s.rtt_ns as i64 > limit).collect();
        println!("{} above: {above:?}", above.len());
        // What no monitor can know: a timestamp's echo names the first of two segments, and the
        // sender's pause between them was shorter than the rules' 11 ms. And a host that this
        // machine lets wait answers late.
        assert!(above.len() * 500 <= of(RttClass::Clean).count(), "{} above", above.len());
    }
}

/// A queue that fills is latency, and must not be taken for acknowledgements held back.
#[test]
fn a_queue_is_not_taken_for_delayed_acknowledgements() {
    let test = "a_queue_is_not_taken_for_delayed_acknowledgements";
    for timestamps in [true, false] {
        let Some(net) = Net::new(test, NARROW, CLEAN) else { return };
        if !timestamps {
            net.without_timestamps();
        }
        let capture = net.capture("queue.pcap");
        tcp(&net, false, 1, Exchange { rounds: 1, request: 2_000_000, answer: 8, pause: NO_PAUSE });
        let (_, frames) = capture.stop();
        let samples = user_space(&frames, false).samples;
        let base = 2 * CLEAN.delay.as_nanos() as u64;
        let queued: Vec<_> = samples.iter().filter(|s| s.rtt_ns > base + 30_000_000).collect();
        let held = queued.iter().filter(|s| s.class == RttClass::DelayedAck).count();
        println!("timestamps {timestamps}: {} samples of a queue, {held} held back", queued.len());
        assert!(queued.len() > 100, "{}: there was no queue", queued.len());
        assert!(held * 20 <= queued.len(), "{held} of {}", queued.len());
    }
}

/// Requests and answers of many sizes over IPv4 and IPv6, then bulk both ways, captured;
/// both matchers must find the same in it.
fn record(net: &Net, name: &str) -> (std::path::PathBuf, Vec<Frame>) {
    let capture = net.capture(&format!("{name}.pcap"));
    everything(net);
    let (file, frames) = capture.stop();
    let kinds = count(frames.iter().map(|f| f.data[12..14].to_vec()));
    println!("{name}: {} packets, {kinds:?}", frames.len());
    let wrong = disagreements(&frames, false, &[RttSide::Ingress]);
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    (file, frames)
}

/// The traffic of most tests.
pub fn everything(net: &Net) {
    let pause = Duration::from_millis(3);
    for ipv6 in [false, true] {
        tcp(net, ipv6, 10, Exchange { rounds: 15, request: 200, answer: 500, pause });
        tcp(net, ipv6, 3, Exchange { rounds: 5, request: 20_000, answer: 9_000, pause });
    }
    tcp(net, false, 2, Exchange { rounds: 1, request: 1_500_000, answer: 8, pause });
    tcp(net, true, 2, Exchange { rounds: 1, request: 8, answer: 1_500_000, pause });
}

/// 20 ms there and back.
pub const CLEAN: Impairment = Impairment {
    delay: Duration::from_millis(10),
    loss: 0.0,
    reorder: 0.0,
    reorder_by: NO_PAUSE,
    rate: 0,
    queue: 0,
};
/// A link that bulk traffic fills.
pub const NARROW: Impairment = Impairment { rate: 20_000_000, ..CLEAN };
const LOSSY: Impairment =
    Impairment { loss: 0.02, reorder: 0.02, reorder_by: Duration::from_millis(2), ..CLEAN };
const NO_PAUSE: Duration = Duration::ZERO;
/// Two stamps of one packet are nearer than two packets of one flow that give samples.
const SAME_PACKET_NS: i64 = 200_000;
