//! Which quantities each procedure can find, by name: so that a threshold for one that nobody
//! measures is refused when the plan is read. A test holds it against what the procedures find.

use sonde_meter::trial::{ConfigurationTestConfig, GroupMatrixConfig, LossRateConfig};

use super::keys::latency_label;
use super::procedure_plan::ProcedurePlan;

/// Names with one set of labels.
pub struct Quantities {
    /// What stands before the `@`.
    pub names: &'static [&'static str],
    /// What may stand behind it; empty: nothing but a direction.
    pub labels: Vec<String>,
    /// Whether each direction may have one of its own ("a>b", or "50/a>b").
    pub by_direction: bool,
}

impl Quantities {
    fn has(&self, name: &str) -> bool {
        let (base, at) = name.split_once('@').unwrap_or((name, ""));
        if !self.names.contains(&base) {
            return false;
        }
        let direction = |text: &str| self.by_direction && is_direction(text);
        match &self.labels[..] {
            [] => at.is_empty() || direction(at),
            labels => labels.iter().any(|label| {
                at.strip_prefix(label.as_str()).is_some_and(|rest| {
                    rest.is_empty() || rest.strip_prefix('/').is_some_and(direction)
                })
            }),
        }
    }

    fn all(&self) -> Vec<String> {
        let of = |name: &&str| match &self.labels[..] {
            [] => vec![(*name).to_owned()],
            labels => labels.iter().map(|label| format!("{name}@{label}")).collect(),
        };
        self.names.iter().flat_map(of).collect()
    }
}

/// "a>b": from and to one of the tester's ports.
fn is_direction(text: &str) -> bool {
    let port = |p: &str| ["a", "b", "c"].contains(&p);
    text.split_once('>').is_some_and(|(from, to)| from != to && port(from) && port(to))
}

impl ProcedurePlan {
    /// Whether it can find a quantity of that name.
    pub fn can_find(&self, name: &str) -> bool {
        self.quantities().iter().any(|q| q.has(name))
    }

    /// The names of all that it can find, those of directions left out.
    pub fn quantity_names(&self) -> Vec<String> {
        self.quantities().iter().flat_map(Quantities::all).collect()
    }

    fn quantities(&self) -> Vec<Quantities> {
        let keys = &self.keys;
        let plain = |names| Quantities { names, labels: Vec::new(), by_direction: false };
        let labelled = |names, labels: Vec<String>| Quantities { labels, ..plain(names) };
        let ways = |q: Quantities| Quantities { by_direction: true, ..q };
        let upper = || labelled(&["loss_ratio"], vec!["upper_bound".into()]);
        let search = |name| vec![plain(name), plain(&["forwarding_rate", "loss_ratio"]), upper()];
        let texts = |values: &[u32]| values.iter().map(u32::to_string).collect::<Vec<_>>();
        let mut all = match self.name() {
            "throughput" | "tst009" => search(&["throughput"]),
            "flooding" => search(&["flooding_throughput"]),
            "aggregated_multicast" => search(&["aggregated_multicast_throughput"]),
            "mixed_class_throughput" => {
                let classes = vec!["multicast".into(), "unicast".into()];
                let mut all = search(&["mixed_class_throughput"]);
                all.push(labelled(&["mixed_class_throughput"], classes));
                all
            }
            "mlrsearch" => {
                let names = match &keys.goals {
                    Some(goals) => goals.iter().map(|g| g.name.clone()).collect(),
                    None => vec!["ndr".to_owned(), "pdr".to_owned()],
                };
                let labels = if names.len() > 1 { names } else { Vec::new() };
                vec![labelled(MLR, labels)]
            }
            "latency" => {
                let labels = match &keys.loads {
                    Some(loads) => loads.iter().map(latency_label).collect(),
                    None => texts(&[0, 10, 50, 90, 100]),
                };
                vec![
                    labelled(&["latency", "offered_load", "loss_ratio"], labels.clone()),
                    ways(labelled(DELAYS, labels)),
                ]
            }
            "multicast_latency" => {
                vec![plain(&["latency", "offered_load", "loss_ratio"]), ways(plain(DELAYS))]
            }
            "latency_rfc8219" => {
                let names = &["typical_latency", "worst_case_latency"];
                vec![ways(plain(names)), plain(&["offered_load"])]
            }
            "pdv" => vec![ways(plain(&["pdv"])), plain(&["offered_load"])],
            "ipdv" => {
                let names = &["ipdv_min", "ipdv_p50", "ipdv_max"];
                vec![ways(plain(names)), plain(&["offered_load"])]
            }
            "frame_loss_rate" => {
                let standard = LossRateConfig::default().step_percent;
                let step = keys.step.unwrap_or(standard).clamp(1, 10) as usize;
                let percents: Vec<u32> = (1..=100).rev().step_by(step).collect();
                vec![labelled(&["loss_ratio", "forwarding_rate", "offered_load"], texts(&percents))]
            }
            "back_to_back" => vec![plain(BACK_TO_BACK)],
            "system_recovery" => vec![plain(&["recovery_time"])],
            "reset" => {
                vec![plain(&["reset_time_frame_loss", "reset_time_time_stamp", "lost_frames"])]
            }
            "forwarding_rate" => vec![plain(FORWARDING)],
            "address_caching_capacity" => vec![plain(&["address_caching_capacity"])],
            "address_learning_rate" => vec![plain(&["address_learning_rate"])],
            "scaled_group_matrix" => {
                let standard = GroupMatrixConfig::default().groups;
                vec![labelled(GROUPS, texts(keys.groups.as_ref().unwrap_or(&standard)))]
            }
            "y1564_configuration" => {
                let mut labels = texts(&ConfigurationTestConfig::default().steps_percent);
                labels.extend(keys.eir.map(|_| "eir".into()));
                labels.extend(keys.policing.filter(|&p| p).map(|_| "policing".into()));
                vec![plain(&["steps_passed"]), labelled(SERVICE, labels)]
            }
            "y1564_performance" => vec![plain(&["sla_kept", "availability"]), plain(SERVICE)],
            "fixed_load" => {
                vec![plain(&["forwarding_rate", "offered_load", "loss_ratio"]), ways(plain(DELAYS))]
            }
            "ramp" => {
                vec![plain(&["loss_onset_load", "maximum_forwarding_rate", "loss_ratio"])]
            }
            "soak" => vec![plain(SOAK), ways(plain(DELAYS))],
            _ => Vec::new(),
        };
        // What is searched first, because a load is a share of it.
        if self.needs_search() {
            all.extend(search(&["throughput"]));
        }
        all
    }
}

/// The unit of a quantity, by its name.
pub fn unit_of(name: &str) -> &'static str {
    let base = name.split('@').next().unwrap_or(name);
    match base {
        "implied_buffer_time" | "corrected_buffer_time" => "s",
        "lossy_trials" => "trials",
        "address_caching_capacity" => "addresses",
        "lost_frames" => "frames",
        "steps_passed" | "sla_kept" | "availability" => "ratio",
        _ if base.starts_with("back_to_back_frames") => "frames",
        _ if base.contains("loss_ratio") => "ratio",
        _ if is_time(base) => "ns",
        _ => "frames/s",
    }
}

fn is_time(base: &str) -> bool {
    let kinds = ["latency", "pdv", "ipdv", "jitter", "delay", "recovery_time", "reset_time"];
    kinds.iter().any(|kind| base.contains(kind))
}

const DELAYS: &[&str] = &[
    "latency_min",
    "latency_mean",
    "latency_p50",
    "latency_p99",
    "latency_p99_9",
    "latency_p99_99",
    "latency_p99_999",
    "latency_max",
    "pdv",
    "ipdv_min",
    "ipdv_p50",
    "ipdv_max",
    "jitter_rfc4689_mean",
    "jitter_rfc4689_max",
    "jitter_rfc3550",
];
const MLR: &[&str] = &["conditional_throughput", "relevant_lower_bound", "relevant_upper_bound"];
const BACK_TO_BACK: &[&str] = &[
    "back_to_back_frames",
    "back_to_back_frames_min",
    "back_to_back_frames_max",
    "back_to_back_frames_deviation",
    "implied_buffer_time",
    "corrected_buffer_time",
    "offered_load",
];
const FORWARDING: &[&str] = &[
    "maximum_forwarding_rate",
    "maximum_forwarding_rate_load",
    "maximum_forwarding_rate_offered_load",
    "forwarding_rate_at_maximum_offered_load",
    "maximum_offered_load",
];
const GROUPS: &[&str] =
    &["forwarding_rate", "aggregate_forwarding_rate", "offered_load", "loss_ratio"];
const SERVICE: &[&str] =
    &["information_rate", "frame_loss_ratio", "frame_transfer_delay", "frame_delay_variation"];
const SOAK: &[&str] =
    &["loss_ratio", "lost_frames", "lossy_trials", "loss_ratio_worst", "forwarding_rate_least"];

#[cfg(test)]
mod tests {
    use sonde_meter::trial::sim::{DeviceConfig, Faults, SimulatedDevice};

    use super::super::registry::{ProcedureTrait, REGISTRY};
    use super::*;

    fn read(text: &str) -> ProcedurePlan {
        ProcedurePlan::of_text(text).unwrap()
    }

    /// Every kind, with short trials, on devices that make it find what it can.
    #[test]
    fn what_a_procedure_finds_it_is_known_to_find() {
        let both = || vec!["a>b".to_owned(), "b>a".to_owned()];
        let devices = [
            DeviceConfig::default(),
            DeviceConfig { directions: both(), jitter_ns: 900.0, ..DeviceConfig::default() },
            DeviceConfig { capacity_fps: 3e4, buffer_frames: 50.0, ..DeviceConfig::default() },
            DeviceConfig {
                faults: Faults { drops_one_in: 700, reset_ns: 1_000_000, ..Faults::default() },
                ..DeviceConfig::default()
            },
        ];
        for kind in REGISTRY {
            let mut text = format!("kind = '{}'\n", kind.name());
            let takes = |key: &str| kind.keys.contains(&key);
            for (key, value) in [
                ("trial", "'2s'"),
                ("search_trial", "'1s'"),
                ("trials", "2"),
                ("discard", "'500ms'"),
                ("duration", "'3s'"),
                ("window", "'1s'"),
                ("longest", "'200ms'"),
                ("at", "'500ms'"),
                ("cir", "'20k'"),
                ("eir", "'5k'"),
                ("policing", "true"),
                ("stations", "64"),
            ] {
                if takes(key) && !(key == "longest" && kind.name() == "mlrsearch") {
                    text += &format!("{key} = {value}\n");
                }
            }
            if kind.has(ProcedureTrait::ByLoad) {
                text += "loads = ['50 %']\n";
            }
            let plan = read(&text);
            let mut found = 0;
            for device in &devices {
                let mut device = SimulatedDevice::new(device.clone(), 3);
                let mut procedure = plan.make(1e6, 64.0);
                while let Some(next) = procedure.next() {
                    procedure.observe(&device.run(&next));
                }
                for q in procedure.finding().values {
                    assert!(plan.can_find(&q.name), "{}: {}", kind.name(), q.name);
                    assert_eq!(unit_of(&q.name), q.unit, "{}: {}", kind.name(), q.name);
                    let sense = sonde_report::quantity::sense(&q.name, &q.unit);
                    assert!(
                        sense.is_some(),
                        "{}: add it to LESS or MORE of report/src/quantity.rs",
                        q.name
                    );
                    found += 1;
                }
            }
            assert!(found > 0, "{}", kind.name());
            assert!(
                plan.quantity_names().iter().all(|name| plan.can_find(name)),
                "{}",
                kind.name()
            );
        }
    }

    #[test]
    fn what_is_not_measured_is_known_as_well() {
        let throughput = read("kind = 'throughput'");
        assert!(throughput.can_find("throughput") && throughput.can_find("loss_ratio@upper_bound"));
        for name in ["throughputs", "latency_p99", "throughput@50", "loss_ratio@50", ""] {
            assert!(!throughput.can_find(name), "{name}");
        }
        let latency = read("kind = 'latency'\nloads = ['50 %', '25 Mbit/s']");
        for name in ["latency_p99@50", "latency_p99@25Mbit/s/a>b", "throughput", "latency@50"] {
            assert!(latency.can_find(name), "{name}");
        }
        for name in ["latency_p99", "latency_p99@90", "latency_p99@50/b>b", "latency@50/a>b"] {
            assert!(!latency.can_find(name), "{name}");
        }
        assert!(!read("kind = 'fixed_load'\nloads = ['5k']").can_find("throughput"));
        assert!(read("kind = 'fixed_load'\nloads = ['5 %']").can_find("throughput"));
        assert!(!read("kind = 'mlrsearch'").can_find("conditional_throughput"));
    }
}
