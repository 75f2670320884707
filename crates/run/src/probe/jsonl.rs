//! JSON Lines: first the run, then each stream, then interval records as they come.
//!
//! An interval line holds all fields of [`Interval`] (histograms as bucket and count) and the
//! stream's target and DSCP. For those who want no histograms it has derived figures in
//! nanoseconds.

use serde::Serialize;
use sonde_results::record::pdv;
use sonde_results::{HostInfo, Interval, RunConfig, StreamInfo};
use std::io::Write;

use crate::figures::Figures;
use crate::sink::{Sink, Unsaved};

/// Writes records to a [`Sink`].
#[derive(Debug)]
pub struct ProbeJsonLines<W> {
    sink: Sink<W>,
    streams: Vec<(String, u8)>,
    line: Vec<u8>,
}

impl<W: Write> ProbeJsonLines<W> {
    /// Writes the first lines.
    pub fn begin(
        sink: Sink<W>,
        start_ns: i64,
        host: &HostInfo,
        config: &RunConfig,
        streams: &[StreamInfo],
    ) -> Self {
        let mut lines = ProbeJsonLines { sink, streams: Vec::new(), line: Vec::new() };
        let version = env!("CARGO_PKG_VERSION");
        lines.push(&RunLine { r#type: "run", version, start_ns, host, config });
        lines.add_streams(streams);
        lines
    }

    /// Further streams, behind those that are there.
    pub fn add_streams(&mut self, streams: &[StreamInfo]) {
        for info in streams {
            let stream = self.streams.len();
            self.push(&StreamLine { r#type: "stream", stream, info });
            self.streams.push((info.target.clone(), info.dscp));
        }
        self.sink.flush();
    }

    /// Adds the records of one interval and writes them out.
    pub fn intervals(&mut self, intervals: &[Interval]) {
        for interval in intervals {
            let (target, dscp) = match self.streams.get(interval.stream as usize) {
                Some((target, dscp)) => (target.clone(), Some(*dscp)),
                None => (String::new(), None),
            };
            let derived = Derived {
                loss: interval.counters.loss_ratio(),
                rtt: Figures::of(&interval.rtt),
                rtt_net: Figures::of(&interval.rtt_net),
                forward: Figures::of(&interval.forward),
                backward: Figures::of(&interval.backward),
                ipdv_forward: Figures::of(&interval.ipdv_forward),
                ipdv_backward: Figures::of(&interval.ipdv_backward),
                pdv_forward_p999: pdv(&interval.forward, 0.999),
                pdv_backward_p999: pdv(&interval.backward, 0.999),
            };
            self.push(&IntervalLine {
                r#type: "interval",
                target: &target,
                dscp,
                derived,
                interval,
            });
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

    fn push(&mut self, value: &impl Serialize) {
        self.line.clear();
        // Into memory, of types whose keys are strings: this cannot fail.
        if serde_json::to_writer(&mut self.line, value).is_ok() {
            self.line.push(b'\n');
            self.sink.push(&self.line);
        }
    }
}

#[derive(Serialize)]
struct RunLine<'a> {
    r#type: &'static str,
    version: &'static str,
    start_ns: i64,
    host: &'a HostInfo,
    config: &'a RunConfig,
}

#[derive(Serialize)]
struct StreamLine<'a> {
    r#type: &'static str,
    stream: usize,
    #[serde(flatten)]
    info: &'a StreamInfo,
}

#[derive(Serialize)]
struct IntervalLine<'a> {
    r#type: &'static str,
    target: &'a str,
    dscp: Option<u8>,
    derived: Derived,
    #[serde(flatten)]
    interval: &'a Interval,
}

#[derive(Serialize)]
struct Derived {
    loss: Option<f64>,
    rtt: Option<Figures>,
    rtt_net: Option<Figures>,
    forward: Option<Figures>,
    backward: Option<Figures>,
    ipdv_forward: Option<Figures>,
    ipdv_backward: Option<Figures>,
    pdv_forward_p999: Option<i64>,
    pdv_backward_p999: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::Disk;
    use serde_json::Value;
    use sonde_results::testing::probe as sample;

    #[test]
    fn what_is_written_reads_back() {
        let run = sample::run(2, 2);
        let sink = Sink::new(Vec::new(), "r");
        let mut lines = ProbeJsonLines::begin(
            sink,
            run.header.start_ns,
            &run.header.host,
            &run.config,
            &run.streams,
        );
        lines.intervals(&run.totals);
        let text = String::from_utf8(lines.finish().unwrap()).unwrap();
        let parsed: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(parsed.len(), 1 + 4 + 4);
        assert_eq!(parsed[0]["type"], "run");
        assert_eq!(parsed[0]["host"], serde_json::to_value(&run.header.host).unwrap());
        assert_eq!(parsed[2]["type"], "stream");
        assert_eq!(
            serde_json::from_value::<StreamInfo>(parsed[2].clone()).unwrap(),
            run.streams[1]
        );
        let line = text.lines().nth(6).unwrap();
        assert_eq!(serde_json::from_str::<Interval>(line).unwrap(), run.totals[1]);
        assert_eq!((&parsed[6]["target"], &parsed[6]["dscp"]), (&"10.2.0.1".into(), &46.into()));
        assert_eq!(parsed[6]["derived"]["rtt"]["max"], run.totals[1].rtt.max);
        assert_eq!(parsed[6]["derived"]["loss"], 0.002);
    }

    #[test]
    fn an_empty_interval_has_no_figures() {
        let sink = Sink::new(Vec::new(), "r");
        let run = sample::run(1, 1);
        let mut lines = ProbeJsonLines::begin(sink, 0, &run.header.host, &run.config, &run.streams);
        lines.intervals(&[Interval::empty(0)]);
        let text = String::from_utf8(lines.finish().unwrap()).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["derived"]["rtt"], Value::Null);
    }

    #[test]
    fn a_full_disk_costs_no_record_once_there_is_room() {
        let run = sample::run(4, 1);
        let sink = Sink::new(Disk { room: 1_000, ..Disk::default() }, "r");
        let mut lines = ProbeJsonLines::begin(
            sink,
            run.header.start_ns,
            &run.header.host,
            &run.config,
            &run.streams,
        );
        lines.intervals(&run.totals);
        assert!(lines.sink().take_report().is_some());
        assert!(lines.finish().is_err());
    }
}
