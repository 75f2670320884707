//! Which setting is wrong is named in one way by all instruments. It is its whole path, at the head
//! of the text, and what bounds it, with units.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sonde_results::schema;

use crate::error::SettingsError;
use crate::flow::verify;
use crate::{flow, probe, reflect, rtt, traffic};

type Check = fn(Value) -> Result<(), SettingsError>;

fn check<S: DeserializeOwned>(
    value: Value,
    check: fn(&S) -> Result<(), SettingsError>,
) -> Result<(), SettingsError> {
    check(&serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{value}: {e}")))
}

/// What is checked, its schema, the least that is right, and what is wrong: where, the value, and
/// how the text goes on.
struct Instrument {
    check: Check,
    schema: Value,
    right: Value,
    wrong: Vec<(&'static str, Value, &'static str)>,
}

fn instruments() -> Vec<Instrument> {
    let engine = || {
        vec![
            ("engine.busy_poll", json!(0), "0 must be between 1 and 512"),
            ("engine.queues", json!([1, 1]), "1 is given twice"),
            ("engine.xdp_mode", json!("copy"), "it is for `engine.engine = af_xdp`"),
        ]
    };
    let streams = [
        ("interval", json!("0s"), "0s must be between 1ns and 8784h"),
        ("count", json!(0), "0 must be at least 1"),
        ("size", json!(71), "71 must be between 72 and 65535"),
        ("dscp", json!([]), "the list is empty"),
        ("dscp", json!([64]), "64 must be between 0 and 63"),
        ("port", json!(0), "0 must be between 1 and 65535"),
        ("flows", json!(4097), "4097 must be between 1 and 4096"),
        ("flow_ports", json!("5-9"), "it has no effect without `stream.flows`"),
        ("ttl", json!(0), "0 must be between 1 and 255"),
        ("source_port", json!(0), "0 must be between 1 and 65535"),
    ];
    let mut probe = engine();
    for (key, value, text) in streams {
        probe.push((format!("stream.{key}").leak(), value.clone(), text));
        let text = format!("target a: {text}").leak();
        probe.push((format!("target.stream.{key}").leak(), value, text));
    }
    probe.extend([
        ("target", json!([]), "there is none"),
        ("stream.interval", json!("1ns"), "1ns makes more than 2 billion probes"),
        ("run.duration", json!("0s"), "0s must be between 1ns and 600000h"),
        ("run.timeout", json!("61s"), "61s must be between 1ms and 60s"),
        ("run.record_interval", json!("1ms"), "1ms must be between 100ms and 24h"),
        ("fragment", json!(true), ""),
    ]);
    let mut reflect = engine();
    reflect.extend([
        ("port", json!([]), "name at least one"),
        ("port", json!([862, 862]), "862 is given twice"),
        ("bind", json!(["192.0.2.1", "192.0.2.1"]), "192.0.2.1 is given twice"),
        ("max_sessions", json!(0), "0 must be between 1 and 4194304"),
        ("session_timeout", json!("999ms"), "999ms must be at least 1s"),
        ("report_interval", json!("0s"), "0s must be longer than zero"),
    ]);
    vec![
        Instrument {
            check: |value| check(value, probe::Settings::check),
            schema: schema::of::<probe::Settings>(),
            right: json!({"target": [{"host": "a"}]}),
            wrong: probe,
        },
        Instrument {
            check: |value| check(value, reflect::Settings::check),
            schema: schema::of::<reflect::Settings>(),
            right: json!({}),
            wrong: reflect,
        },
        Instrument {
            check: |value| check(value, rtt::Settings::check),
            schema: schema::of::<rtt::Settings>(),
            right: json!({"sources": ["lo"]}),
            wrong: vec![
                ("sources", json!([]), "name an interface"),
                ("interval", json!("99ms"), "99ms must be between 100ms and 24h"),
                ("duration", json!("0s"), "0s must be longer than zero"),
                ("flows", json!(65), "65 is not a power of two"),
                ("by", json!("as"), "`by = as` needs `prefixes`"),
                ("engine", json!("socket"), "socket takes packets away"),
                ("port", json!([1, 2, 3, 4, 5, 6, 7, 8, 9]), ""),
            ],
        },
        Instrument {
            check: |value| check(value, flow::Settings::check),
            schema: schema::of::<flow::Settings>(),
            right: json!({"sources": ["lo"]}),
            wrong: vec![
                ("sources", json!([]), "name an interface"),
                ("duration", json!("0s"), "0s must be longer than zero"),
                ("input.workers", json!(65), "65 must be between 1 and 64"),
                ("input.cpus", json!([0, 1]), "2 processors are more than"),
                ("input.trim", json!(63), "63 must be at least 64"),
                ("input.mirror", json!(true), "it is for `input.engine = af_xdp`"),
                ("metering.idle", json!("13h"), "13h must be between 1ms and 12h"),
                ("metering.active", json!("0s"), "0s must be between 1ms and 12h"),
                ("metering.flows", json!(63), "'63' is not a number of flows"),
                ("metering.fields", json!(["tcp", "tcp"]), "tcp is given twice"),
                ("selection.sample_key", json!(1), "it is for `selection.sample`"),
                ("export.rotate", json!("0s"), "0s must be longer than zero"),
                ("export.template_every", json!("0s"), "0s must be longer than zero"),
                ("export.write", json!(["a.txt"]), ""),
                ("export.biflow", json!(true), "it is for IPFIX"),
                ("export.tls_cert", json!("a.pem"), "a certificate and its key"),
            ],
        },
        Instrument {
            check: |value| check(value, verify::Settings::check),
            schema: schema::of::<verify::Settings>(),
            right: json!({"truth": "t.csv", "files": ["t.ipfix"]}),
            wrong: vec![
                ("truth", json!(""), "name the CSV file"),
                ("files", json!([]), "name what was exported"),
                ("until_idle", json!("0s"), "0s must be longer than zero"),
                ("idle", json!("0s"), "0s must be longer than zero"),
                ("tolerance", json!(2.0), "2 must be between 0 and 1"),
                ("truth_start", json!(-1), "-1 must be between 0 and 4102444800000"),
                ("show", json!(65_535), "65535 must be between 0 and "),
            ],
        },
        Instrument {
            check: |value| check(value, traffic::Settings::check),
            schema: schema::of::<traffic::Settings>(),
            right: json!({"out": "t.pcap"}),
            wrong: vec![
                ("out", json!(null), "name a file or an interface"),
                ("duration", json!("0s"), "0s must be longer than zero"),
                ("new_flows", json!(0), "0 must be at least 1"),
                ("flows", json!(0), "0 flows at once cannot be made"),
                ("rate", json!(0), "the rate"),
                ("variety", json!(2.0), "2 is not a share"),
                ("ipv6", json!(-1.0), "-1 is not a share"),
                ("truth_form", json!("biflow"), "it is for `truth`"),
            ],
        },
    ]
}

/// `right` with `value` at the path; a table that is a list has one entry.
fn with(mut right: Value, path: &str, value: &Value) -> Value {
    let mut at = &mut right;
    let mut keys = path.split('.').peekable();
    while let Some(key) = keys.next() {
        at = &mut at[key];
        if keys.peek().is_some() && at.is_array() {
            at = &mut at[0];
        }
    }
    *at = value.clone();
    right
}

/// What the schema says of the setting at this path.
fn described<'a>(schema: &'a Value, path: &str) -> &'a Value {
    let resolved = |mut of: &'a Value| {
        while let Some(name) = of["$ref"].as_str() {
            of = &schema["$defs"][name.strip_prefix("#/$defs/").unwrap()];
        }
        of
    };
    path.split('.').fold(schema, |at, key| {
        let at = resolved(at);
        let at = if at["type"] == "array" { resolved(&at["items"]) } else { at };
        let found = &at["properties"][key];
        assert!(!found.is_null(), "{path}: no {key} in {at}");
        found
    })
}

#[test]
fn every_instrument_names_the_whole_path_and_the_bounds_of_what_is_wrong() {
    for Instrument { check, schema, right, wrong } in instruments() {
        assert_eq!(check(right.clone()), Ok(()));
        for (path, value, text) in wrong {
            let value = with(right.clone(), path, &value);
            described(&schema, path);
            let result = match path {
                // It goes by sockets only.
                "fragment" => check(with(value, "engine.engine", &json!("af_packet"))),
                _ => check(value),
            };
            let Err(wrong) = result else { panic!("{path} is right, and should be wrong: {text}") };
            assert_eq!(wrong.key.as_deref(), Some(path), "{wrong}");
            assert!(wrong.message.starts_with(&format!("{path}: {text}")), "{wrong}");
        }
    }
}

#[test]
fn a_setting_that_is_one_of_several_words_has_them_in_the_schema() {
    let [probe, reflect, rtt, ..] = &instruments()[..] else { panic!() };
    let of = |schema, path| described(schema, path)["enum"].clone();
    let engines = json!(["socket", "af_packet", "af_xdp"]);
    for instrument in [probe, reflect] {
        assert_eq!(of(&instrument.schema, "engine.engine"), engines);
        let modes = json!(["auto", "zerocopy", "copy", "generic"]);
        assert_eq!(of(&instrument.schema, "engine.xdp_mode"), modes);
    }
    assert_eq!(of(&rtt.schema, "engine"), json!(["af_packet", null]));
    assert_eq!(of(&probe.schema, "stream.schedule"), json!(["periodic", "poisson", null]));
    let kinds = json!(["auto", "stateful", "stateless", null]);
    assert_eq!(of(&probe.schema, "target.stream.reflector"), kinds);
    // Each is taken, and nothing else.
    for mode in of(&probe.schema, "engine.xdp_mode").as_array().unwrap() {
        let settings = json!({"engine": {"engine": "af_xdp", "xdp_mode": mode}});
        serde_json::from_value::<probe::Settings>(settings).unwrap();
    }
    let text = &described(&probe.schema, "stream.interval")["description"];
    assert_eq!(text, "Time between the probes of one stream [default: 1s]");
}
