//! Flows that made up most of the rise of an interface.

use sonde_results::units::format_number;
use sonde_store::query::{FlowRate, FlowRates};
use sonde_store::series::MODULE_FLOW;
use sonde_store::{Answer, Query, StoreError};
use sonde_wire::protocol;

use super::{ExplainTimes, Gather, find_labels, other_answer};

/// A flow that made up half of the rise of its interface, or more.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GrownFlow {
    /// The interface, as the unit's configuration calls it; `None`: not known.
    pub interface: Option<String>,
    /// The unit that meters it.
    pub unit: String,
    /// As people know it.
    pub name: String,
    pub before_bps: f64,
    pub now_bps: f64,
    /// Both directions of the interface, before and now.
    pub whole_bps: (f64, f64),
    /// The share of the interface's rate that is used, before and now; `None`: its rate is not known.
    pub used: Option<(f64, f64)>,
}

/// What grew, of each interface at most one.
pub(super) fn grown(
    gather: &Gather<'_>,
    times: &ExplainTimes,
) -> Result<Vec<GrownFlow>, StoreError> {
    let meters = gather.series.iter().any(|s| s.labels.module == MODULE_FLOW);
    if times.windows == 0 || !meters {
        return Ok(Vec::new());
    }
    let ask = FlowRates {
        during: times.during,
        before: times.before,
        filter: gather.all_series(),
        ..FlowRates::default()
    };
    let Answer::FlowRates(points) = gather.query(&Query::FlowRates(ask))? else {
        return Err(other_answer());
    };
    let mut grown = Vec::new();
    for point in points {
        let rise = point.during_bps - point.before_bps;
        if rise < LEAST_RISE_BPS || rise < point.before_bps / 2.0 {
            continue;
        }
        let Some(flow) = point.flows.first() else { continue };
        if flow.during_bps - flow.before_bps < rise / 2.0 {
            continue;
        }
        let labels = find_labels(&gather.series, point.exporter);
        let unit = labels.and_then(|labels| labels.free.get("unit")).cloned().unwrap_or_default();
        let points = gather.paths.points(&unit);
        let interface = points.get(usize::from(point.point)).cloned();
        let rate = interface.as_deref().and_then(|name| gather.paths.rate_bps(name));
        grown.push(GrownFlow {
            interface,
            unit,
            name: name_of(flow),
            before_bps: flow.before_bps,
            now_bps: flow.during_bps,
            whole_bps: (point.before_bps, point.during_bps),
            used: rate.map(|rate| (point.before_bps / rate, point.during_bps / rate)),
        });
    }
    Ok(grown)
}

impl GrownFlow {
    /// A sentence of it.
    pub fn sentence(&self) -> String {
        let mbit = |bps: f64| format_number(bps / 1e6);
        let place = self.interface.as_deref().unwrap_or("an interface");
        format!(
            "On {place} ({}) flow {} grew from {} to {} Mbit/s, of {} to {} Mbit/s there.",
            self.unit,
            self.name,
            mbit(self.before_bps),
            mbit(self.now_bps),
            mbit(self.whole_bps.0),
            mbit(self.whole_bps.1)
        )
    }
}

fn name_of(flow: &FlowRate) -> String {
    let protocol = protocol::name(flow.protocol)
        .map_or_else(|| format!("protocol {}", flow.protocol), str::to_owned);
    format!("{} > {} {protocol} port {}", flow.source, flow.destination, flow.service_port)
}

/// A rise of less than this fills nothing, bit/s.
const LEAST_RISE_BPS: f64 = 200_000.0;
