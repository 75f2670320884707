//! Targets that the API adds to a sender that runs.

use serde_json::json;
use sonde_station::client::StationAnswer;

use super::*;

const MEASURES: &str = r#"
[probe.core]
stream = { interval = "5ms" }
run = { record_interval = "200ms", timeout = "500ms" }
[[probe.core.target]]
host = "10.1.0.2"
"#;

#[test]
fn targets_are_added_to_a_running_sender_and_a_restart_knows_them() {
    if sonde_lab::skip("targets_are_added_to_a_running_sender_and_a_restart_knows_them") {
        return;
    }
    let net = Topology::pair("targets", &LinkOptions::default()).unwrap();
    let folder = Folder::new("targets");
    let answering = Running::start(&net.reflector, ANSWERS, &folder.0.join("answers"));
    Seen::default().read(&answering.records, |report| matches!(report.said, Said::Reflector(_)));
    let store = folder.0.join("store");
    let station = Running::start(&net.probe, MEASURES, &store);
    let api = Api(StationClient::new(&folder.0.join("store.sock")));
    let mut seen = Seen::default();
    seen.read(&station.records, |report| matches!(report.said, Said::Probe(_)));

    api.refuses_what_cannot_be();
    let second = json!({"unit": "probe.core", "host": "10.2.0.1", "name": "second"});
    let made = api.change("POST", TARGETS, &["Idempotency-Key: k1"], &second);
    assert_eq!(made.status, 201, "{}", text(&made));
    assert_eq!(api.change("POST", TARGETS, &["Idempotency-Key: k1"], &second).body, made.body);
    let third = json!({
        "unit": "probe.core", "host": "10.1.0.2", "name": "third", "labels": {"site": "muc"},
        "settings": {"stream": {"dscp": [46]}},
    });
    let made = api.change("POST", TARGETS, &[], &third);
    assert_eq!(made.status, 201, "{}", text(&made));
    for name in ["second", "third"] {
        api.is_measured(name, &station, &mut seen);
    }
    let shown = api.target("third");
    assert_eq!(
        (&shown["origin"], &shown["labels"]["site"], &shown["addresses"]),
        (&"api".into(), &"muc".into(), &json!(["10.1.0.2"]))
    );
    assert_eq!(api.0.get("/sonde/v1/config").unwrap()["added_targets"], 2);

    // Another class, by a change: the stream that there was ends.
    let changed = json!({"settings": {"stream": {"dscp": [0]}}});
    let changed = merged(&third, &changed);
    let answer = api.change("PUT", &path_of("third"), &[], &changed);
    assert_eq!(answer.status, 200, "{}", text(&answer));
    let renamed = api.change("PUT", &path_of("third"), &[], &merged(&third, &json!({"name": "x"})));
    assert!(renamed.status == 422 && text(&renamed).contains("/name"), "{}", text(&renamed));
    seen.read(&station.records, |report| {
        matches!(&report.said, Said::ProbeEvent(Event::Ended(streams)) if streams.len() == 1)
    });

    let of_file = api.change("DELETE", &path_of("10.1.0.2"), &[], &Value::Null);
    assert!(of_file.status == 409 && text(&of_file).contains("file"), "{}", text(&of_file));
    assert_eq!(api.change("DELETE", &path_of("second"), &[], &Value::Null).status, 204);
    assert_eq!(api.change("DELETE", &path_of("second"), &[], &Value::Null).status, 404);
    seen.read(&station.records, |report| {
        matches!(&report.said, Said::ProbeEvent(Event::Ended(streams)) if streams.len() == 1)
    });
    // A reload of the files leaves what was added.
    let steps = api.0.get("/sonde/v1/config/changes").unwrap()["steps"].clone();
    assert_eq!((&steps[0]["action"], &steps[1]), (&"keep".into(), &Value::Null), "{steps}");
    station.service.reload().unwrap();
    assert_eq!(api.names(), ["10.1.0.2", "third"]);
    station.stop(&mut seen);
    let (sent, received) = seen.sums("10.1.0.2", i64::MIN, i64::MAX);
    assert!(sent > 0 && sent == received, "{sent} {received}");

    let station = Running::start(&net.probe, MEASURES, &store);
    let mut seen = Seen::default();
    seen.read(&station.records, |report| matches!(report.said, Said::Probe(_)));
    assert_eq!(api.names(), ["10.1.0.2", "third"]);
    api.is_measured("third", &station, &mut seen);
    station.stop(&mut seen);
    answering.stop(&mut Seen::default());
}

struct Api(StationClient);

impl Api {
    /// Changes targets in the version that they have now.
    fn change(&self, method: &str, path: &str, fields: &[&str], body: &Value) -> StationAnswer {
        let tag = self.0.send("GET", TARGETS, &[], "").unwrap().etag.unwrap();
        let tag = format!("If-Match: {tag}");
        let fields: Vec<&str> = fields.iter().copied().chain([&*tag]).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.0.send(method, path, &fields, &body).unwrap()
    }

    fn target(&self, name: &str) -> Value {
        self.0.get(&path_of(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let all = self.0.list(TARGETS, "", 10).unwrap();
        all.iter().map(|target| target["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a target has a series that is well, and a record in which all was answered.
    fn is_measured(&self, name: &str, station: &Running, seen: &mut Seen) {
        seen.until(&station.records, || (self.target(name)["state"] == "ok").then_some(()));
        let target = self.target(name);
        assert_eq!(target["series"].as_array().unwrap().len(), 1, "{target}");
        while seen.sums(name, i64::MIN, i64::MAX).1 == 0 {
            seen.one(&station.records);
        }
    }

    fn refuses_what_cannot_be(&self) {
        let good = json!({"unit": "probe.core", "host": "10.2.0.1"});
        assert_eq!(self.0.send("POST", TARGETS, &[], &good.to_string()).unwrap().status, 428);
        let stale = self.0.send("POST", TARGETS, &["If-Match: \"x\""], &good.to_string()).unwrap();
        assert_eq!(stale.status, 412);
        for (wrong, status, pointer) in [
            (json!({"unit": "probe.other"}), 422, "/unit"),
            (json!({"unit": "reflect.main"}), 422, "/unit"),
            (json!({"host": "10.1.0.2"}), 409, "/name"),
            (json!({"host": "10.0.0.0/8"}), 422, "/host"),
            (json!({"host": "10.2.0.1:862"}), 422, "/host"),
            (json!({"settings": {"stream": {"ttl": 900}}}), 422, "/settings/stream/ttl"),
            (json!({"settings": {"stream": {"ttl": 0}}}), 422, "/settings/stream/ttl"),
            (json!({"settings": {"stream": {"source": "::1"}}}), 422, "/settings/stream/source"),
        ] {
            let answer = self.change("POST", TARGETS, &[], &merged(&good, &wrong));
            let problem: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(
                (answer.status, &problem["errors"][0]["pointer"]),
                (status, &pointer.into())
            );
        }
        assert_eq!(self.names(), ["10.1.0.2"]);
    }
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut all = one.as_object().unwrap().clone();
    all.extend(other.as_object().unwrap().clone());
    all.into()
}

fn text(answer: &StationAnswer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

fn path_of(name: &str) -> String {
    format!("{TARGETS}/probe.core:{name}")
}

const TARGETS: &str = "/sonde/v1/targets";
