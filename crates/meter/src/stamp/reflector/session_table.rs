//! The sessions of a stateful reflector (RFC 8762, section 4.3; RFC 8972, section 3).
//!
//! A table of fixed size. A sender that has asked once is a newcomer, and counts as a
//! session from its second request on. To make room, the newcomer that came longest ago
//! goes first, so that invented sources push out each other. A session is never taken
//! from its sender: when the table is full of sessions, newcomers are served statelessly.

use sonde_wire::{Stamp, Time, TxDone};

use super::loops::RequestOrder;
use crate::keyed_hash::KeyedHash;

/// What identifies a session: 4-tuple and session identifier (RFC 8972, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionKey {
    /// The sender's address; IPv4 as mapped.
    pub source: u128,
    /// Our address; IPv4 as mapped.
    pub destination: u128,
    pub source_port: u16,
    pub destination_port: u16,
    /// Session identifier; 0: none.
    pub ssid: u16,
}

/// What is known of one session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session {
    key: SessionKey,
    /// Sequence number of the next reply; also the number of replies sent, modulo 2^32.
    pub next_sequence: u32,
    /// Requests received, modulo 2^32.
    pub received: u32,
    /// When the previous reply truly left, once its stamp has come.
    pub previous_sent: Option<Stamp>,
    /// The sender's own sequence numbers.
    pub order: RequestOrder,
    last_used: Time,
    /// Among newcomers: the one before and the one after.
    older: u32,
    newer: u32,
    /// Distinguishes this session from earlier ones in the same slot.
    generation: u8,
    state: State,
}

/// How far a session has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// It has asked once.
    Newcomer,
    /// It has asked again.
    Established,
}

/// What became of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Known(u32),
    /// A newcomer asks again, and has become a session by it.
    Second(u32),
    /// A newcomer, perhaps instead of its own expired self.
    New(u32),
    /// There is no room for it.
    Full,
}

pub(super) struct SessionTable {
    /// Linear probing over indices into `sessions`, at most half full.
    slots: Vec<Slot>,
    sessions: Vec<Session>,
    free: Vec<u32>,
    /// Newcomers, as a list from the oldest to the newest.
    oldest: u32,
    newest: u32,
    established: usize,
    hash: KeyedHash,
    timeout: i64,
    /// The next slot that [`SessionTable::sweep`] looks at.
    cursor: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The upper half of the key's hash, to pass by other sessions without reading them.
    tag: u32,
    session: u32,
}

impl SessionTable {
    /// For `capacity` sessions (at most [`MAX_SESSIONS`]) that end after `timeout` ns of silence.
    pub(super) fn new(capacity: usize, timeout: i64, hash: KeyedHash) -> Self {
        let capacity = capacity.min(MAX_SESSIONS);
        SessionTable {
            slots: vec![EMPTY; (capacity * 2).next_power_of_two().max(2)],
            sessions: vec![Session::default(); capacity],
            free: (0..capacity as u32).rev().collect(),
            oldest: NONE,
            newest: NONE,
            established: 0,
            hash,
            timeout,
            cursor: 0,
        }
    }

    /// How many sessions there are, newcomers left out.
    pub(super) fn len(&self) -> usize {
        self.established
    }

    /// Finds or makes the session of `key`, which is in use at `now`.
    #[inline]
    pub(super) fn lookup(&mut self, key: SessionKey, now: Time) -> Lookup {
        let hash = self.hash_of(&key);
        let mask = self.slots.len() - 1;
        let tag = (hash >> 32) as u32;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.session == NONE {
                break;
            }
            if slot.tag == tag {
                let session = &mut self.sessions[slot.session as usize];
                if session.key == key {
                    if now - session.last_used > self.timeout {
                        self.leave(slot.session);
                        self.enter(slot.session, key, now);
                        return Lookup::New(slot.session);
                    }
                    session.last_used = now;
                    if session.state == State::Established {
                        return Lookup::Known(slot.session);
                    }
                    self.leave(slot.session);
                    self.sessions[slot.session as usize].state = State::Established;
                    self.established += 1;
                    return Lookup::Second(slot.session);
                }
            }
            at = (at + 1) & mask;
        }
        if self.free.is_empty() {
            if self.oldest == NONE {
                return Lookup::Full;
            }
            self.end(self.slot_of(self.oldest));
            // The gap that it left may lie before the one found above.
            at = hash as usize & mask;
            while self.slots[at].session != NONE {
                at = (at + 1) & mask;
            }
        }
        let Some(index) = self.free.pop() else {
            return Lookup::Full;
        };
        self.slots[at] = Slot { tag, session: index };
        self.enter(index, key, now);
        Lookup::New(index)
    }

    /// The session that [`SessionTable::lookup`] named.
    #[inline]
    pub(super) fn session(&mut self, index: u32) -> &mut Session {
        &mut self.sessions[index as usize]
    }

    /// Marks the next reply of a session, so that its transmit stamp finds back. Never 0.
    #[inline]
    pub(super) fn cookie(&self, index: u32) -> u64 {
        let session = &self.sessions[index as usize];
        u64::from(session.generation) << 56
            | u64::from(index + 1) << 32
            | u64::from(session.next_sequence)
    }

    /// Files a transmit stamp, unless its session has ended or has replied again since.
    pub(super) fn transmitted(&mut self, done: TxDone) {
        let index = (done.cookie >> 32) as usize & 0xff_ffff;
        let Some(session) = index.checked_sub(1).and_then(|i| self.sessions.get_mut(i)) else {
            return;
        };
        let latest = session.next_sequence.wrapping_sub(1);
        if session.state != State::Free
            && session.generation == (done.cookie >> 56) as u8
            && latest == done.cookie as u32
        {
            session.previous_sent = Some(done.stamp);
        }
    }

    /// How long to wait between calls of [`SessionTable::sweep`], ns: every slot is seen four
    /// times within a timeout.
    pub(super) fn sweep_period(&self) -> i64 {
        let parts = self.slots.len().div_ceil(SWEEP).max(1) as i64;
        (self.timeout / 4 / parts).max(MIN_SWEEP_PERIOD)
    }

    /// Ends sessions that have been silent for too long, in the next part of the table;
    /// a part is small enough not to delay packets. Returns how many ended, newcomers left
    /// out.
    pub(super) fn sweep(&mut self, now: Time) -> usize {
        let mask = self.slots.len() - 1;
        let before = self.established;
        for _ in 0..SWEEP.min(self.slots.len()) {
            let slot = self.slots[self.cursor];
            if slot.session != NONE
                && now - self.sessions[slot.session as usize].last_used > self.timeout
            {
                self.end(self.cursor);
                // Another may have moved up into this slot: look again.
                continue;
            }
            self.cursor = (self.cursor + 1) & mask;
        }
        before - self.established
    }

    /// Makes a slot that is in no list a newcomer's.
    fn enter(&mut self, index: u32, key: SessionKey, now: Time) {
        let older = std::mem::replace(&mut self.newest, index);
        match self.sessions.get_mut(older as usize) {
            Some(session) => session.newer = index,
            None => self.oldest = index,
        }
        let session = &mut self.sessions[index as usize];
        *session = Session {
            key,
            last_used: now,
            older,
            newer: NONE,
            generation: session.generation.wrapping_add(1),
            state: State::Newcomer,
            ..Session::default()
        };
    }

    /// Takes a session out of the newcomers' list or the others' count.
    fn leave(&mut self, index: u32) {
        let Session { older, newer, state, .. } = self.sessions[index as usize];
        if state == State::Established {
            self.established -= 1;
            return;
        }
        match self.sessions.get_mut(older as usize) {
            Some(session) => session.newer = newer,
            None => self.oldest = newer,
        }
        match self.sessions.get_mut(newer as usize) {
            Some(session) => session.older = older,
            None => self.newest = older,
        }
    }

    /// Ends the session of a slot.
    fn end(&mut self, slot: usize) {
        let index = self.slots[slot].session;
        self.leave(index);
        self.sessions[index as usize].state = State::Free;
        self.free.push(index);
        self.remove_slot(slot);
    }

    /// Where a session that is in use stands.
    fn slot_of(&self, index: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hash_of(&self.sessions[index as usize].key) as usize & mask;
        while self.slots[at].session != index {
            at = (at + 1) & mask;
        }
        at
    }

    /// Empties a slot and closes the gap, so that no search ends too early.
    fn remove_slot(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.session == NONE {
                break;
            }
            let home = self.hash_of(&self.sessions[slot.session as usize].key) as usize & mask;
            // It may move up unless its home lies after the gap.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = EMPTY;
    }

    #[inline]
    fn hash_of(&self, key: &SessionKey) -> u64 {
        let rest = u64::from(key.source_port) << 32
            | u64::from(key.destination_port) << 16
            | u64::from(key.ssid);
        self.hash.addresses(key.source, key.destination, rest)
    }
}

/// What a cookie has room for.
pub(super) const MAX_SESSIONS: usize = (1 << 24) - 1;

const NONE: u32 = u32::MAX;
const EMPTY: Slot = Slot { tag: 0, session: NONE };
/// Slots seen by one sweep: a few microseconds.
const SWEEP: usize = 256;
const MIN_SWEEP_PERIOD: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sonde_wire::StampSource;

    const TIMEOUT: i64 = 1_000_000_000;

    fn key(n: u128) -> SessionKey {
        SessionKey { source: n, destination: 1, source_port: 2, destination_port: 862, ssid: 3 }
    }

    fn table(capacity: usize) -> SessionTable {
        SessionTable::new(capacity, TIMEOUT, KeyedHash::new([3, 0]))
    }

    fn at(nanos: i64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn every_part_of_the_key_makes_another_session() {
        let mut t = table(16);
        let first = key(7);
        let others = [
            SessionKey { source: 8, ..first },
            SessionKey { destination: 8, ..first },
            SessionKey { source_port: 8, ..first },
            SessionKey { destination_port: 8, ..first },
            SessionKey { ssid: 8, ..first },
        ];
        assert!(matches!(t.lookup(first, at(0)), Lookup::New(_)));
        for other in others {
            assert!(matches!(t.lookup(other, at(0)), Lookup::New(_)), "{other:?}");
        }
        assert!(matches!(t.lookup(first, at(0)), Lookup::Second(_)));
        assert!(matches!(t.lookup(first, at(0)), Lookup::Known(_)));
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn a_full_table_refuses_newcomers_and_keeps_the_others() {
        let mut t = table(4);
        for n in 0..4 {
            assert!(matches!(t.lookup(key(n), at(0)), Lookup::New(_)));
            assert!(matches!(t.lookup(key(n), at(0)), Lookup::Second(_)));
        }
        assert_eq!(t.lookup(key(9), at(TIMEOUT)), Lookup::Full);
        for n in 0..4 {
            assert!(matches!(t.lookup(key(n), at(TIMEOUT)), Lookup::Known(_)));
        }
        // Long silent ones make room. A part is so many looks, and what ends takes one more.
        assert_eq!(t.sweep(at(3 * TIMEOUT)) + t.sweep(at(3 * TIMEOUT)), 4);
        assert!(matches!(t.lookup(key(9), at(3 * TIMEOUT)), Lookup::New(_)));
    }

    #[test]
    fn a_session_begins_anew_after_its_timeout_even_before_the_sweep() {
        let mut t = table(4);
        let Lookup::New(i) = t.lookup(key(1), at(0)) else { panic!("not new") };
        t.session(i).next_sequence = 5;
        assert_eq!(t.lookup(key(1), at(TIMEOUT)), Lookup::Second(i));
        assert_eq!((t.session(i).next_sequence, t.len()), (5, 1));
        assert_eq!(t.lookup(key(1), at(2 * TIMEOUT + 1)), Lookup::New(i));
        assert_eq!((t.session(i).next_sequence, t.len()), (0, 0));
    }

    #[test]
    fn sources_that_ask_once_push_out_each_other_and_no_session() {
        let mut t = table(8);
        for n in 0..4 {
            assert!(matches!(t.lookup(key(n), at(0)), Lookup::New(_)));
            assert!(matches!(t.lookup(key(n), at(1)), Lookup::Second(_)));
        }
        for n in 0..100_000 {
            assert!(matches!(t.lookup(key(1000 + n), at(2)), Lookup::New(_)), "{n}");
        }
        for n in 0..4 {
            assert!(matches!(t.lookup(key(n), at(3)), Lookup::Known(_)));
        }
        // A newcomer stays until as many have come after it as there is room for.
        assert!(matches!(t.lookup(key(1000 + 99_996), at(3)), Lookup::Second(_)));
        assert!(matches!(t.lookup(key(1000 + 99_995), at(3)), Lookup::New(_)));
        assert_eq!(t.len(), 5);
    }

    #[test]
    fn only_the_latest_reply_of_the_same_session_takes_a_transmit_stamp() {
        let mut t = table(4);
        let stamp = Stamp { at: at(9), source: StampSource::Kernel };
        let Lookup::New(i) = t.lookup(key(1), at(0)) else { panic!("not new") };
        let first = t.cookie(i);
        t.session(i).next_sequence += 1;
        t.transmitted(TxDone { cookie: first, stamp });
        assert_eq!(t.session(i).previous_sent, Some(stamp));

        t.session(i).previous_sent = None;
        let second = t.cookie(i);
        assert_ne!(first, second);
        t.session(i).next_sequence += 1;
        t.transmitted(TxDone { cookie: first, stamp });
        assert_eq!(t.session(i).previous_sent, None, "a reply has left since");
        t.session(i).next_sequence = 1;
        assert_eq!(t.lookup(key(1), at(9 * TIMEOUT)), Lookup::New(i));
        t.session(i).next_sequence = 1;
        t.transmitted(TxDone { cookie: first, stamp });
        assert_eq!(t.session(i).previous_sent, None, "the session is another one");
        for cookie in [0, u64::MAX, 0x00ff_ffff << 32] {
            t.transmitted(TxDone { cookie, stamp });
        }
    }

    proptest! {
        /// Against a plain list, newest last: sessions live and end alike, whatever the order.
        #[test]
        fn the_table_agrees_with_a_list(
            steps in prop::collection::vec((0u128..40, 0i64..TIMEOUT / 3, any::<bool>()), 1..400),
        ) {
            let mut t = table(24);
            // Key, when it was last used, whether it has asked again.
            let mut list: Vec<(u128, i64, bool)> = Vec::new();
            let mut now = 0;
            for (n, pause, sweep) in steps {
                now += pause;
                if sweep {
                    // Once round, whatever moved up into seen slots included.
                    for _ in 0..4 {
                        t.sweep(at(now));
                    }
                    list.retain(|(_, last, _)| now - *last <= TIMEOUT);
                }
                let found = list.iter().position(|entry| entry.0 == n);
                let expired = found.filter(|&i| now - list[i].1 > TIMEOUT);
                let looked = t.lookup(key(n), at(now));
                match (found, expired) {
                    (Some(i), None) => {
                        let again = list[i].2;
                        let as_wanted = match looked {
                            Lookup::Known(_) => again,
                            Lookup::Second(_) => !again,
                            _ => false,
                        };
                        prop_assert!(as_wanted, "{:?}", looked);
                        (list[i].1, list[i].2) = (now, true);
                    }
                    (_, expired) => {
                        if let Some(i) = expired {
                            list.remove(i);
                        } else if list.len() == 24 {
                            let Some(oldest) = list.iter().position(|entry| !entry.2) else {
                                prop_assert_eq!(looked, Lookup::Full);
                                continue;
                            };
                            list.remove(oldest);
                        }
                        prop_assert!(matches!(looked, Lookup::New(_)));
                        list.push((n, now, false));
                    }
                }
                prop_assert_eq!(t.len(), list.iter().filter(|entry| entry.2).count());
            }
        }
    }
}
