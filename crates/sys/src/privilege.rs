//! What a process that strangers can reach gives up once it has opened what it needs.
//!
//! It becomes a user who owns nothing and keeps the capabilities (capabilities(7)) that it still
//! needs. It gains none by what it executes (PR_SET_NO_NEW_PRIVS), and system calls that it never
//! makes are refused (seccomp(2)). docs/security.md says which, and why.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::landlock;
use crate::syscall::{self, op};

/// A capability, by its bit in capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Files whatever their permissions.
    DacOverride = 1,
    /// UDP and TCP ports below 1024.
    NetBindService = 10,
    /// XDP and tc programs at interfaces, buffers beyond the limit, an interface's settings.
    NetAdmin = 12,
    /// Packet and raw sockets, and binding a socket to an interface.
    NetRaw = 13,
    /// Memory that stays, beyond the limit.
    IpcLock = 14,
    /// Entering a network namespace (setns(2)); before Linux 5.8, programs in the kernel, too.
    SysAdmin = 21,
    /// A thread that goes before others.
    SysNice = 23,
    /// What a verified program may do with time and pointers.
    Perfmon = 38,
    /// Programs in the kernel.
    Bpf = 39,
}

/// What a process still needs.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    pub capabilities: Vec<Capability>,
    /// Files and folders that it will make or write. Where they are not the other user's, the
    /// process stays root.
    pub writes: Vec<PathBuf>,
    /// It starts programs, which have no more rights than it has itself.
    pub programs: bool,
    /// It starts programs, and makes namespaces: then it stays root, with all that belongs to it.
    pub commands: bool,
    /// It writes nothing but `written`: the kernel refuses the rest where it has Landlock. Not with
    /// `programs`, which would write no files of their own, either.
    pub written: Option<Vec<PathBuf>>,
}

/// Gives up everything else, for all threads there are and will be. Call it before threads are
/// started that need capabilities: those that are there already lose them when the user changes.
///
/// What could not be given up, for people; `None`: nothing.
///
/// # Errors
/// Capabilities that could not be dropped.
pub fn confine(needs: &Needs) -> io::Result<Option<String>> {
    let mut short = Vec::new();
    // SAFETY: no arguments, no memory.
    let root = unsafe { libc::geteuid() } == 0;
    if !needs.commands {
        let user =
            if root { user_for(&needs.writes).map_err(|why| short.push(why)).ok() } else { None };
        let mut keep = mask(&needs.capabilities);
        if root && user.is_none() && !needs.writes.is_empty() {
            keep |= 1 << Capability::DacOverride as u8;
        }
        keep &= permitted()?;
        drop_bounds(keep);
        if let Some(user) = user
            && let Err(e) = become_user(&user)
        {
            short.push(format!("stays root: cannot become {}: {e}", user.name));
        }
        set_capabilities(keep)?;
    }
    if let Some(written) = needs.written.as_ref().filter(|_| !needs.commands && !needs.programs)
        && let Err(e) = landlock::restrict_writes(written)
    {
        short.push(format!("files are guarded by their permissions alone, not by Landlock: {e}"));
    }
    if let Err(e) = refuse_calls(needs) {
        short.push(format!("the kernel has no seccomp filters: {e}"));
    }
    Ok((!short.is_empty()).then(|| short.join("; ")))
}

/// What the kernel guards this process by, for people: "no_new_privs", "seccomp", "landlock 7".
pub fn guards() -> Vec<String> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let is = |field: &str, value: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
        line == Some(value)
    };
    let named = [("NoNewPrivs", "1", "no_new_privs"), ("Seccomp", "2", "seccomp")];
    let named = named.into_iter().filter(|(field, value, _)| is(field, value));
    let landlock = landlock::in_force().map(|version| format!("landlock {version}"));
    named.map(|(.., name)| name.to_owned()).chain(landlock).collect()
}

/// An account of this host.
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// Whom to become: who is there for this, or who owns nothing.
fn user_for(writes: &[PathBuf]) -> Result<User, String> {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = USERS.iter().find_map(|name| account(&accounts, name));
    let user =
        user.ok_or_else(|| format!("stays root: there is no user {}", USERS.join(" or ")))?;
    match writes.iter().find(|path| !owned(path, user.uid)) {
        None => Ok(user),
        Some(path) => Err(format!(
            "stays root, without most of its rights: {} is not {}'s",
            path.display(),
            user.name
        )),
    }
}

/// By passwd(5): `NAME:x:UID:GID:...`, a line an account.
fn account(accounts: &str, name: &str) -> Option<User> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { name: name.to_owned(), uid, gid })
    })
}

/// Whether a user can make or write it: it is his, or it is not there and its folder is.
fn owned(path: &Path, uid: u32) -> bool {
    match fs::metadata(path) {
        Ok(there) => there.uid() == uid,
        Err(_) => {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
            fs::metadata(folder.unwrap_or(Path::new("."))).is_ok_and(|f| f.uid() == uid)
        }
    }
}

fn mask(capabilities: &[Capability]) -> u64 {
    let old = last_capability() < Capability::Bpf as u8;
    capabilities.iter().fold(0, |mask, &capability| {
        let programs = matches!(capability, Capability::Bpf | Capability::Perfmon);
        // They were part of it.
        let needed = if old && programs { Capability::SysAdmin } else { capability };
        mask | 1 << needed as u8
    })
}

fn last_capability() -> u8 {
    let text = fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    text.trim().parse().unwrap_or(Capability::Bpf as u8)
}

/// Nothing that is executed gets them back. Without the right to this they are not there, either.
fn drop_bounds(keep: u64) {
    for bit in (0..=last_capability()).filter(|bit| keep & 1 << bit == 0) {
        // SAFETY: integers only.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(bit), 0, 0, 0) };
    }
}

/// With the capabilities of the calling thread; the C library changes the user of all threads,
/// and the kernel takes the capabilities of the others.
fn become_user(user: &User) -> io::Result<()> {
    // SAFETY: integers, and an empty list.
    unsafe {
        syscall::check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        syscall::check(libc::setgroups(0, std::ptr::null()))?;
        syscall::check(libc::setresgid(user.gid, user.gid, user.gid))?;
        syscall::check(libc::setresuid(user.uid, user.uid, user.uid))?;
    }
    Ok(())
}

/// capget(2)
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// capget(2): the lower and the upper 32 bits.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn permitted() -> io::Result<u64> {
    let mut header = CapHeader { version: CAPABILITIES_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: the kernel writes two of them for this version.
    let rc = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    syscall::check(rc as i32)?;
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

fn set_capabilities(keep: u64) -> io::Result<()> {
    let mut header = CapHeader { version: CAPABILITIES_3, pid: 0 };
    let half = |bits: u64| CapData {
        effective: bits as u32,
        permitted: bits as u32,
        ..CapData::default()
    };
    let data = [half(keep), half(keep >> 32)];
    // SAFETY: the kernel reads two of them for this version.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    syscall::check(rc as i32).map(drop)
}

/// Has the kernel refuse calls to all threads of this process.
fn refuse_calls(needs: &Needs) -> io::Result<()> {
    let mut refused: Vec<libc::c_long> = NEVER.to_vec();
    if !needs.commands {
        refused.extend(COMMANDS);
        if !needs.programs {
            refused.extend(PROGRAMS);
        }
        if !needs.capabilities.contains(&Capability::SysAdmin) {
            refused.push(libc::SYS_setns);
        }
        if !needs.capabilities.contains(&Capability::Bpf) {
            refused.push(libc::SYS_bpf);
        }
    }
    let filter = filter(&refused);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: integers, and a program that lives through the calls.
    unsafe {
        syscall::check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        let rc = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        );
        match rc {
            0 => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            // A thread with a filter of its own.
            _ => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}

/// Answers EPERM to these calls, and to all of another kind of processor.
fn filter(refused: &[libc::c_long]) -> Vec<libc::sock_filter> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = |test| libc::BPF_JMP | test | libc::BPF_K;
    let ret = libc::BPF_RET | libc::BPF_K;
    let count = refused.len() as u8;
    // struct seccomp_data: the system call, then the kind of processor.
    let mut program = vec![
        op(load, 4, 0, 0),
        op(jump(libc::BPF_JEQ), ARCHITECTURE, 0, count + 3),
        op(load, 0, 0, 0),
        // Calls of x32 have codes of their own.
        op(jump(libc::BPF_JGE), X32, count + 1, 0),
    ];
    for (i, &call) in refused.iter().enumerate() {
        program.push(op(jump(libc::BPF_JEQ), call as u32, count - i as u8, 0));
    }
    program.push(op(ret, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(op(ret, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0));
    program
}

/// In this order.
const USERS: [&str; 2] = ["sonde", "nobody"];
const CAPABILITIES_3: u32 = 0x2008_0522;
/// linux/audit.h
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
const X32: u32 = 0x4000_0000;
/// What nothing here ever calls: other processes, the kernel itself, keys, clocks, whole devices.
const NEVER: [libc::c_long; 24] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_lookup_dcookie,
    // What is done by its rings passes no filter.
    libc::SYS_io_uring_setup,
];
/// What takes a program.
const PROGRAMS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];
/// What takes a command of root's, or a laboratory.
const COMMANDS: [libc::c_long; 16] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_mknodat,
    libc::SYS_personality,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Does `work` in a process of its own: what is given up does not come back. `name` is that
    /// of the test.
    #[expect(
        clippy::disallowed_methods,
        reason = "plays a part of the test in a process of its own"
    )]
    fn apart(name: &str, work: impl FnOnce()) {
        if std::env::var_os(APART).is_some_and(|apart| apart == name) {
            return work();
        }
        let test = format!("privilege::tests::{name}");
        let mut own = Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", &test, "--nocapture", "--test-threads=1"]).env(APART, name);
        let output = own.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}\n{err}");
    }

    const APART: &str = "SONDE_TEST_APART";

    fn status(of: &str, field: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{of}/status")).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(":\t")).unwrap();
        line.to_owned()
    }

    fn packet_socket() -> io::Result<()> {
        syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)
    }

    #[test]
    fn root_becomes_somebody_who_can_do_what_is_needed_and_nothing_else() {
        let name = "root_becomes_somebody_who_can_do_what_is_needed_and_nothing_else";
        if sonde_lab::skip(name) {
            return;
        }
        apart(name, || {
            let (stop, waits) = std::sync::mpsc::channel::<()>();
            // A thread from before.
            let before = std::thread::spawn(move || {
                let _ = waits.recv();
                packet_socket().is_err()
            });
            let needs = Needs { capabilities: vec![Capability::NetRaw], ..Needs::default() };
            assert_eq!(confine(&needs).unwrap(), None);
            for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
                let of = format!("self/task/{}", thread.file_name().to_str().unwrap());
                assert_ne!(status(&of, "Uid").split('\t').next(), Some("0"), "{of}");
                assert_eq!(
                    (status(&of, "NoNewPrivs"), status(&of, "Seccomp")),
                    ("1".into(), "2".into())
                );
            }
            let raw = format!("{:016x}", 1u64 << Capability::NetRaw as u8);
            for field in ["CapPrm", "CapEff", "CapBnd"] {
                assert_eq!(status("thread-self", field), raw, "{field}");
            }
            packet_socket().unwrap();
            std::thread::spawn(packet_socket).join().unwrap().unwrap();
            drop(stop);
            assert!(before.join().unwrap(), "a thread from before keeps nothing");
            let refused = |e: io::Error| assert_eq!(e.raw_os_error(), Some(libc::EPERM), "{e}");
            refused(Command::new("/bin/true").status().unwrap_err());
            // SAFETY: the kernel refuses the call before it looks at anything.
            let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            refused(syscall::check(traced as i32).unwrap_err());
            assert!(fs::write("/etc/sonde-is-not-here", "x").is_err());
            assert_eq!(guards(), ["no_new_privs", "seccomp"]);
        });
    }

    #[test]
    fn programs_have_no_more_rights_than_who_starts_them() {
        let name = "programs_have_no_more_rights_than_who_starts_them";
        if sonde_lab::skip(name) {
            return;
        }
        apart(name, || {
            let capabilities = vec![Capability::NetRaw];
            let needs = Needs { capabilities, programs: true, ..Needs::default() };
            assert_eq!(confine(&needs).unwrap(), None);
            packet_socket().unwrap();
            let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let field = |name: &str| {
                let found = text.lines().find_map(|line| line.strip_prefix(name));
                found.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
            };
            for name in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
                assert_eq!(field(name), "0000000000000000", "{name}");
            }
            assert_ne!(field("Uid:").split('\t').next(), Some("0"));
            assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()));
            let refused = Command::new("unshare").args(["--net", "true"]).output().unwrap();
            assert!(!refused.status.success(), "{refused:?}");
        });
    }

    #[test]
    fn root_stays_where_its_files_are_and_says_so() {
        let name = "root_stays_where_its_files_are_and_says_so";
        if sonde_lab::skip(name) {
            return;
        }
        apart(name, || {
            let dir = std::env::temp_dir().join(format!("sonde-confined-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            let needs = Needs { writes: vec![dir.join("new")], ..Needs::default() };
            let short = confine(&needs).unwrap().unwrap();
            assert!(short.contains("stays root") && short.contains("new is not"), "{short}");
            fs::write(dir.join("new"), "x").unwrap();
            fs::remove_dir_all(&dir).unwrap();
            let files = format!("{:016x}", 1u64 << Capability::DacOverride as u8);
            assert_eq!(status("thread-self", "CapEff"), files);
            assert!(packet_socket().is_err());
        });
    }

    #[test]
    fn whoever_stays_root_writes_where_it_said_and_nowhere_else() {
        let name = "whoever_stays_root_writes_where_it_said_and_nowhere_else";
        if sonde_lab::skip(name) {
            return;
        }
        apart(name, || {
            let base = PathBuf::from(format!("/dev/shm/sonde-written-{}", std::process::id()));
            let (own, other) = (base.join("own"), base.join("other"));
            fs::create_dir_all(&own).unwrap();
            fs::create_dir_all(&other).unwrap();
            let written = Some(vec![own.clone()]);
            let needs = Needs { writes: vec![own.clone()], written, ..Needs::default() };
            let short = confine(&needs).unwrap().unwrap();
            if short.contains("not by Landlock") {
                println!("skipped: {short}");
            } else {
                let child = std::thread::spawn(move || fs::write(other.join("file"), "x"));
                let error = child.join().unwrap().unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
                fs::write(own.join("file"), "x").unwrap();
                assert!(guards().iter().any(|guard| guard.starts_with("landlock ")));
                fs::remove_file(own.join("file")).unwrap();
            }
        });
        for folder in fs::read_dir("/dev/shm").unwrap().flatten() {
            if folder.file_name().to_string_lossy().starts_with("sonde-written-") {
                let _ = fs::remove_dir_all(folder.path());
            }
        }
    }

    #[test]
    fn accounts_are_found_by_their_names() {
        let text =
            "root:x:0:0:root:/root:/bin/sh\nsondes:x:7:8::/:\nsonde:x:990:991::/:/bin/false\n";
        let user = account(text, "sonde").unwrap();
        assert_eq!((user.uid, user.gid), (990, 991));
        assert!(account(text, "nobody").is_none() && account("sonde:x\n", "sonde").is_none());
    }

    #[test]
    fn every_refused_call_jumps_to_the_refusal() {
        let calls = [&NEVER[..], &COMMANDS[..], &PROGRAMS[..]].concat();
        let program = filter(&calls);
        let last = program.len() - 1;
        for (i, step) in program.iter().enumerate().skip(4).take(calls.len()) {
            assert_eq!((i + 1 + usize::from(step.jt), step.jf), (last, 0), "{i}");
        }
        assert_eq!(1 + 1 + usize::from(program[1].jf), last);
        assert_eq!(3 + 1 + usize::from(program[3].jt), last);
        assert_eq!(program[last - 1].k, libc::SECCOMP_RET_ALLOW);
    }
}
