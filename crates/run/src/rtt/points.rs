//! The interfaces of a run: attached, lost and found again by their names. One that is down, or has
//! no carrier, stays attached: its gap is said and counted.

use anyhow::Context as _;
use sonde_results::Caveat;
use sonde_results::rtt_run::RttPoint;
use sonde_sys::netlink::Link;

use super::out::RttOutput;
use super::settings::Settings;
use super::source::InterfaceWatcher;
use crate::error::SettingsError;
use crate::joins;
use crate::links::{LinkFollower, LinkPresence};

/// The interfaces, by name: indexes change when one returns.
pub struct WatchedInterfaces {
    links: LinkFollower,
    list: Vec<Watched>,
    /// By interface: see [`joins::joined_points`].
    joined: Vec<u8>,
}

/// Which interfaces are one observation point.
pub fn joined(links: &[Link], settings: &Settings) -> Result<Vec<u8>, SettingsError> {
    let names: Vec<String> = links.iter().map(|l| l.name.clone()).collect();
    joins::joined_points("join", &settings.join, &names)
}

struct Watched {
    name: String,
    /// Its index while it is watched.
    ifindex: Option<u32>,
    presence: LinkPresence,
    /// Why it is not, as last reported.
    refused: Option<String>,
}

impl WatchedInterfaces {
    /// `links` as they are now, some of them joined.
    pub fn open(links: &[Link], joined: Vec<u8>) -> anyhow::Result<WatchedInterfaces> {
        let watched = |l: &Link| Watched {
            name: l.name.clone(),
            ifindex: None,
            presence: LinkPresence::begin(l),
            refused: None,
        };
        Ok(WatchedInterfaces {
            // Before anything is attached, so that no change is missed.
            links: LinkFollower::open()?,
            list: links.iter().map(watched).collect(),
            joined,
        })
    }

    /// Attaches to all; one that cannot be watched at the start is a failure.
    pub fn attach(&mut self, source: &mut impl InterfaceWatcher) -> anyhow::Result<Vec<RttPoint>> {
        let all = self.links.all()?;
        let mut points = Vec::new();
        for (i, watched) in self.list.iter_mut().enumerate() {
            let link = all.iter().find(|l| l.name == watched.name).with_context(|| {
                format!("{} has vanished; 'ip link' lists the interfaces", watched.name)
            })?;
            let how = source
                .attach(link, i as u8)
                .with_context(|| format!("cannot watch {}", watched.name))?;
            watched.ifindex = Some(link.ifindex);
            tracing::debug!("watching {}: {how}", watched.name);
            points.push(RttPoint { name: watched.name.clone(), how, vanished: 0 });
        }
        let names = self.names();
        for (i, point) in points.iter_mut().enumerate() {
            joins::describe(&mut point.how, i, &self.joined, &names);
        }
        Ok(points)
    }

    /// Lets go of what has vanished and takes up what has returned.
    pub fn follow(
        &mut self,
        source: &mut impl InterfaceWatcher,
        out: &mut RttOutput,
    ) -> anyhow::Result<()> {
        let Some(all) = self.links.changed()? else { return Ok(()) };
        let names = self.names();
        for (i, watched) in self.list.iter_mut().enumerate() {
            let now = all.iter().find(|l| l.name == watched.name);
            let ifindex = now.map(|l| l.ifindex);
            let is_other = watched.ifindex.is_some() && watched.ifindex != ifindex;
            if is_other {
                source.detach(i as u8);
                watched.ifindex = None;
            }
            let presence = LinkPresence::of(now);
            if watched.presence.follow(&watched.name, presence, is_other && now.is_some()) {
                out.change_point(i, |point| point.vanished += 1);
                out.doubt(Caveat::InterfaceVanished);
            }
            let (Some(link), None) = (now, watched.ifindex) else { continue };
            match source.attach(link, i as u8) {
                Ok(mut how) => {
                    joins::describe(&mut how, i, &self.joined, &names);
                    watched.ifindex = ifindex;
                    watched.refused = None;
                    out.change_point(i, |point| point.how = how);
                    tracing::warn!("{} has returned and is watched again", watched.name);
                }
                // It may be gone again, or not be ready: the next change decides.
                Err(error) => {
                    let text = format!("{error:#}");
                    if watched.refused.as_ref() != Some(&text) {
                        tracing::warn!(
                            "{} has returned but cannot be watched: {text}; it is tried again when it changes",
                            watched.name
                        );
                    }
                    watched.refused = Some(text);
                }
            }
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.list.iter().map(|p| p.name.clone()).collect()
    }

    /// Detaches from all interfaces.
    pub fn detach(&mut self, source: &mut impl InterfaceWatcher) {
        for (i, _) in self.list.iter().enumerate().filter(|(_, p)| p.ifindex.is_some()) {
            source.detach(i as u8);
        }
    }
}
