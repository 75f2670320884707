//! Procedures that look at more ports than the receiving one, on the lab's bridges, through the
//! binary: what is found is held against what is known of the bridge. Without root these are
//! skipped, and say so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::de::DeserializeOwned;
use sonde_lab::{skip, skipped};
use sonde_results::bench::Measurement;
use sonde_results::trial::{Direction, Pattern, Trial};

/// A run of a plan, removed with everything in it.
struct Run {
    folder: PathBuf,
    output: Output,
}

impl Run {
    /// Small rates, so that a busy machine can offer them; and patience, should it be busy.
    fn of(name: &str, plan: &str) -> Run {
        let folder =
            std::env::temp_dir().join(format!("sonde-bridge-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("plan.toml");
        let run = "[run]\nattempts = 30\nback_off = '100ms'\n";
        fs::write(&file, format!("title = '{name}'\n{plan}\n{run}")).unwrap();
        let output = sonde(&["bench", file.to_str().unwrap(), "--out"])
            .arg(folder.join("run"))
            .output()
            .unwrap();
        Run { folder, output }
    }

    fn text(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&self.output.stdout) + &text(&self.output.stderr)
    }

    fn list<T: DeserializeOwned>(&self, file: &str) -> Vec<T> {
        let path = self.folder.join("run").join(file);
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{e}\n{}", self.text()));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The value of that name in the only measurement that has it.
    fn value(&self, name: &str) -> f64 {
        let all: Vec<Measurement> = self.list("measurements.jsonl");
        let found = all.iter().find_map(|m| m.finding.value(name));
        found.unwrap_or_else(|| panic!("no {name}\n{}", self.text())).value
    }

    /// Valid trials that lost nothing, of those to more than the plan's own receivers.
    fn clean_trials(&self) -> Vec<Trial> {
        let mut trials: Vec<Trial> = self.list("trials.jsonl");
        trials
            .retain(|t| t.valid() && t.sent_and_lost().1 == 0 && t.offer.pattern != Pattern::Plan);
        assert!(!trials.is_empty(), "no trial without loss\n{}", self.text());
        trials
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn sonde(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    command.args(arguments);
    command
}

fn plan(device: &str, engine: &str, procedure: &str) -> String {
    format!(
        "[bed]\nengine = '{engine}'\nmax_rate = 2000\ndrain = '300ms'\n\
         [[device]]\nname = 'dut'\nkind = '{device}'\n{procedure}"
    )
}

/// What is offered in a valid trial is this near to what was to be.
const PACE: f64 = 0.98;

fn names(trial: &Trial) -> Vec<&str> {
    trial.directions.iter().map(|d| d.name.as_str()).collect()
}

fn whole(d: &Direction) -> bool {
    d.sent > 0 && d.received == d.sent && d.lost == 0 && d.duplicates == 0 && d.flooded == 0
}

#[test]
fn the_caching_capacity_is_that_of_the_bridges_table() {
    if skip("the_caching_capacity_is_that_of_the_bridges_table") {
        return;
    }
    let procedure = "[[procedure]]\nkind = 'address_caching_capacity'\nstations = 100\n\
                     learning_rate = 1000";
    let run = Run::of("capacity", &plan("bridge:stations=37", "xdp", procedure));
    if run.text().contains("needs Linux 6.7") {
        skipped(
            "the_caching_capacity_is_that_of_the_bridges_table",
            "this kernel cannot limit what a bridge learns",
        );
        return;
    }
    assert_eq!(run.value("address_caching_capacity"), 37.0, "{}", run.text());
    // Beyond it, frames to what was not learned are flooded. Ports a and b may speak, too.
    let trials: Vec<Trial> = run.list("trials.jsonl");
    let more =
        |t: &&Trial| t.valid() && t.offer.pattern == Pattern::Stations && t.offer.frames > 37;
    for trial in trials.iter().filter(more) {
        let d = &trial.directions[0];
        // Each of them then takes an entry of the table.
        let unknown = trial.offer.frames - 37;
        assert_eq!(trial.directions.len(), 1);
        assert!((unknown..=unknown + 2).contains(&d.flooded), "{} of {unknown}", d.flooded);
    }
    assert!(trials.iter().any(|t| more(&t)), "no trial beyond the capacity");
}

#[test]
fn unknown_stations_are_flooded_to_both_ports_by_each_engine() {
    if skip("unknown_stations_are_flooded_to_both_ports_by_each_engine") {
        return;
    }
    let procedure = "[[procedure]]\nkind = 'flooding'\ntrial = '200ms'\nmin_rate = 500\n\
                     resolution = 0.5\n[workload]\nflows = [16]";
    for engine in ["xdp", "af_packet"] {
        let run = Run::of(engine, &plan("bridge", engine, procedure));
        assert!(run.value("flooding_throughput") >= 500.0 * PACE, "{}", run.text());
        for trial in run.clean_trials() {
            assert_eq!(names(&trial), ["a>b", "a>c"]);
            assert!(trial.directions.iter().all(whole), "{trial:?}");
            assert_eq!(trial.directions[0].sent, trial.directions[1].sent);
        }
    }
}

#[test]
fn multicast_reaches_both_ports_and_unicast_beside_it_only_one() {
    if skip("multicast_reaches_both_ports_and_unicast_beside_it_only_one") {
        return;
    }
    let common = "trial = '200ms'\nmin_rate = 500\nresolution = 0.5\ngroups = [3]\n";
    let procedures = format!(
        "[[procedure]]\nkind = 'aggregated_multicast'\n{common}\
         [[procedure]]\nkind = 'mixed_class_throughput'\n{common}multicast_share = 0.25\n"
    );
    for engine in ["xdp", "af_packet"] {
        let run = Run::of(&format!("groups-{engine}"), &plan("bridge", engine, &procedures));
        let found = ["aggregated_multicast_throughput", "mixed_class_throughput"];
        let found = found.map(|name| run.value(name));
        assert!(found.iter().all(|&fps| fps >= 500.0 * PACE), "{}", run.text());
        // It is what a trial without loss offered from the one port, not what one port got.
        let offers = run.clean_trials().into_iter().map(|t| t.offer.rate_fps).collect::<Vec<_>>();
        let offered = |fps: f64| offers.iter().any(|o| (PACE..=1.0 / PACE).contains(&(fps / o)));
        assert!(found.into_iter().all(offered), "{offers:?} {}", run.text());
        for trial in run.clean_trials() {
            assert_eq!(names(&trial), ["a>b", "a>c"]);
            assert!(trial.directions.iter().all(whole), "{trial:?}");
            let [b, c] = &trial.directions[..] else { unreachable!() };
            let expected = match trial.offer.pattern {
                Pattern::Multicast { share } => (b.sent as f64 * share) as u64,
                other => panic!("{other:?}"),
            };
            assert_eq!(c.sent, expected);
        }
    }
}

#[test]
fn many_networks_pass_two_routers_and_tags_and_labels_pass_a_bridge() {
    if skip("many_networks_pass_two_routers_and_tags_and_labels_pass_a_bridge") {
        return;
    }
    let load = "[[procedure]]\nkind = 'fixed_load'\nloads = ['1000']\ntrial = '500ms'\n";
    let routers =
        format!("chain = 2\n{load}[workload]\nflows = [256]\nip = [4, 6]\nframes = [84]\n");
    let bridge = format!("{load}[workload]\nvlan = [100, 200]\nmpls = [16, 17]\nframes = [128]\n");
    for (name, device, rest) in [("chain", "router", routers), ("tags", "bridge", bridge)] {
        let run = Run::of(name, &plan(device, "xdp", &rest));
        let all: Vec<Measurement> = run.list("measurements.jsonl");
        // With the loop, and both address families of the routers.
        assert_eq!(all.len(), if name == "chain" { 4 } else { 2 }, "{}", run.text());
        assert!(all.iter().all(|m| m.finding.complete), "{}", run.text());
        let trials: Vec<Trial> = run.list("trials.jsonl");
        for trial in trials.iter().filter(|t| t.valid()) {
            assert!(whole(&trial.directions[0]), "{trial:?}");
            let streams = trial.directions[0].streams.len();
            assert_eq!(streams, if name == "chain" { 256 } else { 1 });
        }
    }
}

#[test]
fn a_router_without_vlans_is_not_sent_any() {
    let rest = "[[procedure]]\nkind = 'throughput'\n[workload]\nvlan = [100]\nframes = [128]\n";
    let run = Run::of("refused", &plan("router", "xdp", rest));
    assert_eq!(run.output.status.code(), Some(2), "{}", run.text());
    assert!(run.text().contains("is not set up for tags"), "{}", run.text());
}

#[test]
fn the_examples_are_plans() {
    for name in ["bridge", "multicast"] {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/bench/{name}.toml"));
        let output = sonde(&["bench", file.to_str().unwrap(), "--dry-run"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("bridge"), "{text}");
    }
}
