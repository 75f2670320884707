//! What an interface's driver has counted, by the names that `ethtool -S` shows.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::syscall::{self, SIOCETHTOOL};

/// The counters of one interface.
pub struct DriverStats {
    socket: OwnedFd,
    interface: String,
    /// The interface that had the name when this began.
    index: u32,
    names: Vec<String>,
    /// What the driver is asked with, and what it answers: two integers, then the counters.
    buffer: Vec<u64>,
}

impl DriverStats {
    /// Asks the driver of `interface`, in the network namespace of this thread, for the names.
    ///
    /// # Errors
    /// A driver that counts nothing (EOPNOTSUPP), no such interface.
    pub fn open(interface: &str) -> io::Result<DriverStats> {
        let socket = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let index = index_of(interface)?;
        let interface = interface.to_owned();
        let (names, buffer) = (Vec::new(), Vec::new());
        let mut stats = DriverStats { socket, interface, index, names, buffer };
        // struct ethtool_sset_info: command, reserved, mask of sets, a count for each set.
        let mut info = [pair(ETHTOOL_GSSET_INFO, 0), 1 << ETH_SS_STATS, 0];
        stats.ask(&mut info)?;
        let count = halves(info[2]).0 as usize;
        if info[1] == 0 || count == 0 {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        if count > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // struct ethtool_gstrings: command, set, count, then the names.
        let mut strings = vec![0u64; 2 + (count + SLACK) * NAME / 8];
        strings[0] = pair(ETHTOOL_GSTRINGS, ETH_SS_STATS);
        strings[1] = pair(count as u32, 0);
        stats.ask(&mut strings)?;
        let octets: Vec<u8> = strings.iter().flat_map(|word| word.to_ne_bytes()).collect();
        stats.names = octets[12..]
            .chunks_exact(NAME)
            .take(count)
            .map(|name| {
                let end = name.iter().position(|&octet| octet == 0).unwrap_or(NAME);
                String::from_utf8_lossy(&name[..end]).into_owned()
            })
            .collect();
        stats.buffer = vec![0; 1 + count + SLACK];
        Ok(stats)
    }

    /// Sums the counters whose name is `wanted`.
    ///
    /// # Errors
    /// The interface is gone, though another one may have its name.
    pub fn sum(&mut self, wanted: impl Fn(&str) -> bool) -> io::Result<u64> {
        let mut buffer = std::mem::take(&mut self.buffer);
        // struct ethtool_stats: command, count, then the counters.
        buffer[0] = pair(ETHTOOL_GSTATS, self.names.len() as u32);
        let asked = self.ask(&mut buffer);
        let sum = self.names.iter().zip(&buffer[1..]).filter(|(name, _)| wanted(name));
        let sum = sum.fold(0u64, |sum, (_, count)| sum.wrapping_add(*count));
        let reported = halves(buffer[0]).1 as usize;
        self.buffer = buffer;
        asked?;
        // No index is given twice: what has it now had it when the driver was asked.
        if index_of(&self.interface)? != self.index {
            return Err(io::ErrorKind::NotFound.into());
        }
        if reported != self.names.len() {
            return Err(io::Error::other("the driver has other counters now"));
        }
        Ok(sum)
    }

    fn ask(&self, structure: &mut [u64]) -> io::Result<()> {
        let mut request = syscall::interface_request(&self.interface)?;
        request.ifr_ifru.ifru_data = structure.as_mut_ptr().cast();
        // SAFETY: the structure begins with a command of this file. The kernel writes as many names
        // or counters as the driver has at this time, whatever was asked for. There is room for
        // those that it reported, and for more queues than a driver adds in between.
        let rc = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        syscall::check(rc).map(drop)
    }
}

/// The index of an interface that must be there.
fn index_of(interface: &str) -> io::Result<u32> {
    syscall::interface_index(interface).map_err(|_| io::ErrorKind::NotFound.into())
}

/// Two integers side by side, as they lie in memory.
fn pair(first: u32, second: u32) -> u64 {
    let mut octets = [0; 8];
    octets[..4].copy_from_slice(&first.to_ne_bytes());
    octets[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(octets)
}

/// The two integers of [`pair`].
fn halves(both: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = both.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
/// Octets of a name.
const NAME: usize = 32;
/// Room for counters that come between two questions.
const SLACK: usize = 16_384;
/// More counters than any driver has.
const MOST: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_lab::scratch::{in_namespace, ip};
    use std::process::Command;

    #[test]
    fn the_names_and_counts_are_those_of_ethtool() {
        in_namespace(|| {
            ip("link add a0 type veth peer name b0");
            let mut stats = DriverStats::open("a0").unwrap();
            let says = Command::new("ethtool").args(["-S", "a0"]).output().unwrap().stdout;
            let says = String::from_utf8(says).unwrap();
            let names: Vec<&str> =
                says.lines().filter_map(|l| l.trim().split_once(": ")).map(|l| l.0).collect();
            assert_eq!(stats.names, names);
            let peer = says.lines().find_map(|l| l.trim().strip_prefix("peer_ifindex: ")).unwrap();
            let sum = stats.sum(|name| name == "peer_ifindex").unwrap();
            assert_eq!(sum.to_string(), peer);
            ip("link del a0");
            assert!(stats.sum(|_| true).is_err());
            assert!(DriverStats::open("lo").is_err(), "it counts nothing");
            assert!(
                DriverStats::open("no0").is_err() && DriverStats::open(&"x".repeat(99)).is_err()
            );
        });
    }
}
