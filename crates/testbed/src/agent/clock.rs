//! How far another host's clock is from ours.
//!
//! As in NTP (RFC 5905, section 8): of a question and its answer there are four times, T1
//! sent, T2 received there, T3 sent there, T4 received. The offset is ((T2-T1)+(T3-T4))/2, and
//! wrong by at most half the round trip (T4-T1)-(T3-T2), whatever the paths are like. Waiting
//! anywhere only makes a round trip longer; so of many the shortest is the one to believe.
//!
//! The questions go by UDP: TLS and retransmission of the control connection would make them slow.
//! Each is signed (HMAC-SHA-256, RFC 2104) with a key that was agreed over that connection. So
//! nobody else can move our clock.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ring::hmac;
use sonde_run::thread::join_logged;
use sonde_sys::clock::tai_now;

/// The offset of another clock from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Theirs less ours, ns.
    pub ns: i64,
    /// At most so wrong, ns: half of the shortest round trip.
    pub error_ns: i64,
    /// When it was measured, ns TAI of our clock.
    pub at_ns: i64,
}

/// TAI by this agent's clock, ns.
pub fn now() -> i64 {
    tai_now().as_nanos() + skew()
}

/// By how much this process pretends that its clock is ahead, ns. Time namespaces do not
/// cover CLOCK_TAI, so tests have no other way to give two hosts of one machine two clocks.
pub fn skew() -> i64 {
    SKEW.load(Ordering::Relaxed)
}

/// Has this process pretend that its clock is ahead by so much, ns.
pub fn pretend(ahead_ns: i64) {
    SKEW.store(ahead_ns, Ordering::Relaxed);
}

static SKEW: AtomicI64 = AtomicI64::new(0);

/// Answers questions until `stop` is set.
pub fn answer(socket: &UdpSocket, key: &[u8; 32], stop: &AtomicBool) -> io::Result<()> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    socket.set_read_timeout(Some(GLANCE))?;
    let mut buffer = [0; QUESTION + 1];
    while !stop.load(Ordering::Relaxed) {
        let (length, peer) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(e) if is_nothing(&e) => continue,
            Err(e) => return Err(e),
        };
        let received = now();
        // An answer is as long as its question: nobody can be flooded with our help.
        if length != QUESTION || open(&key, &buffer[..QUESTION], ASKED).is_none() {
            continue;
        }
        let mut answer = [0; QUESTION];
        answer[..8].copy_from_slice(&buffer[..8]);
        answer[8..16].copy_from_slice(&received.to_be_bytes());
        answer[16..24].copy_from_slice(&now().to_be_bytes());
        answer[24] = ANSWERED;
        seal(&key, &mut answer);
        // Whoever does not get it asks again.
        let _ = socket.send_to(&answer, peer);
    }
    Ok(())
}

/// Asks `peer` so many times, not faster than one after the other.
///
/// # Errors
/// `TimedOut`: too few answers.
pub fn ask(peer: SocketAddr, key: &[u8; 32], times: u32) -> io::Result<ClockOffset> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut best: Option<ClockOffset> = None;
    let begin = Instant::now();
    let (mut answered, mut asked) = (0, 0u64);
    while answered < times && begin.elapsed() < LONGEST {
        asked += 1;
        let mut question = [0; QUESTION];
        question[..8].copy_from_slice(&asked.to_be_bytes());
        question[24] = ASKED;
        seal(&key, &mut question);
        let t1 = tai_now().as_nanos();
        match socket.send(&question) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => continue,
            Err(e) => return Err(e),
        }
        let Some(times) = hear(&socket, &key, asked)? else { continue };
        answered += 1;
        let found = offset(t1, times);
        if best.is_none_or(|b| found.error_ns < b.error_ns) {
            best = Some(found);
        }
    }
    best.filter(|_| answered >= times.div_ceil(2)).ok_or_else(|| {
        let why = format!("{answered} of {asked} questions for {peer}'s time were answered");
        io::Error::new(ErrorKind::TimedOut, why)
    })
}

/// Waits for the answer to question `id`: T2, T3, T4.
fn hear(socket: &UdpSocket, key: &hmac::Key, id: u64) -> io::Result<Option<[i64; 3]>> {
    let mut buffer = [0; QUESTION + 1];
    loop {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(e) if is_nothing(&e) || e.kind() == ErrorKind::ConnectionRefused => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let t4 = tai_now().as_nanos();
        if length == QUESTION
            && let Some([of, t2, t3]) = open(key, &buffer[..QUESTION], ANSWERED)
            && of == id
        {
            return Ok(Some([t2 as i64, t3 as i64, t4]));
        }
    }
}

fn offset(t1: i64, [t2, t3, t4]: [i64; 3]) -> ClockOffset {
    let ns = ((t2 - t1) + (t3 - t4)) / 2;
    let round = ((t4 - t1) - (t3 - t2)).max(0);
    // The division above may round by one.
    ClockOffset { ns, error_ns: round / 2 + 1, at_ns: t1 + (t4 - t1) / 2 }
}

fn seal(key: &hmac::Key, message: &mut [u8; QUESTION]) {
    let tag = hmac::sign(key, &message[..SIGNED]);
    message[SIGNED..].copy_from_slice(&tag.as_ref()[..TAG]);
}

/// The three 64-bit fields of a message of this kind, if its signature is right.
fn open(key: &hmac::Key, message: &[u8], kind: u8) -> Option<[u64; 3]> {
    let whole = hmac::sign(key, &message[..SIGNED]);
    let same =
        whole.as_ref()[..TAG].iter().zip(&message[SIGNED..]).fold(0, |d, (a, b)| d | (a ^ b));
    if same != 0 || message[24] != kind {
        return None;
    }
    let field =
        |i: usize| u64::from_be_bytes(message[8 * i..8 * i + 8].try_into().unwrap_or([0; 8]));
    Some([field(0), field(1), field(2)])
}

fn is_nothing(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A thread that answers, until it is dropped.
pub struct ClockResponder {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// UDP port on which the clock answers.
    pub port: u16,
}

impl ClockResponder {
    /// Starts it on a port of the kernel's choice, at the address on which the agent listens.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn start(address: std::net::IpAddr, key: [u8; 32]) -> io::Result<ClockResponder> {
        let socket = UdpSocket::bind((address, 0))?;
        let port = socket.local_addr()?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let thread = std::thread::Builder::new().name("sonde-clock".into()).spawn(move || {
            // Whoever asks and hears nothing says so.
            let _ = answer(&socket, &key, &asked);
        })?;
        Ok(ClockResponder { stop, thread: Some(thread), port })
    }
}

impl Drop for ClockResponder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            join_logged(thread);
        }
    }
}

/// Octets before the signature: id of the question, T2, T3, kind and padding.
const SIGNED: usize = 32;
/// Octets of the signature (RFC 2104, section 5: half of it will do).
const TAG: usize = 16;
const QUESTION: usize = SIGNED + TAG;
const ASKED: u8 = 1;
const ANSWERED: u8 = 2;
/// How long one answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// For all of them.
const LONGEST: Duration = Duration::from_secs(5);
/// How often the thread that answers looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_right_within_half_the_round_trip_whatever_the_paths() {
        for (there, back, ahead) in [(10, 10, 5_000), (0, 900, -77), (900, 0, 0), (333, 1, 1 << 50)]
        {
            let t1 = 1_000_000;
            let (t2, t3) = (t1 + there + ahead, t1 + there + ahead + 40);
            let t4 = t1 + there + 40 + back;
            let found = offset(t1, [t2, t3, t4]);
            assert!((found.ns - ahead).abs() <= found.error_ns, "{found:?}");
            assert_eq!(found.error_ns, (there + back) / 2 + 1);
        }
    }

    #[test]
    fn a_clock_is_asked_and_answers_those_who_have_the_key() {
        let key = [7; 32];
        let answering = ClockResponder::start([127, 0, 0, 1].into(), key).unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], answering.port));
        let found = ask(peer, &key, 20).unwrap();
        // It is one clock.
        assert!(found.ns.abs() <= found.error_ns, "{found:?}");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(peer).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut question = [0; QUESTION];
        question[24] = ASKED;
        seal(&hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]), &mut question);
        socket.send(&question).unwrap();
        assert!(is_nothing(&socket.recv(&mut [0; 64]).unwrap_err()));
    }

    #[test]
    fn what_is_not_signed_or_of_another_kind_is_not_heard() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]);
        let mut message = [3; QUESTION];
        message[24] = ANSWERED;
        seal(&key, &mut message);
        assert!(open(&key, &message, ANSWERED).is_some() && open(&key, &message, ASKED).is_none());
        for i in 0..QUESTION {
            let mut changed = message;
            changed[i] ^= 1;
            assert!(open(&key, &changed, ANSWERED).is_none(), "octet {i}");
        }
    }
}
