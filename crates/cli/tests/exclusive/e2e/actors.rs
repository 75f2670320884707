//! What else is on the network: this very test binary again, inside a host's namespace,
//! in a part of its own. `SONDE_ACTOR` says which; what an actor sees goes to standard
//! error, a line each.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use sonde_lab::Host;
use sonde_wire::stamp::{BASE_LEN, ReflectorPacket, SenderPacket};

use crate::process::Process;

/// Starts an actor on `host`, and waits until it is ready.
pub fn start(host: &Host, part: &str) -> Process {
    let this = std::env::current_exe().unwrap();
    let mut command = host.command(this.to_str().unwrap());
    command.args(["--ignored", "--exact", "e2e::actors::act", "--nocapture"]).env(PART, part);
    let mut process = Process::start(command);
    process.until("the actor", |p| p.err().iter().any(|l| l == "ready"));
    process
}

/// Runs an actor to its end, and returns the counts that it saw.
pub fn run(host: &Host, part: &str) -> BTreeMap<String, u64> {
    let ended = start(host, part).end();
    assert_eq!(ended.code, 0, "{part}: {}", ended.err);
    let seen = ended.err.lines().filter_map(|l| l.split_once('='));
    seen.map(|(name, n)| (name.to_owned(), n.parse().unwrap())).collect()
}

/// Not a test: an actor's process. Without a part there is nothing to do.
#[test]
#[ignore = "plays a part in other tests"]
fn act() {
    let Ok(part) = std::env::var(PART) else { return };
    let fields: Vec<&str> = part.split_whitespace().collect();
    match fields[..] {
        ["echo", local] => echo(local),
        ["ask", local, peer, count] => ask(local, peer, count.parse().unwrap()),
        ["noise", local, peer, count] => noise(local, peer, count.parse().unwrap()),
        ["impostor", local] => impostor(local),
        ["babbler", local] => babbler(local),
        ["lossy", local] => lossy(local),
        ["requests", local, peer] => requests(local, peer),
        ["hold", local] => hold(local),
        _ => panic!("no such part: {part}"),
    }
}

/// Ordinary traffic, the serving side.
fn echo(local: &str) {
    let socket = bind(local);
    let mut buffer = [0; 2048];
    loop {
        let (n, from) = socket.recv_from(&mut buffer).unwrap();
        socket.send_to(&buffer[..n], from).unwrap();
    }
}

/// Ordinary traffic, the asking side: one datagram at a time, some lengths.
fn ask(local: &str, peer: &str, count: u32) {
    let socket = bind(local);
    socket.connect(peer).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answered = 0;
    for i in 0..count {
        let sent: Vec<u8> = (0..=i % 1400).map(|b| b as u8).collect();
        socket.send(&sent).unwrap();
        let mut buffer = [0; 2048];
        answered += u32::from(socket.recv(&mut buffer).is_ok_and(|n| buffer[..n] == sent));
    }
    eprintln!("answered={answered}");
}

/// Datagrams of all lengths and any content.
fn noise(local: &str, peer: &str, count: usize) {
    let socket = bind(local);
    let peer: SocketAddr = peer.parse().unwrap();
    for datagram in rubbish().take(count) {
        socket.send_to(&datagram, peer).unwrap();
    }
    eprintln!("sent={count}");
}

/// Answers each request with rubbish.
fn babbler(local: &str) {
    let socket = bind(local);
    for datagram in rubbish() {
        let (_, from) = socket.recv_from(&mut [0; 2048]).unwrap();
        socket.send_to(&datagram, from).unwrap();
    }
}

fn rubbish() -> impl Iterator<Item = Vec<u8>> {
    let mut state = 1u64;
    let mut byte = move || {
        // Knuth's MMIX generator: its upper bits are random enough.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..).map(move |i| (0..i * 37 % 1473).map(|_| byte()).collect())
}

/// A faulty reflector: to each request four wrong replies, then the right one, twice.
fn impostor(local: &str) {
    let socket = bind(local);
    let mut buffer = [0; 2048];
    loop {
        let (n, from) = socket.recv_from(&mut buffer).unwrap();
        let reply = reply(&buffer[..n], None);
        let changed = |change: fn(&mut [u8])| {
            let mut wrong = reply.clone();
            change(&mut wrong);
            wrong
        };
        for datagram in [
            // Shorter than a reply can be.
            reply[..37].to_vec(),
            // A sequence number never sent: octets 24 to 27.
            changed(|r| r[24] ^= 0x40),
            // A time stamp never sent: octets 28 to 35.
            changed(|r| r[35] ^= 1),
            // Somebody else's session: octets 14 and 15.
            changed(|r| r[14] ^= 0x80),
            reply.clone(),
            reply.clone(),
        ] {
            socket.send_to(&datagram, from).unwrap();
        }
    }
}

/// A stateful reflector behind a lossy path: of ten requests the third never comes in,
/// and the reply to the seventh goes astray.
fn lossy(local: &str) {
    let socket = bind(local);
    let mut counters: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    let mut buffer = [0; 2048];
    loop {
        let (n, from) = socket.recv_from(&mut buffer).unwrap();
        let request = SenderPacket::new_checked(&buffer[..n]).unwrap();
        let position = request.sequence() % 10;
        if position == 3 {
            continue;
        }
        let counter = counters.entry(from).or_default();
        let reply = reply(&buffer[..n], Some(*counter));
        *counter += 1;
        if position != 7 {
            socket.send_to(&reply, from).unwrap();
        }
    }
}

/// The right reply: T2 = T3 = the sender's own T1, so that no clock is needed.
fn reply(request: &[u8], sequence: Option<u32>) -> Vec<u8> {
    let sender = SenderPacket::new_checked(request).unwrap();
    let (at, estimate) = (sender.timestamp(), sender.error_estimate());
    let mut packet = request.to_vec();
    let mut reply = ReflectorPacket::reflect(&mut packet[..], 255).unwrap();
    if let Some(sequence) = sequence {
        reply.set_sequence(sequence);
    }
    reply.set_receive_timestamp(at);
    reply.set_timestamp(at);
    reply.set_error_estimate(estimate);
    packet
}

/// Asks a reflector in every wrong way, and replays one right request.
fn requests(local: &str, peer: &str) {
    let socket = bind(local);
    socket.connect(peer).unwrap();
    let ask = |name: &str, answerable: bool, requests: &mut dyn Iterator<Item = Vec<u8>>| {
        let (mut count, mut longest, mut buffer) = (0, 0, [0; 2048]);
        let mut answer = |wait: Duration| {
            socket.set_read_timeout(Some(wait)).unwrap();
            match socket.recv(&mut buffer) {
                Ok(n) => (count, longest) = (count + 1, longest.max(n)),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return false;
                }
                Err(e) => panic!("{e}"),
            }
            true
        };
        for request in requests {
            socket.send(&request).unwrap();
            // One by one, so that no buffer is full.
            if answerable && !answer(PATIENCE) {
                break;
            }
        }
        while answer(QUIET) {}
        eprintln!("{name}={count}\n{name}_longest={longest}");
    };
    // Too short for any test packet.
    ask("tiny", false, &mut (0..14).map(|len| vec![0x5a; len]));
    // Short, but long enough for a sequence number and a time stamp: the reply has 44 octets.
    ask("short", true, &mut (14..BASE_LEN).map(|len| vec![0; len]));
    // TLVs whose lengths lie, and padding of all values.
    let odd = |byte: u8| [&[0; BASE_LEN][..], &[byte; 100]].concat();
    ask("odd", true, &mut (0..=255).map(odd));
    ask("replayed", true, &mut std::iter::repeat_n(vec![7; BASE_LEN], 100));
}

fn hold(local: &str) {
    let socket = bind(local);
    loop {
        let _ = socket.recv_from(&mut [0; 16]);
    }
}

fn bind(local: &str) -> UdpSocket {
    let socket = UdpSocket::bind(local).unwrap();
    eprintln!("ready");
    socket
}

const PART: &str = "SONDE_ACTOR";
/// An answer that has not come after this will not come.
const PATIENCE: Duration = Duration::from_secs(1);
/// When nothing has come for this long, all answers are there.
const QUIET: Duration = Duration::from_millis(200);
