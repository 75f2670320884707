//! The ways to targets, and how they change.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use sonde_meter::stamp::{LinkHeader, NextHopLink, StreamSpec};
use sonde_results::units::format_mac;
use sonde_sys::netlink::{
    Link, Links, Macs, NextHop, NextHops, Route, RouteError, Routes, interface_index,
};
use sonde_wire::NotSent;

use super::lane::Lane;
use super::ports::filter;
use crate::engine::EngineSettings;
use crate::links::netlink;
use crate::probe::targets::Target;
use crate::probe::worker::WorkerCommand;

/// What is asked of the kernel again when it says that something has changed.
pub struct Routing {
    pub routes: Routes,
    pub next_hops: NextHops,
    /// The targets, and when each was taken off the list.
    pub targets: Vec<(Target, Option<Instant>)>,
    /// The device that probes to each target leave by.
    pub lower: Vec<String>,
    /// Target of each stream.
    pub target_of: Vec<u32>,
    /// Where the probes to each target leave from.
    pub sources: Vec<IpAddr>,
    /// The ways that lanes were given last, and for each target which of them is its.
    pub ways: Vec<NextHopLink>,
    pub way_of: Vec<u16>,
    /// The streams as they were planned.
    pub plan: Vec<StreamSpec>,
    /// The engine writes link headers itself, and sends on one interface.
    pub below_ip: bool,
    pub reported: ReportedHops,
    pub refreshed: Instant,
    /// Routes or addresses have changed since this was last looked at.
    pub changed: bool,
}

impl Routing {
    /// What the kernel says has changed: next hops, routes, addresses.
    pub fn follow(&mut self, lanes: &mut [Lane], iface: Option<&str>) -> Result<()> {
        let changes =
            self.next_hops.poll().with_context(|| netlink("follow the kernel's neighbours"))?;
        let mut lost = Alike::default();
        let mut back = Alike::default();
        for (index, macs) in changes.macs {
            let hop = &self.next_hops.all()[index];
            let name = hop.address.map_or("the link".into(), |a| a.to_string());
            match macs {
                Some(m) if self.reported.is_back(&name) => {
                    back.add("can be reached", format!("{name} at {}", format_mac(m.destination)))
                }
                Some(_) => {}
                None => {
                    self.reported.lost(&name);
                    lost.add("cannot be reached; its probes are skipped", name);
                }
            }
            let way = way(hop);
            self.ways[index] = way;
            for lane in &mut *lanes {
                lane.worker.order(WorkerCommand::Way(index as u16, way));
            }
        }
        lost.log("next hop");
        back.log("next hop");
        if changes.routes {
            self.changed = true;
            self.look_again(lanes, iface)?;
        }
        if self.refreshed.elapsed() > REFRESH {
            self.refreshed = Instant::now();
            let refreshed = self.next_hops.refresh();
            refreshed.map_err(|e| no_neighbours(e, "refresh the kernel's neighbours"))?;
        }
        Ok(())
    }

    /// Routes or addresses have changed: finds each destination's next hop again, and where its
    /// probes are to leave from.
    pub fn look_again(&mut self, lanes: &mut [Lane], iface: Option<&str>) -> Result<()> {
        let mut found = Vec::new();
        let mut alike = Alike::default();
        let mut links = None::<Vec<Link>>;
        // For each target its route, or why there is none.
        let mut found_at = vec![Err(NotSent::NoRoute); self.targets.len()];
        let mut moved = false;
        for (i, found_at) in found_at.iter_mut().enumerate() {
            let (target, ended) = &self.targets[i];
            if ended.is_some() {
                continue;
            }
            let destination = target.address;
            match way_to(&mut self.routes, target, destination, iface) {
                // An interface that is made again has another index, and the port takes it up.
                Ok(route) if route.lower == self.lower[i] || !self.below_ip => {
                    let old = self.sources[i];
                    if route.source != old && self.is_gone(destination, old) {
                        let now = format!("leave from {} now", route.source);
                        alike.add(&now, format!("probes to {destination}"));
                        self.sources[i] = route.source;
                        moved = true;
                    }
                    *found_at = Ok(found.len());
                    found.push(route);
                }
                Ok(route) => alike.add(
                    &format!("is now by {}; start again to follow it there", route.interface),
                    format!("the route to {destination}"),
                ),
                Err(error) => {
                    if matches!(error, RouteError::Source(_)) {
                        *found_at = Err(NotSent::NoAddress);
                    } else if is_down(links.get_or_insert_with(all_links), &self.lower[i]) {
                        // The kernel takes the routes of such an interface away.
                        *found_at = Err(NotSent::LinkDown);
                    }
                    alike.add(&alike_for_all(&error, destination), destination.to_string());
                }
            }
        }
        alike.log("");
        let (next_hops, hop_of) = match self.below_ip {
            true => NextHops::resolve(&found, Duration::ZERO)
                .map_err(|e| no_neighbours(e, "follow the kernel's neighbours"))?,
            false => NextHops::watch(&found)?,
        };
        let mut ways: Vec<NextHopLink> = next_hops.all().iter().map(way).collect();
        let nowhere = ways.len();
        ways.extend(NO_WAY.map(Err));
        let way_of = found_at.iter().map(|index| match index {
            Ok(found) => hop_of[*found] as u16,
            Err(why) => {
                (nowhere + NO_WAY.iter().position(|no| no == why).unwrap_or_default()) as u16
            }
        });
        (self.way_of, self.ways) = (way_of.collect(), ways);
        for lane in lanes {
            let targets = lane.streams.iter().map(|&s| self.target_of[s as usize] as usize);
            let targets: Vec<usize> = targets.collect();
            let of_stream = targets.iter().map(|&target| self.way_of[target]).collect();
            lane.worker.order(WorkerCommand::Routes(self.ways.clone(), of_stream));
            if moved {
                let sources: Vec<_> = targets.iter().map(|&target| self.sources[target]).collect();
                for (&stream, &source) in lane.streams.iter().zip(&sources) {
                    self.plan[stream as usize].source.set_ip(source);
                }
                let filter = filter(lane.streams.iter().map(|&s| &self.plan[s as usize]));
                // What joins later is held against what it receives then.
                lane.filter = filter.clone();
                lane.worker.order(WorkerCommand::Sources(sources, filter));
            }
        }
        self.next_hops = next_hops;
        Ok(())
    }

    /// Whether `source` is no address of this host any more.
    fn is_gone(&mut self, destination: IpAddr, source: IpAddr) -> bool {
        matches!(self.routes.lookup(destination, Some(source)), Err(RouteError::Source(_)))
    }
}

/// Next hops that were reported as lost: of no other it is news that it can be reached. At the start
/// a next hop may still be unknown, and nobody was told of that.
#[derive(Default)]
pub struct ReportedHops(HashSet<String>);

impl ReportedHops {
    fn lost(&mut self, name: &str) {
        self.0.insert(name.to_string());
    }

    fn is_back(&mut self, name: &str) -> bool {
        self.0.remove(name)
    }
}

/// Why the kernel does not say what `what` is about. It has no neighbours by IPv6 where that is off.
pub fn no_neighbours(error: std::io::Error, what: &str) -> anyhow::Error {
    let context = match error.kind() {
        std::io::ErrorKind::InvalidInput => format!(
            "cannot {what}; IPv6 is off on an interface whose MTU is below 1,280 ('ip link') or that \
             has 'disable_ipv6' set (sysctl net.ipv6.conf): switch it on there, or probe by IPv4"
        ),
        _ => netlink(what),
    };
    anyhow::Error::from(error).context(context)
}

/// Notices that differ in their subject only: a link that goes down is one event, however
/// many targets lie behind it.
#[derive(Default)]
struct Alike(BTreeMap<String, (u64, String)>);

impl Alike {
    fn add(&mut self, what: &str, subject: String) {
        self.0.entry(what.to_string()).and_modify(|(n, _)| *n += 1).or_insert((1, subject));
    }

    fn log(self, kind: &str) {
        for (what, (count, first)) in self.0 {
            let subject = format!("{kind} {first}");
            let subject = subject.trim_start();
            match count {
                1 => tracing::warn!("{subject} {what}"),
                n => tracing::warn!("{subject} and {} more: {what}", n - 1),
            }
        }
    }
}

/// A route for each target, and the targets that have none, with the reason.
type Ways = (Vec<Route>, Vec<(Target, String)>);

/// The way to each target. One that has none is taken out and reported. It is a failure if it
/// is the `only` one.
pub fn find_routes(
    routes: &mut Routes,
    targets: &mut Vec<Target>,
    engine: &EngineSettings,
    only: bool,
) -> Result<Ways> {
    let (mut found, mut left_out) = (Vec::with_capacity(targets.len()), Vec::new());
    let mut failure = None;
    targets.retain_mut(|target| {
        if failure.is_some() {
            return false;
        }
        match find_route(routes, target, engine) {
            Ok(route) => {
                found.push(route);
                true
            }
            Err(error) if only => {
                // The error names the address.
                let is_named = target.name == target.address.to_string();
                failure = Some(if is_named { error } else { error.context(target.name.clone()) });
                false
            }
            Err(error) => {
                left_out.push((target.clone(), format!("{error:#}")));
                false
            }
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    Ok((found, left_out))
}

/// The way to the first address of `target` that has one.
fn find_route(routes: &mut Routes, target: &mut Target, engine: &EngineSettings) -> Result<Route> {
    let iface = engine.iface.as_deref();
    let mut first_error = None;
    let addresses: Vec<IpAddr> =
        std::iter::once(target.address).chain(target.others.iter().copied()).collect();
    for address in addresses {
        if let (IpAddr::V6(a), None) = (address, target.interface.as_deref().or(iface))
            && a.is_unicast_link_local()
        {
            bail!("{a} is link-local: say by which interface, as in {a}%eth0");
        }
        match way_to(routes, target, address, iface) {
            Ok(route) => {
                target.address = address;
                return Ok(route);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.map_or_else(
        || anyhow!("it has no address; name another target, or mend its name"),
        anyhow::Error::from,
    ))
}

/// The way to `address` of `target`, by the interface that it asks for, or else `iface`. That
/// one may lie below the VLAN device of the route.
fn way_to(
    routes: &mut Routes,
    target: &Target,
    address: IpAddr,
    iface: Option<&str>,
) -> Result<Route, RouteError> {
    let (wanted, source) = (target.interface.as_deref().or(iface), target.settings.source);
    let usual = routes.lookup(address, source);
    match (usual, wanted) {
        (usual, None) => usual,
        (Ok(route), Some(name)) if name == route.interface || name == route.lower => Ok(route),
        (_, Some(name)) => {
            let index = interface_index(name);
            // A scope may be an index, too (RFC 4007, section 11.2).
            let index = match target.interface.as_ref().and_then(|scope| scope.parse().ok()) {
                Some(numeric) if index.is_err() => numeric,
                _ => index?,
            };
            routes.lookup_by(address, source, Some(index))
        }
    }
}

/// The message of `error` without `destination`, so that targets with the same trouble share a line.
fn alike_for_all(error: &RouteError, destination: IpAddr) -> String {
    let address = destination.to_string();
    let text = error.to_string().replace(&format!("get {address}"), "get ADDRESS");
    text.replace(&address, "it")
}

pub fn way(hop: &NextHop) -> NextHopLink {
    let Some(Macs { destination, source }) = hop.macs else {
        return Err(if hop.running { NotSent::NoNeighbour } else { NotSent::LinkDown });
    };
    Ok(LinkHeader::new(destination, source, &hop.tags))
}

/// All interfaces; none, where the kernel does not say.
fn all_links() -> Vec<Link> {
    Links::open().and_then(|mut links| links.all()).unwrap_or_default()
}

/// Whether an interface is down, without carrier, or gone. Where none is known, it is not.
fn is_down(links: &[Link], name: &str) -> bool {
    let running = links.iter().any(|link| link.name == name && link.running);
    !links.is_empty() && !running
}

/// Why there may be no way to a target.
const NO_WAY: [NotSent; 3] = [NotSent::NoRoute, NotSent::NoAddress, NotSent::LinkDown];
/// Between refreshes of the neighbours: below the kernel's base reachable time.
const REFRESH: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_next_hop_that_was_reported_as_lost_is_reported_as_back() {
        let mut reported = ReportedHops::default();
        assert!(!reported.is_back("198.18.0.2"), "it was unknown at the start");
        reported.lost("198.18.0.2");
        assert!(!reported.is_back("198.18.0.6"));
        assert!(reported.is_back("198.18.0.2"));
        assert!(!reported.is_back("198.18.0.2"), "once");
    }
}
