//! Who may order anything: tokens, certificates, and strangers who only take up room.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use sonde_cli::tls;

use crate::process::{Process, until};
use crate::{Server, cable, config};

use std::io::{Read as _, Write as _};

/// A folder, removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-otg-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sonde(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    command.args(args);
    command
}

#[test]
fn without_the_token_nobody_is_heard() {
    let folder = Folder::new("token");
    let file = folder.file("token");
    let mut process =
        Process::start(sonde(&["otg", "--listen", "127.0.0.1:0", "--token-file", &file]));
    let address = |p: &Process| {
        let line = p.err().iter().find_map(|l| Some(l.split_once("http://")?.1.to_owned()))?;
        Some(line.split(',').next().unwrap().to_owned())
    };
    process.until("the server", |p| address(p).is_some());
    // What is in a file is not said.
    let address = address(&process).unwrap();
    assert!(!address.contains('@'), "{address}");
    let token = fs::read_to_string(&file).unwrap().trim().to_owned();
    let mut server = Server { process, address, token: "0123456789abcdef".into() };
    for (method, path, body) in [
        ("GET", "/config", Value::Null),
        ("POST", "/config", json!({})),
        ("GET", "/sonde/v1/flows", Value::Null),
        ("GET", "/nothing", Value::Null),
    ] {
        let (status, answer) = server.ask(method, path, &body);
        assert!(
            status == 401 && answer["errors"][0].as_str().unwrap().contains("token"),
            "{answer}"
        );
    }
    server.token = token;
    server.done("GET", "/config", &Value::Null);
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
}

/// Owner with a certificate, and 200 strangers who say nothing.
#[test]
fn idle_strangers_do_not_keep_the_owner_from_stopping_a_flow() {
    let test = "idle_strangers_do_not_keep_the_owner_from_stopping_a_flow";
    let Some((_lab, a, b)) = cable(test) else { return };
    let folder = Folder::new("idle");
    let made = sonde(&["agent", "cert", "--dir", &folder.file(""), "127.0.0.1", "controller"]);
    assert_eq!(Process::start(made).end().code, 0);
    let [cert, key, ca] = ["127.0.0.1.pem", "127.0.0.1.key", "ca.pem"].map(|f| folder.file(f));
    let mut process = Process::start(sonde(&[
        "otg",
        "--listen",
        "127.0.0.1:0",
        "--cert",
        &cert,
        "--key",
        &key,
        "--ca",
        &ca,
    ]));
    let address = |p: &Process| {
        let line = p.err().iter().find_map(|l| Some(l.split_once("https://")?.1.to_owned()))?;
        Some(line.split(',').next().unwrap().to_owned())
    };
    process.until("the server", |p| address(p).is_some());
    let address = address(&process).unwrap();
    let client = |name: &str| {
        let path = |end: &str| PathBuf::from(folder.file(&format!("{name}.{end}")));
        Arc::new(tls::client(&path("pem"), &path("key"), &folder.0.join("ca.pem")).unwrap())
    };
    let ask =
        |name: &str, method: &str, path: &str, body: &Value| -> std::io::Result<(u16, Value)> {
            let server = ServerName::try_from("127.0.0.1").unwrap();
            let session = ClientConnection::new(client(name), server).unwrap();
            let mut stream = StreamOwned::new(session, TcpStream::connect(&address)?);
            let body = body.to_string();
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (head, body) =
                answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
            Ok((head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap()))
        };
    let done = |method: &str, path: &str, body: &Value| {
        let (status, answer) = ask("controller", method, path, body).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer
    };
    until("the carrier", || {
        let (status, answer) =
            ask("controller", "POST", "/config", &config(&a, &b, 1 << 40)).unwrap();
        assert!(status == 200 || answer.to_string().contains("no carrier"), "{answer}");
        status == 200
    });
    let transmit = |state: &str| {
        done(
            "POST",
            "/control/state",
            &json!({ "choice": "traffic", "traffic": {
            "choice": "flow_transmit", "flow_transmit": { "state": state } } }),
        );
    };
    let flow = || {
        done("POST", "/monitor/metrics", &json!({ "choice": "flow" }))["flow_metrics"][0].clone()
    };
    transmit("start");
    until("frames", || flow()["frames_rx"] != "0");
    let strangers: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(&address).unwrap()).collect();
    transmit("stop");
    assert_eq!(flow()["transmit"], "stopped");
    // An agent's certificate is not a controller's.
    assert!(ask("127.0.0.1", "GET", "/config", &Value::Null).is_err());
    drop(strangers);
    process.signal("INT");
    assert_eq!(process.end().code, 0);
}
