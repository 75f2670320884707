//! What a client is told when a request is not carried out: RFC 9457.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kinds of problems. Each has one status, title and advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A parameter or body that cannot be read.
    Malformed,
    /// No token, an unknown or an expired one.
    Unauthenticated,
    /// The token's role does not allow it.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The path takes other methods.
    MethodNotAllowed,
    /// The request did not come in time.
    RequestTimeout,
    /// It contradicts what is there.
    Conflict,
    /// What was to be changed is another by now.
    Stale,
    /// The body is too long.
    TooLarge,
    /// The body is in another format.
    MediaType,
    /// The request came to a name that is not this station's.
    Misdirected,
    /// It can be read, and its values cannot be.
    Unprocessable,
    /// A change has to name the version that it changes.
    PreconditionRequired,
    /// More requests than the limits allow.
    TooManyRequests,
    /// The station failed.
    Internal,
    /// This station does not have that part.
    NotOffered,
    /// It cannot be answered now.
    Unavailable,
}

/// A problem (RFC 9457), in `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemDetails {
    /// Which kind, as a URI reference: a fragment of the API's document, where its advice stands.
    #[serde(rename = "type")]
    pub kind_uri: Box<str>,
    /// The kind in words; the same for every problem of the kind.
    pub title: Box<str>,
    /// The status of the response.
    pub status: u16,
    /// What happened, to what, and the next step.
    pub detail: String,
    /// Path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Box<str>>,
    /// Each part of the request that is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RequestError>,
    /// Seconds after which another try may do better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u32>,
}

/// A part of a request that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestError {
    /// JSON pointer (RFC 6901) into the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Name of the parameter, if it is none of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// What is wrong, and what is allowed.
    pub detail: String,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [ProblemKind; 17] = {
        use ProblemKind::*;
        [
            Malformed,
            Unauthenticated,
            Forbidden,
            NotFound,
            MethodNotAllowed,
            RequestTimeout,
            Conflict,
            Stale,
            TooLarge,
            MediaType,
            Misdirected,
            Unprocessable,
            PreconditionRequired,
            TooManyRequests,
            Internal,
            NotOffered,
            Unavailable,
        ]
    };

    /// Its name in the document and in [`ProblemDetails::kind_uri`].
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Malformed => "malformed",
            ProblemKind::Unauthenticated => "unauthenticated",
            ProblemKind::Forbidden => "forbidden",
            ProblemKind::NotFound => "not_found",
            ProblemKind::MethodNotAllowed => "method_not_allowed",
            ProblemKind::RequestTimeout => "request_timeout",
            ProblemKind::Conflict => "conflict",
            ProblemKind::Stale => "stale",
            ProblemKind::TooLarge => "too_large",
            ProblemKind::MediaType => "media_type",
            ProblemKind::Misdirected => "misdirected",
            ProblemKind::Unprocessable => "unprocessable",
            ProblemKind::PreconditionRequired => "precondition_required",
            ProblemKind::TooManyRequests => "too_many_requests",
            ProblemKind::Internal => "internal",
            ProblemKind::NotOffered => "not_offered",
            ProblemKind::Unavailable => "unavailable",
        }
    }

    /// The status of its responses.
    pub fn status(self) -> u16 {
        match self {
            ProblemKind::Malformed => 400,
            ProblemKind::Unauthenticated => 401,
            ProblemKind::Forbidden => 403,
            ProblemKind::NotFound => 404,
            ProblemKind::MethodNotAllowed => 405,
            ProblemKind::RequestTimeout => 408,
            ProblemKind::Conflict => 409,
            ProblemKind::Stale => 412,
            ProblemKind::TooLarge => 413,
            ProblemKind::MediaType => 415,
            ProblemKind::Misdirected => 421,
            ProblemKind::Unprocessable => 422,
            ProblemKind::PreconditionRequired => 428,
            ProblemKind::TooManyRequests => 429,
            ProblemKind::Internal => 500,
            ProblemKind::NotOffered => 501,
            ProblemKind::Unavailable => 503,
        }
    }

    /// What it is, in words.
    pub fn title(self) -> &'static str {
        match self {
            ProblemKind::Malformed => "The request cannot be read",
            ProblemKind::Unauthenticated => "No valid token was shown",
            ProblemKind::Forbidden => "The token's role does not allow this",
            ProblemKind::NotFound => "There is no such resource",
            ProblemKind::MethodNotAllowed => "The path does not take this method",
            ProblemKind::RequestTimeout => "The request did not come in time",
            ProblemKind::Conflict => "The request contradicts the present state",
            ProblemKind::Stale => "The resource was changed meanwhile",
            ProblemKind::TooLarge => "The body is too long",
            ProblemKind::MediaType => "The body is in another format",
            ProblemKind::Misdirected => "The request came to a name that is not this station's",
            ProblemKind::Unprocessable => "The values cannot be",
            ProblemKind::PreconditionRequired => "The change does not name the version it changes",
            ProblemKind::TooManyRequests => "More requests than the limits allow",
            ProblemKind::Internal => "The station failed",
            ProblemKind::NotOffered => "This station does not have this part",
            ProblemKind::Unavailable => "The station cannot answer now",
        }
    }

    /// What the client can do, in one line.
    pub fn advice(self) -> &'static str {
        match self {
            ProblemKind::Malformed => "correct what `errors` names",
            ProblemKind::Unauthenticated => {
                "send `Authorization: Bearer TOKEN` with a token that has not expired"
            }
            ProblemKind::Forbidden => {
                "use a token whose role is at least the one that the document gives the operation"
            }
            ProblemKind::NotFound => "list the collection, and use an id from there",
            ProblemKind::MethodNotAllowed => "use one of the methods in `Allow`",
            ProblemKind::RequestTimeout => "send the header and the body within 30 s each",
            ProblemKind::Conflict => "read the resource, and change the request accordingly",
            ProblemKind::Stale => "read the resource again, and send its new ETag in `If-Match`",
            ProblemKind::TooLarge => "send at most 1 MiB, in several requests if need be",
            ProblemKind::MediaType => "send `Content-Type: application/json`",
            ProblemKind::Misdirected => {
                "use the station's address or localhost, or add the name to its configuration"
            }
            ProblemKind::Unprocessable => "correct what `errors` names",
            ProblemKind::PreconditionRequired => {
                "read the resource, and send its ETag in `If-Match`"
            }
            ProblemKind::TooManyRequests => "wait for the seconds in `Retry-After`",
            ProblemKind::Internal => "look at the station's log; the same request may fail again",
            ProblemKind::NotOffered => "ask another station, or configure the part",
            ProblemKind::Unavailable => "try again after the seconds in `Retry-After`",
        }
    }

    /// Its URI reference: a fragment of the document, by JSON pointer.
    pub fn uri(self) -> String {
        format!("{DOCUMENT_PATH}#/x-problems/{}", self.name())
    }
}

impl ProblemDetails {
    /// Of a kind; `detail` says what happened to what, and the next step.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> ProblemDetails {
        ProblemDetails {
            kind_uri: kind.uri().into(),
            title: kind.title().into(),
            status: kind.status(),
            detail: detail.into(),
            instance: None,
            errors: Vec::new(),
            retry_after_s: None,
        }
    }

    /// There is no `what` with that id.
    pub fn not_found(what: &str, id: &str) -> ProblemDetails {
        ProblemDetails::new(ProblemKind::NotFound, format!("there is no {what} '{id}'"))
    }

    /// This station has no `what`: it is not configured, or not part of this build.
    pub fn not_offered(what: &str) -> ProblemDetails {
        ProblemDetails::new(ProblemKind::NotOffered, format!("this station has no {what}"))
    }

    /// A parameter that cannot be what it is.
    pub fn of_parameter(
        kind: ProblemKind,
        name: &str,
        detail: impl Into<String>,
    ) -> ProblemDetails {
        let detail = detail.into();
        let error = RequestError {
            pointer: None,
            parameter: Some(name.to_owned()),
            detail: detail.clone(),
        };
        let mut problem = ProblemDetails::new(kind, format!("parameter `{name}`: {detail}"));
        problem.errors.push(error);
        problem
    }

    /// A part of the body, by JSON pointer, that cannot be what it is.
    pub fn of_body(kind: ProblemKind, pointer: &str, detail: impl Into<String>) -> ProblemDetails {
        let detail = detail.into();
        let at = if pointer.is_empty() { "body" } else { pointer };
        let mut problem = ProblemDetails::new(kind, format!("{at}: {detail}"));
        problem.errors.push(RequestError {
            pointer: Some(pointer.to_owned()),
            parameter: None,
            detail,
        });
        problem
    }

    /// Says after how many seconds another try may do better.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> ProblemDetails {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Its kind; `None`: no kind of this version.
    pub fn kind(&self) -> Option<ProblemKind> {
        ProblemKind::ALL.into_iter().find(|kind| *kind.uri() == *self.kind_uri)
    }
}

impl fmt::Display for ProblemDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.title, self.detail)
    }
}

impl std::error::Error for ProblemDetails {}

/// Where the document is served.
pub const DOCUMENT_PATH: &str = "/sonde/v1/openapi.json";
/// Of problems (RFC 9457, section 3).
pub const PROBLEM_JSON: &str = "application/problem+json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_is_found_by_its_uri() {
        for kind in ProblemKind::ALL {
            let problem = ProblemDetails::new(kind, "x");
            assert_eq!(problem.kind(), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert!((400..600).contains(&kind.status()) && !kind.advice().is_empty());
        }
    }

    #[test]
    fn a_problem_says_which_part_is_wrong_and_leaves_out_what_it_has_not() {
        let problem = ProblemDetails::of_body(ProblemKind::Unprocessable, "/host", "is empty");
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["type"], "/sonde/v1/openapi.json#/x-problems/unprocessable");
        assert_eq!(json["status"], 422);
        assert_eq!(json["detail"], "/host: is empty");
        assert_eq!(
            json["errors"],
            serde_json::json!([{ "pointer": "/host", "detail": "is empty" }])
        );
        assert!(json.get("retry_after_s").is_none() && json.get("instance").is_none());
    }
}
