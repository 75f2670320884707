//! Streams without any answer: how many they are, which, and what that points to.

use std::collections::HashSet;
use std::net::IpAddr;

use sonde_results::advice::AdviceContext;
use sonde_results::caveat::Caveat;
use sonde_results::units::{format_count, format_dscp};
use sonde_results::{Interval, StreamInfo};

use super::groups::Distinctions;

/// The streams of which no probe was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// What the first few are called.
    names: Vec<String>,
    count: usize,
    /// Streams that sent, the answered ones included.
    of: usize,
    /// Each goes to an address that answers another stream.
    reflectors_answer: bool,
    /// It is of the latest interval alone.
    latest: bool,
}

impl Unanswered {
    /// In the whole run, by the streams' totals.
    pub fn of(streams: &[StreamInfo], intervals: &[Interval]) -> Unanswered {
        let sent = |i: &&Interval| i.counters.sent > 0;
        let of_run = |i: &Interval| Some((streams.get(i.stream as usize)?, i.counters.received));
        let all: Vec<(&StreamInfo, u64)> =
            intervals.iter().filter(sent).filter_map(of_run).collect();
        let (answered, silent): (Vec<_>, Vec<_>) = all.iter().partition(|(_, got)| *got > 0);
        let answering: HashSet<IpAddr> =
            answered.iter().map(|(info, _)| info.destination.ip()).collect();
        let classes: HashSet<u8> = all.iter().map(|(info, _)| info.dscp).collect();
        let distinctions = Distinctions::of(streams);
        let name = |info: &StreamInfo| {
            let mut name = distinctions.label(info).into_owned();
            if classes.len() > 1 {
                name += &format!(" {}", format_dscp(info.dscp));
            }
            if let Some(port) = distinctions.source_port(info) {
                name += &format!(" from port {port}");
            }
            name
        };
        Unanswered {
            names: silent.iter().take(NAMED).map(|(info, _)| name(info)).collect(),
            count: silent.len(),
            of: all.len(),
            reflectors_answer: silent
                .iter()
                .all(|(info, _)| answering.contains(&info.destination.ip())),
            latest: false,
        }
    }

    /// In the latest interval of each stream.
    pub fn in_latest(streams: &[StreamInfo], intervals: &[Interval]) -> Unanswered {
        Unanswered { latest: true, ..Unanswered::of(streams, intervals) }
    }

    /// What the caveat [`Caveat::NoReply`] means here, and what to do.
    pub fn line(&self, context: &AdviceContext<'_>) -> String {
        let advice = Caveat::NoReply.advice_in(context);
        match self.count {
            // Another interval had none.
            0 => return format!("! no reply for a time, and some before or after it: {OUTAGE}"),
            n if n == self.of => return Caveat::NoReply.line(context),
            _ => {}
        }
        let advice = if self.reflectors_answer { PATH } else { advice };
        let (count, of) = (format_count(self.count as u64), format_count(self.of as u64));
        let what = match (self.latest, self.count) {
            (true, _) => "had no reply in the latest interval",
            (false, 1) => "was never answered",
            (false, _) => "were never answered",
        };
        let more = match self.count - self.names.len() {
            0 => String::new(),
            n => format!(" and {} more", format_count(n as u64)),
        };
        let names = self.names.join(", ");
        format!("! {count} of {of} streams {what} ({names}{more}): {advice}")
    }
}

/// Streams that are named.
const NAMED: usize = 3;
const OUTAGE: &str =
    "the path or the reflector was out meanwhile; the records of the intervals show when";
const PATH: &str = "the reflector answers others, so look for a dead path (a member of ECMP or of a \
                    LAG) or a filter by port or class; --source-port measures that path alone";

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::Run;
    use sonde_results::testing::probe as sample;

    fn line(run: &Run) -> String {
        Unanswered::of(&run.streams, &run.totals).line(&AdviceContext::default())
    }

    fn silence(run: &mut Run, streams: impl IntoIterator<Item = usize>) {
        for i in streams {
            let c = &mut run.totals[i].counters;
            (c.received, c.lost) = (0, c.sent);
        }
    }

    #[test]
    fn a_path_that_is_dead_is_not_blamed_on_the_reflector() {
        let mut run = sample::run(12, 1);
        let first = run.streams[0].clone();
        for (port, info) in (50_000..).zip(&mut run.streams) {
            *info = StreamInfo { source: (first.source.ip(), port).into(), ..first.clone() };
        }
        silence(&mut run, [9]);
        let text = line(&run);
        let wanted = "! 1 of 12 streams was never answered (10.2.0.1 from port 50009): ";
        assert!(text.starts_with(wanted) && text.contains("ECMP"), "{text}");
        assert!(!text.contains("listens"), "{text}");
        silence(&mut run, 4..9);
        let text = line(&run);
        assert!(text.starts_with("! 6 of 12 streams were never answered ("), "{text}");
        assert!(text.contains("10.2.0.1 from port 50006 and 3 more): "), "{text}");
        // Of none there is an answer: nothing speaks for a path.
        silence(&mut run, 0..12);
        assert!(line(&run).starts_with("! no reply: check that a reflector listens"));
    }

    #[test]
    fn a_target_that_never_answers_may_have_no_reflector() {
        let mut run = sample::run(12, 1);
        silence(&mut run, [9]);
        let text = line(&run);
        assert!(text.starts_with("! 1 of 12 streams was never answered (10.2.0.10): "), "{text}");
        assert!(text.contains("check that a reflector listens there"), "{text}");
    }

    #[test]
    fn a_class_that_is_dropped_is_named() {
        let mut run = sample::run(1, 2);
        silence(&mut run, [1]);
        let class = format_dscp(run.streams[1].dscp);
        let wanted = format!("! 1 of 2 streams was never answered (10.2.0.1 {class}): ");
        assert!(line(&run).starts_with(&wanted) && line(&run).contains("by port or class"));
    }

    #[test]
    fn an_outage_that_is_over_is_one() {
        let text = line(&sample::run(3, 1));
        assert!(text.starts_with("! no reply for a time, and some before or after it: "), "{text}");
    }

    #[test]
    fn the_latest_interval_is_not_the_whole_run() {
        let mut run = sample::run(3, 1);
        silence(&mut run, [1]);
        let latest = Unanswered::in_latest(&run.streams, &run.totals);
        let text = latest.line(&AdviceContext::default());
        let wanted = "! 1 of 3 streams had no reply in the latest interval (10.2.0.2): ";
        assert!(text.starts_with(wanted), "{text}");
    }
}
