//! What cannot be sent, or could not pass, is refused before anything is made.

use sonde_lab::device::DeviceSpec;
use sonde_meter::load::Traffic;

use super::super::cases::{Condition, DeviceKind, DeviceUnderTest, FRAME_BEYOND_IP};
use super::super::plan::{BenchPlan, DevicePlan, FrameSizes, PlanError, TomlText};
use super::super::procedures::ProcedurePlan;
use sonde_run::toml_file::TomlStep;

/// What no engine can send.
pub fn workload(
    source: &TomlText,
    plan: &BenchPlan,
    procedures: &[ProcedurePlan],
) -> Result<(), PlanError> {
    let w = &plan.workload;
    // Their texts begin with the key.
    let at = |message: &str| {
        let path = message.split([':', ' ']).next().unwrap_or_default();
        source.key_position("workload", path.strip_prefix("workload.").unwrap_or_default())
    };
    let wrong = |message: String| Err(source.error(at(&message), message));
    for (key, empty) in [
        ("frames", w.frames.is_empty()),
        ("ip", w.ip.is_empty()),
        ("flows", w.flows.is_empty()),
        ("bursts", w.bursts.is_empty()),
        ("dscp", w.dscp.is_empty()),
        ("directions", w.directions.is_empty()),
    ] {
        if empty {
            return wrong(format!("workload.{key} is empty; leave it out for its default"));
        }
    }
    if let Some(&ip) = w.ip.iter().find(|&&ip| ip != 4 && ip != 6) {
        return wrong(format!("workload.ip = {ip}; IP has versions 4 and 6"));
    }
    if w.flows.contains(&0) {
        return wrong("workload.flows: at least 1".into());
    }
    if w.sources == 0 {
        return wrong("workload.sources: at least 1".into());
    }
    if let Some(&class) = w.dscp.iter().find(|&&class| class > 63) {
        return wrong(format!("workload.dscp: {class} is no class; 0 to 63"));
    }
    if let Some(&most) = w.flows.iter().min().filter(|&&f| (f as usize) < w.dscp.len()) {
        let classes = w.dscp.len();
        return wrong(format!("workload.dscp: {classes} classes need as many flows, not {most}"));
    }
    if let Some(&burst) = w.bursts.iter().find(|b| !(1..=BURST_MAX).contains(*b)) {
        return wrong(format!("workload.bursts: {burst} is no burst; 1 to {BURST_MAX} frames"));
    }
    if let Some(&vlan) = w.vlan.iter().find(|&&v| v == 0 || v > 4094) {
        return wrong(format!("workload.vlan: {vlan} is no VLAN; 1 to 4094"));
    }
    if let Some(&label) = w.mpls.iter().find(|l| !(16..1 << 20).contains(*l)) {
        return wrong(format!("workload.mpls: {label} is no label for use; 16 to 1048575"));
    }
    let of_one_size = procedures.iter().find(|p| p.one_frame_size() && p.frames().is_none());
    let mix = w.frames.iter().find(|f| f.is_mix());
    if let (Some(procedure), Some(mix)) = (of_one_size, mix) {
        let name = procedure.name();
        return wrong(format!(
            "workload.frames: {name} takes frames of one size, not {} (RFC 9004, section \
             3); give it frames of its own",
            mix.label
        ));
    }
    if w.vlan.len() > 2 {
        return wrong("workload.vlan: a frame has at most two tags (IEEE 802.1ad)".into());
    }
    if w.mpls.len() > LABELS_MAX {
        return wrong(format!(
            "workload.mpls: at most {LABELS_MAX} labels fit before the signature"
        ));
    }
    for (key, most) in
        [("flows", w.flows.iter().copied().max().unwrap_or(0)), ("sources", w.sources)]
    {
        if most > Traffic::FLOWS_MAX {
            let limit = Traffic::FLOWS_MAX;
            return wrong(format!("workload.{key}: {most} are too many; at most {limit}"));
        }
    }
    let shim = 4 * (w.vlan.len() + w.mpls.len()) as u16;
    // Tags are not of the IP packet; labels are, as far as an interface counts.
    let beyond_ip = FRAME_BEYOND_IP + 4 * w.vlan.len() as u32;
    for frames in all_frames(plan, procedures) {
        for &ip in &w.ip {
            let least = least_frame(ip) + shim;
            if frames.smallest() < least {
                return wrong(format!(
                    "workload.frames: IPv{ip} with the signature takes {least} octets at least, \
                     {} asks for {}{}",
                    frames.label,
                    frames.smallest(),
                    if ip == 6 {
                        " (use 84 instead of 64; RFC 5180, section 5.1, allows for signatures)"
                    } else {
                        ""
                    }
                ));
            }
        }
        for device in &plan.devices {
            let DevicePlan { name, mtu: Some(mtu), .. } = device.get_ref() else { continue };
            if u32::from(frames.largest()) > mtu.saturating_add(beyond_ip) {
                // A procedure's own frames are not in [workload].
                let span = match w.frames.contains(frames) {
                    true => source.key_position("workload", "frames"),
                    false => device.span(),
                };
                let message = format!(
                    "frames of {} octets ({}) do not fit device {name}'s mtu of {mtu}",
                    frames.largest(),
                    frames.label
                );
                return Err(source.error(span, message));
            }
        }
    }
    Ok(())
}

/// The lab's routers have neither VLANs nor labels: they would drop every frame.
pub fn tags(
    source: &TomlText,
    plan: &BenchPlan,
    devices: &[DeviceUnderTest],
) -> Result<(), PlanError> {
    let w = &plan.workload;
    let routes = |d: &&DeviceUnderTest| match &d.kind {
        DeviceKind::Lab(DeviceSpec::Loop) | DeviceKind::External => false,
        DeviceKind::Lab(spec) => !spec.is_bridge(),
    };
    match devices.iter().find(routes) {
        Some(router) if !(w.vlan.is_empty() && w.mpls.is_empty()) => {
            let named = if w.vlan.is_empty() { "mpls" } else { "vlan" };
            let message = format!(
                "workload.vlan and mpls: device {} routes, and is not set up for tags or labels; \
                 they pass a bridge, the loop, or an external device that knows them",
                router.name
            );
            Err(source.error(source.key_position("workload", named), message))
        }
        _ => Ok(()),
    }
}

/// A plan that comes to more measurements than anybody can wait for is refused before they are
/// listed.
pub fn size(
    source: &TomlText,
    plan: &BenchPlan,
    devices: &[DeviceUnderTest],
    conditions: &[Condition],
    procedures: &[ProcedurePlan],
) -> Result<(), PlanError> {
    let w = &plan.workload;
    let of_one = |p: &ProcedurePlan| {
        let frames = p.frames().map_or(w.frames.len(), <[FrameSizes]>::len);
        let factors = [w.ip.len(), w.directions.len(), w.flows.len(), w.bursts.len(), frames];
        factors.iter().fold(p.loads_apart() as u64, |n, &f| n.saturating_mul(f as u64))
    };
    let of_bed: u64 = procedures.iter().map(of_one).fold(0, u64::saturating_add);
    let beds = (devices.len() * conditions.len()) as u64;
    let repetitions = u64::from(plan.run.repetitions.max(1));
    let all = of_bed.saturating_mul(beds).saturating_mul(repetitions);
    if all > MEASUREMENTS_MAX {
        let at = match of_bed.saturating_mul(beds) > MEASUREMENTS_MAX {
            true => source.position(&[TomlStep::Key("workload")]),
            false => source.key_position("run", "repetitions"),
        };
        let message = format!(
            "comes to {all} measurements, {repetitions} repetitions of {}; at most \
             {MEASUREMENTS_MAX}: split the plan, or lower run.repetitions",
            of_bed.saturating_mul(beds)
        );
        return Err(source.error(at, message));
    }
    if plan.run.attempts > ATTEMPTS_MAX {
        let at = source.key_position("run", "attempts");
        let message =
            format!("run.attempts: {} are too many; 1 to {ATTEMPTS_MAX}", plan.run.attempts);
        return Err(source.error(at, message));
    }
    Ok(())
}

/// Frame sizes of the workload, and of procedures that have their own.
fn all_frames<'a>(
    plan: &'a BenchPlan,
    procedures: &'a [ProcedurePlan],
) -> impl Iterator<Item = &'a FrameSizes> {
    let own = procedures.iter().filter_map(ProcedurePlan::frames).flatten();
    let common = procedures.iter().any(|p| p.frames().is_none());
    plan.workload.frames.iter().filter(move |_| common).chain(own)
}

/// Measurements of a plan, at most: years, with the standards' durations.
const MEASUREMENTS_MAX: u64 = 100_000;
/// Tries of a trial, at most.
const ATTEMPTS_MAX: u32 = 1000;

/// Ethernet, IP, UDP, signature, FCS.
fn least_frame(ip: u8) -> u16 {
    if ip == 6 { 84 } else { 64 }
}

/// Labels that fit beside two tags, IPv6 and UDP into the longest header.
const LABELS_MAX: usize = 8;
/// RFC 2544 goes to 1024.
const BURST_MAX: u32 = 1 << 16;
