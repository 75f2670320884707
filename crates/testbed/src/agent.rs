//! This host's ports as sources and sinks of somebody else's benchmark.
//!
//! The order of reading: `protocol` what is said, `serve` the agent, `clock` how their clocks
//! are compared, `link` and `rig` the controller, which is a [`crate::runner::Rig`].

pub mod cert;
pub mod clock;
pub mod link;
pub mod protocol;
pub mod remote;
pub mod rig;
mod serve;
mod settings;

use std::net::SocketAddr;
use std::time::SystemTime;

use anyhow::Context as _;
use serde::Serialize;
use sonde_run::error::RunError;
use sonde_run::running::{Context, Ended, Latest, Running, records};
use sonde_sys::schedule::prefer_with_children;
use sonde_wire::prefix::BENCHMARK_PREFIXES;

use self::serve::Agent;
pub use self::settings::Settings;
use crate::tls::{self, Role};

/// An agent that serves.
pub type ServingAgent = Running<Event, Status, ()>;

/// What an agent starts from.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Where it listens: with port 0 the kernel chose one.
    pub address: SocketAddr,
    /// Its certificate will be out of date within a month.
    pub ends_soon: bool,
}

/// What an agent hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A controller has the ports.
    Taken(SocketAddr),
    /// It has gone.
    Freed(SocketAddr),
}

/// How an agent goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The controller that has the ports.
    pub controller: Option<SocketAddr>,
    /// Controllers that have had them.
    pub sessions: u64,
    /// Connections that came to nothing.
    pub complaints: u64,
}

/// Listens, and lends this host's ports to one controller at a time. The scheduler prefers the
/// threads that serve.
///
/// # Errors
/// Certificates that are not good, an address that cannot be listened on.
pub fn start(settings: Settings, context: &Context) -> Result<(About, ServingAgent), RunError> {
    settings.check()?;
    let Settings { listen, cert, key, ca, allow } = &settings;
    let tls = tls::server(cert, key, Some(ca))?;
    tls::fit(cert, ca, Role::Agent, SystemTime::now())?;
    let allowed = BENCHMARK_PREFIXES.iter().chain(allow).copied().collect();
    let (sender, receiver) = records(ROOM);
    let status = Latest::new(Status::default());
    let agent = Agent::bind(*listen, tls, allowed, sender, status.clone())?;
    let address = agent.address().context("cannot read which address was taken")?;
    let about = About { address, ends_soon: tls::ends_soon(cert, ca, Role::Agent) };
    context.opened(&settings.uses(), &[])?;
    let (theirs, stop, asked) = (status.clone(), context.stop.clone(), context.stop.clone());
    let work = move || {
        // Other work on this host would make trials invalid. All threads that serve come from
        // this one.
        if let Err(e) = prefer_with_children() {
            tracing::warn!("this agent's trials do not go before other work of this host: {e}");
        }
        agent.serve(&asked);
        let Status { sessions, complaints, .. } = theirs.get();
        let counters = [("sessions", sessions), ("complaints", complaints)];
        let counters = counters.map(|(name, n)| (name.to_owned(), n)).into();
        Ended { counters, ..Ended::default() }
    };
    Ok((about, Running::start("sonde-agent", (receiver, status, ()), stop, work)?))
}

/// Comings and goings that a reader may be late by.
const ROOM: usize = 1_024;
