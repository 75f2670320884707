//! The comparison: flows of the truth by key, and what was exported added to them as it
//! comes, in any order of keys.

use sonde_results::Hist;
use sonde_wire::prefix::Prefix;

use super::entries::{Entries, FlowEntry, NONE, Sum};
use super::examples::{Difference, Differences, Kind};
use super::observed::{BiflowKey, ComparedFields, Directed, Half, ObservedFlow, join};
use super::segments::{SEEN, Segment, SegmentSums, TRUTH};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct CompareOptions {
    /// The exporter's time-outs, ns.
    pub idle_ns: Option<i64>,
    pub active_ns: Option<i64>,
    pub time_tolerance_ns: i64,
    pub late_ns: Option<i64>,
    pub subnets: Vec<Prefix>,
    pub every_ns: Option<i64>,
    /// Whether fields beyond keys and counters are compared.
    pub fields: bool,
    /// Examples of each kind of difference.
    pub show: u16,
}

/// The truth and what was exported of it.
pub(super) struct ComparisonTable {
    limits: CompareOptions,
    entries: Entries,
    /// Of each entry, where fields are compared.
    fields: Vec<[FieldPair; 2]>,
    differences: Differences,
    segments: SegmentSums,
    records: u64,
    lateness: Hist,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Flows' directions in the truth, and those of them that were exported exactly.
    pub directions: u64,
    pub exact: u64,
    /// Flow records read; a biflow is one.
    pub records: u64,
    /// Records beyond the first of a flow's direction that a time-out asked for.
    pub rightly_split: u64,
    pub differences: Vec<Difference>,
    pub segments: Vec<Segment>,
    pub refused_times: u64,
    /// Export time less the last packet's, ns.
    pub lateness: Hist,
}

#[derive(Clone, Copy, Default)]
struct FieldPair {
    truth: ComparedFields,
    seen: ComparedFields,
}

impl ComparisonTable {
    pub fn new(limits: CompareOptions) -> Self {
        ComparisonTable {
            differences: Differences::new(limits.show),
            segments: SegmentSums::new(&limits.subnets, limits.every_ns),
            entries: Entries::new(),
            fields: Vec::new(),
            records: 0,
            lateness: Hist::default(),
            limits,
        }
    }

    /// One flow, or one direction of it.
    pub fn add_truth(&mut self, flow: &ObservedFlow) {
        let (key, side) = flow.key();
        let span = flow.whole().unwrap_or_default();
        let next = self.entries.head(&key);
        // The other direction of one that is there, the nearest in time; else a new flow.
        let other_half = (flow.reverse.packets == 0).then(|| self.without(next, side, span.0));
        let at = match other_half.flatten() {
            Some(at) => at,
            None => {
                let at = self.entries.push(&FlowEntry::new(key, span, next));
                if self.limits.fields {
                    self.fields.push(Default::default());
                }
                self.entries.set_head(&key, at);
                at
            }
        };
        let halves = [(&flow.forward, side), (&flow.reverse, 1 - side)];
        let present = || halves.into_iter().filter(|(half, _)| half.packets > 0);
        self.entries.change(at, |entry| {
            entry.truth_span = join(entry.truth_span, span);
            present().for_each(|(half, side)| entry.sides[side].truth.add(&Sum::of(half)));
        });
        if self.limits.fields {
            present().for_each(|(half, side)| self.fields[at as usize][side].truth = half.fields);
        }
    }

    /// In the chain that begins at `at`, the flow without direction `side` that begins
    /// nearest to `first`.
    fn without(&self, at: u32, side: usize, first: i64) -> Option<u32> {
        let chain = self.chain(at).filter(|(_, entry)| {
            let sides = &entry.sides;
            sides[side].truth.packets == 0 && sides[1 - side].truth.packets > 0
        });
        let nearest = chain.min_by_key(|(_, entry)| entry.truth_span.0.abs_diff(first));
        nearest.map(|(at, _)| at)
    }

    /// Flows of a key, from `at` on, with their indexes.
    fn chain(&self, mut at: u32) -> impl Iterator<Item = (u32, FlowEntry)> {
        std::iter::from_fn(move || {
            let entry = self.entries.get(at)?;
            let this = std::mem::replace(&mut at, entry.next);
            Some((this, entry))
        })
    }

    /// Puts flows of the same key in the order of time.
    pub fn truth_is_complete(&mut self) {
        for head in self.entries.heads() {
            let mut chain: Vec<(u32, FlowEntry)> = self.chain(head).collect();
            if let [(at, entry)] = &mut chain[..] {
                entry.is_head = true;
                self.entries.set(*at, entry);
                continue;
            }
            chain.sort_by_key(|(_, entry)| entry.truth_span);
            let indexes: Vec<u32> = chain.iter().map(|(at, _)| *at).collect();
            for (i, (at, entry)) in chain.iter_mut().enumerate() {
                entry.next = indexes.get(i + 1).copied().unwrap_or(NONE);
                entry.is_head = i == 0;
                self.entries.set(*at, entry);
            }
            let (first, entry) = &chain[0];
            self.entries.set_head(&entry.key, *first);
        }
    }

    /// One record of the exporter.
    pub fn add(&mut self, flow: &ObservedFlow) {
        self.records += 1;
        let (key, side) = flow.key();
        let whole = flow.whole();
        if let (Some(exported), Some((_, last))) = (flow.exported_ns, whole) {
            let late = (exported - last).max(0);
            self.lateness.add(late);
            if self.limits.late_ns.is_some_and(|limit| late > limit) {
                let text = || format!("{}: {} after", Directed(key, side), seconds(late));
                self.differences.add(Kind::Late, text);
            }
        }
        let halves = [(&flow.forward, side), (&flow.reverse, 1 - side)];
        let tolerance = self.limits.time_tolerance_ns.max(flow.unit_ns);
        let Some(at) = self.find(&key, whole, tolerance) else {
            for (half, side) in halves {
                if half.packets > 0 {
                    let directed = Directed(key, side);
                    let first = whole.map(|(first, _)| first);
                    self.segments.add(SEEN, &directed, first, 1, half.packets, half.bytes);
                    let text = || format!("{directed}: {} packets", half.packets);
                    self.differences.add(Kind::Unexpected, text);
                }
            }
            return;
        };
        let mut entry = self.entries.get(at).expect("it was found");
        if let Some((_, last)) = whole {
            // Flows that begin well before this record ends are in it, too.
            let mut after = entry.next;
            while let Some(mut later) = self.entries.get(after) {
                if later.truth_span.0.saturating_add(tolerance) > last {
                    break;
                }
                later.joined = true;
                self.entries.set(after, &later);
                after = later.next;
            }
        }
        entry.unit_ns = entry.unit_ns.max(flow.unit_ns.clamp(0, i64::from(u32::MAX)) as u32);
        if let (Some((first, _)), true) = (
            whole,
            halves
                .iter()
                .all(|(half, s)| half.packets == 0 || entry.sides[*s].records == entry.generation),
        ) {
            entry.generation += 1;
            entry.prior_base = entry.base;
            entry.base = first;
        } else if let Some((first, _)) = whole {
            entry.base = entry.base.min(first);
        }
        if let Some(span) = flow.span {
            entry.seen_span = Some(entry.seen_span.map_or(span, |seen| join(seen, span)));
        }
        for (half, side) in halves {
            if half.packets == 0 {
                continue;
            }
            let span = half.span.or(flow.span);
            entry.record(side, half, span, flow.reason.unwrap_or(0), &self.limits, tolerance);
            if self.limits.fields {
                merge(&mut self.fields[at as usize][side].seen, &half.fields);
            }
        }
        self.entries.set(at, &entry);
    }

    /// The flow of `key` that a record of `span` is of: the last one that has begun by then.
    fn find(&self, key: &BiflowKey, span: Option<(i64, i64)>, tolerance: i64) -> Option<u32> {
        let head = Some(self.entries.head(key)).filter(|head| *head != NONE)?;
        let Some((first, _)) = span else { return Some(head) };
        let begun = |(_, e): &(u32, FlowEntry)| e.truth_span.0 <= first.saturating_add(tolerance);
        Some(self.chain(head).take_while(begun).last().map_or(head, |(at, _)| at))
    }

    pub fn finish(mut self) -> Findings {
        let mut findings = Findings {
            directions: 0,
            exact: 0,
            records: self.records,
            rightly_split: 0,
            differences: Vec::new(),
            segments: Vec::new(),
            refused_times: 0,
            lateness: self.lateness.clone(),
        };
        for at in 0..self.entries.len() as u32 {
            if self.entries.get(at).is_some_and(|entry| entry.is_head) {
                let chain: Vec<(u32, FlowEntry)> = self.chain(at).collect();
                for group in chain.chunk_by(|_, (_, entry)| entry.joined) {
                    self.compare(group, &mut findings);
                }
            }
        }
        findings.differences = self.differences.into_found();
        findings.refused_times = self.segments.refused_times;
        findings.segments = self.segments.into_vec();
        findings
    }

    /// Flows that one record covers, mostly a single one.
    fn compare(&mut self, group: &[(u32, FlowEntry)], findings: &mut Findings) {
        let key = group[0].1.key;
        let tolerance = group.iter().map(|(_, e)| i64::from(e.unit_ns)).max().unwrap_or(0);
        let tolerance = tolerance.max(self.limits.time_tolerance_ns);
        if group.len() > 1 {
            let text = || format!("{}: {} flows", Directed(key, 0), group.len());
            self.differences.add(Kind::Joined, text);
        }
        let mut sided = true;
        let mut whole: [Option<(i64, i64)>; 2] = [None; 2];
        let mut clean = [true; 2];
        let mut there = [0u64; 2];
        for side in 0..2 {
            let directed = Directed(key, side);
            let (mut truth, mut seen) = (Sum::default(), Sum::default());
            let (mut records, mut twins, mut unasked, mut asked) = (0, 0, 0, 0);
            let mut reason = 0;
            for (_, entry) in group {
                let s = &entry.sides[side];
                truth.add(&s.truth);
                seen.add(&s.seen);
                records += s.records;
                twins += s.twins;
                unasked += s.unasked;
                asked += s.asked;
                reason = if reason == 0 { s.reason } else { reason };
                let first = Some(entry.truth_span.0);
                let flows = u64::from(s.truth.packets > 0);
                there[side] += flows;
                let (t, o) = (s.truth, s.seen);
                self.segments.add(TRUTH, &directed, first, flows, t.packets, t.bytes);
                let flows = u64::from(s.records > 0);
                self.segments.add(SEEN, &directed, first, flows, o.packets, o.bytes);
                whole[TRUTH] = join_some(whole[TRUTH], Some(entry.truth_span));
                whole[SEEN] = join_some(whole[SEEN], entry.seen_span);
            }
            whole[SEEN] = join_some(whole[SEEN], seen.span);
            findings.rightly_split += u64::from(asked);
            if truth.packets == 0 && records == 0 {
                continue;
            }
            let differences = &mut self.differences;
            let mut name = |kind, text: &dyn Fn() -> String| {
                clean[side] = false;
                differences.add(kind, || format!("{directed}: {}", text()));
            };
            let counts = || {
                format!(
                    "{} of {} packets, {} of {} bytes",
                    seen.packets, truth.packets, seen.bytes, truth.bytes
                )
            };
            if records == 0 {
                name(Kind::Missing, &|| format!("{} packets", truth.packets));
                continue;
            }
            if truth.packets == 0 {
                name(Kind::Unexpected, &|| format!("{} packets", seen.packets));
                continue;
            }
            let more = (seen.packets, seen.bytes) > (truth.packets, truth.bytes);
            if (seen.packets, seen.bytes) < (truth.packets, truth.bytes) {
                name(Kind::Loss, &counts);
            } else if more && twins > 0 {
                name(Kind::Duplicate, &counts);
            } else if more {
                name(Kind::Surplus, &counts);
            }
            // Twins that add up to the truth are parts of it.
            let split = if more { unasked } else { unasked + twins };
            if split > 0 {
                let because = |reason| match reason {
                    1 => ", the first for idleness",
                    2 => ", the first by the active time-out",
                    3 => ", the first for its end being seen",
                    4 => ", the first by force",
                    5 => ", the first for lack of resources",
                    _ => "",
                };
                name(Kind::Split, &|| format!("{records} records{}", because(reason)));
            }
            match (truth.span, seen.span) {
                (Some(truth), Some(seen)) if apart(truth, seen) > tolerance => {
                    name(Kind::Time, &|| shift(truth, seen));
                }
                (Some(_), Some(_)) => {}
                _ => sided = false,
            }
            if self.limits.fields {
                for &(at, _) in group {
                    for (what, is, was) in unequal(&self.fields[at as usize][side]) {
                        name(Kind::Field, &|| format!("{what} {is}, and it was {was}"));
                    }
                }
            }
        }
        if let (false, [Some(truth), Some(seen)]) = (sided, whole)
            && apart(truth, seen) > tolerance
        {
            clean = [false; 2];
            let text = || format!("{}: {}", Directed(key, 0), shift(truth, seen));
            self.differences.add(Kind::Time, text);
        }
        for side in 0..2 {
            findings.directions += there[side];
            if clean[side] && group.len() == 1 {
                findings.exact += there[side];
            }
        }
    }
}

impl FlowEntry {
    /// One direction of one record.
    fn record(
        &mut self,
        side: usize,
        half: &Half,
        span: Option<(i64, i64)>,
        reason: u8,
        limits: &CompareOptions,
        tolerance: i64,
    ) {
        let this = Sum { packets: half.packets, bytes: half.bytes, span };
        let s = &mut self.sides[side];
        if s.records > 0 {
            let asked = match (s.last.span, span) {
                (Some(a), Some(b)) => {
                    let (early, late) = if a.0 <= b.0 { (a, b) } else { (b, a) };
                    let silence = late.0 - early.1;
                    let age = late.0 - self.prior_base.min(early.0);
                    limits.idle_ns.is_some_and(|idle| silence >= idle - tolerance)
                        || limits.active_ns.is_some_and(|active| age >= active - tolerance)
                }
                _ => false,
            };
            match asked {
                true => s.asked += 1,
                false if s.last == this => s.twins += 1,
                false => {
                    s.unasked += 1;
                    s.reason = if s.reason == 0 { s.last_reason } else { s.reason };
                }
            }
        }
        s.records += 1;
        s.last = this;
        s.last_reason = reason;
        s.seen.add(&Sum { span: half.span, ..this });
    }
}

/// Flags add up, the time to live is the least, the rest is the first record's.
fn merge(sum: &mut ComparedFields, new: &ComparedFields) {
    sum.tcp_flags = match (sum.tcp_flags, new.tcp_flags) {
        (Some(a), Some(b)) => Some(a | b),
        (a, b) => a.or(b),
    };
    sum.ttl = match (sum.ttl, new.ttl) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    sum.tos = sum.tos.or(new.tos);
    sum.vlan = sum.vlan.or(new.vlan);
    sum.icmp = sum.icmp.or(new.icmp);
    sum.name = sum.name.or(new.name);
}

/// Fields that both have, with different values: name, exported, true.
fn unequal(pair: &FieldPair) -> impl Iterator<Item = (&'static str, u32, u32)> + use<> {
    let (t, s) = (pair.truth, pair.seen);
    let wide = |a: Option<u8>| a.map(u32::from);
    [
        ("TCP flags", wide(s.tcp_flags), wide(t.tcp_flags)),
        ("TOS", wide(s.tos), wide(t.tos)),
        ("TTL", wide(s.ttl), wide(t.ttl)),
        ("VLAN", s.vlan.map(u32::from), t.vlan.map(u32::from)),
        ("ICMP type and code", s.icmp.map(u32::from), t.icmp.map(u32::from)),
        ("hash of the name", s.name, t.name),
    ]
    .into_iter()
    .filter_map(|(what, seen, truth)| Some((what, seen?, truth?)))
    .filter(|(_, seen, truth)| seen != truth)
}

fn join_some(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}

/// How far either end is off, ns.
fn apart(a: (i64, i64), b: (i64, i64)) -> i64 {
    let off = |a: i64, b: i64| i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    off(a.0, b.0).max(off(a.1, b.1))
}

fn shift(truth: (i64, i64), seen: (i64, i64)) -> String {
    let off = |seen: i64, truth: i64| seconds(seen.saturating_sub(truth));
    format!("first packet off by {}, last by {}", off(seen.0, truth.0), off(seen.1, truth.1))
}

fn seconds(ns: i64) -> String {
    sonde_results::units::format_ns(ns as f64)
}
