//! Optimisations of devices under test, one by one: each a *layer* that is applied and
//! reverted while the bed runs, so that its share of a result can be measured.
//!
//! Every former value is written into a journal before it is changed (in the bed's folder; for the
//! host's own settings beside it). So [`revert`] restores it exactly, also from another process,
//! and after the one that changed it was killed. Whatever a layer changes lies in namespaces and
//! processes of the bed, except for layers of [`LayerScope::Host`], which are refused unless asked
//! for.

mod journal;
mod layer;
mod setting;

use self::journal::Journal;
pub use self::layer::{Layer, LayerScope};
pub use self::setting::{Setting, SettingChange};
use crate::LabError;
use crate::device::{BedInfo, BedSpec, DeviceSpec};

impl Layer {
    /// Changes what bed is built: layers of [`LayerScope::Build`].
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
    /// Why not, as text.
    pub fn applies(self, bed: &BedInfo) -> Result<(), String> {
        if self.scope() == LayerScope::Build {
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
        if self.scope() != LayerScope::Host && bed.devices.is_empty() {
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

/// Applies a layer to a running bed and returns what it changed. Those of [`LayerScope::Host`]
/// change the whole machine, and are refused unless `host` allows it.
///
/// # Errors
/// [`LabError::Bed`] with the reason why it does not apply. A layer of which a part could
/// not be applied is reverted.
pub fn apply(layer: Layer, bed: &BedInfo, host: bool) -> Result<Vec<SettingChange>, LabError> {
    let refused = |why: String| LabError::Bed(format!("{layer}: {why}"));
    if layer.scope() == LayerScope::Host && !host {
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
        let change = SettingChange { setting, former, value };
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
pub fn revert(layer: Layer, bed: &BedInfo) -> Result<Vec<SettingChange>, LabError> {
    revert_in(&mut Journal::open(layer, bed)?, layer)
}

/// Restores all that is in this bed's journal.
pub fn revert_all(bed: &BedInfo) -> Result<Vec<(Layer, SettingChange)>, LabError> {
    revert_journal(&mut Journal::of_bed(bed)?)
}

/// Restores what layers of [`LayerScope::Host`] have changed, whichever bed they were for.
pub fn revert_host() -> Result<Vec<(Layer, SettingChange)>, LabError> {
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

fn revert_journal(journal: &mut Journal) -> Result<Vec<(Layer, SettingChange)>, LabError> {
    let mut all = Vec::new();
    for layer in journal.layers().into_iter().rev() {
        all.extend(revert_in(journal, layer)?.into_iter().map(|change| (layer, change)));
    }
    Ok(all)
}

fn revert_in(journal: &mut Journal, layer: Layer) -> Result<Vec<SettingChange>, LabError> {
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

/// The threads that forward: receive threads, and those of the devices' processes.
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
/// Other threads of processes, below those. A virtual processor that waits for its machine's
/// devices does not sleep but spins. The main loop, which is the devices, would never run beside it
/// at the same priority. In turn, as there may be two machines.
const WORKER_CLASS: &str = "rr 1";

#[cfg(test)]
mod tests {
    use super::*;

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
