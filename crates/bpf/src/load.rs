//! What all loaders share: loading with a readable error, attaching by link, and the
//! keys of the address tries.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, Once};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, PrintLevel, set_print};

use crate::BpfError;

/// Where in the receive path a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before a socket buffer exists.
    Native,
    /// In the network stack's generic hook: any driver, slower.
    Generic,
}

impl AttachMode {
    /// "native" or "generic", as people are told it.
    pub fn name(self) -> &'static str {
        match self {
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
        }
    }

    fn flags(self) -> u32 {
        match self {
            AttachMode::Native => sys::XDP_FLAGS_DRV_MODE,
            AttachMode::Generic => sys::XDP_FLAGS_SKB_MODE,
        }
    }
}

/// What a program did with one frame, without an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The program's verdict (`XDP_TX` and so on, as the kernel numbers them).
    pub verdict: u32,
    /// The frame as the program left it.
    pub packet: Vec<u8>,
    /// Time per run, ns, as the kernel measured it over all repetitions.
    pub ns_per_run: u32,
}

/// Runs a loading step; what libbpf says meanwhile becomes the error's text.
///
/// libbpf's log callback is one per process: loads are serialised.
pub(crate) fn loading<T>(
    what: &'static str,
    step: impl FnOnce() -> libbpf_rs::Result<T>,
) -> Result<T, BpfError> {
    static ONE: Mutex<()> = Mutex::new(());
    static CALLBACK: Once = Once::new();
    CALLBACK.call_once(|| {
        // No limit is raised: since Linux 5.11 maps do not count against RLIMIT_MEMLOCK.
        // SAFETY: no preconditions; it fails, to no harm, once libbpf has raised it.
        unsafe { sys::libbpf_set_memlock_rlim(0) };
        set_print(Some((PrintLevel::Warn, |_, text| LOG.with_borrow_mut(|l| l.push_str(&text)))));
    });
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    LOG.with_borrow_mut(String::clear);
    step()
        .map_err(|e| BpfError::loading(what, errno_of(&e), format!("{what}: {e}{}", last_lines())))
}

/// Whether the interface is there: the kernel would only say "invalid argument".
pub(crate) fn check_interface(ifindex: u32) -> Result<(), BpfError> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: `name` has the size that the call asks for.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) };
    if found.is_null() { Err(BpfError::NoInterface(ifindex)) } else { Ok(()) }
}

/// An XDP program on an interface, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct XdpLink(OwnedFd);

impl XdpLink {
    /// Takes the program off the interface. Again, or where the interface is gone, it does nothing.
    pub(crate) fn detach(&self) {
        // A process that is being started has a copy of the descriptor for a moment, so that
        // closing ours would not detach at once. Where this is refused, closing has to do.
        // SAFETY: an open descriptor; the call takes no memory.
        unsafe { sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

impl Drop for XdpLink {
    fn drop(&mut self) {
        self.detach();
    }
}

pub(crate) fn attach(
    program: BorrowedFd<'_>,
    ifindex: u32,
    mode: AttachMode,
) -> Result<XdpLink, BpfError> {
    link(program, ifindex, mode).map(XdpLink)
}

/// The same with the link's descriptor, which may be pinned. Closing its last copy detaches.
pub(crate) fn link(
    program: BorrowedFd<'_>,
    ifindex: u32,
    mode: AttachMode,
) -> Result<OwnedFd, BpfError> {
    // SAFETY: the structure is plain data for which all zeroes is valid ("no option").
    let mut opts: sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of_val(&opts) as _;
    opts.flags = mode.flags();
    // SAFETY: `opts` outlives the call and carries its own size; the descriptor is open.
    let fd =
        unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, sys::BPF_XDP, &opts) };
    if fd < 0 {
        return Err(attach_error(io::Error::from_raw_os_error(-fd), ifindex, mode));
    }
    // SAFETY: the kernel has just made this descriptor for us and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the trie hold exactly these prefixes; addresses in both stay matched throughout.
pub(crate) fn set_prefixes(map: &MapHandle, prefixes: &[(IpAddr, u8)]) -> Result<(), BpfError> {
    let kinds: Vec<_> = prefixes.iter().map(|&prefix| (prefix, 1)).collect();
    set_kinds(map, &kinds)
}

/// The same with a value for each prefix; of one that is there twice, the last one counts.
pub(crate) fn set_kinds(map: &MapHandle, kinds: &[((IpAddr, u8), u8)]) -> Result<(), BpfError> {
    let mut keys = HashMap::with_capacity(kinds.len());
    for &((address, length), kind) in kinds {
        keys.insert(lpm_key(address, length)?, kind);
    }
    if keys.len() > LPM_MAX {
        return Err(BpfError::Config(format!(
            "{} prefixes are too many for one program, which holds {LPM_MAX}; join some",
            keys.len()
        )));
    }
    let stale: Vec<Vec<u8>> =
        map.keys().filter(|k| !keys.contains_key(&<[u8; 20]>::try_from(&k[..]).unwrap())).collect();
    for key in stale {
        map.delete(&key).map_err(|e| map_error("remove an address", e))?;
    }
    for (key, kind) in keys {
        map.update(&key, &[kind], MapFlags::ANY).map_err(|e| map_error("add an address", e))?;
    }
    Ok(())
}

/// Sums the one value of a per-CPU array of `u64` counters over the CPUs.
pub(crate) fn sum_counters<const N: usize>(map: &MapHandle) -> Result<[u64; N], BpfError> {
    let mut sum = [0u64; N];
    let per_cpu = map
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| map_error("read the counters", e))?;
    for cpu in per_cpu.unwrap_or_default() {
        for (total, bytes) in sum.iter_mut().zip(cpu.as_chunks::<8>().0) {
            *total += u64::from_ne_bytes(*bytes);
        }
    }
    Ok(sum)
}

/// `BPF_PROG_TEST_RUN`. The kernel repeats on the buffer as the last run left it.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    repeat: u32,
) -> Result<TestRun, BpfError> {
    // A program may make the frame longer, up to about a page.
    let mut out = vec![0u8; packet.len() + 4096];
    let run = test_run_into(program, packet, &mut out, repeat)?;
    out.truncate(run.octets);
    Ok(TestRun { verdict: run.verdict, packet: out, ns_per_run: run.ns_per_run })
}

/// What a run of [`test_run_into`] came to.
pub(crate) struct RunInto {
    pub(crate) verdict: u32,
    /// Octets that were written.
    pub(crate) octets: usize,
    pub(crate) ns_per_run: u32,
}

/// As [`test_run`], into a buffer that is there.
pub(crate) fn test_run_into(
    program: BorrowedFd<'_>,
    packet: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> Result<RunInto, BpfError> {
    // SAFETY: the structure is plain data for which all zeroes is valid ("not given").
    let mut opts: sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of_val(&opts) as _;
    opts.data_in = packet.as_ptr().cast();
    opts.data_size_in = packet.len() as u32;
    opts.data_out = out.as_mut_ptr().cast();
    opts.data_size_out = out.len() as u32;
    opts.repeat = repeat as i32;
    // SAFETY: both buffers outlive the call and have the lengths given.
    let rc = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) };
    if rc != 0 {
        return Err(BpfError::io("test-run a program", io::Error::from_raw_os_error(-rc)));
    }
    let octets = opts.data_size_out as usize;
    Ok(RunInto { verdict: opts.retval, octets, ns_per_run: opts.duration })
}

/// A failed map operation.
pub(crate) fn map_error(what: &'static str, e: libbpf_rs::Error) -> BpfError {
    BpfError::io(what, io::Error::new(io_kind(&e), e.to_string()))
}

/// An owned handle on a map of a skeleton that is about to be dropped.
pub(crate) fn handle(map: &libbpf_rs::MapMut<'_>) -> Result<MapHandle, BpfError> {
    MapHandle::try_from(map).map_err(|e| map_error("keep a map", e))
}

pub(crate) fn lpm_key(address: IpAddr, length: u8) -> Result<[u8; 20], BpfError> {
    let (bytes, mapped) = match address {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), 96),
        IpAddr::V6(v6) => (v6.octets(), 0),
    };
    let bits = u32::from(length) + mapped;
    if bits > 128 {
        return Err(BpfError::Config(format!(
            "{address}/{length}: the prefix is longer than the address"
        )));
    }
    // Host bits are cleared, so that one prefix has one key.
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    let address = (u128::from_be_bytes(bytes) & mask).to_be_bytes();
    let mut key = [0; 20];
    key[..4].copy_from_slice(&bits.to_ne_bytes());
    key[4..].copy_from_slice(&address);
    Ok(key)
}

fn attach_error(cause: io::Error, ifindex: u32, mode: AttachMode) -> BpfError {
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => BpfError::privilege("attach an XDP program"),
        // EEXIST: a program in the other mode; EBUSY: one in this mode, by link or not.
        Some(libc::EBUSY | libc::EEXIST) => {
            BpfError::Busy { ifindex, program: attached_program(ifindex) }
        }
        _ => BpfError::Mode { ifindex, mode: mode.name(), cause, hint: mode_hint(mode) },
    }
}

fn mode_hint(mode: AttachMode) -> &'static str {
    match mode {
        AttachMode::Native => {
            "try generic mode, a smaller MTU, or fewer queues ('ethtool -L'); 'dmesg' may say more"
        }
        AttachMode::Generic => "'dmesg' may say more; the socket engine needs no XDP",
    }
}

/// Name and id of the program that runs on the interface now.
fn attached_program(ifindex: u32) -> String {
    let mut id = 0u32;
    // SAFETY: `id` is valid memory for the answer.
    let found = unsafe { sys::bpf_xdp_query_id(ifindex as i32, 0, &mut id) } == 0 && id != 0;
    if !found {
        return "of unknown name".into();
    }
    let name = libbpf_rs::ProgramHandle::from_prog_id(id)
        .map(|p| p.name().to_string_lossy().into_owned())
        .unwrap_or_else(|_| "?".into());
    format!("'{name}' (id {id})")
}

/// The kernel's code of an error, of which libbpf-rs keeps no more than the text: it distinguishes
/// a refusal (EPERM) from the verifier's opinion (EACCES).
fn errno_of(e: &libbpf_rs::Error) -> Option<i32> {
    let text = format!("{e:#}");
    let (_, code) = text.rsplit_once("(os error ")?;
    code.split_once(')')?.0.parse().ok()
}

fn io_kind(e: &libbpf_rs::Error) -> io::ErrorKind {
    match e.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    }
}

fn last_lines() -> String {
    LOG.with_borrow(|log| {
        let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
        let tail = &lines[lines.len().saturating_sub(8)..];
        if tail.is_empty() { String::new() } else { format!("\n  {}\n ", tail.join("\n  ")) }
    })
}

/// Entries of an address trie (`LPM_MAX` in `c/parse.h`).
const LPM_MAX: usize = 4096;

/// The program may see packets in several buffers.
pub(crate) const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// The frames of a test run are sent and redirected as real ones.
pub(crate) const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::ErrorExt as _;

    #[test]
    fn the_number_of_an_error_is_kept() {
        let refused = libbpf_rs::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(errno_of(&refused), Some(libc::EPERM));
        assert_eq!(errno_of(&refused.context("while loading")), Some(libc::EPERM));
    }

    #[test]
    fn ipv4_keys_are_mapped_and_host_bits_cleared() {
        let key = lpm_key("192.0.2.77".parse().unwrap(), 24).unwrap();
        assert_eq!(key[..4], 120u32.to_ne_bytes());
        assert_eq!(key[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 0]);
    }

    #[test]
    fn the_empty_prefix_and_the_full_one_are_keys() {
        assert_eq!(lpm_key("::1".parse().unwrap(), 0).unwrap(), [0; 20]);
        assert_eq!(lpm_key("::1".parse().unwrap(), 128).unwrap()[19], 1);
        assert_eq!(lpm_key("10.0.0.1".parse().unwrap(), 0).unwrap()[..4], 96u32.to_ne_bytes());
    }

    #[test]
    fn a_prefix_longer_than_its_address_is_refused() {
        assert!(lpm_key("10.0.0.1".parse().unwrap(), 33).is_err());
        assert!(lpm_key("::1".parse().unwrap(), 129).is_err());
    }
}
