//! What becomes of samples, flows and groups: printed as they come, added up, and saved
//! at the end.

use std::io::{self, Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use sonde_results::caveat::{Caveat, CaveatSet};
use sonde_results::rtt::{Coverage, FlowKey, GroupKey, RttFlow, RttGroup, RttSample};
use sonde_results::rtt_run::RttPoint;
use sonde_results::{RttRun, ToUtc};

use super::args::{Format, OutputArgs};
use super::epping::{Dialect, Printer};
use super::loss::Losses;
use super::totals::Totals;
use super::{coverage, jsonl, view};
use crate::console;
use crate::exit::Exit;
use crate::output::run_file::{self, SaveSoFar};
use crate::output::sink::Sink;
use crate::output::style::{Style, terminal_size};

/// Gives the group of the host that is the source of the key, if it can be told.
pub type GroupOf = Box<dyn Fn(&FlowKey) -> Option<GroupKey>>;

/// What goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prints {
    /// How; `None`: nothing, the run file goes there.
    pub format: Option<Format>,
    /// One line or object for each sample.
    pub samples: bool,
    /// Likewise for each flow that ended.
    pub flows: bool,
    /// Likewise for each group and interval.
    pub groups: bool,
    /// Redrawn in place.
    pub live: bool,
}

impl Prints {
    /// What the options ask for, standard output being a terminal or not.
    pub fn new(args: &OutputArgs, to_terminal: bool) -> Result<Prints> {
        let run_to_stdout = args.out.as_ref().is_some_and(|path| path.as_os_str() == "-");
        let format = match args.format {
            Some(_) if run_to_stdout => {
                bail!("only one of --format and --out can go to standard output")
            }
            None if run_to_stdout => None,
            None if to_terminal => Some(Format::Table),
            None => Some(Format::Standard),
            format => format,
        };
        let epping = matches!(format, Some(Format::Standard | Format::Json | Format::Ppviz));
        let jsonl = format == Some(Format::Jsonl);
        if args.sample_limit.is_some() && !epping && !jsonl {
            bail!(
                "--sample-limit limits the samples that are printed; add --format standard or jsonl"
            );
        }
        Ok(Prints {
            format,
            samples: epping || args.sample_limit.is_some(),
            flows: jsonl || epping && format != Some(Format::Ppviz),
            groups: jsonl,
            live: format == Some(Format::Table) && to_terminal,
        })
    }
}

/// Everything measured so far.
pub struct Collected {
    /// The run; its groups and coverage are filled in at the end.
    pub run: RttRun,
    prints: Prints,
    records: Option<Records>,
    totals: Totals,
    /// Of flows that have ended.
    losses: Losses,
    group_of: GroupOf,
    out: Option<PathBuf>,
    /// What times are ahead of UTC as the clock stands now, ns.
    utc_offset: i64,
    saving: SaveSoFar,
}

/// The output of single records.
struct Records {
    form: Form,
    text: Vec<u8>,
    sink: Sink<Box<dyn Write + Send>>,
    reader_gone: Arc<AtomicBool>,
}

enum Form {
    Epping(Printer, String),
    Jsonl,
}

impl Collected {
    /// `run` as far as it is known at its start.
    pub fn new(run: RttRun, prints: Prints, out: Option<PathBuf>, group_of: GroupOf) -> Self {
        Self::to(stdout(), run, prints, out, group_of)
    }

    fn to(
        stdout: impl Write + Send + 'static,
        run: RttRun,
        prints: Prints,
        out: Option<PathBuf>,
        group_of: GroupOf,
    ) -> Self {
        let epping = |dialect| {
            Form::Epping(Printer::new(dialect, run.header.tai_offset_ns()), String::new())
        };
        let form = prints.format.and_then(|format| match format {
            Format::Table => None,
            Format::Standard => Some(epping(Dialect::Standard)),
            Format::Json => Some(epping(Dialect::Json)),
            Format::Ppviz => Some(epping(Dialect::Ppviz)),
            Format::Jsonl => Some(Form::Jsonl),
        });
        let mut records = form.map(|form| Records::new(form, stdout));
        if let Some(records) = &mut records {
            let mut utc = run.clone();
            utc.turn_to_utc(run.header.tai_offset_ns());
            records.with(|printer, text| printer.begin(text), |text| jsonl::run(text, &utc));
        }
        let (totals, losses) = (Totals::default(), Losses::default());
        let utc_offset = run.header.tai_offset_ns();
        let saving = SaveSoFar::default();
        Collected { run, prints, records, totals, losses, group_of, out, utc_offset, saving }
    }

    /// Takes one sample.
    pub fn sample(&mut self, sample: &RttSample) {
        let utc_offset = self.utc_offset;
        if let Some(records) = &mut self.records
            && self.prints.samples
        {
            records.with(
                |printer, text| printer.sample(text, sample),
                |text| jsonl::sample(text, &in_utc(sample, utc_offset)),
            );
        }
    }

    /// Takes one flow that has ended, or is open at the end.
    pub fn flow(&mut self, flow: &RttFlow) {
        let utc_offset = self.utc_offset;
        // For the summary; under a flood of short flows this would cost more than the rest.
        if self.prints.format == Some(Format::Table) {
            self.losses.add(flow, &self.group_of);
        }
        if let Some(records) = &mut self.records
            && self.prints.flows
        {
            records.with(
                |printer, text| printer.flow(text, flow),
                |text| jsonl::flow(text, &in_utc(flow, utc_offset)),
            );
        }
    }

    /// Takes the groups of one interval, with the counters since the start.
    pub fn interval(&mut self, groups: &[RttGroup], end_ns: i64, so_far: &Coverage) {
        groups.iter().for_each(|group| self.totals.add(group));
        let caveats = self.caveats(so_far);
        let utc_offset = self.utc_offset;
        if let Some(records) = &mut self.records
            && self.prints.groups
        {
            let told = |text: &mut Vec<u8>| {
                let utc = |group| in_utc(group, utc_offset);
                groups.iter().for_each(|group| jsonl::group(text, &utc(group)));
                jsonl::coverage(text, end_ns.saturating_sub(utc_offset), so_far, caveats);
            };
            records.with(|_, _| {}, told);
        }
        self.flush();
        self.save_so_far(end_ns, so_far);
    }

    /// Writes the run file as far as the run has come.
    fn save_so_far(&mut self, end_ns: i64, coverage: &Coverage) {
        let mut saving = std::mem::take(&mut self.saving);
        saving.save(self.out.as_deref(), || {
            let mut so_far = self.run.clone();
            so_far.header.end_ns = end_ns.max(so_far.header.start_ns);
            so_far.caveats = self.caveats(coverage);
            so_far.coverage = coverage.clone();
            so_far.groups = self.totals.sorted();
            so_far.turn_to_utc(self.utc_offset);
            so_far
        });
        self.saving = saving;
    }

    /// Writes what was taken, and says what could not be written.
    pub fn flush(&mut self) {
        if let Some(records) = &mut self.records {
            records.sink.flush();
            if let Some(report) = records.sink.take_report() {
                errln!("{report}");
            }
        }
    }

    /// Nobody reads what is printed any more, and nothing else is asked for.
    pub fn is_in_vain(&self) -> bool {
        let gone = |r: &Records| r.reader_gone.load(Ordering::Relaxed);
        self.out.is_none() && self.records.as_ref().is_some_and(gone)
    }

    /// The group of the host that is the source of the key.
    pub fn group_of(&self) -> &GroupOf {
        &self.group_of
    }

    /// Adds a place where packets are seen.
    pub fn add_point(&mut self, point: RttPoint) {
        let index = self.run.points.len();
        if let Some(records) = &mut self.records {
            records.with(|_, _| {}, |text| jsonl::point(text, index, &point));
        }
        self.run.points.push(point);
    }

    /// Somebody has set the clock: times are so far ahead of UTC now, ns.
    pub fn clock_was_set(&mut self, utc_offset: i64) {
        self.utc_offset = utc_offset;
        if let Some(Records { form: Form::Epping(printer, _), .. }) = &mut self.records {
            printer.set_utc_offset(utc_offset);
        }
        self.doubt(Caveat::ClockStepped);
    }

    /// Adds a doubt.
    pub fn doubt(&mut self, caveat: Caveat) {
        self.run.caveats.insert(caveat);
    }

    /// The doubts so far, with those that `coverage` raises.
    pub fn caveats(&self, coverage: &Coverage) -> CaveatSet {
        let mut caveats = self.run.caveats;
        caveats.merge(coverage::caveats(coverage));
        if self.totals.is_full() {
            caveats.insert(Caveat::GroupsFull);
        }
        caveats
    }

    /// Ends the output, saves the run and prints its summary.
    pub fn finish(mut self, end_ns: i64, coverage: Coverage, interrupted: bool) -> Result<Exit> {
        self.run.header.end_ns = end_ns.max(self.run.header.start_ns);
        self.run.caveats = self.caveats(&coverage);
        self.run.coverage = coverage;
        self.run.groups = self.totals.sorted();
        self.run.turn_to_utc(self.utc_offset);
        let mut unsaved = Vec::new();
        if let Some(mut records) = self.records.take() {
            let run = &self.run;
            records.with(
                |printer, text| printer.end(text),
                |text| jsonl::coverage(text, run.header.end_ns, &run.coverage, run.caveats),
            );
            if let Err(what) = records.sink.finish() {
                unsaved.push(what.to_string());
                self.run.caveats.insert(Caveat::RecordsLost);
            }
        }
        if let Some(path) = &self.out
            && let Err(error) = run_file::save(path, &self.run)
        {
            unsaved.push(format!("{}: {error}", path.display()));
        }
        self.tell().context("cannot print the summary")?;
        for what in &unsaved {
            errln!("not saved: {what}");
        }
        let coverage = &self.run.coverage;
        let (samples, packets) =
            (coverage::samples(coverage), coverage::count(coverage, "packets"));
        Ok(match (unsaved.is_empty(), samples, packets) {
            (false, ..) => Exit::NotSaved,
            (true, 0, 0) if interrupted => Exit::Interrupted,
            (true, 0, _) => Exit::NoReply,
            _ => Exit::Ok,
        })
    }

    /// The summary; where records have standard output, only what casts doubt on them, on
    /// standard error.
    fn tell(&self) -> io::Result<()> {
        let (width, _) = terminal_size();
        let printed = match self.prints.format {
            Some(Format::Table) => {
                let style = Style::for_stdout();
                print(&mut console::out(), &view::summary(&self.run, &self.losses, width, style))
            }
            _ => {
                let RttRun { points, coverage, caveats, .. } = &self.run;
                let lines = view::footer(points, coverage, *caveats, width, Style::default());
                print(&mut io::stderr().lock(), &lines)
            }
        };
        match printed {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e),
            _ => Ok(()),
        }
    }
}

impl Records {
    fn new(form: Form, out: impl Write + Send + 'static) -> Records {
        let reader_gone = Arc::new(AtomicBool::new(false));
        let out: Box<dyn Write + Send> = Box::new(Watched { out, gone: reader_gone.clone() });
        Records { form, text: Vec::new(), sink: Sink::new(out, "standard output"), reader_gone }
    }

    fn with(
        &mut self,
        epping: impl FnOnce(&mut Printer, &mut String),
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

/// Notes that the reader of a pipe has gone, and takes what nobody reads.
struct Watched<W> {
    out: W,
    gone: Arc<AtomicBool>,
}

impl<W: Write> Watched<W> {
    fn check<T>(&self, result: io::Result<T>, instead: T) -> io::Result<T> {
        match result {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.gone.store(true, Ordering::Relaxed);
                Ok(instead)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.check(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.check(result, ())
    }
}

/// As it is written.
fn in_utc<T: ToUtc + Clone>(record: &T, utc_offset: i64) -> T {
    let mut record = record.clone();
    record.turn_to_utc(utc_offset);
    record
}

fn print(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::args::SampleLimit;
    use crate::rtt::sample;
    use std::sync::Mutex;

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

    fn args(format: Option<Format>, limit: Option<SampleLimit>, out: Option<&str>) -> OutputArgs {
        OutputArgs { format, sample_limit: limit, weight: None, out: out.map(Into::into) }
    }

    fn collected(out: &Out, args: &OutputArgs) -> Collected {
        let run = RttRun { groups: Vec::new(), ..sample::run() };
        let prints = Prints::new(args, false).unwrap();
        let mut collected =
            Collected::to(out.clone(), run, prints, args.out.clone(), Box::new(|_| None));
        let whole = sample::run();
        sample::samples().iter().for_each(|s| collected.sample(s));
        sample::flows().iter().for_each(|f| collected.flow(f));
        collected.interval(&whole.groups, whole.header.end_ns, &whole.coverage);
        collected
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
            collected.finish(sample::START, sample::run().coverage, false).unwrap();
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
        collected(&out, &options).finish(begun, sample::run().coverage, false).unwrap();
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
        assert_eq!(vain.finish(0, sample::run().coverage, true).unwrap(), Exit::Ok);
        let saved = collected(&out, &args(Some(Format::Standard), None, Some("/dev/full")));
        assert!(!saved.is_in_vain());
        assert_eq!(saved.finish(0, sample::run().coverage, false).unwrap(), Exit::NotSaved);
    }

    #[test]
    fn the_exit_code_tells_what_was_found() {
        let ending = |counters: &[(&str, u64)], interrupted| {
            let collected = collected(&Out::default(), &args(Some(Format::Ppviz), None, None));
            let counters = counters.iter().map(|&(name, n)| (name.to_string(), n)).collect();
            collected.finish(0, Coverage { counters }, interrupted).unwrap()
        };
        assert_eq!(ending(&[("packets", 3), ("samples_clean", 1)], true), Exit::Ok);
        assert_eq!(ending(&[("packets", 3)], false), Exit::NoReply);
        assert_eq!(ending(&[], false), Exit::NoReply);
        assert_eq!(ending(&[], true), Exit::Interrupted);
    }
}
