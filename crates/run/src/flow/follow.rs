//! Interfaces that vanish and return while they are metered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use sonde_meter::export::ExportInterface;
use sonde_results::FlowRun;
use sonde_results::caveat::Caveat;
use sonde_sys::netlink::Link;

use crate::links::{LinkFollower, LinkPresence};

/// The index that an interface has now (`ifindex`); 0: there is none of its name.
pub type SharedIfindex = Arc<AtomicU32>;

/// Follows the kernel's interfaces.
pub struct Follow {
    links: LinkFollower,
    /// Name and index of each interface, by point.
    list: Vec<(String, SharedIfindex)>,
    /// Likewise, whether packets can pass it.
    presence: Vec<LinkPresence>,
}

impl Follow {
    /// To be opened before the interfaces are, so that no change is missed.
    pub fn open(interfaces: &[Link]) -> Result<Follow> {
        let index = |l: &Link| (l.name.clone(), Arc::new(AtomicU32::new(l.ifindex)));
        Ok(Follow {
            links: LinkFollower::open()?,
            list: interfaces.iter().map(index).collect(),
            presence: interfaces.iter().map(LinkPresence::begin).collect(),
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

    /// Notes what has vanished or gone down and what has returned. The interfaces, if one has
    /// returned.
    pub fn look(&mut self, run: &mut FlowRun) -> Result<Option<Vec<ExportInterface>>> {
        let Some(all) = self.links.changed()? else { return Ok(None) };
        let mut returned = false;
        let each = self.list.iter().zip(&mut self.presence);
        for (((name, index), presence), point) in each.zip(&mut run.points) {
            let link = all.iter().find(|l| l.name == *name);
            let now = link.map_or(0, |l| l.ifindex);
            let before = index.swap(now, Ordering::Relaxed);
            let is_another = before != 0 && now != 0 && before != now;
            if presence.follow(name, LinkPresence::of(link), is_another) {
                point.vanished += 1;
                run.caveats.insert(Caveat::InterfaceVanished);
            }
            returned |= now != 0 && now != before;
        }
        Ok(returned.then(|| self.interfaces()))
    }
}
