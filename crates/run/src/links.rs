//! What the kernel says of links, and what a link's frames begin with.

use anyhow::{Context as _, Result};
use sonde_sys::netlink::{Link, Links, NetlinkEvent, NetlinkWatch};

/// The kernel's interfaces, and whether they have changed.
pub struct LinkFollower {
    watch: NetlinkWatch,
    links: Links,
    /// Something may have changed since the last look.
    stale: bool,
}

impl LinkFollower {
    /// To be opened before the interfaces are used, so that no change is missed.
    pub fn open() -> Result<LinkFollower> {
        Ok(LinkFollower {
            watch: NetlinkWatch::open()
                .with_context(|| netlink("follow the kernel's interfaces"))?,
            links: Links::open().with_context(|| netlink("ask the kernel for interfaces"))?,
            stale: true,
        })
    }

    /// All interfaces as they are now. What changed before is no change any more.
    pub fn all(&mut self) -> Result<Vec<Link>> {
        self.stale = false;
        self.links.all().with_context(|| netlink("list the interfaces"))
    }

    /// The same if something may have changed since it was asked last, or it is asked for the first
    /// time.
    pub fn changed(&mut self) -> Result<Option<Vec<Link>>> {
        let events =
            self.watch.poll().with_context(|| netlink("follow the kernel's interfaces"))?;
        self.stale |=
            events.iter().any(|e| matches!(e, NetlinkEvent::Link { .. } | NetlinkEvent::Overrun));
        if self.stale { self.all().map(Some) } else { Ok(None) }
    }
}

/// Whether packets can pass an interface, as last seen. A monitor waits for one that has vanished,
/// is down or has lost its carrier: each such gap is said once and counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPresence {
    /// It is there and up.
    Up,
    /// It is there, but down or without carrier.
    Down,
    /// There is none of its name.
    Gone,
}

impl LinkPresence {
    /// That of an interface; `None`: there is none of its name.
    pub fn of(link: Option<&Link>) -> LinkPresence {
        match link {
            None => LinkPresence::Gone,
            Some(link) if link.running => LinkPresence::Up,
            Some(_) => LinkPresence::Down,
        }
    }

    /// At the start of a measurement of `name`.
    pub fn begin(link: &Link) -> LinkPresence {
        let presence = LinkPresence::of(Some(link));
        if presence == LinkPresence::Down {
            tracing::warn!(
                "{} is down or has no carrier: nothing passes until it comes up",
                link.name
            );
        }
        presence
    }

    /// Notes what it is now, `is_another` if the interface is not the one that it was. Whether a gap
    /// begins or has passed.
    pub fn follow(&mut self, name: &str, now: LinkPresence, is_another: bool) -> bool {
        let before = std::mem::replace(self, now);
        let begins = before == LinkPresence::Up && (now != LinkPresence::Up || is_another);
        match (before, now) {
            (LinkPresence::Gone, LinkPresence::Gone) => {}
            (LinkPresence::Up | LinkPresence::Down, LinkPresence::Gone) => {
                tracing::warn!("{name} has vanished; waiting for it to return");
            }
            (LinkPresence::Up | LinkPresence::Down, _) if is_another => {
                tracing::warn!("{name} has vanished; waiting for it to return");
            }
            (LinkPresence::Up, LinkPresence::Down) => {
                tracing::warn!("{name} is down or has no carrier; waiting for it to come up");
            }
            (LinkPresence::Down, LinkPresence::Up) => tracing::warn!("{name} is up again"),
            // Whoever opens it says so.
            (LinkPresence::Gone, _) | (LinkPresence::Up, _) | (LinkPresence::Down, _) => {}
        }
        begins
    }
}

/// Whether its frames begin with an Ethernet header. Links without a link-layer address
/// (tun, PPP, WireGuard) have neither; the loopback has both, all zeros.
pub fn has_ethernet(link: &Link) -> bool {
    link.mac != [0; 6] || link.name == "lo"
}

/// The message where the kernel does not let `what` be done.
pub fn netlink(what: &str) -> String {
    format!(
        "cannot {what} by netlink; a sandbox may forbid it, and 'ulimit -n' bounds what is open"
    )
}

#[cfg(test)]
mod tests {
    use super::LinkPresence::{self, Down, Gone, Up};

    #[test]
    fn each_gap_is_counted_once() {
        let gaps = |begin: LinkPresence, then: &[(LinkPresence, bool)]| {
            let mut presence = begin;
            let follow = |&&(now, other): &&_| presence.follow("eth0", now, other);
            then.iter().filter(follow).count()
        };
        // Deleted: it goes down, is gone, comes back down, is up.
        let deleted = [(Down, false), (Gone, false), (Down, false), (Up, false)];
        assert_eq!(gaps(Up, &deleted), 1);
        assert_eq!(gaps(Up, &[(Gone, false), (Gone, false), (Up, false)]), 1);
        assert_eq!(gaps(Up, &[(Up, true), (Up, false)]), 1, "made anew between two looks");
        assert_eq!(gaps(Up, &[(Down, false), (Down, false), (Up, false), (Down, false)]), 2);
        assert_eq!(gaps(Down, &[(Up, false), (Up, false)]), 0, "it was down at the start");
        assert_eq!(gaps(Down, &[(Gone, false), (Up, false), (Gone, false)]), 1);
    }
}
