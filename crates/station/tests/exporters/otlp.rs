//! OTLP: what a station sends, as OpenTelemetry's own messages read it.

use serde_json::Value;

use crate::network::{Network, PROBE, TARGET};

/// The Python that has opentelemetry-proto: scripts/interop.sh names it.
const PYTHON: &str = "SONDE_OTLP_PYTHON";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/interop/otlp_receiver.py");

#[test]
fn opentelemetrys_messages_hold_what_a_station_counts() {
    let test = "opentelemetrys_messages_hold_what_a_station_counts";
    if sonde_lab::skip(test) {
        return;
    }
    let Some(python) = std::env::var_os(PYTHON) else {
        sonde_lab::skipped(test, format!("{PYTHON} names no Python; scripts/interop.sh does"));
        return;
    };
    let exports = |more: &str| {
        let one = |name: &str| {
            let token = "token_file = 'TOKEN'";
            let url = format!("url = 'http://127.0.0.1:4318/{name}'");
            format!(
                "[export.{name}]\nkind = 'otlp'\n{url}\nhistograms = '{name}'\n{token}\nevery = '1s'\n"
            )
        };
        format!("{more}{}{}", one("exponential"), one("explicit"))
    };
    let network = Network::new("otlp", PROBE);
    let (bed, near) = (&network.bed, &network.near);
    let token = bed.write("otlp-token", "open-sesame\n");
    let mut command = near.command(python.to_str().unwrap());
    command.args([SCRIPT, "4318"]);
    let _receiver = bed.start(command);
    bed.until("the receiver", || bed.read("out").lines().any(|line| line == "ready"));
    let exports = |more: &str| exports(more).replace("TOKEN", &token);
    network.reload(&exports(PROBE));
    bed.until("requests", || {
        let taken = |name: &str| network.export(name)["delivered_points"].as_u64() > Some(40);
        taken("exponential") && taken("explicit")
    });
    // Nothing is measured any more: the next requests have the last counts.
    network.reload(&exports(""));
    let sent = || network.metric("sonde_sent_total{");
    bed.until("the last counts", || {
        let all = requests(&bed.read("out"));
        ["exponential", "explicit"].iter().all(|name| {
            let last = all.iter().rev().find(|line| {
                line["path"] == format!("/{name}").as_str() && !metric(line, "sonde.sent").is_null()
            });
            last.is_some_and(|line| sum_of(line, "sonde.sent") == sent())
        })
    });
    for name in ["exponential", "explicit"] {
        let health = network.export(name);
        assert!(health["refused_points"] == 0 && health["failures"] == 0, "{health}");
    }
    let all = requests(&bed.read("out"));
    let last = |name: &str, metric_name: &str| {
        let path = format!("/{name}");
        let found = all
            .iter()
            .rev()
            .find(|line| line["path"] == path.as_str() && !metric(line, metric_name).is_null());
        found.unwrap_or_else(|| panic!("no {metric_name} to {name}")).clone()
    };
    let line = last("exponential", "sonde.sent");
    assert_eq!(line["headers"]["authorization"], "Bearer open-sesame");
    assert_eq!(line["headers"]["content-type"], "application/x-protobuf");
    let resource = &line["request"]["resource_metrics"][0]["resource"]["attributes"];
    assert_eq!(attribute(resource, "service.instance.id"), "ber");
    let sums = &metric(&line, "sonde.sent")["sum"];
    assert_eq!(sums["aggregation_temporality"], "AGGREGATION_TEMPORALITY_CUMULATIVE");
    assert_eq!(sums["is_monotonic"], true);
    assert_eq!(attribute(&sums["data_points"][0]["attributes"], "target"), TARGET);
    histograms_agree(&network, &last("exponential", "sonde.rtt"), &last("explicit", "sonde.rtt"));
}

/// Both kinds of buckets have the same counts, sums and ends, which are those of `/metrics`.
fn histograms_agree(network: &Network, exponential: &Value, explicit: &Value) {
    let of = |line: &Value, kind: &str| {
        let points = metric(line, "sonde.rtt")[kind]["data_points"].as_array().unwrap().clone();
        let class = |point: &&Value| attribute(&point["attributes"], "class") == "EF";
        points.iter().find(class).unwrap().clone()
    };
    let (wide, own) = (of(exponential, "exponential_histogram"), of(explicit, "histogram"));
    for key in ["count", "sum", "min", "max"] {
        assert_eq!(wide[key], own[key], "{key}: {wide} {own}");
    }
    let numbers =
        |list: &Value| -> Vec<f64> { list.as_array().into_iter().flatten().map(number).collect() };
    let count = number(&own["count"]);
    let labels = "station=\"ber\",class=\"EF\",module=\"stamp\"";
    assert_eq!(network.metric(&format!("sonde_rtt_seconds_count{{{labels}}}")), count);
    assert_eq!(network.metric(&format!("sonde_rtt_seconds_sum{{{labels}}}")), number(&own["sum"]));
    let counts = numbers(&own["bucket_counts"]);
    assert_eq!(counts.iter().sum::<f64>(), count);
    let bounds = numbers(&own["explicit_bounds"]);
    assert_eq!(counts.len(), bounds.len() + 1);
    // Cumulative, they are the buckets of `/metrics`.
    let mut upto = 0.0;
    for (bound, counted) in bounds.iter().zip(&counts) {
        upto += counted;
        let le = format!("sonde_rtt_seconds_bucket{{{labels},le=\"{bound}\"}}");
        assert_eq!(network.metric(&le), upto, "{le}");
    }
    // Each value lies in a bucket between the least and the greatest, or one beside.
    let scale = number(&wide["scale"]);
    let base = 2_f64.powf(2_f64.powf(-scale));
    let positive = &wide["positive"];
    let counts = numbers(&positive["bucket_counts"]);
    assert_eq!(counts.iter().sum::<f64>() + number(&wide["zero_count"]), count);
    let first = positive["offset"].as_f64().unwrap_or(0.0);
    let (low, high) = (base.powf(first), base.powf(first + counts.len() as f64));
    let (least, greatest) = (number(&own["min"]), number(&own["max"]));
    assert!(low / base <= least && least <= high && greatest <= high * base, "{low} {high} {own}");
    assert!(counts[0] > 0.0 && counts[counts.len() - 1] > 0.0, "{counts:?}");
}

fn requests(out: &str) -> Vec<Value> {
    let lines = out.lines().filter(|line| line.starts_with('{'));
    // The last one may not be whole yet.
    let all: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let error = all.iter().find(|line| line.get("error").is_some());
    assert!(error.is_none(), "{error:?}");
    all
}

/// A metric of a request; null: it is in another.
fn metric(line: &Value, name: &str) -> Value {
    let metrics = &line["request"]["resource_metrics"][0]["scope_metrics"][0]["metrics"];
    let found = metrics.as_array().into_iter().flatten().find(|metric| metric["name"] == name);
    found.cloned().unwrap_or_default()
}

fn sum_of(line: &Value, name: &str) -> f64 {
    let points = &metric(line, name)["sum"]["data_points"];
    points.as_array().into_iter().flatten().map(|point| number(&point["as_int"])).sum()
}

fn attribute(attributes: &Value, key: &str) -> String {
    let found = attributes.as_array().into_iter().flatten().find(|pair| pair["key"] == key);
    found.map_or(String::new(), |pair| pair["value"]["string_value"].as_str().unwrap().to_owned())
}

/// Protobuf's JSON has 64-bit integers as text, and leaves out what is 0.
fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap_or(0.0),
    }
}
