//! From a plan to its measurements, one by one, in the order in which they are made.

use std::collections::{BTreeMap, HashSet};

use sonde_lab::device::DeviceSpec;
use sonde_results::bench::Case;

use super::cases::{
    BASELINE, Condition, DeviceKind, DeviceUnderTest, ExpandedPlan, LOOP, PlannedCase,
};
use super::plan::{
    AblationPlan, BenchPlan, ConditionPlan, DevicePlan, DirectionName, FrameSizes, PlanError,
    TomlText,
};
use super::procedures::{ProcedureKeys, ProcedurePlan};

mod beds;
mod check;
mod twice;

pub use beds::host;

/// Checks a plan as a whole and lists its measurements.
///
/// # Errors
/// What cannot be measured, with the line where it is asked for.
pub fn expand(source: &TomlText) -> Result<ExpandedPlan, PlanError> {
    let plan = source.parse()?;
    let devices = devices(source, &plan)?;
    let conditions = conditions(source, &plan)?;
    let procedures = procedures(source, &plan)?;
    twice::values(source, &plan)?;
    twice::procedures(source, &plan, &procedures)?;
    check::workload(source, &plan, &procedures)?;
    check::tags(source, &plan, &devices)?;
    beds::states(source, &plan, &devices)?;
    check::size(source, &plan, &devices, &conditions, &procedures)?;
    let cases = order(&plan, &devices, &conditions, &procedures);
    if cases.is_empty() {
        return Err(source.whole("comes to no measurement; name a device and a procedure"));
    }
    super::checks::sound(source, &plan.checks, &cases)?;
    let expanded = ExpandedPlan { plan, devices, conditions, cases };
    beds::cases(source, &expanded)?;
    Ok(expanded)
}

fn devices(source: &TomlText, plan: &BenchPlan) -> Result<Vec<DeviceUnderTest>, PlanError> {
    let mut devices = Vec::new();
    let mut names = HashSet::new();
    for spanned in &plan.devices {
        let device = spanned.get_ref();
        let wrong = |message: String| Err(source.error(spanned.span(), message));
        let name = &device.name;
        if name.is_empty() || name.contains(['/', ' ']) || !names.insert(name.clone()) {
            return wrong(format!(
                "device '{name}': each needs a name of its own, without / and space"
            ));
        }
        if name == LOOP {
            return wrong(format!("'{LOOP}' is the tester without a device; see run.loop"));
        }
        let kind = match device.kind.as_str() {
            "external" => DeviceKind::External,
            kind => match kind.parse::<DeviceSpec>() {
                Ok(DeviceSpec::Loop) => {
                    return wrong("the loop is asked for by run.loop = true".into());
                }
                Ok(spec) => DeviceKind::Lab(spec),
                Err(e) => return wrong(format!("device {name}: {e}, or external")),
            },
        };
        match kind {
            DeviceKind::External
                if !(device.ports.contains_key("a") && device.ports.contains_key("b")) =>
            {
                return wrong(format!(
                    "device {name}: name the tester's interfaces in ports.a and ports.b"
                ));
            }
            DeviceKind::Lab(_) if !device.ports.is_empty() || !device.commands.is_empty() => {
                return wrong(format!(
                    "device {name}: ports and commands are for kind = 'external'"
                ));
            }
            _ => {}
        }
        if !(1..=2).contains(&device.chain) {
            return wrong(format!("device {name}: chain is 1 or 2"));
        }
        devices.push(DeviceUnderTest { name: name.clone(), kind, plan: device.clone() });
    }
    let lab_made = devices.iter().any(|d| d.kind != DeviceKind::External) || devices.is_empty();
    if plan.run.with_loop && lab_made {
        let plan = DevicePlan {
            name: LOOP.into(),
            kind: LOOP.into(),
            chain: 1,
            cpu: devices.iter().find_map(|d| d.plan.cpu),
            mtu: devices.iter().filter_map(|d| d.plan.mtu).max(),
            ports: Default::default(),
            commands: Default::default(),
        };
        let device =
            DeviceUnderTest { name: LOOP.into(), kind: DeviceKind::Lab(DeviceSpec::Loop), plan };
        devices.insert(0, device);
    }
    if devices.is_empty() {
        return Err(
            source.whole("names no device; add [[device]] with name = 'dut', kind = 'router'")
        );
    }
    Ok(devices)
}

/// Those of the plan, or every subset of the layers of its ablation.
fn conditions(source: &TomlText, plan: &BenchPlan) -> Result<Vec<Condition>, PlanError> {
    let mut conditions: Vec<Condition> = Vec::new();
    for spanned in &plan.conditions {
        let ConditionPlan { name, layers, command } = spanned.get_ref().clone();
        if name.is_empty() || name.contains(['/', ' ']) || conditions.iter().any(|c| c.name == name)
        {
            let message =
                format!("condition '{name}': each needs a name of its own, without / and space");
            return Err(source.error(spanned.span(), message));
        }
        known(source, spanned.span(), &layers)?;
        conditions.push(Condition { name, layers, command });
    }
    if let Some(spanned) = &plan.ablation {
        let AblationPlan { layers } = spanned.get_ref();
        let wrong = |message: &str| Err(source.error(spanned.span(), message));
        if !conditions.is_empty() {
            return wrong("an ablation makes its own conditions; take out [[condition]] or this");
        }
        if !(1..=MOST_LAYERS).contains(&layers.len()) {
            return wrong("an ablation takes 1 to 6 layers: 6 are 64 combinations already");
        }
        known(source, spanned.span(), layers)?;
        for subset in 0..1u32 << layers.len() {
            let chosen = layers.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1);
            let layers: Vec<String> = chosen.map(|(_, l)| l.clone()).collect();
            let name = if layers.is_empty() { BASELINE.into() } else { layers.join("+") };
            conditions.push(Condition { name, layers, command: None });
        }
    }
    if conditions.is_empty() {
        conditions.push(Condition::default());
    }
    Ok(conditions)
}

fn known(
    source: &TomlText,
    at: std::ops::Range<usize>,
    layers: &[String],
) -> Result<(), PlanError> {
    let all = super::layers::names();
    match layers.iter().find(|l| !all.contains(&l.as_str())) {
        None => Ok(()),
        Some(layer) => {
            let message = format!("'{layer}' is no layer; there are {}", all.join(", "));
            Err(source.error(at, message))
        }
    }
}

fn procedures(source: &TomlText, plan: &BenchPlan) -> Result<Vec<ProcedurePlan>, PlanError> {
    if plan.procedures.is_empty() {
        return Err(source.whole("names no procedure; add [[procedure]] with kind = 'throughput'"));
    }
    let read = |spanned: &toml::Spanned<ProcedureKeys>| {
        ProcedurePlan::read(spanned.get_ref()).map_err(|e| source.error(spanned.span(), e))
    };
    plan.procedures.iter().map(read).collect()
}

/// Blocks of repetitions, each with every measurement of every bed.
fn order(
    plan: &BenchPlan,
    devices: &[DeviceUnderTest],
    conditions: &[Condition],
    procedures: &[ProcedurePlan],
) -> Vec<PlannedCase> {
    let mut cases = Vec::new();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    for repetition in 1..=plan.run.repetitions.max(1) {
        for (d, c) in beds(plan, devices, conditions, &mut random) {
            let device = &devices[d];
            let alone = device.name == LOOP;
            let state = if alone { Condition::default() } else { conditions[c].clone() };
            let suited = procedures.iter().filter(|p| !alone || p.of_the_loop());
            for procedure in suited.flat_map(ProcedurePlan::by_load) {
                for workload in workloads(plan, &procedure) {
                    let case = Case {
                        procedure: procedure.name().into(),
                        device: device.name.clone(),
                        condition: state.name.clone(),
                        frame: workload.frames.label.clone(),
                        frame_bytes: workload.frames.mean(),
                        direction: workload.direction.name().into(),
                        flows: workload.flows,
                        load: procedure.load_label(),
                        sweep: sweep(plan, &procedure, &workload),
                        layers: state.layers.clone(),
                        repetition,
                    };
                    cases.push(PlannedCase {
                        id: id(plan, &case),
                        case,
                        device: d,
                        condition: c,
                        frames: workload.frames.clone(),
                        ip: workload.ip,
                        burst: workload.burst,
                        bidirectional: workload.direction == DirectionName::Bidirectional,
                        procedure: procedure.clone(),
                    });
                }
            }
        }
    }
    cases
}

/// Each device in each of its states, by index; the loop is always first. Where there are several
/// repetitions the order is random, so that a drift of the host falls on all alike.
fn beds(
    plan: &BenchPlan,
    devices: &[DeviceUnderTest],
    conditions: &[Condition],
    random: &mut fastrand::Rng,
) -> Vec<(usize, usize)> {
    let mut beds = Vec::new();
    for (d, device) in devices.iter().enumerate() {
        // A state of the device is none of the loop's.
        let states = if device.name == LOOP { 1 } else { conditions.len() };
        beds.extend((0..states).map(|c| (d, c)));
    }
    if plan.run.repetitions > 1 {
        let first = usize::from(devices[0].name == LOOP);
        random.shuffle(&mut beds[first..]);
    }
    beds
}

struct Workload<'a> {
    frames: &'a FrameSizes,
    ip: u8,
    burst: u32,
    flows: u32,
    direction: DirectionName,
}

fn workloads<'a>(
    plan: &'a BenchPlan,
    procedure: &'a ProcedurePlan,
) -> impl Iterator<Item = Workload<'a>> {
    let w = &plan.workload;
    let frames = procedure.frames().unwrap_or(&w.frames);
    w.ip.iter().flat_map(move |&ip| {
        w.directions.iter().flat_map(move |&direction| {
            w.flows.iter().flat_map(move |&flows| {
                w.bursts.iter().flat_map(move |&burst| {
                    let one = move |frames| Workload { frames, ip, burst, flows, direction };
                    frames.iter().map(one)
                })
            })
        })
    })
}

/// What varies beside what a case has a field for. Frames that leave one by one are the rule.
fn sweep(
    plan: &BenchPlan,
    procedure: &ProcedurePlan,
    workload: &Workload<'_>,
) -> BTreeMap<String, String> {
    let mut sweep = BTreeMap::from([("ip".to_string(), workload.ip.to_string())]);
    if let Some(action) = procedure.action() {
        sweep.insert("action".into(), action.into());
    }
    if plan.workload.bursts != [1] {
        sweep.insert("burst".into(), workload.burst.to_string());
    }
    sweep
}

/// Of what the plan varies; what is the same for all is left out.
fn id(plan: &BenchPlan, case: &Case) -> String {
    let w = &plan.workload;
    let mut parts = vec![case.procedure.clone(), case.device.clone()];
    if !case.condition.is_empty() {
        parts.push(case.condition.clone());
    }
    parts.push(case.frame.clone());
    if w.ip.len() > 1 {
        parts.push(format!("ip{}", case.sweep["ip"]));
    }
    if w.directions.len() > 1 {
        parts.push(case.direction.clone());
    }
    if w.flows.len() > 1 {
        parts.push(format!("{}-flows", case.flows));
    }
    // Resets of different kinds are distinguished (RFC 2544, section 26.6).
    if let Some(action) = case.sweep.get("action").filter(|action| *action != "reset") {
        parts.push(action.clone());
    }
    if w.bursts.len() > 1 {
        parts.push(format!("bursts-of-{}", case.sweep["burst"]));
    }
    if !case.load.is_empty() {
        parts.push(case.load.replace(' ', ""));
    }
    if plan.run.repetitions > 1 {
        parts.push(case.repetition.to_string());
    }
    parts.join("/")
}

/// Layers of an ablation: all their combinations are measured.
const MOST_LAYERS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<ExpandedPlan, PlanError> {
        expand(&TomlText { file: "p.toml".into(), text: text.into() })
    }

    const ROUTER: &str = "[[device]]\nname = 'router'\nkind = 'router'\n";
    const THROUGHPUT: &str = "[[procedure]]\nkind = 'throughput'\n";

    fn ids(text: &str) -> Vec<String> {
        expanded(text).unwrap().cases.into_iter().map(|c| c.id).collect()
    }

    #[test]
    fn the_loop_comes_first_and_only_where_it_tells_something() {
        let plan =
            format!("title = 'x'\n{ROUTER}{THROUGHPUT}[[procedure]]\nkind = 'system_recovery'\n");
        assert_eq!(
            ids(&plan),
            ["throughput/loop/64", "throughput/router/64", "system_recovery/router/64"]
        );
        assert_eq!(ids(&format!("{plan}[run]\nloop = false\n")).len(), 2);
    }

    #[test]
    fn every_combination_has_an_id_of_its_own() {
        let plan = format!(
            "title = 'x'\n[workload]\nframes = [84, 'imix:3(90)g']\nip = [4, 6]\nflows = [1, 256]\n\
             bursts = [1, 64]\ndirections = ['unidirectional', 'bidirectional']\n[run]\nrepetitions = 3\n\
             {ROUTER}{THROUGHPUT}[[procedure]]\nkind = 'fixed_load'\nloads = ['10 Mbit/s', '50 %']\n\
             [[condition]]\nname = 'kernel'\n[[condition]]\nname = 'tuned'\n"
        );
        let all = ids(&plan);
        // 32 workloads, 3 procedures or loads, 2 states of the device and the loop, 3 times.
        assert_eq!(all.len(), 32 * 3 * 3 * 3);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!(all, ids(&plan), "the order follows from the seed");
    }

    #[test]
    fn an_ablation_measures_every_combination_of_its_layers() {
        let layers = crate::layers::names();
        let (a, b) = (layers[0], layers[1]);
        let plan = format!(
            "title = 'x'\n{ROUTER}{THROUGHPUT}[run]\nloop = false\n[ablation]\nlayers = ['{a}', '{b}']\n"
        );
        let conditions: Vec<String> =
            expanded(&plan).unwrap().cases.into_iter().map(|c| c.case.condition).collect();
        assert_eq!(conditions, [BASELINE.to_string(), a.into(), b.into(), format!("{a}+{b}")]);
    }

    #[test]
    fn procedures_may_have_frames_of_their_own() {
        let plan = format!(
            "title = 'x'\n[run]\nloop = false\n{ROUTER}\
             [[procedure]]\nkind = 'fixed_load'\nloads = ['25 Mbit/s']\nframes = [64, 256]\n\
             [[procedure]]\nkind = 'fixed_load'\nloads = ['100 Mbit/s']\nframes = [1500]\n"
        );
        assert_eq!(
            ids(&plan),
            [
                "fixed_load/router/64/25Mbit/s",
                "fixed_load/router/256/25Mbit/s",
                "fixed_load/router/1500/100Mbit/s"
            ]
        );
    }

    #[test]
    fn an_impossible_plan_is_refused_with_its_line() {
        for (text, line, part) in [
            (format!("title = 'x'\n{ROUTER}"), None, "procedure"),
            (format!("title = 'x'\n{ROUTER}{ROUTER}{THROUGHPUT}"), Some(5), "name of its own"),
            (
                format!("title = 'x'\n{THROUGHPUT}[[device]]\nname = 'r'\nkind = 'rooter'\n"),
                Some(4),
                "router",
            ),
            (format!("title = 'x'\n{ROUTER}{THROUGHPUT}[workload]\nip = [6]\n"), Some(7), "84"),
            (
                format!(
                    "title = 'x'\n{ROUTER}mtu = 1500\n{THROUGHPUT}[workload]\nframes = [9000]\n"
                ),
                Some(9),
                "mtu",
            ),
            (
                format!("title = 'x'\n{ROUTER}{THROUGHPUT}[workload]\nbursts = [0]\n"),
                Some(8),
                "no burst",
            ),
            (
                format!("title = 'x'\n{ROUTER}{THROUGHPUT}[workload]\ndscp = [0, 46]\n"),
                Some(8),
                "as many flows",
            ),
            (
                format!(
                    "title = 'x'\n{ROUTER}[[procedure]]\nkind = 'back_to_back'\n[workload]\n\
                     frames = [64, 'imix']\n"
                ),
                Some(8),
                "one size",
            ),
            (
                format!("title = 'x'\n{ROUTER}{THROUGHPUT}[workload]\ndscp = [64]\n"),
                Some(8),
                "0 to 63",
            ),
            (format!("title = 'x'\n{ROUTER}{THROUGHPUT}trail = '5s'\n"), Some(7), "trail"),
            (
                format!(
                    "title = 'x'\n{ROUTER}{THROUGHPUT}[[condition]]\nname = 'c'\nlayers = ['x']\n"
                ),
                Some(7),
                "layer",
            ),
            (
                format!("title = 'x'\n{THROUGHPUT}[[device]]\nname = 'd'\nkind = 'external'\n"),
                Some(4),
                "ports.a",
            ),
        ] {
            let error = expanded(&text).err().unwrap_or_else(|| panic!("accepted: {text}"));
            assert_eq!(error.line, line, "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }
}
