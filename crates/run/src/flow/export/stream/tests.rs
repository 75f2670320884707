//! Collectors that are gone without closing, and those that are only slow. Messages are
//! pushed in as the exporter would.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};

use sonde_lab::{LinkOptions, Topology};
use sonde_wire::ipfix::MessageIter;

use super::super::segments::tests::Folder;
use super::super::templates::tests::{data, template};
use super::*;

/// A collector on the reflector, and what is sent to it from the probe.
struct Pair {
    net: Topology,
    listener: TcpListener,
    shared: Arc<Shared>,
    sender: Option<JoinHandle<()>>,
    _spool: Folder,
}

impl Pair {
    /// `None` without root.
    fn new(test: &str) -> Option<Pair> {
        if sonde_lab::skip(test) {
            return None;
        }
        let net = Topology::pair("flowtcp", &LinkOptions::default()).unwrap();
        let listener = net.reflector.inside(|| TcpListener::bind("10.1.0.2:0").unwrap()).unwrap();
        let target = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let spool = Folder::new();
        let backlog = Backlog::open(Some((&spool.0, 1 << 24))).unwrap();
        let shared = Arc::new(Shared::new(backlog, Stop::default()));
        let theirs = shared.clone();
        let patience = Duration::from_secs(3);
        let sender = Sender::new(target, None, theirs, patience);
        // A thread begins in the namespace of the one that starts it.
        let sender = net.probe.inside(|| thread::spawn(move || sender.run())).unwrap();
        Some(Pair { net, listener, shared, sender: Some(sender), _spool: spool })
    }

    fn push(&self, sequence: std::ops::Range<u32>) {
        if sequence.start == 0 {
            self.shared.message(&template(), 0);
        }
        sequence.for_each(|i| self.shared.message(&data(i), 1));
    }

    /// Waits for a condition of the sender's state.
    fn until(&self, what: &str, mut is_so: impl FnMut(&mut State) -> bool) {
        let begun = Instant::now();
        while !is_so(&mut self.shared.lock()) {
            assert!(begun.elapsed() < BOUND, "waited in vain for {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn accept(&self) -> TcpStream {
        let stream = self.listener.accept().unwrap().0;
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream
    }

    /// Ends the sender, and reads what comes until then.
    fn end(&mut self, mut stream: TcpStream) -> Vec<u32> {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        drop(stream);
        self.sender.take().unwrap().join().unwrap();
        sequence_numbers(&all)
    }
}

/// Sequence numbers of the data messages; they begin at 0 with each connection.
fn sequence_numbers(bytes: &[u8]) -> Vec<u32> {
    let headers = MessageIter::new(bytes).map(|m| m.unwrap());
    let data = headers.filter(|m| u16::from_be_bytes([m[16], m[17]]) >= 256);
    data.map(|m| u32::from_be_bytes([m[8], m[9], m[10], m[11]])).collect()
}

/// Reads `n` data messages, and the templates before them.
fn read(stream: &mut TcpStream, n: usize) {
    let mut all = vec![0; template().len() + n * data(0).len()];
    stream.read_exact(&mut all).unwrap();
    assert_eq!(sequence_numbers(&all).len(), n);
}

#[test]
fn nothing_is_tried_further_once_nobody_wants_to_wait() {
    let shared = Arc::new(Shared::new(Backlog::open(None).unwrap(), Stop::default()));
    shared.message(&data(0), 1);
    // Nobody listens there.
    let target = "tcp://127.0.0.1:1".parse().unwrap();
    let mut sender = Sender::new(target, None, shared.clone(), PATIENCE);
    shared.stop.store(true, Ordering::Release);
    assert!(sender.is_stopped());
    // It began to wait only now, for as long as it may.
    sender.moved = Instant::now() + LAST_TRIES;
    assert!(!sender.is_over());
    shared.hurry.hurry();
    assert!(sender.is_over());
    sender.run();
    assert!(shared.lock().backlog.bytes() > 0);
}

#[test]
fn a_collector_that_is_gone_without_a_word_is_noticed_and_what_it_missed_is_sent_again() {
    let test =
        "a_collector_that_is_gone_without_a_word_is_noticed_and_what_it_missed_is_sent_again";
    let Some(mut pair) = Pair::new(test) else { return };
    let mut first = pair.accept();
    pair.push(0..10);
    read(&mut first, 10);
    pair.until("all to be confirmed", |state| state.counters.delivered == 11);
    pair.net.reflector.set_up(Topology::INTERFACE, false).unwrap();
    pair.push(10..40);
    pair.until("what is stuck to be on disk", |state| !state.takes && state.counters.again == 0);
    pair.until("the end of the connection", |state| state.counters.again == 30);
    pair.push(40..50);
    pair.net.reflector.set_up(Topology::INTERFACE, true).unwrap();
    let second = pair.accept();
    // Numbers 10 to 49, counted from the beginning of this connection.
    assert!(pair.end(second).into_iter().eq(0..40));
    let state = pair.shared.lock();
    assert_eq!((state.counters.connections, state.backlog.bytes()), (2, 0));
    assert_eq!(state.counters.delivered, 51, "each message once");
}

#[test]
fn a_collector_that_is_gone_is_noticed_while_there_is_nothing_to_send() {
    let test = "a_collector_that_is_gone_is_noticed_while_there_is_nothing_to_send";
    let Some(mut pair) = Pair::new(test) else { return };
    let mut first = pair.accept();
    pair.push(0..10);
    read(&mut first, 10);
    pair.until("all to be confirmed", |state| state.counters.delivered == 11);
    pair.net.reflector.set_up(Topology::INTERFACE, false).unwrap();
    pair.until("the end of the connection", |state| !state.takes);
    pair.net.reflector.set_up(Topology::INTERFACE, true).unwrap();
    let second = pair.accept();
    pair.push(10..20);
    assert!(pair.end(second).into_iter().eq(0..10));
    assert_eq!(pair.shared.lock().counters.again, 0);
}

#[test]
fn a_collector_that_answers_and_has_no_room_is_not_given_up() {
    let Some(mut pair) = Pair::new("a_collector_that_answers_and_has_no_room_is_not_given_up")
    else {
        return;
    };
    let stream = pair.accept();
    pair.push(0..50_000);
    // Each a second after the one before: more than three times what silence would take.
    pair.until("ten questions whether there is room", |_| {
        let table =
            pair.net.probe.inside(|| std::fs::read_to_string("/proc/thread-self/net/netstat"));
        counter(&table.unwrap().unwrap(), "TCPWinProbe") >= 10
    });
    assert_eq!(pair.shared.lock().counters.connections, 1);
    assert!(pair.end(stream).into_iter().eq(0..50_000));
    assert_eq!(pair.shared.lock().counters.again, 0);
}

/// A collector that takes each connection and closes it is not asked five times a second for
/// ever. One that has served well is asked soon.
#[test]
fn pauses_grow_until_a_connection_lasts() {
    let mut pauses = Pauses::default();
    let refused: Vec<u64> = (0..8)
        .map(|_| {
            assert!(!pauses.served(Duration::from_millis(3)));
            pauses.next().as_millis() as u64
        })
        .collect();
    assert_eq!(refused, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    assert!(pauses.served(LONGEST_PAUSE));
    assert_eq!(pauses.next(), FIRST_PAUSE);
}

/// A counter of `/proc/net/netstat`: names in one line, values in the next.
fn counter(table: &str, name: &str) -> u64 {
    let lines: Vec<&str> = table.lines().collect();
    let pairs = lines.chunks(2).flat_map(|l| l[0].split(' ').zip(l[1].split(' ')));
    pairs.filter(|(of, _)| *of == name).map(|(_, value)| value.parse::<u64>().unwrap()).sum()
}

/// For a condition, on a loaded machine.
const BOUND: Duration = Duration::from_secs(60);
