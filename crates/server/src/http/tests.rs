use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use axum::routing::post;

use super::*;

/// Says back what it heard.
fn echo() -> Router {
    let echo = |uri: Uri, request: Request| {
        work(move || {
            assert_ne!(request.body, "\"panic\"");
            let body = json!({ "path": uri.path(), "octets": request.body.len() });
            Ok::<_, Infallible>(Json(body))
        })
    };
    Router::new().route("/echo", post(echo).get(echo))
}

/// A server for as long as `client` runs.
fn with_server(client: impl FnOnce(SocketAddr)) {
    let access = Authentication::Token(Token::new(TOKEN).unwrap());
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), access).unwrap();
    let address = server.address().unwrap();
    let stop = ServerStop::new();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.serve(echo(), &stop));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(address)));
        stop.stop();
        served.join().unwrap().unwrap();
        outcome.unwrap();
    });
}

/// The status and all of the answer to `text` on a connection of its own.
fn ask(address: SocketAddr, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

fn request(method: &str, path: &str, fields: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const TOKEN: &str = "0123456789abcdef";
const LOCAL: &str = "Host: localhost:8443\r\nAuthorization: Bearer 0123456789abcdef\r\n\
                     Content-Type: application/json; charset=utf-8\r\n";

#[test]
fn requests_are_answered_in_json_until_the_server_is_stopped() {
    with_server(|address| {
        let (status, answer) = ask(address, &request("POST", "/echo?x=1", LOCAL, "[1,2]"));
        assert_eq!(status, 200);
        assert!(answer.contains("content-type: application/json"), "{answer}");
        assert!(answer.ends_with(r#"{"octets":5,"path":"/echo"}"#), "{answer}");
    });
}

#[test]
fn what_is_not_to_be_answered_is_refused_with_the_right_status() {
    let page = LOCAL.replace("localhost:8443", "evil.example");
    let form = LOCAL.replace("application/json", "text/plain");
    let nowhere = LOCAL.replace("Host: localhost:8443\r\n", "");
    let six = LOCAL.replace("localhost:8443", "[::1]:80");
    let stranger = LOCAL.replace("abcdef", "abcdeg");
    let nobody = LOCAL.replace("Authorization", "X-Nothing");
    let long = format!("{LOCAL}Expect: 100-continue\r\n");
    with_server(|address| {
        for (text, status, part) in [
            (request("GET", "/none", LOCAL, ""), 404, "no /none"),
            (request("DELETE", "/echo", LOCAL, ""), 405, "allow: POST, GET"),
            (request("DELETE", "/echo", LOCAL, ""), 405, "/echo takes POST and GET, not DELETE"),
            (request("HEAD", "/echo", LOCAL, ""), 405, "allow: POST, GET"),
            (request("POST", "/echo", &page, "{}"), 421, "evil.example"),
            (request("GET", "/echo", &nowhere, ""), 421, "no address"),
            (request("POST", "/echo", &form, "{}"), 415, "text/plain"),
            (request("POST", "/echo", LOCAL, "\"panic\""), 500, "internal"),
            (request("GET", "/echo", &six, ""), 200, "octets"),
            (request("GET", "/echo", &stranger, ""), 401, "www-authenticate: Basic"),
            (request("GET", "/none", &nobody, ""), 401, "TOKEN"),
            ("nonsense\r\n\r\n".into(), 400, ""),
        ] {
            let (got, answer) = ask(address, &text);
            assert!(got == status && answer.contains(part), "{text}: {answer}");
        }
        let claims = request("POST", "/echo", &long, "");
        let claims =
            claims.replace("Content-Length: 0", &format!("Content-Length: {}", BODY_MAX + 1));
        assert_eq!(ask(address, &claims).0, 413);
    });
}

#[test]
fn a_request_that_is_too_long_is_answered_after_it_was_written_whole() {
    let stranger = LOCAL.replace("abcdef", "abcdeg");
    let form = LOCAL.replace("application/json", "text/plain");
    let long = vec![b' '; BODY_MAX + 1];
    with_server(|address| {
        for (fields, path, status) in [
            (LOCAL, "/echo", 413),
            (&stranger, "/echo", 401),
            (&form, "/echo", 415),
            (LOCAL, "/", 404),
        ] {
            let head = format!("POST {path} HTTP/1.1\r\nConnection: close\r\n{fields}");
            // Of a length that is known before, and of one that is not.
            let counted = format!("{head}Content-Length: {}\r\n\r\n", long.len());
            let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", long.len());
            for (head, tail) in [(counted, ""), (chunked, "\r\n0\r\n\r\n")] {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&long).unwrap();
                stream.write_all(tail.as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert_eq!(answer[9..12], status.to_string(), "{path}: {answer}");
                assert!(status != 413 || answer.contains("at most 16777216 octets"), "{answer}");
            }
        }
        // The connection is good for another request.
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("POST /echo HTTP/1.1\r\n{LOCAL}Content-Length: {}\r\n\r\n", long.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&long).unwrap();
        stream.write_all(request("POST", "/echo", LOCAL, "[]").as_bytes()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert!(answers.starts_with("HTTP/1.1 413") && answers.ends_with(r#""path":"/echo"}"#));
    });
}

#[test]
fn a_request_without_an_end_is_read_no_further() {
    with_server(|address| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("POST /echo HTTP/1.1\r\n{LOCAL}Transfer-Encoding: chunked\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let chunk = [b"10000\r\n".as_slice(), &[b' '; 1 << 16], b"\r\n"].concat();
        let written = (0..).find(|_| stream.write_all(&chunk).is_err()).unwrap() << 16;
        // Buffers of the kernel apart.
        let all = BODY_MAX + DRAINED_MAX;
        assert!(written > all / 2 && written < 2 * all, "{written}");
    });
}

#[test]
fn idle_strangers_do_not_keep_the_owner_out() {
    with_server(|address| {
        // He has a connection, and strangers come, many more than are admitted.
        let mut owner = TcpStream::connect(address).unwrap();
        let asks = request("GET", "/echo", LOCAL, "").replace("Connection: close\r\n", "");
        let mut answered = || {
            owner.write_all(asks.as_bytes()).unwrap();
            let mut answer = [0; 12];
            owner.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            let mut rest = Vec::new();
            while !rest.ends_with(br#""path":"/echo"}"#) {
                let mut octet = [0];
                owner.read_exact(&mut octet).unwrap();
                rest.extend(octet);
            }
        };
        answered();
        let strangers: Vec<TcpStream> =
            (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
        // On the connection that he has, and on a new one.
        answered();
        assert_eq!(ask(address, &request("GET", "/echo", LOCAL, "")).0, 200);
        // Those who came first were sent away.
        for mut stranger in strangers.iter().take(100) {
            assert_eq!(stranger.read(&mut [0]).unwrap(), 0);
        }
    });
}

#[test]
fn only_a_loopback_address_goes_without_tls() {
    let access = Authentication::Token(Token::new(TOKEN).unwrap());
    let error = Server::bind("0.0.0.0:0".parse().unwrap(), access).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn addresses_and_localhost_are_distinguished_from_names() {
    for host in ["localhost", "LOCALHOST:1", "10.0.0.1", "10.0.0.1:80", "[::1]", "[::1]:443", "::1"]
    {
        assert!(names_an_address(host), "{host}");
    }
    for host in ["", "a.example", "10.0.0.1.example", "localhost.example:80", "localhost:x"] {
        assert!(!names_an_address(host), "{host}");
    }
}
