//! Each procedure that a router of the lab can be asked, on real frames, with either engine:
//! very short trials and modest loads. What is asserted holds however busy the host is: nothing
//! of times, and what the tester was not fit for must say so.

use sonde_results::bench::{BenchRun, Finding, Measurement};
use sonde_results::caveat::Caveat;
use sonde_results::trial::Trial;

use super::support::{Folder, router};

#[test]
fn every_procedure_ends_with_the_engine_xdp() {
    every_procedure_ends("xdp", "every_procedure_ends_with_the_engine_xdp");
}

#[test]
fn every_procedure_ends_with_the_engine_af_packet() {
    every_procedure_ends("af_packet", "every_procedure_ends_with_the_engine_af_packet");
}

#[test]
fn frames_leave_in_bursts_where_the_plan_says_so() {
    if sonde_lab::skip("frames_leave_in_bursts_where_the_plan_says_so") {
        return;
    }
    for engine in ["xdp", "af_packet"] {
        let plan = router("[workload]\nbursts = [1, 16]\n")
            + "[[procedure]]\nkind = 'fixed_load'\nloads = ['4k']\ntrial = '400ms'\n";
        let folder = Folder::alone(&plan.replace("'af_packet'", &format!("'{engine}'")));
        let ended = folder.bench();
        let run = folder.read();
        let ids: Vec<&str> = run.measurements.iter().map(|m| m.id.as_str()).collect();
        let [one, many] = ids[..] else { panic!("{ids:?}\n{}", ended.err) };
        assert!(one.contains("bursts-of-1/") && many.contains("bursts-of-16/"), "{ids:?}");
        for (id, bursts) in [(one, 1600), (many, 100)] {
            let trial = run.trials.iter().find(|t| t.measurement == id).unwrap();
            // Each burst has one due time, by which its first frame is late or not.
            let d = &trial.directions[0];
            assert_eq!((d.sent, d.lateness.count), (1600, bursts), "{engine} {id}");
        }
    }
}

fn every_procedure_ends(engine: &str, test: &str) {
    if sonde_lab::skip(test) {
        return;
    }
    let plan = router(PROCEDURES)
        .replace("'af_packet'", &format!("'{engine}'"))
        .replace("'5k'", &format!("'{MAX_FPS}'"))
        .replace("attempts = 30", "attempts = 3");
    let folder = Folder::alone(&plan);
    let (ended, run) = folder.whole_run();
    let count = PROCEDURES.matches("[[procedure]]").count();
    assert_eq!(run.measurements.len(), count, "{}\n{}", ended.out, ended.err);
    let any = |of: fn(&Measurement) -> bool| run.measurements.iter().any(of);
    let code = match () {
        () if any(Measurement::failed) => 1,
        () if any(Measurement::undecided) => 5,
        () => 0,
    };
    assert_eq!(ended.code, code, "{}\n{}", ended.out, ended.err);
    for m in &run.measurements {
        measurement(&run, m);
    }
}

fn measurement(run: &BenchRun, m: &Measurement) {
    let Measurement { id, finding, caveats, .. } = m;
    let trials: Vec<&Trial> = run.trials.iter().filter(|t| t.measurement == *id).collect();
    assert!(!trials.is_empty(), "{id}");
    if finding.values.is_empty() {
        // Documented: a load without a valid try leaves nothing to report.
        assert!(caveats.contains(Caveat::TrialsInvalid), "{m:?}");
        assert!(trials.iter().any(|t| !t.valid()), "{m:?}");
    }
    assert!(finding.complete || !finding.notes.is_empty(), "unfinished without a word: {m:?}");
    for trial in trials.iter().filter(|t| t.valid()) {
        frames_add_up(trial);
    }
    for q in &finding.values {
        assert!(q.value.is_finite(), "{id} {q:?}");
        if let Some([low, high]) = q.bounds {
            let hair = q.value.abs() * 1e-9;
            assert!(low <= q.value + hair && q.value <= high + hair, "{id} {q:?}");
        }
        match q.unit.as_str() {
            "ratio" => assert!((0.0..=1.0).contains(&q.value), "{id} {q:?}"),
            // What was sent is a rate as measured, a hair above what was asked for.
            // A short burst is as fast as it left.
            "frames/s" if q.name == "offered_load" => assert!(q.value > 0.0, "{id} {q:?}"),
            // Rates are reported as offered, and a pace is held to 2 %.
            "frames/s" => assert!((0.0..=MAX_FPS * 1.021).contains(&q.value), "{id} {q:?}"),
            _ => {}
        }
    }
    distributions_rise(id, finding);
}

fn frames_add_up(trial: &Trial) {
    for d in &trial.directions {
        assert!(d.sent > 0, "{trial:?}");
        assert!(d.sent.abs_diff(d.intended) * 1000 <= d.intended, "{d:?}");
        assert_eq!(d.received + d.lost, d.sent, "{d:?}");
        assert!(d.sent_ns[0] <= d.sent_ns[1], "{d:?}");
        assert!(d.latency.count <= d.received, "{d:?}");
        if d.latency.count > 0 {
            assert!(0 <= d.latency.min && d.latency.min <= d.latency.max, "{d:?}");
        }
    }
}

/// "latency_min", "_mean", "_p50" and so on to "_max", at each load and in each direction.
fn distributions_rise(id: &str, finding: &Finding) {
    const ORDER: [&str; 9] =
        ["_min", "_p50", "_p90", "_p99", "_p99_9", "_p99_99", "_p99_999", "_p99_9999", "_max"];
    for least in &finding.values {
        let (base, at) = least.name.split_once('@').unwrap_or((&least.name, ""));
        let Some(of) = base.strip_suffix("_min") else { continue };
        let value = |end: &&str| {
            let name = format!("{of}{end}");
            finding.value(&if at.is_empty() { name } else { format!("{name}@{at}") })
        };
        let found: Vec<f64> = ORDER.iter().filter_map(value).map(|q| q.value).collect();
        assert!(found.len() >= 2 && found.is_sorted(), "{id} {of}@{at}: {found:?}");
        if let Some(mean) = value(&"_mean") {
            let whole = least.value..=found[found.len() - 1];
            assert!(whole.contains(&mean.value), "{id} {mean:?} {whole:?}");
        }
    }
}

/// Frames a second that any host can offer.
const MAX_FPS: f64 = 20_000.0;

const PROCEDURES: &str = "
[[procedure]]
kind = 'throughput'
trial = '100ms'
resolution = 0.3
min_rate = '2k'

[[procedure]]
kind = 'tst009'
trial = '100ms'
resolution = 0.3
min_rate = '2k'

[[procedure]]
kind = 'mlrsearch'
min_rate = '2k'
longest = '2s'
[[procedure.goals]]
name = 'ndr'
initial_trial = '50ms'
final_trial = '100ms'
duration_sum = '200ms'
width = 0.3

[[procedure]]
kind = 'latency'
loads = ['1k', '5k']
trial = '500ms'
trials = 1

[[procedure]]
kind = 'latency_rfc8219'
loads = ['5k']
trial = '500ms'
trials = 2

[[procedure]]
kind = 'pdv'
loads = ['5k']
trial = '500ms'
trials = 2

[[procedure]]
kind = 'ipdv'
loads = ['5k']
trial = '500ms'
trials = 2

[[procedure]]
kind = 'frame_loss_rate'
trial = '100ms'
step = 10

[[procedure]]
kind = 'forwarding_rate'
trial = '100ms'
step = 50

[[procedure]]
kind = 'back_to_back'
longest = '20ms'
trials = 1
attempts = 1
search_trial = '100ms'
resolution = 0.3
min_rate = '2k'

[[procedure]]
kind = 'system_recovery'
trial = '200ms'
after = '200ms'
trials = 1
search_trial = '100ms'
resolution = 0.3
min_rate = '2k'

[[procedure]]
kind = 'y1564_configuration'
cir = '2 Mbit/s'
eir = '1 Mbit/s'
policing = true
trial = '200ms'

[[procedure]]
kind = 'y1564_performance'
cir = '2 Mbit/s'
duration = '500ms'

[[procedure]]
kind = 'fixed_load'
loads = ['5k']
trial = '500ms'
discard = '100ms'

[[procedure]]
kind = 'ramp'
trial = '500ms'
trials = 1

[[procedure]]
kind = 'soak'
loads = ['5k']
window = '200ms'
duration = '600ms'
";
