//! Messages on their way to a collector that may be slow, away or restarting: one list,
//! first in, first out, its older part in a folder on disk and its newer part in memory.
//! A message stays until it was delivered.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::Result;

use super::segments::Segments;
use super::templates::Templates;

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// As the exporter made it.
    pub bytes: Vec<u8>,
    /// Made by a run before this one: its sequence numbers are of another series.
    pub earlier: bool,
}

/// What waits.
pub struct Backlog {
    disk: Option<Segments>,
    memory: VecDeque<Vec<u8>>,
    memory_bytes: usize,
    /// Messages at the front of `memory` that were handed out and not yet delivered.
    handed_out: usize,
    templates: Templates,
    lost: u64,
    report: Option<String>,
}

impl Backlog {
    /// In memory, and in `folder` if there is one, up to `limit` bytes there. What an earlier
    /// run left in the folder comes first.
    pub fn open(folder: Option<(&Path, u64)>) -> Result<Backlog> {
        Ok(Backlog {
            disk: folder.map(|(path, limit)| Segments::open(path, limit)).transpose()?,
            memory: VecDeque::new(),
            memory_bytes: 0,
            handed_out: 0,
            templates: Templates::default(),
            lost: 0,
            report: None,
        })
    }

    /// Adds a message. While the collector is away it goes to disk at once, so that a kill
    /// loses nothing.
    pub fn push(&mut self, message: &[u8], connected: bool) {
        self.templates.note(message);
        self.memory_bytes += message.len();
        self.memory.push_back(message.to_vec());
        if !connected || self.memory_bytes > MEMORY {
            self.spill();
        }
        while self.memory_bytes > MEMORY_WITHOUT_DISK {
            self.give_up();
        }
    }

    /// The next message that was not handed out since the last [`Backlog::rewind`].
    pub fn next(&mut self) -> Option<Waiting> {
        if let Some(disk) = &mut self.disk {
            match disk.next() {
                Ok(Some(waiting)) => return Some(waiting),
                Ok(None) => {}
                Err(error) => self.report = Some(error.to_string()),
            }
        }
        let bytes = self.memory.get(self.handed_out)?.clone();
        self.handed_out += 1;
        Some(Waiting { bytes, earlier: false })
    }

    /// The oldest message that was handed out has been delivered.
    pub fn delivered(&mut self) {
        if let Some(disk) = &mut self.disk
            && disk.delivered()
        {
            return;
        }
        if self.handed_out > 0 {
            self.handed_out -= 1;
            self.drop_oldest();
        }
    }

    /// What was handed out and not delivered will be handed out again.
    pub fn rewind(&mut self) {
        self.handed_out = 0;
        if let Some(disk) = &mut self.disk {
            disk.rewind();
        }
    }

    /// A message of all templates that what comes next may need; empty if there is none.
    pub fn templates(&mut self, sequence: u32, export_time: u32) -> Vec<u8> {
        match self.disk.as_mut().and_then(Segments::templates) {
            Some(templates) => templates.message(sequence, export_time),
            None => self.templates.message(sequence, export_time),
        }
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.memory_bytes as u64 + self.disk.as_ref().map_or(0, Segments::bytes)
    }

    /// Messages given up because there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What the disk refused since the last call, in words.
    pub fn take_report(&mut self) -> Option<String> {
        self.report.take()
    }

    /// At the end: what has not been delivered stays on disk, or is lost.
    pub fn close(&mut self) {
        self.rewind();
        self.spill();
        while !self.memory.is_empty() {
            self.give_up();
        }
        if let Some(disk) = &mut self.disk {
            disk.close();
        }
    }

    /// What is in memory goes to disk as far as there is room.
    pub fn spill(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        while let Some(message) = self.memory.front() {
            match disk.append(message, &self.templates, self.handed_out > 0) {
                Ok(true) => {}
                // Full: the newest have to wait in memory.
                Ok(false) => return,
                Err(error) => {
                    self.report = Some(error.to_string());
                    return;
                }
            }
            self.handed_out = self.handed_out.saturating_sub(1);
            self.memory_bytes -= message.len();
            self.memory.pop_front();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(message) = self.memory.pop_front() {
            self.memory_bytes -= message.len();
        }
    }

    /// The newest goes: what is older may be on its way already.
    fn give_up(&mut self) {
        if let Some(message) = self.memory.pop_back() {
            self.memory_bytes -= message.len();
            self.handed_out = self.handed_out.min(self.memory.len());
            self.lost += 1;
        }
    }
}

/// Bytes in memory before the disk is used.
const MEMORY: usize = 8 << 20;
/// Bytes in memory where there is no disk, or no room on it.
const MEMORY_WITHOUT_DISK: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::super::templates::tests::{data, template};
    use super::*;
    use crate::flow::export::segments::tests::Folder;

    fn all(backlog: &mut Backlog) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| backlog.next()).map(|w| w.bytes).collect()
    }

    #[test]
    fn what_was_not_delivered_comes_again_in_order() {
        let mut backlog = Backlog::open(None).unwrap();
        let messages: Vec<_> = (0..5).map(data).collect();
        messages.iter().for_each(|m| backlog.push(m, true));
        assert_eq!(backlog.next().unwrap().bytes, messages[0]);
        assert_eq!(backlog.next().unwrap().bytes, messages[1]);
        backlog.delivered();
        backlog.rewind();
        assert_eq!(all(&mut backlog), messages[1..]);
    }

    #[test]
    fn disk_and_memory_are_one_list() {
        let folder = Folder::new();
        let mut backlog = Backlog::open(Some((&folder.0, 1 << 20))).unwrap();
        backlog.push(&template(), true);
        let messages: Vec<_> = (1..9).map(data).collect();
        messages[..3].iter().for_each(|m| backlog.push(m, true));
        assert_eq!(backlog.next().unwrap().bytes, template());
        assert_eq!(backlog.next().unwrap().bytes, messages[0]);
        backlog.delivered();
        // The collector goes away while one message is on its way.
        messages[3..6].iter().for_each(|m| backlog.push(m, false));
        assert_eq!(backlog.memory_bytes, 0);
        backlog.rewind();
        messages[6..].iter().for_each(|m| backlog.push(m, true));
        let rest: Vec<_> =
            all(&mut backlog).into_iter().filter(|m| !Templates::is_only(m)).collect();
        assert_eq!(rest, messages);
        (0..20).for_each(|_| backlog.delivered());
        assert_eq!((backlog.bytes(), backlog.next(), backlog.lost()), (0, None, 0));
    }

    #[test]
    fn the_next_run_sends_what_the_last_one_left() {
        let folder = Folder::new();
        let mut first = Backlog::open(Some((&folder.0, 1 << 20))).unwrap();
        first.push(&template(), true);
        (0..4).for_each(|i| first.push(&data(i), true));
        (0..3).for_each(|_| drop(first.next()));
        (0..3).for_each(|_| first.delivered());
        first.close();
        drop(first);
        let mut second = Backlog::open(Some((&folder.0, 1 << 20))).unwrap();
        assert!(!second.templates(0, 0).is_empty());
        second.push(&data(9), true);
        let left: Vec<_> = std::iter::from_fn(|| second.next())
            .filter(|w| !Templates::is_only(&w.bytes))
            .collect();
        let expected = [(data(2), true), (data(3), true), (data(9), false)];
        assert_eq!(left, expected.map(|(bytes, earlier)| Waiting { bytes, earlier }));
    }

    #[test]
    fn bounds_are_kept_and_losses_counted() {
        let folder = Folder::new();
        let mut backlog = Backlog::open(Some((&folder.0, 4_096))).unwrap();
        backlog.push(&template(), false);
        let big = vec![data(1), vec![0; 60_000]].concat();
        (0..2_000).for_each(|_| backlog.push(&big, false));
        assert!(backlog.bytes() <= (MEMORY_WITHOUT_DISK + 4_096) as u64);
        assert!(backlog.lost() > 500);
    }
}
