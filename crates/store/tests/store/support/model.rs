//! The answers by brute force: all values in lists, every question from the beginning.

mod flow_points;

use std::collections::{BTreeMap, BTreeSet};

use sonde_results::hist::{bounds_of, bucket_of};
use sonde_results::sla::own_doubt;
use sonde_results::{Caveat, Interval};
use sonde_store::flow::unmapped;
use sonde_store::query::*;
use sonde_store::series::SeriesDirection;
use sonde_store::{
    Answer, EventId, FlowRow, InterfaceRow, InterfaceSide, Query, Series, SeriesId, StoredEvent,
};
use sonde_wire::NotSent;

use super::script::{Measured, MeasuredGroup, Script};

/// The answer to a query of all that a script loads.
pub fn answer(script: &Script, query: &Query) -> Answer {
    match query {
        Query::Overview(q) => overview(script, q),
        Query::Series(q) => series(script, q),
        Query::Bands(q) => bands(script, q),
        Query::Heat(q) => heat(script, q),
        Query::Top(q) => Answer::Top(top(script, q)),
        Query::RttTop(q) => Answer::RttTop(rtt_top(script, q)),
        Query::Availability(q) => availability(script, q),
        Query::Events(q) => Answer::Events(events(script, q)),
        Query::Evidence(q) => evidence(script, q),
        Query::BadSamples(q) => Answer::BadSamples(bad_samples(script, q)),
        Query::FlowRates(q) => Answer::FlowRates(flow_rates(script, q)),
        Query::Interfaces(q) => Answer::Interfaces(interfaces(script, q)),
        Query::FlowPoints(q) => Answer::FlowPoints(flow_points::flow_points(script, q)),
        Query::Merged(q) => Answer::Merged(merged(script, q)),
    }
}

fn selected(script: &Script, filter: &sonde_store::SeriesFilter) -> Vec<Series> {
    let all = (0..).map(SeriesId).zip(&script.series);
    let all = all.map(|(id, labels)| Series { id, labels: labels.clone() });
    all.filter(|s| filter.matches(s)).collect()
}

/// Those that could have a delay.
fn selected_of(script: &Script, filter: &sonde_store::SeriesFilter, delay: Delay) -> Vec<Series> {
    let mut all = selected(script, filter);
    all.retain(|s| match (&*s.labels.module, delay) {
        ("rtt", Delay::Passive) => true,
        ("rtt" | "flow" | "interface", _) | (_, Delay::Passive) => false,
        _ => true,
    });
    all
}

fn groups<'a>(
    script: &'a Script,
    range: TimeRange,
    filter: &sonde_store::SeriesFilter,
) -> Vec<&'a MeasuredGroup> {
    let of = ids(&selected(script, filter));
    let within = |m: &MeasuredGroup| (range.from_ns..range.to_ns).contains(&m.row.start_ns);
    let named = |m: &MeasuredGroup| {
        filter.groups.is_empty() || filter.groups.iter().any(|g| **g == *m.row.group)
    };
    let all = script.rtt.iter().filter(|(id, m)| of.contains(id) && within(m) && named(m));
    all.map(|(_, m)| m).collect()
}

/// Of a delay: intervals of probes, or groups of round trips as intervals.
fn intervals(
    script: &Script,
    range: TimeRange,
    of: &[SeriesId],
    delay: Delay,
    filter: &sonde_store::SeriesFilter,
) -> Vec<(SeriesId, Measured)> {
    if delay == Delay::Passive {
        let mut all = Vec::new();
        for m in groups(script, range, filter).into_iter().filter(|m| of.contains(&m.row.series)) {
            let mut record = Interval::empty(0);
            record.start_ns = m.row.start_ns;
            record.end_ns = m.row.start_ns + m.row.length_ns;
            m.caveats.iter().for_each(|&c| record.caveats.insert(c));
            let values = [(Delay::Passive, m.clean.clone())].into();
            all.push((m.row.series, Measured { record, values }));
        }
        return all;
    }
    let within = |m: &Measured| (range.from_ns..range.to_ns).contains(&m.record.start_ns);
    script.intervals.iter().filter(|(id, m)| of.contains(id) && within(m)).cloned().collect()
}

fn rtt_top(script: &Script, q: &RttTop) -> RttTopTable {
    let mut all: BTreeMap<(SeriesId, String), Vec<&MeasuredGroup>> = BTreeMap::new();
    for m in groups(script, q.range, &q.filter) {
        all.entry((m.row.series, m.row.group.to_string())).or_default().push(m);
    }
    let clean = |of: &[&MeasuredGroup]| {
        let mut all: Vec<i64> = of.iter().flat_map(|m| &m.clean).copied().collect();
        all.sort_unstable();
        all
    };
    let figures = |of: &[&MeasuredGroup]| {
        let all = clean(of);
        let mut caveats: BTreeMap<Caveat, u64> = BTreeMap::new();
        of.iter().flat_map(|m| &m.caveats).for_each(|&c| *caveats.entry(c).or_default() += 1);
        RttFigures {
            intervals: of.len() as u64,
            n: all.len() as u64,
            mean_ns: (!all.is_empty())
                .then(|| all.iter().map(|&v| v as i128).sum::<i128>() as f64 / all.len() as f64),
            min_ns: all.first().copied(),
            max_ns: all.last().copied(),
            quantiles_ns: q.quantiles.iter().map(|&share| quantile(&all, &all, share)).collect(),
            recovery: of.iter().map(|m| m.recovery.len() as u64).sum(),
            delayed_ack: of.iter().map(|m| m.delayed.len() as u64).sum(),
            caveats: caveats.into_iter().collect(),
        }
    };
    let mut rows: Vec<_> = all.into_iter().collect();
    rows.sort_by_key(|(_, of)| {
        let all = clean(of);
        let standing = match q.order {
            RttOrder::Slowest => quantile(&all, &all, q.slow_at).unwrap_or(i64::MIN),
            RttOrder::Samples => all.len() as i64,
        };
        std::cmp::Reverse((all.len() as u64 >= q.least_samples, standing))
    });
    let few = rows.iter().position(|(_, of)| (clean(of).len() as u64) < q.least_samples);
    let rest = rows.split_off(few.unwrap_or(rows.len()).min(q.most));
    let others: Vec<&MeasuredGroup> = rest.iter().flat_map(|(_, of)| of).copied().collect();
    let rows = rows.into_iter().map(|((series, group), of)| RttTopRow {
        series,
        group,
        figures: figures(&of),
    });
    RttTopTable { rows: rows.collect(), other_groups: rest.len() as u64, other: figures(&others) }
}

/// The `q`-th of the values that have buckets, as the middle of its bucket; the greatest of all as
/// it is.
fn quantile(sorted: &[i64], all: &[i64], q: f64) -> Option<i64> {
    let n = sorted.len();
    let rank = ((q * n as f64).ceil() as usize).max(1);
    let value = *sorted.get(rank - 1)?;
    if rank == n && n == all.len() {
        return Some(value);
    }
    let (low, high) = bounds_of(bucket_of(value));
    Some((low + (high - low) / 2).clamp(*all.iter().min()?, *all.iter().max()?))
}

/// Whether buckets of a delay are kept of an interval.
fn has_buckets(m: &Measured, delay: Delay) -> bool {
    let clocks_differ = [
        Caveat::LocalClockUnsynchronised,
        Caveat::PeerClockUnsynchronised,
        Caveat::NegativeOneWayDelay,
        Caveat::PeerClockStepped,
        Caveat::OneWayImplausible,
    ]
    .iter()
    .any(|&c| m.record.caveats.contains(c));
    match delay {
        Delay::Rtt => false,
        Delay::Forward | Delay::Backward => !clocks_differ,
        _ => true,
    }
}

fn summary<'a>(
    of: impl IntoIterator<Item = &'a Measured>,
    delay: Delay,
    quantiles: &[f64],
) -> Summary {
    let mut s = Summary::default();
    let (mut all, mut held) = (Vec::new(), Vec::new());
    let mut caveats: BTreeMap<Caveat, u64> = BTreeMap::new();
    for m in of {
        let c = &m.record.counters;
        s.intervals += 1;
        s.sent += c.sent;
        s.received += c.received;
        s.lost += c.lost;
        let add = |to: &mut Option<u64>, n: Option<u64>| {
            if let Some(n) = n {
                *to = Some(to.unwrap_or(0) + n);
            }
        };
        add(&mut s.lost_forward, c.lost_forward);
        add(&mut s.lost_backward, c.lost_backward);
        let values = m.values.get(&delay).cloned().unwrap_or_default();
        if has_buckets(m, delay) {
            held.extend(&values);
        }
        all.extend(values);
        m.record.caveats.iter().for_each(|c| *caveats.entry(c).or_default() += 1);
    }
    let split = s.lost_forward.unwrap_or(0) + s.lost_backward.unwrap_or(0);
    if s.lost > 0 && split == 0 {
        (s.lost_forward, s.lost_backward) = (None, None);
    }
    if s.lost == 0 {
        s.lost_forward.get_or_insert(0);
        s.lost_backward.get_or_insert(0);
    }
    s.lost_unknown = s.lost - split;
    held.sort_unstable();
    s.n = all.len() as u64;
    s.held = held.len() as u64;
    s.min_ns = all.iter().min().copied();
    s.max_ns = all.iter().max().copied();
    if !all.is_empty() {
        s.mean_ns =
            Some(all.iter().map(|&v| i128::from(v)).sum::<i128>() as f64 / all.len() as f64);
    }
    s.quantiles_ns = quantiles.iter().map(|&q| quantile(&held, &all, q)).collect();
    s.caveats = caveats.into_iter().collect();
    s
}

fn overview(script: &Script, q: &Overview) -> Answer {
    let mut groups: BTreeMap<(Vec<String>, Option<SeriesId>), Vec<SeriesId>> = BTreeMap::new();
    for s in selected_of(script, &q.filter, q.delay) {
        let group = q.by.iter().map(|name| s.labels.get(name).unwrap_or_default()).collect();
        groups.entry((group, q.by.is_empty().then_some(s.id))).or_default().push(s.id);
    }
    let rows = groups.into_iter().map(|((group, series), members)| {
        let all = intervals(script, q.range, &members, q.delay, &q.filter);
        let heard: BTreeSet<SeriesId> = all.iter().map(|(id, _)| *id).collect();
        OverviewRow {
            series,
            group,
            members: heard.len() as u64,
            silent: (members.len() - heard.len()) as u64,
            summary: summary(all.iter().map(|(_, m)| m), q.delay, &q.quantiles),
        }
    });
    Answer::Overview(rows.collect())
}

/// Windows that hold something, and what.
fn points(
    all: &[(SeriesId, Measured)],
    range: TimeRange,
    step_ns: i64,
    delay: Delay,
    quantiles: &[f64],
) -> PointColumns {
    let mut columns = PointColumns::default();
    let mut start = range.from_ns;
    while start < range.to_ns {
        let of = || {
            let within = |m: &Measured| (start..start + step_ns).contains(&m.record.start_ns);
            all.iter().map(|(_, m)| m).filter(move |m| within(m))
        };
        if of().next().is_some() {
            columns.start_ns.push(start);
            columns.points.push(summary(of(), delay, quantiles));
        }
        start += step_ns;
    }
    columns
}

fn series(script: &Script, q: &SeriesPoints) -> Answer {
    let tables = selected(script, &q.filter).into_iter().map(|s| SeriesTable {
        series: s.id,
        points: points(
            &intervals(script, q.range, &[s.id], q.delay, &q.filter),
            q.range,
            q.step_ns,
            q.delay,
            &q.quantiles,
        ),
    });
    Answer::Series(tables.filter(|t| !t.points.start_ns.is_empty()).collect())
}

fn ids(all: &[Series]) -> Vec<SeriesId> {
    all.iter().map(|s| s.id).collect()
}

fn bands(script: &Script, q: &Bands) -> Answer {
    let of = ids(&selected(script, &q.filter));
    let quantiles = match q.quantiles.is_empty() {
        true => vec![0.1, 0.25, 0.5, 0.75, 0.9, 0.99],
        false => q.quantiles.clone(),
    };
    let all = intervals(script, q.range, &of, q.delay, &q.filter);
    Answer::Bands(points(&all, q.range, q.step_ns, q.delay, &quantiles))
}

fn heat(script: &Script, q: &Heat) -> Answer {
    let of = ids(&selected(script, &q.filter));
    // A row is found by its bounds: those of the first and the last bucket that it joins.
    let join = 32 / q.rows_per_octave as i16;
    let bounds = |value: i64| {
        let bucket = bucket_of(value);
        let first = bucket.div_euclid(join) * join;
        (bounds_of(first).0, bounds_of(first + join - 1).1)
    };
    let mut map = HeatMap { start_ns: q.range.from_ns, step_ns: q.step_ns, ..HeatMap::default() };
    let mut cells: BTreeMap<(u32, (i64, i64)), u64> = BTreeMap::new();
    let mut lost: BTreeMap<u32, u64> = BTreeMap::new();
    for (_, m) in intervals(script, q.range, &of, q.delay, &q.filter) {
        let column = ((m.record.start_ns - q.range.from_ns) / q.step_ns) as u32;
        for &value in m.values.get(&q.delay).into_iter().flatten() {
            match has_buckets(&m, q.delay) {
                true => *cells.entry((column, bounds(value))).or_default() += 1,
                false => map.without_bucket += 1,
            }
        }
        if m.record.counters.lost > 0 {
            *lost.entry(column).or_default() += m.record.counters.lost;
        }
    }
    let rows: BTreeSet<(i64, i64)> = cells.keys().map(|(_, row)| *row).collect();
    map.rows_ns = rows.iter().copied().collect();
    map.cells = cells
        .into_iter()
        .map(|((column, row), n)| (column, rows.iter().position(|r| *r == row).unwrap() as u32, n))
        .collect();
    map.lost = lost.into_iter().collect();
    Answer::Heat(map)
}

fn flow_value(row: &FlowRow, dimension: FlowDimension) -> String {
    let net = |octets| match unmapped(octets) {
        std::net::IpAddr::V4(a) => {
            let [a, b, c, _] = a.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        std::net::IpAddr::V6(a) => {
            let s = a.segments();
            format!("{}/48", std::net::Ipv6Addr::new(s[0], s[1], s[2], 0, 0, 0, 0, 0))
        }
    };
    match dimension {
        FlowDimension::Exporter => row.exporter.0.to_string(),
        FlowDimension::Point => row.point.to_string(),
        FlowDimension::Protocol => row.protocol.to_string(),
        FlowDimension::ServicePort => match row.protocol {
            1 | 58 => row.destination_port.to_string(),
            _ => row.source_port.min(row.destination_port).to_string(),
        },
        FlowDimension::App => row.app.to_string(),
        FlowDimension::SourceNet => net(row.source),
        FlowDimension::DestinationNet => net(row.destination),
        FlowDimension::Source => unmapped(row.source).to_string(),
        FlowDimension::Destination => unmapped(row.destination).to_string(),
    }
}

fn top_row<'a>(values: Vec<String>, rows: impl IntoIterator<Item = &'a FlowRow>) -> TopRow {
    let mut out = TopRow { values, ..TopRow::default() };
    let mut handshakes: Vec<i64> = Vec::new();
    for row in rows {
        out.flows += 1;
        out.packets += row.forward.packets;
        out.bytes += row.forward.bytes;
        out.reverse_packets += row.reverse.packets;
        out.reverse_bytes += row.reverse.bytes;
        if row.handshake_server_ns > 0 && row.handshake_client_ns > 0 {
            handshakes.push((row.handshake_server_ns + row.handshake_client_ns) as i64);
        }
    }
    handshakes.sort_unstable();
    out.handshakes = handshakes.len() as u64;
    out.handshake_median_ns = quantile(&handshakes, &handshakes, 0.5);
    out
}

fn top(script: &Script, q: &Top) -> TopTable {
    let of = ids(&selected(script, &q.filter));
    let within = |row: &&FlowRow| {
        of.contains(&row.exporter) && (q.range.from_ns..q.range.to_ns).contains(&row.last_ns)
    };
    let asked = |row: &&FlowRow| q.only.iter().all(|(d, v)| flow_value(row, *d) == *v);
    let mut groups: BTreeMap<Vec<String>, Vec<&FlowRow>> = BTreeMap::new();
    for row in script.flows.iter().filter(within).filter(asked) {
        let values = q.by.iter().map(|&d| flow_value(row, d)).collect();
        groups.entry(values).or_default().push(row);
    }
    let mut rows: Vec<(TopRow, Vec<&FlowRow>)> = groups
        .into_iter()
        .map(|(values, rows)| (top_row(values, rows.iter().copied()), rows))
        .collect();
    let size = |row: &TopRow| match q.measure {
        FlowMeasure::Bytes => row.bytes + row.reverse_bytes,
        FlowMeasure::Packets => row.packets + row.reverse_packets,
        FlowMeasure::Flows => row.flows,
    };
    rows.sort_by_key(|(row, _)| (std::cmp::Reverse(size(row)), row.values.clone()));
    let rest = rows.split_off(q.most.min(rows.len()));
    let other = top_row(vec![], rest.iter().flat_map(|(_, rows)| rows.iter().copied()));
    TopTable { rows: rows.into_iter().map(|(row, _)| row).collect(), other }
}

fn availability(script: &Script, q: &Availability) -> Answer {
    let selected = selected_of(script, &q.filter, Delay::RttNet);
    let rows = selected.into_iter().map(|s| {
        let all = intervals(script, q.range, &[s.id], Delay::RttNet, &q.filter);
        let [mut clear, mut lossy, mut down, mut unsent] = [0i64; 4];
        for (_, m) in &all {
            let (c, length) = (&m.record.counters, m.record.end_ns - m.record.start_ns);
            *match (c.sent, c.lost, c.received) {
                (0, ..) => &mut unsent,
                (_, 0, _) => &mut clear,
                (.., 0) => &mut down,
                _ => &mut lossy,
            } += length;
        }
        let length = q.range.to_ns - q.range.from_ns;
        let known = clear + lossy + down + unsent;
        let whole = length.max(known) as f64;
        AvailabilityRow {
            series: s.id,
            clear_ns: clear,
            lossy_ns: lossy,
            down_ns: down,
            unsent_ns: unsent,
            unknown_ns: (length - known).max(0),
            least: (clear + lossy) as f64 / whole,
            most: 1.0 - down as f64 / whole,
            caveats: summary(all.iter().map(|(_, m)| m), Delay::Rtt, &[]).caveats,
            intervals: all.len() as u64,
        }
    });
    Answer::Availability(rows.collect())
}

fn events(script: &Script, q: &EventList) -> Vec<EventRow> {
    let all = (1..).map(EventId).zip(&script.events);
    let mut rows: Vec<EventRow> =
        all.map(|(id, event)| EventRow { id, event: event.clone() }).collect();
    rows.sort_by_key(|row| (row.event.begin_ns, row.id));
    let lasted = |e: &StoredEvent| {
        e.begin_ns < q.range.to_ns && e.end_ns.is_none_or(|end| end >= q.range.from_ns)
    };
    rows.retain(|row| lasted(&row.event));
    if let Some(after) = q.after
        && let Some(place) = rows.iter().position(|row| row.id == after)
    {
        rows.drain(..=place);
    }
    rows.retain(|row| {
        let e = &row.event;
        q.filter.kind.as_ref().is_none_or(|kind| *kind == e.kind)
            && (q.filter.series.is_empty()
                || e.series.is_some_and(|s| q.filter.series.contains(&s)))
            && (!q.filter.open || e.end_ns.is_none())
    });
    if q.most > 0 {
        rows.truncate(q.most);
    }
    rows
}

fn evidence(script: &Script, q: &Evidence) -> Answer {
    let event = &script.events[q.event.0 as usize - 1];
    let during = TimeRange { from_ns: event.begin_ns, to_ns: event.end_ns.unwrap_or(q.now_ns) };
    let before = TimeRange { from_ns: event.begin_ns - q.before_ns, to_ns: event.begin_ns };
    let rows = selected(script, &q.filter).into_iter().filter_map(|s| {
        let of = |range| {
            let all = intervals(script, range, &[s.id], q.delay, &q.filter);
            summary(all.iter().map(|(_, m)| m), q.delay, &q.quantiles)
        };
        let row = EvidenceRow { series: s.id, during: of(during), before: of(before) };
        (row.during.intervals + row.before.intervals > 0).then_some(row)
    });
    let all = |range| {
        let (filter, by) = (q.filter.clone(), q.flows_by.clone());
        top(script, &Top { range, filter, by, most: usize::MAX, ..Top::default() }).rows
    };
    let mut flows = Vec::new();
    if !q.flows_by.is_empty() {
        let then = all(before);
        for during in all(during) {
            let before = then.iter().find(|row| row.values == during.values).cloned();
            flows.push(EvidenceFlow { during, before: before.unwrap_or_default() });
        }
    }
    let rate = |row: &TopRow, range: TimeRange| {
        (row.bytes + row.reverse_bytes) as f64 / (range.to_ns - range.from_ns) as f64
    };
    flows.sort_by(|a, b| {
        let growth = |f: &EvidenceFlow| rate(&f.during, during) - rate(&f.before, before);
        growth(b).partial_cmp(&growth(a)).unwrap()
    });
    let range = TimeRange { from_ns: before.from_ns, to_ns: during.to_ns };
    let mut events = events(script, &EventList { range, ..EventList::default() });
    events.retain(|row| row.id != q.event);
    Answer::Evidence(EvidenceTable { during, before, series: rows.collect(), flows, events })
}

fn bad_samples(script: &Script, q: &BadSamples) -> BadSampleTable {
    let delay = match &q.bad {
        BadSampleKind::Lost(_) => Delay::RttNet,
        BadSampleKind::Beyond { delay, .. } => *delay,
        BadSampleKind::Recovery => Delay::Passive,
    };
    let selected = ids(&selected_of(script, &q.filter, delay));
    let limit = |series: SeriesId, group: &str| {
        let BadSampleKind::Beyond { limits, .. } = &q.bad else { return None };
        let own = limits.iter().find(|l| l.series == series && l.group == group);
        own.map(|l| l.limit_ns)
    };
    let beyond = |values: &[i64], limit: i64| {
        let bad = values.iter().filter(|&&v| bounds_of(bucket_of(v)).0 > limit).count();
        (values.len() as u64, bad as u64)
    };
    let mut rows: BTreeMap<(SeriesId, String), BTreeMap<u32, BadSampleWindow>> = BTreeMap::new();
    let mut interval_ns = 0;
    let mut add = |series, group: &str, (start, length): (i64, i64), found: BadSampleWindow| {
        let window = ((start - q.range.from_ns) / q.step_ns) as u32;
        let row = rows.entry((series, group.to_owned())).or_default();
        let new = BadSampleWindow { window, ..BadSampleWindow::default() };
        let found = BadSampleWindow { intervals: 1, length_ns: length, ..found };
        row.entry(window).or_insert(new).add(&found);
        interval_ns = length.max(interval_ns);
    };
    let of = |(n, bad)| BadSampleWindow { n, bad, ..BadSampleWindow::default() };
    if delay == Delay::Passive {
        for m in groups(script, q.range, &q.filter) {
            let found = match (&q.bad, limit(m.row.series, &m.row.group)) {
                (BadSampleKind::Recovery, _) => {
                    let recovery = m.recovery.len() as u64;
                    (m.clean.len() as u64 + recovery, recovery)
                }
                (_, Some(limit)) => beyond(&m.clean, limit),
                _ => continue,
            };
            add(m.row.series, &m.row.group, (m.row.start_ns, m.row.length_ns), of(found));
        }
    } else {
        for (series, m) in intervals(script, q.range, &selected, delay, &q.filter) {
            let c = &m.record.counters;
            let (forward, backward) = (c.lost_forward.unwrap_or(0), c.lost_backward.unwrap_or(0));
            let values = m.values.get(&delay).cloned().unwrap_or_default();
            let (n, bad) = match (&q.bad, limit(series, "")) {
                (BadSampleKind::Lost(SeriesDirection::RoundTrip), _) => (c.sent, c.lost),
                (BadSampleKind::Lost(SeriesDirection::Forward), _) => (c.sent, forward),
                (BadSampleKind::Lost(SeriesDirection::Backward), _) => {
                    (c.received + backward, backward)
                }
                (_, Some(limit)) => beyond(&values, limit),
                _ => continue,
            };
            let doubt = own_doubt(c, m.record.caveats);
            let (doubtful_n, doubtful_bad) = if doubt.is_some() { (n, bad) } else { (0, 0) };
            let found = BadSampleWindow {
                doubtful_n,
                doubtful_bad,
                doubt,
                lost_forward: forward,
                lost_backward: backward,
                lost: c.lost,
                skipped: c.skipped,
                refused: c.not_sent.iter().filter(|r| r.0 != NotSent::Late).map(|r| r.1).sum(),
                ..of((n, bad))
            };
            let length = m.record.end_ns - m.record.start_ns;
            add(series, "", (m.record.start_ns, length), found);
        }
    }
    let rows = rows.into_iter().map(|((series, group), windows)| BadSampleRow {
        series,
        group,
        windows: windows.into_values().collect(),
    });
    let rows = rows.collect();
    BadSampleTable { from_ns: q.range.from_ns, interval_ns, rows }
}

fn interfaces(script: &Script, q: &InterfaceSums) -> Vec<InterfaceTable> {
    let TimeRange { from_ns, to_ns } = q.range;
    let step_ns = if q.step_ns == 0 { to_ns - from_ns } else { q.step_ns };
    let mut tables = Vec::new();
    for series in ids(&selected(script, &q.filter)) {
        let mut sums = Vec::new();
        for start_ns in (from_ns..to_ns).step_by(step_ns as usize) {
            let window = start_ns..(start_ns + step_ns).min(to_ns);
            let own = |row: &&InterfaceRow| row.series == series && window.contains(&row.start_ns);
            let rows: Vec<&InterfaceRow> = script.interfaces.iter().filter(own).collect();
            let total = |of: fn(&InterfaceRow) -> u64| rows.iter().map(|&row| of(row)).sum();
            if rows.is_empty() {
                continue;
            }
            sums.push(InterfaceRow {
                series,
                start_ns,
                length_ns: rows.iter().map(|row| row.length_ns).sum(),
                intervals: rows.len() as u64,
                receive: InterfaceSide {
                    octets: total(|r| r.receive.octets),
                    packets: total(|r| r.receive.packets),
                    dropped: total(|r| r.receive.dropped),
                    errors: total(|r| r.receive.errors),
                },
                transmit: InterfaceSide {
                    octets: total(|r| r.transmit.octets),
                    packets: total(|r| r.transmit.packets),
                    dropped: total(|r| r.transmit.dropped),
                    errors: total(|r| r.transmit.errors),
                },
                queue_dropped: total(|r| r.queue_dropped),
                speed_bps: rows.iter().map(|r| r.speed_bps).max().unwrap_or(0),
            });
        }
        if !sums.is_empty() {
            tables.push(InterfaceTable { series, sums });
        }
    }
    tables
}

fn flow_rates(script: &Script, q: &FlowRates) -> Vec<FlowRatePoint> {
    let selected = ids(&selected(script, &q.filter));
    // Octet by octet would be too slow: a flow is even, so its share is that of its time.
    let octets = |f: &FlowRow, bytes: u64, range: TimeRange| {
        let (first, last) = (f.first_ns(), f.last_ns);
        let common = last.min(range.to_ns) - first.max(range.from_ns);
        match last - first {
            0 if (range.from_ns..range.to_ns).contains(&last) => bytes as f64,
            0 => 0.0,
            length => bytes as f64 * common.max(0) as f64 / length as f64,
        }
    };
    let mut points: Vec<FlowRatePoint> = Vec::new();
    for row in script.flows.iter().filter(|f| selected.contains(&f.exporter)) {
        for (from, to, bytes) in [
            (row.source, row.destination, row.forward.bytes),
            (row.destination, row.source, row.reverse.bytes),
        ] {
            let bps = |range: TimeRange| {
                octets(row, bytes, range) * 8e9 / (range.to_ns - range.from_ns) as f64
            };
            let (during_bps, before_bps) = (bps(q.during), bps(q.before));
            if during_bps + before_bps == 0.0 {
                continue;
            }
            let here = |p: &FlowRatePoint| (p.exporter, p.point) == (row.exporter, row.point);
            let at = points.iter().position(here).unwrap_or_else(|| {
                points.push(FlowRatePoint {
                    exporter: row.exporter,
                    point: row.point,
                    during_bps: 0.0,
                    before_bps: 0.0,
                    flows: Vec::new(),
                });
                points.len() - 1
            });
            let point = &mut points[at];
            point.during_bps += during_bps;
            point.before_bps += before_bps;
            let (source, destination) = (unmapped(from), unmapped(to));
            let (protocol, service_port) = (row.protocol, row.service_port());
            let same = |f: &&mut FlowRate| {
                (f.source, f.destination) == (source, destination)
                    && (f.protocol, f.service_port) == (protocol, service_port)
            };
            match point.flows.iter_mut().find(same) {
                Some(flow) => {
                    flow.during_bps += during_bps;
                    flow.before_bps += before_bps;
                }
                None => point.flows.push(FlowRate {
                    source,
                    destination,
                    protocol,
                    service_port,
                    during_bps,
                    before_bps,
                }),
            }
        }
    }
    let growth = |flow: &FlowRate| flow.during_bps - flow.before_bps;
    points.sort_by_key(|p| (p.exporter, p.point));
    for point in &mut points {
        point.flows.sort_by(|a, b| growth(b).total_cmp(&growth(a)));
        point.flows.truncate(q.most);
    }
    points
}

fn merged(script: &Script, q: &Merged) -> Option<Box<Interval>> {
    let selected = ids(&selected_of(script, &q.filter, q.delay));
    let all = intervals(script, q.range, &selected, q.delay, &q.filter);
    let mut whole = Interval::empty(0);
    for (_, m) in &all {
        let mut record = m.record.clone();
        let passive = m.values.get(&Delay::Passive).into_iter().flatten();
        passive.for_each(|&v| record.rtt_net.add(v));
        whole.merge(&record);
    }
    (!all.is_empty()).then(|| Box::new(whole))
}
