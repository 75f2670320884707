//! What a plan names twice would be measured twice and reported as two.

use std::collections::HashMap;
use std::hash::Hash;

use super::super::plan::{BenchPlan, PlanError, TomlText};
use super::super::plan_values::FrameSizes;
use super::super::procedures::ProcedurePlan;
use sonde_run::toml_file::TomlStep;

/// Refuses values that stand twice in a list of which each is a case or a name of its own.
pub fn values(source: &TomlText, plan: &BenchPlan) -> Result<(), PlanError> {
    let w = &plan.workload;
    let of = |key: &'static str| vec![TomlStep::Key("workload"), TomlStep::Key(key)];
    once(source, &of("frames"), w.frames.iter().map(sizes))?;
    once(source, &of("ip"), w.ip.iter().map(|ip| (ip, ip.to_string())))?;
    once(source, &of("flows"), w.flows.iter().map(|n| (n, n.to_string())))?;
    once(source, &of("bursts"), w.bursts.iter().map(|n| (n, n.to_string())))?;
    once(source, &of("directions"), w.directions.iter().map(|d| (d.name(), d.name().into())))?;
    once(source, &[TomlStep::Key("agent")], plan.agents.iter().map(|a| (&a.name, a.name.clone())))?;
    for (i, condition) in plan.conditions.iter().enumerate() {
        let layers = &condition.get_ref().layers;
        let path = [TomlStep::Key("condition"), TomlStep::Item(i), TomlStep::Key("layers")];
        once(source, &path, layers.iter().map(|l| (l, l.clone())))?;
    }
    if let Some(ablation) = &plan.ablation {
        let layers = &ablation.get_ref().layers;
        let path = [TomlStep::Key("ablation"), TomlStep::Key("layers")];
        once(source, &path, layers.iter().map(|l| (l, l.clone())))?;
    }
    for (i, procedure) in plan.procedures.iter().enumerate() {
        let keys = procedure.get_ref();
        let of = |key: &'static str| {
            vec![TomlStep::Key("procedure"), TomlStep::Item(i), TomlStep::Key(key)]
        };
        once(source, &of("frames"), keys.frames.iter().flatten().map(sizes))?;
        let groups = keys.groups.iter().flatten();
        once(source, &of("groups"), groups.map(|n| (n, n.to_string())))?;
        let goals = keys.goals.iter().flatten();
        once(source, &of("goals"), goals.map(|g| (&g.name, g.name.clone())))?;
        let loads = keys.loads.iter().flatten().filter(|_| !keys.loads_repeat());
        once(source, &of("loads"), loads.map(|l| (l.to_string(), l.to_string())))?;
    }
    Ok(())
}

/// Refuses a procedure that comes to a measurement that another one comes to.
pub fn procedures(
    source: &TomlText,
    plan: &BenchPlan,
    procedures: &[ProcedurePlan],
) -> Result<(), PlanError> {
    let line = |i: usize| source.line(plan.procedures[i].span().start);
    let mut seen = HashMap::new();
    for (i, procedure) in procedures.iter().enumerate() {
        let kind = procedure.name();
        for one in procedure.by_load() {
            for frames in procedure.frames().unwrap_or(&plan.workload.frames) {
                let load = one.load_label();
                let action = one.action().map(str::to_owned);
                let first = *seen.entry((kind, load, action, &frames.label)).or_insert(i);
                if first != i {
                    let message = format!(
                        "procedure: {kind} with frames of {} is what the one of line {} measures; give \
                         each frames or loads of its own, or take one out",
                        frames.label,
                        line(first)
                    );
                    return Err(source.error(plan.procedures[i].span(), message));
                }
            }
        }
    }
    Ok(())
}

/// Mixes of other names may be the same frames.
fn sizes(frames: &FrameSizes) -> (&[u16], String) {
    (&frames.sizes, frames.label.clone())
}

/// Each of the list at `path` is of this identity, and has this name.
fn once<K: Hash + Eq>(
    source: &TomlText,
    path: &[TomlStep<'_>],
    items: impl Iterator<Item = (K, String)>,
) -> Result<(), PlanError> {
    let mut seen: HashMap<K, String> = HashMap::new();
    for (i, (identity, name)) in items.enumerate() {
        let Some(first) = seen.insert(identity, name.clone()) else { continue };
        let keys = path.iter().filter_map(|step| match step {
            TomlStep::Key(key) => Some(*key),
            TomlStep::Item(_) => None,
        });
        let key = keys.collect::<Vec<_>>().join(".");
        let same = if first == name { String::new() } else { format!(", the same as {first}") };
        let at = source.position(&[path, &[TomlStep::Item(i)]].concat());
        let message = format!("{key}: {name} stands there twice{same}; take one out");
        return Err(source.error(at, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::expand;
    use super::*;

    #[test]
    fn what_stands_twice_is_refused_with_its_key_and_line() {
        let router = "title = 'x'\n[[device]]\nname = 'router'\nkind = 'router'\n";
        let throughput = "[[procedure]]\nkind = 'throughput'\n";
        let layer = crate::layers::names()[0];
        for (rest, line, key, part) in [
            ("[workload]\nframes = [64, 64]\n", 8, "workload.frames", "64 stands there twice"),
            ("[workload]\nframes = [64, 128,\n '64']\n", 9, "workload.frames", "64 stands"),
            (
                "[workload]\nframes = ['imix:2(64)d', 'genome:aad']\n",
                8,
                "workload.frames",
                "genome:aad stands there twice, the same as imix:2(64)d",
            ),
            ("[workload]\nip = [4, 4]\n", 8, "workload.ip", "4 stands"),
            ("[workload]\nflows = [1, 16, 1]\n", 8, "workload.flows", "1 stands"),
            ("[workload]\nbursts = [8, 8]\n", 8, "workload.bursts", "8 stands"),
            (
                "[workload]\ndirections = ['bidirectional', 'bidirectional']\n",
                8,
                "workload.directions",
                "bidirectional stands",
            ),
            ("[[procedure]]\nkind = 'latency'\nframes = [64, 64]\n", 9, "procedure.frames", "64"),
            (
                "[[procedure]]\nkind = 'fixed_load'\nloads = ['1 Mbit/s', '1000 kbit/s']\n",
                9,
                "procedure.loads",
                "1 Mbit/s stands there twice",
            ),
            (
                "[[procedure]]\nkind = 'latency'\nloads = ['50 %', '50%']\n",
                9,
                "procedure.loads",
                "50 % stands",
            ),
            (
                "[[procedure]]\nkind = 'scaled_group_matrix'\nloads = ['5k']\ngroups = [1, 1]\n",
                10,
                "procedure.groups",
                "1 stands",
            ),
            (
                "[[procedure]]\nkind = 'mlrsearch'\n[[procedure.goals]]\nname = 'n'\n\
                 [[procedure.goals]]\nname = 'n'\n",
                11,
                "procedure.goals",
                "n stands",
            ),
            ("[[procedure]]\nkind = 'throughput'\n", 7, "procedure", "the one of line 5 measures"),
            (
                "[[procedure]]\nkind = 'throughput'\nframes = [128, 64]\ntrial = '1s'\n",
                7,
                "procedure",
                "frames of 64",
            ),
            (
                "[[agent]]\nname = 'w'\naddress = 'a:1'\n[[agent]]\nname = 'w'\naddress = 'b:1'\n",
                10,
                "agent",
                "w stands",
            ),
            (
                &format!("[[condition]]\nname = 'c'\nlayers = ['{layer}', '{layer}']\n"),
                9,
                "condition.layers",
                layer,
            ),
            (
                &format!("[ablation]\nlayers = ['{layer}', '{layer}']\n"),
                8,
                "ablation.layers",
                layer,
            ),
        ] {
            let text = format!("{router}{throughput}{rest}");
            let source = TomlText { file: "p.toml".into(), text };
            let error = expand(&source).err().unwrap_or_else(|| panic!("accepted: {rest}"));
            assert_eq!((error.line, error.key.as_deref()), (Some(line), Some(key)), "{error}");
            assert!(error.message.contains(part), "{error}");
        }
        // Classes and tags are no cases: two of three flows may be of one class.
        for rest in [
            "[workload]\nflows = [3]\ndscp = [0, 0, 46]\n",
            "[[procedure]]\nkind = 'throughput'\nframes = [128]\n",
            "[[procedure]]\nkind = 'reset'\nloads = ['1k']\n[[procedure]]\nkind = 'reset'\n\
             loads = ['1k']\naction = 'power'\n",
            "[[procedure]]\nkind = 'ramp'\nloads = ['1k', '1k']\n",
        ] {
            let text = format!("{router}{throughput}{rest}");
            let source = TomlText { file: "p.toml".into(), text };
            expand(&source).map(drop).unwrap_or_else(|e| panic!("{rest}: {e}"));
        }
    }
}
