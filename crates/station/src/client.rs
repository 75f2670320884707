//! Asks a station by its Unix socket.

mod stream;

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

pub use self::stream::{StationStream, StreamNews};

/// A station on this host.
#[derive(Clone, Debug)]
pub struct StationClient {
    socket: PathBuf,
    patience: Duration,
}

/// What came of a request.
#[derive(Clone, Debug)]
pub struct StationAnswer {
    /// Of HTTP.
    pub status: u16,
    /// The version of what it shows, as a change names it.
    pub etag: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers.
    #[error("no station answers on {}: {cause}; {}", path.display(), advice(cause))]
    Away {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        cause: io::Error,
    },
    /// The station did not carry it out.
    #[error("the station refuses it ({status}): {why}")]
    Refused {
        /// Of HTTP.
        status: u16,
        /// Its reason.
        why: String,
    },
    /// The answer has another form.
    #[error("{} does not answer as a station does: {why}; name a station's socket", path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
        /// What is odd about it.
        why: String,
    },
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => "be root, or the station's user",
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "start one ('sonde run FILE'), or name its socket"
        }
        _ => "look at its log",
    }
}

impl StationClient {
    /// The station that serves `socket`.
    pub fn new(socket: &Path) -> StationClient {
        StationClient { socket: socket.to_owned(), patience: PATIENCE }
    }

    /// The same, which waits so long at most for a part of an answer.
    pub fn with_patience(self, patience: Duration) -> StationClient {
        StationClient { patience, ..self }
    }

    /// Sends a request. `fields` are whole lines of the header, `If-Match: "x"`.
    ///
    /// # Errors
    /// Nobody answers, or no HTTP.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        fields: &[&str],
        body: &str,
    ) -> Result<StationAnswer, ClientError> {
        let away = |source| self.away(source);
        let mut stream = UnixStream::connect(&self.socket).map_err(away)?;
        // By HTTP/1.0 the body ends with the connection.
        let mut text = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
        fields.iter().for_each(|field| text.push_str(&format!("{field}\r\n")));
        if !body.is_empty() {
            text.push_str("Content-Type: application/json\r\n");
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        let mut answer = Vec::new();
        let asked = stream
            .set_read_timeout(Some(self.patience))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| stream.write_all(text.as_bytes()))
            .and_then(|()| stream.take(ANSWER_MAX).read_to_end(&mut answer));
        asked.map_err(away)?;
        parse(&answer).ok_or_else(|| self.strange("it speaks no HTTP"))
    }

    /// The body at a path.
    ///
    /// # Errors
    /// Nobody answers, the station refuses it.
    pub fn body(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        accepted(self.send("GET", path, &[], "")?)
    }

    /// Orders something, and reads the JSON that answers.
    ///
    /// # Errors
    /// As of [`StationClient::get`].
    pub fn post(&self, path: &str, body: &str) -> Result<Value, ClientError> {
        let body = accepted(self.send("POST", path, &[], body)?)?;
        serde_json::from_slice(&body).map_err(|error| self.strange(&error.to_string()))
    }

    /// Removes what is at a path.
    ///
    /// # Errors
    /// As of [`StationClient::get`].
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        accepted(self.send("DELETE", path, &[], "")?).map(drop)
    }

    /// The JSON at a path.
    ///
    /// # Errors
    /// Nobody answers, the station refuses it, no JSON.
    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        let body = self.body(path)?;
        serde_json::from_slice(&body).map_err(|error| self.strange(&error.to_string()))
    }

    /// Up to `most` items of a list, over its pages. `query` has its parameters, without `?`.
    ///
    /// # Errors
    /// As of [`StationClient::get`].
    pub fn list(&self, path: &str, query: &str, most: usize) -> Result<Vec<Value>, ClientError> {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let limit = most.saturating_sub(items.len()).clamp(1, 1_000);
            let mut page = self.get(&format!("{path}?limit={limit}&{query}{cursor}"))?;
            let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) else {
                return Err(self.strange("a list has no items"));
            };
            items.extend(more);
            match page["next"].as_str() {
                Some(next) if items.len() < most => cursor = format!("&cursor={next}"),
                _ => return Ok(items),
            }
        }
    }

    fn away(&self, cause: io::Error) -> ClientError {
        ClientError::Away { path: self.socket.clone(), cause }
    }

    fn strange(&self, why: &str) -> ClientError {
        ClientError::Strange { path: self.socket.clone(), why: why.to_owned() }
    }
}

/// The body of an answer that is a success.
fn accepted(answer: StationAnswer) -> Result<Vec<u8>, ClientError> {
    if (200..300).contains(&answer.status) {
        return Ok(answer.body);
    }
    let json: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let detail = json.and_then(|problem| Some(problem["detail"].as_str()?.into()));
    let why = detail.unwrap_or_else(|| "it gives no reason".to_owned());
    Err(ClientError::Refused { status: answer.status, why })
}

fn parse(answer: &[u8]) -> Option<StationAnswer> {
    let end = answer.windows(4).position(|octets| octets == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let etag = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("etag").then(|| value.trim().to_owned())
    });
    Some(StationAnswer { status, etag, body: answer[end + 4..].to_vec() })
}

/// For a part of an answer.
const PATIENCE: Duration = Duration::from_secs(75);
/// Octets of an answer.
const ANSWER_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_what_is_none_is_not() {
        let text = b"HTTP/1.0 200 OK\r\nETag: \"a\"\r\nContent-Length: 2\r\n\r\n{}";
        let answer = parse(text).unwrap();
        assert_eq!((answer.status, answer.etag.as_deref()), (200, Some("\"a\"")));
        assert_eq!(answer.body, b"{}");
        for wrong in ["", "HTTP/1.1 200", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 \r\n\r\n"] {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_station_that_is_away_is_said_with_its_socket() {
        let error = StationClient::new(Path::new("/nonexistent/s")).get("/").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nonexistent/s") && text.contains("sonde run"), "{text}");
    }
}
