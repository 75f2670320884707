//! Runs of benchmarks that are kept beside a store: folders of `sonde bench`, as they were written.
//!
//! A laboratory has `sonde bench --out STORE/runs/NAME` write there, has the `runs` of a hosted `otg`
//! there, or copies a folder. What is in it is the catalogue: nothing has to be entered, and nothing
//! can differ from it.

use std::path::{Path, PathBuf};

use sonde_results::bench::{BenchRun, Quantity};
use sonde_run::error::RunError;
use sonde_sys::clock::steady_scale;
use sonde_testbed::store as run_folder;

use crate::config::is_name;

/// The runs that are kept in a folder.
#[derive(Clone, Debug)]
pub struct KeptRuns {
    folder: PathBuf,
}

/// A run that is kept.
#[derive(Clone, Debug)]
pub struct KeptRun {
    /// The name of its folder.
    pub id: String,
    /// What was found so far, without the trials.
    pub run: BenchRun,
    /// A process is adding to it.
    pub under_way: bool,
}

impl KeptRuns {
    /// Those beside a store in this folder.
    pub fn of_store(store: &Path) -> KeptRuns {
        KeptRuns { folder: store.join(FOLDER) }
    }

    /// The folder of a run; `None`: there is none of that name.
    pub fn folder_of(&self, id: &str) -> Option<PathBuf> {
        // No name leads out of the folder.
        let named = is_name(id) && !id.starts_with('.');
        Some(self.folder.join(id)).filter(|folder| named && folder.is_dir())
    }

    /// All that can be read, the newest first. What else is in the folder is left out.
    pub fn list(&self) -> Vec<KeptRun> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<KeptRun> =
            names.filter_map(|id| self.findings(&id).and_then(Result::ok)).collect();
        all.sort_by(|a, b| (b.run.header.start_ns, &a.id).cmp(&(a.run.header.start_ns, &b.id)));
        all
    }

    /// What was found in a run; `None`: there is none of that name.
    pub fn findings(&self, id: &str) -> Option<Result<KeptRun, RunError>> {
        let folder = self.folder_of(id)?;
        let read = run_folder::read_findings(&folder);
        Some(read.map(|run| {
            let under_way = run_folder::is_under_way(&folder);
            KeptRun { id: id.to_owned(), run, under_way }
        }))
    }

    /// A run with its trials; `None`: there is none of that name.
    pub fn whole(&self, id: &str) -> Option<Result<BenchRun, RunError>> {
        self.folder_of(id).map(|folder| run_folder::read(&folder))
    }
}

impl KeptRun {
    /// Whether every measurement of the plan is done.
    pub fn is_finished(&self) -> bool {
        self.run.measurements.len() >= self.run.config.measurements_planned as usize
    }

    /// Begin and end, ns since 1970 UTC; no end while it is under way.
    pub fn times_ns(&self) -> (i64, Option<i64>) {
        let last = self.run.measurements.iter().map(|m| m.time_ns[1]).max();
        let end = last.unwrap_or(0).max(self.run.header.end_ns);
        let end = Some(end).filter(|_| !self.under_way).filter(|&end| end > 0);
        (utc(self.run.header.start_ns), end.map(utc))
    }

    /// The devices that were measured, by name.
    pub fn devices(&self) -> Vec<&str> {
        let mut all: Vec<&str> =
            self.run.measurements.iter().map(|m| m.case.device.as_str()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The first measurement's most important quantity, for a line in a list.
    pub fn key_result(&self) -> Option<(&str, &Quantity)> {
        let first = self.run.measurements.iter().find(|m| !m.finding.values.is_empty())?;
        Some((first.id.as_str(), first.finding.values.first()?))
    }
}

/// Benchmarks have times in TAI.
pub(crate) fn utc(tai_ns: i64) -> i64 {
    tai_ns.saturating_sub(steady_scale().utc_offset)
}

/// The folder of a store in which runs are kept.
pub const FOLDER: &str = "runs";

#[cfg(test)]
mod tests {
    use sonde_results::bench::{BENCH_SCHEMA_VERSION, Measurement};
    use sonde_testbed::store::Store;

    use super::*;

    fn head(title: &str, start_ns: i64) -> BenchRun {
        let mut run = BenchRun::default();
        run.header.schema = BENCH_SCHEMA_VERSION;
        run.header.start_ns = start_ns;
        (run.config.title, run.config.measurements_planned) = (title.into(), 1);
        run
    }

    #[test]
    fn what_is_in_the_folder_is_listed_the_newest_first() {
        let name = format!("sonde-kept-runs-{}", std::process::id());
        let base = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&base);
        let runs = KeptRuns::of_store(&base);
        assert!(runs.list().is_empty(), "no folder is no run");
        let folder = |id: &str| base.join(FOLDER).join(id);
        let mut old = Store::open(&folder("before"), head("old router", 1_000)).unwrap().0;
        let mut measured = Measurement { id: "throughput/router/1".into(), ..Default::default() };
        measured.case.device = "router".into();
        measured.time_ns = [2_000, 90_000_000_000];
        measured.finding.values = vec![Quantity::new("throughput", "frames/s", 1e6, 3)];
        old.add_measurement(&measured).unwrap();
        drop(old);
        let writer = Store::open(&folder("after"), head("new router", 5_000)).unwrap().0;
        std::fs::create_dir_all(folder("no-run")).unwrap();

        let all = runs.list();
        let ids: Vec<&str> = all.iter().map(|kept| kept.id.as_str()).collect();
        assert_eq!(ids, ["after", "before"]);
        let [after, before] = &all[..] else { unreachable!() };
        assert!(after.under_way && !after.is_finished() && !before.under_way);
        assert_eq!(after.times_ns().1, None, "it goes on");
        assert!(before.is_finished() && before.devices() == ["router"]);
        assert_eq!(before.times_ns(), (utc(1_000), Some(utc(90_000_000_000))));
        let (measurement, value) = before.key_result().unwrap();
        assert_eq!((measurement, value.name.as_str()), ("throughput/router/1", "throughput"));
        drop(writer);
        assert!(!runs.findings("after").unwrap().unwrap().under_way);
        // No name leads elsewhere.
        for id in ["..", "../runs/before", ".", "", "nothing", "a/b"] {
            assert!(runs.folder_of(id).is_none() && runs.findings(id).is_none(), "{id}");
        }
        assert_eq!(runs.whole("before").unwrap().unwrap().measurements.len(), 1);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
