//! Messages on their way to a collector that may be slow, away or restarting. They are one
//! queue, first in, first out: its older part in a folder on disk, its newer part in memory.
//! A message stays until it was delivered.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::Result;
use sonde_wire::ipfix::{Header, MessageIter};

use super::segments::{SpoolSegments, Waiting};
use super::templates::TemplateSets;

/// Messages that wait for the collector, in memory and then on disk.
pub struct Backlog {
    disk: Option<SpoolSegments>,
    /// Messages, and how many flow records are in each.
    memory: VecDeque<(Vec<u8>, u64)>,
    memory_bytes: usize,
    /// Messages at the front of `memory` that were handed out and not yet delivered.
    handed_out: usize,
    /// Of what has left `memory`.
    templates: TemplateSets,
    lost: Lost,
    report: Option<String>,
    reported: Option<String>,
}

/// What was given up because there was no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Messages that were discarded.
    pub messages: u64,
    /// Flow records in them.
    pub records: u64,
}

impl Backlog {
    /// In memory, and in `folder` if there is one, up to `limit` bytes there. What an earlier
    /// run left in the folder comes first.
    pub fn open(folder: Option<(&Path, u64)>) -> Result<Backlog> {
        Ok(Backlog {
            disk: folder.map(|(path, limit)| SpoolSegments::open(path, limit)).transpose()?,
            memory: VecDeque::new(),
            memory_bytes: 0,
            handed_out: 0,
            templates: TemplateSets::default(),
            lost: Lost::default(),
            report: None,
            reported: None,
        })
    }

    /// Whether there is a folder.
    pub fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Adds a message of so many flow records. While the collector is away it goes to disk
    /// at once, so that a kill loses nothing. Where there is no room, it is given up, since
    /// what is older may be on its way already.
    pub fn push(&mut self, message: &[u8], records: u64, connected: bool) {
        if self.memory_bytes + message.len() > MEMORY_WITHOUT_DISK {
            self.spill();
        }
        if self.memory_bytes + message.len() > MEMORY_WITHOUT_DISK {
            self.lost.messages += 1;
            self.lost.records += records;
            // What comes later may need its templates.
            let mut templates = TemplateSets::default();
            templates.note(message);
            if let Ok(Header { domain, sequence, export_time, .. }) = Header::parse(message) {
                let messages = templates.of_domain(domain, sequence, export_time);
                for rest in MessageIter::new(&messages).flatten() {
                    self.keep(rest, 0);
                }
            }
            return;
        }
        self.keep(message, records);
        if !connected || self.memory_bytes > MEMORY {
            self.spill();
        }
    }

    fn keep(&mut self, message: &[u8], records: u64) {
        self.memory_bytes += message.len();
        self.memory.push_back((message.to_vec(), records));
    }

    /// The next message that was not handed out since the last [`Backlog::rewind`].
    pub fn next(&mut self) -> Option<Waiting> {
        if let Some(disk) = &mut self.disk {
            loop {
                match disk.next() {
                    Ok(Some(waiting)) => return Some(waiting),
                    Ok(None) => break,
                    Err(error) => {
                        self.lost.messages += 1;
                        // How many it held is not known any more.
                        self.lost.records += 1;
                        self.report = Some(error.to_string());
                    }
                }
            }
        }
        let bytes = self.memory.get(self.handed_out)?.0.clone();
        self.handed_out += 1;
        Some(Waiting { bytes, series: self.disk.as_ref().map_or(0, SpoolSegments::series) })
    }

    /// The oldest message that was handed out has been delivered.
    pub fn delivered(&mut self) {
        if let Some(disk) = &mut self.disk
            && disk.delivered()
        {
            return;
        }
        if self.handed_out > 0 {
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

    /// Messages of all templates that what comes next may need, for a collector that knows
    /// none.
    pub fn templates(&mut self, export_time: u32) -> Vec<u8> {
        match self.disk.as_mut().and_then(SpoolSegments::templates) {
            Some(templates) => templates.all(export_time),
            None => self.templates.all(export_time),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.memory_bytes as u64 + self.disk.as_ref().map_or(0, SpoolSegments::bytes)
    }

    /// What was given up so far.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// What the disk refused, as a message, once for each reason.
    pub fn take_report(&mut self) -> Option<String> {
        let report = self.report.take()?;
        if self.reported.as_ref() == Some(&report) {
            return None;
        }
        self.reported = Some(report.clone());
        Some(report)
    }

    /// At the end: what has not been delivered stays on disk, or is lost.
    pub fn close(&mut self) {
        self.rewind();
        self.spill();
        self.lost.messages += self.memory.len() as u64;
        self.lost.records += self.memory.iter().map(|(_, records)| records).sum::<u64>();
        self.memory.clear();
        self.memory_bytes = 0;
        if let Some(disk) = &mut self.disk {
            disk.close();
        }
    }

    /// What is in memory goes to disk as far as there is room.
    pub fn spill(&mut self) {
        while let (Some(disk), Some((message, _))) = (&mut self.disk, self.memory.front()) {
            match disk.append(message, &self.templates, self.handed_out > 0) {
                Ok(true) => self.drop_oldest(),
                // Full: the newest have to wait in memory.
                Ok(false) => return,
                Err(error) => {
                    self.report = Some(error.to_string());
                    return;
                }
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((message, _)) = self.memory.pop_front() {
            self.templates.note(&message);
            self.memory_bytes -= message.len();
            self.handed_out = self.handed_out.saturating_sub(1);
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
        messages.iter().for_each(|m| backlog.push(m, 1, true));
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
        backlog.push(&template(), 0, true);
        let messages: Vec<_> = (1..9).map(data).collect();
        messages[..3].iter().for_each(|m| backlog.push(m, 1, true));
        assert_eq!(backlog.next().unwrap().bytes, template());
        assert_eq!(backlog.next().unwrap().bytes, messages[0]);
        backlog.delivered();
        // The collector goes away while one message is on its way.
        messages[3..6].iter().for_each(|m| backlog.push(m, 1, false));
        assert_eq!(backlog.memory_bytes, 0);
        backlog.rewind();
        messages[6..].iter().for_each(|m| backlog.push(m, 1, true));
        assert_eq!(all(&mut backlog), messages);
        (0..messages.len()).for_each(|_| backlog.delivered());
        assert_eq!((backlog.bytes(), backlog.next(), backlog.lost()), (0, None, Lost::default()));
    }

    #[test]
    fn what_is_on_its_way_may_go_to_disk_meanwhile() {
        let folder = Folder::new();
        let mut backlog = Backlog::open(Some((&folder.0, 1 << 30))).unwrap();
        backlog.push(&template(), 0, true);
        assert_eq!(backlog.next().unwrap().bytes, template());
        backlog.delivered();
        let messages: Vec<_> = (0..6).map(data).collect();
        messages[..4].iter().for_each(|m| backlog.push(m, 1, true));
        (0..3).for_each(|i| assert_eq!(backlog.next().unwrap().bytes, messages[i]));
        backlog.spill();
        assert_eq!(backlog.memory_bytes, 0);
        messages[4..].iter().for_each(|m| backlog.push(m, 1, true));
        // Two of the three arrive, then the connection is lost.
        (0..2).for_each(|_| backlog.delivered());
        assert_eq!(backlog.next().unwrap().bytes, messages[3]);
        backlog.rewind();
        assert_eq!(backlog.templates(1), template());
        assert_eq!(all(&mut backlog), messages[2..]);
        (0..4).for_each(|_| backlog.delivered());
        assert_eq!((backlog.bytes(), backlog.lost()), (0, Lost::default()));
        backlog.close();
        assert_eq!(folder.segments(), 0);
    }

    #[test]
    fn templates_outlive_the_message_that_was_given_up() {
        let mut backlog = Backlog::open(None).unwrap();
        let big = [data(1), vec![0; 60_000]].concat();
        while backlog.lost().messages == 0 {
            backlog.push(&big, 2, false);
        }
        // As long as the others, which no longer fit.
        let mut first = [template(), vec![0; 60_000]].concat();
        let length = (first.len() as u16).to_be_bytes();
        first[2..4].copy_from_slice(&length);
        backlog.push(&first, 5, false);
        assert_eq!(backlog.lost(), Lost { messages: 2, records: 7 });
        assert_eq!(all(&mut backlog).last(), Some(&template()));
    }

    #[test]
    fn the_next_run_sends_what_the_last_one_left() {
        let folder = Folder::new();
        let mut first = Backlog::open(Some((&folder.0, 1 << 20))).unwrap();
        first.push(&template(), 0, true);
        (0..4).for_each(|i| first.push(&data(i), 1, true));
        (0..3).for_each(|_| drop(first.next()));
        (0..3).for_each(|_| first.delivered());
        first.close();
        drop(first);
        let mut second = Backlog::open(Some((&folder.0, 1 << 20))).unwrap();
        second.push(&data(9), 1, true);
        let mut left = std::iter::from_fn(|| second.next());
        // The segment begins with the templates.
        let first = left.next().unwrap();
        assert_eq!((first.bytes.len(), first.series), (template().len(), 0));
        let left: Vec<_> = left.collect();
        let expected = [(data(2), 0), (data(3), 0), (data(9), 2)];
        assert_eq!(left, expected.map(|(bytes, series)| Waiting { bytes, series }));
    }

    #[test]
    fn bounds_are_kept_and_losses_counted() {
        let folder = Folder::new();
        let mut backlog = Backlog::open(Some((&folder.0, 4_096))).unwrap();
        backlog.push(&template(), 0, false);
        let big = [data(1), vec![0; 60_000]].concat();
        (0..2_000).for_each(|_| backlog.push(&big, 1, false));
        assert!(backlog.bytes() <= (MEMORY_WITHOUT_DISK + 4_096) as u64);
        assert!(backlog.lost().messages > 500);
    }
}
