//! The dashboard for Grafana: each of its queries has an answer of Debian's Prometheus, which
//! scrapes a station that measures.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::network::{Network, PROBE, TRAFFIC};
use crate::prometheus::Prometheus;

const DASHBOARD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/dashboards/sonde.json");

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(DASHBOARD).unwrap()).unwrap()
}

/// Panels that show something.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let all = dashboard["panels"].as_array().unwrap();
    all.iter().filter(|panel| panel["type"] != "row").collect()
}

/// What Prometheus is asked for a panel or a variable, and the label that a variable takes of it.
struct Asked {
    by: String,
    query: String,
    label: Option<String>,
}

fn queries(dashboard: &Value) -> Vec<Asked> {
    let mut all = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().unwrap() {
            let query = filled(target["expr"].as_str().unwrap());
            all.push(Asked { by: panel["title"].to_string(), query, label: None });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["query"]["query"].as_str() else { continue };
        // `label_values(SERIES, LABEL)`
        let inner = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (series, label) = inner.rsplit_once(", ").unwrap();
        let (by, label) = (variable["name"].to_string(), Some(label.to_owned()));
        all.push(Asked { by, query: filled(series), label });
    }
    all
}

/// With Grafana's variables filled in, all of each chosen.
fn filled(query: &str) -> String {
    let mut text = query.to_owned();
    for (name, value) in [
        ("$__rate_interval", "10s"),
        ("$__range", "1m"),
        ("$station", ".*"),
        ("$class", ".*"),
        ("$target", ".*"),
    ] {
        text = text.replace(name, value);
    }
    assert!(!text.contains('$'), "{query}");
    text
}

#[test]
fn the_dashboard_can_be_provisioned_and_draws_no_value_where_there_is_none() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "sonde-station");
    assert!(dashboard["schemaVersion"].as_u64() >= Some(36));
    // These serve an import by hand alone; with an id it could not be made anew.
    assert!(dashboard.get("__inputs").is_none() && dashboard.get("id").is_none());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|v| v["type"] == "datasource" && v["name"] == "datasource"));
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{} lies on another", panel["title"]);
            }
        }
    }
    for panel in panels(&dashboard) {
        let title = &panel["title"];
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title}");
        let defaults = &panel["fieldConfig"]["defaults"];
        assert!(defaults["unit"].is_string(), "{title} has no unit");
        if panel["type"] == "timeseries" || panel["type"] == "state-timeline" {
            assert_eq!(defaults["custom"]["spanNulls"], false, "{title}");
        }
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
    let rows: Vec<&str> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|panel| panel["title"].as_str().unwrap())
        .collect();
    assert_eq!(
        rows,
        ["Overview", "Delay", "Loss", "Availability", "Traffic", "The station itself"]
    );
}

#[test]
fn every_query_of_the_dashboard_has_an_answer() {
    let test = "every_query_of_the_dashboard_has_an_answer";
    if sonde_lab::skip(test) {
        return;
    }
    // Somebody who takes all that it is sent, so that there is an exporter.
    let export = "[export.lines]\nkind = 'influx'\nudp = '127.0.0.1:8089'\nevery = '1s'\n";
    let network = Network::new("grafana", &format!("{PROBE}{TRAFFIC}{export}"));
    let _pinged = network.bed.start(network.ping());
    let listens = || std::net::UdpSocket::bind("127.0.0.1:8089").unwrap();
    let _lines = network.near.inside(listens).unwrap();
    let (api, token) = (network.api(), &network.read);
    let scrapes = format!(
        "- {{job_name: sonde, authorization: {{credentials: {token}}}, \
         static_configs: [{{targets: ['{api}']}}]}}\n"
    );
    let Some(prometheus) = Prometheus::start(test, &network.bed, &network.near, &scrapes) else {
        return;
    };
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() > 30, "{}", queries.len());
    for Asked { by, query, label } in &queries {
        network.bed.until(&format!("an answer for {by}: {query}"), || {
            let shows = |series: &Value| {
                let value = series["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
                let labelled =
                    label.as_ref().is_none_or(|label| series["metric"][label].is_string());
                value.is_some_and(f64::is_finite) && labelled
            };
            // An error of the query is a failure of the test.
            prometheus.query(query).iter().any(shows)
        });
    }
    // What they show is what is so.
    for (query, wanted) in [
        ("sum(sonde_units{phase=\"running\"})", 3.0),
        ("count(sonde_available == 1)", 2.0),
        ("sum(sonde_queue_dropped_total)", 0.0),
        // All groups and applications are shown, so they add up to all that was seen.
        (
            "sum(sonde_passive_rtt_seconds_count) - sum(sonde_passive_samples_total{kind=\"clean\"})",
            0.0,
        ),
        ("sum(sonde_flow_bytes_total) - sum(sonde_flow_application_bytes_total)", 0.0),
        ("count(sonde_flow_bytes_total{interface=\"eth0\",unit=\"flow.up\"})", 1.0),
        ("count(sonde_passive_rtt_seconds_count{group=\"10.1.0.0/24\",unit=\"rtt.up\"})", 1.0),
        ("sum(scrape_samples_scraped) - sum(sonde_metrics_series) - 1", 0.0),
    ] {
        prometheus.until(&network.bed, query, |value| value == wanted);
    }
}
