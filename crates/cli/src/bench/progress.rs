//! Progress, for people: a line for each finished measurement, and on a terminal one with the
//! trial under way.

use std::io::{IsTerminal as _, Write as _, stderr};

use anyhow::Result;
use sonde_results::bench::{Finding, Measurement, Quantity};
use sonde_results::trial::Trial;
use sonde_results::units::{format_count, format_elapsed, format_ns, format_percent, format_share};
use sonde_testbed::execution::{Event, Under};

use crate::console;
use crate::log::{LEAD, Level};
use crate::options;
use crate::output::style::{Style, Tone};

/// Prints the events of a run.
pub struct ProgressPrinter {
    how: How,
    style: Style,
    /// On a terminal the last line is the trial's and is overwritten.
    live: bool,
    finished: usize,
    planned: usize,
    /// Tries of the present offer that were not valid, and why the last one was not.
    failed: Option<Failed>,
}

struct Failed {
    measurement: String,
    rate_fps: f64,
    tries: u32,
    why: String,
}

/// What is printed on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A line of text for each measurement.
    Text,
    /// An object of JSON for each measurement.
    Json,
    Quiet,
}

impl ProgressPrinter {
    /// For a run of so many measurements.
    pub fn new(how: How, planned: usize) -> ProgressPrinter {
        let live = how != How::Quiet && stderr().is_terminal();
        ProgressPrinter {
            how,
            style: Style::for_stdout(),
            live,
            finished: 0,
            planned,
            failed: None,
        }
    }

    /// Something worth a line of its own, on standard error.
    pub fn note(&mut self, text: &str) {
        if self.how != How::Quiet {
            self.report_failed(false);
            self.say("", Level::INFO, text);
        }
    }

    fn say(&self, lead: &str, level: Level, text: &str) {
        self.clear();
        console::message(lead, level, module_path!(), text);
    }

    /// One line for an offer, however often it was tried.
    fn report_failed(&mut self, then_valid: bool) {
        let Some(failed) = self.failed.take().filter(|_| self.how != How::Quiet) else { return };
        self.say("", Level::WARN, &failed.line(then_valid));
    }

    fn line(&self, m: &Measurement, resumed: bool) -> String {
        let (values, by_load) = key_values(&m.finding);
        let mut line = format!(
            "{} {}  {}",
            self.style.paint(Tone::Dim, &format!("[{}/{}]", self.finished, self.planned)),
            m.id,
            if m.finding.values.is_empty() { "nothing was found".into() } else { values },
        );
        if resumed {
            line += &self.style.paint(Tone::Dim, " (measured before)");
        }
        let mut below =
            |tone, text: &str| line += &format!("\n    {}", self.style.paint(tone, text));
        by_load.iter().for_each(|text| below(Tone::Plain, text));
        for failure in &m.finding.failures {
            below(Tone::Bad, &format!("fails: {failure}"));
        }
        for check in m.checks.iter().filter(|c| !c.pass) {
            let text = &check.text;
            match check.undecided() {
                true => {
                    below(Tone::Bad, &format!("cannot tell: {text} (no such quantity was found)"))
                }
                false => below(Tone::Bad, &format!("fails: {text}")),
            }
        }
        m.caveats.iter().for_each(|caveat| below(Tone::Warn, caveat.text()));
        m.finding.notes.iter().for_each(|note| below(Tone::Dim, note));
        line
    }

    fn clear(&self) {
        if self.live {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl ProgressPrinter {
    /// A finished measurement on standard output; trials and failures on standard error.
    pub fn print(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Trial(trial) => self.trial(trial),
            Event::Tried(trial) => self.tried(trial),
            Event::Measured { measurement, resumed } => self.measurement(measurement, *resumed)?,
            Event::Failed(why) => self.error(why),
            Event::Run(_) => {}
        }
        Ok(())
    }

    /// Something that went wrong.
    pub fn error(&mut self, text: &str) {
        self.report_failed(false);
        self.say(LEAD, Level::ERROR, &options::named(text));
    }

    fn measurement(&mut self, m: &Measurement, resumed: bool) -> Result<()> {
        self.finished += 1;
        self.report_failed(false);
        self.clear();
        match self.how {
            How::Quiet => return Ok(()),
            How::Json => outln!("{}", serde_json::to_string(m)?),
            How::Text => outln!("{}", self.line(m, resumed)),
        }
        Ok(())
    }

    fn trial(&mut self, trial: &Under) {
        let Under { measurement, purpose, offer, attempt } = trial;
        if *attempt == 1 {
            self.report_failed(false);
        }
        if !self.live {
            return;
        }
        let again = if *attempt > 1 { format!(", try {attempt}") } else { String::new() };
        let _ = write!(
            stderr(),
            "\r\x1b[K{measurement}: {purpose}{again}, {} frames/s for {}",
            format_count(offer.rate_fps as u64),
            format_elapsed(offer.duration_ns()),
        );
        let _ = stderr().flush();
    }

    fn tried(&mut self, trial: &Trial) {
        if trial.valid() {
            return self.report_failed(true);
        }
        let reasons: Vec<String> = trial.invalid.iter().map(|i| i.text()).collect();
        let (sent, lost) = trial.sent_and_lost();
        self.failed = Some(Failed {
            measurement: trial.measurement.clone(),
            rate_fps: trial.offer.rate_fps,
            tries: trial.attempt,
            why: format!("lost {}; {}", format_share(lost, sent), reasons.join("; ")),
        });
    }
}

impl Failed {
    fn line(&self, then_valid: bool) -> String {
        let Failed { measurement, rate_fps, tries, why } = self;
        let rate = format_count(*rate_fps as u64);
        let tried = match (tries, then_valid) {
            (1, false) => "its try was not valid".to_owned(),
            (1, true) => "valid at the second try; the first was not".to_owned(),
            (_, false) => format!("none of {tries} tries was valid; the last"),
            (_, true) => format!("valid after {tries} tries that were not; the last of them"),
        };
        format!("{measurement}: {rate} frames/s: {tried} ({why})")
    }
}

/// What a line of text shows of a finding: its first values, with the loss, the median and the
/// 99th percentile; and these by load, where there are several.
fn key_values(finding: &Finding) -> (String, Vec<String>) {
    const KEYS: [(&str, &str); 3] =
        [("loss_ratio", "loss"), ("latency_p50", "p50"), ("latency_p99", "p99")];
    let key = |suffix: &str| {
        let one = |(name, short): &(&str, &str)| {
            let q = finding.value(&format!("{name}{suffix}"))?;
            Some(format!("{short} {}", format_quantity(q)))
        };
        KEYS.iter().filter_map(one).collect::<Vec<String>>()
    };
    let mut loads: Vec<&str> = Vec::new();
    for q in &finding.values {
        let label = q.name.split_once('@').filter(|(base, at)| {
            *base == "latency_p50" || (*base == "loss_ratio" && *at != "upper_bound")
        });
        // The report shows each direction by itself.
        if let Some((_, at)) = label
            && !at.contains('>')
            && !loads.contains(&at)
        {
            loads.push(at);
        }
    }
    // A load, or a direction of it.
    let of_load = |at: &str| {
        let rest = |load: &&str| at.strip_prefix(load).map(str::to_owned);
        loads.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let plain = |q: &&Quantity| !q.name.split_once('@').is_some_and(|(_, at)| of_load(at));
    let is_key = |q: &&Quantity| KEYS.iter().any(|(name, _)| q.name == *name);
    let first = finding.values.iter().filter(plain).filter(|q| !is_key(q)).take(FIRST);
    let mut values: Vec<String> =
        first.map(|q| format!("{} {}", q.name, format_quantity(q))).collect();
    values.extend(key(""));
    let mut by_load: Vec<String> = loads
        .iter()
        .take(LOADS)
        .map(|at| {
            let share = if at.parse::<f64>().is_ok() { " %" } else { "" };
            format!("at {at}{share}: {}", key(&format!("@{at}")).join(", "))
        })
        .collect();
    if loads.len() > LOADS {
        by_load.push(format!("and {} more loads: see the report", loads.len() - LOADS));
    }
    (values.join(", "), by_load)
}

/// Values of a line beside the loss and the delays.
const FIRST: usize = 3;
/// Loads that have a line of their own.
const LOADS: usize = 6;

/// A value in the unit that reads best. Where the tester is the limit, the device's rate is no less
/// than that, and its delay no more: the tester alone has as much.
pub fn format_quantity(q: &Quantity) -> String {
    let text = in_unit(q);
    match (q.tester_limited, q.unit.as_str()) {
        (false, _) => text,
        (true, "ns" | "s") => format!("\u{2264} {text}"),
        (true, _) => format!("\u{2265} {text}"),
    }
}

fn in_unit(q: &Quantity) -> String {
    match q.unit.as_str() {
        "ns" => format_ns(q.value),
        "s" => format_ns(q.value * 1e9),
        "frames/s" => format!("{} frames/s", format_count(q.value.round() as u64)),
        "frames" => format!("{} frames", format_count(q.value.round() as u64)),
        "ratio" => format_percent(q.value),
        unit => format!("{} {unit}", q.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::trial::{Invalid, Offer};

    fn trial(attempt: u32, invalid: Vec<Invalid>) -> Trial {
        Trial {
            number: u64::from(attempt),
            measurement: "m".into(),
            attempt,
            purpose: String::new(),
            start_ns: 0,
            offer: Offer::steady(5000.0, 1_000_000_000),
            directions: Vec::new(),
            ledger: Vec::new(),
            health: Default::default(),
            invalid,
        }
    }

    #[test]
    fn a_result_has_its_loss_its_delays_and_what_is_wrong_with_it() {
        let quantity = |name: &str, unit: &str, value| Quantity::new(name, unit, value, 100);
        let line = |values: Vec<Quantity>, notes: &[&str]| {
            let notes = notes.iter().map(|n| (*n).to_owned()).collect();
            let failures = vec!["Direction b>a: nothing.".into()];
            let finding = Finding { values, complete: true, notes, failures };
            let check = |value| sonde_results::bench::Check {
                text: "latency_p99 <= 1us".into(),
                value,
                pass: false,
            };
            let checks = vec![check(Some(2e3)), check(None)];
            let m = Measurement { id: "m".into(), finding, checks, ..Measurement::default() };
            ProgressPrinter::new(How::Quiet, 1).line(&m, false)
        };
        let mut rate = quantity("throughput", "frames/s", 1e6);
        rate.tester_limited = true;
        let text = line(
            vec![
                rate,
                quantity("forwarding_rate", "frames/s", 1e6),
                quantity("latency_min", "ns", 900.0),
                quantity("latency_mean", "ns", 1000.0),
                quantity("latency_p50", "ns", 1000.0),
                quantity("latency_p99", "ns", 2000.0),
                quantity("loss_ratio", "ratio", 0.015),
            ],
            &["Direction a>b: of 9 frames 3 corrupted."],
        );
        for part in [
            "throughput \u{2265} 1,000,000 frames/s",
            "loss 1.5%, p50 1.0",
            "p99 2.0",
            "\n    Direction a>b: of 9 frames 3 corrupted.",
            "\n    fails: Direction b>a: nothing.",
            "\n    fails: latency_p99 <= 1us",
            "\n    cannot tell: latency_p99 <= 1us",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut delay = quantity("latency_min", "ns", 900.0);
        delay.tester_limited = true;
        assert!(line(vec![delay], &[]).contains("latency_min \u{2264} 900 ns"));
        let text = line(
            vec![
                quantity("latency@0", "ns", 1000.0),
                quantity("latency_p50@0", "ns", 1000.0),
                quantity("latency_p99@0", "ns", 2000.0),
                quantity("latency_p99@0/a>b", "ns", 7000.0),
                quantity("loss_ratio@0", "ratio", 0.0),
                quantity("latency_p50@100", "ns", 3000.0),
                quantity("throughput", "frames/s", 5e5),
            ],
            &[],
        );
        assert!(text.contains("throughput 500,000 frames/s"), "{text}");
        assert!(text.contains("at 0 %: loss 0%, p50 1.0") && text.contains("at 100 %: p50 3.0"));
        assert!(!text.contains("7.0"), "{text}");
    }

    #[test]
    fn an_offer_has_one_line_however_often_it_was_tried() {
        let drops = |frames| vec![Invalid::TesterDrops { frames }];
        let mut printer = ProgressPrinter::new(How::Quiet, 1);
        printer.tried(&trial(1, drops(7)));
        printer.tried(&trial(2, drops(8)));
        let pending = printer.failed.as_ref().unwrap();
        let line = pending.line(false);
        assert!(line.contains("none of 2 tries") && line.contains("lost 8 frames"), "{line}");
        assert!(!line.contains("lost 7 frames"), "{line}");
        assert!(pending.line(true).contains("valid after 2 tries"));
        printer.tried(&trial(3, Vec::new()));
        assert!(printer.failed.is_none());
        // The begin of the next offer reports the one before.
        printer.tried(&trial(1, drops(9)));
        let next = |attempt| Under {
            measurement: "m".into(),
            purpose: String::new(),
            offer: Offer::default(),
            attempt,
        };
        printer.trial(&next(2));
        assert!(printer.failed.is_some());
        printer.trial(&next(1));
        assert!(printer.failed.is_none());
    }
}
