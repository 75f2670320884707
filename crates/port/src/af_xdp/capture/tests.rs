//! Everything that comes in by one end of a veth pair of several queues.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use sonde_lab::LinkOptions;
use sonde_sys::clock::tai_now;
use sonde_wire::{StampSource, Verdict};

use crate::af_xdp::AfXdp;
use crate::af_xdp::tests::net::{A, B, PORT, cookie, inside, turn, udp, until, with_net};
use crate::{Engine, Filter, OpenSpec, Port, XdpMode, open, open_group};

fn spec(snap: usize) -> OpenSpec {
    OpenSpec { consume: true, snap, ring: 1024, ..OpenSpec::watching("eth0".into()) }
}

#[test]
fn each_frame_is_seen_once_cut_and_not_by_the_host() {
    for (xdp_mode, shown) in [(XdpMode::Auto, "native"), (XdpMode::Generic, "generic")] {
        let options = LinkOptions { queues: 2, ..LinkOptions::default() };
        with_net("capture", options, |net| {
            let own = udp(&net.a, A, PORT);
            own.set_nonblocking(true).unwrap();
            let mut ports = AfXdp::capture(&OpenSpec { xdp_mode, ..spec(100) }, 2).unwrap();
            assert_eq!(ports.len(), 2);
            let mode = &ports[1].caps().mode;
            assert!(mode.starts_with(shown) && mode.contains("1 queue"), "{mode}");
            let before = tai_now();
            // By many sockets, so that both queues are used: the kernel takes one by a hash.
            let sockets: Vec<UdpSocket> =
                inside(&net.b, || (0..64).map(|_| UdpSocket::bind((B, 0)).unwrap()).collect());
            for n in 0..640u32 {
                let mut payload = vec![0; if n % 2 == 0 { 500 } else { 20 }];
                payload[..4].copy_from_slice(&n.to_be_bytes());
                sockets[n as usize % 64].send_to(&payload, (A, PORT)).unwrap();
            }
            let mut seen = BTreeSet::new();
            let mut used = [0; 2];
            until(&format!("640 frames in {shown} mode"), || {
                for (port, used) in ports.iter_mut().zip(&mut used) {
                    port.wait(tai_now() + 1_000_000).unwrap();
                    let mut burst = port.rx().unwrap();
                    for i in 0..burst.len() {
                        let wire_len = burst.wire_len(i);
                        let (frame, stamp) = burst.frame(i);
                        if frame[23] != 17 || frame[36..38] != PORT.to_be_bytes() {
                            continue; // the hosts' own, such as neighbour discovery
                        }
                        let n = u32::from_be_bytes(frame[42..46].try_into().unwrap());
                        let lengths = if n % 2 == 0 { (100, 542) } else { (62, 62) };
                        assert_eq!((frame.len(), wire_len), lengths);
                        assert_eq!(stamp.source, StampSource::Driver);
                        assert!(before <= stamp.at && stamp.at <= tai_now());
                        assert!(seen.insert(n), "frame {n} twice");
                        *used += 1;
                    }
                }
                seen.len() == 640
            });
            // The generic hook knows of no queue on virtual Ethernet: all is the first one's.
            assert_eq!(used.iter().all(|&n| n > 0), shown == "native", "{used:?}");
            for port in &mut ports {
                let stats = port.stats();
                assert_eq!((stats.rx_dropped, stats.rx_invalid, stats.tx_frames), (0, 0, 0));
                assert!(port.tx().slot().is_none(), "nothing can be sent");
            }
            assert!(own.recv(&mut [0; 9]).is_err(), "the host got none");
            drop(ports);
            sockets[0].send_to(b"again", (A, PORT)).unwrap();
            until("the host's packet", || own.recv(&mut [0; 9]).is_ok());
        });
    }
}

#[test]
fn there_are_no_more_ports_than_queues_and_whole_frames_are_whole() {
    with_net("capture, one queue", LinkOptions::default(), |net| {
        let mut ports = open_group(Engine::AfXdp, &spec(usize::MAX), 4).unwrap();
        assert_eq!(ports.len(), 1);
        let peer = udp(&net.b, B, PORT);
        peer.send_to(&[9; 1400], (A, PORT)).unwrap();
        until("a whole frame", || {
            ports[0].wait(tai_now() + 1_000_000).unwrap();
            let mut burst = ports[0].rx().unwrap();
            (0..burst.len()).any(|i| burst.wire_len(i) == 1442 && burst.frame(i).0.len() == 1442)
        });
    });
}

#[test]
fn an_overrun_is_counted() {
    with_net("capture, overrun", LinkOptions::default(), |net| {
        let mut port = open(Engine::AfXdp, &OpenSpec { ring: 64, ..spec(128) }).unwrap();
        let peer = udp(&net.b, B, PORT);
        for _ in 0..1000 {
            peer.send_to(&[9; 30], (A, PORT)).unwrap();
        }
        let mut seen = 0;
        until("all frames", || {
            let mut burst = port.rx().unwrap();
            for i in 0..burst.len() {
                let (frame, _) = burst.frame(i);
                seen += u64::from(frame[23] == 17 && frame[36..38] == PORT.to_be_bytes());
            }
            // The hosts' own frames may be among the dropped.
            seen + port.stats().rx_dropped >= 1000
        });
        assert!((64..1000).contains(&seen), "{seen}");
    });
}

#[test]
fn what_would_cut_the_host_off_must_be_asked_for() {
    let spec = OpenSpec { consume: false, ..spec(128) };
    let refused = open_group(Engine::AfXdp, &spec, 1).err().unwrap();
    assert!(refused.to_string().contains("use af_packet to watch"));
}

/// A mirror port's card would drop what is addressed to others before XDP sees it.
#[test]
fn capturing_is_promiscuous_for_as_long_as_it_lasts() {
    with_net("capture promiscuous", LinkOptions::default(), |net| {
        let modes = || net.a.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
        let ports = AfXdp::capture(&spec(100), 1).unwrap();
        assert!(modes().contains("promiscuity 1"), "{}", modes());
        drop(ports);
        assert!(modes().contains("promiscuity 0"), "{}", modes());
    });
}

#[test]
fn one_thread_takes_everything_while_another_sends() {
    for (xdp_mode, shown) in [(XdpMode::Auto, "native"), (XdpMode::Generic, "generic")] {
        let options = LinkOptions { queues: 2, ..LinkOptions::default() };
        with_net("capture and send", options, |net| {
            const COUNT: u64 = 20_000; // several times round each ring
            let spec = OpenSpec { xdp_mode, ..spec(usize::MAX) };
            let (mut receiver, mut sender) = AfXdp::capture_and_send(&spec).unwrap();
            assert!(receiver.caps().mode.starts_with(shown));
            assert_eq!(
                sender.caps().mode,
                format!("{shown} copy mode, transmit only, need-wakeup")
            );
            assert!(receiver.tx().slot().is_none() && sender.caps().max_frame == 1518);
            // The other end sends back what comes, counted by what it refuses and loses.
            let mut mirror = inside(&net.b, || {
                let filter = Filter { local_ports: vec![PORT], ..Filter::default() };
                AfXdp::open(&OpenSpec::new(Some("eth0".into()), filter)).unwrap()
            });
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let mirrored = scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let mut burst = mirror.rx().unwrap();
                        for i in 0..burst.len() {
                            turn(burst.frame(i).0);
                            burst.set_verdict(i, Verdict::Transmit { cookie: 0 });
                        }
                        mirror.flush().unwrap();
                    }
                    mirror.stats()
                });
                let sent = scope.spawn(|| {
                    let mut next = 0;
                    while next < COUNT {
                        let count = 32.min((COUNT - next) as usize);
                        next += net.commit(&mut sender, next, count) as u64;
                        sender.flush().unwrap();
                        // Slow enough for two rings that one processor may have to serve.
                        let until = sender.now() + 50_000;
                        sender.wait(until).unwrap();
                    }
                    assert!(sender.rx().unwrap().is_empty());
                    sender.stats()
                });
                let (mut seen, mut last) = (BTreeSet::new(), tai_now());
                while tai_now() - last < 1_000_000_000 && seen.len() < COUNT as usize {
                    let until = receiver.now() + 1_000_000;
                    receiver.wait(until).unwrap();
                    let mut burst = receiver.rx().unwrap();
                    for i in 0..burst.len() {
                        let (frame, _) = burst.frame(i);
                        if frame[23] == 17 && frame[36..38] == PORT.to_be_bytes() {
                            assert!(seen.insert(cookie(frame)), "twice");
                            last = tai_now();
                        }
                    }
                }
                stop.store(true, Ordering::Relaxed);
                let (sent, mirrored) = (sent.join().unwrap(), mirrored.join().unwrap());
                assert_eq!(sent.tx_frames + sent.tx_dropped, COUNT);
                assert_eq!((sent.rx_frames, sent.tx_stamps), (0, 0));
                // Each frame that did not come back was counted by somebody.
                let refused = sent.tx_dropped + mirrored.rx_dropped + mirrored.tx_dropped;
                let dropped = refused + receiver.stats().rx_dropped;
                assert_eq!(seen.len() as u64 + dropped, COUNT, "{sent:?} {mirrored:?}");
                assert!(seen.len() as u64 > COUNT / 2, "only {} came back", seen.len());
                assert_eq!(receiver.stats().tx_frames, 0);
            });
            // Either half may go first, and the queue is free when both have gone.
            drop(receiver);
            assert_eq!(net.commit(&mut sender, 1, 1), 1);
            sender.flush().unwrap();
            drop(sender);
            drop(AfXdp::capture_and_send(&spec).unwrap());
        });
    }
}
