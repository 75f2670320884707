//! The thread that looks at interfaces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_run::error::RunError;
use sonde_run::running::Stop;
use sonde_run::thread;
use sonde_sys::clock::{steady_now, unix_now_ns};
use sonde_sys::host::InterfaceFacts;
use sonde_sys::netlink::{LinkCounters, Routes, link_counters};
use sonde_sys::netns;

use super::{Differ, Netns, WatchList};
use crate::explain::thread::SharedBook;
use crate::hub::{Hub, Report, Said};
use crate::plan::UnitId;

/// Looks at interfaces until it is asked to end.
pub(crate) struct InterfaceService {
    wanted: Arc<Mutex<WatchList>>,
    stop: Stop,
    thread: JoinHandle<()>,
}

impl InterfaceService {
    /// Hands what they count to `hub`. `book`: by which interfaces targets are reached.
    ///
    /// # Errors
    /// No thread to be had.
    pub(crate) fn start(
        wanted: WatchList,
        book: SharedBook,
        hub: &Hub,
    ) -> Result<InterfaceService, RunError> {
        let (stop, hub) = (Stop::default(), hub.clone());
        let wanted = Arc::new(Mutex::new(wanted));
        let (asked, list) = (stop.clone(), wanted.clone());
        let work = move || {
            let mut differ = Differ::default();
            loop {
                let found = look(&lock(&list).clone(), &book);
                let counted = differ.take(found, steady_now(), unix_now_ns());
                if !counted.is_empty() {
                    let said = Said::Interfaces(counted);
                    hub.hand(&Arc::new(Report { unit: UnitId::new(UNIT), said }));
                }
                if asked.wait(EACH) {
                    return;
                }
            }
        };
        let thread = thread::spawn("sonde-interfaces", work)?;
        Ok(InterfaceService { wanted, stop, thread })
    }

    /// Goes over to these from the next look on.
    pub(crate) fn watch(&self, wanted: WatchList) {
        *lock(&self.wanted) = wanted;
    }

    /// Ends.
    pub(crate) fn end(self) {
        self.stop.ask();
        sonde_run::thread::join_logged(self.thread);
    }
}

fn lock(list: &Mutex<WatchList>) -> MutexGuard<'_, WatchList> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counters of all that are wanted and there.
fn look(wanted: &WatchList, book: &SharedBook) -> Vec<(Netns, LinkCounters, u64)> {
    let mut all = Vec::new();
    for (netns, watched) in &wanted.0 {
        let mut names = watched.names.clone();
        if netns.is_none() {
            // Their names were resolved there.
            let book = book.get();
            let ways = book.wanted().into_iter().filter_map(|address| book.way(address));
            names.extend(ways.map(|way| way.interface.clone()));
        }
        let here = || -> std::io::Result<Vec<(LinkCounters, u64)>> {
            if !watched.addresses.is_empty() {
                let mut routes = Routes::open()?;
                let ways = watched.addresses.iter();
                names.extend(ways.filter_map(|&a| Some(routes.lookup(a, None).ok()?.interface)));
            }
            let found = link_counters()?.into_iter().filter(|link| names.contains(&link.name));
            Ok(found.map(|link| (speed_of(&link), link)).map(|(s, link)| (link, s)).collect())
        };
        match netns::inside(netns.as_deref(), here).map_err(std::io::Error::other).flatten() {
            Ok(found) => {
                all.extend(found.into_iter().map(|(link, speed)| (netns.clone(), link, speed)));
            }
            Err(error) => tracing::debug!("interfaces of {netns:?} are not looked at: {error}"),
        }
    }
    all
}

/// What the driver says; a virtual interface says something that is not so.
fn speed_of(link: &LinkCounters) -> u64 {
    match link.is_virtual {
        true => 0,
        false => InterfaceFacts::read(&link.name).ok().and_then(|f| f.speed_bps).unwrap_or(0),
    }
}

/// Whom records of interfaces come from: no unit has such a name.
pub(crate) const UNIT: &str = "interfaces";
/// Between two looks.
const EACH: Duration = Duration::from_secs(10);
