//! What the host did to a device of the lab during a trial. Its processors are watched as the
//! tester's are: whatever else runs there is seen as the device's latency.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism};
use std::time::Duration;

use sonde_lab::device::{BedInfo, Placement};
use sonde_results::Hist;
use sonde_results::trial::DeviceHealth;
use sonde_run::thread::join_logged;
use sonde_sys::cpu_time::{CpuTime, TaskTime, is_real_time};
use sonde_sys::schedule::{pin_to_cpu, prefer_this_thread};

use super::health::oversleeping;

/// Watches from [`DeviceWatch::start`] to [`DeviceWatch::end`].
pub struct DeviceWatch {
    cpus: Vec<usize>,
    /// The device's threads and processes, and what else of them is ours.
    device: Vec<u32>,
    ours: Vec<u32>,
    before: Reading,
    stop: Arc<AtomicBool>,
    sleepers: Vec<JoinHandle<Hist>>,
}

#[derive(Clone, Copy, Default)]
struct Reading {
    cpus: CpuTime,
    device: TaskTime,
    ours: Duration,
}

impl DeviceWatch {
    /// Begins; `None` where the device has no thread of its own: inside its sender's it is
    /// watched with that.
    pub fn start(bed: &BedInfo) -> Option<DeviceWatch> {
        let mut device: BTreeSet<u32> = BTreeSet::new();
        for one in &bed.devices {
            device.extend(bed.receive_threads(one).unwrap_or_default());
            device.extend(&one.processes);
        }
        if device.is_empty() {
            return None;
        }
        let device: Vec<u32> = device.into_iter().collect();
        // Where it may run anywhere, all processors are its own, and the tester's as well.
        let (cpus, ours) = match bed.placement {
            Placement::OwnCpu { cpu, .. } => (vec![cpu], Vec::new()),
            _ => {
                let all = available_parallelism().map_or(1, std::num::NonZero::get);
                ((0..all).collect(), vec![std::process::id()])
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        // Only there does nothing but an intruder come before a real-time thread.
        let alone = cpus.len() == 1 && !device.iter().any(|&pid| is_real_time(pid));
        let watched = if alone { &cpus[..] } else { &[] };
        let sleepers = watched.iter().filter_map(|&cpu| sleeper(cpu, &stop)).collect();
        let mut watch =
            DeviceWatch { cpus, device, ours, before: Reading::default(), stop, sleepers };
        watch.before = watch.read();
        Some(watch)
    }

    fn read(&self) -> Reading {
        let mut all = Reading::default();
        for time in self.cpus.iter().filter_map(|&cpu| CpuTime::read(cpu)) {
            all.cpus.busy += time.busy;
            all.cpus.stolen += time.stolen;
        }
        for time in self.device.iter().map(|&pid| TaskTime::of_process(pid)) {
            all.device.run += time.run;
            all.device.waited += time.waited;
        }
        all.ours = self.ours.iter().map(|&pid| TaskTime::of_process(pid).run).sum();
        all
    }

    /// Ends, and returns what happened meanwhile.
    pub fn end(mut self) -> DeviceHealth {
        let (after, before) = (self.read(), self.before);
        self.stop.store(true, Ordering::Relaxed);
        let mut pauses = Hist::default();
        for sleeper in self.sleepers.drain(..) {
            pauses.merge(&join_logged(sleeper).unwrap_or_default());
        }
        let ns = |a: Duration, b: Duration| a.saturating_sub(b).as_nanos() as i64;
        let own = ns(after.device.run, before.device.run) + ns(after.ours, before.ours);
        DeviceHealth {
            cpus: self.cpus.iter().map(|&cpu| cpu as u32).collect(),
            foreign_ns: (ns(after.cpus.busy, before.cpus.busy) - own).max(0),
            waited_ns: ns(after.device.waited, before.device.waited),
            stolen_ns: ns(after.cpus.stolen, before.cpus.stolen),
            pauses,
        }
    }
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn sleeper(cpu: usize, stop: &Arc<AtomicBool>) -> Option<JoinHandle<Hist>> {
    let ended = Arc::clone(stop);
    let watch = move || match (pin_to_cpu(cpu), prefer_this_thread()) {
        (Ok(()), Ok(())) => oversleeping(&ended),
        // An ordinary thread would see the device itself.
        _ => Hist::default(),
    };
    std::thread::Builder::new().name("sonde-device".into()).spawn(watch).ok()
}
