//! Several packet sockets that share what passes an interface (`PACKET_FANOUT`).
//!
//! The kernel's own hash (`PACKET_FANOUT_HASH`) is symmetric, but takes in ports where it finds
//! some. So a fragmented datagram goes to another socket than the rest of its flow. So the choice
//! is made by a program that looks at the two addresses alone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use sonde_sys::random::secret;
use sonde_sys::syscall::{self, op};

/// Makes the sockets, which are bound to the same interface, a group.
pub(super) fn join<'a>(sockets: impl Iterator<Item = &'a OwnedFd>) -> io::Result<()> {
    // One for all interfaces: a question by one and its answer by another come to one worker.
    static SECRET: OnceLock<[u64; 1]> = OnceLock::new();
    let [secret] = *SECRET.get_or_init(secret);
    let program = program([(secret >> 32) as u32, secret as u32 | 1]);
    let mut group = None;
    for socket in sockets {
        let (id, flags) = match group {
            // The kernel finds an id that nobody in this network namespace uses.
            None => (0, UNIQUE),
            Some(id) => (id, 0),
        };
        syscall::set(socket, libc::SOL_PACKET, PACKET_FANOUT, id | (CBPF | flags) << 16)?;
        if group.is_none() {
            let given = syscall::get(socket, libc::SOL_PACKET, PACKET_FANOUT, 0u32)?;
            group = Some(given & 0xFFFF);
            let value = libc::sock_fprog {
                len: program.len() as u16,
                // The kernel only reads it.
                filter: program.as_ptr().cast_mut(),
            };
            syscall::set(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, value)?;
        }
    }
    Ok(())
}

/// A hash of the addresses by which the kernel picks the socket. It reads IPv4 or IPv6 behind three
/// VLAN tags, PPPoE or eight MPLS labels at most; 0 for all else. `secret`: without it nobody can
/// make up packets that all meet at one socket. The second is odd.
fn program(secret: [u32; 2]) -> Vec<libc::sock_filter> {
    let mut p = Program::default();
    // X is where we are, from the link header on: where the network header is behind a tag
    // depends on the way that the packet takes. Tags that were taken out are no hindrance.
    p.op(libc::BPF_LDX | libc::BPF_IMM, 0);
    p.op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, AD_HATYPE);
    p.jump(libc::BPF_JEQ, ARPHRD_ETHER, ETHERNET);
    p.jump(libc::BPF_JEQ, ARPHRD_LOOPBACK, ETHERNET);
    // There the link header may be anywhere, but IP is where the network header is.
    p.op(libc::BPF_LDX | libc::BPF_IMM, (libc::SKF_NET_OFF - libc::SKF_LL_OFF) as u32);
    p.op(libc::BPF_JMP | libc::BPF_JA, 0);
    p.aim(IP);
    p.label(ETHERNET);
    p.load(libc::BPF_H, 12);
    p.step(14);
    for _ in 0..3 {
        p.unless(&[0x8100, 0x88A8, 0x9100], |p| {
            p.load(libc::BPF_H, 2);
            p.step(4);
        });
    }
    p.unless(&[0x8864], |p| p.step(8));
    p.unless(&[0x8847, 0x8848], |p| {
        for _ in 0..LABELS {
            p.load(libc::BPF_B, 2);
            p.step(4);
            p.jump(libc::BPF_JSET, 1, IP);
        }
    });
    p.label(IP);
    p.load(libc::BPF_B, 0);
    p.op(libc::BPF_ALU | libc::BPF_RSH, 4);
    p.jump(libc::BPF_JEQ, 4, V4);
    p.jump(libc::BPF_JEQ, 6, V6);
    p.op(libc::BPF_RET, 0);

    p.label(V4);
    for (word, at) in [(0, 12), (4, 16)] {
        p.load(libc::BPF_W, at);
        p.op(libc::BPF_ST, word);
    }
    p.op(libc::BPF_JMP | libc::BPF_JA, 0);
    p.aim(MIX);

    p.label(V6);
    for word in 0..8 {
        p.load(libc::BPF_W, 8 + 4 * word);
        p.op(libc::BPF_ST, word);
    }
    // X is free now.
    for first in [0, 4] {
        p.op(libc::BPF_LD | libc::BPF_MEM, first);
        for word in first + 1..first + 4 {
            p.op(libc::BPF_ALU | libc::BPF_MUL, MIXER);
            p.op(libc::BPF_LDX | libc::BPF_MEM, word);
            p.op(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0);
        }
        p.op(libc::BPF_ST, first);
    }

    p.label(MIX);
    for first in [0, 4] {
        p.op(libc::BPF_LD | libc::BPF_MEM, first);
        p.op(libc::BPF_ALU | libc::BPF_XOR, secret[0]);
        p.mix(secret[1]);
        p.op(libc::BPF_ST, first);
    }
    p.op(libc::BPF_LDX | libc::BPF_MEM, 0);
    p.op(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0);
    p.mix(MIXER);
    p.op(libc::BPF_RET | libc::BPF_A, 0);
    p.done()
}

/// A program in the making: jumps go to labels that come later.
#[derive(Default)]
struct Program {
    code: Vec<libc::sock_filter>,
    /// Instructions that jump, and where to.
    open: Vec<(usize, u32)>,
}

impl Program {
    fn op(&mut self, code: u32, k: u32) {
        self.code.push(op(code, k, 0, 0));
    }

    /// Into A, from so many octets behind X.
    fn load(&mut self, size: u32, at: u32) {
        let from = (libc::SKF_LL_OFF as u32).wrapping_add(at);
        self.op(libc::BPF_LD | size | libc::BPF_IND, from);
    }

    /// X forward, A kept.
    fn step(&mut self, octets: u32) {
        self.op(libc::BPF_ST, SPARE);
        self.op(libc::BPF_MISC | libc::BPF_TXA, 0);
        self.op(libc::BPF_ALU | libc::BPF_ADD, octets);
        self.op(libc::BPF_MISC | libc::BPF_TAX, 0);
        self.op(libc::BPF_LD | libc::BPF_MEM, SPARE);
    }

    /// A multiplied and folded; X is used up.
    fn mix(&mut self, odd: u32) {
        self.op(libc::BPF_ALU | libc::BPF_MUL, odd);
        self.op(libc::BPF_MISC | libc::BPF_TAX, 0);
        self.op(libc::BPF_ALU | libc::BPF_RSH, 15);
        self.op(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0);
    }

    /// `inside` only if A is one of these.
    fn unless(&mut self, values: &[u32], inside: impl FnOnce(&mut Self)) {
        let first = self.code.len();
        for &value in values {
            self.op(libc::BPF_JMP | libc::BPF_JEQ, value);
        }
        let begin = self.code.len();
        inside(self);
        let end = self.code.len();
        for at in first..begin {
            self.code[at].jt = (begin - at - 1) as u8;
        }
        self.code[begin - 1].jf = (end - begin) as u8;
    }

    /// If the comparison of A holds.
    fn jump(&mut self, test: u32, with: u32, label: u32) {
        self.op(libc::BPF_JMP | test, with);
        self.aim(label);
    }

    fn aim(&mut self, label: u32) {
        self.open.push((self.code.len() - 1, label));
    }

    fn label(&mut self, label: u32) {
        let here = self.code.len();
        let Program { code, open } = self;
        open.retain(|&(at, wanted)| {
            let far = here - at - 1;
            let jump = &mut code[at];
            match wanted == label {
                true if u32::from(jump.code) == libc::BPF_JMP | libc::BPF_JA => jump.k = far as u32,
                true => jump.jt = far as u8,
                false => {}
            }
            wanted != label
        });
    }

    fn done(self) -> Vec<libc::sock_filter> {
        debug_assert!(self.open.is_empty());
        self.code
    }
}

/// Most sockets of a group.
pub(super) const MAX: usize = 256;

/// Labels of the program.
const IP: u32 = 0;
const V4: u32 = 1;
const V6: u32 = 2;
const MIX: u32 = 3;
const ETHERNET: u32 = 4;
/// A word of scratch memory that no address is put into.
const SPARE: u32 = 15;
/// MPLS labels that are stepped over.
const LABELS: usize = 8;
/// Any odd integer with about as many ones as zeros.
const MIXER: u32 = 0x9E37_79B1;
/// The kind of the interface.
const AD_HATYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE) as u32;
/// Those that begin with an Ethernet header.
const ARPHRD_ETHER: u32 = libc::ARPHRD_ETHER as u32;
const ARPHRD_LOOPBACK: u32 = libc::ARPHRD_LOOPBACK as u32;

// linux/if_packet.h
const PACKET_FANOUT: i32 = 18;
const PACKET_FANOUT_DATA: i32 = 22;
const CBPF: u32 = 6;
const UNIQUE: u32 = 0x2000;

#[cfg(test)]
mod tests;
