//! What becomes of samples, flows and groups on the command line: printed as they come, and
//! saved at the end.

use std::io::Write;
use std::path::PathBuf;

use sonde_results::rtt::Coverage;
use sonde_results::{Caveat, RttRun, ToUtc};
use sonde_run::rtt::epping::{EppingFormat, EppingPrinter};
use sonde_run::rtt::{About, Collected, Event, RttInterval, coverage, jsonl};
use sonde_run::running::Ended;
use sonde_run::sink::Sink;

use super::args::{Format, Prints};
use super::view;
use crate::console::InterruptibleStdout;
use crate::exit::Exit;
use crate::output::run_file::{self, SaveSoFar};
use crate::output::style::{Style, terminal_size};
use crate::signals;

/// Everything measured so far, and where it is printed.
pub struct Printing {
    pub collected: Collected,
    prints: Prints,
    records: Option<Records>,
    out: Option<PathBuf>,
    saving: SaveSoFar,
}

/// The output of single records.
struct Records {
    form: Form,
    text: Vec<u8>,
    sink: Sink<Box<dyn Write + Send>>,
}

enum Form {
    Epping(EppingPrinter, String),
    Jsonl,
}

impl Printing {
    /// `about` as far as it is known at the start.
    pub fn new(about: About, prints: Prints, out: Option<PathBuf>) -> Self {
        Self::to(InterruptibleStdout, about, prints, out)
    }

    fn to(
        stdout: impl Write + Send + 'static,
        mut about: About,
        prints: Prints,
        out: Option<PathBuf>,
    ) -> Self {
        about.run.config.command = signals::command_line();
        let utc_offset = about.run.header.tai_offset_ns();
        let epping = |dialect| Form::Epping(EppingPrinter::new(dialect, utc_offset), String::new());
        let form = prints.format.and_then(|format| match format {
            Format::Table => None,
            Format::Standard => Some(epping(EppingFormat::Standard)),
            Format::Json => Some(epping(EppingFormat::Json)),
            Format::Ppviz => Some(epping(EppingFormat::Ppviz)),
            Format::Jsonl => Some(Form::Jsonl),
        });
        let mut records = form.map(|form| Records::new(form, stdout));
        if let Some(records) = &mut records {
            let mut utc = about.run.clone();
            utc.turn_to_utc(utc_offset);
            records.with(|printer, text| printer.begin(text), |text| jsonl::run(text, &utc));
        }
        let collected = Collected::new(about, prints.format == Some(Format::Table));
        Printing { collected, prints, records, out, saving: SaveSoFar::default() }
    }

    pub fn add(&mut self, event: &Event) {
        self.collected.add(event);
        let utc_offset = self.collected.utc_offset();
        let Some(records) = &mut self.records else { return };
        match event {
            Event::Sample(sample) if self.prints.samples => records.with(
                |printer, text| printer.sample(text, sample),
                |text| jsonl::sample(text, &in_utc(sample, utc_offset)),
            ),
            Event::Flow(flow) if self.prints.flows => records.with(
                |printer, text| printer.flow(text, flow),
                |text| jsonl::flow(text, &in_utc(flow.as_ref(), utc_offset)),
            ),
            Event::Interval(interval) if self.prints.groups => {
                let RttInterval { groups, end_ns, coverage, .. } = interval;
                let caveats = self.collected.run().caveats;
                let write_interval = |text: &mut Vec<u8>| {
                    let utc = |group| in_utc(group, utc_offset);
                    groups.iter().for_each(|group| jsonl::group(text, &utc(group)));
                    jsonl::coverage(text, end_ns.saturating_sub(utc_offset), coverage, caveats);
                };
                records.with(|_, _| {}, write_interval);
            }
            Event::Point(point) => {
                let index = self.collected.run().points.len() - 1;
                records.with(|_, _| {}, |text| jsonl::point(text, index, point));
            }
            Event::UtcOffset(ns) => {
                if let Form::Epping(printer, _) = &mut records.form {
                    printer.set_utc_offset(*ns);
                }
            }
            _ => {}
        }
    }

    /// Writes what was taken, and says what could not be written; saves the run as far as it
    /// has come, now and then.
    pub fn flush(&mut self) {
        if let Some(records) = &mut self.records {
            records.sink.flush();
            if let Some(report) = records.sink.take_report() {
                errln!(WARN, "{report}");
            }
        }
        let mut saving = std::mem::take(&mut self.saving);
        saving.save(self.out.as_deref(), || self.collected.so_far());
        self.saving = saving;
    }

    /// Nobody reads what is printed any more, and nothing else is asked for.
    pub fn is_in_vain(&self) -> bool {
        self.out.is_none() && self.records.as_ref().is_some_and(|r| r.sink.is_unread())
    }

    /// Ends the output, saves the run and prints its summary.
    pub fn finish(mut self, ended: &Ended, interrupted: bool) -> Exit {
        let mut run = self.collected.finish(ended);
        let mut unsaved = Vec::new();
        if let Some(mut records) = self.records.take() {
            records.with(
                |printer, text| printer.end(text),
                |text| jsonl::coverage(text, run.header.end_ns, &run.coverage, run.caveats),
            );
            if let Err(what) = records.sink.finish() {
                unsaved.push(what.to_string());
                run.caveats.insert(Caveat::RecordsLost);
            }
        }
        unsaved.extend(run_file::save_and_show(self.out.as_deref(), &run, || {
            self.print_summary(&run);
        }));
        for what in &unsaved {
            errln!(ERROR, "not saved: {what}");
        }
        exit(&run.coverage, unsaved.is_empty(), interrupted)
    }

    /// The summary; where records have standard output, only what casts doubt on them, on
    /// standard error.
    fn print_summary(&self, run: &RttRun) {
        let (width, _) = terminal_size();
        if self.prints.format == Some(Format::Table) {
            let (losses, style) = (self.collected.losses(), Style::for_stdout());
            view::summary(run, losses, width, style).iter().for_each(|line| outln!("{line}"));
        } else {
            let RttRun { points, coverage, caveats, .. } = run;
            let lines = view::footer(points, coverage, *caveats, width, Style::default());
            errln!(INFO, "{}", lines.join("\n"));
        }
    }
}

/// The exit code, for scripts.
fn exit(coverage: &Coverage, saved: bool, interrupted: bool) -> Exit {
    let (samples, packets) = (coverage::samples(coverage), coverage::count(coverage, "packets"));
    match (saved, samples, packets) {
        (false, ..) => Exit::NotSaved,
        (true, 0, 0) if interrupted => Exit::Interrupted,
        (true, 0, _) => Exit::Negative,
        _ => Exit::Ok,
    }
}

impl Records {
    fn new(form: Form, out: impl Write + Send + 'static) -> Records {
        let out: Box<dyn Write + Send> = Box::new(out);
        Records { form, text: Vec::new(), sink: Sink::new(out, "standard output") }
    }

    fn with(
        &mut self,
        epping: impl FnOnce(&mut EppingPrinter, &mut String),
        jsonl: impl FnOnce(&mut Vec<u8>),
    ) {
        match &mut self.form {
            Form::Epping(printer, text) => {
                text.clear();
                epping(printer, text);
                self.sink.push(text.as_bytes());
            }
            Form::Jsonl => {
                self.text.clear();
                jsonl(&mut self.text);
                self.sink.push(&self.text);
            }
        }
    }
}

/// As it is written.
fn in_utc<T: ToUtc + Clone>(record: &T, utc_offset: i64) -> T {
    let mut record = record.clone();
    record.turn_to_utc(utc_offset);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::args::RttOutputArgs;
    use sonde_results::testing::rtt as sample;
    use sonde_run::rtt::SampleLimit;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// What was written, or a pipe without a reader.
    #[derive(Clone, Default)]
    struct Out(Arc<Mutex<Vec<u8>>>, bool);

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.1 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Out {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn args(
        format: Option<Format>,
        limit: Option<SampleLimit>,
        out: Option<&str>,
    ) -> RttOutputArgs {
        RttOutputArgs { format, sample_limit: limit, weight: None, out: out.map(Into::into) }
    }

    fn collected(out: &Out, args: &RttOutputArgs) -> Printing {
        let run = RttRun { groups: Vec::new(), ..sample::run() };
        let prints = Prints::new(args, false).unwrap();
        let about = About { run, group_of: Arc::new(|_| None) };
        let mut printing = Printing::to(out.clone(), about, prints, args.out.clone());
        let whole = sample::run();
        sample::samples().iter().for_each(|s| printing.add(&Event::Sample(*s)));
        sample::flows().iter().for_each(|f| printing.add(&Event::Flow(Box::new(f.clone()))));
        printing.add(&Event::Interval(RttInterval {
            start_ns: whole.header.start_ns,
            end_ns: whole.header.end_ns,
            groups: whole.groups,
            coverage: whole.coverage,
            caveats: whole.caveats,
            losses: None,
        }));
        printing
    }

    /// What the instrument of [`sample::run`] leaves behind.
    fn ended() -> Ended {
        let run = sample::run();
        Ended { counters: run.coverage.counters, caveats: run.caveats, ..Ended::default() }
    }

    #[test]
    fn what_is_printed_follows_from_the_options() {
        let prints = |format, limit, terminal| Prints::new(&args(format, limit, None), terminal);
        let all = Some(SampleLimit::None);
        assert_eq!(prints(None, None, true).unwrap().format, Some(Format::Table));
        assert!(!prints(None, None, true).unwrap().samples);
        assert_eq!(prints(None, None, false).unwrap().format, Some(Format::Standard));
        assert!(prints(None, None, false).unwrap().samples);
        assert!(!prints(Some(Format::Jsonl), None, false).unwrap().samples);
        assert!(prints(Some(Format::Jsonl), all, false).unwrap().samples);
        assert!(!prints(Some(Format::Ppviz), None, false).unwrap().flows);
        assert!(prints(Some(Format::Table), all, false).is_err());
        assert!(Prints::new(&args(Some(Format::Json), None, Some("-")), false).is_err());
        assert_eq!(Prints::new(&args(None, None, Some("-")), true).unwrap().format, None);
    }

    #[test]
    fn aggregated_json_lines_have_no_samples_unless_asked_for() {
        for (limit, samples) in [(None, 0), (Some(SampleLimit::None), sample::samples().len())] {
            let out = Out::default();
            let collected = collected(&out, &args(Some(Format::Jsonl), limit, None));
            collected.finish(&ended(), false);
            let text = out.text();
            let count = |what| text.matches(&format!("\"type\":\"{what}\"")).count();
            assert_eq!(
                (count("run"), count("sample"), count("flow"), count("group"), count("coverage")),
                (1, samples, 4, 3, 2)
            );
        }
    }

    /// Every line of the run has times in UTC; inside they are TAI, 37 s ahead.
    #[test]
    fn what_is_printed_is_in_utc() {
        let out = Out::default();
        let run = RttRun { groups: Vec::new(), ..sample::run() };
        let (begun, offset) = (run.header.start_ns, run.header.tai_offset_ns());
        assert_eq!(offset, 37_000_000_000);
        let options = args(Some(Format::Jsonl), Some(SampleLimit::None), None);
        collected(&out, &options).finish(&ended(), false);
        let times = ["start_ns", "end_ns", "at_ns"];
        let text = out.text();
        let lines = text.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        let mut found = 0;
        for line in lines {
            for time in times.iter().filter_map(|name| line[name].as_i64()) {
                assert!((begun - offset..begun).contains(&time), "{line}");
                found += 1;
            }
        }
        assert!(found >= 3, "{found}");
    }

    #[test]
    fn a_reader_that_goes_makes_the_run_vain_unless_it_is_saved() {
        let out = Out(Arc::default(), true);
        let mut vain = collected(&out, &args(Some(Format::Standard), None, None));
        vain.flush();
        assert!(vain.is_in_vain());
        assert_eq!(vain.finish(&ended(), true), Exit::Ok);
        let saved = collected(&out, &args(Some(Format::Standard), None, Some("/dev/full")));
        assert!(!saved.is_in_vain());
        assert_eq!(saved.finish(&ended(), false), Exit::NotSaved);
    }

    #[test]
    fn the_exit_code_follows_what_was_found() {
        let ending = |counters: &[(&str, u64)], interrupted| {
            let collected = collected(&Out::default(), &args(Some(Format::Ppviz), None, None));
            let counters = counters.iter().map(|&(name, n)| (name.to_string(), n)).collect();
            collected.finish(&Ended { counters, ..Ended::default() }, interrupted)
        };
        assert_eq!(ending(&[("packets", 3), ("samples_clean", 1)], true), Exit::Ok);
        assert_eq!(ending(&[("packets", 3)], false), Exit::Negative);
        assert_eq!(ending(&[], false), Exit::Negative);
        assert_eq!(ending(&[], true), Exit::Interrupted);
    }
}
