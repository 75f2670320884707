//! HTTP/1.1 for a table of routes: whole requests in, whole answers out.
//!
//! The service controls a traffic generator. So nobody is heard who does not show a token or a
//! certificate: see [`Authentication`]. Plain HTTP is for loopback addresses alone, where a web page that
//! the user looks at must not be able to reach it either: see [`refused`].

mod authentication;
#[cfg(test)]
pub(crate) mod testing;
mod unread;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use axum::Router;
use axum::extract::{self, FromRequest, FromRequestParts as _};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

pub use self::authentication::{Authentication, TOKEN_MIN, Token};
use self::unread::DrainedBody;
use crate::admission::{Admission, AdmittedConnection, ConnectionLimits};

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// At most [`BODY_MAX`] octets.
    pub body: Bytes,
    /// Between whom it came.
    pub ends: ConnectionAddresses,
}

/// The ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAddresses {
    pub peer: IpAddr,
    /// The address of this host that the client has called.
    pub local: IpAddr,
}

impl ConnectionAddresses {
    /// Both on this host.
    pub const LOOPBACK: ConnectionAddresses = ConnectionAddresses {
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
}

/// A server that listens.
pub struct Server {
    listener: std::net::TcpListener,
    access: Authentication,
}

#[derive(Clone, Debug)]
pub struct ServerStop(Arc<watch::Sender<bool>>);

impl ServerStop {
    /// Of a server that is yet to be started.
    pub fn new() -> ServerStop {
        ServerStop(Arc::new(watch::Sender::new(false)))
    }

    /// Requests under way are answered, then [`Server::serve`] returns.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Default for ServerStop {
    fn default() -> ServerStop {
        ServerStop::new()
    }
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
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Server { listener, access })
    }

    /// Where it listens: with port 0 the kernel chose one.
    ///
    /// # Errors
    /// None that could be named.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until stopped.
    ///
    /// # Errors
    /// No threads or no event queue to be had.
    pub fn serve(self, routes: Router, stop: &ServerStop) -> io::Result<()> {
        // One thread moves octets; what answers has its own: see [`work`].
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(SERVICE_THREADS)
            .thread_name("sonde-http")
            .enable_all()
            .build()?;
        let stopped = stop.0.subscribe();
        runtime.block_on(self.accept(routes.fallback(nowhere), stopped))
    }

    async fn accept(self, routes: Router, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let (access, admission) = (Arc::new(self.access), Admission::new(LIMITS));
        // Gone when every connection is.
        let (alive, mut ended) = mpsc::channel::<()>(1);
        loop {
            let stream = tokio::select! {
                _ = stopped.wait_for(|&s| s) => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // Out of descriptors, or a client gone again: the next may do better.
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
                continue;
            };
            let (close, closed) = oneshot::channel::<()>();
            let connection = admission.admit(peer.ip(), move || drop(close));
            let ends = ConnectionAddresses { peer: peer.ip(), local: local.ip() };
            let client = Client {
                access: access.clone(),
                routes: routes.clone(),
                connection: Arc::new(connection),
                ends,
            };
            let (alive, stopped) = (alive.clone(), stopped.clone());
            tokio::spawn(async move {
                let _alive = alive;
                tokio::select! {
                    // The sending half is dropped by `close` alone.
                    _ = closed => {}
                    () = client.serve(stream, stopped) => {}
                }
            });
        }
        drop((listener, alive));
        admission.close_anonymous();
        // Connections that are busy end after their answers.
        let _ = tokio::time::timeout(FAREWELL, ended.recv()).await;
        Ok(())
    }
}

/// Who is at the other end of a connection, and what answers him.
#[derive(Clone)]
struct Client {
    access: Arc<Authentication>,
    routes: Router,
    connection: Arc<AdmittedConnection>,
    ends: ConnectionAddresses,
}

impl Client {
    async fn serve(self, stream: TcpStream, stopped: watch::Receiver<bool>) {
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.access.tls().cloned() else {
            return connection(TokioIo::new(stream), self, stopped).await;
        };
        let made = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await;
        let Ok(Ok(stream)) = made else { return };
        // Without a token it is the certificate that says who it is.
        if self.access.token().is_none() && !self.connection.mark_authenticated() {
            return;
        }
        connection(TokioIo::new(stream), self, stopped).await;
    }
}

async fn connection<I>(io: I, client: Client, mut stopped: watch::Receiver<bool>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let handler = service_fn(move |request| {
        let client = client.clone();
        async move { Ok::<_, Infallible>(handle(request, client).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let connection = builder.serve_connection(io, handler);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stopped.wait_for(|&s| s) => None,
    };
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

async fn handle(request: hyper::Request<Incoming>, client: Client) -> Response {
    let mut answer = answer(DrainedBody::of(request), client).await;
    let headers = answer.headers_mut();
    // A page has parts of a plan in it, which somebody else may have sent.
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(HARMLESS));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

async fn answer(mut request: hyper::Request<DrainedBody>, client: Client) -> Response {
    if let Some(token) = client.access.token() {
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
    routed(client.routes, request).await
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
        let too_long = || {
            let why = format!("a request has at most {BODY_MAX} octets");
            refusal(StatusCode::PAYLOAD_TOO_LARGE, &why)
        };
        if body.size_hint().lower() > BODY_MAX as u64 {
            return Err(too_long());
        }
        let limited = Limited::new(body, BODY_MAX).collect();
        match tokio::time::timeout(PATIENCE, limited).await {
            Ok(Ok(body)) => Ok(Request { body: body.to_bytes(), ends }),
            Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => Err(too_long()),
            Ok(Err(_)) | Err(_) => {
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

fn names_an_address(host: &str) -> bool {
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
const HARMLESS: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";
/// Octets of a request, at most: a configuration of some ten thousand flows.
pub const BODY_MAX: usize = 16 << 20;
/// Connections at a time.
const LIMITS: ConnectionLimits =
    ConnectionLimits { anonymous: 64, anonymous_per_network: 16, authenticated: 64 };
/// Requests that are worked on at a time.
const SERVICE_THREADS: usize = 8;
/// For a request's header, and again for its body.
const PATIENCE: Duration = Duration::from_secs(30);
/// For a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For requests under way when the server is stopped.
const FAREWELL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
