//! What a route is asked and what it answers, whatever carries them.

use serde::Serialize;

use crate::etag::{EntityTag, TagCondition};
use crate::instant::{GivenInstant, QueryRange, UtcInstant};
use crate::problem::{ProblemDetails, ProblemKind};
use crate::role::Caller;

/// A request that was let in.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// Parameters of the path, then those of the query, decoded.
    pub parameters: Vec<(String, String)>,
    /// The body; empty: there is none.
    pub body: Vec<u8>,
    /// When it came.
    pub now: UtcInstant,
    /// Who asks.
    pub caller: Caller,
    /// Which version a change is for.
    pub if_match: Option<TagCondition>,
    /// The last event that a client of the stream has had.
    pub last_event_id: Option<String>,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiReply {
    /// 200, 201 or 204.
    pub status: u16,
    /// Media type of the body; empty: there is none.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Version of what it shows, where a change can name it.
    pub etag: Option<EntityTag>,
    /// Path of what was made.
    pub location: Option<String>,
    /// Cursor of the next page.
    pub next: Option<String>,
}

/// What a route's function is given: the parameters and body in their types, and who asks.
#[derive(Clone, Debug)]
pub struct Asked<'a, P, B = ()> {
    /// Of path and query.
    pub params: P,
    /// The body.
    pub body: B,
    /// When it was asked.
    pub now: UtcInstant,
    /// By whom.
    pub caller: &'a Caller,
    /// Which version a change is for.
    pub if_match: Option<&'a TagCondition>,
}

/// Who changes something, when, and what it believes to change.
#[derive(Clone, Copy, Debug)]
pub struct ChangeContext<'a> {
    /// Who.
    pub caller: &'a Caller,
    /// When.
    pub now: UtcInstant,
    /// Which version it is for.
    pub if_match: Option<&'a TagCondition>,
}

/// What a route's function answers.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteAnswer<R> {
    /// The body.
    pub body: R,
    /// Version of what it shows, where a change can name it.
    pub etag: Option<EntityTag>,
    /// Path of what was made.
    pub location: Option<String>,
}

impl<R> RouteAnswer<R> {
    /// With the version of what it shows.
    pub fn of_version(body: R, etag: EntityTag) -> RouteAnswer<R> {
        RouteAnswer { etag: Some(etag), ..RouteAnswer::from(body) }
    }
}

impl<R> From<R> for RouteAnswer<R> {
    fn from(body: R) -> RouteAnswer<R> {
        RouteAnswer { body, etag: None, location: None }
    }
}

impl<'a, P, B> Asked<'a, P, B> {
    /// Who changes something, when, and what it believes to change.
    pub fn change(&self) -> ChangeContext<'a> {
        ChangeContext { caller: self.caller, now: self.now, if_match: self.if_match }
    }

    /// The range of the parameters `from` and `to`.
    ///
    /// # Errors
    /// 422: it does not begin before it ends.
    pub fn range(
        &self,
        from: Option<GivenInstant>,
        to: Option<GivenInstant>,
    ) -> Result<QueryRange, ProblemDetails> {
        QueryRange::of(from, to, self.now).ok_or_else(|| {
            let why = "is not before `to`; without them it is the last hour";
            ProblemDetails::of_parameter(ProblemKind::Unprocessable, "from", why)
        })
    }
}

impl ChangeContext<'_> {
    /// Whether it may be made to the version `current`.
    ///
    /// # Errors
    /// 428 where it names none, 412 where it names another.
    pub fn check(&self, current: &EntityTag) -> Result<(), ProblemDetails> {
        TagCondition::check(self.if_match, current)
    }
}

impl ApiReply {
    /// A body in JSON.
    ///
    /// # Errors
    /// 500: it cannot be written as JSON, which is a fault of the station.
    pub fn json(status: u16, body: &impl Serialize) -> Result<ApiReply, ProblemDetails> {
        let body = serde_json::to_vec(body).map_err(|error| {
            ProblemDetails::new(ProblemKind::Internal, format!("the answer is no JSON: {error}"))
        })?;
        Ok(ApiReply { content_type: JSON, ..ApiReply::of(status, body) })
    }

    /// A body of another media type.
    pub fn of(status: u16, body: Vec<u8>) -> ApiReply {
        ApiReply { status, content_type: "", body, etag: None, location: None, next: None }
    }
}

/// Media type of JSON (RFC 8259).
pub const JSON: &str = "application/json";
