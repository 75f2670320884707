//! What happens, as it happens: server-sent events.
//!
//! A client that goes on after a break names the last event that it has had. What the ring still
//! holds is sent again; what it does not is a `gap`, never a silence.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::alerts::AlertGroup;
use crate::events::EventEntry;
use crate::instant::UtcInstant;
use crate::problem::{ProblemDetails, ProblemKind};
use crate::readings::{LiveReading, StateCounts};
use crate::request::ApiRequest;
use crate::ring::LiveRing;
use crate::route::{ApiRoute, RouteHead, asked};
use crate::station::UnitEntry;
use crate::{Backend, ring};

/// Where events come from.
pub trait Live {
    /// The ring that the station publishes to.
    fn live(&self) -> &Arc<LiveRing>;
}

/// Events for one client. It holds a position, never a queue.
pub trait EventStream: Send {
    /// The next one; `None`: there are no more. It wakes the task where there is none yet.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<StreamItem>>;
}

/// What a client gets next.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamItem {
    /// An event.
    Event(Arc<LiveEvent>),
    /// Events were left out: the client was too slow, away for too long, or the station began anew.
    Gap(LiveGap),
}

/// Which event it is: ascending while a station runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LiveEventId {
    /// The station's start, ms since 1970 UTC: no id comes twice.
    pub epoch: u64,
    /// Ascends by one, from 1.
    pub sequence: u64,
}

/// An event as it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEvent {
    /// Which one.
    pub id: LiveEventId,
    /// What it is about.
    pub topic: LiveTopic,
    /// Its data: JSON in one line.
    pub data: Arc<str>,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LiveTopic {
    /// How many streams are in which state.
    State,
    /// Events: breach, recovery and so on.
    Events,
    /// Alert groups.
    Alerts,
    /// Units that start, fail and end.
    Units,
    /// Readings of the series with this id.
    Series(String),
}

/// The data of an event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LiveData {
    /// Topic `state`.
    State {
        /// How many streams are in which state.
        counts: StateCounts,
    },
    /// Topic `events`: an event that is new or has changed.
    Event {
        /// The event.
        event: Box<EventEntry>,
    },
    /// Topic `alerts`: a group that is new or has changed.
    Alert {
        /// The group.
        group: Box<AlertGroup>,
    },
    /// Topic `units`.
    Unit {
        /// The unit.
        unit: Box<UnitEntry>,
    },
    /// Topic `m:ID`.
    Reading {
        /// The newest interval of the series.
        reading: LiveReading,
    },
    /// Events were left out; what is shown has to be read again.
    Gap(LiveGap),
}

/// Events that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LiveGap {
    /// Why.
    pub reason: GapReason,
    /// How many, of all topics; absent: it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// When the client was told.
    pub at: UtcInstant,
}

/// Why events were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The client takes them slower than they come.
    SlowClient,
    /// It was away for longer than the ring holds.
    TooLongAway,
    /// The station was started anew.
    StationRestarted,
    /// What it says of its last event is no id.
    UnknownId,
}

/// Parameters of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamParams {
    /// Topics: `state`, `events`, `alerts`, `units`, and `m:ID` for the readings of a series.
    /// Absent: all but readings.
    #[serde(default)]
    pub topics: Vec<String>,
}

impl LiveTopic {
    /// Reads a topic; `None`: there is no such topic.
    pub fn parse(text: &str) -> Option<LiveTopic> {
        Some(match text {
            "state" => LiveTopic::State,
            "events" => LiveTopic::Events,
            "alerts" => LiveTopic::Alerts,
            "units" => LiveTopic::Units,
            other => match other.strip_prefix("m:")? {
                "" => return None,
                id => LiveTopic::Series(id.to_owned()),
            },
        })
    }

    /// What `event:` says.
    pub fn name(&self) -> &'static str {
        match self {
            LiveTopic::State => "state",
            LiveTopic::Events => "events",
            LiveTopic::Alerts => "alerts",
            LiveTopic::Units => "units",
            LiveTopic::Series(_) => "reading",
        }
    }
}

impl LiveEventId {
    /// Reads what stands in `id:`.
    pub fn parse(text: &str) -> Option<LiveEventId> {
        let (epoch, sequence) = text.split_once('-')?;
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| text.parse().ok()).flatten()
        };
        Some(LiveEventId { epoch: number(epoch)?, sequence: number(sequence)? })
    }
}

impl fmt::Display for LiveEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.sequence)
    }
}

impl StreamItem {
    /// Its text in the stream (HTML standard, section 9.2.6).
    pub fn to_text(&self) -> String {
        match self {
            StreamItem::Event(event) => {
                // Data of one line: JSON has no line ends in it.
                format!("id: {}\nevent: {}\ndata: {}\n\n", event.id, event.topic.name(), event.data)
            }
            // Without an id: a client that loses this one, too, is told again.
            StreamItem::Gap(gap) => {
                let data = serde_json::to_string(&LiveData::Gap(*gap)).unwrap_or_default();
                format!("event: gap\ndata: {data}\n\n")
            }
        }
    }
}

/// What the stream begins with: after how many ms a client tries again.
pub const STREAM_START: &str = "retry: 3000\n\n";
/// What keeps the connection where nothing happens.
pub const KEEP_ALIVE: &str = ": keep-alive\n\n";
/// Media type of server-sent events.
pub const EVENT_STREAM: &str = "text/event-stream";

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = RouteHead {
        path: "/sonde/v1/stream",
        operation: "live_stream",
        summary: "Events as they happen, resumed by Last-Event-ID",
    };
    vec![ApiRoute::stream::<StreamParams, LiveData>(head, follow)]
}

fn follow(
    backend: &dyn Backend,
    request: &ApiRequest,
) -> Result<Box<dyn EventStream>, ProblemDetails> {
    let params = asked::<StreamParams>(request)?.params;
    let mut topics = Vec::new();
    for text in &params.topics {
        topics.push(LiveTopic::parse(text).ok_or_else(|| {
            let why = format!("'{text}' is no topic; those are state, events, alerts, units, m:ID");
            ProblemDetails::of_parameter(ProblemKind::Malformed, "topics", why)
        })?);
    }
    if topics.is_empty() {
        topics = vec![LiveTopic::State, LiveTopic::Events, LiveTopic::Alerts, LiveTopic::Units];
    }
    if topics.len() > TOPICS_MAX {
        let why = format!("has {}; a stream has at most {TOPICS_MAX}", topics.len());
        return Err(ProblemDetails::of_parameter(ProblemKind::Unprocessable, "topics", why));
    }
    if !backend.live().has_room_for(&topics) {
        let why = "other clients follow as many series as can be; follow those, or fewer";
        return Err(ProblemDetails::new(ProblemKind::TooManyRequests, why).retry_after(60));
    }
    let after = request.last_event_id.as_deref();
    Ok(Box::new(ring::LiveRing::follow(backend.live(), after, topics, request.now)))
}

/// Topics of one stream, at most: what a page shows.
const TOPICS_MAX: usize = 64;
