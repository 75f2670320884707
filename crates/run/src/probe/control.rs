//! What can be asked of a probe while it runs.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use anyhow::{Context as _, anyhow};

use super::event::Changed;
use super::settings::Settings;
use super::targets::{self, Expanded, Target};
use crate::change::Change;
use crate::error::RunError;

/// Orders to a probe.
pub struct Control {
    orders: Sender<ReloadRequest>,
    settings: Mutex<Settings>,
}

/// What the probe's thread is asked for.
pub(super) struct ReloadRequest {
    pub(super) targets: Vec<Target>,
    /// Names that do not resolve at this moment.
    pub(super) unresolved: HashSet<String>,
    /// Targets that are left out for that, with the reason.
    pub(super) left_out: Vec<(String, String)>,
    /// By which it runs from now on.
    pub(super) settings: Settings,
    /// Where what it came to is waited for.
    pub(super) done: std::sync::mpsc::SyncSender<Result<Changed, RunError>>,
}

/// What a reload came to.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// How the settings differed from those before. [`Change::Restart`]: nothing was done.
    pub change: Change,
    /// Targets that are not measured, with the reason.
    pub left_out: Vec<(String, String)>,
}

impl Control {
    /// Of a probe that runs by `settings`, and where its thread finds orders.
    pub(super) fn new(settings: Settings) -> (Control, Receiver<ReloadRequest>) {
        let (orders, given) = channel();
        (Control { orders, settings: Mutex::new(settings) }, given)
    }

    /// Goes over to `new` without stopping, where that can be: targets that are in both go on
    /// without losing a probe, also where their names do not resolve at this moment. Waits until it
    /// is done.
    ///
    /// # Errors
    /// Settings that cannot be; ports that cannot be opened; a probe that has ended.
    pub fn reload(&self, new: Settings) -> Result<Reloaded, RunError> {
        new.check()?;
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let change = settings.change(&new);
        if !matches!(change, Change::Live { .. }) {
            return Ok(Reloaded { change, left_out: Vec::new() });
        }
        // Names are looked up here: that takes seconds, and probes do not wait for it.
        let Settings { targets: entries, stream, family, all_addresses, .. } = &new;
        let Expanded { targets, mut left_out, unresolved } =
            targets::expand_found(entries, stream, *family, (*all_addresses, true))?;
        let (done, waits) = sync_channel(1);
        let gone = || anyhow!("the probe has ended: its targets cannot change; start it anew");
        let request = ReloadRequest {
            targets,
            unresolved,
            left_out: left_out.clone(),
            settings: new.clone(),
            done,
        };
        self.orders.send(request).map_err(|_| gone())?;
        let changed = waits.recv().with_context(|| gone().to_string())??;
        left_out.extend(changed.left_out);
        *settings = new;
        Ok(Reloaded { change, left_out })
    }
}
