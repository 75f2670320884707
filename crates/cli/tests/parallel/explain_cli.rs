//! `sonde explain` against a socket that answers as a station does.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Asks for an event of a station that answers once, so.
fn explain(name: &str, status: u16, body: Value, more: &[&str]) -> (Output, String) {
    let socket: PathBuf =
        std::env::temp_dir().join(format!("sonde-explain-cli-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(stream, "HTTP/1.0 {status} x\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        request
    });
    let sonde = Command::new(env!("CARGO_BIN_EXE_sonde"))
        .args(["explain", "12", "--socket"])
        .arg(&socket)
        .args(more)
        .output()
        .unwrap();
    let request = answering.join().unwrap();
    let _ = std::fs::remove_file(&socket);
    (sonde, request)
}

fn explanation(grade: &str) -> Value {
    let at = |ms: i64| json!({"ms": ms, "utc": "x"});
    json!({
        "event": "12", "grade": grade, "text": ["Target muc explains 98% of the excess."],
        "onset": at(1_795_953_797_300_i64), "to": at(1_795_953_798_100_i64),
        "baseline_from": at(1_795_953_787_000_i64), "baseline_to": at(1_795_953_797_200_i64),
        "baseline_windows": 12, "series": 8, "acquitted": [], "next": [],
        "candidates": [{
            "names": ["target muc"], "coverage": 0.98, "purity": null, "inside_ratio": 0.2,
            "inside_n": 100, "outside_ratio": 0.0, "outside_n": 700, "before_ratio": 0.0,
            "series": 1, "direction": "forward", "evidence": [],
        }],
    })
}

#[test]
fn an_explanation_is_printed_and_its_code_says_whether_there_is_one() {
    let (sonde, request) = explain("strong", 200, explanation("strong"), &[]);
    let text = String::from_utf8(sonde.stdout).unwrap();
    assert_eq!(request, "GET /sonde/v1/events/12/explanation HTTP/1.0\r\n");
    assert_eq!(sonde.status.code(), Some(0));
    assert!(text.starts_with("Target muc explains 98% of the excess.\n"), "{text}");
    assert!(text.contains("for 800 ms, held against 12 windows in the 10.2 s before"), "{text}");
    assert!(text.contains("forward"), "{text}");

    let (sonde, _) = explain("none", 200, explanation("none"), &["--json"]);
    let found: Value = serde_json::from_slice(&sonde.stdout).unwrap();
    assert_eq!((sonde.status.code(), &found["series"]), (Some(5), &json!(8)));

    let problem = json!({"detail": "there is no event '12'"});
    let (sonde, _) = explain("missing", 404, problem, &[]);
    let text = String::from_utf8(sonde.stderr).unwrap();
    assert!(text.contains("there is no event '12'"), "{text}");
    assert_eq!(sonde.status.code(), Some(2));
}
