//! Refuses, when a plan is read, what a bed cannot do: states of a device, frames that an engine
//! cannot send, ports with impossible addresses. [`host`] looks up what only this host knows
//! (processors, interfaces).

use std::thread::available_parallelism;

use sonde_lab::device::{BedSpec, DeviceSpec};
use sonde_lab::tune::{Layer, LayerScope};
use sonde_meter::trial::POWER;
use sonde_results::units::parse_mac;

use super::super::cases::{
    DeviceKind, DeviceUnderTest, ExpandedPlan, FRAME_BEYOND_IP, PlannedCase,
};
use super::super::layers;
use super::super::networks::{NETWORKS, port_networks, refuse_others_addresses};
use super::super::plan::{BenchPlan, DevicePlan, EngineName, PlanError, PortPlan, TomlText};
use super::super::procedures::ProcedureKeys;
use super::super::tester::{TesterPort, port_facts};
use sonde_run::toml_file::TomlStep;

/// Whether every device can be brought to every state.
pub fn states(
    source: &TomlText,
    plan: &BenchPlan,
    devices: &[DeviceUnderTest],
) -> Result<(), PlanError> {
    let external = devices.iter().find(|d| d.kind == DeviceKind::External);
    let of_lab = |d: &&DeviceUnderTest| {
        !matches!(d.kind, DeviceKind::External | DeviceKind::Lab(DeviceSpec::Loop))
    };
    let made = devices.iter().find(of_lab);
    for spanned in &plan.conditions {
        let condition = spanned.get_ref();
        let wrong = |message: String| {
            Err(source.error(spanned.span(), format!("condition {}: {message}", condition.name)))
        };
        if let (Some(_), Some(device)) = (&condition.command, made) {
            return wrong(format!(
                "its command is for external devices, and device {} is the lab's; give it layers, \
                 or a plan of its own",
                device.name
            ));
        }
        if let (false, Some(device)) = (condition.layers.is_empty(), external) {
            return wrong(format!(
                "layers are for devices of the lab, and device {} is external; give it a command",
                device.name
            ));
        }
        possible(plan, devices, &condition.layers).or_else(wrong)?;
    }
    if let Some(spanned) = &plan.ablation {
        let wrong = |message: String| Err(source.error(spanned.span(), message));
        if let Some(device) = external {
            return wrong(format!(
                "an ablation is of devices of the lab, and device {} is external",
                device.name
            ));
        }
        possible(plan, devices, &spanned.get_ref().layers).or_else(wrong)?;
    }
    Ok(())
}

fn possible(plan: &BenchPlan, devices: &[DeviceUnderTest], names: &[String]) -> Result<(), String> {
    for layer in names.iter().filter_map(|name| name.parse::<Layer>().ok()) {
        if layer.scope() == LayerScope::Host && !plan.bed.host_layers {
            return Err(format!(
                "layer {layer} changes settings of the whole host; allow it by host_layers = true \
                 in [bed]"
            ));
        }
    }
    for device in devices {
        let DeviceKind::Lab(spec) = device.kind else { continue };
        if spec == DeviceSpec::Loop {
            continue;
        }
        layers::build(&mut BedSpec::new(spec), names)
            .map_err(|e| format!("device {}: {e:#}", device.name))?;
    }
    Ok(())
}

/// Whether every case can be sent, and every device be asked what its procedures ask.
pub fn cases(source: &TomlText, expanded: &ExpandedPlan) -> Result<(), PlanError> {
    let spanned = |device: &DeviceUnderTest| {
        expanded.plan.devices.iter().find(|s| s.get_ref().name == device.name)
    };
    // The loop is asked for elsewhere: what is wrong with a device, too, is reported with its line.
    let (listed, own): (Vec<_>, Vec<_>) =
        expanded.devices.iter().partition(|device| spanned(device).is_some());
    for device in listed.into_iter().chain(own) {
        let spanned = spanned(device);
        let at = spanned.map_or(0..0, toml::Spanned::span);
        let wrong = |message: String| {
            Err(source.error(at.clone(), format!("device {}: {message}", device.name)))
        };
        match &device.kind {
            DeviceKind::External => external(expanded, &device.plan).or_else(wrong)?,
            DeviceKind::Lab(_) => {
                if device.plan.mtu.is_some_and(|mtu| !(1280..=65_535).contains(&mtu)) {
                    return wrong("mtu is from 1280 to 65535".into());
                }
                if expanded.plan.workload.sources > NETWORKS {
                    let most = NETWORKS;
                    return wrong(format!(
                        "frames may come from {most} addresses there; lower workload.sources"
                    ));
                }
            }
        }
        let own = |c: &&PlannedCase| expanded.devices[c.device].name == device.name;
        for case in expanded.cases.iter().filter(own) {
            one(expanded, device, case).or_else(wrong)?;
        }
    }
    let max = expanded.greatest_load();
    for case in &expanded.cases {
        if let (Some(max), Some(min)) = (max, case.procedure.min_rate())
            && min >= max
        {
            let name = case.procedure.name();
            let its = |p: &toml::Spanned<ProcedureKeys>| {
                p.get_ref().kind == name && p.get_ref().min_rate.is_some_and(|r| r.0 == min)
            };
            let number = expanded.plan.procedures.iter().position(its).unwrap_or(0);
            let path =
                [TomlStep::Key("procedure"), TomlStep::Item(number), TomlStep::Key("min_rate")];
            let at = source.position(&path);
            let message = format!("{name}: min_rate is not below bed.max_rate ({max} frames/s)");
            return Err(source.error(at, message));
        }
    }
    Ok(())
}

fn one(
    expanded: &ExpandedPlan,
    device: &DeviceUnderTest,
    case: &PlannedCase,
) -> Result<(), String> {
    let remote = device.plan.ports.values().any(|p| p.agent.is_some());
    // Agents send live frames, whatever the plan says of this host's engine.
    let engine = if remote { EngineName::Xdp } else { expanded.plan.bed.engine };
    let largest = u32::from(case.frames.largest());
    if largest > engine.longest_frame() {
        let other = match engine {
            EngineName::AfPacket => String::new(),
            _ if remote => "; agents send by engine xdp".into(),
            _ => format!("; engine af_packet takes up to {}", EngineName::AfPacket.longest_frame()),
        };
        return Err(format!(
            "frames of {largest} octets ({}) are longer than engine {} sends ({} with the FCS){other}",
            case.frames.label,
            engine.name(),
            engine.longest_frame()
        ));
    }
    if case.bidirectional && engine == EngineName::AfXdp {
        return Err("engine af_xdp sends and receives by different ports only: one direction, or \
                    engine xdp or af_packet"
            .into());
    }
    if case.bidirectional && device.kind == DeviceKind::Lab(DeviceSpec::Nat) {
        return Err("a device that translates addresses is measured from a to b only: nothing \
                    begins at b; take directions = ['unidirectional']"
            .into());
    }
    let name = case.procedure.name();
    let bridge = matches!(&device.kind, DeviceKind::Lab(spec) if spec.is_bridge());
    if case.procedure.looks_at_floods() && !bridge && !device.plan.ports.contains_key("c") {
        return Err(format!(
            "{name} takes a third port, c, that monitors what is flooded (RFC 2889, section \
             5.7.3): the lab's bridges and switches have it; for an external device name ports.c"
        ));
    }
    let external = device.kind == DeviceKind::External;
    let commands = &device.plan.commands;
    if case.procedure.forgets() && external && !commands.contains_key("forget") {
        return Err(format!("{name} has the device forget its stations: add commands.forget"));
    }
    match case.procedure.action() {
        Some(action) if external && !commands.contains_key(action) => {
            Err(format!("{name} asks for '{action}': add commands.{action}"))
        }
        Some(action) if !external && !["reset", "software", POWER].contains(&action) => {
            Err(format!("{name}: the lab's devices know reset and power, not '{action}'"))
        }
        _ => Ok(()),
    }
}

/// What the plan says of a device that is there.
fn external(expanded: &ExpandedPlan, plan: &DevicePlan) -> Result<(), String> {
    if plan.chain != 1 || plan.cpu.is_some() {
        return Err("chain and cpu are for devices of the lab".into());
    }
    if let Some(name) = plan.ports.keys().find(|name| !["a", "b", "c"].contains(&name.as_str())) {
        return Err(format!("ports.{name}: the tester's ports are a and b, and c to monitor"));
    }
    let remote = plan.ports.values().any(|p| p.agent.is_some());
    for (name, port) in &plan.ports {
        let same = |(other, p): (&String, &PortPlan)| {
            other != name
                && (&p.interface, &p.netns, &p.agent) == (&port.interface, &port.netns, &port.agent)
        };
        if plan.ports.iter().any(same) {
            return Err(format!("port {name}: {} is another port as well", port.interface));
        }
        of_agent(expanded, name, port, remote)?;
        if name != "c" {
            addressed(expanded, name, port, remote)?;
        }
    }
    Ok(())
}

fn of_agent(
    expanded: &ExpandedPlan,
    name: &str,
    port: &PortPlan,
    remote: bool,
) -> Result<(), String> {
    match &port.agent {
        None if remote => {
            Err(format!("port {name}: all ports of a device are on agents, or none is"))
        }
        Some(agent) if expanded.plan.agents.iter().all(|a| a.name != *agent) => {
            Err(format!("port {name}: add [[agent]] with name = '{agent}' and its address"))
        }
        Some(_) if expanded.plan.controller.is_none() => {
            Err("agents need [controller] with cert, key and ca; see 'sonde agent cert --help'"
                .into())
        }
        _ => Ok(()),
    }
}

fn addressed(
    expanded: &ExpandedPlan,
    name: &str,
    port: &PortPlan,
    remote: bool,
) -> Result<(), String> {
    let of_port = |e: anyhow::Error| format!("{e:#}");
    let nets = port_networks(name, port).map_err(of_port)?;
    match (&port.mac, &port.gateway) {
        (Some(mac), _) => {
            parse_mac(mac).map_err(|e| format!("port {name}: {e}"))?;
        }
        (None, Some(_)) if remote => {
            return Err(format!("port {name}: name the device's mac: agents do not ask for it"));
        }
        (None, Some(gateway)) if gateway.parse::<std::net::IpAddr>().is_err() => {
            return Err(format!(
                "port {name}: gateway '{gateway}' is no IP address, as 198.18.0.1"
            ));
        }
        (None, Some(_)) => {}
        (None, None) => {
            return Err(format!("port {name}: name the device's mac, or its address as gateway"));
        }
    }
    let w = &expanded.plan.workload;
    if let Some(ip) = w.ip.iter().find(|&&ip| !nets.iter().any(|n| n.is_of(ip))) {
        return Err(format!("port {name} has no IPv{ip} address, which workload.ip asks for"));
    }
    if w.sources > 1 {
        return Err(format!(
            "port {name} has one address that frames may come from; workload.sources is 1 there"
        ));
    }
    refuse_others_addresses(&nets, &expanded.plan.bed.outside_benchmark_range.0)
}

/// Checks what only the host knows on which the plan is to run: processors and interfaces. Names
/// that an ordinary user may not look up are left to the run.
///
/// # Errors
/// What is not there, with its line.
pub fn host(source: &TomlText, expanded: &ExpandedPlan) -> Result<(), PlanError> {
    let cpus = available_parallelism().map_or(1, std::num::NonZero::get);
    let absent = |cpu: &&usize| **cpu >= cpus;
    if let Some(cpu) = expanded.plan.bed.cpus.iter().find(absent) {
        let at = source.key_position("bed", "cpus");
        let message = format!("bed.cpus: no processor {cpu}: this host has 0 to {}", cpus - 1);
        return Err(source.error(at, message));
    }
    for spanned in &expanded.plan.devices {
        let device = spanned.get_ref();
        let wrong = |message: String| {
            Err(source.error(spanned.span(), format!("device {}: {message}", device.name)))
        };
        if let Some(cpu) = device.cpu.as_ref().filter(absent) {
            return wrong(format!("no processor {cpu}: this host has 0 to {}", cpus - 1));
        }
        for (name, port) in device.ports.iter().filter(|(_, p)| p.agent.is_none()) {
            interface(expanded, device, name, port).or_else(wrong)?;
        }
    }
    Ok(())
}

fn interface(
    expanded: &ExpandedPlan,
    device: &DevicePlan,
    name: &str,
    port: &PortPlan,
) -> Result<(), String> {
    let tester = TesterPort {
        name: name.into(),
        interface: port.interface.clone(),
        netns: port.netns.clone(),
        cpu: None,
    };
    let facts = match port_facts(&tester) {
        Ok(facts) => facts,
        Err(e) if e.is_forbidden() => return Ok(()),
        Err(e) => return Err(e.to_string()),
    };
    let beyond_ip = FRAME_BEYOND_IP + 4 * expanded.plan.workload.vlan.len() as u32;
    let longest = facts.mtu.saturating_add(beyond_ip);
    let own = |c: &&PlannedCase| expanded.devices[c.device].name == device.name;
    let too_long = |c: &&PlannedCase| u32::from(c.frames.largest()) > longest;
    match expanded.cases.iter().filter(own).find(too_long) {
        Some(case) => Err(format!(
            "frames of {} octets ({}) do not fit port {name}: {} has an MTU of {}",
            case.frames.largest(),
            case.frames.label,
            port.interface,
            facts.mtu
        )),
        None => Ok(()),
    }
}
