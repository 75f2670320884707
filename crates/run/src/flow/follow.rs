//! Interfaces that vanish and return while they are metered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::links::netlink;
use anyhow::{Context as _, Result};
use sonde_meter::export::ExportInterface;
use sonde_results::FlowRun;
use sonde_results::caveat::Caveat;
use sonde_sys::netlink::{Link, Links, NetlinkEvent, NetlinkWatch};

/// The index that an interface has now (`ifindex`); 0: there is none of its name.
pub type SharedIfindex = Arc<AtomicU32>;

/// Follows the kernel's interfaces.
pub struct Follow {
    watch: NetlinkWatch,
    links: Links,
    /// Name and index of each interface, by point.
    list: Vec<(String, SharedIfindex)>,
    stale: bool,
}

impl Follow {
    /// To be opened before the interfaces are, so that no change is missed.
    pub fn open(interfaces: &[Link]) -> Result<Follow> {
        let index = |l: &Link| (l.name.clone(), Arc::new(AtomicU32::new(l.ifindex)));
        Ok(Follow {
            watch: NetlinkWatch::open()
                .with_context(|| netlink("follow the kernel's interfaces"))?,
            links: Links::open().with_context(|| netlink("ask the kernel for interfaces"))?,
            list: interfaces.iter().map(index).collect(),
            stale: true,
        })
    }

    /// For the metering threads, by point.
    pub fn indexes(&self) -> Vec<SharedIfindex> {
        self.list.iter().map(|(_, index)| index.clone()).collect()
    }

    /// As they are reported to collectors, by point.
    pub fn interfaces(&self) -> Vec<ExportInterface> {
        let interface = |(name, index): &(String, SharedIfindex)| ExportInterface {
            index: index.load(Ordering::Relaxed),
            name: name.clone(),
            description: String::new(),
        };
        self.list.iter().map(interface).collect()
    }

    /// Notes what has vanished and what has returned. The interfaces, if one has returned.
    pub fn look(&mut self, run: &mut FlowRun) -> Result<Option<Vec<ExportInterface>>> {
        let events =
            self.watch.poll().with_context(|| netlink("follow the kernel's interfaces"))?;
        self.stale |=
            events.iter().any(|e| matches!(e, NetlinkEvent::Link { .. } | NetlinkEvent::Overrun));
        if !std::mem::take(&mut self.stale) {
            return Ok(None);
        }
        let all = self.links.all().with_context(|| netlink("list the interfaces"))?;
        let mut returned = false;
        for ((name, index), point) in self.list.iter().zip(&mut run.points) {
            let now = all.iter().find(|l| l.name == *name).map_or(0, |l| l.ifindex);
            let before = index.swap(now, Ordering::Relaxed);
            if before != 0 && before != now {
                point.vanished += 1;
                run.caveats.insert(Caveat::InterfaceVanished);
                tracing::warn!("{name} has vanished; waiting for it to return");
            }
            returned |= now != 0 && now != before;
        }
        Ok(returned.then(|| self.interfaces()))
    }
}
