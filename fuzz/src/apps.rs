//! What the fuzzer of applications does with its bytes: they are one flow's packets.
//! crates/meter/tests/corpora.rs does the same with the checked-in corpus.

use sonde_meter::flow::features::{Config, Features};
use sonde_results::flow::App;
use sonde_wire::feature::{Feature, Layers};

/// A flow: an octet that says TCP (1) or UDP (0), the server's port, then packets. Each has
/// an octet of [`REVERSE`], [`SYN`] and [`LONGER`], how far its sequence number is from
/// where it belongs, two octets of length, and its payload.
pub fn apps(data: &[u8]) {
    let [tcp, high, low, rest @ ..] = data else { return };
    let mut rest = rest;
    let (tcp, port) = (tcp & 1 != 0, u16::from_be_bytes([*high, *low]));
    let config = Config { link: true, packets: 4, spread: true, tcp: true, apps: true };
    let mut features = Features::new(&config, 1);
    let mut next = [1u32, u32::MAX - 9];
    let mut at_ns = 0;
    while let [bits, off, high, low, more @ ..] = rest {
        let len = more.len().min(u16::from_be_bytes([*high, *low]).into());
        let (frame, behind) = more.split_at(len);
        rest = behind;
        let reverse = bits & REVERSE != 0;
        let d = usize::from(reverse);
        let [source_port, destination_port] = if reverse { [port, 40_000] } else { [40_000, port] };
        let longer = if bits & LONGER != 0 { 1200 } else { 0 };
        let packet = Feature {
            at_ns,
            source_port,
            destination_port,
            protocol: if tcp { 6 } else { 17 },
            sequence: next[d].wrapping_add_signed((*off as i8).into()),
            tcp_flags: if bits & SYN != 0 { 2 } else { 16 },
            headers: 7,
            ip_len: 28 + longer + len as u32,
            ..Feature::default()
        };
        next[d] = next[d].wrapping_add(len as u32 + u32::from(bits & SYN != 0));
        let layers = Layers { end: len as u16, ..Layers::default() };
        if at_ns == 0 {
            features.created(0, &packet, frame, &layers);
        }
        features.packet(0, reverse, &packet, frame, &layers);
        at_ns += 1_000_000;
    }
    if at_ns > 0 {
        let extra = features.ended(0).expect("fields were asked for");
        assert!(extra.packets.len() <= 4);
        extra.app.iter().flat_map(strings).for_each(|string| {
            assert!(string.len() <= 255 && !string.chars().any(char::is_control), "{string:?}");
        });
    }
}

fn strings(app: &App) -> Vec<&String> {
    match app {
        App::Tls(tls) | App::Quic { tls, .. } => vec![&tls.sni, &tls.alpn, &tls.ja3, &tls.ja4],
        App::Dns { name, .. } => vec![name],
        App::Http { method, host, target, user_agent, .. } => {
            vec![method, host, target, user_agent]
        }
        App::Ssh { client, server } => vec![client, server],
        App::Ntp { .. } => vec![],
        App::Sip { method, call_id, from, to, .. } => vec![method, call_id, from, to],
        App::Smtp { helo, from, to, .. } => vec![helo, from, to],
        App::Dhcp { host_name, vendor, .. } => vec![host_name, vendor],
    }
}

const REVERSE: u8 = 1;
const SYN: u8 = 2;
/// The packet was longer than what was captured of it.
const LONGER: u8 = 4;
