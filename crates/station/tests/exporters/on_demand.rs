//! `/probe`: Prometheus has a station measure as it has blackbox_exporter, on real packets.

use crate::network::{Network, TARGET};
use crate::prometheus::Prometheus;

const MODULES: &str = "
[module.ef]
stream = { count = 5, interval = '20ms', dscp = [46], flows = 2 }
timeout = '300ms'
";

#[test]
fn prometheus_has_a_station_measure_by_blackbox_exporters_names() {
    let test = "prometheus_has_a_station_measure_by_blackbox_exporters_names";
    if sonde_lab::skip(test) {
        return;
    }
    let network = Network::new("ondemand", MODULES);
    let (api, token) = (network.api(), &network.operate);
    let relabel = format!(
        "relabel_configs: [{{source_labels: [__address__], target_label: __param_target}}, \
         {{source_labels: [__param_target], target_label: instance}}, \
         {{target_label: __address__, replacement: '{api}'}}]"
    );
    // As the documentation has it, with the module and a port of each target.
    let scrapes = format!(
        "- {{job_name: blackbox, metrics_path: /probe, params: {{module: [ef]}}, scrape_interval: 3s, \
         scrape_timeout: 3s, \
         authorization: {{credentials: {token}}}, \
         static_configs: [{{targets: ['{TARGET}', '{TARGET}:9']}}], {relabel}}}\n"
    );
    let Some(prometheus) = Prometheus::start(test, &network.bed, &network.near, &scrapes) else {
        return;
    };
    let of = |name: &str, labels: &str| format!("{name}{{instance=\"{TARGET}\"{labels}}}");
    let bed = &network.bed;
    prometheus.until(bed, &of("probe_success", ""), |value| value == 1.0);
    let silent = format!("probe_success{{instance=\"{TARGET}:9\"}}");
    prometheus.until(bed, &silent, |value| value == 0.0);
    // Also where the newest scrape was too late for Prometheus.
    let last = |series: &str| prometheus.value(&format!("last_over_time({series}[5m])"));
    let value = |name: &str, labels: &str| last(&of(name, labels)).unwrap();
    // Two streams of five probes, all answered. One that is late on a busy host is not sent.
    let answered =
        format!("min({{__name__=~\"sonde_probe_(sent|received)\",instance=\"{TARGET}\"}})");
    prometheus.until(bed, &answered, |value| value == 10.0);
    let lost = of("sonde_probe_lost", ",direction=\"unknown\"");
    prometheus.until(bed, &lost, |value| value == 0.0);
    assert_eq!(value("probe_ip_protocol", ""), 4.0);
    assert_eq!(value("probe_timeout_seconds", ""), 0.4);
    let (least, greatest) = (
        value("sonde_probe_rtt_seconds", ",quantile=\"0\""),
        value("sonde_probe_rtt_seconds", ",quantile=\"1\""),
    );
    assert!(0.0 < least && least <= greatest, "{least} {greatest}");
    // Four intervals of 20 ms lie between the first and the last probe of a stream.
    let took = value("probe_duration_seconds", "");
    assert!(took >= 0.08 && greatest < took, "{took}");
    let why = format!("sonde_probe_failure{{instance=\"{TARGET}:9\",reason=\"no_answer\"}}");
    assert_eq!(last(&why), Some(1.0));

    // Who may only read has no packets sent; a module that goes with a reload is there no more.
    let status = |token: &str, module: &str| {
        let address = format!("http://{api}/probe?target={TARGET}&module={module}");
        let shown = format!("Bearer {token}");
        let ask = move || {
            let asked = ureq::get(&address).header("Authorization", shown);
            let asked = asked.config().http_status_as_error(false).build().call();
            asked.unwrap().status().as_u16()
        };
        network.near.inside(ask).unwrap()
    };
    assert_eq!(status(&network.read, "ef"), 403);
    assert_eq!(status("sonde_00", "ef"), 401);
    assert_eq!(status(token, "ef"), 200);
    network.reload("");
    assert_eq!(status(token, "ef"), 422);
}
