//! A procedure as a plan has it: its keys are checked, and it is made for a case.

use sonde_meter::load::Traffic;
use sonde_meter::trial::{Procedure, ResetConfig};
use sonde_results::procedure::RateResult;
use sonde_results::units::format_elapsed;

use super::keys::{CaseLoad, ProcedureKeys, SECOND};
use super::registry::{ProcedureKind, ProcedureTrait, REGISTRY, mlr_config};
use crate::plan_values::{FrameSizes, IntendedLoad, Ns, Rate};

/// A procedure with its settings.
#[derive(Clone, Debug)]
pub struct ProcedurePlan {
    kind: &'static ProcedureKind,
    pub(super) keys: ProcedureKeys,
}

impl ProcedureKeys {
    /// Whether two of its loads may be the same.
    pub fn loads_repeat(&self) -> bool {
        let kind = REGISTRY.iter().find(|k| k.name() == self.kind);
        kind.is_some_and(|kind| kind.has(ProcedureTrait::LoadsRepeat))
    }
}

impl ProcedurePlan {
    /// From its keys.
    ///
    /// # Errors
    /// A kind that is none, a key that means nothing to it, a value that cannot be.
    pub fn read(keys: &ProcedureKeys) -> Result<ProcedurePlan, String> {
        let names = || REGISTRY.iter().map(ProcedureKind::name).collect::<Vec<_>>().join(", ");
        let name = keys.kind.as_str();
        if name.is_empty() {
            return Err(format!("a procedure needs kind = '...': {}", names()));
        }
        let kind = REGISTRY.iter().find(|k| k.name() == name);
        let kind =
            kind.ok_or_else(|| format!("'{name}' is no procedure; there are {}", names()))?;
        if let Some(key) = keys.named().find(|key| *key != "frames" && !kind.keys.contains(key)) {
            let keys = kind.keys.join(", ");
            return Err(format!("'{key}' means nothing to {name}; it takes frames, {keys}"));
        }
        let plan = ProcedurePlan { kind, keys: keys.clone() };
        plan.check()?;
        Ok(plan)
    }

    /// From the text of its table.
    #[cfg(test)]
    pub fn of_text(text: &str) -> Result<ProcedurePlan, String> {
        let keys: ProcedureKeys = toml::from_str(text).map_err(|e| e.message().to_string())?;
        ProcedurePlan::read(&keys)
    }

    /// As in the plan.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Frame sizes of its own, instead of the workload's.
    pub fn frames(&self) -> Option<&[FrameSizes]> {
        self.keys.frames.as_deref()
    }

    /// Whether the first value found is a rate that the device carries.
    pub fn finds_rate(&self) -> bool {
        self.kind.info.rate != RateResult::None
    }

    /// Whether it also measures the tester without a device.
    pub fn of_the_loop(&self) -> bool {
        self.kind.has(ProcedureTrait::OfTheLoop)
    }

    /// Whether it looks at what the device sends to ports other than the receiving one.
    pub fn monitored(&self) -> bool {
        self.kind.has(ProcedureTrait::Monitors)
    }

    /// Whether its trials, or those of the search inside it, are shorter than the standard wants.
    /// The wait for late frames, `drain_ns`, may be too short, too (RFC 2544, section 23). After a
    /// longer burst it must be as long as that burst (RFC 9004, section 6.2).
    pub fn shorter_than_the_standard(&self, drain_ns: i64) -> bool {
        let longest = self.keys.longest.map_or(2 * SECOND, |Ns(ns)| ns);
        match self.name() {
            // Of no standard, or of one that leaves it to the user.
            "fixed_load"
            | "ramp"
            | "soak"
            | "mlrsearch"
            | "y1564_configuration"
            | "y1564_performance" => return false,
            "back_to_back" if drain_ns < longest => return true,
            _ if drain_ns < 2 * SECOND => return true,
            _ => {}
        }
        let short = |ns: Option<Ns>, standard: i64| ns.is_some_and(|Ns(ns)| ns < standard);
        short(self.keys.trial, self.kind.standard_ns)
            || short(self.keys.duration, self.kind.standard_ns)
            || (self.needs_search() && short(self.keys.search_trial, 60 * SECOND))
    }

    /// In how many cases its loads are measured, each by itself.
    pub fn loads_apart(&self) -> usize {
        match &self.keys.loads {
            Some(loads) if self.kind.has(ProcedureTrait::ByLoad) => loads.len(),
            _ => 1,
        }
    }

    /// Whether it looks at what the device floods to ports where no station is.
    pub fn looks_at_floods(&self) -> bool {
        self.kind.has(ProcedureTrait::LooksAtFloods)
    }

    /// Whether it has the device forget its stations.
    pub fn forgets(&self) -> bool {
        self.kind.has(ProcedureTrait::Forgets)
    }

    /// Whether it takes frames of one size, no mix.
    pub fn one_frame_size(&self) -> bool {
        self.kind.has(ProcedureTrait::OneFrameSize)
    }

    /// The least load that it searches, where the plan names it.
    pub fn min_rate(&self) -> Option<f64> {
        self.keys.min_rate.map(|Rate(r)| r)
    }

    /// One for each of its loads, where these are cases of their own.
    pub fn by_load(&self) -> Vec<ProcedurePlan> {
        match &self.keys.loads {
            Some(loads) if self.kind.has(ProcedureTrait::ByLoad) => {
                let one = |&load| {
                    let keys = ProcedureKeys { loads: Some(vec![load]), ..self.keys.clone() };
                    ProcedurePlan { kind: self.kind, keys }
                };
                loads.iter().map(one).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// What it does to the device in its trials.
    pub fn action(&self) -> Option<&str> {
        let takes_one = self.kind.keys.contains(&"action");
        takes_one.then(|| self.keys.action.as_deref().unwrap_or("reset"))
    }

    /// The load that makes it a case of its own; else empty.
    pub fn load_label(&self) -> String {
        match &self.keys.loads {
            Some(loads) if self.kind.has(ProcedureTrait::ByLoad) => loads[0].to_string(),
            _ => String::new(),
        }
    }

    /// The procedure, for a greatest load in frames/s a direction and a mean frame size.
    pub fn make(&self, max: f64, frame_bytes: f64) -> Box<dyn Procedure + Send> {
        (self.kind.make)(&self.keys, &CaseLoad { max, frame_bytes })
    }

    /// Whether anything that it does depends on the greatest load of the tester: not where it
    /// searches nothing and all its loads are rates of their own.
    pub fn needs_greatest_load(&self) -> bool {
        let keys = self.kind.keys;
        let of_rates = keys.contains(&"cir") || self.name() == "address_caching_capacity";
        !of_rates && (!keys.contains(&"loads") || self.has_shares())
    }

    pub(super) fn needs_search(&self) -> bool {
        self.kind.keys.contains(&"search_trial") && self.has_shares()
    }

    /// Whether a load is a share of another, which loads are that the plan does not name.
    fn has_shares(&self) -> bool {
        let share = |load: &IntendedLoad| matches!(load, IntendedLoad::Share(_));
        self.keys.loads.as_deref().is_none_or(|loads| loads.iter().any(share))
    }

    fn check(&self) -> Result<(), String> {
        let ProcedureKeys { loads, frames, resolution, goals, step, groups, .. } = &self.keys;
        let name = self.name();
        let empty = |list: Option<usize>, key: &str| match list {
            Some(0) => Err(format!("{name}: {key} is empty; leave it out for its default")),
            _ => Ok(()),
        };
        empty(loads.as_ref().map(Vec::len), "loads")?;
        empty(frames.as_ref().map(Vec::len), "frames")?;
        empty(goals.as_ref().map(Vec::len), "goals")?;
        empty(groups.as_ref().map(Vec::len), "groups")?;
        if resolution.is_some_and(|r| !(1e-6..1.0).contains(&r)) {
            return Err(format!("{name}: resolution is a share of the rate, as 0.005"));
        }
        // RFC 2544, section 26.3, has 10 % as the greatest.
        let most = if name == "frame_loss_rate" { 10 } else { 50 };
        if step.is_some_and(|s| !(1..=most).contains(&s)) {
            return Err(format!("{name}: step is in per cent of the greatest load, 1 to {most}"));
        }
        if name == "back_to_back"
            && let Some(mix) = frames.iter().flatten().find(|f| f.is_mix())
        {
            let label = &mix.label;
            return Err(format!("{name}: frames of one size, not {label} (RFC 9004, section 3)"));
        }
        for (key, value) in [
            ("loss_ratio", self.keys.loss_ratio),
            ("flr", self.keys.flr),
            ("availability", self.keys.availability),
            ("multicast_share", self.keys.multicast_share),
        ] {
            if value.is_some_and(|v| !(0.0..=1.0).contains(&v)) {
                return Err(format!("{name}: {key} is from 0 to 1"));
            }
        }
        let times = [
            ("trial", self.keys.trial),
            ("longest", self.keys.longest),
            ("after", self.keys.after),
            ("search_trial", self.keys.search_trial),
            ("window", self.keys.window),
            ("duration", self.keys.duration),
        ];
        if let Some((key, _)) = times.iter().find(|(_, t)| t.is_some_and(|Ns(ns)| ns < MILLISECOND))
        {
            return Err(format!("{name}: {key} must be 1ms or longer"));
        }
        for (key, value, most) in [
            ("trials", self.keys.trials, TRIALS_MAX),
            ("attempts", self.keys.attempts, TRIALS_MAX),
            ("stations", self.keys.stations, Traffic::FLOWS_MAX),
            ("groups", groups.iter().flatten().copied().max(), Traffic::FLOWS_MAX),
        ] {
            if value.is_some_and(|v| !(1..=most).contains(&v)) {
                return Err(format!("{name}: {key} is from 1 to {most}"));
            }
        }
        let rates = [self.keys.min_rate, self.keys.idle, self.keys.learning_rate];
        let of_rates = rates.into_iter().flatten().map(|Rate(r)| IntendedLoad::Frames(r));
        let of_loads = loads
            .iter()
            .flatten()
            .copied()
            .chain([self.keys.cir, self.keys.eir].into_iter().flatten());
        for load in of_rates.chain(of_loads) {
            // The smallest frame has the most of them.
            if load.fps(64.0, 0.0) > RATE_MAX {
                return Err(format!("{name}: {load} is more than any port carries"));
            }
        }
        let whole = self.keys.trial.or(self.keys.duration);
        if let (Some(Ns(discard)), Some(Ns(whole))) = (self.keys.discard, whole)
            && discard >= whole
        {
            return Err(format!("{name}: discard leaves nothing of the trial"));
        }
        if self.kind.keys.contains(&"at") {
            let standard = ResetConfig::default();
            let at = self.keys.at.map_or(standard.at_ns, |Ns(ns)| ns);
            if at >= self.keys.trial_ns(standard.duration_ns) {
                return Err(format!(
                    "{name}: at ({}) is behind the end of the trial: the device would not be \
                     reset in it",
                    format_elapsed(at)
                ));
            }
        }
        if self.kind.keys.contains(&"cir") && self.keys.cir.is_none() {
            return Err(format!("{name}: name the committed rate, as cir = '100 Mbit/s'"));
        }
        for load in [self.keys.cir, self.keys.eir].into_iter().flatten() {
            if matches!(load, IntendedLoad::Share(_)) {
                return Err(format!("{name}: cir and eir are rates, as '100 Mbit/s'"));
            }
        }
        if self.kind.has(ProcedureTrait::ByLoad) && loads.is_none() {
            return Err(format!("{name}: name its loads, as loads = ['25 Mbit/s', '50 %']"));
        }
        if name == "ramp" && loads.as_ref().is_some_and(|loads| loads.len() != 2) {
            return Err(format!("{name}: name two loads, from and to, as loads = ['10k', '1M']"));
        }
        if let Some(problem) = goals.as_ref().and_then(|_| mlr_config(&self.keys, 1e7).problem()) {
            return Err(format!("{name}: {problem}"));
        }
        Ok(())
    }
}

/// Trials of one kind, at most.
const TRIALS_MAX: u32 = 10_000;
/// Frames/s: 800 Gbit/s of the smallest frames.
const RATE_MAX: f64 = 1.2e9;
const MILLISECOND: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ProcedurePlan, String> {
        ProcedurePlan::of_text(text)
    }

    #[test]
    fn every_kind_makes_a_procedure_that_wants_a_trial() {
        for kind in REGISTRY {
            let mut text = format!("kind = '{}'\n", kind.name());
            if kind.has(ProcedureTrait::ByLoad) {
                text += "loads = ['1000']\n";
            }
            if kind.keys.contains(&"cir") {
                text += "cir = '1 Mbit/s'\n";
            }
            let plan = read(&text).unwrap();
            let mut made = plan.make(1e6, 64.0);
            let first = made.next().unwrap_or_else(|| panic!("{}", kind.name()));
            assert!(first.offer.rate_fps <= 1e6 && first.offer.rate_fps > 0.0, "{}", kind.name());
            assert!(made.remaining_ns() > 0 && made.remaining_trials() > 0, "{}", kind.name());
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (text, part) in [
            ("trial = '5s'", "kind"),
            ("kind = 'through'", "throughput"),
            ("kind = 'throughput'\ngoals = []", "means nothing"),
            ("kind = 'throughput'\ntrial = 'soon'", "soon"),
            ("kind = 'throughput'\nresolution = 5", "0.005"),
            ("kind = 'fixed_load'", "loads"),
            ("kind = 'fixed_load'\nloads = []", "empty"),
            ("kind = 'fixed_load'\nloads = ['1k']\ntrial = '5s'\ndiscard = '5s'", "discard"),
            ("kind = 'reset'\nloads = ['1k']\ntrial = '5s'", "behind the end"),
            ("kind = 'reset'\nloads = ['1k']\ntrial = '5s'\nat = '5s'", "behind the end"),
            ("kind = 'ramp'\nloads = ['1k']", "from and to"),
            ("kind = 'y1564_performance'", "cir"),
            ("kind = 'y1564_performance'\ncir = '50 %'", "rates"),
            ("kind = 'latency'\ntrials = 4000000000", "1 to 10000"),
            ("kind = 'fixed_load'\nloads = ['1e30 Gbit/s']", "any port"),
            ("kind = 'throughput'\ntrial = '100000d'", "a year"),
            ("kind = 'frame_loss_rate'\nstep = 0", "per cent"),
            ("kind = 'frame_loss_rate'\nstep = 20", "1 to 10"),
            ("kind = 'back_to_back'\nframes = ['imix']", "one size"),
            ("kind = 'mlrsearch'\n[[goals]]\nname = 'x'\nwidth = 2.0", "width"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn shares_need_a_search_and_rates_do_not() {
        let purpose = |text: &str| read(text).unwrap().make(1e6, 64.0).next().unwrap().purpose;
        assert_eq!(purpose("kind = 'latency'"), "search");
        assert_ne!(purpose("kind = 'latency'\nloads = ['1000']"), "search");
        let plans = read("kind = 'fixed_load'\nloads = ['25 Mbit/s', '50 %']").unwrap().by_load();
        assert_eq!(
            plans.iter().map(ProcedurePlan::load_label).collect::<Vec<_>>(),
            ["25 Mbit/s", "50 %"]
        );
        let offer = plans[0].make(1e6, 64.0).next().unwrap().offer;
        assert_eq!(offer.rate_fps, 25e6 / 8.0 / 64.0);
        assert_eq!(plans[1].make(1e6, 64.0).next().unwrap().purpose, "search");
    }

    #[test]
    fn rates_of_their_own_need_no_greatest_load() {
        for (text, needs) in [
            ("kind = 'throughput'", true),
            ("kind = 'frame_loss_rate'", true),
            ("kind = 'back_to_back'", true),
            ("kind = 'latency'", true),
            ("kind = 'latency'\nloads = ['1000', '50 %']", true),
            ("kind = 'latency'\nloads = ['1000', '10 Mbit/s']", false),
            ("kind = 'fixed_load'\nloads = ['50 %']", true),
            ("kind = 'fixed_load'\nloads = ['5k']", false),
            ("kind = 'soak'\nloads = ['25 Mbit/s']", false),
            ("kind = 'pdv'", true),
            ("kind = 'pdv'\nloads = ['5k']", false),
            ("kind = 'reset'\nloads = ['5k']", false),
            ("kind = 'scaled_group_matrix'\nloads = ['5k']", false),
            ("kind = 'y1564_configuration'\ncir = '1 Mbit/s'\neir = '1 Mbit/s'", false),
            ("kind = 'y1564_performance'\ncir = '1 Mbit/s'", false),
            ("kind = 'address_caching_capacity'", false),
            ("kind = 'address_learning_rate'", true),
        ] {
            let plan = read(text).unwrap();
            assert_eq!(plan.needs_greatest_load(), needs, "{text}");
            let first = |max: f64| plan.make(max, 64.0).next().unwrap().offer.rate_fps;
            assert!(needs || first(1e6) == first(1e7), "{text}");
        }
    }

    #[test]
    fn short_trials_are_known_for_what_they_are() {
        assert!(!read("kind = 'throughput'").unwrap().shorter_than_the_standard(2 * SECOND));
        assert!(
            read("kind = 'throughput'\ntrial = '2s'")
                .unwrap()
                .shorter_than_the_standard(2 * SECOND)
        );
        assert!(
            read("kind = 'pdv'\nsearch_trial = '2s'")
                .unwrap()
                .shorter_than_the_standard(2 * SECOND)
        );
    }
}
