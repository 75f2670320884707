//! The end of a run: everything adds up.

use anyhow::Result;
use sonde_results::{Caveat, FlowRun, ToUtc as _};

use super::exporting::Exporting;
use super::meter::Meter;

/// After the metering threads have ended: exports what is left, and adds up `run`.
pub fn finish(mut run: FlowRun, meters: &[&Meter], exporting: Exporting) -> Result<FlowRun> {
    let exported = exporting.finish()?;
    for meter in meters {
        add_meter(&mut run, meter);
    }
    run.protocols.sort_by_key(|p| std::cmp::Reverse(p.bytes));
    run.ends = exported.ends;
    run.top = exported.top;
    run.turn_to_utc(exported.utc_offset.unwrap_or(run.header.tai_offset_ns()));
    run.exports = exported.exports;
    run.counters.insert("records_lost".into(), exported.lost);
    doubts(&mut run);
    Ok(run)
}

/// Adds what one meter saw.
fn add_meter(run: &mut FlowRun, meter: &Meter) {
    for total in meter.by_protocol().iter().filter(|t| t.packets > 0) {
        match run.protocols.iter_mut().find(|p| p.protocol == total.protocol) {
            Some(sum) => {
                sum.packets += total.packets;
                sum.bytes += total.bytes;
            }
            None => run.protocols.push(*total),
        }
    }
    let selected = meter.sequence().into_iter().flat_map(|sequence| sequence.report());
    let left_out: u64 = selected.map(|(_, c)| c.observed - c.selected).sum();
    *run.counters.entry("not_selected".into()).or_default() += left_out;
    *run.counters.entry("packets_joined".into()).or_default() += meter.joined();
    for (name, n) in meter.cache().counters().iter() {
        *run.counters.entry(name.to_string()).or_default() += n;
    }
    for (name, n) in meter.cache().app_counters().into_iter().flat_map(|apps| apps.iter()) {
        *run.counters.entry(format!("apps_{name}")).or_default() += n;
    }
}

/// What the counters cast doubt on.
fn doubts(run: &mut FlowRun) {
    let n = |name: &str| run.counters.get(name).copied().unwrap_or(0);
    let packets: u64 = run.protocols.iter().map(|p| p.packets).sum();
    let unreadable = n("refused_truncated") + n("refused_malformed");
    let found = [
        (Caveat::OwnDrops, n("packets_lost") > 0),
        (Caveat::FlowsUntracked, n("evicted_full") + n("evicted_crowded") > 0),
        (Caveat::RecordsLost, n("records_lost") > 0),
        (Caveat::PacketsJoined, n("packets_joined") > 0),
        (Caveat::PacketsUnreadable, unreadable * 100 > packets + unreadable),
    ];
    for (caveat, _) in found.iter().filter(|(_, found)| *found) {
        run.caveats.insert(*caveat);
    }
}
