//! A network namespace of the test's own, and frames to send into it.
#![allow(dead_code)] // each test binary uses its part

pub mod packet;
pub mod refuse;
pub mod rtt;
pub mod xsk_socket;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whether eBPF can be tested here; says why not.
pub fn privileged(test: &str) -> bool {
    !sonde_lab::skip(test)
}

/// The name of a test for `--exact`, which is that of its path below the binary's own module.
pub fn test_name(module: &str, test: &str) -> String {
    let below = module.split_once("::").map_or("", |(_, below)| below);
    format!("{below}::{test}")
}

/// Runs `f` on a thread in a network namespace that ends with the thread.
pub fn in_namespace<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(|| {
        // SAFETY: affects this fresh thread only.
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(rc, 0, "unshare: {}", io::Error::last_os_error());
        f()
    })
    .join()
    .unwrap_or_else(|e| std::panic::resume_unwind(e))
}

/// A veth pair `va`-`vb` in this thread's namespace, both up; returns their indices.
pub fn veth_pair(mtu: u32) -> (u32, u32) {
    let mtu = mtu.to_string();
    ip(&["link", "add", "va", "mtu", &mtu, "type", "veth", "peer", "name", "vb", "mtu", &mtu]);
    for end in ["va", "vb"] {
        // No address autoconfiguration: its packets would join the counters.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1");
        ip(&["link", "set", end, "up"]);
    }
    (index("va"), index("vb"))
}

/// Whether an XDP program is attached to the interface in this thread's namespace.
pub fn xdp_attached(name: &str) -> bool {
    ip(&["-j", "link", "show", "dev", name]).contains("\"xdp\"")
}

/// Asserts that no XDP program is left on the interface. A process that another test is just
/// starting holds this one's descriptors until its exec, and with them the program.
#[track_caller]
pub fn assert_detached(name: &str) {
    assert!(eventually(Duration::from_secs(20), || !xdp_attached(name)), "still on {name}");
}

/// Starts the test `attach_and_wait` of `module` (`module_path!()`) in a namespace with a veth pair.
/// Kills it once `attached`, and asserts that then nothing is attached any more.
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
pub fn nothing_outlives_the_kill(module: &str, attached: impl Fn() -> bool + Send + 'static) {
    let victim = test_name(module, "attach_and_wait");
    in_namespace(move || {
        veth_pair(1500);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", &victim])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let came_up = eventually(Duration::from_secs(20), &attached);
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        assert!(came_up, "the child did not attach");
        assert!(eventually(Duration::from_secs(5), || !attached()));
    });
}

/// What a test `attach_and_wait` does once it is attached.
pub fn wait_for_the_kill() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs `ip`; returns what it prints.
pub fn ip(args: &[&str]) -> String {
    let out = Command::new("ip").args(args).output().expect("iproute2 is installed");
    assert!(out.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

pub fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: `name` ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0);
    index
}

/// A packet socket on one interface: sends and receives whole frames.
pub struct RawSocket(OwnedFd);

impl RawSocket {
    pub fn open(ifindex: u32) -> Self {
        let proto = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain system calls on a descriptor that we own from here on.
        unsafe {
            let fd = libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                proto.into(),
            );
            assert!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut addr: libc::sockaddr_ll = std::mem::zeroed();
            addr.sll_family = libc::AF_PACKET as u16;
            addr.sll_protocol = proto;
            addr.sll_ifindex = ifindex as i32;
            let rc = libc::bind(
                fd.as_raw_fd(),
                (&raw const addr).cast(),
                size_of_val(&addr) as libc::socklen_t,
            );
            assert_eq!(rc, 0, "bind: {}", io::Error::last_os_error());
            RawSocket(fd)
        }
    }

    /// From now on frames go straight to the driver, past tc.
    pub fn bypass_queueing(&self) {
        const PACKET_QDISC_BYPASS: i32 = 20;
        let on = 1i32;
        // SAFETY: the value is valid for its own size.
        let rc = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_QDISC_BYPASS,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        assert_eq!(rc, 0, "PACKET_QDISC_BYPASS: {}", io::Error::last_os_error());
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(n, frame.len() as isize, "send: {}", io::Error::last_os_error());
    }

    /// The next received (not own outgoing) frame that `accept` likes, within `limit`.
    pub fn receive(&self, limit: Duration, accept: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let end = Instant::now() + limit;
        loop {
            let mut buf = [0u8; 16384];
            // SAFETY: both buffers are valid for the lengths given.
            let (n, addr) = unsafe {
                let mut addr: libc::sockaddr_ll = std::mem::zeroed();
                let mut len = size_of_val(&addr) as libc::socklen_t;
                let n = libc::recvfrom(
                    self.0.as_raw_fd(),
                    buf.as_mut_ptr().cast(),
                    buf.len(),
                    0,
                    (&raw mut addr).cast(),
                    &mut len,
                );
                (n, addr)
            };
            if n > 0 && addr.sll_pkttype != libc::PACKET_OUTGOING && accept(&buf[..n as usize]) {
                return Some(buf[..n as usize].to_vec());
            }
            if n <= 0 {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                let mut poll =
                    libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one valid pollfd.
                unsafe { libc::poll(&mut poll, 1, left.as_millis().max(1) as i32) };
            }
        }
    }
}

/// Polls until `done` or the limit.
pub fn eventually(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !done() {
        if Instant::now() > end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
