//! A stream of events as the body of an answer.
//!
//! The next event is taken from the ring when the connection has room for it, never before: what
//! a slow client does not take is in no queue.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use sonde_api::live::{EventStream, KEEP_ALIVE, STREAM_START};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::limit::Counted;
use crate::admission::BusyGuard;

pub(super) struct EventBody {
    stream: Box<dyn EventStream>,
    begun: bool,
    ended: bool,
    every: Duration,
    keep_alive: Pin<Box<Sleep>>,
    /// Of the token.
    expires: Option<Pin<Box<Sleep>>>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    _counted: Counted,
    _busy: BusyGuard,
}

impl EventBody {
    /// Ends when the server is stopped, or after `lasts`. A comment comes where nothing happens for
    /// so long.
    pub fn new(
        stream: Box<dyn EventStream>,
        every: Duration,
        lasts: Option<Duration>,
        mut stopped: watch::Receiver<bool>,
        counted: Counted,
        busy: BusyGuard,
    ) -> EventBody {
        let stopped = async move {
            // An error: the server is gone.
            let _ = stopped.wait_for(|&s| s).await;
        };
        EventBody {
            stream,
            begun: false,
            ended: false,
            every,
            keep_alive: Box::pin(tokio::time::sleep(every)),
            expires: lasts.map(|lasts| Box::pin(tokio::time::sleep(lasts))),
            stopped: Box::pin(stopped),
            _counted: counted,
            _busy: busy,
        }
    }

    /// The next piece of text; `None`: there is no more.
    fn poll_text(&mut self, context: &mut Context<'_>) -> Poll<Option<String>> {
        if !self.begun {
            self.begun = true;
            return Poll::Ready(Some(STREAM_START.to_owned()));
        }
        let over = self.expires.as_mut().is_some_and(|at| at.as_mut().poll(context).is_ready());
        if over || self.ended || self.stopped.as_mut().poll(context).is_ready() {
            self.ended = true;
            return Poll::Ready(None);
        }
        let next = match self.stream.poll_next(context) {
            Poll::Ready(Some(item)) => item.to_text(),
            Poll::Ready(None) => {
                self.ended = true;
                return Poll::Ready(None);
            }
            Poll::Pending => {
                std::task::ready!(self.keep_alive.as_mut().poll(context));
                KEEP_ALIVE.to_owned()
            }
        };
        let again = Instant::now() + self.every;
        self.keep_alive.as_mut().reset(again);
        Poll::Ready(Some(next))
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_text(context).map(|text| text.map(|text| Ok(Frame::data(text.into()))))
    }
}
