//! What everybody starts with: UDP sockets, one system call a packet, stamps taken in
//! user space just before sending and just after receiving. The yardstick.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{Context as _, Result};
use sonde_sys::clock::{self, PauseWatch, tai_now};
use sonde_sys::schedule;
use sonde_wire::stamp::{ReflectorPacket, SenderRepr};
use sonde_wire::{ErrorEstimate, NtpTime};

use crate::load::{CLASSES, DESTINATIONS, EngineResult, Load, Look, SIZE, peak_memory};
use crate::near::Near;

/// Runs the load from this namespace on processor `cpu`.
pub fn measure(load: Load, cpu: usize, look: Look) -> Result<EngineResult> {
    schedule::pin_to_cpu(cpu)?;
    let sockets = (0..CLASSES.len())
        .map(|class| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, FIRST_PORT + class as u16))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })
        .collect::<std::io::Result<Vec<_>>>()
        .context("cannot bind the plain sockets")?;
    let mut near = (look == Look::NearEnd).then(|| Near::attach(load)).transpose()?;
    let tai_offset = i64::from(clock::clock_state().tai_offset_s) * 1_000_000_000;
    let mut out = EngineResult { name: "plain sockets".into(), ..EngineResult::default() };
    out.mode = "one call a packet, stamps in user space".into();
    let mut watch = PauseWatch::new(50_000);
    let gap = 1_000_000_000 / load.rate as i64;
    let total = load.rate * load.seconds;
    let start = tai_now() + 20_000_000;
    let mut packet = [0u8; SIZE as usize - 28];
    let mut reply = [0u8; 2048];
    let mut n = 0u64;
    let mut quiet_since = start;
    loop {
        let now = tai_now();
        if let Some(pause) = watch.observe(now) {
            out.pauses.add(pause);
        }
        let due = start + n as i64 * gap;
        if n < total && now >= due {
            let class = (n / DESTINATIONS) as usize % CLASSES.len();
            let host = 1 + (n % DESTINATIONS) as u32;
            let to = SocketAddr::from((Ipv4Addr::from(0x0a02_0000 + host), 862));
            out.lateness.add(now - due);
            let probe = SenderRepr {
                sequence: (n / DESTINATIONS / CLASSES.len() as u64) as u32,
                timestamp: tai_now().to_ntp(tai_offset).0,
                error_estimate: ErrorEstimate(1),
                ssid: 0,
            };
            let _ = probe.emit(&mut packet);
            if sockets[class].send_to(&packet, to).is_ok() {
                out.sent += 1;
            } else {
                out.own_drops += 1;
            }
            n += 1;
        }
        let mut any = false;
        for (class, socket) in sockets.iter().enumerate() {
            let Ok((len, from)) = socket.recv_from(&mut reply) else { continue };
            let t4 = tai_now();
            any = true;
            let Ok(r) = ReflectorPacket::new_checked(&reply[..len]) else { continue };
            let time = |wire| NtpTime(wire).to_time(t4, tai_offset);
            let (t1, t2) = (time(r.sender_timestamp()), time(r.receive_timestamp()));
            let t3 = time(r.timestamp());
            out.received += 1;
            out.t1.add(t2 - t1);
            out.t4.add(t4 - t3);
            out.rtt.add(t4 - t1);
            out.rtt_net.add((t4 - t1) - (t3 - t2));
            if let Some(near) = &mut near {
                near.add(from.ip(), FIRST_PORT + class as u16, r.sender_sequence(), t1, t4);
            }
        }
        if any || n < total {
            quiet_since = now;
        } else if now - quiet_since > 200_000_000 {
            break;
        }
    }
    out.seconds = (quiet_since - start) as f64 / 1e9;
    out.peak_memory = peak_memory();
    if let Some(near) = near {
        out.near = near.finish()?;
    }
    Ok(out)
}

/// Our port of the first class; the others follow.
const FIRST_PORT: u16 = 62_000;
