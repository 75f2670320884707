//! A station's HTTP API: [`sonde_api::routes`] over HTTP/1.1.
//!
//! The table is walked; no route is written here. What is here is the same for every route: who
//! asks, limits, conditions, encodings, events. It knows a [`Backend`] and no station.

mod dispatch;
mod encoding;
mod idempotency;
mod limit;
mod sse;
mod tokens;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use hyper::body::Incoming;
use sonde_api::openmetrics::MetricsSnapshot;
use sonde_api::{AccessRole, Backend};

pub use self::limit::CallLimits;
pub use self::tokens::{ApiToken, TokenFileError, TokenStore, parse_tokens};
use crate::accept::{self, Client, ServerStop, Site, SiteBounds};
use crate::admission::ConnectionLimits;
use crate::listener::Listener;

/// Who may ask, and how it is kept from others.
#[derive(Clone, Default)]
pub struct ApiAccess {
    /// `None`: HTTP in the clear.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The tokens that are let in.
    pub tokens: Arc<TokenStore>,
    /// What those may do who show no token; `None`: nothing.
    pub anonymous: Option<AccessRole>,
    /// Names by which this host may be called, beside its addresses and `localhost`.
    pub names: Vec<String>,
    /// An address that others reach may be bound without TLS and tokens.
    pub exposed: bool,
}

/// How long things may take, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiLimits {
    /// Octets of a body.
    pub body: usize,
    /// For an answer to be found.
    pub answer: Duration,
    /// For a client to take something of its answer.
    pub stall: Duration,
    /// Between two comments on a stream on which nothing happens.
    pub keep_alive: Duration,
    /// What is done for one caller, and for all.
    pub calls: CallLimits,
    /// Connections at a time.
    pub connections: ConnectionLimits,
}

impl Default for ApiLimits {
    fn default() -> ApiLimits {
        ApiLimits {
            body: 1 << 20,
            answer: Duration::from_secs(60),
            stall: accept::STALL,
            keep_alive: Duration::from_secs(15),
            calls: CallLimits::default(),
            // More than streams: those who stream keep nobody else out.
            connections: ConnectionLimits {
                anonymous: 256,
                anonymous_per_network: 64,
                authenticated: 1_280,
            },
        }
    }
}

/// What a server is given besides the backend.
#[derive(Clone, Default)]
pub struct ApiHooks {
    /// Counts of the station, for `/metrics`; `None`: there is no such page.
    pub metrics: Option<Arc<dyn Fn() -> MetricsSnapshot + Send + Sync>>,
    /// Whether the station works, for `/-/ready`; `None`: as soon as it serves.
    pub ready: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// A server that listens.
pub struct ApiServer {
    listener: Listener,
    access: ApiAccess,
}

impl ApiServer {
    /// Takes the address.
    ///
    /// # Errors
    /// `PermissionDenied`: an address that others reach, without TLS and tokens, or where
    /// everybody may ask, and `exposed` is not set; what the kernel refuses.
    pub fn bind(address: SocketAddr, access: ApiAccess) -> io::Result<ApiServer> {
        if let Some(why) = access.refuses(address) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(ApiServer { listener: Listener::tcp(address)?, access })
    }

    /// Takes a Unix socket that only this process's user may connect to, mode 0600. One that
    /// nobody answers on is replaced; ours is removed once it is served no more.
    ///
    /// # Errors
    /// `AddrInUse`: somebody answers on it; `AlreadyExists`: a file is there that is no socket;
    /// what the kernel refuses.
    pub fn bind_socket(path: &Path, access: ApiAccess) -> io::Result<ApiServer> {
        Ok(ApiServer { listener: Listener::unix(path)?, access })
    }

    /// Where it listens: with port 0 the kernel chose one.
    ///
    /// # Errors
    /// `Unsupported`: it is a Unix socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }

    /// Serves until stopped.
    ///
    /// # Errors
    /// No threads or no event queue to be had.
    pub fn serve(
        self,
        backend: Arc<dyn Backend>,
        limits: ApiLimits,
        hooks: ApiHooks,
        stop: &ServerStop,
    ) -> io::Result<()> {
        let site = dispatch::Dispatch::new(self.access, backend, limits, hooks);
        accept::serve(self.listener, Arc::new(site), stop)
    }
}

impl ApiAccess {
    /// Why the address cannot be bound so; `None`: it can.
    fn refuses(&self, address: SocketAddr) -> Option<String> {
        if address.ip().is_loopback() || self.exposed {
            return None;
        }
        let lacks = match () {
            () if self.tls.is_none() => "without TLS they would read the tokens",
            () if self.anonymous.is_some() => "whoever shows no token is let in, too",
            () if self.tokens.is_empty() => "there are no tokens",
            () => return None,
        };
        Some(format!(
            "{address} can be reached by others, and {lacks}; give it TLS and tokens, listen on a \
             loopback address, or set `exposed`"
        ))
    }
}

impl Site for dispatch::Dispatch {
    fn tls(&self) -> Option<&Arc<rustls::ServerConfig>> {
        self.access.tls.as_ref()
    }

    fn handshake_authenticates(&self) -> bool {
        false
    }

    fn bounds(&self) -> SiteBounds {
        SiteBounds {
            connections: self.limits.connections,
            buffer: BUFFER,
            header: HEADER,
            stall: self.limits.stall,
            threads: dispatch::WORKERS,
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        client: Client,
    ) -> Response {
        self.respond(request, client).await
    }
}

/// Octets of a connection that are held in either direction.
const BUFFER: usize = 64 << 10;
/// Octets of a request's header.
const HEADER: usize = 16 << 10;

#[cfg(test)]
mod tests;
