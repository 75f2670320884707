use std::sync::atomic::AtomicU32;

use anyhow::anyhow;
use sonde_meter::stamp::{LinkHeader, ReflectorKind, Schedule, SenderConfig};
use sonde_port::mem::PathModel;
use sonde_results::units::SECOND;

use super::*;
use crate::virtual_time::ReflectedPort;

const MS: i64 = 1_000_000;
const BEGIN: Time = Time::ZERO;

/// Stream `i`: a probe each 20 ms, without end.
fn spec(i: i64) -> StreamSpec {
    StreamSpec {
        source: format!("10.0.0.1:{}", 62_000 + i).parse().unwrap(),
        destination: "10.2.0.1:862".parse().unwrap(),
        dscp: 0,
        ttl: 64,
        next_hop: 0,
        ssid: 1 + i as u16,
        ip_length: 150,
        period: 20 * MS,
        phase: (1 + i) * MS,
        schedule: Schedule::Periodic,
        count: None,
        reflector: ReflectorKind::Stateful,
    }
}

fn way() -> NextHopLink {
    Ok(LinkHeader::new([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[]))
}

fn sender_config() -> SenderConfig {
    SenderConfig {
        start: BEGIN,
        timeout: SECOND,
        interval: SECOND,
        late_limit: 50_000,
        tai_offset: 0,
        clock_synchronised: true,
        clock_error: 100,
        tx_stamps: true,
        kernel_resolves: false,
        histogram_pages: 1_000,
        samples: false,
        seed: 1,
    }
}

/// Four streams from time 0 on.
fn sender() -> Sender {
    Sender::new(sender_config(), &(0..4).map(spec).collect::<Vec<_>>(), vec![way()]).unwrap()
}

fn no_other_port() -> Reopen {
    Box::new(|_| panic!("no other port was asked for"))
}

fn delay(ns: i64) -> PathModel {
    PathModel { delay_ns: ns, ..PathModel::default() }
}

/// A worker that is to end after `seconds`, and what its thread does.
fn worker(reopen: Reopen, seconds: i64) -> (ProbeWorker, Inner) {
    ProbeWorker::new(reopen, sender(), SECOND, BEGIN + seconds * SECOND)
}

/// The sums of the records that it has handed over, by stream.
fn totals(worker: &mut ProbeWorker) -> Vec<Interval> {
    let mut totals: Vec<Interval> = (0..8).map(Interval::empty).collect();
    while let Ok(record) = worker.records.pop() {
        totals[record.stream as usize].merge(&record);
    }
    totals
}

#[test]
fn it_probes_until_its_end_and_awaits_the_last_replies() {
    let (port, seen) = ReflectedPort::new(BEGIN, &delay(30 * MS));
    let (mut worker, inner) = worker(no_other_port(), 2);
    let ended = inner.probe(Box::new(port), None);
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    for total in &totals(&mut worker)[..4] {
        let c = &total.counters;
        // The phases are 1 to 4 ms: of 2 s, 100 periods.
        assert_eq!((c.sent, c.received, c.lost, c.skipped), (100, 100, 0, 0));
        assert!((total.rtt_net.max - 60 * MS).abs() <= 2, "{}", total.rtt_net.max);
    }
    let seen = *seen.lock().unwrap();
    assert_eq!(ended.counters["sender_sent"], 400);
    assert_eq!(ended.counters["port_tx_frames"], 400);
    assert_eq!(seen.path.forward.sent, 400, "the path's own count");
    // The last replies come 44 ms after the end, which is looked for every 50 ms.
    let after = seen.last - (BEGIN + 2 * SECOND);
    assert!((44 * MS..2 * HOUSEKEEPING).contains(&after), "it ended {after} ns later");
    let mut last = WorkerStatus::default();
    while let Ok(status) = worker.status.pop() {
        last = status;
    }
    assert!(last.sent > 0 && last.received <= last.sent);
}

#[test]
fn a_stop_awaits_what_is_in_flight_and_an_urgent_one_does_not() {
    for urgent in [false, true] {
        let (port, _) = ReflectedPort::new(BEGIN, &delay(200 * MS));
        let (mut worker, inner) = worker(no_other_port(), 60);
        // Both are seen at the first look, after 50 ms.
        if urgent {
            worker.hurry()
        } else {
            worker.stop()
        }
        let ended = inner.probe(Box::new(port), None);
        for (i, total) in totals(&mut worker)[..4].iter().enumerate() {
            let c = &total.counters;
            // What is in flight at an urgent end is in no interval.
            let n = if urgent { 0 } else { 3 };
            assert_eq!((c.sent, c.received, c.lost), (n, n, 0), "stream {i}, urgent {urgent}");
        }
        assert_eq!(ended.counters["sender_sent"], 4 * 3, "three of each stream in 50 ms");
        assert!(ended.failure.is_none());
    }
}

#[test]
fn streams_are_added_and_ended_by_order() {
    let (port, _) = ReflectedPort::new(BEGIN, &delay(MS));
    let (mut worker, inner) = worker(no_other_port(), 1);
    worker.order(WorkerCommand::End(vec![3]));
    worker.order(WorkerCommand::Add { specs: vec![spec(4), spec(5)], pages: 100 });
    let ended = inner.probe(Box::new(port), None);
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    let sent: Vec<u64> = totals(&mut worker).iter().map(|t| t.counters.sent).collect();
    assert_eq!(sent[..3], [50, 50, 50]);
    assert_eq!(sent[3], 3, "at 4, 24 and 44 ms, before the order was seen");
    // From 50 ms on; their phases are 5 and 6 ms.
    assert!(sent[4..6].iter().all(|n| (47..=48).contains(n)), "{sent:?}");
    assert_eq!(ended.counters["sender_sent"], sent.iter().sum::<u64>());
}

#[test]
fn other_addresses_are_another_port_and_nothing_is_counted_twice_or_left_out() {
    let (port, first) = ReflectedPort::new(BEGIN, &delay(MS));
    let (next, second) = ReflectedPort::new(BEGIN + 60 * MS, &delay(MS));
    let (mut next, tries) = (Some(next), Arc::new(AtomicU32::new(0)));
    let counted = tries.clone();
    let reopen: Reopen = Box::new(move |filter| {
        assert_eq!(filter.local_ports, [62_009]);
        // A new address cannot be used at once.
        match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(anyhow!("the address is tentative")),
            _ => Ok(Box::new(next.take().expect("opened once"))),
        }
    });
    let (mut worker, inner) = worker(reopen, 1);
    let source = "10.0.0.9".parse().unwrap();
    let filter = Filter { local_ports: vec![62_009], ..Filter::default() };
    worker.order(WorkerCommand::Sources(vec![source; 4], filter));
    let ended = inner.probe(Box::new(port), None);
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    let [first, second] = [first, second].map(|seen| seen.lock().unwrap().path.forward.sent);
    assert_eq!(first, 12, "three of each stream, in 50 ms");
    assert!(second > 180, "{second}");
    assert_eq!(ended.counters["port_tx_frames"], first + second);
    assert_eq!(ended.counters["sender_sent"], first + second);
    let sent: u64 = totals(&mut worker).iter().map(|t| t.counters.sent).sum();
    assert_eq!(sent, first + second);
}

#[test]
fn what_was_measured_until_a_port_failed_is_handed_over() {
    let (mut port, _) = ReflectedPort::new(BEGIN, &delay(MS));
    port.fails_at = Some(BEGIN + SECOND);
    let (mut worker, inner) = worker(no_other_port(), 60);
    let ended = inner.probe(Box::new(port), None);
    let failure = ended.failure.expect("it failed").to_string();
    assert!(failure.contains("the cable was cut"), "{failure}");
    for total in &totals(&mut worker)[..4] {
        let c = &total.counters;
        // At most one is in flight, and that one is neither answered nor lost.
        assert_eq!((c.sent, c.lost), (50, 0));
        assert!(c.received >= 49, "{c:?}");
    }
}

#[test]
fn frames_that_the_port_lost_cast_doubt_on_the_time_when_it_did() {
    let (mut port, _) = ReflectedPort::new(BEGIN, &delay(MS));
    port.dropped = Some((BEGIN + 2500 * MS, 7));
    let (mut worker, inner) = worker(no_other_port(), 5);
    let ended = inner.probe(Box::new(port), None);
    assert!(ended.caveats.contains(Caveat::OwnDrops));
    assert_eq!(ended.counters["port_rx_dropped"], 7);
    let mut doubted = Vec::new();
    while let Ok(record) = worker.records.pop() {
        if record.stream == 0 && record.caveats.contains(Caveat::OwnDrops) {
            doubted.push(record.start_ns / SECOND);
        }
    }
    // It is looked at once a second: in that of the loss, or the next.
    assert!(matches!(doubted[..], [2] | [3] | [2, 3]), "{doubted:?}");
}

/// The sums of what a sender has recorded in the end, by stream.
fn records_of(sender: &mut Sender) -> Vec<Interval> {
    let (mut totals, mut record) =
        ((0..4).map(Interval::empty).collect::<Vec<_>>(), Interval::empty(0));
    while sender.poll_record(&mut record) {
        totals[record.stream as usize].merge(&record);
    }
    totals
}

#[test]
fn what_was_due_by_the_end_and_not_sent_is_skipped() {
    let (half, end) = (BEGIN + SECOND / 2, BEGIN + 2 * SECOND);
    let mut sender = sender();
    let mut buffer = [0; 256];
    let mut now = BEGIN;
    while now < half {
        now = now + MS;
        while sender.poll_transmit(now, &mut buffer).is_some() {}
    }
    // No processor time from then on, beyond the end.
    sender.stop(end, end + SECOND);
    sender.finish(end + SECOND);
    for total in records_of(&mut sender) {
        let c = &total.counters;
        // The phases are 1 to 4 ms: of 2 s, 100 periods.
        assert_eq!((c.sent, c.skipped), (25, 75), "{c:?}");
        assert_eq!(c.not_sent.total(), 75);
    }
}

#[test]
fn of_a_stream_that_ends_what_was_due_is_skipped_and_of_a_count_no_more_than_it() {
    let mut sender = sender();
    sender.end(&[3], BEGIN + SECOND);
    sender.stop(BEGIN + SECOND, BEGIN + SECOND);
    sender.finish(BEGIN + SECOND);
    let skipped: Vec<u64> = records_of(&mut sender).iter().map(|t| t.counters.skipped).collect();
    assert_eq!(skipped, [50, 50, 50, 50]);
    let config = sender_config();
    let counted = StreamSpec { count: Some(7), ..spec(0) };
    let mut sender = Sender::new(config, &[counted], vec![way()]).unwrap();
    sender.stop(BEGIN + SECOND, BEGIN + SECOND);
    sender.finish(BEGIN + SECOND);
    assert_eq!(records_of(&mut sender)[0].counters.skipped, 7);
}

#[test]
fn an_interval_that_is_cut_short_ends_when_it_ended() {
    let (port, _) = ReflectedPort::new(BEGIN, &delay(MS));
    let (mut worker, inner) =
        ProbeWorker::new(no_other_port(), sender(), SECOND, BEGIN + 2300 * MS);
    let ended = inner.probe(Box::new(port), None);
    assert!(ended.failure.is_none(), "{:?}", ended.failure);
    assert!(ended.health.send_lateness.count > 0, "what was late is known at the end");
    let mut ends: Vec<Vec<i64>> = vec![Vec::new(); 4];
    while let Ok(record) = worker.records.pop() {
        ends[record.stream as usize].push(record.end_ns);
    }
    for ends in ends {
        assert_eq!(ends[..2], [SECOND, 2 * SECOND]);
        assert!((2300 * MS..2300 * MS + HOUSEKEEPING).contains(&ends[2]), "{ends:?}");
        assert_eq!(ends.len(), 3);
    }
}

#[test]
fn nothing_is_due_at_the_end_itself() {
    let (port, _) = ReflectedPort::new(BEGIN, &delay(MS));
    // Stream 0 sends 1 ms after each 20 ms, the others later.
    let (mut worker, inner) =
        ProbeWorker::new(no_other_port(), sender(), SECOND, BEGIN + 1001 * MS);
    inner.probe(Box::new(port), None);
    let mut records = Vec::new();
    while let Ok(record) = worker.records.pop() {
        records.push((
            record.end_ns - record.start_ns,
            record.counters.sent,
            record.counters.skipped,
        ));
    }
    assert_eq!(records, [(SECOND, 50, 0); 4]);
}
