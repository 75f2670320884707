//! Who may hold a connection to a server that strangers can reach.
//!
//! A connection costs a descriptor and memory before anybody has said who he is. So strangers
//! have few places, fewer still from one address, and when these are taken the stranger who came
//! first goes: whoever wants in says who he is at once. Clients who have said it have places of
//! their own, which no stranger can take.
//!
//! No I/O here: what closes a connection is handed in.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    pub strangers: usize,
    /// For strangers of one address; of IPv6 one network of 64 bits, which one host has whole.
    pub strangers_of_one: usize,
    /// For those who have said who they are.
    pub known: usize,
}

/// Gives places to connections.
#[derive(Clone)]
pub struct Door(Arc<Inner>);

struct Inner {
    places: Places,
    taken: Mutex<Vec<Taken>>,
    next: AtomicU64,
    turned_out: AtomicU64,
}

struct Taken {
    number: u64,
    from: IpAddr,
    known: bool,
    busy: u32,
    close: Box<dyn FnOnce() + Send>,
}

/// A connection's place; given back when dropped.
pub struct Guest {
    door: Door,
    number: u64,
}

/// While it is there its connection is at work, and is not closed in favour of another.
pub struct Work<'a>(&'a Guest);

impl Door {
    pub fn new(places: Places) -> Door {
        Door(Arc::new(Inner {
            places,
            taken: Mutex::default(),
            next: AtomicU64::new(0),
            turned_out: AtomicU64::new(0),
        }))
    }

    /// A place for a stranger from `from`. Others may lose theirs, by their `close`, which is
    /// called at most once and must not block.
    pub fn admit(&self, from: IpAddr, close: impl FnOnce() + Send + 'static) -> Guest {
        let (from, number) = (network(from), self.0.next.fetch_add(1, Ordering::Relaxed));
        let mut taken = self.taken();
        let Places { strangers, strangers_of_one, .. } = self.0.places;
        let of_one = taken.iter().filter(|t| !t.known && t.from == from).count();
        let all = taken.iter().filter(|t| !t.known).count();
        // In the order in which they came.
        let oldest = if of_one >= strangers_of_one {
            taken.iter().position(|t| !t.known && t.from == from)
        } else if all >= strangers {
            taken.iter().position(|t| !t.known)
        } else {
            None
        };
        let out = oldest.map(|i| taken.remove(i));
        taken.push(Taken { number, from, known: false, busy: 0, close: Box::new(close) });
        drop(taken);
        self.turn_out(out);
        Guest { door: self.clone(), number }
    }

    /// Closes the connections of all strangers.
    pub fn close_to_strangers(&self) {
        let mut taken = self.taken();
        let (known, strangers) = std::mem::take(&mut *taken).into_iter().partition(|t| t.known);
        *taken = known;
        drop(taken);
        let strangers: Vec<Taken> = strangers;
        strangers.into_iter().for_each(|t| (t.close)());
    }

    /// How many lost their places to others.
    pub fn turned_out(&self) -> u64 {
        self.0.turned_out.load(Ordering::Relaxed)
    }

    fn turn_out(&self, out: Option<Taken>) {
        if let Some(out) = out {
            self.0.turned_out.fetch_add(1, Ordering::Relaxed);
            (out.close)();
        }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// He has said who he is. `false`: there is no place for him among the known, all of whom
    /// are at work, or he has lost his own.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let mut taken = self.door.taken();
        let Some(own) = taken.iter().position(|t| t.number == self.number) else { return false };
        if taken[own].known {
            return true;
        }
        let mut out = None;
        if taken.iter().filter(|t| t.known).count() >= self.door.0.places.known {
            match taken.iter().position(|t| t.known && t.busy == 0) {
                Some(idle) => out = Some(taken.remove(idle)),
                None => return false,
            }
        }
        if let Some(own) = taken.iter_mut().find(|t| t.number == self.number) {
            own.known = true;
        }
        drop(taken);
        self.door.turn_out(out);
        true
    }

    pub fn work(&self) -> Work<'_> {
        self.count(1);
        Work(self)
    }

    fn count(&self, change: i32) {
        if let Some(own) = self.door.taken().iter_mut().find(|t| t.number == self.number) {
            own.busy = own.busy.saturating_add_signed(change);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.door.taken().retain(|t| t.number != self.number);
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.count(-1);
    }
}

/// What one host can have at will: an address of IPv4, a network of IPv6 (RFC 4291, section
/// 2.5.1).
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const PLACES: Places = Places { strangers: 4, strangers_of_one: 2, known: 2 };

    struct Caller {
        guest: Guest,
        closed: Arc<AtomicBool>,
    }

    impl Caller {
        fn new(door: &Door, from: &str) -> Caller {
            let closed = Arc::new(AtomicBool::new(false));
            let close = closed.clone();
            let guest =
                door.admit(from.parse().unwrap(), move || close.store(true, Ordering::Relaxed));
            Caller { guest, closed }
        }

        fn closed(&self) -> bool {
            self.closed.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn of_one_address_the_oldest_stranger_goes_and_of_others_nobody() {
        let door = Door::new(PLACES);
        let other = Caller::new(&door, "192.0.2.9");
        let crowd: Vec<Caller> = (0..200).map(|_| Caller::new(&door, "192.0.2.1")).collect();
        let open: Vec<bool> = crowd.iter().map(|c| !c.closed()).collect();
        assert_eq!(open.iter().filter(|&&o| o).count(), 2);
        assert!(open[198] && open[199] && !other.closed());
        assert_eq!(door.turned_out(), 198);
        // One host has a whole network of IPv6.
        let six: Vec<Caller> =
            (0..3).map(|i| Caller::new(&door, &format!("2001:db8::{i}"))).collect();
        assert!(six[0].closed() && !six[2].closed());
    }

    #[test]
    fn strangers_of_many_addresses_do_not_take_the_places_of_the_known() {
        let door = Door::new(PLACES);
        let owner = Caller::new(&door, "198.51.100.1");
        assert!(owner.guest.is_known());
        let crowd: Vec<Caller> =
            (0..200).map(|i| Caller::new(&door, &format!("192.0.2.{i}"))).collect();
        assert!(!owner.closed());
        assert_eq!(crowd.iter().filter(|c| !c.closed()).count(), 4);
        // He who came first goes, and the newest can still say who he is.
        let again = Caller::new(&door, "198.51.100.1");
        assert!(crowd[196].closed() && again.guest.is_known());
        assert!(!crowd[0].guest.is_known(), "who was turned out is out");
    }

    #[test]
    fn among_the_known_the_oldest_that_is_idle_goes() {
        let door = Door::new(PLACES);
        let all: Vec<Caller> = (0..4).map(|_| Caller::new(&door, "192.0.2.1")).collect();
        // Two of four lost their places as strangers.
        assert!(all[2].guest.is_known() && all[3].guest.is_known());
        let working = all[2].guest.work();
        let next = Caller::new(&door, "192.0.2.2");
        assert!(next.guest.is_known());
        assert!(!all[2].closed() && all[3].closed());
        let both = next.guest.work();
        let last = Caller::new(&door, "192.0.2.3");
        assert!(!last.guest.is_known(), "everybody is at work");
        drop((working, both));
        assert!(last.guest.is_known() && all[2].closed());
    }

    #[test]
    fn a_place_is_given_back_and_strangers_can_be_sent_away() {
        let door = Door::new(PLACES);
        for _ in 0..10 {
            drop(Caller::new(&door, "192.0.2.1"));
        }
        assert_eq!(door.turned_out(), 0);
        let (known, stranger) = (Caller::new(&door, "::1"), Caller::new(&door, "::1"));
        assert!(known.guest.is_known());
        door.close_to_strangers();
        assert!(stranger.closed() && !known.closed());
    }
}
