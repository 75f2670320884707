//! HTTP/1.1 for a table of routes: whole requests in, whole answers out.
//!
//! The service controls a traffic generator. So nobody is heard who does not show a token or a
//! certificate: see [`Authentication`]. Plain HTTP is for loopback addresses alone, where a web page that
//! the user looks at must not be able to reach it either: see [`refused`].

mod authentication;
#[cfg(test)]
pub(crate) mod testing;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use axum::Router;
use axum::extract::{self, FromRequest, FromRequestParts as _};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode, Uri};
use serde_json::json;
use tower_service::Service as _;

pub use self::authentication::{Authentication, TOKEN_MIN, Token};
use crate::accept::{self, BodyFault, Client, Site, SiteBounds};
pub use crate::accept::{ConnectionAddresses, ServerStop};
use crate::admission::ConnectionLimits;
use crate::listener::Listener;
use crate::unread::DrainedBody;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// At most [`BODY_MAX`] octets.
    pub body: Bytes,
    /// Between whom it came.
    pub ends: ConnectionAddresses,
}

/// A server that listens.
pub struct Server {
    listener: Listener,
    access: Authentication,
}

impl Server {
    /// Takes the address. Without TLS only a loopback address will do.
    ///
    /// # Errors
    /// `PermissionDenied`: another address without TLS; what the kernel refuses.
    pub fn bind(address: SocketAddr, access: Authentication) -> io::Result<Server> {
        if access.tls().is_none() && !address.ip().is_loopback() {
            let why = format!("{address} can be reached by others, who would read the token");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Server { listener: Listener::tcp(address)?, access })
    }

    /// Where it listens: with port 0 the kernel chose one.
    ///
    /// # Errors
    /// None that could be named.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }

    /// Serves until stopped.
    ///
    /// # Errors
    /// No threads or no event queue to be had.
    pub fn serve(self, routes: Router, stop: &ServerStop) -> io::Result<()> {
        let site = OtgSite { access: self.access, routes: routes.fallback(nowhere) };
        accept::serve(self.listener, Arc::new(site), stop)
    }
}

/// Who may ask, and what answers.
struct OtgSite {
    access: Authentication,
    routes: Router,
}

impl Site for OtgSite {
    fn tls(&self) -> Option<&Arc<rustls::ServerConfig>> {
        self.access.tls()
    }

    fn handshake_authenticates(&self) -> bool {
        // Without a token it is the certificate that says who it is.
        self.access.token().is_none()
    }

    fn bounds(&self) -> SiteBounds {
        SiteBounds {
            connections: LIMITS,
            buffer: BUFFER,
            header: BUFFER,
            stall: accept::STALL,
            threads: SERVICE_THREADS,
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        client: Client,
    ) -> Response {
        handle(request, &self, client).await
    }
}

async fn handle(request: hyper::Request<Incoming>, site: &OtgSite, client: Client) -> Response {
    let mut answer = answer(DrainedBody::of(request, DRAINED_MAX), site, client).await;
    let headers = answer.headers_mut();
    // A page has parts of a plan in it, which somebody else may have sent.
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(HARMLESS));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

async fn answer(
    mut request: hyper::Request<DrainedBody>,
    site: &OtgSite,
    client: Client,
) -> Response {
    if let Some(token) = site.access.token() {
        if !token.is_shown(request.headers()) {
            let why = "show the token that 'sonde otg' printed or keeps in its file: \
                       http://sonde:TOKEN@ADDRESS, or Authorization: Bearer TOKEN";
            let ask = [(WWW_AUTHENTICATE, "Basic realm=\"sonde\"")];
            return (ask, refusal(StatusCode::UNAUTHORIZED, why)).into_response();
        }
        if !client.connection.mark_authenticated() {
            let why = "too many clients are being served; try again";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why);
        }
    }
    let _work = client.connection.busy();
    if let Some((status, why)) = refused(request.method(), request.headers()) {
        return refusal(status, &why);
    }
    request.extensions_mut().insert(client.ends);
    routed(site.routes.clone(), request).await
}

/// The answer of the routes, with the reason where a path does not take the method.
async fn routed<B>(mut routes: Router, mut request: hyper::Request<B>) -> Response
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // axum would answer it as GET; no path takes either of these.
    if method == Method::HEAD {
        *request.method_mut() = Method::TRACE;
    }
    let Ok(answer) = routes.call(request).await;
    if answer.status() != StatusCode::METHOD_NOT_ALLOWED {
        return answer;
    }
    let allowed = answer.headers().get(ALLOW).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let allowed: Vec<&str> = allowed.split(',').filter(|m| *m != "HEAD").collect();
    let why = format!("{path} takes {}, not {method}", allowed.join(" and "));
    let refusal = refusal(StatusCode::METHOD_NOT_ALLOWED, &why);
    ([(ALLOW, allowed.join(", "))], refusal).into_response()
}

async fn nowhere(uri: Uri) -> Response {
    refusal(StatusCode::NOT_FOUND, &format!("there is no {} here", uri.path()))
}

impl<S: Send + Sync> FromRequest<S> for Request {
    type Rejection = Response;

    async fn from_request(request: extract::Request, state: &S) -> Result<Request, Response> {
        let (mut head, body) = request.into_parts();
        let ends = Extension::from_request_parts(&mut head, state).await;
        let Extension(ends) = ends.map_err(IntoResponse::into_response)?;
        match accept::read_body(body, BODY_MAX).await {
            Ok(body) => Ok(Request { body, ends }),
            Err(BodyFault::TooLong) => {
                let why = format!("a request has at most {BODY_MAX} octets");
                Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, &why))
            }
            Err(BodyFault::NotWhole) => {
                let why = "the request did not come whole, or not in time";
                Err(refusal(StatusCode::REQUEST_TIMEOUT, why))
            }
        }
    }
}

/// An answer that is found on a thread which may block.
pub(crate) async fn work<A, E>(find: impl FnOnce() -> Result<A, E> + Send + 'static) -> Response
where
    A: IntoResponse + Send + 'static,
    E: IntoResponse + Send + 'static,
{
    tokio::task::spawn_blocking(find).await.map_or_else(
        |_| {
            let why = "this request ended in an internal error; the server's output has more";
            refusal(StatusCode::INTERNAL_SERVER_ERROR, why)
        },
        IntoResponse::into_response,
    )
}

/// A reason in the form of the model's Error object.
pub(crate) fn refusal(status: StatusCode, why: &str) -> Response {
    let kind = if status.is_server_error() { "internal" } else { "validation" };
    error(status, kind, &[why.to_owned()])
}

/// The model's Error object.
pub(crate) fn error(status: StatusCode, kind: &str, errors: &[String]) -> Response {
    let body = json!({ "code": status.as_u16(), "kind": kind, "errors": errors });
    (status, Json(body)).into_response()
}

/// What a browser may have been led to send by somebody else's page.
///
/// Refused is a name that is not this host's own (DNS rebinding). So is a body that a page may send
/// without being allowed to (RFC 9110 leaves it to us). Browsers ask first for application/json.
fn refused(method: &Method, headers: &HeaderMap) -> Option<(StatusCode, String)> {
    let host = headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if !names_an_address(host) {
        let why = format!("'{host}' is no address; use this server's address, or localhost");
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|t| t.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if method != Method::GET && !kind.eq_ignore_ascii_case("application/json") {
        let why = format!("'{kind}' is not taken; send Content-Type: application/json");
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    None
}

pub(crate) fn names_an_address(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// No scripts, nothing from elsewhere, nothing to send anything with.
pub(crate) const HARMLESS: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";
/// Octets of a request, at most: a configuration of some ten thousand flows.
pub const BODY_MAX: usize = 16 << 20;
/// Octets of a refused request, at most, that are read for the sake of its answer.
const DRAINED_MAX: usize = 4 * BODY_MAX;
/// Connections at a time.
const LIMITS: ConnectionLimits =
    ConnectionLimits { anonymous: 64, anonymous_per_network: 16, authenticated: 64 };
/// Requests that are worked on at a time.
const SERVICE_THREADS: usize = 8;
/// Octets of a connection that are held in either direction; hyper's own choice.
const BUFFER: usize = 8192 + 4096 * 100;

#[cfg(test)]
mod tests;
