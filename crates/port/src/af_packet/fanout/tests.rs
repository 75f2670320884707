//! Sockets that share the traffic of one end of a veth pair; frames are put in at both.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use sonde_sys::syscall;

use super::super::AfPacket;
use super::super::tests::{Net, inside, net};
use crate::{Engine, OpenSpec, Port, PortError, PortMode, open_group};

/// EtherType and octets of an IP packet from host `from` to host `to`, which carries
/// `index`; what is not UDP is a later fragment.
fn ip(v6: bool, from: u8, to: u8, udp: bool, index: u32) -> (u16, Vec<u8>) {
    let mut payload = [&[0, from, 0, to, 0, 12, 0, 0][..], &index.to_be_bytes()].concat();
    if !udp {
        payload[..8].fill(0xEE);
    }
    let mut packet = if v6 {
        let next = if udp { 17 } else { 44 };
        let length = payload.len() as u8 + if udp { 0 } else { 8 };
        let mut header = vec![0x60, 0, 0, 0, 0, length, next, 9];
        for host in [from, to] {
            header.extend([0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        if !udp {
            header.extend([17, 0, 0, 8, 0, 0, 0, 1]);
        }
        header
    } else {
        let offset = if udp { 0x40 } else { 1 };
        let flags = if udp { [offset, 0] } else { [0, offset] };
        let mut header = vec![0x45, 0, 0, 32, 0, 7, flags[0], flags[1], 9, 17, 0, 0];
        header.extend([10, 9, 0, from, 10, 9, 0, to]);
        header
    };
    packet.append(&mut payload);
    (if v6 { 0x86DD } else { 0x0800 }, packet)
}

/// What may stand before IP.
fn below(how: u32, (kind, packet): (u16, Vec<u8>)) -> (u16, Vec<u8>) {
    let before = |header: &[u8]| [header, &packet].concat();
    let [high, low] = kind.to_be_bytes();
    match how {
        0 => (kind, packet),
        1 => (0x8100, before(&[0, 5, high, low])),
        2 => (0x88A8, before(&[0, 6, 0x81, 0, 0, 5, high, low])),
        3 => {
            let protocol = if kind == 0x0800 { 0x21 } else { 0x57 };
            (0x8864, before(&[0x11, 0, 0, 1, 0, packet.len() as u8 + 2, 0, protocol]))
        }
        4 => (0x8847, before(&[0, 1, 1, 64])),
        5 => (0x88A8, before(&[0, 6, 0x88, 0xA8, 0, 7, 0x81, 0, 0, 5, high, low])),
        _ => (0x8847, before(&[0, 1, 0, 64, 0, 2, 0, 64, 0, 3, 1, 64])),
    }
}

/// Sends frames out of a host's `eth0`.
fn send(net: &Net, from_a: bool, frames: &[(u16, Vec<u8>)]) {
    let host = if from_a { &net.a } else { &net.b };
    inside(host, || {
        let socket = syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).unwrap();
        syscall::bind_link(&socket, syscall::interface_index("eth0").unwrap(), 0).unwrap();
        for (kind, packet) in frames {
            let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
            frame.extend(kind.to_be_bytes());
            frame.extend(packet);
            // SAFETY: the buffer is valid for its length.
            let sent =
                unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
        }
    });
}

/// The indexes in what the ports have seen, with the port's index: until `count` have come.
fn seen(ports: &mut [AfPacket], count: usize) -> Vec<(u32, usize)> {
    let deadline = ports[0].now() + 5_000_000_000;
    let (mut all, mut rounds_after) = (Vec::new(), 0);
    while rounds_after < 20 && ports[0].now() < deadline {
        rounds_after += usize::from(all.len() >= count);
        for (i, port) in ports.iter_mut().enumerate() {
            let until = port.now() + 2_000_000;
            port.wait(until).unwrap();
            let mut burst = port.rx().unwrap();
            for k in 0..burst.len() {
                let (frame, _) = burst.frame(k);
                // Ours alone: the kernel speaks here, too.
                if frame[..6] == [2, 0, 0, 0, 0, 9] {
                    let index = frame.last_chunk::<4>().unwrap();
                    all.push((u32::from_be_bytes(*index), i));
                }
            }
        }
    }
    all
}

#[test]
fn each_pair_of_addresses_has_its_socket_and_each_packet_is_seen_once() {
    let Some(net) = net("af_packet fan-out") else { return };
    const PORTS: usize = 3;
    let spec = OpenSpec::watching("eth0".into());
    let mut ports = inside(&net.a, || AfPacket::watch(&spec, PORTS).unwrap());
    let mut pair_of = Vec::new();
    for from_a in [false, true] {
        let mut frames = Vec::new();
        for v6 in [false, true] {
            for pair in 0..40u8 {
                for how in 0..7 {
                    for (from, to) in [(pair, 200), (200, pair)] {
                        for udp in [true, false] {
                            let index = pair_of.len() as u32;
                            frames.push(below(how, ip(v6, from, to, udp, index)));
                            pair_of.push((v6, pair));
                        }
                    }
                }
            }
        }
        send(&net, from_a, &frames);
    }
    let mut all = seen(&mut ports, pair_of.len());
    let mut of_pair = HashMap::new();
    let mut used = [0; PORTS];
    for &(index, port) in &all {
        let pair = pair_of[index as usize];
        let first = *of_pair.entry(pair).or_insert(port);
        assert_eq!(first, port, "{pair:?}, packet {index}");
        used[port] += 1;
    }
    all.sort_unstable();
    assert!(all.iter().map(|&(index, _)| index).eq(0..pair_of.len() as u32), "once each");
    // 80 pairs by a random key: that a socket gets none is as likely as 10^-14.
    assert!(used.iter().all(|&n| n > 0), "{used:?}");
    assert!(ports.iter_mut().all(|port| port.stats().rx_dropped == 0));
}

/// A tun device "tun0" of this thread's namespace, up: what is written here comes in there.
fn tun() -> File {
    let file = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"tun0") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: TUNSETIFF reads and writes the request.
    syscall::check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
        .unwrap();
    file
}

#[test]
fn without_an_ethernet_header_it_is_the_same() {
    let Some(net) = net("af_packet fan-out, tun") else { return };
    let mut tun = inside(&net.a, tun);
    net.a.set_up("tun0", true).unwrap();
    let spec = OpenSpec::watching("tun0".into());
    let mut ports = inside(&net.a, || AfPacket::watch(&spec, 2).unwrap());
    let out = inside(&net.a, || {
        let socket = syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).unwrap();
        syscall::bind_link(&socket, syscall::interface_index("tun0").unwrap(), 0).unwrap();
        socket
    });
    let mut pair_of = Vec::new();
    for v6 in [false, true] {
        for pair in 0..40 {
            for (from, to) in [(pair, 200), (200, pair)] {
                let index = pair_of.len() as u32;
                let (_, packet) = ip(v6, from, to, true, index);
                if from == 200 {
                    // SAFETY: the buffer is valid for its length.
                    let sent = unsafe {
                        libc::send(out.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0)
                    };
                    assert_eq!(sent, packet.len() as isize);
                } else {
                    tun.write_all(&packet).unwrap();
                }
                pair_of.push((v6, pair));
            }
        }
    }
    let mut seen: HashMap<u32, usize> = HashMap::new();
    let deadline = ports[0].now() + 5_000_000_000;
    while seen.len() < pair_of.len() && ports[0].now() < deadline {
        for (i, port) in ports.iter_mut().enumerate() {
            let mut burst = port.rx().unwrap();
            for k in 0..burst.len() {
                let (packet, _) = burst.frame(k);
                let index = u32::from_be_bytes(*packet.last_chunk::<4>().unwrap());
                if (index as usize) < pair_of.len() {
                    assert!(seen.insert(index, i).is_none(), "once each");
                }
            }
        }
    }
    assert_eq!(seen.len(), pair_of.len());
    let mut of_pair = HashMap::new();
    for (index, port) in seen {
        let pair = pair_of[index as usize];
        assert_eq!(*of_pair.entry(pair).or_insert(port), port, "{pair:?}");
    }
    assert!(of_pair.values().any(|&port| port == 0) && of_pair.values().any(|&port| port == 1));
}

#[test]
fn every_socket_cuts_and_reports_the_length_on_the_wire() {
    let Some(net) = net("af_packet fan-out, cut") else { return };
    let spec = OpenSpec { snap: 64, ..OpenSpec::watching("eth0".into()) };
    let ports = inside(&net.a, || open_group(Engine::AfPacket, &spec, 2).unwrap());
    let (kind, mut packet) = ip(false, 1, 2, true, 0);
    packet.resize(500, 0);
    let tagged = below(1, (kind, packet.clone()));
    send(&net, false, &[(kind, packet), tagged]);
    let mut found = Vec::new();
    for mut port in ports {
        let until = port.now() + 50_000_000;
        while port.now() < until {
            port.wait(until).unwrap();
            let mut burst = port.rx().unwrap();
            for k in 0..burst.len() {
                let wire_len = burst.wire_len(k);
                let (frame, _) = burst.frame(k);
                if frame[..6] == [2, 0, 0, 0, 0, 9] {
                    found.push((frame.len(), wire_len));
                }
            }
        }
    }
    // The kernel cuts behind the tag that it took out.
    assert_eq!(found, [(64, 514), (68, 518)]);
}

#[test]
fn a_group_needs_members_and_a_watching_port() {
    let watching = OpenSpec::watching("lo".into());
    let filtering = OpenSpec { mode: PortMode::Exchange, ..watching.clone() };
    let refused = [
        (&watching, 0, "1 to 256"),
        (&watching, 257, "1 to 256"),
        (&filtering, 2, "watch everything"),
    ];
    for (spec, count, reason) in refused {
        let refused = AfPacket::watch(spec, count).err().unwrap();
        assert!(matches!(&refused, PortError::Config(why) if why.contains(reason)), "{refused}");
    }
}
