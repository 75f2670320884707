//! Application protocols over TCP.

use super::*;

fn http(method: &str, host: &str, target: &str, user_agent: &str, status: u16) -> App {
    App::Http {
        method: method.into(),
        host: host.into(),
        target: target.into(),
        user_agent: user_agent.into(),
        status,
    }
}

const REQUEST: &str =
    "GET /a?b HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nuser-agent: test/1 (x; y)\r\n\r\n";

#[test]
fn http_request_and_status() {
    let want = http("GET", "example.org", "/a?b", "test/1 (x; y)", 404);
    let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\nno";
    let talk = Talk::tcp(8080).ask(REQUEST).answer(answer).answer("more");
    assert_eq!(talk.run(), (Some(want.clone()), 4));
    // In pieces, and with the answer before the request, as captures may have it.
    assert_eq!(talk.clone().cut(7).app(), want);
    let mut swapped = talk.clone();
    swapped.packets.swap(2, 3);
    assert_eq!(swapped.app(), want);
    // Without an answer, and the answer alone.
    assert_eq!(
        Talk::tcp(80).ask(REQUEST).app(),
        http("GET", "example.org", "/a?b", "test/1 (x; y)", 0)
    );
    assert_eq!(Talk::tcp(80).answer(answer).app(), http("", "", "", "", 404));
}

#[test]
fn http_interim_answers_do_not_count() {
    let talk = Talk::tcp(80).ask("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n");
    let talk = talk.answer("HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(talk.app(), http("PUT", "h", "/", "", 100), "while there is no other");
    let talk = talk.ask("body").answer("HTTP/1.1 201 Created\r\n");
    assert_eq!(talk.app(), http("PUT", "h", "/", "", 201));
    let switching = Talk::tcp(80).ask(REQUEST).answer("HTTP/1.1 101 Switching Protocols\r\n\r\n");
    assert_eq!(switching.run().1, 4, "this one is final");
}

#[test]
fn http_requests_that_are_not_whole() {
    // A cookie beyond the bound; cut off by the capture; more fields than are read.
    let long = REQUEST.replace("*/*", &"x".repeat(9000));
    let want = http("GET", "example.org", "/a?b", "", 0);
    assert_eq!(Talk::tcp(80).ask(&long).cut(1400).app(), want);
    assert_eq!(Talk::tcp(80).ask(REQUEST).trim(60).app(), want);
    let many = REQUEST.replace("Accept", &"X: y\r\n".repeat(70));
    assert_eq!(Talk::tcp(80).ask(&many).app(), want);
    // What is no HTTP after all.
    for other in ["GET nonsense", "OPTIONS rtsp://h/x RTSP/1.0\r\nCSeq: 1\r\n\r\n"] {
        let (found, _) = Talk::tcp(80).ask(other).answer("what").run();
        assert_eq!(found, None, "{other}");
    }
}

/// RFC 9110, section 16.1: methods can be added. These are of WebDAV, CalDAV, caches and UPnP.
#[test]
fn http_methods_that_others_define() {
    for method in ["PROPFIND", "MKCALENDAR", "PURGE", "M-SEARCH", "VERSION-CONTROL", "x!"] {
        let request = format!("{method} /a/rather/long/path HTTP/1.1\r\nHost: example.org\r\n\r\n");
        let want = http(method, "example.org", "/a/rather/long/path", "", 207);
        let talk = Talk::tcp(80).ask(&request).answer("HTTP/1.1 207 Multi-Status\r\n\r\n");
        assert_eq!(talk.app(), want, "{method}");
    }
    let request = "PROPFIND /a/rather/long/path HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let want = http("PROPFIND", "example.org", "/a/rather/long/path", "", 0);
    assert_eq!(Talk::tcp(80).ask(request).cut(7).app(), want);
    assert_eq!(Talk::tcp(80).ask(format!("\r\n{request}")).app(), want);
    let long = format!("LOCK /{} HTTP/1.1\r\nHost: h\r\n\r\n", "t".repeat(2_000));
    let App::Http { method, target, .. } = Talk::tcp(80).ask(&long).cut(1_400).app() else {
        panic!()
    };
    assert_eq!((method.as_str(), target.len()), ("LOCK", 255));
    for other in [
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "DESCRIBE rtsp://h/x RTSP/1.0\r\nCSeq: 1\r\n\r\n",
        "CWD /home/somebody/with/a/long/name\r\n",
        "a b HTTP/1.x\r\n and something more behind it",
        " / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    ] {
        assert_eq!(Talk::tcp(8000).ask(other).run().0, None, "{other}");
    }
}

#[test]
fn http_text_is_bounded_and_harmless() {
    let target = format!("/{}", "t".repeat(600));
    let talk = Talk::tcp(80)
        .ask(format!("GET {target} HTTP/1.1\r\nHost: a\tb\r\nUser-Agent: \u{FC}\r\n\r\n"));
    let App::Http { host, target: found, user_agent, .. } = talk.app() else { panic!() };
    assert_eq!(found, target[..255]);
    assert_eq!((host.as_str(), user_agent.as_str()), ("a\u{FFFD}b", "\u{FC}"));
}

#[test]
fn ssh_identifications() {
    let want = App::Ssh { client: "SSH-2.0-client".into(), server: "SSH-2.0-server x".into() };
    // The server may speak first, and say something before.
    let talk = Talk::tcp(22).answer("SSH-2.0-server x\r\n").ask("SSH-2.0-client\r\n");
    assert_eq!(talk.run(), (Some(want.clone()), 4));
    assert_eq!(talk.cut(3).app(), want);
    let talk = Talk::tcp(2222).ask("SSH-2.0-client\n").answer("hello\r\nSSH-2.0-server x\r\n");
    assert_eq!(talk.app(), want);
    // The first packet seen is the server's: its port shows it.
    let mut late = Talk::tcp(22).answer("SSH-2.0-server x\r\n").ask("SSH-2.0-client\r\n");
    late.packets.drain(..2);
    late.ports.swap(0, 1);
    for said in &mut late.packets {
        said.reverse = !said.reverse;
    }
    assert_eq!(late.app(), want);
    // A line without an end.
    assert_eq!(Talk::tcp(22).ask(format!("SSH-{}", "x".repeat(9000))).run().0, None);
}

fn smtp(helo: &str, from: &str, to: &str, starttls: bool) -> App {
    App::Smtp { helo: helo.into(), from: from.into(), to: to.into(), starttls }
}

#[test]
fn smtp_commands() {
    let talk = Talk::tcp(25)
        .answer("220 mail.example ready\r\n")
        .ask("EHLO client.example\r\n")
        .answer("250-mail.example\r\n250 STARTTLS\r\n")
        .ask("MAIL FROM:<a@example.org> SIZE=100\r\n")
        .answer("250 ok\r\n")
        .ask("RCPT TO:<b@example.net>\r\n");
    let want = smtp("client.example", "a@example.org", "b@example.net", false);
    assert_eq!(talk.app(), want);
    assert_eq!(talk.clone().cut(12).app(), want);
    assert_eq!(talk.clone().cut(3).app(), smtp("client.example", "", "", false), "16 packets");
    // Pipelined (RFC 2920), and no greeting at hand.
    let lines = "helo c\r\nmail from: a@b X=1\r\nRCPT TO:<>\r\nDATA\r\n";
    assert_eq!(Talk::tcp(9925).ask(lines).app(), smtp("c", "a@b", "", false));
    // What follows STARTTLS is another protocol.
    let talk =
        Talk::tcp(587).answer("220 x ESMTP\r\n").ask("EHLO c\r\n").answer("250 STARTTLS\r\n");
    let talk = talk.ask("STARTTLS\r\n").answer("220 go\r\n").ask([22, 3, 1, 0, 1, 1]);
    assert_eq!(talk.run(), (Some(smtp("c", "", "", true)), 6));
    // Another protocol greets like this, too.
    assert_eq!(
        Talk::tcp(21).answer("220 FTP ready for you\r\n").ask("USER anonymous\r\n").run().0,
        None
    );
}

#[test]
fn credentials_are_not_kept() {
    let talk = Talk::tcp(587)
        .answer("220 x ESMTP\r\n")
        .ask("EHLO c\r\n")
        .ask("AUTH PLAIN c2VjcmV0\r\n")
        .ask("MAIL FROM:<a@b>\r\n");
    let shown = format!("{:?}", talk.app());
    assert!(!shown.contains("c2VjcmV0") && shown.contains("a@b"), "{shown}");
}

#[test]
fn dns_over_tcp() {
    let query = super::datagrams::query(7, "www.example.org", 28);
    let mut answer = query.clone();
    answer[2] |= 0x80;
    answer[3] |= 3;
    answer[7] = 4;
    let framed = |message: &[u8]| [&(message.len() as u16).to_be_bytes()[..], message].concat();
    let talk = Talk::tcp(53).ask(framed(&query)).answer(framed(&answer));
    let want = |rcode: Option<u8>, answers: u16, latency_ns: u64| App::Dns {
        name: "www.example.org".into(),
        qtype: 28,
        rcode,
        answers,
        latency_ns,
    };
    assert_eq!(talk.run(), (Some(want(Some(3), 4, MS as u64)), 4));
    assert_eq!(talk.clone().cut(20).app(), want(Some(3), 4, 2 * MS as u64));
    assert_eq!(Talk::tcp(53).ask(framed(&query)).app(), want(None, 0, 0));
}

#[test]
fn sip_over_tcp() {
    let talk = Talk::tcp(5060).ask(super::datagrams::INVITE).answer(super::datagrams::BUSY);
    let App::Sip { method, status, .. } = talk.app() else { panic!() };
    assert_eq!((method.as_str(), status), ("INVITE", 486));
    // Behind a provisional answer with a body.
    let trying = super::datagrams::BUSY
        .replace("486 Busy Here", "183 Session Progress")
        .replace("\r\n\r\n", "\r\nl: 5\r\n\r\n12345\r\n");
    let both = format!("{trying}{}", super::datagrams::BUSY);
    for talk in [
        Talk::tcp(5060).ask(super::datagrams::INVITE).answer(&both),
        Talk::tcp(5060).ask(super::datagrams::INVITE).answer(&both).cut(90),
    ] {
        let App::Sip { status, .. } = talk.app() else { panic!() };
        assert_eq!(status, 486);
    }
}

#[test]
fn unknown_protocols_are_given_up() {
    let noise = "\x01\x02\x03\x04 something that nobody knows";
    assert_eq!(Talk::tcp(9999).ask(noise).answer(noise).ask(noise).run(), (None, 4));
    // One direction only.
    let talk = Talk::tcp(9999).ask(noise).ask(noise).ask(noise).ask(noise).ask(noise);
    assert_eq!(talk.run(), (None, 4));
    // The other direction is known.
    let talk = Talk::tcp(9999).ask(noise).answer("SSH-2.0-x\r\n");
    assert_eq!(talk.app(), App::Ssh { client: "".into(), server: "SSH-2.0-x".into() });
}
