//! Prometheus' remote write, version 1: the series of `/metrics`, each with one sample.
//!
//! prometheus.io/docs/specs/prw/remote_write_spec: `WriteRequest` in Protocol Buffers, labels in
//! order of their names, times in ms, compressed by Snappy's block format.

use sonde_api::openmetrics::{MetricFamily, MetricLabel, MetricSink, MetricsSnapshot, walk};

use super::backlog::Payload;
use super::protobuf::Message;

/// Headers of every request.
pub const HEADERS: [(&str, &str); 2] =
    [("Content-Encoding", "snappy"), ("X-Prometheus-Remote-Write-Version", "0.1.0")];
/// Media type of its body.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// Requests with all series of a snapshot, as it was at `now_ns` since 1970 UTC.
pub fn payloads(snapshot: &MetricsSnapshot, now_ns: i64) -> Vec<Payload> {
    let mut requests = WriteRequests { time_ms: now_ns / 1_000_000, ..WriteRequests::default() };
    walk(snapshot, &mut requests);
    requests.cut();
    requests.done
}

#[derive(Default)]
struct WriteRequests {
    time_ms: i64,
    request: Message,
    series: u64,
    done: Vec<Payload>,
}

impl WriteRequests {
    fn cut(&mut self) {
        if self.series == 0 {
            return;
        }
        let request = std::mem::take(&mut self.request).into_bytes();
        // It fails for more than 4 GiB alone.
        let body = snap::raw::Encoder::new().compress_vec(&request).unwrap_or_default();
        self.done.push(Payload { body, points: std::mem::take(&mut self.series) });
    }
}

impl MetricSink for WriteRequests {
    fn family(&mut self, _: &MetricFamily<'_>) {}

    fn sample(&mut self, name: &str, labels: &[MetricLabel<'_>], value: &str) {
        // What this crate writes is a number.
        let value: f64 = value.parse().unwrap_or(f64::NAN);
        let mut all: Vec<(&str, &str)> =
            labels.iter().copied().filter(|(_, value)| !value.is_empty()).collect();
        all.push(("__name__", name));
        all.sort_unstable();
        let time_ms = self.time_ms;
        self.request.message(1, |series| {
            for (name, value) in all {
                series.message(1, |label| {
                    label.text(1, name);
                    label.text(2, value);
                });
            }
            series.message(2, |sample| {
                sample.double(1, value);
                sample.varint(2, time_ms.cast_unsigned());
            });
        });
        self.series += 1;
        if self.series == SERIES_A_REQUEST {
            self.cut();
        }
    }
}

/// Series of a request: as many as Prometheus itself sends in one.
const SERIES_A_REQUEST: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_api::openmetrics::{MetricLabels, StreamMetrics};

    fn snapshot(streams: usize) -> MetricsSnapshot {
        let stream = |n: usize| {
            let target = format!("core-{n}");
            let labels = MetricLabels { target, class: "EF".into(), module: "stamp".into() };
            StreamMetrics { labels, ..StreamMetrics::default() }
        };
        MetricsSnapshot {
            station: "ber".into(),
            streams: (0..streams).map(stream).collect(),
            ..MetricsSnapshot::default()
        }
    }

    fn plain(payload: &Payload) -> Vec<u8> {
        snap::raw::Decoder::new().decompress_vec(&payload.body).unwrap()
    }

    /// The octets of one series, written out by hand.
    #[test]
    fn a_series_has_its_labels_in_order_and_its_time_in_ms() {
        let payloads = payloads(&snapshot(1), 1_500_000_000);
        let request = plain(&payloads[0]);
        let mut wanted = Vec::new();
        for (name, value) in [
            ("__name__", "sonde_sent_total"),
            ("class", "EF"),
            ("module", "stamp"),
            ("station", "ber"),
            ("target", "core-0"),
        ] {
            let label = [
                &[0x0a, name.len() as u8][..],
                name.as_bytes(),
                &[0x12, value.len() as u8],
                value.as_bytes(),
            ]
            .concat();
            wanted.extend([0x0a, label.len() as u8]);
            wanted.extend(label);
        }
        // Value 0.0 and the time 1500.
        wanted.extend([0x12, 12, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0xdc, 0x0b]);
        let at = request.windows(wanted.len()).position(|part| part == wanted);
        assert!(at.is_some(), "{request:x?}");
    }

    #[test]
    fn many_series_are_many_requests_and_none_is_left_out() {
        let payloads = payloads(&snapshot(1_000), 0);
        assert!(payloads.len() > 4);
        let points: u64 = payloads.iter().map(|payload| payload.points).sum();
        assert!(payloads.iter().all(|payload| payload.points <= SERIES_A_REQUEST));
        let all: Vec<u8> = payloads.iter().flat_map(plain).collect();
        let of =
            |name: &str| all.windows(name.len()).filter(|part| *part == name.as_bytes()).count();
        assert_eq!((of("sonde_sent_total"), of("sonde_lost_total")), (1_000, 3_000));
        assert_eq!(of("__name__") as u64, points);
    }
}
