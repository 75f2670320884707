//! A capture file on disk, mapped, what can be wrong with it, and what of it is not read.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use sonde_port::pcap::Mapping;
use sonde_wire::capture::{CaptureError, CaptureErrorKind, Skipped};

/// Maps a capture file. It must not be shortened while it is read.
pub fn open(path: &Path) -> anyhow::Result<Mapping> {
    let what = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(what)?;
    if !file.metadata().with_context(what)?.is_file() {
        return Err(anyhow!(
            "{} is not a regular file; save the capture first, then read it",
            path.display()
        ));
    }
    Mapping::new(&file).with_context(what)
}

/// What of a file was not read, by kind.
#[derive(Clone, Debug, Default)]
pub struct Unread {
    /// Packets of link types that are not known, by link type.
    pub link_types: BTreeMap<u16, u64>,
    /// What the reader stepped over.
    pub skipped: Skipped,
}

impl Unread {
    /// A packet of a link type that is not known.
    pub fn link_type(&mut self, link_type: u16) {
        *self.link_types.entry(link_type).or_default() += 1;
    }

    /// Packets among it.
    pub fn packets(&self) -> u64 {
        self.link_types.values().sum::<u64>() + self.skipped.packets()
    }

    /// For the run file.
    pub fn counters(&self) -> [(String, u64); 4] {
        let Skipped { bad_times, no_interface, other_blocks } = self.skipped;
        [
            ("other_link_type".into(), self.link_types.values().sum()),
            ("bad_time".into(), bad_times),
            ("no_interface".into(), no_interface),
            ("other_block_type".into(), other_blocks),
        ]
    }

    /// For people, a line for each kind.
    pub fn lines(&self) -> Vec<String> {
        let Skipped { bad_times, no_interface, other_blocks } = self.skipped;
        let numbers: Vec<String> = self.link_types.keys().map(u16::to_string).collect();
        let kinds = [
            (
                self.link_types.values().sum(),
                format!(
                    "packets of link types that are not known ({}); capture with \
                     tcpdump -y EN10MB, RAW or LINUX_SLL2",
                    numbers.join(", ")
                ),
            ),
            (bad_times, "packets whose time is before 1897 or after 2116 were left out".into()),
            (
                no_interface,
                "packets of interfaces that the file does not describe were left out".into(),
            ),
            (other_blocks, "blocks of types that are not known were left out".into()),
        ];
        kinds.into_iter().filter(|&(n, _)| n > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }
}

/// The error for people.
pub fn unreadable(path: &Path, error: CaptureError) -> anyhow::Error {
    let hint = match error.kind {
        CaptureErrorKind::Magic => "; pcap and pcapng can be read",
        CaptureErrorKind::Truncated => "",
        _ => "; 'capinfos' says more",
    };
    anyhow!("{}: {error}{hint}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_said_by_kind() {
        let mut unread = Unread::default();
        assert!(unread.lines().is_empty());
        for link_type in [127, 105, 127] {
            unread.link_type(link_type);
        }
        unread.skipped = Skipped { bad_times: 2, no_interface: 0, other_blocks: 5 };
        assert_eq!(unread.packets(), 5);
        assert_eq!(unread.counters().map(|(_, n)| n), [3, 2, 0, 5]);
        let lines = unread.lines();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("3 packets of link types that are not known (105, 127)"));
        assert!(lines[1].starts_with("2 packets whose time"));
        assert!(lines[2].starts_with("5 blocks"));
    }
}
