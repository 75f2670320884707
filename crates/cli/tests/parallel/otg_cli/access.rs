//! Who may order anything: tokens, certificates, and strangers who only take up room.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use sonde_lab::LinkOptions;
use sonde_testbed::tls;

use super::{Server, cable, config};
use crate::process::{Process, until};

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

/// A server that hears who shows a certificate of its laboratory.
struct Secured {
    folder: Folder,
    process: Process,
    /// The address it listens on.
    ip: String,
    address: String,
}

impl Secured {
    /// With certificates for `ip`, by a command that starts `sonde` somewhere.
    fn start(name: &str, ip: &str, mut command: Command) -> Secured {
        let folder = Folder::new(name);
        let made = sonde(&["agent", "cert", "--dir", &folder.file(""), ip, "controller"]);
        assert_eq!(Process::start(made).end().code, 0);
        command.args(["otg", "--listen", &format!("{ip}:0")]);
        for (option, file) in [
            ("--cert", format!("{ip}.pem")),
            ("--key", format!("{ip}.key")),
            ("--ca", "ca.pem".into()),
        ] {
            command.args([option, &folder.file(&file)]);
        }
        let mut process = Process::start(command);
        let address = |p: &Process| {
            let line = p.err().iter().find_map(|l| Some(l.split_once("https://")?.1.to_owned()))?;
            Some(line.split(',').next().unwrap().to_owned())
        };
        process.until("the server", |p| address(p).is_some());
        let address = address(&process).unwrap();
        Secured { folder, process, ip: ip.into(), address }
    }

    /// By the certificate that is called `name`.
    fn ask(
        &self,
        name: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> std::io::Result<(u16, Value)> {
        let file = |end: &str| PathBuf::from(self.folder.file(&format!("{name}.{end}")));
        let client = tls::client(&file("pem"), &file("key"), &self.folder.0.join("ca.pem"));
        let server = ServerName::try_from(self.ip.clone()).unwrap();
        let session = ClientConnection::new(Arc::new(client.unwrap()), server).unwrap();
        let mut stream = StreamOwned::new(session, TcpStream::connect(&self.address)?);
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
        Ok((head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap()))
    }

    fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask("controller", method, path, body).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer
    }

    fn end(self) {
        self.process.signal("INT");
        assert_eq!(self.process.end().code, 0);
    }
}

/// Owner with a certificate, and 200 strangers who say nothing.
#[test]
fn idle_strangers_do_not_keep_the_owner_from_stopping_a_flow() {
    let test = "idle_strangers_do_not_keep_the_owner_from_stopping_a_flow";
    let Some((_lab, a, b)) = cable(test) else { return };
    let server = Secured::start("idle", "127.0.0.1", sonde(&[]));
    until("the carrier", || {
        let (status, answer) =
            server.ask("controller", "POST", "/config", &config(&a, &b, 1 << 40)).unwrap();
        assert!(status == 200 || answer.to_string().contains("no carrier"), "{answer}");
        status == 200
    });
    let transmit = |state: &str| {
        server.done(
            "POST",
            "/control/state",
            &json!({ "choice": "traffic", "traffic": {
            "choice": "flow_transmit", "flow_transmit": { "state": state } } }),
        );
    };
    let flow = || {
        let asked = json!({ "choice": "flow" });
        server.done("POST", "/monitor/metrics", &asked)["flow_metrics"][0].clone()
    };
    transmit("start");
    until("frames", || flow()["frames_rx"] != "0");
    let strangers: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    transmit("stop");
    assert_eq!(flow()["transmit"], "stopped");
    // An agent's certificate is not a controller's.
    assert!(server.ask("127.0.0.1", "GET", "/config", &Value::Null).is_err());
    drop(strangers);
    server.end();
}

/// A port takes all that comes in at its interface: the client would be cut off.
#[test]
fn the_interface_by_which_the_client_has_come_is_no_port() {
    let test = "the_interface_by_which_the_client_has_come_is_no_port";
    let Some((mut lab, a, b)) = cable(test) else { return };
    lab.link(&a, "eth1", &b, "eth1", &LinkOptions::default()).unwrap();
    a.add_address("eth0", "192.0.2.1/24").unwrap();
    b.add_address("eth0", "192.0.2.2/24").unwrap();
    let server = Secured::start("client", "192.0.2.1", a.command(env!("CARGO_BIN_EXE_sonde")));
    let port = |location: &str| json!({ "ports": [{ "name": "a", "location": location }] });
    b.inside(|| {
        let ask = |location| server.ask("controller", "POST", "/config", &port(location)).unwrap();
        let (status, answer) = ask("eth0");
        let message = answer["errors"][0].as_str().unwrap();
        assert!(status == 400 && message.contains("its client 192.0.2.2"), "{answer}");
        // It still hears, and another interface is a port.
        until("the carrier", || {
            let (status, answer) = ask("eth1");
            assert!(status == 200 || answer.to_string().contains("no carrier"), "{answer}");
            status == 200
        });
    })
    .unwrap();
    server.end();
}
