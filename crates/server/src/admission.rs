//! Which connections a server keeps when clients that nobody knows can reach it.
//!
//! A connection costs a descriptor and memory before its client has shown a token or certificate.
//! So few anonymous connections are kept, and fewer still from one network. Beyond that the oldest
//! of them is closed: a client authenticates at once, or loses its connection. Authenticated
//! connections have a limit of their own, which no anonymous one counts against.
//!
//! No I/O here: what closes a connection is handed in.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub anonymous: usize,
    /// Anonymous ones from one address; of IPv6 from one /64, which a single host has whole.
    pub anonymous_per_network: usize,
    pub authenticated: usize,
}

/// Admits connections within the limits.
#[derive(Clone)]
pub struct Admission(Arc<Inner>);

struct Inner {
    limits: ConnectionLimits,
    connections: Mutex<Vec<Connection>>,
    next: AtomicU64,
    evicted: AtomicU64,
}

struct Connection {
    id: u64,
    from: IpAddr,
    authenticated: bool,
    busy: u32,
    close: Box<dyn FnOnce() + Send>,
}

/// A connection that counts against the limits until it is dropped.
pub struct AdmittedConnection {
    admission: Admission,
    id: u64,
}

/// While it exists, its connection serves a request and is not closed in favour of another.
pub struct BusyGuard(Arc<AdmittedConnection>);

impl Admission {
    pub fn new(limits: ConnectionLimits) -> Admission {
        Admission(Arc::new(Inner {
            limits,
            connections: Mutex::default(),
            next: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }))
    }

    /// Admits an anonymous connection from `from`. Another may be closed for it, by its `close`,
    /// which is called at most once and must not block.
    pub fn admit(&self, from: IpAddr, close: impl FnOnce() + Send + 'static) -> AdmittedConnection {
        let (from, id) = (network(from), self.0.next.fetch_add(1, Ordering::Relaxed));
        let mut connections = self.connections();
        let ConnectionLimits { anonymous, anonymous_per_network, .. } = self.0.limits;
        let of_network = connections.iter().filter(|t| !t.authenticated && t.from == from).count();
        let all = connections.iter().filter(|t| !t.authenticated).count();
        // In the order in which they came.
        let oldest = if of_network >= anonymous_per_network {
            connections.iter().position(|t| !t.authenticated && t.from == from)
        } else if all >= anonymous {
            connections.iter().position(|t| !t.authenticated)
        } else {
            None
        };
        let out = oldest.map(|i| connections.remove(i));
        connections.push(Connection {
            id,
            from,
            authenticated: false,
            busy: 0,
            close: Box::new(close),
        });
        drop(connections);
        self.evict(out);
        AdmittedConnection { admission: self.clone(), id }
    }

    /// Closes all anonymous connections.
    pub fn close_anonymous(&self) {
        self.close(|t| !t.authenticated);
    }

    /// Closes all connections, also those that serve a request.
    pub fn close_all(&self) {
        self.close(|_| true);
    }

    fn close(&self, which: impl Fn(&Connection) -> bool) {
        let closed: Vec<Connection> = self.connections().extract_if(.., |t| which(t)).collect();
        closed.into_iter().for_each(|t| (t.close)());
    }

    /// Connections that were closed in favour of others.
    pub fn evicted(&self) -> u64 {
        self.0.evicted.load(Ordering::Relaxed)
    }

    fn evict(&self, out: Option<Connection>) {
        if let Some(out) = out {
            self.0.evicted.fetch_add(1, Ordering::Relaxed);
            (out.close)();
        }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedConnection {
    /// The client has authenticated. `false`: the limit is reached and every authenticated
    /// connection serves a request, or this one was closed already.
    #[must_use]
    pub fn mark_authenticated(&self) -> bool {
        let mut connections = self.admission.connections();
        let Some(own) = connections.iter().position(|t| t.id == self.id) else {
            return false;
        };
        if connections[own].authenticated {
            return true;
        }
        let mut out = None;
        if connections.iter().filter(|t| t.authenticated).count()
            >= self.admission.0.limits.authenticated
        {
            match connections.iter().position(|t| t.authenticated && t.busy == 0) {
                Some(idle) => out = Some(connections.remove(idle)),
                None => return false,
            }
        }
        if let Some(own) = connections.iter_mut().find(|t| t.id == self.id) {
            own.authenticated = true;
        }
        drop(connections);
        self.admission.evict(out);
        true
    }

    pub fn busy(self: &Arc<Self>) -> BusyGuard {
        self.count(1);
        BusyGuard(self.clone())
    }

    fn count(&self, change: i32) {
        if let Some(own) = self.admission.connections().iter_mut().find(|t| t.id == self.id) {
            own.busy = own.busy.saturating_add_signed(change);
        }
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.admission.connections().retain(|t| t.id != self.id);
    }
}

impl Drop for BusyGuard {
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

    const LIMITS: ConnectionLimits =
        ConnectionLimits { anonymous: 4, anonymous_per_network: 2, authenticated: 2 };

    struct Caller {
        connection: Arc<AdmittedConnection>,
        closed: Arc<AtomicBool>,
    }

    impl Caller {
        fn new(admission: &Admission, from: &str) -> Caller {
            let closed = Arc::new(AtomicBool::new(false));
            let close = closed.clone();
            let connection = admission
                .admit(from.parse().unwrap(), move || close.store(true, Ordering::Relaxed));
            Caller { connection: Arc::new(connection), closed }
        }

        fn closed(&self) -> bool {
            self.closed.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn of_one_address_the_oldest_anonymous_connection_is_closed_and_of_others_none() {
        let admission = Admission::new(LIMITS);
        let other = Caller::new(&admission, "192.0.2.9");
        let crowd: Vec<Caller> = (0..200).map(|_| Caller::new(&admission, "192.0.2.1")).collect();
        let open: Vec<bool> = crowd.iter().map(|c| !c.closed()).collect();
        assert_eq!(open.iter().filter(|&&o| o).count(), 2);
        assert!(open[198] && open[199] && !other.closed());
        assert_eq!(admission.evicted(), 198);
        // One host has a whole network of IPv6.
        let six: Vec<Caller> =
            (0..3).map(|i| Caller::new(&admission, &format!("2001:db8::{i}"))).collect();
        assert!(six[0].closed() && !six[2].closed());
    }

    #[test]
    fn anonymous_connections_of_many_addresses_close_no_authenticated_one() {
        let admission = Admission::new(LIMITS);
        let owner = Caller::new(&admission, "198.51.100.1");
        assert!(owner.connection.mark_authenticated());
        let crowd: Vec<Caller> =
            (0..200).map(|i| Caller::new(&admission, &format!("192.0.2.{i}"))).collect();
        assert!(!owner.closed());
        assert_eq!(crowd.iter().filter(|c| !c.closed()).count(), 4);
        // The oldest is closed, and the newest can still authenticate.
        let again = Caller::new(&admission, "198.51.100.1");
        assert!(crowd[196].closed() && again.connection.mark_authenticated());
        assert!(!crowd[0].connection.mark_authenticated(), "a closed connection is out");
    }

    #[test]
    fn of_authenticated_connections_the_oldest_idle_one_is_closed() {
        let admission = Admission::new(LIMITS);
        let all: Vec<Caller> = (0..4).map(|_| Caller::new(&admission, "192.0.2.1")).collect();
        // Two of four were closed while anonymous.
        assert!(all[2].connection.mark_authenticated() && all[3].connection.mark_authenticated());
        let working = all[2].connection.busy();
        let next = Caller::new(&admission, "192.0.2.2");
        assert!(next.connection.mark_authenticated());
        assert!(!all[2].closed() && all[3].closed());
        let both = next.connection.busy();
        let last = Caller::new(&admission, "192.0.2.3");
        assert!(!last.connection.mark_authenticated(), "every connection serves a request");
        drop((working, both));
        assert!(last.connection.mark_authenticated() && all[2].closed());
    }

    #[test]
    fn a_dropped_connection_counts_no_more_and_anonymous_ones_can_be_closed() {
        let admission = Admission::new(LIMITS);
        for _ in 0..10 {
            drop(Caller::new(&admission, "192.0.2.1"));
        }
        assert_eq!(admission.evicted(), 0);
        let (authenticated, anonymous) =
            (Caller::new(&admission, "::1"), Caller::new(&admission, "::1"));
        assert!(authenticated.connection.mark_authenticated());
        admission.close_anonymous();
        assert!(anonymous.closed() && !authenticated.closed());
        let busy = authenticated.connection.busy();
        admission.close_all();
        assert!(authenticated.closed());
        drop(busy);
        assert!(!authenticated.connection.mark_authenticated(), "a closed connection is out");
    }
}
