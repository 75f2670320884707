//! Whether stamps really come: a datagram to ourselves over loopback. Options that the
//! kernel accepts prove nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;
use std::{io, mem::size_of};

use sonde_sys::clock::steady_now;
use sonde_sys::syscall::{self, SockAddr};
use sonde_wire::{StampSource, Time};

use crate::errqueue::{Awaited, Batch, SCM_TS_OPT_ID, ToTai, enable, sent_stamp};

pub(super) struct Found {
    pub rx: StampSource,
    pub tx: StampSource,
    /// The kernel takes the ids of stamped packets from the sender.
    pub chosen_ids: bool,
    pub remark: &'static str,
}

/// Never fails: what cannot be tried is not promised.
pub(super) fn probe(tx_stamps: bool) -> Found {
    let mut found = Found {
        rx: StampSource::User,
        tx: StampSource::User,
        chosen_ids: false,
        remark: ", no stamps: loopback is down ('ip link set lo up')",
    };
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        if try_on(ip, tx_stamps, &mut found).is_ok() {
            found.remark = if found.rx == StampSource::User { LACKING } else { "" };
            break;
        }
    }
    found
}

fn try_on(ip: IpAddr, tx_stamps: bool, found: &mut Found) -> io::Result<()> {
    let v6 = ip.is_ipv6();
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let fd = syscall::socket(family, libc::SOCK_DGRAM, 0)?;
    syscall::bind(&fd, SocketAddr::new(ip, 0), 0)?;
    enable(&fd, true, tx_stamps)?;
    let mut own = SockAddr::zeroed();
    let mut len = size_of::<SockAddr>() as u32;
    // SAFETY: the kernel writes at most `len` bytes into `own`.
    let rc = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut own).cast(), &raw mut len) };
    syscall::check(rc)?;
    let mut batch = Batch::new();
    let tai = ToTai::new(false);
    let payload = [0u8; 16];
    let mut memory = [0u8; 64];
    let mut chosen = tx_stamps;
    let mut patience = Patience::new(steady_now());
    // The kernel turns receive stamps on with a delay, by work of its own that a busy host does
    // late: the first packets may lack them.
    while patience.lasts(steady_now()) {
        batch.outgoing(0, &payload, Some((own, v6)));
        if tx_stamps {
            Awaited::new(false, 1).ask(&mut batch, 0, 0);
            if chosen {
                batch.add(0, libc::SOL_SOCKET, SCM_TS_OPT_ID, MARK);
            }
        }
        // SAFETY: `payload` outlives the call.
        match unsafe { batch.send(fd.as_raw_fd(), 0, 1) } {
            Err(e) if chosen && e.raw_os_error() == Some(libc::EINVAL) => {
                chosen = false;
                continue;
            }
            other => other?,
        };
        syscall::poll_one(fd.as_raw_fd(), libc::POLLIN, STEP)?;
        let n = batch.receive(fd.as_raw_fd(), &mut memory, (0, 0, 64), 1)?;
        for (level, kind, value) in (0..n).flat_map(|i| batch.controls(i)) {
            if (level, kind) == (libc::SOL_SOCKET, libc::SO_TIMESTAMPING)
                && tai.read_control(value).is_some()
            {
                found.rx = StampSource::Kernel;
            }
        }
        let n = batch.receive_errors(fd.as_raw_fd())?;
        for (id, _) in (0..n).filter_map(|i| sent_stamp(&batch, i, tai)) {
            found.tx = StampSource::Kernel;
            found.chosen_ids = chosen && id == MARK;
        }
        if found.rx == StampSource::Kernel && (!tx_stamps || found.tx == StampSource::Kernel) {
            break;
        }
        // It leaves the processor to that work.
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// How long stamps are waited for: for a time, and for a number of tries. A host that did not run
/// this process for that time has shown nothing.
struct Patience {
    deadline: Time,
    tries: u32,
}

impl Patience {
    /// From `now` on.
    fn new(now: Time) -> Patience {
        Patience { deadline: now + LIMIT, tries: 0 }
    }

    /// Whether to try once more.
    fn lasts(&mut self, now: Time) -> bool {
        self.tries += 1;
        self.tries <= LEAST_TRIES || now < self.deadline
    }
}

/// Stamps that come later are used all the same: what is said is true of the start only.
const LACKING: &str = ", no kernel stamps at the start";
/// How long the probing may take, ns, unless it had hardly a try in this time.
const LIMIT: i64 = 200_000_000;
const LEAST_TRIES: u32 = 20;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);
/// How long one datagram is waited for, ns.
const STEP: i64 = 2_000_000;
/// An id that the kernel would not have counted up to.
const MARK: u32 = 0x50BE_0001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_stands_still_has_its_tries_all_the_same() {
        let tries = |step: i64| {
            let mut patience = Patience::new(Time::ZERO);
            (0..).take_while(|n| patience.lasts(Time::ZERO + n * step)).count()
        };
        assert_eq!(tries(PAUSE.as_nanos() as i64), 200, "a millisecond each");
        assert_eq!(tries(10 * LIMIT), 20, "each try later than the limit");
    }
}
