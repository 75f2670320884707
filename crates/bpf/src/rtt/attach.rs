//! Attaching to interfaces and letting go of them.
//!
//! Programs at a tcx hook are independent of each other: ours stands first and leaves every packet
//! to the next. Before Linux 6.6 there is no tcx. A filter on the clsact qdisc does the same there,
//! but outlives a process that is killed. The qdisc itself stays in any case: it does nothing, and
//! others may have come to use it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{RttHook, RttProgram};
use crate::BpfError;
use crate::load::{self, AttachMode};

/// How a program was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttAttachment {
    /// By a tcx link.
    Tcx,
    /// By a filter of the clsact qdisc; it stays if this process is killed.
    Clsact,
    /// By a link, as XDP in the driver.
    XdpNative,
    /// By a link, as XDP in the generic hook.
    XdpGeneric,
}

impl RttAttachment {
    /// "tcx", "clsact", "xdp native" or "xdp generic".
    pub fn name(self) -> &'static str {
        match self {
            RttAttachment::Tcx => "tcx",
            RttAttachment::Clsact => "clsact",
            RttAttachment::XdpNative => "xdp native",
            RttAttachment::XdpGeneric => "xdp generic",
        }
    }
}

/// How the programs of an interface were attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttAttached {
    /// What sees received packets.
    pub ingress: RttAttachment,
    /// What sees sent ones, if anything does.
    pub egress: Option<RttAttachment>,
}

/// Which interfaces are measured, as the program finds them.
#[derive(Debug)]
pub(super) struct Points {
    map: MapHandle,
    by_point: BTreeMap<u8, Point>,
    /// Where links are pinned, those to come too.
    folder: Option<PathBuf>,
}

#[derive(Debug)]
struct Point {
    slot: u32,
    attached: Vec<Attached>,
}

/// Dropping it detaches.
#[derive(Debug)]
enum Attached {
    Link(OwnedFd),
    #[allow(dead_code)] // held for what its end does
    Filter(Filter),
}

#[derive(Debug)]
struct Filter {
    ifindex: i32,
    direction: Direction,
    handle: u32,
    priority: u32,
}

impl Points {
    pub(super) fn new(map: MapHandle) -> Self {
        Points { map, by_point: BTreeMap::new(), folder: None }
    }

    /// Sets the point of an interface in the program's map. Returns the index in that map.
    pub(super) fn add(&self, ifindex: i32, point: u8, l3: bool) -> Result<u32, BpfError> {
        for probe in 0..PROBES {
            let slot = (ifindex as u32 + probe) % POINT_SLOTS;
            if self.by_point.values().all(|p| p.slot != slot) {
                let mut value = [0; 8];
                value[..4].copy_from_slice(&ifindex.to_ne_bytes());
                value[4..7].copy_from_slice(&[1, point, l3.into()]);
                self.set(slot, &value)?;
                return Ok(slot);
            }
        }
        Err(BpfError::Config(format!(
            "no room for interface {ifindex} beside those that are measured; measure fewer in \
             one process"
        )))
    }

    fn set(&self, slot: u32, value: &[u8; 8]) -> Result<(), BpfError> {
        self.map
            .update(&slot.to_ne_bytes(), value, MapFlags::ANY)
            .map_err(|e| load::map_error("write the map of interfaces", e))
    }
}

impl RttProgram {
    /// Attaches to the interface in this network namespace. `point` is its index in the
    /// records; `l3` says that its packets begin with the IP header (tun, WireGuard, PPP).
    ///
    /// # Errors
    /// [`BpfError::NoInterface`]; [`BpfError::Config`] for a point in use;
    /// [`BpfError::Busy`] and [`BpfError::Mode`] when XDP cannot be had;
    /// [`BpfError::Privilege`].
    pub fn attach(
        &mut self,
        ifindex: i32,
        point: u8,
        hook: RttHook,
        l3: bool,
    ) -> Result<RttAttached, BpfError> {
        load::check_interface(ifindex as u32)?;
        if self.points.by_point.contains_key(&point) {
            return Err(BpfError::Config(format!(
                "point {point} is attached already; detach it first"
            )));
        }
        let seen_at =
            self.config.observation_points.get(usize::from(point)).copied().unwrap_or(point);
        let slot = self.points.add(ifindex, seen_at, l3)?;
        let attached = self.attach_all(ifindex, hook).and_then(|(attached, how)| {
            // Whoever removed the folder wants nothing kept any more.
            if let Some(folder) = self.points.folder.as_deref().filter(|f| f.exists()) {
                pin_links(folder, point, &attached)?;
            }
            Ok((attached, how))
        });
        match attached {
            Ok((attached, how)) => {
                self.points.by_point.insert(point, Point { slot, attached });
                Ok(how)
            }
            Err(e) => {
                self.points.set(slot, &[0; 8])?;
                Err(e)
            }
        }
    }

    /// Lets go of an interface, and of its pins; one that has vanished likewise. Its flows
    /// stay until they end.
    pub fn detach(&mut self, point: u8) {
        if let Some(gone) = self.points.by_point.remove(&point) {
            if let Some(folder) = &self.points.folder {
                unpin_links(folder, point, gone.attached.len());
            }
            drop(gone.attached);
            // Fails only for a map that is not there, and then there is no program either.
            let _ = self.points.set(gone.slot, &[0; 8]);
        }
    }

    /// Pins links and maps in an empty folder of a bpf file system, so that the programs go on
    /// without this process. Removing the folder's files ends them. What is attached later is
    /// pinned there too, and what is detached is no more.
    ///
    /// # Errors
    /// [`BpfError::Config`] where a filter instead of a link is in use; [`BpfError::Io`]
    /// when the folder is in no bpf file system or holds the names already.
    pub fn pin(&mut self, folder: &Path) -> Result<(), BpfError> {
        for (name, map) in &self.maps.all {
            pin(map.as_fd(), &folder.join(name))?;
        }
        for (&point, Point { attached, .. }) in &self.points.by_point {
            pin_links(folder, point, attached)?;
        }
        self.points.folder = Some(folder.to_owned());
        Ok(())
    }

    fn attach_all(
        &self,
        ifindex: i32,
        hook: RttHook,
    ) -> Result<(Vec<Attached>, RttAttached), BpfError> {
        let (first, ingress) = match hook {
            RttHook::Xdp => self.attach_xdp(ifindex as u32)?,
            RttHook::Tc | RttHook::TcIngress => {
                attach_tc(self.progs.ingress.as_fd(), ifindex, Direction::Ingress)?
            }
        };
        let mut attached = vec![first];
        let mut egress = None;
        if hook != RttHook::TcIngress {
            let (second, how) = attach_tc(self.progs.egress.as_fd(), ifindex, Direction::Egress)?;
            attached.push(second);
            egress = Some(how);
        }
        Ok((attached, RttAttached { ingress, egress }))
    }

    fn attach_xdp(&self, ifindex: u32) -> Result<(Attached, RttAttachment), BpfError> {
        let program = self.xdp()?;
        match load::link(program, ifindex, AttachMode::Native) {
            Ok(link) => Ok((Attached::Link(link), RttAttachment::XdpNative)),
            Err(BpfError::Mode { .. }) => {
                let link = load::link(program, ifindex, AttachMode::Generic)?;
                Ok((Attached::Link(link), RttAttachment::XdpGeneric))
            }
            Err(e) => Err(e),
        }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: plain structures that outlive the calls and carry their sizes. An
        // interface that is gone has taken its filters along: nothing is left to do.
        unsafe {
            let hook = tc_hook(self.ifindex, self.direction);
            let mut opts: sys::bpf_tc_opts = std::mem::zeroed();
            opts.sz = size_of_val(&opts) as _;
            opts.handle = self.handle;
            opts.priority = self.priority;
            sys::bpf_tc_detach(&hook, &opts);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

fn attach_tc(
    program: BorrowedFd<'_>,
    ifindex: i32,
    direction: Direction,
) -> Result<(Attached, RttAttachment), BpfError> {
    match attach_tcx(program, ifindex, direction) {
        Ok(link) => Ok((Attached::Link(link), RttAttachment::Tcx)),
        // A kernel that does not know the attach type says EINVAL.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            let filter = attach_clsact(program, ifindex, direction)
                .map_err(|e| BpfError::io("attach a filter to the clsact qdisc", e))?;
            Ok((Attached::Filter(filter), RttAttachment::Clsact))
        }
        Err(e) => Err(BpfError::io("attach a program to the tcx hook", e)),
    }
}

fn attach_tcx(program: BorrowedFd<'_>, ifindex: i32, direction: Direction) -> io::Result<OwnedFd> {
    // SAFETY: the structure is plain data for which all zeroes is valid ("no option").
    let mut opts: sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of_val(&opts) as _;
    // Before all others: a program that drops or redirects would hide packets from us.
    opts.flags = BPF_F_BEFORE;
    let hook = match direction {
        Direction::Ingress => sys::BPF_TCX_INGRESS,
        Direction::Egress => sys::BPF_TCX_EGRESS,
    };
    // SAFETY: `opts` outlives the call and carries its own size; the descriptor is open.
    let fd = unsafe { sys::bpf_link_create(program.as_raw_fd(), ifindex, hook, &opts) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just made this descriptor for us and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn attach_clsact(
    program: BorrowedFd<'_>,
    ifindex: i32,
    direction: Direction,
) -> io::Result<Filter> {
    let result = |rc: i32| match rc {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(-rc)),
    };
    // SAFETY: both structures are plain data for which all zeroes is valid; they outlive
    // the calls and carry their own sizes, and the descriptor is open.
    unsafe {
        let mut hook = tc_hook(ifindex, direction);
        let made = sys::bpf_tc_hook_create(&mut hook);
        if made != 0 && made != -libc::EEXIST {
            result(made)?;
        }
        let mut opts: sys::bpf_tc_opts = std::mem::zeroed();
        opts.sz = size_of_val(&opts) as _;
        opts.prog_fd = program.as_raw_fd();
        let attached = result(sys::bpf_tc_attach(&hook, &mut opts));
        let (handle, priority) = (opts.handle, opts.priority);
        let filter = Filter { ifindex, direction, handle, priority };
        attached.map(|()| filter)
    }
}

fn tc_hook(ifindex: i32, direction: Direction) -> sys::bpf_tc_hook {
    // SAFETY: the structure is plain data for which all zeroes is valid.
    let mut hook: sys::bpf_tc_hook = unsafe { std::mem::zeroed() };
    hook.sz = size_of_val(&hook) as _;
    hook.ifindex = ifindex;
    hook.attach_point = match direction {
        Direction::Ingress => sys::BPF_TC_INGRESS,
        Direction::Egress => sys::BPF_TC_EGRESS,
    };
    hook
}

/// All links of an interface, or none.
fn pin_links(folder: &Path, point: u8, attached: &[Attached]) -> Result<(), BpfError> {
    for (i, attached) in attached.iter().enumerate() {
        let pinned = match attached {
            Attached::Link(link) => pin(link.as_fd(), &link_path(folder, point, i)),
            Attached::Filter(_) => Err(BpfError::Config(
                "this kernel has no tcx links, and a clsact filter cannot be pinned; Linux 6.6 \
                 or later can"
                    .into(),
            )),
        };
        if pinned.is_err() {
            unpin_links(folder, point, i);
            return pinned;
        }
    }
    Ok(())
}

fn unpin_links(folder: &Path, point: u8, count: usize) {
    for i in 0..count {
        // Somebody else may have removed it: what counts is that it is gone.
        let _ = std::fs::remove_file(link_path(folder, point, i));
    }
}

fn link_path(folder: &Path, point: u8, i: usize) -> PathBuf {
    folder.join(format!("link_{point}_{i}"))
}

fn pin(fd: BorrowedFd<'_>, path: &Path) -> Result<(), BpfError> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| BpfError::Config("a path to pin at holds a zero octet".into()))?;
    // SAFETY: `path` ends with a zero octet and outlives the call.
    let rc = unsafe { sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) };
    if rc == 0 { Ok(()) } else { Err(BpfError::io("pin", io::Error::from_raw_os_error(-rc))) }
}

/// `include/uapi/linux/bpf.h`: before the program named, or before all.
const BPF_F_BEFORE: u32 = 1 << 3;
/// `POINTS` and `POINT_PROBES` in `c/rtt.h`.
const POINT_SLOTS: u32 = 1024;
const PROBES: u32 = 4;
