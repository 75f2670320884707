//! Optimisations of devices under test, one by one: each a *layer* that is applied and
//! reverted while the bed runs, so that its share of a result can be measured.
//!
//! Every former value is written into a journal before it is changed (in the bed's folder;
//! for the host's own settings beside it), so that [`revert`] restores it exactly, also from
//! another process, and after the one that changed it was killed. Whatever a layer changes
//! lies in namespaces and processes of the bed, except for layers of [`Scope::Host`], which
//! are refused unless asked for.

mod journal;
mod setting;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use self::journal::Journal;
pub use self::setting::Setting;
use crate::LabError;
use crate::device::{BedInfo, BedSpec, DeviceSpec};

/// An optimisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Generic receive offload at the device's ports, and with it NAPI.
    Gro,
    /// UDP packets of a flow are joined while they are forwarded.
    UdpGro,
    /// Receive threads of their own for the device's ports.
    ThreadedNapi,
    /// Receive threads and processes of the device on one processor.
    Pinning,
    /// IP's work for what the device receives on another processor than the sender's.
    Rps,
    /// Receive queues are polled again after a while, not by interrupt.
    NapiDefer,
    /// Sockets poll their queue while they wait.
    BusyPoll,
    /// Receive threads and processes of the device run before all ordinary ones; of a process
    /// the first thread before the others.
    RealTime,
    /// Packets that a processor may receive at a time.
    Budget,
    /// No netfilter hooks: no filters, no connection tracking.
    NoNetfilter,
    /// A virtual machine's memory in huge pages.
    Hugepages,
    /// The router in XDP instead of the kernel's.
    Xdp,
}

/// What a layer touches, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Settings of a running bed.
    Bed,
    /// The bed itself: it takes effect when it is built ([`Layer::build`]).
    Build,
    /// Settings of the whole host.
    Host,
}

/// A setting that a layer has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub setting: Setting,
    /// Its value before, which a revert restores.
    pub former: String,
    /// Its value since.
    pub value: String,
}

impl Layer {
    /// All.
    pub const ALL: [Layer; 12] = [
        Layer::Gro,
        Layer::UdpGro,
        Layer::ThreadedNapi,
        Layer::Pinning,
        Layer::Rps,
        Layer::NapiDefer,
        Layer::BusyPoll,
        Layer::RealTime,
        Layer::Budget,
        Layer::NoNetfilter,
        Layer::Hugepages,
        Layer::Xdp,
    ];

    /// Its name, as a plan or the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Gro => "gro",
            Layer::UdpGro => "udp-gro",
            Layer::ThreadedNapi => "threaded-napi",
            Layer::Pinning => "pinning",
            Layer::Rps => "rps",
            Layer::NapiDefer => "napi-defer",
            Layer::BusyPoll => "busy-poll",
            Layer::RealTime => "real-time",
            Layer::Budget => "budget",
            Layer::NoNetfilter => "no-netfilter",
            Layer::Hugepages => "hugepages",
            Layer::Xdp => "xdp",
        }
    }

    /// What it does, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Layer::Gro => "generic receive offload (and NAPI) at the device's ports",
            Layer::UdpGro => "join UDP packets of a flow while forwarding (rx-udp-gro-forwarding)",
            Layer::ThreadedNapi => "a receive thread for each queue of the device's ports",
            Layer::Pinning => "the device's receive threads and processes on one processor",
            Layer::Rps => "IP's work for received packets on the device's processor (rps_cpus)",
            Layer::NapiDefer => {
                "poll receive queues again by timer (napi_defer_hard_irqs, gro_flush_timeout)"
            }
            Layer::BusyPoll => "sockets poll while they wait (net.core.busy_poll, busy_read)",
            Layer::RealTime => {
                "real-time classes: receive threads and main loops (FIFO 2), their workers (RR 1)"
            }
            Layer::Budget => "ten times as many packets a receive round (net.core.netdev_budget)",
            Layer::NoNetfilter => "no nftables rules, no connection tracking (of a firewall)",
            Layer::Hugepages => "a virtual machine's memory in huge pages",
            Layer::Xdp => "the router in XDP instead of the kernel's",
        }
    }

    /// What it touches.
    pub fn scope(self) -> Scope {
        match self {
            Layer::Hugepages | Layer::Xdp => Scope::Build,
            Layer::BusyPoll | Layer::Budget => Scope::Host,
            _ => Scope::Bed,
        }
    }

    /// Changes what bed is built: layers of [`Scope::Build`].
    ///
    /// # Errors
    /// Why it cannot be on this bed.
    pub fn build(self, spec: &mut BedSpec) -> Result<(), String> {
        match (self, spec.device) {
            (Layer::Hugepages, DeviceSpec::Vm) => spec.hugepages = true,
            (Layer::Hugepages, device) => return Err(format!("a {device} is no virtual machine")),
            (Layer::Xdp, DeviceSpec::Router { .. }) => spec.device = DeviceSpec::Xdp,
            (Layer::Xdp, device) => return Err(format!("a {device} is no kernel router")),
            (layer, _) => return Err(format!("{layer} is applied to a bed that is built")),
        }
        Ok(())
    }

    /// Whether it can be applied to this bed now, and would change something.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn applies(self, bed: &BedInfo) -> Result<(), String> {
        if self.scope() == Scope::Build {
            return Err("takes effect when the bed is built: 'sonde lab up DEVICE --with'".into());
        }
        let changes = self.changes(bed)?;
        for (setting, value) in changes {
            let former = setting.read().map_err(|e| e.to_string())?;
            if former != value {
                return Ok(());
            }
        }
        Err("is so already".into())
    }

    /// The settings that it changes, and their new values.
    fn changes(self, bed: &BedInfo) -> Result<Vec<(Setting, String)>, String> {
        if self.scope() != Scope::Host && bed.devices.is_empty() {
            return Err("a loop has no device".into());
        }
        let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
        let cpu = bed.spec.own_cpu.unwrap_or(last);
        let ports = |make: &dyn Fn(String, String) -> Vec<(Setting, String)>| {
            let each = |d: &crate::device::DeviceInfo| {
                let netns = d.netns.clone();
                d.interfaces.iter().flat_map(|i| make(netns.clone(), i.clone())).collect::<Vec<_>>()
            };
            bed.devices.iter().flat_map(each).collect()
        };
        let feature = |feature: &'static str| {
            ports(&|netns, interface| {
                let feature = feature.to_owned();
                vec![(Setting::Feature { netns, interface, feature }, "on".to_owned())]
            })
        };
        let files = |values: &[(String, &str)]| {
            ports(&|netns, interface| {
                let one = |(file, value): &(String, &str)| {
                    let (netns, interface) = (netns.clone(), interface.clone());
                    (
                        Setting::Interface { netns, interface, file: file.clone() },
                        (*value).to_owned(),
                    )
                };
                values.iter().map(one).collect()
            })
        };
        let kernel = |values: &[(&str, &str)]| {
            let one = |(name, value): &(&str, &str)| {
                (Setting::Kernel { name: (*name).to_owned() }, (*value).to_owned())
            };
            values.iter().map(one).collect()
        };
        Ok(match self {
            Layer::Gro => feature("gro"),
            Layer::UdpGro => feature("rx-udp-gro-forwarding"),
            Layer::ThreadedNapi => files(&[("threaded".into(), "1")]),
            Layer::NapiDefer => files(&[
                ("napi_defer_hard_irqs".into(), "2"),
                ("gro_flush_timeout".into(), "20000"),
            ]),
            Layer::Rps => {
                let mask = crate::host::cpu_mask(cpu);
                let queue = |n| (format!("queues/rx-{n}/rps_cpus"), &mask[..]);
                let queues: Vec<_> = (0..bed.spec.queues).map(queue).collect();
                files(&queues)
            }
            Layer::BusyPoll => {
                kernel(&[("net.core.busy_poll", "50"), ("net.core.busy_read", "50")])
            }
            Layer::Budget => kernel(&[
                ("net.core.netdev_budget", "3000"),
                ("net.core.netdev_budget_usecs", "20000"),
            ]),
            Layer::Pinning | Layer::RealTime => {
                let threads = threads(bed).map_err(|e| e.to_string())?;
                if threads.is_empty() {
                    return Err("it runs inside its sender: apply threaded-napi first".into());
                }
                let one = |Thread { pid, start, worker }| match self {
                    Layer::Pinning => (Setting::Affinity { pid, start }, cpu.to_string()),
                    _ => {
                        let class = if worker { WORKER_CLASS } else { LEADING_CLASS };
                        (Setting::Class { pid, start }, class.to_owned())
                    }
                };
                threads.into_iter().map(one).collect()
            }
            Layer::NoNetfilter => match bed.spec.device {
                DeviceSpec::Firewall { .. } => (bed.devices.iter())
                    .map(|d| (Setting::Ruleset { netns: d.netns.clone() }, String::new()))
                    .collect(),
                DeviceSpec::Nat => return Err("to translate is what a nat is for".into()),
                device => return Err(format!("a {device} has no netfilter hooks")),
            },
            Layer::Hugepages | Layer::Xdp => Vec::new(),
        })
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Layer::ALL.into_iter().find(|l| l.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Layer::ALL.iter().map(|l| l.name()).collect();
            format!("'{text}' is no layer; choose {}", names.join(", "))
        })
    }
}

/// Applies a layer to a running bed and returns what it changed. Those of [`Scope::Host`]
/// change the whole machine, and are refused unless `host` allows it.
///
/// # Errors
/// [`LabError::Bed`] with the reason why it does not apply. A layer of which a part could
/// not be applied is reverted.
pub fn apply(layer: Layer, bed: &BedInfo, host: bool) -> Result<Vec<Change>, LabError> {
    let refused = |why: String| LabError::Bed(format!("{layer}: {why}"));
    if layer.scope() == Scope::Host && !host {
        return Err(refused("changes the whole host: allow it with --host".into()));
    }
    layer.applies(bed).map_err(refused)?;
    let mut journal = Journal::open(layer, bed)?;
    if journal.holds(layer) {
        return Err(refused("is applied already".into()));
    }
    let mut done = Vec::new();
    for (setting, value) in layer.changes(bed).map_err(refused)? {
        let former = setting.read()?;
        if former == value {
            continue;
        }
        let change = Change { setting, former, value };
        journal.add(layer, &change)?;
        let set = change.setting.write(&change.value).and_then(|()| change.setting.read());
        match set {
            Ok(now) if now == change.value => done.push(change),
            failed => {
                revert_in(&mut journal, layer)?;
                let why = match failed {
                    Ok(now) => format!("{} stays at {now}", change.setting),
                    Err(e) => e.to_string(),
                };
                return Err(refused(why));
            }
        }
    }
    Ok(done)
}

/// Restores what a layer has changed, exactly, and returns it; nothing if it is not applied.
/// Threads and namespaces that are gone have taken their settings with them.
pub fn revert(layer: Layer, bed: &BedInfo) -> Result<Vec<Change>, LabError> {
    revert_in(&mut Journal::open(layer, bed)?, layer)
}

/// Restores all that is in this bed's journal.
pub fn revert_all(bed: &BedInfo) -> Result<Vec<(Layer, Change)>, LabError> {
    revert_journal(&mut Journal::of_bed(bed)?)
}

/// Restores what layers of [`Scope::Host`] have changed, whichever bed they were for.
pub fn revert_host() -> Result<Vec<(Layer, Change)>, LabError> {
    revert_journal(&mut Journal::of_host()?)
}

/// The layers that are applied to this bed, and to the host.
pub fn applied(bed: &BedInfo) -> Result<Vec<Layer>, LabError> {
    let mut all = Journal::of_bed(bed)?.layers();
    all.extend(Journal::of_host()?.layers());
    Ok(all)
}

/// The layers that are applied to the host.
pub fn applied_to_host() -> Result<Vec<Layer>, LabError> {
    Ok(Journal::of_host()?.layers())
}

fn revert_journal(journal: &mut Journal) -> Result<Vec<(Layer, Change)>, LabError> {
    let mut all = Vec::new();
    for layer in journal.layers().into_iter().rev() {
        all.extend(revert_in(journal, layer)?.into_iter().map(|change| (layer, change)));
    }
    Ok(all)
}

fn revert_in(journal: &mut Journal, layer: Layer) -> Result<Vec<Change>, LabError> {
    let changes = journal.changes(layer);
    for change in changes.iter().rev() {
        if change.setting.exists() {
            change.setting.write(&change.former)?;
        }
    }
    journal.remove(layer)?;
    Ok(changes)
}

/// A thread that forwards.
struct Thread {
    pid: u32,
    /// With the id it names the thread for ever: ids are used again.
    start: u64,
    /// It works for a process whose first thread does the input and output.
    worker: bool,
}

/// Threads that forward.
fn threads(bed: &BedInfo) -> Result<Vec<Thread>, LabError> {
    let mut all = Vec::new();
    let mut add = |pid, worker| {
        all.extend(setting::started(pid).map(|start| Thread { pid, start, worker }));
    };
    for device in &bed.devices {
        bed.receive_threads(device)?.into_iter().for_each(|pid| add(pid, false));
        for &process in &device.processes {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
            let ids = tasks.flatten().filter_map(|t| t.file_name().to_str()?.parse().ok());
            ids.for_each(|pid| add(pid, pid != process));
        }
    }
    Ok(all)
}

/// Receive threads, and the first threads of processes.
const LEADING_CLASS: &str = "fifo 2";
/// Other threads of processes, below those: a virtual processor that waits for its machine's
/// devices does not sleep but spins, and the main loop, which is the devices, would never run
/// beside it at the same priority. In turn, as there may be two machines.
const WORKER_CLASS: &str = "rr 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_reads_as_it_is_written() {
        for layer in Layer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
            let json = serde_json::to_string(&layer).unwrap();
            assert_eq!(json.trim_matches('"'), layer.name());
        }
        assert!("turbo".parse::<Layer>().unwrap_err().contains("threaded-napi"));
    }

    #[test]
    fn what_is_built_in_is_refused_where_it_cannot_be() {
        let mut spec = BedSpec::new(DeviceSpec::Bridge { stations: 0 });
        assert!(Layer::Xdp.build(&mut spec).unwrap_err().contains("bridge"));
        assert!(Layer::Hugepages.build(&mut spec).unwrap_err().contains("virtual machine"));
        assert!(Layer::Gro.build(&mut spec).is_err());
        spec.device = DeviceSpec::Router { routes: 0 };
        Layer::Xdp.build(&mut spec).unwrap();
        assert_eq!(spec.device, DeviceSpec::Xdp);
    }
}
