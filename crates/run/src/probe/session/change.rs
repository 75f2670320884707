//! Targets that come and go while others are measured.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use sonde_meter::stamp::Sender;
use sonde_port::{Caps, Filter, PortError};
use sonde_results::StreamInfo;
use sonde_sys::clock::steady_now;
use sonde_sys::netlink::{NextHops, Route};

use super::lane::{Lane, of_lane};
use super::ports::{
    OpenedPort, check_frames, check_sizes, filter, lane_of, open_ports, with_free_ports,
};
use super::routing::find_routes;
use super::{LEAD, PAGES_A_STREAM, PATIENCE, ProbeSession};
use crate::error::RunError;
use crate::probe::event::Changed;
use crate::probe::targets::{StreamPlan, Target};
use crate::probe::worker::WorkerCommand;

/// Streams that leave by ports that are open, by lane, and ports for the others; by their indices
/// in a plan.
type LanesOf = (BTreeMap<usize, Vec<u32>>, Vec<OpenedPort>);

impl ProbeSession {
    /// Measures to `wanted` from now on. A target that was there before goes on without losing a
    /// probe, also one whose name is among the `unresolved`: it has gone nowhere.
    ///
    /// # Errors
    /// Probes that cannot be; ports that cannot be opened. Nothing has changed then.
    pub fn change(
        &mut self,
        wanted: Vec<Target>,
        unresolved: &HashSet<String>,
    ) -> Result<Changed, RunError> {
        let (mut gone, new) = self.compare(wanted);
        gone.retain(|&target| !self.is_of(target, unresolved));
        self.replace(&gone, new, &mut Vec::new())
    }

    /// The names `names` stand for `found` now: those that have moved are followed, and those that
    /// were not measured are.
    ///
    /// # Errors
    /// As of [`ProbeSession::change`].
    pub fn follow_names(
        &mut self,
        found: Vec<Target>,
        names: &HashSet<String>,
    ) -> Result<Changed, RunError> {
        let (mut gone, new) = self.compare(found);
        gone.retain(|&target| self.is_of(target, names));
        for &target in &gone {
            let old = &self.routing.targets[target as usize].0;
            let now = new.iter().filter(|new| new.looked_up == old.looked_up);
            let now: Vec<String> = now.map(|new| new.address.to_string()).collect();
            tracing::warn!("{} has moved from {} to {}", old.name, old.address, now.join(", "));
        }
        let mut others = std::mem::take(&mut self.without_way);
        others.retain(|(target, _)| !is_named(target, names));
        let changed = self.replace(&gone, new, &mut others);
        if changed.is_err() {
            self.without_way = others;
        }
        changed
    }

    /// Tries again to measure to targets that had no way, where that is due. `None`: it is not.
    pub fn try_again(&mut self) -> Option<Changed> {
        let now = Instant::now();
        if std::mem::take(&mut self.routing.changed) {
            self.pace.hurry(now);
        }
        if self.without_way.is_empty() || !self.pace.is_due(now) {
            return None;
        }
        self.pace.failed(now);
        let waiting = std::mem::take(&mut self.without_way);
        let targets = waiting.iter().map(|(target, _)| target.clone()).collect();
        let all = self.replace(&HashSet::new(), targets, &mut Vec::new());
        if let Ok(changed) = all {
            return Some(changed);
        }
        // What is wrong with one is no matter of the others.
        let mut sum = Changed::default();
        for (target, _) in waiting {
            let mut others = std::mem::take(&mut self.without_way);
            match self.replace(&HashSet::new(), vec![target.clone()], &mut others) {
                Ok(changed) => sum.added.extend(changed.added),
                Err(why) => {
                    others.push((target, why.to_string()));
                    self.without_way = others;
                }
            }
        }
        Some(sum)
    }

    fn is_of(&self, target: u32, names: &HashSet<String>) -> bool {
        is_named(&self.routing.targets[target as usize].0, names)
    }

    /// Measures to `new` instead of those that are `gone`. What has no way waits for one, beside the
    /// `others` that do.
    fn replace(
        &mut self,
        gone: &HashSet<u32>,
        mut new: Vec<Target>,
        others: &mut Vec<(Target, String)>,
    ) -> Result<Changed, RunError> {
        let mut changed = Changed::default();
        if !new.is_empty() {
            let routes = &mut self.routing.routes;
            let (found, left_out) = find_routes(routes, &mut new, &self.engine, false)?;
            changed.left_out =
                left_out.iter().map(|(target, why)| (target.name.clone(), why.clone())).collect();
            others.extend(left_out);
            check_sizes(&new, &found, self.options.fragment)?;
            if self.routing.below_ip && !found.is_empty() {
                // The kernel asks for them now, and the ways are found with their answers.
                NextHops::resolve(&found, PATIENCE).map_err(anyhow::Error::from)?;
            }
            changed.added = self.add(new, &found)?;
        }
        self.without_way = std::mem::take(others);
        changed.ended = self.end(gone);
        Ok(changed)
    }

    /// The targets (by index) that are not in `wanted`, and what of `wanted` is not measured yet.
    pub(super) fn compare(&self, wanted: Vec<Target>) -> (HashSet<u32>, Vec<Target>) {
        let all = self.routing.targets.iter().enumerate();
        let there = all.filter(|(_, (_, ended))| ended.is_none()).map(|(i, (t, _))| (i as u32, t));
        let (of_there, of_wanted) = (by_name(there.clone().map(|(_, t)| t)), by_name(&wanted));
        let gone = there.filter(|(_, t)| !alike(&of_wanted, t).any(|wanted| t.is_same(wanted)));
        let gone = gone.map(|(i, _)| i).collect();
        let is_new = |w: &Target| !alike(&of_there, w).any(|there| there.is_same(w));
        let is_new: Vec<bool> = wanted.iter().map(is_new).collect();
        let new = wanted.into_iter().zip(is_new).filter_map(|(t, is_new)| is_new.then_some(t));
        (gone, new.collect())
    }

    /// Ends the streams of these targets, and says which they are.
    pub(super) fn end(&mut self, gone: &HashSet<u32>) -> Vec<u32> {
        for &target in gone {
            self.routing.targets[target as usize].1 = Some(Instant::now());
        }
        let mut ended = Vec::new();
        for lane in &mut self.lanes {
            let of_lane = lane.streams.iter().enumerate();
            let (local, global): (Vec<u32>, Vec<u32>) = of_lane
                .filter(|(_, stream)| gone.contains(&self.routing.target_of[**stream as usize]))
                .map(|(local, stream)| (local as u32, *stream))
                .unzip();
            if !local.is_empty() {
                lane.worker.order(WorkerCommand::End(local));
                ended.extend(global);
            }
        }
        ended
    }

    /// Adds streams to targets, to which `found` are the ways. All that can fail comes before
    /// streams get their identifiers.
    fn add(&mut self, new: Vec<Target>, found: &[Route]) -> Result<Vec<StreamInfo>, RunError> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let (mut plan, (grown, opened)) = self.plan_with_ports(&new, found)?;
        for (&lane, streams) in &grown {
            check_frames(&self.caps[lane], &plan, streams)?;
            let specs = of_lane(&plan.streams, streams);
            Sender::check(&self.lanes[lane].config, &specs, 1).map_err(anyhow::Error::from)?;
        }
        for opened in &opened {
            check_frames(opened.port.caps(), &plan, &opened.streams)?;
        }
        let targets = self.routing.targets.len();
        for (target, route) in new.into_iter().zip(found) {
            self.routing.lower.push(route.lower.clone());
            self.routing.sources.push(route.source);
            self.routing.targets.push((target, None));
        }
        let (caps, lanes) = match self.start_lanes(&mut plan, targets, opened) {
            Ok(started) => started,
            Err(error) => {
                self.routing.lower.truncate(targets);
                self.routing.sources.truncate(targets);
                self.routing.targets.truncate(targets);
                return Err(error.into());
            }
        };
        let first = self.infos.len() as u32;
        for (lane, streams) in grown {
            let specs = of_lane(&plan.streams, &streams);
            let lane = &mut self.lanes[lane];
            lane.streams.extend(streams.iter().map(|i| first + i));
            lane.worker.order(WorkerCommand::Add { specs, pages: streams.len() * PAGES_A_STREAM });
        }
        for mut lane in lanes {
            lane.streams.iter_mut().for_each(|i| *i += first);
            self.lanes.push(lane);
        }
        self.caps.extend(caps);
        let of_target = targets as u32;
        self.routing.target_of.extend(plan.target_of.iter().map(|target| of_target + target));
        self.ours.extend(plan.streams.iter().map(|s| (s.destination, s.source.port())));
        self.routing.plan.extend(plan.streams);
        self.infos.extend(plan.infos.iter().cloned());
        Ok(plan.infos)
    }

    /// Gives all lanes the ways, those to the targets from `first` on among them, and starts
    /// further lanes. So no probe leaves by another target's next hop.
    fn start_lanes(
        &mut self,
        plan: &mut StreamPlan,
        first: usize,
        opened: Vec<OpenedPort>,
    ) -> Result<(Vec<Caps>, Vec<Lane>)> {
        self.routing.look_again(&mut self.lanes, self.engine.iface.as_deref())?;
        for (stream, target) in plan.streams.iter_mut().zip(&plan.target_of) {
            stream.next_hop = self.routing.way_of[first + *target as usize];
        }
        let start = steady_now() + LEAD;
        let (mut caps, mut lanes) = (Vec::new(), Vec::new());
        for opened in opened {
            caps.push(opened.port.caps().clone());
            let cpu = self.cpu_of(self.lanes.len() + lanes.len());
            lanes.push(self.start_lane(opened, &plan.streams, &self.routing.ways, (start, cpu))?);
        }
        Ok((caps, lanes))
    }

    /// Plans streams to targets, and finds or opens ports for them.
    fn plan_with_ports(
        &self,
        new: &[Target],
        found: &[Route],
    ) -> Result<(StreamPlan, LanesOf), RunError> {
        let way = |i: usize| Ok((found[i].source, 0));
        with_free_ports(new, self.run.seed, &self.ports_in_use(), way, |plan| {
            self.open_for(plan, found)
        })
    }

    fn open_for(&self, plan: &StreamPlan, found: &[Route]) -> Result<LanesOf, PortError> {
        let mut grown: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, stream) in plan.streams.iter().enumerate() {
            let route = &found[plan.target_of[i] as usize];
            let ifindex = lane_of(stream, route, self.routing.below_ip);
            let needs = filter(std::iter::once(stream));
            let fits = |lane: &Lane| {
                lane.ifindex == ifindex
                    && !lane.worker.is_finished()
                    && has_all(&lane.filter, &needs)
            };
            match self.lanes.iter().position(fits) {
                Some(lane) => grown.entry(lane).or_default().push(i as u32),
                None => groups.entry(ifindex).or_default().push(i as u32),
            }
        }
        let opened = open_ports(&self.engine, plan, groups, found, self.options)?;
        Ok((grown, opened))
    }

    /// Source ports towards each destination whose replies may still come.
    pub(super) fn ports_in_use(&self) -> HashMap<IpAddr, HashSet<u16>> {
        let settled = Duration::from_nanos(self.run.timeout.unsigned_abs()) + SETTLING;
        let mut used: HashMap<IpAddr, HashSet<u16>> = HashMap::new();
        for (stream, &target) in self.routing.plan.iter().zip(&self.routing.target_of) {
            let ended = self.routing.targets[target as usize].1;
            if ended.is_none_or(|ended| ended.elapsed() < settled) {
                used.entry(stream.destination.ip()).or_default().insert(stream.source.port());
            }
        }
        used
    }
}

fn is_named(target: &Target, names: &HashSet<String>) -> bool {
    target.looked_up.as_ref().is_some_and(|name| names.contains(name))
}

type ByName<'a> = HashMap<&'a str, Vec<&'a Target>>;

fn by_name<'a>(targets: impl IntoIterator<Item = &'a Target>) -> ByName<'a> {
    let mut by_name = ByName::new();
    for target in targets {
        by_name.entry(target.name.as_str()).or_default().push(target);
    }
    by_name
}

fn alike<'a>(among: &'a ByName<'_>, target: &Target) -> impl Iterator<Item = &'a Target> {
    among.get(target.name.as_str()).into_iter().flatten().copied()
}

/// Whether a port that receives `filter` gets what `needs` wants.
pub(super) fn has_all(filter: &Filter, needs: &Filter) -> bool {
    needs.local.iter().all(|a| filter.local.contains(a))
        && needs.local_ports.iter().all(|p| filter.local_ports.contains(p))
}

/// From the timeout of the last probe to when its stream is surely settled, also where the reader
/// of its records is late.
const SETTLING: Duration = Duration::from_secs(60);
