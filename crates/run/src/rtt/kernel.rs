//! Round-trip times from interfaces: matched and added up in the kernel, read here once
//! an interval.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use sonde_bpf::BpfError;
use sonde_bpf::rtt::{RttAttached, RttConfig, RttHook, RttProgram};
use sonde_meter::rtt::Config;
use sonde_results::rtt::{Coverage, RttFlow, RttGroup};
use sonde_sys::clock::{kernel_base, namespace_offset};
use sonde_sys::netlink::Link;
use sonde_sys::promiscuous::Promiscuous;

use super::about::About;
use super::event::RttWatching;
use super::live;
use super::out::RttOutput;
use super::points::{WatchedInterfaces, joined};
use super::settings::{self, Hook, Settings};
use super::source::InterfaceWatcher;
use crate::confined::Uses;
use crate::error::RunError;
use crate::links::has_ethernet;
use crate::running::Context;

/// Loads the programs, attaches them to `links`, and begins.
pub fn start(
    links: Vec<Link>,
    settings: Settings,
    context: &Context,
) -> Result<(About, RttWatching), RunError> {
    let config = settings::config(&settings)?;
    live::check_count(&links)?;
    let pins = settings.persist.then(Pins::make).transpose()?;
    let joined = joined(&links, &settings)?;
    let kernel = RttConfig {
        observation_points: joined.clone(),
        ..kernel_config(&config, &settings, links.len())
    };
    let program = RttProgram::load(&kernel).map_err(advise)?;
    let hook = match settings.hook.unwrap_or(Hook::Tc) {
        Hook::Tc => RttHook::Tc,
        Hook::Xdp => RttHook::Xdp,
        Hook::Ingress => RttHook::TcIngress,
    };
    let mut source = Kernel { program, hook, promiscuous: BTreeMap::new() };
    let mut points = WatchedInterfaces::open(&links, joined)?;
    let described = points.attach(&mut source)?;
    let mut kept = (Vec::new(), None);
    if let Some(pins) = pins {
        pins.keep(&mut source.program).map_err(anyhow::Error::from)?;
        let text = format!("left attached; 'rm -r {PIN_FOLDER}' detaches it");
        kept = (vec![PIN_FOLDER.into()], Some(text));
    }
    let (writes, last) = kept;
    live::start(
        source,
        (points, described),
        settings,
        &config,
        (Uses::Program, writes, last),
        context,
    )
}

/// The programs, and where they are attached.
struct Kernel {
    program: RttProgram,
    hook: RttHook,
    /// So that a mirror port's card hands up what is addressed to others, by point.
    promiscuous: BTreeMap<u8, Promiscuous>,
}

impl InterfaceWatcher for Kernel {
    fn attach(&mut self, link: &Link, i: u8) -> anyhow::Result<String> {
        // There what leaves comes in again: seen twice, it would pass for its own
        // retransmission.
        let hook = if link.name == "lo" { RttHook::TcIngress } else { self.hook };
        let attached = self.program.attach(link.ifindex as i32, i, hook, !has_ethernet(link));
        let attached = attached.map(describe).map_err(advise)?;
        match Promiscuous::hold(link.ifindex) {
            Ok(held) => drop(self.promiscuous.insert(i, held)),
            // On a router or a host it changes nothing.
            Err(error) => tracing::warn!(
                "{}: {error}; what is addressed to others, as on a mirror port, is not seen",
                link.name
            ),
        }
        Ok(attached)
    }

    fn detach(&mut self, i: u8) {
        self.program.detach(i);
        self.promiscuous.remove(&i);
    }

    fn fetch(&mut self, patience_ns: i64, out: &mut RttOutput) -> anyhow::Result<bool> {
        let (out, brought) = (RefCell::new(out), Cell::new(false));
        self.program.poll(
            // Rounded up: the kernel waits in milliseconds.
            Duration::from_millis(patience_ns.max(0) as u64 / 1_000_000 + 1),
            &mut |sample| {
                brought.set(true);
                out.borrow_mut().sample(&sample);
            },
            &mut |flow| out.borrow_mut().flow(&flow),
        )?;
        Ok(brought.get())
    }

    fn take_groups(&mut self, start_ns: i64, end_ns: i64) -> anyhow::Result<Vec<RttGroup>> {
        Ok(self.program.take_groups(start_ns, end_ns)?)
    }

    fn coverage(&mut self) -> anyhow::Result<Coverage> {
        Ok(self.program.coverage()?)
    }

    fn open_flows(&self, each: &mut dyn FnMut(RttFlow)) {
        self.program.open_flows(each);
    }
}

fn describe(attached: RttAttached) -> String {
    let RttAttached { ingress, egress } = attached;
    let hooks = match egress {
        None => format!("{}, ingress only", ingress.name()),
        Some(egress) if egress == ingress => format!("{}, ingress and egress", ingress.name()),
        Some(egress) => format!("{} at ingress, {} at egress", ingress.name(), egress.name()),
    };
    format!("{hooks}, timed by the kernel's clock")
}

/// What the kernel refuses to a program it may grant to a packet socket.
fn advise(error: BpfError) -> anyhow::Error {
    match error {
        BpfError::Privilege { .. } | BpfError::Verifier { .. } | BpfError::Io { .. } => {
            anyhow!("{error}; where eBPF cannot be had, '`engine = af_packet`' measures without it")
        }
        BpfError::Memory { .. } => anyhow!("{error}; ask for fewer `flows`"),
        _ => error.into(),
    }
}

/// The folder that lets the programs outlive this process; gone again unless they were
/// pinned there.
struct Pins {
    kept: bool,
}

impl Pins {
    fn make() -> anyhow::Result<Pins> {
        match std::fs::create_dir(PIN_FOLDER) {
            Ok(()) => Ok(Pins { kept: false }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(anyhow!(
                "{PIN_FOLDER} is there from an earlier run; 'rm -r {PIN_FOLDER}' ends that one"
            )),
            Err(e) => Err(e).with_context(|| {
                format!("cannot make {PIN_FOLDER}; 'mount -t bpf bpf /sys/fs/bpf' may help")
            }),
        }
    }

    fn keep(mut self, program: &mut RttProgram) -> Result<(), BpfError> {
        program.pin(Path::new(PIN_FOLDER))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.kept {
            // The first error is the one to report.
            let _ = std::fs::remove_dir_all(PIN_FOLDER);
        }
    }
}

/// The same settings, for the kernel.
fn kernel_config(config: &Config, settings: &Settings, interfaces: usize) -> RttConfig {
    RttConfig {
        flows: config.flows as u32,
        seed: config.seed,
        group_by: config.group_by,
        groups: config.groups as u32,
        prefixes: config
            .prefixes
            .iter()
            // Of a hidden address no more is kept: longer prefixes would match by chance.
            .filter(|(ip, n, _)| !config.hide_addresses || *n <= if ip.is_ipv4() { 24 } else { 48 })
            .map(|(ip, n, asn)| (ip, n, asn.unwrap_or(0)))
            .collect(),
        events: config.events,
        weight_by_flow: config.weight_by_flow,
        hide_addresses: config.hide_addresses,
        vlan_in_key: config.vlan_in_key,
        observation_points: Vec::new(),
        protocols: config.filter.protocols,
        nets: config.filter.nets.clone(),
        ports: config.filter.ports.clone(),
        tunnels: settings.tunnels,
        // From one interface to another: takes two, and egress.
        residence: interfaces > 1 && settings.hook != Some(Hook::Ingress),
        xdp: settings.hook == Some(Hook::Xdp),
        time_base_ns: kernel_base(),
        namespace_offset_ns: namespace_offset(),
    }
}

const PIN_FOLDER: &str = "/sys/fs/bpf/sonde";

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_bpf::rtt::RttAttachment::{Clsact, Tcx, XdpGeneric};
    use sonde_results::rtt::{RttEvents, RttGroupBy, RttProtocol, RttProtocols};

    fn configured(settings: &Settings, interfaces: usize) -> RttConfig {
        kernel_config(&settings::config(settings).unwrap(), settings, interfaces)
    }

    #[test]
    fn the_kernel_gets_what_was_asked_for() {
        let config = configured(
            &Settings {
                proto: vec![RttProtocol::Tcp, RttProtocol::Dns],
                net: vec!["10.0.0.0/8".parse().unwrap()],
                port: vec![53],
                by: RttGroupBy::Vlan,
                tunnels: true,
                prefix_only: true,
                weight_by_flow: true,
                flows: 64,
                samples: Some(settings::SampleLimit::RoundTrips(2)),
                ..Settings::default()
            },
            1,
        );
        assert_eq!(config.protocols, RttProtocols::TCP.with(RttProtocols::DNS));
        assert_eq!((config.nets.len(), &config.ports[..]), (1, &[53][..]));
        assert_eq!((config.group_by, config.flows), (RttGroupBy::Vlan, 64));
        assert_eq!(config.events, RttEvents::RttMultiple(32));
        assert!(config.tunnels && config.hide_addresses && config.weight_by_flow);
        let usual = configured(&Settings::default(), 1);
        assert_eq!((usual.protocols, usual.events), (RttProtocols::default(), RttEvents::None));
        let without = Settings { no_vlan_in_key: true, ..Settings::default() };
        assert!(usual.vlan_in_key && !configured(&without, 1).vlan_in_key);
    }

    #[test]
    fn prefixes_are_no_finer_than_what_is_kept_of_an_address() {
        let path = std::env::temp_dir().join(format!("sonde-finer-{}", std::process::id()));
        std::fs::write(&path, "10.0.0.0/8 64500\n10.1.2.0/25\n2001:db8::/48\n2001:db8::/56\n")
            .unwrap();
        let lengths = |prefix_only| -> Vec<u8> {
            let prefixes = Some(path.clone());
            let config = configured(&Settings { prefixes, prefix_only, ..Settings::default() }, 1);
            config.prefixes.iter().map(|p| p.1).collect()
        };
        let (whole, hidden) = (lengths(false), lengths(true));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((whole, hidden), (vec![8, 25, 48, 56], vec![8, 48]));
    }

    #[test]
    fn residence_takes_two_interfaces_and_what_they_send() {
        let usual = Settings::default();
        let ingress = Settings { hook: Some(Hook::Ingress), ..Settings::default() };
        assert!(configured(&usual, 2).residence);
        assert!(!configured(&usual, 1).residence && !configured(&ingress, 2).residence);
    }

    #[test]
    fn how_it_is_attached_is_described() {
        for (ingress, egress, text) in [
            (Tcx, Some(Tcx), "tcx, ingress and egress, "),
            (Clsact, None, "clsact, ingress only, "),
            (XdpGeneric, Some(Tcx), "xdp generic at ingress, tcx at egress, "),
        ] {
            let text_of = describe(RttAttached { ingress, egress });
            assert!(text_of.starts_with(text), "{text_of}");
        }
    }

    #[test]
    fn a_refusal_names_the_way_without_ebpf() {
        let refused = || std::io::Error::from_raw_os_error(22);
        for error in [
            BpfError::Privilege { what: "load", advice: "run as root".into() },
            BpfError::Verifier { reason: "no BTF".into(), advice: "take another".into() },
            BpfError::Io { what: "attach", cause: refused() },
        ] {
            let (own, advised) = (error.to_string(), advise(error).to_string());
            assert!(
                advised.starts_with(&own) && advised.contains("`engine = af_packet`"),
                "{advised}"
            );
        }
        assert!(!advise(BpfError::NoInterface(7)).to_string().contains("af_packet"));
        assert!(advise(BpfError::Memory { what: "load" }).to_string().ends_with("fewer `flows`"));
    }
}
