use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use sonde_port::mem::{MemClock, MemLink, MemPort, PathModel};
use sonde_port::{Caps, PortError, PortStats, RxBurst, TxBurst};

use super::*;
use crate::flow::shard::Shard;

/// An interface in virtual time: the port that is metered, and what sends to it.
pub(in crate::flow) struct Wire {
    far: MemPort,
    pub clock: MemClock,
}

impl Wire {
    /// Sends a frame at `at`, which the metered port stamps with that time.
    pub fn send(&mut self, frame: Vec<u8>, at: Time) {
        self.clock.advance_to(at);
        let mut free = self.far.tx();
        free.slot().expect("one fits")[..frame.len()].copy_from_slice(&frame);
        free.commit(frame.len(), 0);
        self.far.flush().unwrap();
    }
}

/// A port that says it lost some, and fails when its interface is gone: 1, to receive; 2, to
/// wait.
struct Metered {
    port: MemPort,
    lost: u64,
    gone: Arc<AtomicU32>,
}

impl Port for Metered {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        if self.gone.load(Ordering::Relaxed) == 1 {
            return Err(PortError::Config("the interface is gone".into()));
        }
        self.port.rx()
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.port.tx()
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.port.flush()
    }

    fn wait(&mut self, until: Time) -> Result<(), PortError> {
        if self.gone.load(Ordering::Relaxed) == 2 {
            return Err(PortError::Config("the interface is gone".into()));
        }
        self.port.wait(until)
    }

    fn now(&self) -> Time {
        self.port.now()
    }

    fn caps(&self) -> &Caps {
        self.port.caps()
    }

    fn stats(&mut self) -> PortStats {
        PortStats { rx_dropped: self.lost, ..self.port.stats() }
    }
}

/// UDP from 10.0.0.`n` to 10.0.0.1, without payload.
pub(in crate::flow) fn datagram(n: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, n, 10, 0, 0, 1]);
    frame.extend([0, 7, 0, 9, 0, 8, 0, 0]);
    frame
}

/// From 10.0.0.1 to 10.0.0.`n`.
fn answer(n: u8) -> Vec<u8> {
    let mut frame = datagram(n);
    let (source, destination) = frame[26..34].split_at_mut(4);
    source.swap_with_slice(destination);
    frame.swap(35, 37);
    frame
}

/// Set once a port has failed.
pub(in crate::flow) type Gone = Arc<AtomicU32>;

pub(in crate::flow) fn wire(lost: u64) -> (Box<dyn Port>, Wire, Gone) {
    let (port, far, clock) = MemLink::new(1, PathModel::default(), PathModel::default());
    clock.advance_to(steady_now() - 1_000_000_000);
    let gone = Gone::default();
    (Box::new(Metered { port, lost, gone: gone.clone() }), Wire { far, clock }, gone)
}

fn capture(port: Box<dyn Port>, group: Arc<Group<Box<dyn Port>>>) -> CapturePort {
    CapturePort { group, worker: 0, port: Some(port), link: LinkType::Ethernet, index: 7, lost: 0 }
}

fn never() -> Arc<Group<Box<dyn Port>>> {
    let open = || Err(anyhow!("it is not opened again"));
    Arc::new(Group::new("never0", &SharedIfindex::new(7.into()), open))
}

fn frames(ports: Vec<CapturePort>, ordered: Option<Ordered>) -> MeterInput {
    MeterInput::Frames(FrameInput { ports, ordered, is_over: false })
}

/// One interface by itself, which is there all the time and is not opened again.
pub(in crate::flow) fn single(port: Box<dyn Port>) -> MeterInput {
    let index = interface_index("lo").unwrap();
    let open = || Err(anyhow!("it is not opened again"));
    let group = Arc::new(Group::new("lo", &SharedIfindex::new(index.into()), open));
    frames(vec![CapturePort { index, ..capture(port, group) }], None)
}

/// `points`: which interfaces are one observation point.
pub(in crate::flow) fn meter(points: &[u8]) -> Meter {
    setup::meter_at(0, &Settings::default(), [1, 2], Shard::whole(), points).unwrap()
}

/// The source of each flow, and its packets, in the order in which they began.
fn flows(meter: &mut Meter, mut records: Vec<FlowRecord>) -> Vec<(u8, u64)> {
    meter.cache_mut().finish(i64::MAX, &mut |record| records.push(record));
    records.sort_by_key(FlowRecord::first_ns);
    let source = |r: &FlowRecord| match r.key.source {
        IpAddr::V4(a) => a.octets()[3],
        IpAddr::V6(_) => unreachable!("all are IPv4"),
    };
    records.iter().map(|r| (source(r), r.forward.packets)).collect()
}

#[test]
fn every_interface_has_its_turn_and_what_its_port_lost_is_counted() {
    let ((a, mut to_a, _), (b, mut to_b, _)) = (wire(3), wire(4));
    let mut input = frames(vec![capture(a, never()), capture(b, never())], None);
    let mut meter = meter(&[]);
    let mut records = Vec::new();
    let begin = to_a.clock.now();
    for i in 0..3 {
        to_a.send(datagram(11), begin + i * 1_000);
        to_b.send(datagram(12), begin + i * 1_000 + 500);
    }
    assert!(input.turn(&mut meter, &mut |r| records.push(r)));
    assert!(!input.turn(&mut meter, &mut |r| records.push(r)), "nothing is left");
    assert_eq!(input.lost(), 7);
    assert_eq!(flows(&mut meter, records), [(11, 3), (12, 3)]);
    assert!(input.refused().is_empty(), "whole frames are refused by the meter, not before it");
}

/// Of two packets that answer each other, the first that is metered begins the flow.
#[test]
fn packets_of_joined_interfaces_are_metered_in_the_order_of_their_stamps() {
    for joined in [true, false] {
        let ((a, mut to_a, _), (b, mut to_b, _)) = (wire(0), wire(0));
        let ports = vec![capture(a, never()), capture(b, never())];
        let mut input = frames(ports, joined.then(Ordered::default));
        let mut meter = meter(&[0, 0]);
        let mut records = Vec::new();
        let begin = to_a.clock.now().max(to_b.clock.now());
        // The second interface is read last, and has what came first.
        to_b.send(datagram(12), begin);
        to_a.send(answer(12), begin + 2_000);
        // A second ago: no ring can hold back anything that was earlier.
        for _ in 0..3 {
            input.turn(&mut meter, &mut |r| records.push(r));
        }
        meter.cache_mut().finish(i64::MAX, &mut |record| records.push(record));
        let [record] = &records[..] else { panic!("one flow: {records:?}") };
        let asked = if joined { 12 } else { 1 };
        assert_eq!(record.key.source, IpAddr::from([10, 0, 0, asked]), "joined: {joined}");
        assert_eq!((record.forward.packets, record.reverse.packets), (1, 1));
    }
}

#[test]
fn what_is_kept_to_be_put_in_order_is_metered_at_the_end() {
    let (a, mut to_a, _) = wire(0);
    let mut input = frames(vec![capture(a, never())], Some(Ordered::default()));
    let mut meter = meter(&[]);
    let mut records = Vec::new();
    // In the future of every clock: it has to wait for what may still come.
    to_a.send(datagram(11), steady_now() + 3_600_000_000_000);
    input.turn(&mut meter, &mut |r| records.push(r));
    assert_eq!(meter.cache().counters().flows, 0);
    input.rest(&mut meter, &mut |r| records.push(r));
    assert_eq!(flows(&mut meter, records), [(11, 1)]);
}

#[test]
fn an_interface_that_vanishes_keeps_its_counts_and_returns_with_another_port() {
    let (a, mut to_a, gone) = wire(3);
    let (next, mut to_next, _) = wire(5);
    let index = SharedIfindex::new(7.into());
    let (next, opened) = (Mutex::new(Some(next)), Arc::new(AtomicUsize::new(0)));
    let counted = opened.clone();
    let open = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(vec![next.lock().unwrap().take().expect("opened once")])
    };
    let group = Arc::new(Group::new("back0", &index, open));
    let mut input = frames(vec![capture(a, group)], None);
    let mut meter = meter(&[]);
    let mut records = Vec::new();
    let mut sink = |r| records.push(r);
    let begin = to_a.clock.now();
    // What its ring holds when it goes is still metered.
    to_a.send(datagram(11), begin);
    index.store(0, Ordering::Relaxed);
    input.follow(&mut meter, &mut sink);
    assert_eq!(meter.cache().counters().flows, 1);
    assert_eq!((input.lost(), opened.load(Ordering::Relaxed)), (3, 0));
    assert!(!input.turn(&mut meter, &mut sink), "there is no port");
    // It returns under the same name, as another interface.
    index.store(9, Ordering::Relaxed);
    input.follow(&mut meter, &mut sink);
    to_next.send(datagram(12), begin + 1_000);
    assert!(input.turn(&mut meter, &mut sink));
    assert_eq!((input.lost(), opened.load(Ordering::Relaxed)), (8, 1));
    // A second time nothing is done: it is the same.
    input.follow(&mut meter, &mut sink);
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    gone.store(1, Ordering::Relaxed);
    assert_eq!(flows(&mut meter, records), [(11, 1), (12, 1)]);
}

#[test]
fn a_port_that_fails_is_closed_and_its_losses_stay() {
    let (a, mut to_a, gone) = wire(3);
    let mut input = frames(vec![capture(a, never())], None);
    let mut meter = meter(&[]);
    let begin = to_a.clock.now();
    to_a.send(datagram(11), begin);
    gone.store(1, Ordering::Relaxed);
    assert!(!input.turn(&mut meter, &mut |_| {}));
    assert_eq!(input.lost(), 3);
    // Its name has the same index still, but it cannot be opened: the run goes on.
    input.follow(&mut meter, &mut |_| {});
    assert!(!input.turn(&mut meter, &mut |_| {}));
    assert_eq!(input.lost(), 3);
}

#[test]
fn a_wait_for_an_interface_that_has_vanished_is_no_failure_and_keeps_what_was_put_in_order() {
    let (a, mut to_a, gone) = wire(3);
    let mut input = frames(vec![capture(a, never())], Some(Ordered::default()));
    let mut meter = meter(&[]);
    let mut records = Vec::new();
    to_a.send(datagram(11), steady_now() + 3_600_000_000_000);
    input.turn(&mut meter, &mut |r| records.push(r));
    gone.store(2, Ordering::Relaxed);
    input.wait(steady_now()).unwrap();
    assert!(!input.turn(&mut meter, &mut |_| {}), "there is no port");
    assert_eq!(input.lost(), 3);
    input.rest(&mut meter, &mut |r| records.push(r));
    assert_eq!(flows(&mut meter, records), [(11, 1)]);
}

#[test]
fn a_port_that_fails_at_the_end_keeps_what_was_put_in_order() {
    let (a, mut to_a, gone) = wire(0);
    let MeterInput::Frames(mut of_lo) = single(a) else { panic!("whole frames") };
    of_lo.ordered = Some(Ordered::default());
    let mut input = MeterInput::Frames(of_lo);
    let mut meter = meter(&[]);
    let mut records = Vec::new();
    to_a.send(datagram(11), steady_now() + 3_600_000_000_000);
    input.turn(&mut meter, &mut |r| records.push(r));
    gone.store(2, Ordering::Relaxed);
    assert!(input.wait(steady_now()).is_err(), "its interface is still there");
    input.rest(&mut meter, &mut |r| records.push(r));
    assert_eq!(flows(&mut meter, records), [(11, 1)]);
}

#[test]
fn the_thread_that_notices_first_opens_the_ports_of_all() {
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    let open = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(vec![100, 101, 102])
    };
    let group = Group::new("many0", &SharedIfindex::new(9.into()), open);
    assert_eq!(group.reopen(1, 9), Some(101));
    assert_eq!(group.reopen(0, 9), Some(100));
    assert_eq!(group.reopen(2, 9), Some(102));
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    // It went again at once: whoever asks waits until the next try is due.
    assert_eq!(group.reopen(0, 10), None);
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}
