//! The ports that probes leave by: which stream goes by which, and what each receives.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use anyhow::Result;
use sonde_meter::stamp::StreamSpec;
use sonde_port::{Caps, Engine, Filter, OpenSpec, Port, PortError};
use sonde_sys::netlink::Route;

use crate::engine::EngineSettings;
use crate::error::{RunError, SettingsError};
use crate::probe::targets::{self, StreamPlan, Target};

/// A port that is open.
pub struct OpenedPort {
    pub port: Box<dyn Port>,
    pub spec: OpenSpec,
    /// The interface that is its own; 0: none.
    pub ifindex: u32,
    /// The streams that leave there.
    pub streams: Vec<u32>,
}

/// Plans streams and has their ports opened. A source port that is in use, by another probe of this
/// host most likely, is passed over, unless it was asked for.
///
/// # Errors
/// Streams that cannot be planned; ports that cannot be opened.
pub fn with_free_ports<T>(
    targets: &[Target],
    seed: u64,
    used: &HashMap<IpAddr, HashSet<u16>>,
    route: impl Fn(usize) -> Result<(IpAddr, u16)>,
    open: impl Fn(&StreamPlan) -> Result<T, PortError>,
) -> Result<(StreamPlan, T), RunError> {
    let fixed: Vec<u16> = targets.iter().filter_map(|t| t.settings.source_port).collect();
    let mut busy = HashSet::new();
    loop {
        let plan = targets::plan(targets, seed, &busy, used, &route)?;
        match open(&plan) {
            Ok(opened) => return Ok((plan, opened)),
            Err(PortError::InUse(port))
                if !fixed.iter().any(|&base| base <= port) && busy.insert(port) => {}
            Err(error) => return Err(anyhow::Error::from(error).into()),
        }
    }
}

pub fn open_ports(
    engine: &EngineSettings,
    plan: &StreamPlan,
    groups: BTreeMap<u32, Vec<u32>>,
    found: &[Route],
    options: SessionOptions,
) -> Result<Vec<OpenedPort>, PortError> {
    let mut opened = Vec::new();
    for (ifindex, streams) in groups {
        let routes: Vec<&Route> =
            streams.iter().map(|&i| &found[plan.target_of[i as usize] as usize]).collect();
        let spec = open_spec(engine, plan, &streams, &routes, options);
        let port = sonde_port::open(engine.engine, &spec)?;
        opened.push(OpenedPort { port, spec, ifindex, streams });
    }
    Ok(opened)
}

fn open_spec(
    engine: &EngineSettings,
    plan: &StreamPlan,
    streams: &[u32],
    routes: &[&Route],
    options: SessionOptions,
) -> OpenSpec {
    let of = |i: &u32| &plan.streams[*i as usize];
    let filter = filter(streams.iter().map(of));
    let below_ip = engine.engine != Engine::Socket;
    let interface = if below_ip {
        routes.first().map(|r| r.lower.clone())
    } else {
        // Of a device with VLANs the route's own one: what is bound to the lower one sees no
        // tagged packets.
        engine.iface.clone().map(|wanted| match routes.first() {
            Some(r) if r.lower == wanted => r.interface.clone(),
            _ => wanted,
        })
    };
    let scope = |(i, route): (&u32, &&Route)| match of(i).destination.ip() {
        IpAddr::V6(a) if a.is_unicast_link_local() => Some((a, route.ifindex)),
        _ => None,
    };
    let scopes: BTreeMap<Ipv6Addr, u32> = streams.iter().zip(routes).filter_map(scope).collect();
    OpenSpec {
        queues: engine.queues.clone(),
        xdp_mode: engine.xdp_mode,
        busy_poll: engine.busy_poll,
        steady: true,
        icmp_errors: true,
        bind_device: interface.is_some() && !below_ip,
        fragment: options.fragment,
        scopes: scopes.into_iter().collect(),
        ..OpenSpec::new(interface, filter)
    }
}

/// What is to be received for these streams.
pub fn filter<'a>(streams: impl Iterator<Item = &'a StreamSpec>) -> Filter {
    let (mut local, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for stream in streams {
        local.insert(stream.source.ip());
        ports.insert(stream.source.port());
    }
    Filter {
        local: local.into_iter().collect(),
        local_ports: ports.into_iter().collect(),
        // Our ports are ours alone: what comes there from elsewhere than was probed is counted.
        peer_ports: Vec::new(),
    }
}

/// Which port carries a stream. Where the engine writes link headers, there is one for each
/// device; else one for all. For link-local addresses it is one for each link, as these are
/// unique on a link only.
pub fn lane_of(stream: &StreamSpec, route: &Route, below_ip: bool) -> u32 {
    match stream.destination.ip() {
        _ if below_ip => route.lower_ifindex,
        IpAddr::V6(a) if a.is_unicast_link_local() => route.ifindex,
        _ => 0,
    }
}

/// Whether every probe fits the MTU of its way: "don't fragment" is set, so that a longer one
/// would never leave.
pub fn check_sizes(
    targets: &[Target],
    found: &[Route],
    fragment: bool,
) -> Result<(), SettingsError> {
    for (target, route) in targets.iter().zip(found) {
        let size = target.settings.size.map_or(0, u32::from);
        if size > route.mtu && !fragment {
            let (on, mtu) = (&route.interface, route.mtu);
            let why = format!(
                "packets of {size} bytes do not fit, {on} carries {mtu}; use `stream.size = {mtu}` \
                 or less, or `fragment` to send them in pieces"
            );
            let key = target.stream_key("stream.size", |own| own.size.is_some());
            return Err(SettingsError::of(&key, why).within(&target.name));
        }
    }
    Ok(())
}

/// Whether the engine can send every probe.
pub fn check_frames(caps: &Caps, plan: &StreamPlan, streams: &[u32]) -> Result<(), SettingsError> {
    // What VLAN tags take besides is the device's: the sender skips what then does not fit.
    let most = caps.max_frame.saturating_sub(14);
    for &i in streams {
        let stream = &plan.streams[i as usize];
        if usize::from(stream.ip_length) > most {
            let (length, engine) = (stream.ip_length, &caps.engine);
            let why = format!(
                "packets of {length} bytes are too long for engine {engine}; use \
                 `stream.size = {most}` or less, or `engine.engine = socket`"
            );
            return Err(SettingsError::of("stream.size", why).within(stream.destination));
        }
    }
    Ok(())
}

/// How a session differs from what is usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOptions {
    /// Each packet's fate is wanted.
    pub samples: bool,
    /// Packets longer than the path's MTU go in pieces.
    pub fragment: bool,
}
