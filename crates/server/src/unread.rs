//! What is left of a request whose answer is known before all of it has come.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;

use crate::accept::PATIENCE;

/// A request's body. What nobody has read when it is dropped is taken off the connection, up to
/// a bound: a client that writes all before it reads would find its connection reset
/// instead of an answer (RFC 9112, section 9.6).
pub(crate) struct DrainedBody {
    /// `None`: being dropped.
    body: Option<Incoming>,
    /// The client sends it, or has begun to.
    comes: bool,
    /// Octets, at most, that are read for the sake of the answer.
    drained_max: usize,
}

impl DrainedBody {
    /// Of which at most `drained_max` octets are read that nobody asked for.
    pub fn of(request: Request<Incoming>, drained_max: usize) -> Request<DrainedBody> {
        // Whoever waits for an interim answer sends nothing after a final one (RFC 9110, section
        // 10.1.1), and to read would be to send the former.
        let comes = !request.headers().contains_key(EXPECT);
        request.map(|body| DrainedBody { body: Some(body), comes, drained_max })
    }
}

impl Body for DrainedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        self.comes = !matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for DrainedBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| self.comes && !body.is_end_stream()) {
            tokio::spawn(drain(body, self.drained_max));
        }
    }
}

async fn drain(mut body: Incoming, mut left: usize) {
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    let _ = tokio::time::timeout(PATIENCE, read).await;
}
