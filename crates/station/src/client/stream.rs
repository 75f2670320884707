//! Follows what happens at a station: server-sent events.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::{ClientError, PATIENCE, StationClient};

/// Events of a station, as they happen.
pub struct StationStream {
    client: StationClient,
    stream: UnixStream,
    /// What has come and is no whole event yet.
    text: Vec<u8>,
}

/// What comes of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamNews {
    /// An event: its topic, and its data.
    Event(String, Value),
    /// Nothing, for as long as was waited.
    Nothing,
}

impl StationClient {
    /// Follows topics: `state`, `units`, `events`, `alerts`, `m:ID`.
    ///
    /// # Errors
    /// Nobody answers, or the station refuses it.
    pub fn follow(&self, topics: &[&str]) -> Result<StationStream, ClientError> {
        let mut stream = UnixStream::connect(&self.socket).map_err(|e| self.away(e))?;
        let path = format!("/sonde/v1/stream?topics={}", topics.join(","));
        let text = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        let asked = stream
            .set_write_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_read_timeout(Some(self.patience)))
            .and_then(|()| stream.write_all(text.as_bytes()));
        asked.map_err(|e| self.away(e))?;
        let mut followed = StationStream { client: self.clone(), stream, text: Vec::new() };
        let head = loop {
            if let Some(end) = find(&followed.text, b"\r\n\r\n") {
                break followed.text.drain(..end + 4).collect::<Vec<u8>>();
            }
            if !followed.read()? {
                return Err(self.away(io::ErrorKind::TimedOut.into()));
            }
        };
        match super::parse(&head).map(|answer| answer.status) {
            Some(200) => Ok(followed),
            Some(status) => {
                let why = "its stream cannot be followed".to_owned();
                Err(ClientError::Refused { status, why })
            }
            None => Err(self.strange("it speaks no HTTP")),
        }
    }
}

impl StationStream {
    /// The next event, for which it waits at most `patience`.
    ///
    /// # Errors
    /// The station has gone, or what comes is no stream of events.
    pub fn next(&mut self, patience: Duration) -> Result<StreamNews, ClientError> {
        let timeout = self.stream.set_read_timeout(Some(patience));
        timeout.map_err(|e| self.client.away(e))?;
        loop {
            while let Some(end) = find(&self.text, b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                if let Some((topic, data)) = event_of(&block) {
                    return Ok(StreamNews::Event(topic, data));
                }
            }
            if !self.read()? {
                return Ok(StreamNews::Nothing);
            }
        }
    }

    /// Takes what comes; `false`: nothing in time.
    fn read(&mut self) -> Result<bool, ClientError> {
        if self.text.len() > EVENT_MAX {
            return Err(self.client.strange("an event of its stream has no end"));
        }
        let mut part = [0; 16_384];
        match self.stream.read(&mut part) {
            Ok(0) => Err(self.client.away(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                self.text.extend_from_slice(&part[..n]);
                Ok(true)
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(self.client.away(e)),
        }
    }
}

/// Topic and data of a block of lines; `None`: it is a comment, or says when to try again.
fn event_of(block: &[u8]) -> Option<(String, Value)> {
    let text = std::str::from_utf8(block).ok()?;
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim_start))
    };
    Some((field("event")?.to_owned(), serde_json::from_str(field("data")?).ok()?))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}

/// Octets of an event, at most.
const EVENT_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut_and_comments_are_none() {
        let folder = std::env::temp_dir().join(format!("sonde-follow-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let parts = [
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r",
            "\nretry: 3000\n\n: keep-alive\n\nid: 1-1\nevent: sta",
            "te\ndata: {\"kind\":\"state\"}\n",
            "\nevent: gap\ndata: {\"kind\":\"gap\"}\n\n",
        ];
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4_096];
            let n = stream.read(&mut asked).unwrap();
            for part in parts {
                stream.write_all(part.as_bytes()).unwrap();
            }
            String::from_utf8_lossy(&asked[..n]).into_owned()
        });
        let mut followed = StationClient::new(&socket).follow(&["state", "m:7"]).unwrap();
        let mut next = || followed.next(Duration::from_secs(60));
        assert_eq!(next().unwrap(), StreamNews::Event("state".into(), json!({"kind": "state"})));
        assert_eq!(next().unwrap(), StreamNews::Event("gap".into(), json!({"kind": "gap"})));
        let end = next().unwrap_err();
        assert!(matches!(end, ClientError::Away { .. }), "{end}");
        let asked = serving.join().unwrap();
        assert!(asked.starts_with("GET /sonde/v1/stream?topics=state,m:7 HTTP/1.0"), "{asked}");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
