//! Whatever comes: no panic, no more memory than promised, strings that can be shown.

use proptest::prelude::*;

use super::tls::{browser, record};
use super::*;

/// Beginnings that lead into each parser.
fn beginnings() -> Vec<(bool, Vec<u8>)> {
    let mut dhcp = vec![0; 240];
    dhcp[..3].copy_from_slice(&[1, 1, 6]);
    dhcp[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    let mut quic = hex("c000000001088394c8f03e51570800");
    quic.extend([0x44, 0x9E]);
    vec![
        (true, record(&browser("www.example.org").message())),
        (true, b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\n\r\n".to_vec()),
        (true, b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n".to_vec()),
        (true, b"SSH-2.0-x\r\n".to_vec()),
        (true, b"220 x ESMTP\r\n".to_vec()),
        (true, b"EHLO x\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\n".to_vec()),
        (true, super::datagrams::INVITE.into()),
        (false, super::datagrams::INVITE.into()),
        (false, super::datagrams::BUSY.into()),
        (false, super::datagrams::query(1, "www.example.org", 1)),
        (false, dhcp),
        (false, vec![0x23; 48]),
        (false, quic),
        (true, vec![]),
        (false, vec![]),
    ]
}

fn check(app: &App) {
    for string in strings(app) {
        assert!(string.len() <= text::MAX_TEXT && !string.chars().any(char::is_control));
    }
}

/// The strings of a result.
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

proptest! {
    /// A good beginning with octets changed, then anything, in any pieces and order.
    #[test]
    fn anything(
        kind in 0usize..15,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        more in proptest::collection::vec((any::<bool>(), any::<Vec<u8>>()), 0..6),
        port in prop_oneof![Just(443u16), Just(53), Just(123), Just(25), any::<u16>()],
        cut in 1usize..400,
        shuffle: u64,
        trim in prop_oneof![Just(usize::MAX), 0usize..200],
    ) {
        let (tcp, mut start) = beginnings().swap_remove(kind);
        for (at, value) in changes {
            if !start.is_empty() {
                let at = at.index(start.len());
                start[at] = value;
            }
        }
        let mut talk = if tcp { Talk::tcp(port) } else { Talk::udp(port) };
        talk = talk.ask(start);
        for (reverse, data) in more {
            talk = talk.say(reverse, data);
        }
        if tcp {
            talk = talk.cut(cut);
        }
        fastrand::Rng::with_seed(shuffle).shuffle(&mut talk.packets);
        let talk = talk.trim(trim);
        let mut apps = Apps::new(1);
        apps.created(0);
        for i in 0..talk.packets.len() {
            talk.packet(i, 0, &mut apps);
            prop_assert!(apps.held[0] <= 20 * 1024 && apps.held[1] <= 2048);
        }
        if let Some(app) = apps.ended(0) {
            check(&app);
        }
        prop_assert_eq!(apps.held, [0; 2]);
    }

    /// However a connection is cut, and in whichever order a few segments come, what is
    /// reported of it is the same.
    #[test]
    fn segments_do_not_matter(kind in 0usize..6, cuts in 1usize..6, shuffle: u64) {
        let hello = record(&browser("www.example.org").message());
        let talk = match kind {
            0 => Talk::tcp(443).ask(&hello).answer([21, 3, 3, 0, 2, 2, 70]),
            1 => Talk::tcp(80).ask("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").answer("HTTP/1.1 204 No\r\n\r\n"),
            2 => Talk::tcp(22).ask("SSH-2.0-a\r\n").answer("SSH-2.0-b\r\n"),
            3 => Talk::tcp(25).ask("EHLO abcdefghijklmnop\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\n"),
            4 => Talk::tcp(5060).ask(super::datagrams::INVITE).answer(super::datagrams::BUSY),
            _ => Talk::tcp(9).ask(&hello),
        };
        let want = talk.app();
        let longest = talk.packets.iter().map(|said| said.data.len()).max().unwrap();
        let mut pieces = talk.cut(longest.div_ceil(cuts));
        fastrand::Rng::with_seed(shuffle).shuffle(&mut pieces.packets[2..]);
        prop_assert_eq!(pieces.app(), want);
    }
}
