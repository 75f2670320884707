//! The engine on real veth pairs: AF_XDP at one end or both, sockets at the other.

pub(super) mod net;

use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use sonde_lab::LinkOptions;
use sonde_wire::StampSource;

use self::net::*;
use super::*;
use crate::{OpenSpec, XdpMode};

fn in_any_mode_datagrams_arrive_stamped(name: &str, mode: XdpMode, shown: &str) {
    with_net(name, LinkOptions::default(), |net| {
        let mut port = AfXdp::open(&OpenSpec { xdp_mode: mode, ..spec() }).unwrap();
        assert!(port.caps().mode.starts_with(shown), "{}", port.caps().mode);
        let peer = udp(&net.b, B, PORT);
        let before = port.now();
        for n in 0..100u64 {
            peer.send_to(&n.to_be_bytes(), (A, PORT)).unwrap();
        }
        let (mut next, mut last) = (0, before);
        until("100 datagrams", || {
            port.wait(tai_now() + 10_000_000).unwrap();
            let mut burst = port.rx().unwrap();
            for i in 0..burst.len() {
                let (frame, stamp) = burst.frame(i);
                assert_eq!(cookie(frame), next);
                assert_eq!(stamp.source, StampSource::Driver);
                assert!(last <= stamp.at && stamp.at <= tai_now());
                (next, last) = (next + 1, stamp.at);
            }
            next == 100
        });
        let stats = port.stats();
        assert_eq!(stats, PortStats { rx_frames: 100, ..PortStats::default() });
    });
}

#[test]
fn in_native_mode_datagrams_arrive_stamped() {
    let mode = XdpMode::Auto;
    in_any_mode_datagrams_arrive_stamped("native", mode, "native copy mode, 1 queue,");
}

#[test]
fn in_generic_mode_datagrams_arrive_stamped() {
    let mode = XdpMode::Generic;
    in_any_mode_datagrams_arrive_stamped("generic", mode, "generic copy mode");
}

#[test]
fn sent_frames_reach_a_socket_and_their_stamps_come_back() {
    with_net("sent frames", LinkOptions::default(), |net| {
        let peer = udp(&net.b, B, PORT);
        let mut port = AfXdp::open(&spec()).unwrap();
        assert_eq!(port.caps().tx_stamp, StampSource::Driver);
        let before = port.now();
        assert_eq!(net.commit(&mut port, 1, 64), 64);
        port.flush().unwrap();
        for n in 1..=64u64 {
            let mut datagram = [0; 64];
            let (len, from) = peer.recv_from(&mut datagram).unwrap();
            assert_eq!(datagram[..len], n.to_be_bytes());
            assert_eq!(from, SocketAddrV4::new(A, PORT).into());
        }
        let mut next = 1;
        until("64 stamps", || {
            for done in port.rx().unwrap().done() {
                assert_eq!(done.cookie, next);
                assert_eq!(done.stamp.source, StampSource::Driver);
                assert!(before <= done.stamp.at && done.stamp.at <= tai_now());
                next += 1;
            }
            next == 65
        });
        let expected = PortStats { tx_frames: 64, tx_stamps: 64, ..PortStats::default() };
        assert_eq!(port.stats(), expected);
    });
}

#[test]
fn a_hundred_thousand_frames_pass_in_order_each_sent_before_it_is_received() {
    with_net("100,000 frames", LinkOptions::default(), |net| {
        const COUNT: u64 = 100_000;
        let mut receiver = inside(&net.b, || AfXdp::open(&spec()).unwrap());
        let mut sender = AfXdp::open(&spec()).unwrap();
        let mut sent_at = vec![Time::MAX; COUNT as usize + 1];
        let mut received_at = vec![Time::ZERO; COUNT as usize + 1];
        let (mut next, mut last, mut received, mut stamped) = (1, 0, 0, 0);
        until("100,000 frames", || {
            let count = BURST.min((COUNT + 1 - next) as usize);
            next += net.commit(&mut sender, next, count) as u64;
            sender.flush().unwrap();
            for done in sender.rx().unwrap().done() {
                assert_eq!(sent_at[done.cookie as usize], Time::MAX, "stamped once");
                sent_at[done.cookie as usize] = done.stamp.at;
                stamped += 1;
            }
            let mut burst = receiver.rx().unwrap();
            for i in 0..burst.len() {
                let (frame, stamp) = burst.frame(i);
                received += 1;
                assert!(cookie(frame) > last, "in order");
                last = cookie(frame);
                received_at[last as usize] = stamp.at;
            }
            // Beside other tests on two processors the peer's queue may fill while it is
            // not run. Every frame that is refused then is counted, by either port.
            let refused = sender.stats().tx_dropped + receiver.stats().rx_dropped;
            received + refused == COUNT && stamped == COUNT
        });
        assert!(received > COUNT * 9 / 10, "only {received} came");
        for n in 1..=COUNT as usize {
            assert!(received_at[n] == Time::ZERO || sent_at[n] <= received_at[n], "frame {n}");
        }
        let stats = sender.stats();
        assert_eq!(stats.tx_frames + stats.tx_dropped, COUNT);
        assert_eq!((stats.tx_stamps, stats.tx_stamp_missing), (COUNT, 0));
        assert_eq!((receiver.stats().rx_frames, receiver.stats().rx_invalid), (received, 0));
    });
}

#[test]
fn frames_are_reflected_in_place_and_no_reply_precedes_its_request() {
    with_net("reflection", LinkOptions::default(), |net| {
        const COUNT: u64 = 5_000; // several times round each ring
        let mut reflector = inside(&net.b, || AfXdp::open(&spec()).unwrap());
        let mut sender = AfXdp::open(&spec()).unwrap();
        let (mut next, mut stamped, mut replies, mut reflected) = (1, 0, 0, 0);
        until("5,000 replies", || {
            let count = BURST.min((COUNT + 1 - next) as usize);
            next += net.commit(&mut sender, next, count) as u64;
            sender.flush().unwrap();
            let mut burst = reflector.rx().unwrap();
            reflected += burst.done().len() as u64;
            for i in 0..burst.len() {
                let frame = burst.frame(i).0;
                turn(frame);
                let cookie = cookie(frame);
                burst.set_verdict(i, Verdict::Transmit { cookie });
            }
            reflector.flush().unwrap();
            let mut burst = sender.rx().unwrap();
            for done in burst.done() {
                stamped += 1;
                assert_eq!(done.cookie, stamped);
            }
            for i in 0..burst.len() {
                let cookie = cookie(burst.frame(i).0);
                replies += 1;
                assert_eq!(cookie, replies);
                assert!(cookie <= stamped, "reply {cookie} came before its request's stamp");
            }
            replies == COUNT && reflected == COUNT
        });
        let stats = reflector.stats();
        assert_eq!((stats.rx_frames, stats.tx_frames, stats.tx_stamps), (COUNT, COUNT, COUNT));
        assert_eq!((stats.rx_dropped, stats.tx_dropped, stats.tx_full), (0, 0, 0));
    });
}

#[test]
fn a_socket_gets_its_reflection_without_a_flush() {
    with_net("reflection to a socket", LinkOptions::default(), |net| {
        let peer = udp(&net.b, B, PORT);
        let mut port = AfXdp::open(&spec()).unwrap();
        peer.send_to(b"to and fro", (A, PORT)).unwrap();
        until("the datagram", || {
            let mut burst = port.rx().unwrap();
            if burst.is_empty() {
                return false;
            }
            turn(burst.frame(0).0);
            burst.set_verdict(0, Verdict::Transmit { cookie: 0 });
            true
        });
        assert!(port.rx().unwrap().is_empty());
        let mut datagram = [0; 64];
        let (len, _) = peer.recv_from(&mut datagram).unwrap();
        assert_eq!(&datagram[..len], b"to and fro");
    });
}

#[test]
fn other_traffic_passes_and_dropping_detaches() {
    with_net("other traffic", LinkOptions::default(), |net| {
        let port = AfXdp::open(&spec()).unwrap();
        let attached = || net.a.run(&["ip", "link", "show", "eth0"]).unwrap().contains("prog/xdp");
        assert!(attached());
        let listener = inside(&net.a, || TcpListener::bind((A, PORT)).unwrap());
        inside(&net.b, || TcpStream::connect((A, PORT)).unwrap());
        drop(listener);
        let ours = udp(&net.a, A, PORT + 1);
        udp(&net.b, B, PORT).send_to(b"not for sonde", (A, PORT + 1)).unwrap();
        let mut datagram = [0; 64];
        let (len, _) = ours.recv_from(&mut datagram).unwrap();
        assert_eq!(&datagram[..len], b"not for sonde");
        drop(port);
        // A command that another test starts holds our descriptors until its exec.
        until("detached", || !attached());
        // And the queue is free again.
        drop(AfXdp::open(&spec()).unwrap());
        until("detached again", || !attached());
    });
}

#[test]
fn the_largest_packet_passes_and_an_empty_frame_is_counted() {
    with_net("largest packet", LinkOptions::default(), |net| {
        let peer = udp(&net.b, B, PORT);
        let mut port = AfXdp::open(&spec()).unwrap();
        let largest = vec![0xa5; 1500 - 28];
        let mut burst = port.tx();
        burst.slot().unwrap();
        burst.commit(0, 1);
        let len = net.frame(burst.slot().unwrap(), &largest);
        burst.commit(len, 2);
        port.flush().unwrap();
        let mut datagram = vec![0; 2000];
        let (len, _) = peer.recv_from(&mut datagram).unwrap();
        assert_eq!(datagram[..len], largest);
        let mut cookies = Vec::new();
        until("one stamp", || {
            cookies.extend(port.rx().unwrap().done().iter().map(|d| d.cookie));
            !cookies.is_empty()
        });
        assert_eq!(cookies, [2]);
        let stats = port.stats();
        assert_eq!((stats.tx_frames, stats.tx_dropped, stats.tx_stamps), (1, 1, 1));
        assert_eq!(port.queues[0].free(), 1024);
    });
}

#[test]
fn the_port_is_kept_from_others_while_open() {
    with_net("port kept", LinkOptions::default(), |_| {
        let port = AfXdp::open(&spec()).unwrap();
        assert_eq!(UdpSocket::bind((A, PORT)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(port);
        until("the port is free", || UdpSocket::bind((A, PORT)).is_ok());
    });
}

#[test]
fn both_queues_of_two_are_served() {
    with_net("two queues", LinkOptions { queues: 2, ..LinkOptions::default() }, |net| {
        let mut port = AfXdp::open(&spec()).unwrap();
        assert!(port.caps().mode.contains("2 queues"), "{}", port.caps().mode);
        // The sending veth chooses the queue by a hash of the flow.
        for n in 0..64u16 {
            udp(&net.b, B, 20_000 + n).send_to(&[n as u8], (A, PORT)).unwrap();
        }
        let mut seen = [false; 64];
        until("64 flows", || {
            let mut burst = port.rx().unwrap();
            for i in 0..burst.len() {
                let frame = burst.frame(i).0;
                turn(frame);
                seen[usize::from(payload(frame)[0])] = true;
                burst.set_verdict(i, Verdict::Transmit { cookie: 1 });
            }
            seen.iter().all(|s| *s)
        });
        let mut stamps = 0;
        until("64 stamps", || {
            stamps += port.rx().unwrap().done().len();
            stamps == 64
        });
        for queue in &port.queues {
            assert!(queue.counts.rx_frames > 0);
            assert_eq!(queue.counts.tx_frames, queue.counts.rx_frames, "back where it came by");
        }
    });
}

#[test]
fn matching_packets_on_a_queue_that_is_not_open_are_counted() {
    with_net("one of two queues", LinkOptions { queues: 2, ..LinkOptions::default() }, |net| {
        let mut port = AfXdp::open(&OpenSpec { queues: vec![1], ..spec() }).unwrap();
        for n in 0..64u16 {
            udp(&net.b, B, 20_000 + n).send_to(&[n as u8], (A, PORT)).unwrap();
        }
        until("64 flows, here or there", || {
            let _ = port.rx().unwrap();
            let stats = port.stats();
            stats.rx_frames > 0 && stats.rx_dropped > 0 && stats.rx_frames + stats.rx_dropped == 64
        });
    });
}

#[test]
fn a_link_that_was_down_sends_nothing_stale() {
    with_net("link down", LinkOptions::default(), |net| {
        let peer = udp(&net.b, B, PORT);
        let mut port = AfXdp::open(&spec()).unwrap();
        let mut lost = 0;
        for round in 0..2 {
            net.a.set_up("eth0", false).unwrap();
            // More than the rings hold: no frame must get lost to the engine itself.
            for _ in 0..100 {
                assert_eq!(net.commit(&mut port, 1000, 64), 64);
                port.flush().unwrap();
                let burst = port.rx().unwrap();
                assert_eq!((burst.len(), burst.done().len()), (0, 0));
            }
            assert_eq!(port.stats().tx_dropped, 6400 * (round + 1) + lost);
            net.a.set_up("eth0", true).unwrap();
            // The first frames may still be refused: by the device, whose carrier comes up
            // on its own time, and by a ring full of emptied descriptors.
            let mut datagram = [0; 64];
            peer.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            until("the link", || {
                net.commit(&mut port, 7, 1);
                port.flush().unwrap();
                let _ = port.rx().unwrap();
                let arrived = peer.recv_from(&mut datagram).is_ok();
                lost += u64::from(!arrived);
                arrived
            });
            assert_eq!(datagram[..8], 7u64.to_be_bytes(), "nothing stale");
            assert_eq!(port.stats().tx_dropped, 6400 * (round + 1) + lost);
        }
        let frames = port.queues[0].free();
        assert_eq!(frames, 1024, "every frame is back");
    });
}

#[test]
fn a_down_peer_costs_frames_that_are_counted() {
    with_net("peer down", LinkOptions::default(), |net| {
        let mut port = AfXdp::open(&spec()).unwrap();
        net.b.set_up("eth0", false).unwrap();
        assert_eq!(net.commit(&mut port, 1, 50), 50);
        port.flush().unwrap();
        let stats = port.stats();
        assert_eq!((stats.tx_frames, stats.tx_dropped), (0, 50));
        until("the frames", || {
            let _ = port.rx().unwrap();
            port.queues[0].free() == 1024
        });
    });
}

#[test]
fn a_removed_interface_is_named() {
    with_net("removed interface", LinkOptions::default(), |net| {
        let mut port = AfXdp::open(&spec()).unwrap();
        net.a.run(&["ip", "link", "del", "eth0"]).unwrap();
        let error = port.wait(tai_now() + 60_000_000_000).unwrap_err();
        assert!(
            matches!(&error, PortError::Sys(SysError::NoInterface(n)) if n == "eth0"),
            "{error}"
        );
        net.commit(&mut port, 1, 1);
        let error = port.flush().unwrap_err();
        assert!(
            matches!(&error, PortError::Sys(SysError::NoInterface(n)) if n == "eth0"),
            "{error}"
        );
    });
}

#[test]
fn on_a_jumbo_link_small_packets_arrive_and_large_ones_are_counted() {
    with_net("jumbo", LinkOptions { mtu: 9000, ..LinkOptions::default() }, |net| {
        let mut port = AfXdp::open(&spec()).unwrap();
        let peer = udp(&net.b, B, PORT);
        peer.send_to(&[1; 8000], (A, PORT)).unwrap();
        peer.send_to(&[2; 1000], (A, PORT)).unwrap();
        until("the small one", || {
            let mut burst = port.rx().unwrap();
            burst.len() == 1 && payload(burst.frame(0).0) == [2; 1000]
        });
        let stats = port.stats();
        assert_eq!((stats.rx_frames, stats.rx_invalid, stats.rx_dropped), (1, 1, 0));
        // No buffer leaked: the fill ring can be gone round with large ones alone.
        for _ in 0..2000 {
            peer.send_to(&[3; 8000], (A, PORT)).unwrap();
            let _ = port.rx().unwrap();
        }
        peer.send_to(&[4; 1000], (A, PORT)).unwrap();
        until("another small one", || {
            let mut burst = port.rx().unwrap();
            burst.len() == 1 && payload(burst.frame(0).0) == [4; 1000]
        });
        assert_eq!(port.stats().rx_invalid, 2001);
    });
}

#[test]
fn a_sender_without_free_frames_is_held_back_and_counted() {
    with_net("no free frame", LinkOptions::default(), |net| {
        let mut port = AfXdp::open(&OpenSpec { ring: 64, ..spec() }).unwrap();
        assert_eq!(net.commit(&mut port, 1, 1000), 64);
        assert_eq!(net.commit(&mut port, 65, 1), 0);
        assert_eq!(port.stats().tx_full, 1);
        port.flush().unwrap();
        let mut stamps = 0;
        until("64 stamps", || {
            stamps += port.rx().unwrap().done().len();
            stamps == 64
        });
        assert_eq!(net.commit(&mut port, 65, 1), 1);
    });
}

#[test]
fn a_receiver_that_does_not_look_loses_packets_by_the_count() {
    with_net("overrun", LinkOptions::default(), |net| {
        let mut port = AfXdp::open(&OpenSpec { ring: 64, ..spec() }).unwrap();
        let peer = udp(&net.b, B, PORT);
        for n in 0..200u64 {
            peer.send_to(&n.to_be_bytes(), (A, PORT)).unwrap();
        }
        until("200 in all", || {
            let stats = port.stats();
            stats.rx_dropped == 200 - 64
        });
        let mut burst = port.rx().unwrap();
        assert_eq!(burst.len(), 64);
        assert_eq!(cookie(burst.frame(63).0), 63);
    });
}

#[test]
fn waiting_ends_with_the_time_or_the_packet() {
    with_net("waiting", LinkOptions::default(), |net| {
        let mut port = AfXdp::open(&spec()).unwrap();
        let end = port.now() + 2_000_000;
        port.wait(end).unwrap();
        assert!(port.now() >= end);
        udp(&net.b, B, PORT).send_to(b"wake up", (A, PORT)).unwrap();
        port.wait(Time::MAX).unwrap();
        assert_eq!(port.rx().unwrap().len(), 1);
    });
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_reason() {
    with_net("settings", LinkOptions::default(), |_| {
        let refused = |spec: OpenSpec| AfXdp::open(&spec).map(drop).unwrap_err().to_string();
        assert!(refused(OpenSpec { interface: None, ..spec() }).contains("--iface"));
        let none = OpenSpec { interface: Some("eth9".into()), ..spec() };
        assert!(refused(none).contains("no interface named 'eth9'"));
        assert!(refused(OpenSpec { ring: 100, ..spec() }).contains("power of two"));
        assert!(refused(OpenSpec { queues: vec![1], ..spec() }).contains("no receive queue 1"));
        let zero_copy = refused(OpenSpec { xdp_mode: XdpMode::ZeroCopy, ..spec() });
        assert!(zero_copy.contains("zero copy") && zero_copy.contains("auto"), "{zero_copy}");
        let _holder = AfXdp::open(&spec()).unwrap();
        assert!(refused(spec()).contains("already runs XDP program"));
    });
}

#[test]
fn busy_polling_can_be_asked_for() {
    with_net("busy polling", LinkOptions::default(), |net| {
        let mut port = AfXdp::open(&OpenSpec { busy_poll: Some(64), ..spec() }).unwrap();
        assert!(port.caps().mode.contains("busy polling"));
        udp(&net.b, B, PORT).send_to(b"one", (A, PORT)).unwrap();
        until("the datagram", || port.rx().unwrap().len() == 1);
    });
}

#[test]
fn a_port_that_transmits_takes_nothing_in() {
    with_net("transmit", LinkOptions { queues: 2, ..LinkOptions::default() }, |net| {
        let spec = OpenSpec { ring: 64, ..OpenSpec::transmit("eth0".into()) };
        let mut port = AfXdp::open(&spec).unwrap();
        assert_eq!(port.caps().mode, "copy mode, transmit only, need-wakeup");
        assert!(!net.a.run(&["ip", "link", "show", "eth0"]).unwrap().contains("prog/xdp"));
        // The host has all its UDP ports, and all that comes.
        let (own, peer) = (udp(&net.a, A, PORT), udp(&net.b, B, PORT));
        let mut datagram = [0; 64];
        for n in 0..20 {
            // Several times round the ring.
            assert_eq!(net.commit(&mut port, 10 * n, 10), 10);
            port.flush().unwrap();
            for i in 0..10 {
                let (len, _) = peer.recv_from(&mut datagram).unwrap();
                assert_eq!(datagram[..len], (10 * n + i).to_be_bytes());
            }
            peer.send_to(b"back", (A, PORT)).unwrap();
            assert_eq!(own.recv(&mut datagram).unwrap(), 4);
        }
        // Completions are no reason to wake up.
        let end = port.now() + 2_000_000;
        port.wait(end).unwrap();
        assert!(port.now() >= end);
        let burst = port.rx().unwrap();
        assert_eq!((burst.len(), burst.done().len()), (0, 0));
        assert_eq!(port.stats(), PortStats { tx_frames: 200, ..PortStats::default() });
        let refused = AfXdp::open(&OpenSpec { xdp_mode: XdpMode::ZeroCopy, ..spec });
        assert!(refused.err().unwrap().to_string().contains("copy mode"));
    });
}

#[test]
fn a_filter_without_ports_is_refused_by_every_engine() {
    let spec = OpenSpec::new(Some("lo".into()), crate::Filter::default());
    for engine in [crate::Engine::Socket, crate::Engine::AfPacket, crate::Engine::AfXdp] {
        let refused = crate::open(engine, &spec).err().unwrap().to_string();
        assert!(refused.contains("filter without a UDP port"), "{refused}");
    }
    let transmit = OpenSpec::transmit("lo".into());
    let refused = crate::open(crate::Engine::Socket, &transmit).err().unwrap().to_string();
    assert!(refused.contains("use af_packet or af_xdp"), "{refused}");
}
