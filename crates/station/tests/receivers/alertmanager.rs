//! Alertmanager: what the station raises comes out at its webhook, and so does the end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::bed::{Bed, accepts, free_port, program};

/// What comes to a webhook of Alertmanager's.
fn webhook() -> (u16, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
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
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
            if tell.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (port, told)
}

#[test]
fn an_alert_lasts_in_alertmanager_as_long_as_in_the_station() {
    let test = "an_alert_lasts_in_alertmanager_as_long_as_in_the_station";
    let name = "prometheus-alertmanager";
    let Some(mut command) = program(test, name, name) else { return };
    let bed = Bed::new("alertmanager");
    let (hook, told) = webhook();
    let config = format!(
        "route:\n  receiver: it\n  group_wait: 0s\n  group_interval: 1s\nreceivers:\n- name: it\n  \
         webhook_configs:\n  - url: http://127.0.0.1:{hook}/\n"
    );
    let port = free_port();
    command
        .args(["--config.file", &bed.write("config.yml", &config)])
        .args(["--storage.path", &bed.path("data")])
        .args(["--web.listen-address", &format!("127.0.0.1:{port}"), "--cluster.listen-address="]);
    let _program = bed.start(command);
    bed.until("its port", || accepts(port));

    let station =
        bed.station("alertmanager", &format!("url = 'http://127.0.0.1:{port}'\nresend = '10s'"));
    station.raise(None);
    let next = || told.recv_timeout(Duration::from_secs(60)).expect("nothing from Alertmanager");
    let firing = next();
    assert_eq!(firing["status"], "firing");
    let alert = &firing["alerts"][0];
    assert_eq!(alert["labels"]["target"], "192.0.2.1");
    assert_eq!(alert["annotations"]["summary"], "ber to münchen loses packets");
    assert_eq!(alert["generatorURL"], "https://sonde.example/events/1");

    // It ends there by itself after four times 10 s, unless it is sent again before.
    let ends = || {
        let answer = ureq::get(&format!("http://127.0.0.1:{port}/api/v2/alerts")).call();
        let text = answer.unwrap().into_body().read_to_string().unwrap();
        let alerts: Value = serde_json::from_str(&text).unwrap();
        alerts[0]["endsAt"].as_str().map(str::to_owned)
    };
    let first = ends().expect("it lasts");
    bed.until("the alert again", || ends().is_some_and(|later| later > first));
    bed.until("both taken", || station.status().delivered >= 2);

    station.end();
    let resolved = next();
    assert_eq!(resolved["status"], "resolved");
    assert_eq!(resolved["alerts"][0]["annotations"]["duration"], "3 m 05 s");
    bed.until("nothing to last", || ends().is_none());
    let status = station.status();
    assert_eq!((status.failures, status.given_up), (0, 0), "{status:?}");
}
