//! A client that says what it is told to, right or wrong.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A request.
pub struct Asking<'a> {
    address: SocketAddr,
    method: &'a str,
    path: &'a str,
    host: String,
    fields: String,
    body: String,
}

/// What came of it.
pub struct Answered {
    pub status: u16,
    fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl<'a> Asking<'a> {
    pub fn new(address: SocketAddr, method: &'a str, path: &'a str) -> Asking<'a> {
        let host = address.to_string();
        Asking { address, method, path, host, fields: String::new(), body: String::new() }
    }

    pub fn host(self, host: &str) -> Self {
        Asking { host: host.to_owned(), ..self }
    }

    pub fn fields(mut self, fields: &str) -> Self {
        self.fields.push_str(fields);
        self
    }

    pub fn token(self, token: &str) -> Self {
        self.fields(&format!("Authorization: Bearer {token}\r\n"))
    }

    pub fn json(self, body: &str) -> Self {
        self.body("application/json; charset=utf-8", body)
    }

    pub fn body(self, kind: &str, body: &str) -> Self {
        let fields = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        self.raw(&fields, body)
    }

    /// A body as it is on the wire.
    pub fn raw(mut self, fields: &str, body: &str) -> Self {
        self.fields.push_str(fields);
        self.body = body.to_owned();
        self
    }

    /// By HTTP/1.0: the body ends with the connection.
    pub fn open(&self) -> TcpStream {
        self.begin("HTTP/1.0")
    }

    pub fn send(&self) -> Answered {
        let mut stream = self.begin("HTTP/1.1");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let fields = head.lines().skip(1).map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        });
        Answered {
            status: head[9..12].parse().unwrap(),
            fields: fields.collect(),
            body: answer[end + 4..].to_vec(),
        }
    }

    fn begin(&self, version: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!(
            "{} {} {version}\r\nHost: {}\r\nConnection: close\r\n{}\r\n",
            self.method, self.path, self.host, self.fields
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(self.body.as_bytes()).unwrap();
        if self.method == "NONE" {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        stream
    }
}

impl Answered {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// Tries until it gives something, within a bound that no sound run comes near.
pub fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it did not come about");
        std::thread::yield_now();
    }
}
