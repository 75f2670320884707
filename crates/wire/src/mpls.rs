//! MPLS label stacks (RFC 3032; the traffic class field RFC 5462).

use crate::Error;
use crate::field::{put_u32, u32_at};

/// One label stack entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// 0..=0xFFFFF.
    pub label: u32,
    /// Traffic class, 0..=7.
    pub traffic_class: u8,
    /// The last entry of the stack.
    pub bottom: bool,
    pub ttl: u8,
}

impl Entry {
    /// Reads the entry at the start of `data`.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let bytes = data.get(..ENTRY_LEN).ok_or(Error::Truncated)?;
        let entry = u32_at(bytes, 0);
        Ok(Entry {
            label: entry >> 12,
            traffic_class: (entry >> 9) as u8 & 7,
            bottom: entry & 0x100 != 0,
            ttl: entry as u8,
        })
    }

    /// Length that [`Entry::emit`] writes.
    pub const fn buffer_len(&self) -> usize {
        ENTRY_LEN
    }

    /// Writes the entry at the start of `buffer`; returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.label > 0xF_FFFF || self.traffic_class > 7 {
            return Err(Error::Range);
        }
        let buffer = buffer.get_mut(..ENTRY_LEN).ok_or(Error::NoRoom)?;
        let entry = self.label << 12
            | u32::from(self.traffic_class) << 9
            | u32::from(self.bottom) << 8
            | u32::from(self.ttl);
        put_u32(buffer, 0, entry);
        Ok(ENTRY_LEN)
    }
}

/// A checked view of a whole stack and what it carries.
#[derive(Clone, Copy, Debug)]
pub struct Stack<T> {
    buffer: T,
    depth: usize,
}

impl<T: AsRef<[u8]>> Stack<T> {
    /// Checks that the bottom of the stack is there, within [`MAX_DEPTH`] entries.
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        for depth in 1..=MAX_DEPTH {
            let rest = buffer.as_ref().get((depth - 1) * ENTRY_LEN..).unwrap_or(&[]);
            if Entry::parse(rest)?.bottom {
                return Ok(Stack { buffer, depth });
            }
        }
        Err(Error::Length)
    }

    /// The entries, top first.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let bytes = &self.buffer.as_ref()[..self.depth * ENTRY_LEN];
        bytes.chunks_exact(ENTRY_LEN).map_while(|entry| Entry::parse(entry).ok())
    }

    pub fn depth(&self) -> usize {
        self.depth
    }

    /// What follows the stack. Nothing in the stack says what it is; its first four
    /// bits distinguish IPv4, IPv6 and pseudowires (RFC 4928).
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[self.depth * ENTRY_LEN..]
    }
}

/// Length of an entry.
pub const ENTRY_LEN: usize = 4;
/// Most entries that are read.
pub const MAX_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn a_stack_of_two() {
        // Label 16, class 5, TTL 64; then explicit null for IPv6 (label 2), bottom.
        let bytes = [0x00, 0x01, 0x0A, 0x40, 0x00, 0x00, 0x21, 0xFF, 0x60];
        let stack = Stack::new_checked(&bytes).unwrap();
        let entries: Vec<Entry> = stack.entries().collect();
        assert_eq!(
            entries,
            [
                Entry { label: 16, traffic_class: 5, bottom: false, ttl: 64 },
                Entry { label: 2, traffic_class: 0, bottom: true, ttl: 255 },
            ]
        );
        assert_eq!((stack.depth(), stack.payload()), (2, &[0x60][..]));
        for len in 0..8 {
            assert_eq!(Stack::new_checked(&bytes[..len]).err(), Some(Error::Truncated));
        }
    }

    #[test]
    fn a_stack_without_a_bottom_is_refused() {
        assert_eq!(Stack::new_checked([0; 100]).err(), Some(Error::Length));
        assert_eq!(Stack::new_checked([0; 8]).err(), Some(Error::Truncated));
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse_of_emit(
            label in 0u32..=0xF_FFFF, traffic_class in 0u8..8, bottom: bool, ttl: u8,
        ) {
            let entry = Entry { label, traffic_class, bottom, ttl };
            let mut bytes = [0; 4];
            prop_assert_eq!(entry.emit(&mut bytes), Ok(entry.buffer_len()));
            prop_assert_eq!(Entry::parse(&bytes), Ok(entry));
            prop_assert_eq!(entry.emit(&mut bytes[..3]), Err(Error::NoRoom));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(stack) = Stack::new_checked(&bytes) {
                prop_assert_eq!(stack.entries().count(), stack.depth());
                let _ = stack.payload();
            }
        }
    }
}
