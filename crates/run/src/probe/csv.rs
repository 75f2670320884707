//! CSV: one row for each stream and interval. Times are nanoseconds; an empty field
//! means that there is no value. [`HEADER`] names the columns.

use sonde_results::record::pdv;
use sonde_results::{Hist, Interval, StreamInfo};
use std::io::Write;

use crate::sink::{Sink, Unsaved};

/// The columns, in order. `start_ns` and `end_ns` are since 1970 UTC. `fwd` is towards the
/// reflector and `bwd` back, empty where loss cannot be split by direction. `not_sent` has the
/// probes of `skipped` by reason. One-way delays are offset by the clocks' difference, unless
/// `caveats` names neither clock. `jitter_ns` is the greater of `jitter_fwd_ns` and `jitter_bwd_ns`.
pub const HEADER: [&str; 42] = [
    "start_ns",
    "end_ns",
    "stream",
    "target",
    "source",
    "destination",
    "dscp",
    "sent",
    "received",
    "lost",
    "lost_fwd",
    "lost_bwd",
    "lost_unknown",
    "duplicated",
    "reordered",
    "late",
    "sent_late",
    "skipped",
    "not_sent",
    "rtt_min_ns",
    "rtt_mean_ns",
    "rtt_p50_ns",
    "rtt_p99_ns",
    "rtt_p999_ns",
    "rtt_max_ns",
    "rtt_net_min_ns",
    "rtt_net_p50_ns",
    "rtt_net_p99_ns",
    "fwd_min_ns",
    "fwd_p50_ns",
    "fwd_p99_ns",
    "bwd_min_ns",
    "bwd_p50_ns",
    "bwd_p99_ns",
    "ipdv_fwd_p99_ns",
    "ipdv_bwd_p99_ns",
    "pdv_fwd_p999_ns",
    "pdv_bwd_p999_ns",
    "jitter_ns",
    "caveats",
    "jitter_fwd_ns",
    "jitter_bwd_ns",
];

/// Writes rows to a [`Sink`].
#[derive(Debug)]
pub struct CsvRows<W> {
    sink: Sink<W>,
    streams: Vec<StreamInfo>,
}

impl<W: Write> CsvRows<W> {
    /// Writes the line of column names.
    pub fn begin(sink: Sink<W>, streams: &[StreamInfo]) -> Self {
        let mut rows = CsvRows { sink, streams: streams.to_vec() };
        rows.push(&HEADER.map(String::from));
        rows.sink.flush();
        rows
    }

    /// Further streams, behind those that are there.
    pub fn add_streams(&mut self, streams: &[StreamInfo]) {
        self.streams.extend_from_slice(streams);
    }

    /// Adds the records of one interval and writes them out.
    pub fn intervals(&mut self, intervals: &[Interval]) {
        for interval in intervals {
            if let Some(info) = self.streams.get(interval.stream as usize) {
                self.push(&fields(info, interval));
            }
        }
        self.sink.flush();
    }

    /// The sink, for its counts and its report.
    pub fn sink(&mut self) -> &mut Sink<W> {
        &mut self.sink
    }

    /// The reader of the pipe has gone.
    pub fn is_unread(&self) -> bool {
        self.sink.is_unread()
    }

    /// Writes the rest, or says what is missing.
    pub fn finish(self) -> Result<W, Unsaved> {
        self.sink.finish()
    }

    fn push(&mut self, fields: &[String]) {
        let mut writer = ::csv::Writer::from_writer(Vec::new());
        // Into memory: this cannot fail.
        if writer.write_record(fields).is_ok()
            && let Ok(row) = writer.into_inner()
        {
            self.sink.push(&row);
        }
    }
}

fn fields(info: &StreamInfo, interval: &Interval) -> [String; HEADER.len()] {
    let c = &interval.counters;
    let side = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    let not_sent: Vec<String> =
        c.not_sent.iter().map(|(why, n)| format!("{}={n}", why.name())).collect();
    let q = |hist: &Hist, q: f64| text(hist.quantile(q));
    let caveats: Vec<String> = interval
        .caveats
        .iter()
        .filter_map(|c| serde_json::to_value(c).ok()?.as_str().map(String::from))
        .collect();
    let (rtt, net) = (&interval.rtt, &interval.rtt_net);
    let (fwd, bwd) = (&interval.forward, &interval.backward);
    let jitter = |ns: f64| text((fwd.count > 0).then_some(ns.round() as i64));
    let (jitter_forward, jitter_backward) =
        (interval.jitter_forward_ns, interval.jitter_backward_ns);
    [
        interval.start_ns.to_string(),
        interval.end_ns.to_string(),
        interval.stream.to_string(),
        info.target.clone(),
        info.source.to_string(),
        info.destination.to_string(),
        info.dscp.to_string(),
        c.sent.to_string(),
        c.received.to_string(),
        c.lost.to_string(),
        side(c.lost_forward),
        side(c.lost_backward),
        c.lost_unknown.to_string(),
        c.duplicated.to_string(),
        c.reordered.to_string(),
        c.late.to_string(),
        c.sent_late.to_string(),
        c.skipped.to_string(),
        not_sent.join(" "),
        text(rtt.min()),
        rtt.mean().map_or(String::new(), |m| format!("{m:.1}")),
        q(rtt, 0.5),
        q(rtt, 0.99),
        q(rtt, 0.999),
        text(rtt.max()),
        text(net.min()),
        q(net, 0.5),
        q(net, 0.99),
        text(fwd.min()),
        q(fwd, 0.5),
        q(fwd, 0.99),
        text(bwd.min()),
        q(bwd, 0.5),
        q(bwd, 0.99),
        q(&interval.ipdv_forward, 0.99),
        q(&interval.ipdv_backward, 0.99),
        text(pdv(fwd, 0.999)),
        text(pdv(bwd, 0.999)),
        jitter(jitter_forward.max(jitter_backward)),
        caveats.join(" "),
        jitter(jitter_forward),
        jitter(jitter_backward),
    ]
}

fn text(value: Option<i64>) -> String {
    value.map_or(String::new(), |v| v.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::Caveat;
    use sonde_results::testing::probe as sample;
    use std::collections::HashMap;

    #[test]
    fn rows_read_back_under_their_header() {
        let mut run = sample::run(1, 2);
        run.streams[1].target = "a \"quoted\", name".into();
        run.totals[1] = Interval::empty(1);
        run.totals[0].caveats.insert(Caveat::SoftwareStamps);
        run.totals[0].caveats.insert(Caveat::SenderLate);
        (run.totals[0].jitter_forward_ns, run.totals[0].jitter_backward_ns) = (1_200.4, 700.6);
        let mut rows = CsvRows::begin(Sink::new(Vec::new(), "r"), &run.streams);
        rows.intervals(&run.totals);
        let data = rows.finish().unwrap();
        let mut reader = ::csv::Reader::from_reader(&data[..]);
        let read: Vec<HashMap<String, String>> =
            reader.deserialize().collect::<Result<_, _>>().unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].len(), HEADER.len());
        assert_eq!(read[0]["sent"], "1000");
        assert_eq!(read[0]["lost_fwd"], "1");
        assert_eq!(read[0]["rtt_max_ns"], run.totals[0].rtt.max.to_string());
        assert_eq!(read[0]["caveats"], "software_stamps sender_late");
        let jitter = ["jitter_fwd_ns", "jitter_bwd_ns", "jitter_ns"].map(|name| &read[0][name]);
        assert_eq!(jitter, ["1200", "701", "1200"]);
        assert_eq!(read[1]["target"], "a \"quoted\", name");
        assert!(read[1]["rtt_min_ns"].is_empty());
        assert_eq!(read[1]["lost_fwd"], "0", "nothing was lost");
        assert!(read[1]["jitter_fwd_ns"].is_empty());
    }
}
