//! Remote write: Prometheus holds what the station counted, also of a time when it was away.

use serde_json::Value;

use crate::network::{Network, PROBE, TARGET};
use crate::prometheus::{LISTEN, Prometheus};

#[test]
fn prometheus_is_sent_what_a_station_counts_and_misses_nothing_of_the_time_it_was_away() {
    let test = "prometheus_is_sent_what_a_station_counts_and_misses_nothing";
    if sonde_lab::skip(test) {
        return;
    }
    let export = format!(
        "[export.prom]\nkind = 'remote_write'\nurl = 'http://{LISTEN}/api/v1/write'\nevery = '1s'\n"
    );
    let network = Network::new("rwrite", &format!("{PROBE}{export}"));
    let bed = &network.bed;
    // It was not there yet when the station began.
    let Some(mut prometheus) = Prometheus::start(test, bed, &network.near, "  []\n") else {
        return;
    };
    let of = |name: &str, labels: &str| format!("{name}{{station=\"ber\"{labels}}}");
    let class = format!(",target=\"{TARGET}\",class=\"EF\",module=\"stamp\"");
    prometheus.until(bed, &of("sonde_sent_total", &class), |value| value > 0.0);
    // As many values in the widest bucket as in the count.
    let count = of("sonde_rtt_seconds_count", ",class=\"EF\"");
    let bucket = of("sonde_rtt_seconds_bucket", ",class=\"EF\",le=\"+Inf\"");
    prometheus.until(bed, &format!("{bucket} == on() {count} > 0"), |value| value > 0.0);
    prometheus.until(bed, &of("sonde_units", ",phase=\"running\""), |value| value == 1.0);

    prometheus.end();
    // The first try that fails may have been under way.
    bed.until("a refusal", || {
        let health = network.export("prom");
        let why = health["last_error"].as_str().unwrap_or_default();
        !health["failing_since"].is_null() && why.contains("refused")
    });
    bed.until("a queue", || network.export("prom")["waiting"].as_u64() > Some(2));
    prometheus.begin(bed);
    // All that was taken is there, and nothing waits for longer than a round.
    bed.until("all of it", || {
        let health = network.export("prom");
        let held: usize = prometheus
            .query("{station=\"ber\"}[1h]")
            .iter()
            .map(|series| series["values"].as_array().unwrap().len())
            .sum();
        health["failing_since"].is_null() && health["delivered_points"] == held
    });
    let health = network.export("prom");
    let none = |key: &str| assert_eq!(health[key], Value::from(0), "{health}");
    ["refused_points", "dropped_points"].iter().for_each(|key| none(key));

    // What it holds is what the station says once nothing is measured any more.
    network.reload(&export);
    bed.until("its last counts", || {
        let sent = network.metric("sonde_sent_total{");
        sent > 0.0 && prometheus.value("sum(sonde_sent_total)") == Some(sent)
    });
    network.reload("");
    assert_eq!(network.export("prom"), Value::Null);
}
