//! Captures: reading them, what can be wrong with one, and what of it is not read.

mod input;

use std::collections::BTreeMap;

use sonde_results::rtt_run::RttPoint;
use sonde_wire::capture::Skipped;
use sonde_wire::flow::{LinkType, WlanKind};

pub use self::input::{
    BatchLimits, CaptureFiles, CapturePiece, First, LOOK_AROUND, NextPiece, Octets, describe, fill,
    octets, unreadable,
};

/// What of a file was not read, by kind.
#[derive(Clone, Debug, Default)]
pub struct Unread {
    /// Packets of link types that are not known, by link type.
    pub link_types: BTreeMap<u16, u64>,
    /// Frames of wireless networks in which there is no packet to be read.
    pub wlan: BTreeMap<WlanKind, u64>,
    /// Packets of wireless networks that are further parts of a frame (A-MSDU).
    further_parts: u64,
    /// What the readers of earlier captures stepped over, and that of the present one.
    skipped: [Skipped; 2],
    /// Packets of whose time the file says nothing. Flows have them, with the time of the packet
    /// before them.
    pub untimed: u64,
}

impl Unread {
    /// A packet of a link type that is not known.
    pub fn link_type(&mut self, link_type: u16) {
        *self.link_types.entry(link_type).or_default() += 1;
    }

    /// Whether a frame may have a packet that can be read. What of it cannot be is counted.
    #[inline]
    pub fn may_read(&mut self, link: LinkType, frame: &[u8]) -> bool {
        if let Some(kind) = link.unreadable(frame) {
            *self.wlan.entry(kind).or_default() += 1;
            return false;
        }
        self.further_parts += link.further_parts(frame);
        true
    }

    /// What the reader of a piece has stepped over since its capture began.
    pub fn stepped_over(&mut self, piece: &CapturePiece, skipped: Skipped) {
        if piece.is_first {
            self.skipped[0] = self.skipped();
        }
        self.skipped[1] = skipped;
    }

    /// What the readers stepped over.
    pub fn skipped(&self) -> Skipped {
        let [mut sum, present] = self.skipped;
        sum += present;
        sum
    }

    /// Whether some packets had no time, or one that cannot be.
    pub fn has_bad_times(&self) -> bool {
        self.skipped().bad_times + self.untimed > 0
    }

    /// Packets that were left out.
    pub fn packets(&self) -> u64 {
        let others = self.link_types.values().chain(self.wlan.values()).sum::<u64>();
        others + self.further_parts + self.skipped().packets()
    }

    /// Counters by name, for the run file.
    pub fn counters(&self) -> [(String, u64); 9] {
        let Skipped { bad_times, no_interface, other_blocks } = self.skipped();
        [
            ("no_time".into(), self.untimed),
            ("wlan_no_data".into(), self.of(WlanKind::NoData)),
            ("wlan_encrypted".into(), self.of(WlanKind::Encrypted)),
            ("wlan_damaged".into(), self.of(WlanKind::Damaged)),
            ("wlan_further_parts".into(), self.further_parts),
            ("other_link_type".into(), self.link_types.values().sum()),
            ("bad_time".into(), bad_times),
            ("no_interface".into(), no_interface),
            ("other_block_type".into(), other_blocks),
        ]
    }

    fn of(&self, kind: WlanKind) -> u64 {
        self.wlan.get(&kind).copied().unwrap_or(0)
    }

    /// For people, a line for each kind.
    pub fn lines(&self) -> Vec<String> {
        let Skipped { bad_times, no_interface, other_blocks } = self.skipped();
        let link_types: Vec<String> = self.link_types.keys().map(u16::to_string).collect();
        let kinds = [
            (
                self.link_types.values().sum(),
                format!(
                    "packets of link types that are not known ({}); capture with \
                     tcpdump -y EN10MB, RAW or LINUX_SLL2",
                    link_types.join(", ")
                ),
            ),
            (
                self.of(WlanKind::Encrypted),
                "802.11 frames are encrypted: capture behind the access point".into(),
            ),
            (self.of(WlanKind::NoData), "802.11 frames carry no data (management, control)".into()),
            (self.of(WlanKind::Damaged), "802.11 frames came damaged (wrong FCS)".into()),
            (
                self.further_parts,
                "packets are further parts of 802.11 frames with several (A-MSDU), of which the \
                 first is read"
                    .into(),
            ),
            (
                self.untimed,
                "packets have no time in the file (Simple Packet Blocks): no delay is measured \
                 with them"
                    .into(),
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

/// Where packets of a capture were seen: at an interface by its name, or by its index where there
/// are several.
pub fn point(file: &str, interface: Option<&str>, index: Option<u32>) -> RttPoint {
    RttPoint {
        name: match (interface, index) {
            (Some(interface), _) => format!("{file} {interface}"),
            (None, Some(index)) => format!("{file} interface {index}"),
            (None, None) => file.into(),
        },
        how: "capture file, by the packets' times".into(),
        vanished: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_said_by_kind() {
        let mut unread = Unread::default();
        assert!(unread.lines().is_empty());
        for link_type in [163, 147, 163] {
            unread.link_type(link_type);
        }
        unread.skipped[1] = Skipped { bad_times: 2, no_interface: 0, other_blocks: 5 };
        assert_eq!(unread.packets(), 5);
        assert_eq!(unread.counters().map(|(_, n)| n), [0, 0, 0, 0, 0, 3, 2, 0, 5]);
        let lines = unread.lines();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("3 packets of link types that are not known (147, 163)"));
        assert!(lines[1].starts_with("2 packets whose time"));
        assert!(lines[2].starts_with("5 blocks"));
    }
}
