//! Server-sent events: resumed, skipped, ended.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;

use sonde_api::ring::RingLimits;

use super::*;

/// A client of the stream.
struct Follower {
    lines: BufReader<TcpStream>,
}

/// An event as it came.
#[derive(Debug, PartialEq)]
struct Came {
    id: String,
    event: String,
    data: Value,
}

impl Follower {
    /// Asks, and reads the header and the beginning: it gets all that is published from now on.
    fn new(bed: &Bed, path: &str, fields: &str) -> Follower {
        let stream = bed.ask("GET", path).token(&bed.read).fields(fields).open();
        let mut follower = Follower { lines: BufReader::new(stream) };
        assert!(follower.line().starts_with("HTTP/1.0 200"));
        let mut kind = String::new();
        loop {
            let line = follower.line();
            match line.split_once(": ") {
                Some(("content-type", value)) => kind = value.to_owned(),
                Some(_) => {}
                None => break,
            }
        }
        assert_eq!(kind, "text/event-stream");
        assert_eq!((follower.line().as_str(), follower.line().as_str()), ("retry: 3000", ""));
        follower
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next event; `None`: the stream has ended.
    fn next(&mut self) -> Option<Came> {
        let (mut id, mut event, mut data) = Default::default();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", text)) => id = text.to_owned(),
                Some(("event", text)) => event = text.to_owned(),
                Some(("data", text)) => data = serde_json::from_str(text).unwrap(),
                // A comment.
                Some(("", _)) => {}
                Some(other) => panic!("{other:?}"),
                None if data == Value::Null => {}
                None => return Some(Came { id, event, data }),
            }
        }
    }
}

fn at(ms: i64) -> UtcInstant {
    UtcInstant::from_ms(FAKE_START.ms() + ms)
}

#[test]
fn events_come_as_they_happen_and_are_resumed_where_a_client_broke_off() {
    Bed::with_defaults(|bed| {
        let mut first = Follower::new(bed, "/sonde/v1/stream?topics=state,m:5", "");
        bed.backend.publish_state(at(1), 7);
        let came = first.next().unwrap();
        assert_eq!((came.event.as_str(), &came.data["counts"]["ok"]), ("state", &7.into()));
        drop(first);
        bed.backend.publish_reading(at(2), 5, 10);
        bed.backend.publish_state(at(3), 8);
        let resumed = format!("Last-Event-ID: {}\r\n", came.id);
        let mut again = Follower::new(bed, "/sonde/v1/stream?topics=state", &resumed);
        assert_eq!(again.next().unwrap().data["counts"]["ok"], 8);
        let mut other = Follower::new(bed, "/sonde/v1/stream?topics=m:5,state", &resumed);
        assert_eq!(other.next().unwrap().event, "reading");
        // Nobody followed this one, so nothing of it was published.
        let mut late = Follower::new(bed, "/sonde/v1/stream?topics=m:6", &resumed);
        let gap = late.next().unwrap();
        assert_eq!((gap.event.as_str(), &gap.data["reason"]), ("gap", &"too_long_away".into()));
        // Of a station that was started at another time.
        let stranger = "Last-Event-ID: 1-1\r\n";
        let mut new = Follower::new(bed, "/sonde/v1/stream", stranger);
        let gap = new.next().unwrap();
        assert_eq!((gap.event.as_str(), gap.id.as_str()), ("gap", ""));
        assert_eq!(gap.data["reason"], "station_restarted");
    });
}

#[test]
fn comments_keep_a_quiet_stream_and_the_end_of_the_station_ends_it() {
    let limits = ApiLimits { keep_alive: Duration::from_millis(5), ..ApiLimits::default() };
    Bed::run(FakeBackend::default(), limits, ApiHooks::default(), |bed| {
        let mut follower = Follower::new(bed, "/sonde/v1/stream", "");
        for _ in 0..3 {
            assert_eq!((follower.line().as_str(), follower.line().as_str()), (": keep-alive", ""));
        }
        bed.backend.live().close();
        assert_eq!(follower.next(), None);
    });
}

#[test]
fn a_stream_ends_when_the_server_is_stopped_and_counts_against_its_caller() {
    let calls = CallLimits { streams: 2, ..CallLimits::default() };
    let limits = ApiLimits { calls, ..ApiLimits::default() };
    let mut followers = Vec::new();
    Bed::run(FakeBackend::default(), limits, ApiHooks::default(), |bed| {
        followers.extend((0..2).map(|_| Follower::new(bed, "/sonde/v1/stream", "")));
        let refused = bed.get("/sonde/v1/stream");
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("30")));
        // A client that goes away makes room.
        followers.pop();
        client::until(|| {
            (bed.ask("HEAD", "/sonde/v1/stream").token(&bed.read).send().status == 200)
                .then_some(())
        });
    });
    assert!(followers.into_iter().all(|mut follower| follower.next().is_none()));
}

#[test]
fn a_stream_is_no_longer_than_its_token() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let expires = UtcInstant::from_ns(now.as_nanos() as i64).later(1_500_000_000);
    let (token, text) = ApiToken::issue("short", AccessRole::Read, Some(expires)).unwrap();
    Bed::with_defaults(|bed| {
        let tokens = Arc::new(TokenStore::of(vec![token]));
        let access = ApiAccess { tokens, ..ApiAccess::default() };
        let server = ApiServer::bind("127.0.0.1:0".parse().unwrap(), access).unwrap();
        let (address, stop) = (server.address().unwrap(), ServerStop::new());
        std::thread::scope(|scope| {
            let (backend, stop) = (bed.backend.clone(), &stop);
            let (limits, hooks) = (ApiLimits::default(), ApiHooks::default());
            scope.spawn(move || server.serve(backend, limits, hooks, stop).unwrap());
            let asking = Asking::new(address, "GET", "/sonde/v1/stream").token(&text);
            let mut rest = String::new();
            asking.open().read_to_string(&mut rest).unwrap();
            // Answered, or too late already on a machine that is very slow; over in either case.
            assert!(rest.contains("retry: 3000") || rest.contains("expired"), "{rest}");
            assert_eq!(asking.send().status, 401);
            stop.stop();
        });
    });
}

/// Many clients that read nothing: they slow nobody, cost no queue, and are told what they missed.
#[test]
fn slow_clients_skip_and_slow_nobody() {
    const CLIENTS: usize = 120;
    const OCTETS: usize = 16 << 10;
    let ring = RingLimits { behind: 8, ..RingLimits::default() };
    Bed::run(FakeBackend::with_ring(ring), ApiLimits::default(), ApiHooks::default(), |bed| {
        let path = "/sonde/v1/stream?topics=m:1";
        let slow: Vec<Follower> = (0..CLIENTS).map(|_| Follower::new(bed, path, "")).collect();
        let mut quick = Follower::new(bed, path, "");
        assert_eq!(bed.backend.ring.readers(), CLIENTS + 1);
        // Far more than the kernel holds for a connection.
        let published = 1_000;
        for i in 1..=published {
            bed.backend.publish_reading(at(i), 1, OCTETS);
            // In step with the quick one.
            let came = quick.next().unwrap();
            assert_eq!(came.id, format!("{}-{i}", FAKE_START.ms()));
        }
        assert_eq!(bed.get("/sonde/v1/station").status, 200);
        for mut follower in slow {
            let (mut events, mut missed) = (0, 0);
            while events + missed < published {
                let came = follower.next().unwrap();
                match came.event.as_str() {
                    "reading" => events += 1,
                    _ => {
                        assert_eq!(came.data["reason"], "slow_client");
                        missed += came.data["missed"].as_i64().unwrap();
                    }
                }
            }
            assert_eq!(events + missed, published);
            assert!(missed > 0, "{events} events fitted into the kernel's buffers");
        }
    });
}

#[test]
fn a_client_that_takes_nothing_for_too_long_is_sent_away() {
    let limits = ApiLimits { stall: Duration::from_millis(20), ..ApiLimits::default() };
    Bed::run(FakeBackend::default(), limits, ApiHooks::default(), |bed| {
        let _stuck: Vec<Follower> =
            (0..4).map(|_| Follower::new(bed, "/sonde/v1/stream?topics=m:1", "")).collect();
        let mut n = 0;
        client::until(|| {
            n += 1;
            bed.backend.publish_reading(at(n), 1, 64 << 10);
            (bed.backend.ring.readers() == 0).then_some(())
        });
    });
}
