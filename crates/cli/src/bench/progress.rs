//! What goes on, for people: a line for each finished measurement, and on a terminal one
//! that tells the trial under way.

use std::io::{IsTerminal as _, Write as _, stderr, stdout};

use anyhow::Result;
use sonde_meter::trial::Next;
use sonde_results::bench::{Measurement, Quantity};
use sonde_results::trial::Trial;

use super::runner::Progress;
use crate::output::style::{Style, Tone};
use crate::units::{format_count, format_elapsed, format_ns, format_share};

/// Prints.
pub struct Printer {
    how: How,
    style: Style,
    /// On a terminal the last line is the trial's and is overwritten.
    live: bool,
    finished: usize,
    planned: usize,
}

/// What is printed on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A line of text for each measurement.
    Text,
    /// An object of JSON for each measurement.
    Json,
    /// Nothing.
    Quiet,
}

impl Printer {
    /// For a run of so many measurements.
    pub fn new(how: How, planned: usize) -> Printer {
        let live = how != How::Quiet && stderr().is_terminal();
        Printer { how, style: Style::for_stdout(), live, finished: 0, planned }
    }

    /// A measurement is finished, or was before this start.
    pub fn measurement(&mut self, m: &Measurement, resumed: bool) -> Result<()> {
        self.finished += 1;
        self.clear();
        match self.how {
            How::Quiet => return Ok(()),
            How::Json => writeln!(stdout(), "{}", serde_json::to_string(m)?)?,
            How::Text => writeln!(stdout(), "{}", self.line(m, resumed))?,
        }
        Ok(())
    }

    /// Something worth a line of its own, on standard error.
    pub fn note(&mut self, text: &str) {
        self.clear();
        if self.how != How::Quiet {
            // A terminal that went away is no reason to stop measuring.
            let _ = writeln!(stderr(), "{text}");
        }
    }

    fn line(&self, m: &Measurement, resumed: bool) -> String {
        let values: Vec<String> = m
            .finding
            .values
            .iter()
            .take(3)
            .map(|q| format!("{} {}", q.name, format_quantity(q)))
            .collect();
        let mut line = format!(
            "{} {}  {}",
            self.style.paint(Tone::Dim, &format!("[{}/{}]", self.finished, self.planned)),
            m.id,
            if values.is_empty() { "nothing was found".into() } else { values.join(", ") },
        );
        if resumed {
            line += &self.style.paint(Tone::Dim, " (measured before)");
        }
        for check in m.checks.iter().filter(|c| !c.pass) {
            line += &format!(
                "\n    {}",
                self.style.paint(Tone::Bad, &format!("fails: {}", check.text))
            );
        }
        for caveat in m.caveats.iter() {
            line += &format!("\n    {}", self.style.paint(Tone::Warn, caveat.text()));
        }
        line
    }

    fn clear(&self) {
        if self.live {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Progress for Printer {
    fn trial(&mut self, measurement: &str, next: &Next, attempt: u32) {
        if !self.live {
            return;
        }
        let again = if attempt > 1 { format!(", try {attempt}") } else { String::new() };
        let _ = write!(
            stderr(),
            "\r\x1b[K{measurement}: {}{again}, {} frames/s for {}",
            next.purpose,
            format_count(next.offer.rate_fps as u64),
            format_elapsed(next.offer.duration_ns()),
        );
        let _ = stderr().flush();
    }

    fn ended(&mut self, trial: &Trial) {
        if trial.valid() {
            return;
        }
        let reasons: Vec<String> = trial.invalid.iter().map(|i| i.text()).collect();
        let (sent, lost) = trial.sent_and_lost();
        self.note(&format!(
            "{}: trial {} is not valid (lost {}): {}",
            trial.measurement,
            trial.number,
            format_share(lost, sent),
            reasons.join("; ")
        ));
    }
}

/// A value in the unit that reads best.
pub fn format_quantity(q: &Quantity) -> String {
    match q.unit.as_str() {
        "ns" => format_ns(q.value),
        "frames/s" => format!("{} frames/s", format_count(q.value.round() as u64)),
        "frames" => format!("{} frames", format_count(q.value.round() as u64)),
        "ratio" => format!("{:.4} %", q.value * 100.0),
        unit => format!("{} {unit}", q.value),
    }
}
