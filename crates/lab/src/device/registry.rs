//! The kinds of devices, by what is asked for.

use super::function::Function;
use super::spec::DeviceSpec;
use super::{bridge, netfilter, ovs, router, vm, xdp};
use crate::LabError;

/// What forwards as the plan says.
pub(crate) fn make(device: &DeviceSpec) -> Result<Box<dyn Function>, LabError> {
    Ok(match *device {
        DeviceSpec::Router { routes } => Box::new(router::Router { routes }),
        DeviceSpec::Bridge { stations } => Box::new(bridge::Bridge { stations }),
        DeviceSpec::Firewall { filters, conntrack } => {
            Box::new(netfilter::Firewall { filters, conntrack })
        }
        DeviceSpec::Nat => Box::new(netfilter::Nat),
        DeviceSpec::Loop => return Err(LabError::Bed("a loop has no device".into())),
        DeviceSpec::Xdp => Box::new(xdp::Xdp::default()),
        DeviceSpec::OvsKernel => Box::new(ovs::Ovs::new(false)),
        DeviceSpec::OvsNetdev => Box::new(ovs::Ovs::new(true)),
        DeviceSpec::Vm => Box::new(vm::Vm::default()),
    })
}
