//! What a plan that came over the network may not ask for. Whoever sends it may order test traffic
//! and nothing else: this process has every right on its host.

use std::net::IpAddr;

use sonde_server::runs::RunRefusal;
use sonde_wire::prefix::Prefix;

use super::allowed::Allowed;
use crate::expand::expand;
use crate::plan::{BenchPlan, PortPlan, TomlText};

/// Reads and checks a plan.
///
/// # Errors
/// A plan that is wrong, with its line; one that asks for what it may not.
pub fn may_be_run(source: &TomlText, allowed: &Allowed) -> Result<(), RunRefusal> {
    let wrong = |e: crate::plan::PlanError| RunRefusal::Wrong(e.to_string());
    let plan = source.parse().map_err(wrong)?;
    may(&plan, allowed).map_err(RunRefusal::Forbidden)?;
    let most = measurements_at_most(&plan);
    if most > MEASUREMENTS_MAX {
        return Err(RunRefusal::Wrong(format!(
            "plan: comes to up to {most} measurements; over the network at most {MEASUREMENTS_MAX}"
        )));
    }
    expand(source).map(drop).map_err(wrong)
}

/// Whether the plan asks for nothing but test traffic.
fn may(plan: &BenchPlan, allowed: &Allowed) -> Result<(), String> {
    let no = |what: &str, why: &str| {
        Err(format!(
            "{what} is not for plans from the network: {why}; use 'sonde bench' on the host"
        ))
    };
    if plan.bed.host_layers {
        return no("bed.host_layers", "it changes settings of the whole host");
    }
    if plan.controller.is_some() || !plan.agents.is_empty() {
        return no("[controller] or [[agent]]", "it names files of this host and their keys");
    }
    for &prefix in &plan.bed.outside_benchmark_range.0 {
        permitted("bed.outside_benchmark_range", prefix, allowed)?;
    }
    if plan.conditions.iter().any(|c| c.get_ref().command.is_some()) {
        return no("a condition's command", "it is run by the shell");
    }
    for device in plan.devices.iter().map(toml::Spanned::get_ref) {
        if !device.commands.is_empty() {
            return no("a device's commands", "they are run by the shell");
        }
        for (name, port) in &device.ports {
            may_port(port, allowed)
                .map_err(|e| format!("device {}, ports.{name}: {e}", device.name))?;
        }
    }
    Ok(())
}

/// An external device's port: its names go to programs of the host, and its addresses onto the
/// wire.
fn may_port(port: &PortPlan, allowed: &Allowed) -> Result<(), String> {
    for (key, name) in [("interface", Some(&port.interface)), ("netns", port.netns.as_ref())] {
        if let Some(name) = name.filter(|n| !is_plain(n)) {
            return Err(format!("{key}: '{name}' is no name of an interface or namespace"));
        }
    }
    if let Some(gateway) = &port.gateway {
        let address: IpAddr =
            gateway.parse().map_err(|_| format!("gateway: '{gateway}' is no address"))?;
        permitted("gateway", Prefix::of(address), allowed)?;
    }
    for text in &port.addresses {
        let address = text.split('/').next().unwrap_or_default();
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("addresses: '{text}' is no address; write 198.18.0.2/24"))?;
        permitted("addresses", Prefix::of(address), allowed)?;
    }
    Ok(())
}

fn permitted(key: &str, prefix: Prefix, allowed: &Allowed) -> Result<(), String> {
    if allowed.holds(prefix) {
        return Ok(());
    }
    Err(format!(
        "{key}: {prefix} is outside 198.18.0.0/15 and 2001:2::/48, the addresses for benchmarks \
         (RFC 6815), and outside what sonde otg was started with as --allow"
    ))
}

/// A name as the kernel and 'ip netns' have them, and no option or path.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | ':');
    name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().all(plain)
        && name.len() < 256
}

/// An upper bound, found without making a list of them.
fn measurements_at_most(plan: &BenchPlan) -> u64 {
    let w = &plan.workload;
    let layers = plan.ablation.as_ref().map_or(0, |a| a.get_ref().layers.len());
    let states = plan.conditions.len().max(1 << layers.min(16));
    let by_procedure = plan.procedures.iter().map(|p| {
        let [frames, loads] = p.get_ref().frames_and_loads();
        frames.unwrap_or(w.frames.len()).max(1) * loads.unwrap_or(1).max(1)
    });
    // One more for the loop.
    let factors = [plan.devices.len() + 1, states, w.ip.len(), w.flows.len(), w.directions.len()];
    factors
        .iter()
        .map(|&n| n.max(1) as u64)
        .chain([by_procedure.sum::<usize>().max(1) as u64])
        .fold(u64::from(plan.run.repetitions.max(1)), u64::saturating_mul)
}

/// Most measurements that a posted plan may expand to.
const MEASUREMENTS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "title = 'x'\n";
    const ROUTER: &str = "[[device]]\nname = 'r'\nkind = 'router'\n";
    const EXTERNAL: &str = "[[device]]\nname = 'd'\nkind = 'external'\n\
        ports.a = { interface = 'eth1', addresses = ['198.18.0.2/24'], gateway = '198.18.0.1' }\n";
    const PORT_B: &str = "ports.b = { interface = 'eth2', addresses = ['198.19.0.2/24'], mac = '02:00:00:00:00:01' }\n";
    const THROUGHPUT: &str = "[[procedure]]\nkind = 'throughput'\n";

    fn read_text(text: &str) -> Result<usize, RunRefusal> {
        let prefixes = ["198.18.0.0/15", "10.0.0.0/8"].map(|p| p.parse().unwrap()).to_vec();
        let source = TomlText { file: "plan".into(), text: text.into() };
        may_be_run(&source, &Allowed { prefixes, types: Vec::new() })?;
        Ok(expand(&source).unwrap().cases.len())
    }

    #[test]
    fn what_only_asks_for_traffic_is_taken() {
        assert_eq!(read_text(&format!("{HEAD}{ROUTER}{THROUGHPUT}")), Ok(2));
        assert_eq!(read_text(&format!("{HEAD}{EXTERNAL}{PORT_B}{THROUGHPUT}")), Ok(1));
        let allowed = "[bed]\noutside_benchmark_range = ['10.1.0.0/16', '10.2.0.0/16']\n";
        assert_eq!(read_text(&format!("{HEAD}{allowed}{ROUTER}{THROUGHPUT}")), Ok(2));
        let all = format!("{HEAD}[bed]\noutside_benchmark_range = 'all'\n{ROUTER}{THROUGHPUT}");
        match read_text(&all) {
            Err(RunRefusal::Wrong(why)) => assert!(why.contains("not a prefix"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_reaches_beyond_test_traffic_is_forbidden() {
        let external = format!("{HEAD}{EXTERNAL}{PORT_B}");
        let port_b = |b: &str| format!("{HEAD}{EXTERNAL}ports.b = {{ {b} }}\n{THROUGHPUT}");
        for (text, part) in [
            (format!("{external}commands.start = 'reboot'\n{THROUGHPUT}"), "shell"),
            (format!("{external}commands.facts = 'id'\n{THROUGHPUT}"), "shell"),
            (format!("{external}{THROUGHPUT}[[condition]]\nname = 'c'\ncommand = 'id'\n"), "shell"),
            (format!("{HEAD}[bed]\nhost_layers = true\n{ROUTER}{THROUGHPUT}"), "host_layers"),
            (
                format!(
                    "{HEAD}{ROUTER}{THROUGHPUT}[controller]\ncert = '/etc/a'\nkey = '/etc/b'\n\
                     ca = '/etc/c'\n"
                ),
                "files",
            ),
            (
                format!("{HEAD}{ROUTER}{THROUGHPUT}[[agent]]\nname = 'a'\naddress = 'h:1'\n"),
                "agent",
            ),
            (
                format!("{HEAD}[bed]\noutside_benchmark_range = '0.0.0.0/0'\n{ROUTER}{THROUGHPUT}"),
                "--allow",
            ),
            // What would be an argument of a program.
            (port_b("interface = 'eth2', gateway = '-f'"), "no address"),
            (port_b("interface = 'eth2', gateway = 'example.com'"), "no address"),
            (port_b("interface = 'eth2', gateway = '192.0.2.1'"), "--allow"),
            (port_b("interface = 'eth2', gateway = '2001:2::1'"), "--allow"),
            (port_b("interface = 'eth2', addresses = ['192.0.2.1/24']"), "--allow"),
            (port_b("interface = '-a'"), "no name"),
            (port_b("interface = 'eth2', netns = '../../../proc/1/ns/net'"), "no name"),
            (port_b("interface = ''"), "no name"),
        ] {
            match read_text(&text) {
                Err(RunRefusal::Forbidden(why)) => assert!(why.contains(part), "{why}"),
                other => panic!("{other:?}: {text}"),
            }
        }
    }

    #[test]
    fn a_wrong_plan_has_its_line_and_one_without_bounds_is_no_list() {
        let wrong = |text: &str| match read_text(text) {
            Err(RunRefusal::Wrong(why)) => why,
            other => panic!("{other:?}: {text}"),
        };
        assert!(wrong("title = 'x'\nwhat = 1\n").contains("plan line 2: "));
        let bad = format!("{HEAD}{ROUTER}[[procedure]]\nkind = 'nonsense'\n");
        assert!(wrong(&bad).contains("plan line 5: "));
        let many = format!("{HEAD}[run]\nrepetitions = 4000000000\n{ROUTER}{THROUGHPUT}");
        assert!(wrong(&many).contains("at most 10000"));
    }
}
