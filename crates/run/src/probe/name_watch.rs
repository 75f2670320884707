//! Names are looked up again as long as a run lasts: a service may move, and a name that did not
//! resolve at the start may do so later.

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pace::{LONGEST, Pace};
use super::settings::{Settings, TargetEntry};
use super::targets::{Target, expand_found, name_of};

/// What the resolver says now.
#[derive(Clone, Debug, Default)]
pub struct LookedUp {
    /// The targets of names that resolve, of those that were asked for.
    pub targets: Vec<Target>,
    /// These names.
    pub names: HashSet<String>,
    /// Targets whose name has not resolved since the watch began, with the reason.
    pub left_out: BTreeMap<String, String>,
}

/// Looks names up again while a run goes on.
pub struct NameWatch {
    found: Receiver<LookedUp>,
    /// Dropped, it ends the thread.
    _stop: Sender<()>,
}

impl NameWatch {
    /// Looks at the names of `settings`, of which those of `left_out` do not resolve so far; `None`:
    /// it has none.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(settings: &Settings, left_out: &[(String, String)]) -> Result<Option<NameWatch>> {
        let Some(mut names) = NamesInUse::of(settings, left_out, Instant::now()) else {
            return Ok(None);
        };
        let (sender, found) = channel();
        let (stop, stopped) = channel::<()>();
        std::thread::Builder::new().name("sonde-names".into()).spawn(move || {
            while stopped.recv_timeout(names.left(Instant::now())) == Err(RecvTimeoutError::Timeout)
            {
                let (asked, now) = (names.asked(Instant::now()), Instant::now());
                let answer = names.look_up(&asked);
                if sender.send(names.found(answer, now)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Some(NameWatch { found, _stop: stop }))
    }

    /// What was found since the last call.
    pub fn found(&self) -> impl Iterator<Item = LookedUp> + '_ {
        self.found.try_iter()
    }
}

/// The names of a run, and when each is looked up again.
struct NamesInUse {
    /// With the entries whose hosts are names only.
    settings: Settings,
    /// Targets whose name has not resolved, with the reason.
    missing: BTreeMap<String, String>,
    /// When those are looked up again.
    pace: Pace,
    /// When all are.
    all_at: Instant,
}

impl NamesInUse {
    fn of(settings: &Settings, left_out: &[(String, String)], now: Instant) -> Option<NamesInUse> {
        let named = settings.targets.iter().filter(|entry| name_of(entry).is_some());
        let targets: Vec<TargetEntry> = named.cloned().collect();
        if targets.is_empty() {
            return None;
        }
        let is_named = |name: &str| targets.iter().any(|entry| called(entry) == name);
        let missing = left_out.iter().filter(|(name, _)| is_named(name)).cloned().collect();
        let settings = Settings { targets, ..settings.clone() };
        Some(NamesInUse { settings, missing, pace: Pace::new(now), all_at: now + LONGEST })
    }

    fn left(&self, now: Instant) -> Duration {
        let all = self.all_at.saturating_duration_since(now);
        if self.missing.is_empty() { all } else { all.min(self.pace.left(now)) }
    }

    /// Whom to look up now: those that do not resolve so far, and once a minute all.
    fn asked(&mut self, now: Instant) -> Vec<TargetEntry> {
        let all = now >= self.all_at;
        if all {
            self.all_at = now + LONGEST;
        }
        let wanted = |entry: &&TargetEntry| all || self.missing.contains_key(called(entry));
        self.settings.targets.iter().filter(wanted).cloned().collect()
    }

    /// The targets of `asked` whose names resolve, and for the others why not.
    fn look_up(&self, asked: &[TargetEntry]) -> (Vec<Target>, BTreeMap<String, String>) {
        let Settings { stream, family, all_addresses, .. } = &self.settings;
        let of = |entries: &[TargetEntry]| {
            expand_found(entries, stream, *family, (*all_addresses, true))
        };
        if let Ok(found) = of(asked) {
            return (found.targets, found.left_out.into_iter().collect());
        }
        // What is wrong with one is no matter of the others.
        let (mut targets, mut left_out) = (Vec::new(), BTreeMap::new());
        for entry in asked {
            match of(std::slice::from_ref(entry)) {
                Ok(found) => {
                    targets.extend(found.targets);
                    left_out.extend(found.left_out);
                }
                Err(why) => drop(left_out.insert(called(entry).to_owned(), why.to_string())),
            }
        }
        (targets, left_out)
    }

    /// Takes the answer to what was asked for at `now`. A name that resolved before, and does not
    /// now, has moved nowhere.
    fn found(
        &mut self,
        (targets, left_out): (Vec<Target>, BTreeMap<String, String>),
        now: Instant,
    ) -> LookedUp {
        let names: HashSet<String> = targets.iter().filter_map(|t| t.looked_up.clone()).collect();
        let resolves = |name: &str| {
            let mut entries = self.settings.targets.iter();
            entries.any(|e| called(e) == name && name_of(e).is_some_and(|n| names.contains(n)))
        };
        self.missing.retain(|name, _| !resolves(name));
        for (name, why) in left_out {
            self.missing.entry(name).and_modify(|known| *known = why);
        }
        if self.pace.is_due(now) {
            self.pace.failed(now);
        }
        LookedUp { targets, names, left_out: self.missing.clone() }
    }
}

/// What the targets of an entry are called in results.
fn called(entry: &TargetEntry) -> &str {
    entry.name.as_ref().unwrap_or(&entry.host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::settings::StreamOptions;
    use crate::probe::targets::expand;

    const S: Duration = Duration::from_secs(1);

    /// Two names and an address; "muc" does not resolve at `begin`.
    fn names(begin: Instant) -> NamesInUse {
        let mut targets = ["a.example", "b.example", "192.0.2.7"].map(TargetEntry::of).to_vec();
        targets[1].name = Some("muc".into());
        let settings = Settings { targets, ..Settings::default() };
        let left_out = [("muc".to_owned(), "cannot be resolved".to_owned())];
        NamesInUse::of(&settings, &left_out, begin).unwrap()
    }

    /// A target of that name at an address.
    fn target(name: &str, address: &str) -> Target {
        let options = StreamOptions::default();
        let entries = [TargetEntry::of(address)];
        let mut found = expand(&entries, &options, Default::default(), false).unwrap().targets;
        found[0].looked_up = Some(name.into());
        found.remove(0)
    }

    fn hosts(asked: &[TargetEntry]) -> Vec<&str> {
        asked.iter().map(|entry| &*entry.host).collect()
    }

    #[test]
    fn what_does_not_resolve_is_asked_for_ever_and_all_names_once_a_minute() {
        let begin = Instant::now();
        let (mut names, mut now, mut asked) = (names(begin), begin, Vec::new());
        for _ in 0..9 {
            now += names.left(now);
            let these = names.asked(now);
            asked.push(((now - begin).as_secs(), hosts(&these).len()));
            let targets = match these.len() {
                2 => vec![target("a.example", "192.0.2.1")],
                _ => Vec::new(),
            };
            let why = BTreeMap::from([("muc".to_owned(), "no such host".to_owned())]);
            let found = names.found((targets, why), now);
            assert_eq!(found.left_out["muc"], "no such host", "the newest reason");
        }
        let wanted =
            [(1, 1), (3, 1), (7, 1), (15, 1), (31, 1), (60, 2), (63, 1), (120, 2), (123, 1)];
        assert_eq!(asked, wanted);
    }

    #[test]
    fn a_name_that_resolves_at_last_is_measured_and_one_that_is_silent_has_not_moved() {
        let begin = Instant::now();
        let mut names = names(begin);
        let now = begin + S;
        assert_eq!(hosts(&names.asked(now)), ["b.example"]);
        let found = names.found((vec![target("b.example", "192.0.2.2")], BTreeMap::new()), now);
        assert_eq!((found.targets.len(), found.left_out.len()), (1, 0));
        assert_eq!(found.names, HashSet::from(["b.example".to_owned()]));
        assert_eq!(names.left(now), 59 * S, "nothing is missing any more");
        // The resolver is gone: both go on where they are.
        let now = begin + 60 * S;
        assert_eq!(hosts(&names.asked(now)), ["a.example", "b.example"]);
        let why = ["a.example", "muc"].map(|name| (name.to_owned(), "no resolver".to_owned()));
        let found = names.found((Vec::new(), why.into()), now);
        assert!(found.names.is_empty() && found.left_out.is_empty(), "{found:?}");
    }

    #[test]
    fn a_run_of_addresses_needs_no_watch() {
        let targets = ["192.0.2.7", "192.0.2.0/24", "192.0.2.1-192.0.2.9"];
        let targets = targets.map(TargetEntry::of).to_vec();
        let settings = Settings { targets, ..Settings::default() };
        assert!(NamesInUse::of(&settings, &[], Instant::now()).is_none());
    }
}
