//! The server on loopback, with a backend that is made up.

mod client;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use sonde_api::instant::UtcInstant;
use sonde_api::live::Live as _;
use sonde_api::testing::{FAKE_START, FakeBackend, HELD_UNIT, PANICKING_UNIT};

use self::client::{Answered, Asking};
use super::*;

/// A server with its tokens.
struct Bed {
    backend: Arc<FakeBackend>,
    address: SocketAddr,
    read: String,
    operate: String,
    admin: String,
    expired: String,
}

impl Bed {
    /// Serves for as long as `test` runs. Where that fails, what is held is released first.
    fn run(backend: FakeBackend, limits: ApiLimits, hooks: ApiHooks, test: impl FnOnce(&Bed)) {
        let mut tokens = Vec::new();
        let mut issue = |name: &str, role, expires| {
            let (token, text) = ApiToken::issue(name, role, expires).unwrap();
            tokens.push(token);
            text
        };
        let (read, operate) =
            (issue("page", AccessRole::Read, None), issue("desk", AccessRole::Operate, None));
        let admin = issue("root", AccessRole::Admin, None);
        let expired = issue("old", AccessRole::Admin, Some(UtcInstant::from_ms(1)));
        let access = ApiAccess { tokens: Arc::new(TokenStore::of(tokens)), ..ApiAccess::default() };
        let server = ApiServer::bind("127.0.0.1:0".parse().unwrap(), access).unwrap();
        let backend = Arc::new(backend);
        let address = server.address().unwrap();
        let bed = Bed { backend: backend.clone(), address, read, operate, admin, expired };
        let stop = ServerStop::new();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| server.serve(backend, limits, hooks, &stop));
            let test = std::panic::AssertUnwindSafe(|| test(&bed));
            let outcome = std::panic::catch_unwind(test);
            bed.backend.release();
            stop.stop();
            served.join().unwrap().unwrap();
            outcome.unwrap();
        });
    }

    fn with_defaults(test: impl FnOnce(&Bed)) {
        Bed::run(FakeBackend::with_units(250), ApiLimits::default(), ApiHooks::default(), test);
    }

    fn ask<'a>(&self, method: &'a str, path: &'a str) -> Asking<'a> {
        Asking::new(self.address, method, path)
    }

    fn get(&self, path: &str) -> Answered {
        self.ask("GET", path).token(&self.read).send()
    }
}

const TARGET: &str = r#"{"unit":"probe.0000","host":"192.0.2.1"}"#;

#[test]
fn what_the_station_is_and_runs_is_answered_by_the_table() {
    Bed::with_defaults(|bed| {
        let about = bed.get("/sonde/v1/station");
        assert_eq!((about.status, about.json()["name"].as_str()), (200, Some("fake")));
        assert_eq!(about.header("content-type"), Some("application/json"));
        assert_eq!(about.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(about.header("cache-control"), Some("private, no-cache"));
        // The server's clock, as milliseconds that JavaScript holds.
        assert!(about.json()["now"]["ms"].as_i64().unwrap() > FAKE_START.ms() / 2);
        let unit = bed.get("/sonde/v1/units/probe.0001").json();
        assert_eq!(unit["unit"]["phase"], "waiting");
        let none = bed.get("/sonde/v1/units/none%20such");
        assert_eq!(
            (none.status, none.header("content-type")),
            (404, Some("application/problem+json"))
        );
        assert_eq!(none.json()["detail"], "there is no unit 'none such'");
        assert_eq!(none.json()["instance"], "/sonde/v1/units/none%20such");
        let document = bed.get("/sonde/v1/openapi.json");
        assert_eq!(document.json(), sonde_api::document());
    });
}

/// Every read of the table, with the parameters that it needs.
#[test]
fn every_route_that_reads_answers_or_says_that_it_is_not_offered() {
    let limits = ApiLimits {
        calls: CallLimits { burst: 1_000, ..CallLimits::default() },
        ..ApiLimits::default()
    };
    Bed::run(FakeBackend::default(), limits, ApiHooks::default(), |bed| {
        let mut answered = 0;
        for route in sonde_api::routes() {
            if route.method.name() != "GET" || route.operation == "live_stream" {
                continue;
            }
            let path = route.path.replace("{name}", "probe.0000").replace("{id}", "e1");
            let path = match route.operation {
                "series_points" => format!("{path}?ids=1,2&points=12"),
                "flow_top" | "flow_points" => format!("{path}?dim=src_as"),
                _ if route.path == "/probe" => format!("{path}?target=192.0.2.1"),
                _ => path,
            };
            let reply = bed.ask("GET", &path).token(&bed.admin).send();
            assert!([200, 404, 501].contains(&reply.status), "{path}: {}", reply.text());
            let refused = bed
                .ask("GET", &format!("{path}{}x=1", if path.contains('?') { '&' } else { '?' }))
                .token(&bed.admin)
                .send();
            assert_eq!(refused.status, 400, "{path}: {}", refused.text());
            answered += u32::from(reply.status == 200);
        }
        assert!(answered >= 18, "{answered}");
    });
}

#[test]
fn pages_have_a_link_to_the_next_and_a_changed_cursor_is_refused() {
    Bed::with_defaults(|bed| {
        let (mut path, mut seen) = ("/sonde/v1/units?limit=100&phase=running".to_owned(), 0);
        loop {
            let page = bed.get(&path);
            seen += page.json()["items"].as_array().unwrap().len();
            let Some(link) = page.header("link") else { break };
            let (next, rel) = link.split_once(">; ").unwrap();
            assert_eq!(rel, "rel=\"next\"");
            path = next.trim_start_matches('<').to_owned();
            assert!(path.starts_with("/sonde/v1/units?limit=100&phase=running&cursor="), "{path}");
        }
        assert_eq!(seen, 249);
        let cursor = path.split_once("cursor=").unwrap().1;
        let other = bed.get(&format!("/sonde/v1/units?phase=waiting&cursor={cursor}"));
        assert_eq!(
            (other.status, other.json()["errors"][0]["parameter"].as_str()),
            (400, Some("cursor"))
        );
    });
}

#[test]
fn who_shows_no_good_token_is_told_why_and_nothing_else() {
    Bed::with_defaults(|bed| {
        let path = "/sonde/v1/station";
        let short = &bed.read[..bed.read.len() - 1];
        let basic = "Authorization: Basic c29uZGU6eA==\r\n";
        for (asking, part) in [
            (bed.ask("GET", path), "no token came"),
            (bed.ask("GET", path).token(&bed.expired), "expired at 1970-01-01T00:00:00.001Z"),
            (bed.ask("GET", path).token(short), "none of this station's"),
            (bed.ask("GET", path).token(""), "another scheme"),
            (bed.ask("GET", path).fields(basic), "another scheme"),
            (bed.ask("GET", "/sonde/v1/none"), "no token came"),
            (bed.ask("GET", "/sonde/v1/openapi.json"), "no token came"),
        ] {
            let reply = asking.send();
            assert_eq!(reply.status, 401);
            assert!(reply.json()["detail"].as_str().unwrap().contains(part), "{}", reply.text());
            assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"sonde\""));
            assert!(!reply.text().contains(short));
        }
        // Roles.
        let config = bed.ask("GET", "/sonde/v1/config").token(&bed.operate).send();
        assert_eq!(config.status, 403);
        assert_eq!(config.json()["detail"], "token 'desk' is of role operate; this needs admin");
        assert_eq!(bed.ask("GET", "/sonde/v1/config").token(&bed.admin).send().status, 200);
        let change = bed.ask("POST", "/sonde/v1/targets").token(&bed.read).json(TARGET).send();
        assert_eq!((change.status, bed.backend.added_targets()), (403, 0));
    });
}

#[test]
fn liveness_and_readiness_are_for_everybody_and_metrics_are_not() {
    let ready = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let hooks = {
        let ready = ready.clone();
        let snapshot = || MetricsSnapshot { station: "fake".into(), ..Default::default() };
        ApiHooks {
            metrics: Some(Arc::new(snapshot)),
            ready: Some(Arc::new(move || ready.load(std::sync::atomic::Ordering::Relaxed))),
        }
    };
    Bed::run(FakeBackend::default(), ApiLimits::default(), hooks, |bed| {
        assert_eq!(bed.ask("GET", "/-/healthy").send().status, 200);
        assert_eq!(bed.ask("GET", "/-/ready").send().status, 503);
        ready.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(bed.ask("HEAD", "/-/ready").send().status, 200);
        assert_eq!(bed.ask("POST", "/-/ready").json("{}").send().status, 405);
        assert_eq!(bed.ask("GET", "/metrics").send().status, 401);
        let metrics = bed.get("/metrics");
        assert!(metrics.text().ends_with("# EOF\n") && metrics.text().contains("sonde_build_info"));
        assert_eq!(metrics.header("content-type"), Some(sonde_api::openmetrics::OPENMETRICS));
    });
    Bed::with_defaults(|bed| assert_eq!(bed.get("/metrics").status, 404));
}

#[test]
fn what_cannot_be_read_is_refused_with_the_right_status() {
    Bed::with_defaults(|bed| {
        let admin = |method, path| bed.ask(method, path).token(&bed.admin);
        let long = format!("{{\"unit\":\"{}\"}}", "x".repeat(1 << 20));
        let chunks = "Transfer-Encoding: chunked\r\n";
        let chunked = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
        for (asking, status, part) in [
            (admin("GET", "/sonde/v1/none"), 404, "openapi.json lists"),
            (admin("PUT", "/sonde/v1/targets"), 405, "takes GET, POST, not PUT"),
            (admin("OPTIONS", "/sonde/v1/targets"), 405, "not OPTIONS"),
            (admin("GET", "/sonde/v1/units/%ff"), 400, "UTF-8"),
            (admin("GET", "/sonde/v1/units?offset=3"), 400, "unknown field"),
            (admin("GET", "/sonde/v1/units?limit=0"), 422, "1 to 1000"),
            (admin("GET", "/sonde/v1/points?ids=1&from=now&to=now-1h"), 422, "not before"),
            (admin("GET", "/sonde/v1/station").json("{}"), 400, "no body"),
            (admin("POST", "/sonde/v1/targets").body("text/plain", TARGET), 415, "text/plain"),
            (admin("POST", "/sonde/v1/targets").json("{\"unit\":1}"), 422, "/unit"),
            (admin("POST", "/sonde/v1/targets").json("{"), 400, "body"),
            (admin("POST", "/sonde/v1/targets").json(&long), 413, "1048576"),
            (admin("POST", "/sonde/v1/targets").raw(chunks, &chunked), 413, "1048576"),
            (admin("POST", "/sonde/v1/targets").json(TARGET), 428, "If-Match"),
            (
                admin("POST", "/sonde/v1/targets").json(TARGET).fields("If-Match: x\r\n"),
                400,
                "ETag",
            ),
            (admin("GET", "/sonde/v1/station").host("evil.example"), 421, "evil.example"),
            (admin("GET", "/sonde/v1/flows/top?dim=app"), 501, "no flows"),
            (admin("GET", "/sonde/v1/stream?topics=all"), 400, "no topic"),
        ] {
            let reply = asking.send();
            assert_eq!(reply.status, status, "{}", reply.text());
            assert!(reply.text().contains(part), "{}", reply.text());
            assert_eq!(reply.json()["status"], status);
        }
        let refused = admin("PUT", "/sonde/v1/targets").send();
        assert_eq!(refused.header("allow"), Some("GET, POST"));
        // No cross-origin reading, whatever a page asks.
        let cors = "Origin: https://evil.example\r\nAccess-Control-Request-Method: GET\r\n";
        let reply = admin("OPTIONS", "/sonde/v1/station").fields(cors).send();
        assert_eq!(reply.header("access-control-allow-origin"), None);
    });
}

#[test]
fn a_header_that_is_too_long_is_refused() {
    Bed::with_defaults(|bed| {
        let long = format!("X-Long: {}\r\n", "x".repeat(HEADER));
        let reply = bed.ask("GET", "/sonde/v1/station").token(&bed.read).fields(&long).send();
        assert_eq!(reply.status, 431);
    });
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    Bed::with_defaults(|bed| {
        let own = format!("Origin: http://{}\r\n", bed.address);
        let add = |origin: &str| {
            let fields = format!("If-Match: *\r\n{origin}");
            let asking = bed.ask("POST", "/sonde/v1/targets").token(&bed.operate).json(TARGET);
            asking.fields(&fields).send().status
        };
        for origin in ["https://evil.example", "null", "http://127.0.0.1", "127.0.0.1", "file://"] {
            assert_eq!(add(&format!("Origin: {origin}\r\n")), 403, "{origin}");
        }
        assert_eq!(bed.backend.added_targets(), 0);
        assert_eq!((add(&own), add("")), (201, 201));
    });
}

#[test]
fn a_version_is_read_named_and_changed() {
    Bed::with_defaults(|bed| {
        let list = bed.get("/sonde/v1/targets");
        let version = list.header("etag").unwrap().to_owned();
        let add = |version: &str| {
            let asking = bed.ask("POST", "/sonde/v1/targets").token(&bed.operate).json(TARGET);
            asking.fields(&format!("If-Match: {version}\r\n")).send()
        };
        let made = add(&version);
        assert_eq!((made.status, made.header("location")), (201, Some("/sonde/v1/targets/t1")));
        assert_eq!(made.header("cache-control"), Some("no-store"));
        let again = add(&version);
        assert_eq!(
            (again.status, again.json()["type"].as_str()),
            (412, Some("/sonde/v1/openapi.json#/x-problems/stale"))
        );
        let path = made.header("location").unwrap();
        let target = bed.get(path);
        let fields = format!("If-Match: {}\r\n", target.header("etag").unwrap());
        let other = TARGET.replace("192.0.2.1", "192.0.2.9");
        let put =
            |token: &str| bed.ask("PUT", path).token(token).json(&other).fields(&fields).send();
        assert_eq!(put(&bed.read).status, 403);
        let changed = put(&bed.operate);
        assert_eq!((changed.status, &changed.json()["host"]), (200, &"192.0.2.9".into()));
        assert_eq!(put(&bed.operate).status, 412);
        let fields = format!("If-Match: {}\r\n", changed.header("etag").unwrap());
        let gone = bed.ask("DELETE", path).token(&bed.operate).fields(&fields).send();
        assert_eq!((gone.status, gone.text().as_str()), (204, ""));
        assert_eq!(bed.get(path).status, 404);
    });
}

#[test]
fn a_change_with_a_key_is_made_once() {
    Bed::with_defaults(|bed| {
        let add = |key: &str, body: &str| {
            let fields = format!("If-Match: *\r\nIdempotency-Key: {key}\r\n");
            let asking = bed.ask("POST", "/sonde/v1/targets").token(&bed.operate).json(body);
            asking.fields(&fields).send()
        };
        let (first, second) = (add("\"k1\"", TARGET), add("k1", TARGET));
        assert_eq!((first.status, second.status), (201, 201));
        assert_eq!(first.json(), second.json());
        assert_eq!(bed.backend.added_targets(), 1);
        let other = add("k1", &TARGET.replace("192.0.2.1", "192.0.2.2"));
        assert_eq!((other.status, add("a b", TARGET).status), (422, 400));
        assert_eq!(add("k2", TARGET).json()["id"], "t2");
    });
}

#[test]
fn what_is_known_is_not_sent_again_and_what_is_long_is_shorter() {
    Bed::with_defaults(|bed| {
        let path = "/sonde/v1/units?limit=200";
        let plain = bed.get(path);
        let tag = plain.header("etag").unwrap();
        assert!(tag.starts_with("W/\""), "{tag}");
        let known = |tag: &str| {
            let fields = format!("If-None-Match: \"x\", {tag}\r\n");
            bed.ask("GET", path).token(&bed.read).fields(&fields).send()
        };
        let same = known(tag);
        assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, Some(tag)));
        assert_eq!(known("\"y\"").status, 200);
        let short =
            bed.ask("GET", path).token(&bed.read).fields("Accept-Encoding: gzip\r\n").send();
        assert_eq!(short.header("content-encoding"), Some("gzip"));
        assert_eq!(
            (short.header("vary"), short.header("etag")),
            (Some("Accept-Encoding"), Some(tag))
        );
        assert!(short.body.len() * 5 < plain.body.len());
        let mut again = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&short.body[..]);
        std::io::Read::read_to_end(&mut decoder, &mut again).unwrap();
        assert_eq!(again, plain.body);
        let head = bed.ask("HEAD", path).token(&bed.read).send();
        assert_eq!((head.status, head.body.len(), head.header("etag")), (200, 0, Some(tag)));
    });
}

#[test]
fn one_caller_has_few_requests_at_a_time_and_others_are_answered() {
    let calls = CallLimits { at_once: 2, burst: 1_000_000, ..CallLimits::default() };
    let limits = ApiLimits { calls, ..ApiLimits::default() };
    Bed::run(FakeBackend::default(), limits, ApiHooks::default(), |bed| {
        let path = format!("/sonde/v1/units/{HELD_UNIT}");
        std::thread::scope(|scope| {
            // Refused is one of these only while the request below is under way.
            let taken = || client::until(|| Some(bed.get(&path)).filter(|r| r.status != 429));
            let held: Vec<_> = (0..2).map(|_| scope.spawn(taken)).collect();
            // Both are under way as soon as a third is refused.
            let refused = client::until(|| {
                let reply = bed.get("/sonde/v1/station");
                (reply.status == 429).then_some(reply)
            });
            assert_eq!(refused.header("retry-after"), Some("1"));
            assert_eq!(bed.ask("GET", "/sonde/v1/station").token(&bed.operate).send().status, 200);
            bed.backend.release();
            // The fake has no such unit.
            assert!(held.into_iter().all(|held| held.join().unwrap().status == 404));
        });
    });
}

#[test]
fn an_answer_that_takes_too_long_is_given_up() {
    let limits = ApiLimits { answer: Duration::from_millis(50), ..ApiLimits::default() };
    Bed::run(FakeBackend::default(), limits, ApiHooks::default(), |bed| {
        let late = bed.get(&format!("/sonde/v1/units/{HELD_UNIT}"));
        assert_eq!((late.status, late.header("retry-after")), (503, Some("10")));
    });
}

#[test]
fn a_caller_that_asks_too_often_waits_and_others_do_not() {
    let calls = CallLimits { per_second: 1, burst: 3, ..CallLimits::default() };
    let limits = ApiLimits { calls, ..ApiLimits::default() };
    Bed::run(FakeBackend::default(), limits, ApiHooks::default(), |bed| {
        let refused = client::until(|| {
            let reply = bed.get("/sonde/v1/station");
            (reply.status == 429).then_some(reply)
        });
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(bed.ask("GET", "/sonde/v1/station").token(&bed.admin).send().status, 200);
    });
}

#[test]
fn a_backend_that_panics_is_a_500_and_the_server_serves_on() {
    Bed::with_defaults(|bed| {
        let failed = bed.get(&format!("/sonde/v1/units/{PANICKING_UNIT}"));
        assert_eq!(
            (failed.status, failed.json()["title"].as_str()),
            (500, Some("The station failed"))
        );
        assert_eq!(bed.get("/sonde/v1/station").status, 200);
    });
}

#[test]
fn an_address_that_others_reach_needs_tls_tokens_and_no_anonymous_role_or_is_forced() {
    let (token, _) = ApiToken::issue("a", AccessRole::Read, None).unwrap();
    let tokens = Arc::new(TokenStore::of(vec![token]));
    let tls = || {
        let builder = rustls::ServerConfig::builder().with_no_client_auth();
        struct NoCertificate;
        impl std::fmt::Debug for NoCertificate {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("NoCertificate")
            }
        }
        impl rustls::server::ResolvesServerCert for NoCertificate {
            fn resolve(
                &self,
                _: rustls::server::ClientHello<'_>,
            ) -> Option<Arc<rustls::sign::CertifiedKey>> {
                None
            }
        }
        Some(Arc::new(builder.with_cert_resolver(Arc::new(NoCertificate))))
    };
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = |access: ApiAccess| {
        ApiServer::bind(everywhere, access).err().map(|error| {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            error.to_string()
        })
    };
    let bare = ApiAccess::default;
    assert!(refused(bare()).unwrap().contains("without TLS"));
    assert!(
        refused(ApiAccess { tokens: tokens.clone(), ..bare() }).unwrap().contains("without TLS")
    );
    assert!(refused(ApiAccess { tls: tls(), ..bare() }).unwrap().contains("no tokens"));
    let anonymous = Some(AccessRole::Read);
    let open = ApiAccess { tls: tls(), tokens: tokens.clone(), anonymous, ..bare() };
    assert!(refused(open).unwrap().contains("shows no token"));
    assert_eq!(refused(ApiAccess { tls: tls(), tokens, ..bare() }), None);
    assert_eq!(refused(ApiAccess { exposed: true, ..bare() }), None);
    assert!(ApiServer::bind("[::1]:0".parse().unwrap(), bare()).is_ok());
}

#[test]
fn an_anonymous_role_is_that_of_who_shows_no_token_and_names_are_those_given() {
    let access = ApiAccess {
        anonymous: Some(AccessRole::Read),
        names: vec!["station.example".into()],
        ..ApiAccess::default()
    };
    let server = ApiServer::bind("127.0.0.1:0".parse().unwrap(), access).unwrap();
    let (address, stop) = (server.address().unwrap(), ServerStop::new());
    std::thread::scope(|scope| {
        let backend = Arc::new(FakeBackend::default());
        let serve =
            || server.serve(backend, ApiLimits::default(), ApiHooks::default(), &stop).unwrap();
        scope.spawn(serve);
        let ask = |method, path| Asking::new(address, method, path);
        assert_eq!(ask("GET", "/sonde/v1/station").host("Station.example:80").send().status, 200);
        let change = ask("POST", "/sonde/v1/targets").json(TARGET).fields("If-Match: *\r\n").send();
        assert_eq!(
            change.json()["detail"],
            "token 'anonymous' is of role read; this needs operate"
        );
        // A wrong token is not as good as none.
        assert_eq!(ask("GET", "/sonde/v1/station").token("x").send().status, 401);
        stop.stop();
    });
}

#[test]
fn silences_and_acknowledgements_bear_the_name_of_their_token() {
    Bed::with_defaults(|bed| {
        let body =
            json!({ "name": "night", "labels": { "site": "BER" }, "to": "2100-01-01T00:00:00Z" });
        let body = body.to_string();
        let asking = bed.ask("POST", "/sonde/v1/silences").token(&bed.operate).json(&body);
        let made = asking.send();
        assert_eq!((made.status, made.json()["by"].as_str()), (201, Some("desk")));
        let path = "/sonde/v1/events/e1/acknowledgement";
        let note = r#"{"note":"on it"}"#;
        let event = bed.ask("POST", path).token(&bed.operate).json(note).send().json();
        assert_eq!(event["event"]["acknowledged"]["by"], "desk");
        let list: Value = bed.get("/sonde/v1/silences").json();
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        let id = made.header("location").unwrap();
        assert_eq!(bed.ask("DELETE", id).token(&bed.operate).send().status, 204);
    });
}

#[test]
fn whoever_may_open_the_socket_asks_without_a_token_and_has_the_name_of_its_user() {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::MetadataExt as _;
    let body = r#"{"name":"night","labels":{"site":"BER"},"to":"2100-01-01T00:00:00Z"}"#;
    let silence = format!(
        "POST /sonde/v1/silences HTTP/1.0\r\nHost: localhost\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let path = std::env::temp_dir().join(format!("sonde-api-{}.sock", std::process::id()));
    let access = ApiAccess { anonymous: Some(AccessRole::Admin), ..ApiAccess::default() };
    let server = ApiServer::bind_socket(&path, access).unwrap();
    let stop = ServerStop::new();
    let backend = Arc::new(FakeBackend::default());
    std::thread::scope(|scope| {
        let served =
            scope.spawn(|| server.serve(backend, ApiLimits::default(), ApiHooks::default(), &stop));
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET /sonde/v1/config HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.write_all(silence.as_bytes()).unwrap();
        let mut made = String::new();
        stream.read_to_string(&mut made).unwrap();
        stop.stop();
        served.join().unwrap().unwrap();
        assert!(answer.contains(" 200 ") && answer.contains("\"version\":\"c1\""), "{answer}");
        // Who asks is the user of this process.
        let uid = std::fs::metadata("/proc/self").unwrap().uid();
        let by = format!("\"by\":\"{}\"", crate::listener::user_name(uid));
        assert!(made.contains(&by), "{made}");
    });
    assert!(!path.exists());
}
