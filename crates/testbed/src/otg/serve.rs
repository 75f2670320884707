//! The generator and the runs of plans behind HTTP.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ring::rand::{SecureRandom as _, SystemRandom};
use sonde_run::error::RunError;
use sonde_run::running::{Context, Ended, Latest, Running, SetOnDrop, Stop, records};
use sonde_server::http::{self, Authentication, Router, Server};
use sonde_server::{otg, runs as plans};
use sonde_sys::schedule::prefer_with_children;
use sonde_wire::prefix::BENCHMARK_PREFIXES;
use sonde_wire::signature::Secret;

use super::{Allowed, OtgGenerator, PlanRuns, Settings, token};
use crate::tls;

/// A server of the model at work. What it measures is asked for over HTTP.
pub type ServingOtg = Running<Infallible, (), ()>;

/// What a server starts from.
#[derive(Clone, Debug)]
pub struct About {
    /// Where it is, with the token where that is kept in no file.
    pub url: String,
}

/// Listens, and obeys clients. The scheduler prefers its threads.
///
/// # Errors
/// Settings that cannot be; certificates, a token or a folder that cannot be had; an address that
/// cannot be listened on.
pub fn start(settings: Settings, context: &Context) -> Result<(About, ServingOtg), RunError> {
    settings.check()?;
    let scheme = if settings.cert.is_some() { "https" } else { "http" };
    let (access, shown) = access(&settings)?;
    let Settings { listen, allow, allow_ethertype, runs, .. } = &settings;
    let allowed = Allowed {
        prefixes: BENCHMARK_PREFIXES.iter().chain(allow).copied().collect(),
        types: allow_ethertype.iter().map(|t| t.0).collect(),
    };
    let generator = Arc::new(OtgGenerator::new(allowed.clone(), secret()?));
    let invocation = context.invocation.clone();
    let open =
        |folder| PlanRuns::open(folder, allowed, generator.clone(), invocation).map(Arc::new);
    let runs = runs.as_deref().map(open).transpose()?;
    let routes = otg::routes(generator).merge(plans::routes(runs.clone()));
    let server = Server::bind(*listen, access).with_context(|| {
        format!("`listen`: cannot listen on {listen}; 'ss -lnt' shows who does")
    })?;
    let address = server.address().context("cannot read which address was taken")?;
    context.opened(&settings.uses(), &[])?;
    let (_, receiver) = records(0);
    let (stop, asked) = (context.stop.clone(), context.stop.clone());
    let work = move || {
        // Other work on this host would spoil flows. All threads that serve, and those of the
        // ports, come from this one.
        if let Err(e) = prefer_with_children() {
            tracing::warn!("flows do not go before other work of this host: {e}");
        }
        let served = serve(server, routes, &asked).context("the server failed");
        runs.iter().for_each(|runs| runs.end());
        Ended { failure: served.err().map(RunError::Host), ..Ended::default() }
    };
    let parts = (receiver, Latest::new(()), ());
    let running = Running::start("sonde-otg", parts, stop, work)?;
    Ok((About { url: format!("{scheme}://{shown}{address}") }, running))
}

/// Until the end is asked for.
fn serve(server: Server, routes: Router, asked: &Stop) -> io::Result<()> {
    let (stop, ended) = (http::ServerStop::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&ended);
        std::thread::Builder::new().name("sonde-stop".into()).spawn_scoped(scope, || {
            while !asked.wait(LOOK) && !ended.load(Ordering::Relaxed) {}
            stop.stop();
        })?;
        server.serve(routes, &stop)
    })
}

/// Who may come in, and what of it stands in the address that is shown.
fn access(settings: &Settings) -> Result<(Authentication, String), RunError> {
    let ca = settings.ca.as_deref();
    let tls = match (&settings.cert, &settings.key) {
        (Some(cert), Some(key)) => Some(Arc::new(tls::server(cert, key, ca)?)),
        _ => None,
    };
    if let (Some(tls), Some(_)) = (&tls, ca) {
        return Ok((Authentication::Certificates(tls.clone()), String::new()));
    }
    let token = token::of(settings.token_file.as_deref())?;
    // Who keeps it in a file need not see it in a log.
    let shown = match settings.token_file {
        Some(_) => String::new(),
        None => format!("sonde:{}@", token.text()),
    };
    let access = match tls {
        Some(tls) => Authentication::TlsToken(tls, token),
        None => Authentication::Token(token),
    };
    Ok((access, shown))
}

/// Drawn anew by every server, so that frames of another one are distinguished.
fn secret() -> anyhow::Result<Secret> {
    let mut drawn = [[0; 8]; 2];
    for half in &mut drawn {
        SystemRandom::new()
            .fill(half)
            .map_err(|_| anyhow!("the kernel gives no random numbers (getrandom)"))?;
    }
    Ok(Secret(drawn.map(u64::from_ne_bytes)))
}

/// Between two looks at whether the server has ended by itself.
const LOOK: Duration = Duration::from_millis(200);
