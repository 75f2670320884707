//! Tells a service manager how a daemon does, by the protocol of `sd_notify(3)`: state in datagrams
//! to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sonde_sys::clock::steady_now;
use sonde_wire::time::Time;

/// A service manager; or none, which is told nothing.
pub struct ServiceManager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Half the time after which it kills who is silent, ns.
    watchdog: Option<i64>,
    /// When it last heard that work goes on, and how far that had come.
    last: (Time, u64),
}

impl ServiceManager {
    /// The one that started this process. To be called before privileges are given up.
    pub fn of_environment() -> ServiceManager {
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(|path| open(&path));
        let value = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let for_us = value("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let half = value("WATCHDOG_USEC").filter(|_| for_us).map(half_ns);
        ServiceManager { to, watchdog: half, last: (steady_now(), 0) }
    }

    /// All is open, and units start.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The end was asked for, and may take so long.
    pub fn stopping(&self, most: Duration) {
        self.send(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", most.as_micros()));
    }

    /// To be called several times a second. `turns` counts the turns of whoever must not hang: a
    /// manager hears nothing from a process whose count stands still, and kills it in the end.
    pub fn turned(&mut self, now: Time, turns: u64) {
        let (at, before) = self.last;
        let due = self.watchdog.is_some_and(|half| now - at >= half);
        if due && turns != before {
            self.send("WATCHDOG=1");
            self.last = (now, turns);
        }
    }

    /// A manager that does not listen is no reason not to measure.
    fn send(&self, text: &str) {
        let Some((socket, address)) = &self.to else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), address) {
            tracing::debug!("the service manager was not told {text:?}: {error}");
        }
    }
}

/// `@` begins an abstract name. A manager that reads nothing must not hold the station up.
fn open(path: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    };
    let socket = UnixDatagram::unbound().and_then(|s| s.set_nonblocking(true).map(|()| s));
    Some((socket.ok()?, address.ok()?))
}

fn half_ns(microseconds: u64) -> i64 {
    i64::try_from(microseconds).unwrap_or(i64::MAX).saturating_mul(500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_only_from_who_works() {
        let name = format!("@sonde-service-manager-{}", std::process::id());
        let (_, address) = open(OsStr::new(&name)).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        manager.set_nonblocking(true).unwrap();
        let heard = || {
            let mut octets = [0; 200];
            let n = manager.recv(&mut octets).ok()?;
            Some(String::from_utf8_lossy(&octets[..n]).into_owned())
        };
        let start = Time::from_nanos(0);
        let to = open(OsStr::new(&name));
        let mut ours = ServiceManager { to, watchdog: Some(half_ns(2_000_000)), last: (start, 0) };
        ours.ready("measures");
        assert_eq!(heard().as_deref(), Some("READY=1\nSTATUS=measures"));
        for (ms, turns, hears) in [
            (999, 9, false),
            (1_000, 10, true),
            (1_999, 20, false),
            (2_000, 20, true),
            // It hangs.
            (3_000, 20, false),
            (9_000, 20, false),
            (9_001, 21, true),
        ] {
            ours.turned(start + ms * 1_000_000, turns);
            assert_eq!(heard().is_some(), hears, "at {ms} ms, turn {turns}");
        }
        ours.stopping(Duration::from_secs(2));
        assert_eq!(heard().as_deref(), Some("STOPPING=1\nEXTEND_TIMEOUT_USEC=2000000"));
    }

    #[test]
    fn no_manager_or_one_that_is_gone_does_no_harm() {
        let gone = open(OsStr::new("@sonde-nobody-listens-here"));
        for to in [None, gone] {
            let last = (Time::from_nanos(0), 0);
            let mut ours = ServiceManager { to, watchdog: None, last };
            ours.ready("x");
            ours.turned(Time::from_nanos(i64::MAX), 1);
            ours.stopping(Duration::MAX);
        }
    }
}
