//! Receivers that hang, cannot now, or refuse: each has its own queue, and holds up nobody.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use crate::network::{Network, PROBE};

/// Answers with each of these status lines in turn, then with the last for ever. What came with it
/// goes to the other end.
fn receiver(listener: TcpListener, answers: Vec<&'static str>) -> Receiver<(&'static str, String)> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        let mut answer = "";
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            answer = answers.next().unwrap_or(answer);
            let text =
                format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(text.as_bytes());
            if tell.send((answer, String::from_utf8(body).unwrap())).is_err() {
                return;
            }
        }
    });
    told
}

#[test]
fn a_receiver_that_hangs_or_refuses_holds_up_nobody() {
    let test = "a_receiver_that_hangs_or_refuses_holds_up_nobody";
    if sonde_lab::skip(test) {
        return;
    }
    let export = |name: &str, port: u16| {
        format!(
            "[export.{name}]\nkind = 'influx'\nurl = 'http://127.0.0.1:{port}/write'\nevery = '1s'\n"
        )
    };
    let network = Network::new("hanging", PROBE);
    let listen = |port: u16| {
        network.near.inside(move || TcpListener::bind(("127.0.0.1", port)).unwrap()).unwrap()
    };
    // The kernel takes the connection, and nobody reads it.
    let _hangs = listen(7001);
    let later = "503 Service Unavailable\r\nRetry-After: 1";
    let told = receiver(listen(7002), vec![later, "400 Bad Request", "204 No Content"]);
    network.reload(&format!("{PROBE}{}{}", export("hangs", 7001), export("takes", 7002)));
    network.bed.until("lines", || network.export("takes")["delivered_points"].as_u64() > Some(30));
    let (takes, hangs) = (network.export("takes"), network.export("hangs"));
    assert_eq!((&takes["failures"], &takes["dropped_points"]), (&1.into(), &0.into()), "{takes}");
    assert!(takes["failing_since"].is_null(), "{takes}");
    assert!(takes["last_error"].as_str().unwrap().contains("400"), "{takes}");
    assert_eq!(hangs["delivered_points"], 0, "{hangs}");
    assert!(hangs["waiting"].as_u64() > Some(1), "{hangs}");
    // What could not be taken came again, as it was.
    let all: Vec<_> = told.try_iter().collect();
    assert_eq!((all[0].0, all[1].0), (later, "400 Bad Request"));
    assert_eq!(all[0].1, all[1].1);
    let lines = |body: &str| body.lines().count() as u64;
    assert_eq!(takes["refused_points"], lines(&all[1].1), "{takes}");
    let taken: u64 = all[2..].iter().map(|(_, body)| lines(body)).sum();
    // More may have come meanwhile.
    assert!(taken >= takes["delivered_points"].as_u64().unwrap(), "{taken} {takes}");
    let health = network.client().get("/sonde/v1/station/health").unwrap();
    let queues = health["queues"].as_array().unwrap();
    assert!(queues.iter().any(|queue| queue["reader"] == "exports"), "{health}");
    assert!(queues.iter().all(|queue| queue["dropped"] == 0), "{health}");
    // The request that hangs does not hold the station's end up, either.
}
