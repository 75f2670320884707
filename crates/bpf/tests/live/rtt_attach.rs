//! What is attached to interfaces and what is left of it: on a kernel without tcx links,
//! after `pin`, and when the process is killed.

use std::io::{BufRead, BufReader};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::refuse::{LINK_CREATE, refuse_bpf};
use crate::common::rtt::{A, Segment};
use crate::common::{
    RawSocket, eventually, in_namespace, index, ip, privileged, test_name, veth_pair,
};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sonde_bpf::{BpfError, RttAttachment, RttConfig, RttEvents, RttHook, RttProgram};

const LIMIT: Duration = Duration::from_secs(10);

fn load() -> RttProgram {
    let config = RttConfig { flows: 1024, events: RttEvents::All, ..RttConfig::default() };
    RttProgram::load(&config).unwrap()
}

fn packets(program: &RttProgram) -> u64 {
    program.coverage().unwrap().counters["packets"]
}

/// How many programs there are at an interface's tcx hooks.
fn at_tcx(ifindex: u32) -> u32 {
    [sys::BPF_TCX_INGRESS, sys::BPF_TCX_EGRESS]
        .into_iter()
        .map(|hook| {
            let mut ids = [0; 16];
            let mut count = ids.len() as u32;
            // SAFETY: room for as many identifiers as `count` says; no flags are asked for.
            let rc = unsafe {
                let (none, ids) = (std::ptr::null_mut(), ids.as_mut_ptr());
                sys::bpf_prog_query(ifindex as i32, hook, 0, none, ids, &mut count)
            };
            assert_eq!(rc, 0, "query of the tcx hook");
            count
        })
        .sum()
}

fn filters(interface: &str) -> String {
    let all = ["ingress", "egress"].map(|direction| {
        let out = Command::new("tc").args(["filter", "show", "dev", interface, direction]).output();
        String::from_utf8(out.expect("iproute2 is installed").stdout).unwrap()
    });
    all.concat()
}

#[test]
fn a_kernel_without_tcx_links_has_filters_instead() {
    if !privileged("a_kernel_without_tcx_links_has_filters_instead") {
        return;
    }
    in_namespace(|| {
        let (a, b) = veth_pair(1500);
        let mut program = load();
        // As one before Linux 5.7.
        refuse_bpf(Some(LINK_CREATE), libc::EINVAL);
        let how = program.attach(a as i32, 1, RttHook::Tc, false).unwrap();
        assert_eq!((how.ingress, how.egress), (RttAttachment::Clsact, Some(RttAttachment::Clsact)));
        assert_eq!(filters("va").matches("name sonde_rtt").count(), 2, "{}", filters("va"));
        // Both directions are seen, and go on.
        let (near, far) = (RawSocket::open(a), RawSocket::open(b));
        for (from, to, segment) in [
            (&near, &far, Segment { seq: 1, len: 10, ..A }),
            (&far, &near, Segment { seq: 2, len: 20, ..A }),
        ] {
            let (before, frame) = (packets(&program), segment.frame());
            from.send(&frame);
            assert!(to.receive(LIMIT, |found| found == frame).is_some());
            assert!(eventually(LIMIT, || packets(&program) == before + 1));
        }
        let refused = program.pin(&bpf_folder());
        assert!(matches!(refused, Err(BpfError::Config(_))), "{refused:?}");
        program.detach(1);
        assert_eq!(filters("va"), "");

        // The filters of others stay, whoever leaves first.
        let mut other = load();
        other.attach(a as i32, 1, RttHook::Tc, false).unwrap();
        let others = filters("va");
        program.attach(a as i32, 1, RttHook::Tc, false).unwrap();
        assert_eq!(filters("va").matches("name sonde_rtt").count(), 4);
        drop(program);
        assert_eq!(filters("va"), others);
        drop(other);
        assert_eq!(filters("va"), "");
    });
}

/// An empty folder of a bpf file system that only this thread sees, and that ends with it.
fn bpf_folder() -> PathBuf {
    // SAFETY: affects this thread alone.
    let rc = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(rc, 0, "unshare: {}", std::io::Error::last_os_error());
    for args in [&["--make-rprivate", "/"][..], &["-t", "bpf", "bpf", "/sys/fs/bpf"]] {
        assert!(Command::new("mount").args(args).status().unwrap().success(), "{args:?}");
    }
    let folder = PathBuf::from("/sys/fs/bpf/sonde");
    std::fs::create_dir(&folder).unwrap();
    folder
}

#[test]
fn what_is_pinned_goes_on_without_the_process() {
    if !privileged("what_is_pinned_goes_on_without_the_process") {
        return;
    }
    in_namespace(|| {
        let folder = bpf_folder();
        let (a, b) = veth_pair(1500);
        let mut program = load();
        program.attach(a as i32, 1, RttHook::Tc, false).unwrap();
        program.attach(b as i32, 2, RttHook::TcIngress, false).unwrap();
        let elsewhere = program.pin(Path::new("/proc"));
        assert!(matches!(elsewhere, Err(BpfError::Io { .. })), "{elsewhere:?}");
        program.pin(&folder).unwrap();
        assert!(matches!(program.pin(&folder), Err(BpfError::Io { .. })), "the names are taken");
        drop(program);
        assert_eq!((at_tcx(a), at_tcx(b)), (2, 1));

        let counters = MapHandle::from_pinned_path(folder.join("counters")).unwrap();
        let packets = || -> u64 {
            let all = counters.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            all.iter().map(|cpu| u64::from_ne_bytes(cpu[..8].try_into().unwrap())).sum()
        };
        let (before, near) = (packets(), RawSocket::open(a));
        near.send(&Segment { len: 10, ..A }.frame());
        assert!(eventually(LIMIT, || packets() == before + 2), "out of one, into the other");

        let mut names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
        names.sort();
        let links = names.iter().filter(|path| path.to_str().unwrap().contains("/link_"));
        assert_eq!(links.count(), 3, "{names:?}");
        names.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        assert!(eventually(LIMIT, || at_tcx(a) + at_tcx(b) == 0), "removing the files ends it");
    });
}

/// The links in a folder, and the ids of all maps there.
fn pinned(folder: &Path) -> (Vec<String>, Vec<u32>) {
    let mut links = vec![];
    let mut maps = vec![];
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("link_") {
            links.push(name);
        } else {
            maps.push(MapHandle::from_pinned_path(&path).unwrap().info().unwrap().info.id);
        }
    }
    links.sort();
    (links, maps)
}

/// An interface goes and comes back as another; the pins follow it, and are all there is.
#[test]
fn an_interface_that_returns_is_pinned_again() {
    if !privileged("an_interface_that_returns_is_pinned_again") {
        return;
    }
    in_namespace(|| {
        let folder = bpf_folder();
        let (a, _) = veth_pair(1500);
        let mut program = load();
        program.attach(a as i32, 1, RttHook::Tc, false).unwrap();
        program.pin(&folder).unwrap();
        let whole = ["link_1_0", "link_1_1"];
        assert_eq!(pinned(&folder).0, whole);
        ip(&["link", "del", "va"]);
        program.detach(1);
        assert_eq!(pinned(&folder).0, [""; 0], "nothing is kept of what is gone");
        let (again, _) = veth_pair(1500);
        assert_ne!(a, again, "another interface of the same name");
        program.attach(again as i32, 1, RttHook::Xdp, false).unwrap();
        assert_eq!(pinned(&folder).0, whole);
        // A link that cannot be pinned leaves nothing behind.
        std::fs::create_dir(folder.join("link_2_1")).unwrap();
        let refused = program.attach(index("vb") as i32, 2, RttHook::Tc, false);
        assert!(matches!(refused, Err(BpfError::Io { .. })), "{refused:?}");
        assert_eq!(at_tcx(index("vb")), 0);
        std::fs::remove_dir(folder.join("link_2_1")).unwrap();
        let (links, maps) = pinned(&folder);
        assert_eq!((links.len(), maps.len()), (2, 10));

        drop(program);
        assert_eq!(at_tcx(again), 1, "egress");
        assert!(ip(&["-d", "link", "show", "va"]).contains("prog/xdp"), "ingress");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(eventually(LIMIT, || at_tcx(again) == 0));
        assert!(eventually(LIMIT, || !ip(&["-d", "link", "show", "va"]).contains("prog/xdp")));
        // A descriptor that stayed open would keep the map.
        let exists = |id: u32| {
            // SAFETY: no pointers.
            let fd = unsafe { sys::bpf_map_get_fd_by_id(id) };
            // SAFETY: the descriptor is new and nobody else's.
            (fd >= 0).then(|| drop(unsafe { OwnedFd::from_raw_fd(fd) })).is_some()
        };
        assert!(eventually(LIMIT, || !maps.iter().any(|&id| exists(id))), "no map is left");
    });
}

/// Whoever removed the folder wants nothing kept.
#[test]
fn without_its_folder_an_interface_that_returns_is_watched_unpinned() {
    if !privileged("without_its_folder_an_interface_that_returns_is_watched_unpinned") {
        return;
    }
    in_namespace(|| {
        let folder = bpf_folder();
        let (a, _) = veth_pair(1500);
        let mut program = load();
        program.attach(a as i32, 1, RttHook::Tc, false).unwrap();
        program.pin(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        ip(&["link", "del", "va"]);
        program.detach(1);
        let (again, _) = veth_pair(1500);
        program.attach(again as i32, 1, RttHook::Tc, false).unwrap();
        assert!(!folder.exists());
        assert_eq!(at_tcx(again), 2);
        drop(program);
        assert!(eventually(LIMIT, || at_tcx(again) == 0));
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
fn nothing_stays_attached_when_the_process_is_killed() {
    let name = "nothing_stays_attached_when_the_process_is_killed";
    if std::env::var_os(HOLD_ON).is_some() {
        return hold_on();
    }
    if !privileged(name) {
        return;
    }
    in_namespace(move || {
        let (a, b) = veth_pair(1500);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test_name(module_path!(), name), "--nocapture"])
            .env(HOLD_ON, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let attached = lines.map_while(Result::ok).any(|line| line.ends_with(ATTACHED));
        let (tcx, xdp) = (at_tcx(a) + at_tcx(b), ip(&["-d", "link", "show", "vb"]));
        // SIGKILL, whatever is found.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(attached);
        assert_eq!(tcx, 3, "two directions of one, and the egress of the other");
        assert!(xdp.contains("prog/xdp"), "{xdp}");
        assert!(eventually(LIMIT, || at_tcx(a) + at_tcx(b) == 0));
        assert!(eventually(LIMIT, || !ip(&["-d", "link", "show", "vb"]).contains("prog/xdp")));
    });
}

/// In the process that is to be killed; its interfaces are there. It ends with the other
/// one, whatever becomes of that.
fn hold_on() {
    let mut program = load();
    program.attach(index("va") as i32, 1, RttHook::Tc, false).unwrap();
    program.attach(index("vb") as i32, 2, RttHook::Xdp, false).unwrap();
    println!("{ATTACHED}");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

const ATTACHED: &str = "attached";
/// Distinguishes the process that is to be killed from the one that kills it.
const HOLD_ON: &str = "SONDE_TEST_HOLD_ON";
