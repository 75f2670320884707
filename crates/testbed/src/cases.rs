//! What a plan comes to: its devices, their states, and the measurements to make.

use sonde_lab::device::{BedSpec, DeviceSpec};
pub use sonde_report::LOOP;
use sonde_results::bench::Case;

use super::plan::{BenchPlan, DevicePlan, FrameSizes};
use super::procedures::ProcedurePlan;

/// A checked plan, and what it comes to.
pub struct ExpandedPlan {
    pub plan: BenchPlan,
    /// Its devices; the first is the loop where the plan wants it.
    pub devices: Vec<DeviceUnderTest>,
    /// States of the devices; never empty.
    pub conditions: Vec<Condition>,
    /// The measurements in their order.
    pub cases: Vec<PlannedCase>,
}

/// What stands between the tester's ports.
#[derive(Clone, Debug)]
pub struct DeviceUnderTest {
    /// As in the plan.
    pub name: String,
    pub kind: DeviceKind,
    /// As in the plan; of the loop, one that has only a name.
    pub plan: DevicePlan,
}

/// Who makes a device.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceKind {
    Lab(DeviceSpec),
    /// An external device, which is there already.
    External,
}

/// A state of the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condition {
    /// Empty where the plan names none.
    pub name: String,
    /// Layers that are applied.
    pub layers: Vec<String>,
    /// Shell command that configures an external device.
    pub command: Option<String>,
}

/// A measurement to make.
#[derive(Clone, Debug)]
pub struct PlannedCase {
    /// [`sonde_results::bench::Measurement::id`].
    pub id: String,
    /// What distinguishes it from the others.
    pub case: Case,
    /// Index of the device.
    pub device: usize,
    /// Index of the condition.
    pub condition: usize,
    /// The procedure, with its parameters.
    pub procedure: ProcedurePlan,
    /// Sizes of the frames.
    pub frames: FrameSizes,
    /// 4 or 6.
    pub ip: u8,
    /// Frames that leave at a time.
    pub burst: u32,
    pub bidirectional: bool,
}

impl ExpandedPlan {
    /// The greatest load of a case, frames/s in each direction, where it is known before
    /// anything is sent.
    pub fn greatest_load(&self) -> Option<f64> {
        self.plan.bed.max_rate.map(|r| r.0)
    }

    /// The lab's bed for a device; external ones have none.
    pub fn bed_spec(&self, device: &DeviceUnderTest) -> Option<BedSpec> {
        let DeviceKind::Lab(spec) = device.kind else { return None };
        let largest = self.cases.iter().map(|c| c.frames.largest()).max().unwrap_or(0);
        let needed = u32::from(largest).saturating_sub(FRAME_BEYOND_IP);
        let mtu = device.plan.mtu.unwrap_or(needed.max(1500));
        // Where no processor is left beside the device's and a generator's, frames are
        // received on the device's: a generator leaves nothing of its own.
        let tester_cpu = device.plan.cpu.and_then(|own| free_cpus(own).nth(1));
        Some(BedSpec {
            chain: device.plan.chain,
            monitor: spec.is_bridge() && self.cases.iter().any(|c| c.procedure.monitored()),
            own_cpu: device.plan.cpu,
            tester_cpu,
            mtu,
            ..BedSpec::new(spec)
        })
    }
}

/// The processors that are not the device's.
pub fn free_cpus(device: usize) -> impl Iterator<Item = usize> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..cpus).filter(move |&cpu| cpu != device)
}

/// The condition of an ablation without any layer.
pub const BASELINE: &str = "baseline";
/// Octets of a frame before and after its IP packet: Ethernet header and FCS.
pub const FRAME_BEYOND_IP: u32 = 18;
