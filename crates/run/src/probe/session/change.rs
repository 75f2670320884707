//! Targets that come and go while others are measured.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use sonde_meter::stamp::{LinkHeader, Way};
use sonde_port::{Filter, PortError};
use sonde_results::StreamInfo;
use sonde_sys::clock::steady_now;
use sonde_sys::netlink::{NextHops, Route};

use super::{
    LEAD, PAGES_A_STREAM, PATIENCE, Session, check_sizes, filter, find_routes, open_ports,
};
use crate::probe::targets::{self, Plan, Target};
use crate::probe::worker::Command;

/// What a change of targets came to.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// The streams that were added, numbered behind those that were there.
    pub added: Vec<StreamInfo>,
    /// Those that send no more; their last records still come.
    pub ended: Vec<u32>,
    /// Targets that are not measured, with the reason.
    pub left_out: Vec<(String, String)>,
}

impl Session {
    /// Measures to `wanted` from now on. A target that was there before goes on without losing a
    /// probe.
    ///
    /// # Errors
    /// Probes that cannot be; ports that cannot be opened. What was measured goes on then, but for
    /// targets that are no longer wanted.
    pub fn change(&mut self, wanted: Vec<Target>) -> Result<Changed> {
        let mut changed = Changed { ended: self.end_all_but(&wanted), ..Changed::default() };
        let mut new = self.not_there(wanted);
        if new.is_empty() {
            return Ok(changed);
        }
        let routing = &mut self.routing;
        let (found, left_out) = find_routes(&mut routing.routes, &mut new, &self.engine, false)?;
        changed.left_out = left_out;
        if new.is_empty() {
            return Ok(changed);
        }
        check_sizes(&new, &found, self.options.fragment)?;
        if self.routing.below_ip {
            // The kernel asks for them now, and `look_again` finds the answers.
            NextHops::resolve(&found, PATIENCE)?;
        }
        changed.added = self.add(new, &found)?;
        self.routing.look_again(&mut self.lanes)?;
        Ok(changed)
    }

    /// Ends the streams of targets that are not wanted any more.
    fn end_all_but(&mut self, wanted: &[Target]) -> Vec<u32> {
        let wanted = by_name(wanted);
        let mut gone = HashSet::new();
        for (i, (target, ended)) in self.routing.targets.iter_mut().enumerate() {
            let alike = wanted.get(target.name.as_str()).into_iter().flatten();
            if ended.is_none() && !alike.into_iter().any(|wanted| target.is_same(wanted)) {
                *ended = Some(Instant::now());
                gone.insert(i as u32);
            }
        }
        let mut ended = Vec::new();
        for lane in &mut self.lanes {
            let of_lane = lane.streams.iter().enumerate();
            let (local, global): (Vec<u32>, Vec<u32>) = of_lane
                .filter(|(_, stream)| gone.contains(&self.routing.target_of[**stream as usize]))
                .map(|(local, stream)| (local as u32, *stream))
                .unzip();
            if !local.is_empty() {
                lane.worker.order(Command::End(local));
                ended.extend(global);
            }
        }
        ended
    }

    /// Of `wanted` what is not measured yet.
    fn not_there(&self, wanted: Vec<Target>) -> Vec<Target> {
        let there = self.routing.targets.iter().filter(|(_, ended)| ended.is_none());
        let there: Vec<Target> = there.map(|(target, _)| target.clone()).collect();
        let there = by_name(&there);
        let is_there = |wanted: &Target| {
            let alike = there.get(wanted.name.as_str()).into_iter().flatten();
            alike.into_iter().any(|target| target.is_same(wanted))
        };
        wanted.into_iter().filter(|wanted| !is_there(wanted)).collect()
    }

    /// Adds streams to targets, to which `found` are the ways.
    fn add(&mut self, new: Vec<Target>, found: &[Route]) -> Result<Vec<StreamInfo>> {
        let (mut busy, used) = (HashSet::new(), self.ports_in_use());
        let by_address: HashMap<IpAddr, usize> =
            new.iter().enumerate().map(|(i, t)| (t.address, i)).collect();
        let fixed: Vec<u16> = new.iter().filter_map(|t| t.settings.source_port).collect();
        let first = self.infos.len() as u32;
        let (plan, grown, opened) = loop {
            let plan = targets::plan(&new, self.run.seed, &busy, &used, |address| {
                anyhow::Ok((found[by_address[&address]].source, 0))
            })?;
            match self.open_for(&plan, &by_address, found) {
                Ok((grown, opened)) => break (plan, grown, opened),
                Err(PortError::InUse(port))
                    if !fixed.iter().any(|&base| base <= port) && busy.insert(port) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let of_target = self.routing.targets.len() as u32;
        for stream in &plan.streams {
            self.ours.insert((stream.destination, stream.source.port()));
            let target = by_address[&stream.destination.ip()] as u32;
            self.routing.target_of.push(of_target + target);
        }
        for (target, route) in new.into_iter().zip(found) {
            let to = (target.address, target.settings.source, route.lower.clone());
            self.routing.destinations.push(to);
            self.routing.sources.push(route.source);
            self.routing.targets.push((target, None));
        }
        self.routing.plan.extend(plan.streams.iter().cloned());
        self.infos.extend(plan.infos.iter().cloned());
        let start = steady_now() + LEAD;
        for (lane, streams) in grown {
            let specs = streams.iter().map(|&i| plan.streams[i as usize].clone()).collect();
            let lane = &mut self.lanes[lane];
            lane.streams.extend(streams.iter().map(|i| first + i));
            lane.worker.order(Command::Add { specs, start, pages: streams.len() * PAGES_A_STREAM });
        }
        for mut opened in opened {
            opened.streams.iter_mut().for_each(|i| *i += first);
            self.caps.push(opened.port.caps().clone());
            // `look_again` tells the ways before the first probe is due.
            let no_way: Vec<Way> = vec![Ok(LinkHeader::new([0; 6], [0; 6], &[]))];
            self.start_lane(opened, no_way, start)?;
        }
        Ok(plan.infos)
    }

    /// Which of the planned streams (by their numbers in `plan`) leave by ports that are open, and
    /// ports for the others.
    #[allow(clippy::type_complexity)]
    fn open_for(
        &self,
        plan: &Plan,
        by_address: &HashMap<IpAddr, usize>,
        found: &[Route],
    ) -> Result<(BTreeMap<usize, Vec<u32>>, Vec<super::Opened>), PortError> {
        let mut grown: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let target_of: Vec<u32> =
            plan.streams.iter().map(|s| by_address[&s.destination.ip()] as u32).collect();
        for (i, stream) in plan.streams.iter().enumerate() {
            let below_ip = self.routing.below_ip;
            let ifindex = if below_ip { found[target_of[i] as usize].lower_ifindex } else { 0 };
            let needs = filter(std::iter::once(stream));
            let fits = |lane: &super::Lane| {
                lane.ifindex == ifindex
                    && !lane.worker.is_finished()
                    && has_all(&lane.filter, &needs)
            };
            match self.lanes.iter().position(fits) {
                Some(lane) => grown.entry(lane).or_default().push(i as u32),
                None => groups.entry(ifindex).or_default().push(i as u32),
            }
        }
        let opened = open_ports(&self.engine, plan, &target_of, groups, found, self.options)?;
        Ok((grown, opened))
    }

    /// Source ports towards each destination whose replies may still come.
    fn ports_in_use(&self) -> HashMap<IpAddr, HashSet<u16>> {
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

fn by_name(targets: &[Target]) -> HashMap<&str, Vec<&Target>> {
    let mut by_name: HashMap<&str, Vec<&Target>> = HashMap::new();
    for target in targets {
        by_name.entry(target.name.as_str()).or_default().push(target);
    }
    by_name
}

/// Whether a port that receives `filter` gets what `needs` wants.
fn has_all(filter: &Filter, needs: &Filter) -> bool {
    needs.local.iter().all(|a| filter.local.contains(a))
        && needs.local_ports.iter().all(|p| filter.local_ports.contains(p))
}

/// From the timeout of the last probe to when its stream is surely settled.
const SETTLING: Duration = Duration::from_secs(2);
