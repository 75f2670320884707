//! Facts about the host and its interfaces that decide how far its results can be
//! trusted: for `sonde doctor` and for run files.
//!
//! A fact that the host does not give (no such file, a driver without the call) is
//! `None` or empty, never a guess.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::SysError;
use crate::cpu_time::CpuTime;
use crate::syscall::{self, SIOCETHTOOL};

/// The machine and its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    pub name: String,
    pub kernel: String,
    pub cpu: String,
    /// Processors that this process may run on.
    pub cpus: u32,
    /// The kernel's clock source; "tsc" is the good one.
    pub clock_source: String,
    /// Frequency governors in use; empty where the frequency is not the kernel's to set.
    pub governors: Vec<String>,
    /// Processors kept free of other work ("2-3"); empty: none.
    pub isolated_cpus: String,
    /// Huge pages of the default size.
    pub huge_pages: HugePages,
    /// Processor time that a hypervisor gave to others since the host started, summed
    /// over processors. Two readings give what was stolen between.
    pub stolen: Duration,
}

/// Whether the running kernel is of this version or a later one. Where it is unknown, no.
pub fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    version(&file("/proc/sys/kernel/osrelease")).is_some_and(|found| found >= (major, minor))
}

/// "6.12.48+deb13-amd64": 6 and 12.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next()?.parse().ok();
    Some((next()?, next()?))
}

/// Huge pages of the default size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Size of one, KiB.
    pub size_kib: u64,
    /// How many are reserved.
    pub total: u64,
    /// How many of those nobody uses.
    pub free: u64,
}

impl HostFacts {
    pub fn read() -> Self {
        let (cpuinfo, meminfo) = (file("/proc/cpuinfo"), file("/proc/meminfo"));
        let memory = |name| first_number(field(&meminfo, name));
        HostFacts {
            name: file("/proc/sys/kernel/hostname"),
            kernel: file("/proc/sys/kernel/osrelease"),
            cpu: field(&cpuinfo, "model name").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            clock_source: file("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governors: governors(),
            isolated_cpus: file("/sys/devices/system/cpu/isolated"),
            huge_pages: HugePages {
                size_kib: memory("Hugepagesize"),
                total: memory("HugePages_Total"),
                free: memory("HugePages_Free"),
            },
            stolen: Self::stolen_now(),
        }
    }

    /// Processor time that a hypervisor gave to others so far: [`Self::stolen`] by itself.
    pub fn stolen_now() -> Duration {
        stolen(&file("/proc/stat"))
    }
}

/// A network interface, as its driver describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// The driver: "veth", "mlx5_core".
    pub driver: Option<String>,
    /// Where the card sits: "0000:3b:00.0".
    pub bus: Option<String>,
    /// Stamps it can take.
    pub stamps: StampCaps,
    /// Receive queues in use.
    pub rx_queues: Option<u32>,
    /// Transmit queues in use.
    pub tx_queues: Option<u32>,
    /// How long an interrupt waits for more frames, microseconds: a delay that
    /// software stamps include.
    pub rx_coalesce_us: Option<u32>,
    /// Nominal speed, bit/s, as the driver reports it (virtual Ethernet reports 10 Gbit/s).
    pub speed_bps: Option<u64>,
    /// Offloads that change what is seen on the wire, on or off.
    pub offloads: Offloads,
}

/// Where an interface can stamp packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampCaps {
    /// Transmitted packets, by the card.
    pub tx_hardware: bool,
    /// Transmitted packets, by the driver.
    pub tx_software: bool,
    /// All received packets, by the card. Cards that stamp only PTP do not count.
    pub rx_hardware: bool,
    /// Received packets, by the kernel.
    pub rx_software: bool,
    /// The card's clock, /dev/ptpN.
    pub phc: Option<u32>,
}

/// States of offloads; `None`: the driver does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Receive checksums are verified by the card.
    pub rx_checksum: Option<bool>,
    /// Transmit checksums are left to the card.
    pub tx_checksum: Option<bool>,
    /// Generic receive offload: packets are merged before the stack sees them.
    pub gro: Option<bool>,
    /// Large receive offload: likewise, by the card.
    pub lro: Option<bool>,
    /// Generic segmentation offload: the stack cuts packets just before the driver.
    pub gso: Option<bool>,
    /// TCP segmentation offload: the card cuts them.
    pub tso: Option<bool>,
}

impl InterfaceFacts {
    /// Of the interface `name` in the network namespace of this thread.
    pub fn read(name: &str) -> Result<Self, SysError> {
        let ethtool = Ethtool::open(name)?;
        let on = |command, bit: u32| ethtool.ask(command).map(|a| a[1] & bit != 0);
        let driver = ethtool.ask(ETHTOOL_GDRVINFO);
        // Behind the command: driver, version, firmware and bus, 32 bytes each.
        let text = |a: &Answer, n: usize| words_as_text(&a[1 + 8 * n..9 + 8 * n]);
        let queues = ethtool.queues();
        Ok(InterfaceFacts {
            driver: driver.as_ref().map(|a| text(a, 0)).filter(|s| !s.is_empty()),
            bus: driver.as_ref().map(|a| text(a, 3)).filter(|s| !s.is_empty()),
            stamps: ethtool.ask(ETHTOOL_GET_TS_INFO).map(|a| stamp_caps(&a)).unwrap_or_default(),
            rx_queues: queues.map(|(rx, _)| rx),
            tx_queues: queues.map(|(_, tx)| tx),
            rx_coalesce_us: ethtool.ask(ETHTOOL_GCOALESCE).map(|a| a[1]),
            speed_bps: ethtool.ask(ETHTOOL_GSET).and_then(|a| speed_bps(&a)),
            offloads: Offloads {
                rx_checksum: on(ETHTOOL_GRXCSUM, !0),
                tx_checksum: on(ETHTOOL_GTXCSUM, !0),
                gro: on(ETHTOOL_GGRO, !0),
                lro: on(ETHTOOL_GFLAGS, ETH_FLAG_LRO),
                gso: on(ETHTOOL_GGSO, !0),
                tso: on(ETHTOOL_GTSO, !0),
            },
        })
    }
}

/// Receive queues in use of an interface of the calling thread's namespace; `None`: drivers with a
/// single queue often do not answer.
///
/// # Errors
/// No such interface.
pub fn rx_queues(interface: &str) -> Result<Option<u32>, SysError> {
    Ok(Ethtool::open(interface)?.queues().map(|(rx, _)| rx))
}

/// Room for any of the structures asked for here, all of which consist of words (the
/// texts among them are aligned). The command is the first.
type Answer = [u32; 64];

/// The ethtool ioctl of one interface.
struct Ethtool {
    socket: OwnedFd,
    request: libc::ifreq,
}

impl Ethtool {
    fn open(interface: &str) -> Result<Self, SysError> {
        syscall::interface_index(interface)?;
        let open = || {
            let request = syscall::interface_request(interface)?;
            let socket = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
            Ok(Ethtool { socket, request })
        };
        open().map_err(|cause| SysError::Io {
            what: format!("asking the driver of {interface}"),
            cause,
            hint: String::new(),
        })
    }

    /// Receive and transmit queues in use.
    fn queues(&self) -> Option<(u32, u32)> {
        // Four maxima, then the counts: receive, transmit, other, combined. A combined channel
        // receives and transmits; a driver has those or separate ones.
        let a = self.ask(ETHTOOL_GCHANNELS)?;
        Some((a[5].saturating_add(a[8]), a[6].saturating_add(a[8])))
    }

    /// The answer to one command, or `None` if the driver has none.
    fn ask(&self, command: u32) -> Option<Answer> {
        let mut answer: Answer = [0; 64];
        answer[0] = command;
        let mut request = self.request;
        request.ifr_ifru.ifru_data = answer.as_mut_ptr().cast();
        // SAFETY: for the commands of this file the kernel writes one structure of
        // fixed size, the largest of which (196 bytes) fits into the answer.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        (result == 0).then_some(answer)
    }
}

/// struct ethtool_cmd: Mbit/s, the low 16 bits in the fourth word and the high ones in the
/// eighth; all ones where it is not known.
fn speed_bps(answer: &Answer) -> Option<u64> {
    let half = |word: usize| {
        u64::from(answer[word].to_ne_bytes()[0]) | u64::from(answer[word].to_ne_bytes()[1]) << 8
    };
    let mbps = half(7) << 16 | half(3);
    (mbps != 0 && mbps != 0xffff && mbps != 0xffff_ffff).then_some(mbps * 1_000_000)
}

/// Behind the command: what SO_TIMESTAMPING can ask for, the card's clock, transmit
/// modes, three reserved words, receive filters.
fn stamp_caps(answer: &Answer) -> StampCaps {
    let has = |flag| answer[1] & flag != 0;
    let raw = has(libc::SOF_TIMESTAMPING_RAW_HARDWARE);
    StampCaps {
        tx_hardware: raw && has(libc::SOF_TIMESTAMPING_TX_HARDWARE),
        tx_software: has(libc::SOF_TIMESTAMPING_TX_SOFTWARE),
        rx_hardware: raw
            && has(libc::SOF_TIMESTAMPING_RX_HARDWARE)
            && answer[7] & (1 << HWTSTAMP_FILTER_ALL) != 0,
        rx_software: has(libc::SOF_TIMESTAMPING_RX_SOFTWARE),
        phc: u32::try_from(answer[2] as i32).ok(),
    }
}

fn words_as_text(words: &[u32]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|w| w.to_ne_bytes()).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The distinct governors of all processors.
fn governors() -> Vec<String> {
    let Ok(cpus) = fs::read_dir("/sys/devices/system/cpu") else { return Vec::new() };
    let mut all: Vec<String> = cpus
        .flatten()
        .map(|cpu| file(cpu.path().join("cpufreq/scaling_governor")))
        .filter(|governor| !governor.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn stolen(stat: &str) -> Duration {
    CpuTime::find(stat, "cpu").unwrap_or_default().stolen
}

/// The trimmed text of a small file; empty if it cannot be read.
fn file(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The value of the first "name : value" line.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next().unwrap_or("")
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRXCSUM: u32 = 0x14;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const ETH_FLAG_LRO: u32 = 1 << 15;
const HWTSTAMP_FILTER_ALL: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_its_version() {
        let releases = [("6.12.48+deb13-amd64", (6, 12)), ("5.4.0-rc1", (5, 4)), ("7.0", (7, 0))];
        for (text, wanted) in releases {
            assert_eq!(version(text), Some(wanted));
        }
        for text in ["", "six", "6"] {
            assert_eq!(version(text), None, "{text}");
        }
        assert!(kernel_is_at_least(3, 0) && !kernel_is_at_least(1_000, 0));
    }
    use sonde_lab::scratch::{in_namespace, ip};
    use std::process::Command;

    #[test]
    fn the_host_is_the_one_that_uname_names() {
        let facts = HostFacts::read();
        let uname = |option| {
            let output = Command::new("uname").arg(option).output().unwrap().stdout;
            String::from_utf8(output).unwrap().trim().to_owned()
        };
        assert_eq!((facts.name, facts.kernel), (uname("-n"), uname("-r")));
        assert!(facts.cpus > 0 && !facts.clock_source.is_empty());
    }

    #[test]
    fn files_of_the_kernel_are_understood() {
        let stat = "cpu  10 0 10 10 0 0 0 250 0 0\ncpu0 1 1 1 1 1 1 1 9999 0 0\n";
        // SAFETY: no pointers.
        let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        assert!((stolen(stat).as_secs_f64() - 250.0 / hz).abs() < 1e-6);
        assert_eq!((stolen("cpu 1 2"), stolen("")), (Duration::ZERO, Duration::ZERO));
        let memory = "MemTotal: 5 kB\nHugePages_Total:     256\nHugepagesize:   2048 kB\n";
        assert_eq!(first_number(field(memory, "HugePages_Total")), 256);
        assert_eq!(first_number(field(memory, "Hugepagesize")), 2048);
        assert_eq!(field("model name\t: A: B\nmodel name: C", "model name"), "A: B");
    }

    #[test]
    fn an_interface_is_what_ethtool_says_it_is() {
        let lo = InterfaceFacts::read("lo").unwrap();
        let says = Command::new("ethtool").args(["-k", "lo"]).output().unwrap();
        let says = String::from_utf8(says.stdout).unwrap();
        for (name, state) in [
            ("tx-checksumming", lo.offloads.tx_checksum),
            ("rx-checksumming", lo.offloads.rx_checksum),
            ("generic-receive-offload", lo.offloads.gro),
            ("generic-segmentation-offload", lo.offloads.gso),
            ("tcp-segmentation-offload", lo.offloads.tso),
            ("large-receive-offload", lo.offloads.lro),
        ] {
            let said = field(&says, name).split(' ').next();
            assert_eq!(state.map(|on| if on { "on" } else { "off" }), said, "{name}");
        }
        assert!(lo.stamps.rx_software && !lo.stamps.rx_hardware && !lo.stamps.tx_hardware);
        assert_eq!(lo.stamps.phc, None);
    }

    #[test]
    fn a_driver_and_its_queues() {
        in_namespace(|| {
            ip("link add a0 numrxqueues 2 numtxqueues 3 type veth peer name b0");
            let veth = InterfaceFacts::read("a0").unwrap();
            assert_eq!(veth.driver.as_deref(), Some("veth"));
            assert_eq!((veth.rx_queues, veth.tx_queues), (Some(2), Some(3)));
            assert!(veth.stamps.tx_software && veth.stamps.rx_software);
            assert_eq!(veth.rx_coalesce_us, None, "veth has no interrupts");
        });
    }

    #[test]
    fn a_card_that_stamps_only_ptp_does_not_stamp_received_packets() {
        let mut answer: Answer = [0; 64];
        answer[1] = libc::SOF_TIMESTAMPING_TX_HARDWARE
            | libc::SOF_TIMESTAMPING_RX_HARDWARE
            | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        answer[2] = 3;
        answer[7] = 1 << 12; // HWTSTAMP_FILTER_PTP_V2_EVENT
        let ptp = stamp_caps(&answer);
        assert!(ptp.tx_hardware && !ptp.rx_hardware && ptp.phc == Some(3));
        answer[7] |= 1 << HWTSTAMP_FILTER_ALL;
        assert!(stamp_caps(&answer).rx_hardware);
    }

    #[test]
    fn a_missing_interface_is_named() {
        for name in ["nosuch0", "", "a-name-that-is-too-long", "a\0b"] {
            let error = InterfaceFacts::read(name).unwrap_err();
            assert!(matches!(&error, SysError::NoInterface(n) if n == name), "{error}");
        }
    }
}
