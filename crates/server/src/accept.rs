//! Connections, whatever is asked on them: accepted within limits, TLS, HTTP/1.1, the end.
//!
//! A client that sends or takes nothing for too long loses its connection: it holds one of few.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::Response;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

use crate::admission::{Admission, AdmittedConnection, ConnectionLimits};
use crate::listener::Listener;

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

#[derive(Clone, Debug)]
pub struct ServerStop(Arc<watch::Sender<bool>>);

impl ServerStop {
    /// Of a server that is yet to be started.
    pub fn new() -> ServerStop {
        ServerStop(Arc::new(watch::Sender::new(false)))
    }

    /// Requests under way are answered, streams end, then `serve` returns.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Default for ServerStop {
    fn default() -> ServerStop {
        ServerStop::new()
    }
}

/// What answers the requests of all connections.
pub(crate) trait Site: Send + Sync + 'static {
    /// How connections are encrypted; `None`: they are not.
    fn tls(&self) -> Option<&Arc<rustls::ServerConfig>>;

    /// Whether a TLS handshake authenticates a client, by its certificate.
    fn handshake_authenticates(&self) -> bool;

    /// How long things may take, and how many there may be.
    fn bounds(&self) -> SiteBounds;

    /// Answers a request.
    fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        client: Client,
    ) -> impl Future<Output = Response> + Send;
}

/// The bounds of a site.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteBounds {
    pub connections: ConnectionLimits,
    /// Octets that are held of one connection in either direction, at least 8 KiB.
    pub buffer: usize,
    /// Octets of a request's header.
    pub header: usize,
    /// For octets to move that the client is to take.
    pub stall: Duration,
    /// Requests that are worked on at a time.
    pub threads: usize,
}

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub connection: Arc<AdmittedConnection>,
    pub ends: ConnectionAddresses,
    /// Its user, where it came by a Unix socket.
    pub uid: Option<u32>,
    /// Whether the server is to end.
    pub stopped: watch::Receiver<bool>,
}

/// Serves until stopped.
///
/// # Errors
/// No threads or no event queue to be had.
pub(crate) fn serve<S: Site>(
    listener: Listener,
    site: Arc<S>,
    stop: &ServerStop,
) -> io::Result<()> {
    // One thread moves octets; what answers has its own: `spawn_blocking`.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(site.bounds().threads)
        .thread_name("sonde-http")
        .enable_all()
        .build()?;
    let stopped = stop.0.subscribe();
    let served = runtime.block_on(accept(listener, site, stopped));
    // What still looks for an answer that nobody waits for is left to itself.
    runtime.shutdown_timeout(FAREWELL);
    served
}

async fn accept<S: Site>(
    listener: Listener,
    site: Arc<S>,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = listener.into_async()?;
    let admission = Admission::new(site.bounds().connections);
    // Gone when every connection is.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    loop {
        let (stream, ends) = tokio::select! {
            _ = stopped.wait_for(|&s| s) => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // Out of descriptors, or a client gone again: the next may do better.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (close, closed) = oneshot::channel::<()>();
        let connection = Arc::new(admission.admit(ends.peer, move || drop(close)));
        let uid = stream.uid();
        let client = Client { connection, ends, uid, stopped: stopped.clone() };
        let (alive, site) = (alive.clone(), site.clone());
        tokio::spawn(async move {
            let _alive = alive;
            tokio::select! {
                // The sending half is dropped by `close` alone.
                _ = closed => {}
                () = converse(site, client, stream) => {}
            }
        });
    }
    drop((listener, alive));
    admission.close_anonymous();
    // Connections that are busy end after their answers.
    let _ = tokio::time::timeout(FAREWELL, ended.recv()).await;
    Ok(())
}

async fn converse<S: Site, C>(site: Arc<S>, client: Client, stream: C)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let Some(tls) = site.tls().cloned() else {
        return connection(TokioIo::new(stream), site, client).await;
    };
    let made = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await;
    let Ok(Ok(stream)) = made else { return };
    if site.handshake_authenticates() && !client.connection.mark_authenticated() {
        return;
    }
    connection(TokioIo::new(stream), site, client).await;
}

async fn connection<S: Site, I: Read + Write + Unpin>(io: I, site: Arc<S>, client: Client) {
    let bounds = site.bounds();
    let mut stopped = client.stopped.clone();
    let handler = service_fn(move |request| {
        let answer = site.clone().answer(request, client.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder.max_buf_size(bounds.buffer).max_header_size(bounds.header);
    let io = StallLimited { io, limit: bounds.stall, since: None };
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

/// Why a request's body is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// It is longer than allowed.
    TooLong,
    /// It did not come whole, or not in time.
    NotWhole,
}

/// The whole body of a request, of at most `max` octets.
pub(crate) async fn read_body<B>(body: B, max: usize) -> Result<Bytes, BodyFault>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > max as u64 {
        return Err(BodyFault::TooLong);
    }
    match tokio::time::timeout(PATIENCE, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => Err(BodyFault::TooLong),
        Ok(Err(_)) | Err(_) => Err(BodyFault::NotWhole),
    }
}

/// A connection that ends when its client takes nothing for `limit` while there is something.
struct StallLimited<I> {
    io: I,
    limit: Duration,
    since: Option<Pin<Box<Sleep>>>,
}

impl<I> StallLimited<I> {
    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.since = None;
            return moved;
        }
        let limit = self.limit;
        let since = self.since.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(since.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: Read + Unpin> Read for StallLimited<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: Write + Unpin> Write for StallLimited<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.io).poll_write(context, octets);
        self.watched(context, moved)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.io).poll_flush(context);
        self.watched(context, moved)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.io).poll_shutdown(context);
        self.watched(context, moved)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.watched(context, moved)
    }
}

/// For a request's header, and again for its body.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// For a client to take something of its answer.
pub(crate) const STALL: Duration = Duration::from_secs(60);
/// For a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For requests under way when the server is stopped.
const FAREWELL: Duration = Duration::from_secs(10);
