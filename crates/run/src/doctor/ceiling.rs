//! How many packets a second an engine carries here at most. One thread sends to itself
//! over the loopback interface as fast as it can, with transmit stamps. A real link has
//! a driver of its own and is not to be flooded by a self-test; this is the host's share.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use sonde_port::{Engine, Filter, OpenSpec};
use sonde_wire::{build, ethernet};

use super::Opener;

/// What a pair of ports reached at full load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ceiling {
    /// Packets sent and received again, a second.
    pub(super) per_second: f64,
    /// Packets lost on the way, of all.
    pub(super) lost: f64,
}

/// Tries `engine` for `duration`.
pub(super) fn measure(engine: Engine, duration: Duration, open: Opener<'_>) -> Result<Ceiling> {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free));
    let filter =
        Filter { local: vec![address.ip()], local_ports: vec![free], peer_ports: vec![free] };
    let mut port = open(engine, &OpenSpec::new(Some("lo".into()), filter))?;
    let frame = frame(address)?;
    let (mut sent, mut received, mut cookie) = (0u64, 0u64, 0u64);
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < QUIET_TURNS {
        let burst = port.rx()?;
        received += burst.len() as u64;
        quiet = if burst.is_empty() { quiet + 1 } else { 0 };
        if start.elapsed() < duration {
            quiet = 0;
            let mut free = port.tx();
            for _ in 0..BURST {
                let Some(slot) = free.slot() else { break };
                slot[..frame.len()].copy_from_slice(&frame);
                cookie += 1;
                free.commit(frame.len(), cookie);
                sent += 1;
            }
            port.flush()?;
        }
    }
    let seconds = duration.as_secs_f64();
    Ok(Ceiling {
        per_second: received as f64 / seconds,
        lost: 1.0 - received as f64 / sent.max(1) as f64,
    })
}

/// 150 bytes of IP, from `address` to itself.
fn frame(address: SocketAddr) -> Result<Vec<u8>> {
    let mut frame = vec![0; ethernet::HEADER_LEN + IP_LENGTH];
    frame[12..14].copy_from_slice(&ethernet::ETHERTYPE_IPV4.to_be_bytes());
    let (ip, payload) = (&mut frame[ethernet::HEADER_LEN..], IP_LENGTH - 28);
    build::emit_udp_ip(ip, address, address, 0, 64, payload)
        .and_then(|_| build::udp_header_sum(address, address, payload))
        .and_then(|sum| build::finish_udp(&mut ip[20..], sum, payload))
        .map_err(|e| anyhow!("{e}"))
        .context("no packet can be made")?;
    Ok(frame)
}

const IP_LENGTH: usize = 150;
const BURST: usize = 32;
/// Empty turns after the last send until what has not come is lost.
const QUIET_TURNS: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_carry_packets_over_loopback() {
        let ceiling =
            measure(Engine::Socket, Duration::from_millis(20), &sonde_port::open).unwrap();
        assert!(ceiling.per_second > 0.0 && (0.0..=1.0).contains(&ceiling.lost), "{ceiling:?}");
    }
}
