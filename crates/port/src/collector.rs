//! A UDP socket with a large receive buffer, for collectors, and what the kernel dropped of
//! what came to it.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::sys::{get, set_buffer};

/// Binds to `at` and asks for a receive buffer of `bytes`. Without privilege the kernel gives
/// no more than `net.core.rmem_max`: [`receive_buffer`] says what it gave.
///
/// # Errors
/// Those of the system calls: the address is in use, or not this host's.
pub fn bind(at: SocketAddr, bytes: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    // The kernel doubles what it is asked for, for its own bookkeeping.
    let half = i32::try_from(bytes / 2).unwrap_or(i32::MAX);
    set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, half)?;
    Ok(socket)
}

/// Bytes of the receive buffer, with the kernel's bookkeeping: a datagram takes more of it
/// than it is long.
///
/// # Errors
/// Those of the system call.
pub fn receive_buffer(socket: &UdpSocket) -> io::Result<usize> {
    let bytes: libc::c_int = get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    Ok(bytes.max(0) as usize)
}

/// Datagrams that found the buffer full since the socket was made: the counter of
/// SO_RXQ_OVFL, asked for without waiting for a datagram that would bring it. It wraps at 32
/// bits.
///
/// # Errors
/// Those of the system call.
pub fn dropped(socket: &UdpSocket) -> io::Result<u32> {
    // A kernel before 4.12 does not know the option; 0 would be a lie.
    let memory: [u32; MEMINFO_VARS] = get(socket, libc::SOL_SOCKET, SO_MEMINFO, [0; MEMINFO_VARS])?;
    Ok(memory[MEMINFO_DROPS])
}

/// `asm-generic/socket.h`.
const SO_MEMINFO: libc::c_int = 55;
/// `linux/sock_diag.h`: SK_MEMINFO_DROPS, and how many there are.
const MEMINFO_DROPS: usize = 8;
const MEMINFO_VARS: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), 1 << 20).unwrap();
        assert!(receive_buffer(&socket).unwrap() >= 64 << 10);
        let small = bind("127.0.0.1:0".parse().unwrap(), 8 << 10).unwrap();
        let (bytes, count) = (receive_buffer(&small).unwrap(), 200u32);
        assert!(bytes <= 16 << 10, "{bytes}");
        assert_eq!(dropped(&small).unwrap(), 0);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..count {
            // On the loopback interface it has arrived, or was dropped, when this returns.
            sender.send_to(&[0; 1_000], small.local_addr().unwrap()).unwrap();
        }
        small.set_nonblocking(true).unwrap();
        let got = std::iter::from_fn(|| small.recv(&mut [0; 2_000]).ok()).count() as u32;
        assert!(got > 0 && got < count);
        assert_eq!(got + dropped(&small).unwrap(), count);
    }
}
