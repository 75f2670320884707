//! One counter for each session, whoever answers: the program numbers the replies of user space, too.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use sonde_wire::packet::SessionRequest;

use crate::BpfError;
use crate::load;

/// The kernel reflector's sessions.
#[derive(Debug)]
pub struct SharedSessions(OwnedFd);

impl SharedSessions {
    pub(super) fn new(program: OwnedFd) -> Self {
        SharedSessions(program)
    }

    /// Takes the sequence number of the reply to `request`, by one system call. `None`: the table
    /// has no room for its session, and the reply copies the sender's.
    ///
    /// # Errors
    /// The kernel does not run the program.
    pub fn next_sequence(&self, request: &SessionRequest) -> Result<Option<u32>, BpfError> {
        let question = question(request);
        let mut answer = [0; QUESTION];
        let run = load::test_run_into(self.0.as_fd(), &question, &mut answer, 1)?;
        let sequence = answer[SEQUENCE..].first_chunk().map(|octets| u32::from_ne_bytes(*octets));
        Ok(sequence.filter(|_| run.verdict == XDP_TX))
    }
}

/// As `struct question` in `c/reflect.bpf.c`.
fn question(request: &SessionRequest) -> [u8; QUESTION] {
    let mut octets = [0; QUESTION];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        octets[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    for address in [request.source, request.destination] {
        match address {
            IpAddr::V4(v4) => put(&v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => put(&v6.octets()),
        }
    }
    // The program takes both as one word of the packet: the port is its greater half.
    let port = u32::from(request.source_port.to_be()) << 16;
    put(&(port | u32::from(request.ssid.to_be())).to_ne_bytes());
    put(&u32::from(request.source.is_ipv4()).to_ne_bytes());
    put(&request.sequence.to_ne_bytes());
    put(&((request.timestamp >> 16) as u32).to_ne_bytes());
    octets
}

const QUESTION: usize = 48;
/// Where the sequence number stands.
const SEQUENCE: usize = 40;
const XDP_TX: u32 = 3;
