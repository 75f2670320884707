//! From a request to its route, and from its answer to the wire.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    ETAG, HOST, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LINK, LOCATION,
    ORIGIN, RETRY_AFTER, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode, Uri};
use sonde_api::etag::{EntityTag, IdempotencyKey, TagCondition};
use sonde_api::instant::UtcInstant;
use sonde_api::live::EVENT_STREAM;
use sonde_api::openmetrics::{self, OPENMETRICS};
use sonde_api::params;
use sonde_api::problem::{DOCUMENT_PATH, PROBLEM_JSON};
use sonde_api::request::JSON;
use sonde_api::route::HttpMethod;
use sonde_api::{
    AccessRole, ApiReply, ApiRequest, ApiRoute, Backend, Caller, ProblemDetails, ProblemKind,
    RouteHandler,
};
use sonde_results::units::format_hex;
use tokio::sync::Semaphore;

use super::encoding::{gzip, takes_gzip};
use super::idempotency::{ChangeOutcome, Keyed, KeyedChanges};
use super::limit::{CallCounts, Counted, Excess};
use super::sse::EventBody;
use super::tokens::{TokenCheck, hash_of};
use super::{ApiAccess, ApiHooks, ApiLimits};
use crate::accept::{self, BodyFault, Client};
use crate::http::{HARMLESS, names_an_address};
use crate::listener::user_name;
use crate::unread::DrainedBody;

pub(super) struct Dispatch {
    pub access: ApiAccess,
    pub limits: ApiLimits,
    backend: Arc<dyn Backend>,
    hooks: ApiHooks,
    routes: Vec<Arc<ApiRoute>>,
    document: Bytes,
    counts: CallCounts,
    keyed: KeyedChanges,
    workers: Arc<Semaphore>,
    start: Instant,
}

/// Who asks, and how long that is good.
struct Admitted {
    caller: Caller,
    expires: Option<UtcInstant>,
}

/// Why a request is not carried out.
enum Refusal {
    Problem(ProblemDetails),
    /// The path takes these methods.
    Method(String),
}

impl From<ProblemDetails> for Refusal {
    fn from(problem: ProblemDetails) -> Refusal {
        Refusal::Problem(problem)
    }
}

/// A route, and the parameters in the path that matched it.
type MatchedRoute = (Arc<ApiRoute>, Vec<(String, String)>);

/// What does not come of the table.
enum Page {
    Healthy,
    Ready,
    Document,
    Metrics,
}

impl Dispatch {
    pub fn new(
        access: ApiAccess,
        backend: Arc<dyn Backend>,
        limits: ApiLimits,
        hooks: ApiHooks,
    ) -> Dispatch {
        let document = serde_json::to_vec(&sonde_api::document()).unwrap_or_default();
        Dispatch {
            access,
            backend,
            hooks,
            routes: sonde_api::routes().into_iter().map(Arc::new).collect(),
            document: document.into(),
            counts: CallCounts::new(limits.calls),
            limits,
            keyed: KeyedChanges::default(),
            workers: Arc::new(Semaphore::new(WORKERS)),
            start: Instant::now(),
        }
    }

    pub async fn respond(&self, request: hyper::Request<Incoming>, client: Client) -> Response {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let head = method == Method::HEAD;
        // Of a body that is not wanted, four times as much as of one that is.
        let request = DrainedBody::of(request, 4 * self.limits.body);
        let mut response = match self.found(request, client).await {
            Ok(response) => response,
            Err(Refusal::Problem(problem)) => problem_response(problem, path),
            Err(Refusal::Method(allowed)) => {
                let why = format!("{path} takes {allowed}, not {method}");
                let problem = ProblemDetails::new(ProblemKind::MethodNotAllowed, why);
                let mut response = problem_response(problem, path);
                if let Ok(allowed) = HeaderValue::from_str(&allowed) {
                    response.headers_mut().insert(ALLOW, allowed);
                }
                response
            }
        };
        let headers = response.headers_mut();
        // A report has parts of a plan in it, which somebody else may have sent.
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(HARMLESS));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if head {
            // A stream ends with it.
            *response.body_mut() = Body::empty();
        }
        response
    }

    async fn found(
        &self,
        request: hyper::Request<DrainedBody>,
        client: Client,
    ) -> Result<Response, Refusal> {
        let page = match request.uri().path() {
            "/-/healthy" => Some(Page::Healthy),
            "/-/ready" => Some(Page::Ready),
            "/metrics" if self.hooks.metrics.is_some() => Some(Page::Metrics),
            DOCUMENT_PATH => Some(Page::Document),
            _ => None,
        };
        if let Some(Page::Healthy | Page::Ready) = page {
            let reads = matches!(*request.method(), Method::GET | Method::HEAD);
            return if reads { Ok(self.alive(page)) } else { Err(Refusal::Method("GET".into())) };
        }
        let now = utc_now();
        let admitted = self.admit(request.headers(), client.uid, now)?;
        if !client.connection.mark_authenticated() {
            let why = "too many clients are being served; try again";
            Err(ProblemDetails::new(ProblemKind::Unavailable, why).retry_after(5))?;
        }
        let _busy = client.connection.busy();
        self.check_host(request.headers())?;
        let counted = self.counts.request(&admitted.caller.name, self.start.elapsed());
        let counted = counted.map_err(too_many)?;
        match page {
            // They are for every role.
            Some(page) => self.page(page, &request, counted).await,
            None => self.route(request, admitted, client, counted, now).await,
        }
    }

    /// Whether this process serves, and whether the station works: all that strangers are told.
    fn alive(&self, page: Option<Page>) -> Response {
        let works = match page {
            Some(Page::Ready) => self.hooks.ready.as_ref().is_none_or(|ready| ready()),
            _ => true,
        };
        let (status, text) = match works {
            true => (StatusCode::OK, "ok\n"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        };
        with_body(status, "text/plain; charset=utf-8", text.into())
    }

    /// Who asks: by a token, else by the user of a Unix socket.
    fn admit(
        &self,
        headers: &HeaderMap,
        uid: Option<u32>,
        now: UtcInstant,
    ) -> Result<Admitted, ProblemDetails> {
        let refused = |why: String| Err(ProblemDetails::new(ProblemKind::Unauthenticated, why));
        let Some(shown) = headers.get(AUTHORIZATION) else {
            return match self.access.anonymous {
                Some(role) => {
                    let name = uid.map_or_else(|| ANONYMOUS.to_owned(), user_name);
                    let caller = Caller { name, role };
                    Ok(Admitted { caller, expires: None })
                }
                None => refused("no token came; send Authorization: Bearer TOKEN".to_owned()),
            };
        };
        // RFC 6750, section 2.1.
        let token = shown.to_str().ok().and_then(|shown| {
            let (scheme, token) = shown.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let Some(token) = token else {
            return refused("Authorization is of another scheme; send Bearer TOKEN".to_owned());
        };
        match self.access.tokens.check(token.as_bytes(), now) {
            TokenCheck::Valid(caller, expires) => Ok(Admitted { caller, expires }),
            TokenCheck::Expired(at) => refused(format!("the token expired at {at}; get another")),
            TokenCheck::Unknown => {
                refused("the token is none of this station's; look whether it is whole".to_owned())
            }
        }
    }

    /// A page that a browser shows may have had its name resolved to this host (DNS rebinding).
    fn check_host(&self, headers: &HeaderMap) -> Result<(), ProblemDetails> {
        let host = headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            _ => host,
        };
        let own = self.access.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        if own || names_an_address(host) {
            return Ok(());
        }
        let why = format!("'{host}' is not this station's name; use its address, or localhost");
        Err(ProblemDetails::new(ProblemKind::Misdirected, why))
    }

    async fn page(
        &self,
        page: Page,
        request: &hyper::Request<DrainedBody>,
        counted: Counted,
    ) -> Result<Response, Refusal> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Refusal::Method("GET".into()));
        }
        let (document, metrics) = (self.document.clone(), self.hooks.metrics.clone());
        let find = move || match (page, metrics) {
            (Page::Metrics, Some(metrics)) => {
                let text = openmetrics::render(&metrics());
                Ok(ApiReply { content_type: OPENMETRICS, ..ApiReply::of(200, text.into()) })
            }
            _ => Ok(ApiReply { content_type: JSON, ..ApiReply::of(200, document.to_vec()) }),
        };
        let wire = Wire::of(request.headers(), request.uri(), false)?;
        Ok(self.work(wire, counted, find).await?)
    }

    async fn route(
        &self,
        request: hyper::Request<DrainedBody>,
        admitted: Admitted,
        client: Client,
        counted: Counted,
        now: UtcInstant,
    ) -> Result<Response, Refusal> {
        let (head, body) = request.into_parts();
        let (route, in_path) = self.find(&head.method, head.uri.path())?;
        if admitted.caller.role < route.role {
            return Err(forbidden(&admitted.caller, route.role).into());
        }
        if matches!(head.method, Method::POST | Method::PUT | Method::DELETE) {
            check_origin(&head.headers)?;
        }
        let mut parameters = in_path;
        parameters.extend(params::query_pairs(head.uri.query().unwrap_or_default())?);
        let body = match accept::read_body(body, self.limits.body).await {
            Ok(body) => body,
            Err(BodyFault::TooLong) => {
                let why = format!("a body has at most {} octets", self.limits.body);
                return Err(ProblemDetails::new(ProblemKind::TooLarge, why).into());
            }
            Err(BodyFault::NotWhole) => {
                let why = "the body did not come whole, or not in time";
                return Err(ProblemDetails::new(ProblemKind::RequestTimeout, why).into());
            }
        };
        check_body(&route, &head.headers, &body)?;
        let ask = ApiRequest {
            parameters,
            body: body.to_vec(),
            now,
            if_match: condition(&head.headers, &IF_MATCH)?,
            last_event_id: text_of(&head.headers, "last-event-id").map(str::to_owned),
            caller: admitted.caller,
        };
        if let RouteHandler::Stream(_) = route.handler {
            let left = |at: UtcInstant| at.ns().saturating_sub(now.ns()).max(0).unsigned_abs();
            let lasts = admitted.expires.map(|at| Duration::from_nanos(left(at)));
            let only_head = head.method == Method::HEAD;
            return Ok(self.stream(&route, &ask, lasts, client, only_head)?);
        }
        let wire = Wire::of(&head.headers, &head.uri, route.changes)?;
        let key = key_of(&route, &head.headers)?;
        let print = key.is_some().then(|| fingerprint(&head.method, &head.uri, &ask.body));
        let (backend, keyed, since) =
            (self.backend.clone(), self.keyed.clone(), self.start.elapsed());
        let find = move || {
            let RouteHandler::Reply(reply) = &route.handler else {
                return Err(ProblemDetails::new(ProblemKind::Internal, "the route has no reply"));
            };
            match key.zip(print) {
                None => reply(&*backend, &ask),
                Some((key, print)) => {
                    let begun = keyed.begin(&ask.caller.name, &key, print, since);
                    once(begun, || reply(&*backend, &ask))
                }
            }
        };
        Ok(self.work(wire, counted, find).await?)
    }

    /// The route of a method and path, and the parameters in the path.
    fn find(&self, method: &Method, path: &str) -> Result<MatchedRoute, Refusal> {
        let of_path = self.routes.iter().filter_map(|r| Some((r, r.matches(path)?)));
        let mut allowed: Vec<&str> = Vec::new();
        for (route, found) in of_path {
            let head = *method == Method::HEAD && route.method == HttpMethod::Get;
            if route.method.name() != method.as_str() && !head {
                allowed.push(route.method.name());
                continue;
            }
            let decoded = found.into_iter().map(|(name, text)| {
                let value = params::decode_percent(text).ok_or_else(|| {
                    let why = format!("'{text}' is no percent-encoded UTF-8");
                    ProblemDetails::of_parameter(ProblemKind::Malformed, name, why)
                })?;
                Ok((name.to_owned(), value))
            });
            return Ok((route.clone(), decoded.collect::<Result<_, ProblemDetails>>()?));
        }
        match allowed.is_empty() {
            true => {
                let why = format!("there is no {path} here; {DOCUMENT_PATH} lists what there is");
                Err(ProblemDetails::new(ProblemKind::NotFound, why).into())
            }
            false => Err(Refusal::Method(allowed.join(", "))),
        }
    }

    fn stream(
        &self,
        route: &ApiRoute,
        ask: &ApiRequest,
        lasts: Option<Duration>,
        client: Client,
        only_head: bool,
    ) -> Result<Response, ProblemDetails> {
        let RouteHandler::Stream(follow) = &route.handler else {
            return Err(ProblemDetails::new(ProblemKind::Internal, "the route has no stream"));
        };
        let counted = self.counts.stream(&ask.caller.name).map_err(too_many)?;
        let stream = follow(&*self.backend, ask)?;
        let body = match only_head {
            true => Body::empty(),
            false => {
                let (every, busy) = (self.limits.keep_alive, client.connection.busy());
                Body::new(EventBody::new(stream, every, lasts, client.stopped, counted, busy))
            }
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// An answer that is found on a thread which may block, one of few.
    async fn work(
        &self,
        wire: Wire,
        counted: Counted,
        find: impl FnOnce() -> ChangeOutcome + Send + 'static,
    ) -> Result<Response, ProblemDetails> {
        let late = || {
            let why = format!("there was no answer within {} s", self.limits.answer.as_secs_f64());
            ProblemDetails::new(ProblemKind::Unavailable, why).retry_after(10)
        };
        let worked = async {
            let permit = self.workers.clone().acquire_owned().await;
            let task = tokio::task::spawn_blocking(move || {
                // Held until it is done, also where nobody waits for it any more.
                let _held = (permit, counted);
                wire.written(find()?)
            });
            task.await.unwrap_or_else(|_| {
                let why = "the request ended in an internal error; the station's log has more";
                Err(ProblemDetails::new(ProblemKind::Internal, why))
            })
        };
        tokio::time::timeout(self.limits.answer, worked).await.unwrap_or_else(|_| Err(late()))
    }
}

/// What of a request says how its answer looks.
struct Wire {
    gzip: bool,
    known: Option<TagCondition>,
    changes: bool,
    uri: Uri,
}

impl Wire {
    fn of(headers: &HeaderMap, uri: &Uri, changes: bool) -> Result<Wire, ProblemDetails> {
        let known = condition(headers, &IF_NONE_MATCH)?;
        Ok(Wire { gzip: takes_gzip(headers), known, changes, uri: uri.clone() })
    }

    fn written(&self, reply: ApiReply) -> Result<Response, ProblemDetails> {
        let mut response = Response::new(Body::empty());
        let header = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| ProblemDetails::new(ProblemKind::Internal, "a header has no form"))
        };
        let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let cache = if self.changes { "no-store" } else { "private, no-cache" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        if let Some(path) = &reply.location {
            headers.insert(LOCATION, header(path)?);
        }
        if let Some(next) = &reply.next {
            let link = format!("<{}>; rel=\"next\"", with_cursor(&self.uri, next));
            headers.insert(LINK, header(&link)?);
        }
        // A strong tag is that of one representation: what has one is not encoded.
        let strong = reply.etag.is_some();
        let tag = reply.etag.clone().or_else(|| (!self.changes).then(|| digest_tag(&reply.body)));
        if let Some(tag) = &tag {
            headers.insert(ETAG, header(&tag.to_string())?);
            if !self.changes && self.known.as_ref().is_some_and(|known| known.has(tag)) {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return Ok(response);
            }
        }
        if reply.body.is_empty() {
            return Ok(response);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        let short = (self.gzip && !strong).then(|| gzip(&reply.body)).flatten();
        if short.is_some() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        *response.body_mut() = Body::from(short.unwrap_or(reply.body));
        Ok(response)
    }
}

/// Carries a change out, unless it was.
fn once(begun: Keyed, change: impl FnOnce() -> ChangeOutcome) -> ChangeOutcome {
    match begun {
        Keyed::First(first) => {
            let outcome = change();
            first.end(&outcome);
            outcome
        }
        Keyed::Done(outcome) => outcome,
        Keyed::UnderWay => {
            let why = "the first try with this Idempotency-Key is under way; ask again";
            Err(ProblemDetails::new(ProblemKind::Conflict, why).retry_after(1))
        }
        Keyed::Other => {
            let why = "this Idempotency-Key was that of another request; use a new one";
            Err(ProblemDetails::new(ProblemKind::Unprocessable, why))
        }
        Keyed::Full => {
            let why = "too many changes are under way; ask again";
            Err(ProblemDetails::new(ProblemKind::Unavailable, why).retry_after(5))
        }
    }
}

/// What somebody else's page has a browser send names that page (RFC 6454, section 7).
fn check_origin(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = text_of(headers, HOST.as_str()).unwrap_or_default();
    let own = origin.to_str().ok().and_then(|o| o.split_once("://")).is_some_and(|(scheme, of)| {
        matches!(scheme, "http" | "https") && !host.is_empty() && of.eq_ignore_ascii_case(host)
    });
    if own {
        return Ok(());
    }
    let why = "a page of another origin asks for a change; make it from the station's own page";
    Err(ProblemDetails::new(ProblemKind::Forbidden, why))
}

fn check_body(route: &ApiRoute, headers: &HeaderMap, body: &[u8]) -> Result<(), ProblemDetails> {
    if route.request.is_none() {
        if body.is_empty() {
            return Ok(());
        }
        let why = "this operation takes no body; leave it out";
        return Err(ProblemDetails::new(ProblemKind::Malformed, why));
    }
    let kind = text_of(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let bare = kind.split(';').next().unwrap_or_default().trim();
    if bare.eq_ignore_ascii_case(JSON) {
        return Ok(());
    }
    let why = format!("'{bare}' is not taken; send Content-Type: {JSON}");
    Err(ProblemDetails::new(ProblemKind::MediaType, why))
}

fn key_of(route: &ApiRoute, headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ProblemDetails> {
    let Some(text) = text_of(headers, "idempotency-key") else { return Ok(None) };
    if !route.changes || route.method != HttpMethod::Post {
        return Ok(None);
    }
    IdempotencyKey::parse(text).map(Some).ok_or_else(|| {
        let why = "has 1 to 128 visible characters of ASCII, in quotes or not";
        ProblemDetails::of_parameter(ProblemKind::Malformed, "Idempotency-Key", why)
    })
}

fn condition(
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<Option<TagCondition>, ProblemDetails> {
    let Some(text) = headers.get(name) else { return Ok(None) };
    let parsed = text.to_str().ok().and_then(TagCondition::parse);
    parsed.map(Some).ok_or_else(|| {
        let why = "is no list of entity tags; send one as it came in ETag, with its quotes";
        ProblemDetails::of_parameter(ProblemKind::Malformed, name.as_str(), why)
    })
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The address of the next page.
fn with_cursor(uri: &Uri, cursor: &str) -> String {
    let query = uri.query().unwrap_or_default().split('&');
    let others = query.filter(|p| !p.is_empty() && p.split('=').next() != Some("cursor"));
    let own = format!("cursor={cursor}");
    let all: Vec<&str> = others.chain([own.as_str()]).collect();
    format!("{}?{}", uri.path(), all.join("&"))
}

fn digest_tag(body: &[u8]) -> EntityTag {
    let hash = hash_of(body);
    EntityTag::weak(format_hex(&hash[..12]))
}

fn fingerprint(method: &Method, uri: &Uri, body: &[u8]) -> [u8; 32] {
    let mut text = format!("{method} {uri}\n").into_bytes();
    text.extend_from_slice(body);
    hash_of(&text)
}

fn forbidden(caller: &Caller, role: AccessRole) -> ProblemDetails {
    let why = format!("token '{}' is of role {}; this needs {role}", caller.name, caller.role);
    ProblemDetails::new(ProblemKind::Forbidden, why)
}

fn too_many(excess: Excess) -> ProblemDetails {
    let (why, seconds) = match excess {
        Excess::Rate(seconds) => ("this token asks too often", seconds),
        Excess::AtOnce => ("this token has too many requests under way", 1),
        Excess::Streams => ("there are too many streams of events", 30),
    };
    let why = format!("{why}; try again in {seconds} s");
    ProblemDetails::new(ProblemKind::TooManyRequests, why).retry_after(seconds)
}

fn problem_response(mut problem: ProblemDetails, path: String) -> Response {
    problem.instance = Some(path.into());
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = with_body(status, PROBLEM_JSON, body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.retry_after_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.status == ProblemKind::Unauthenticated.status() {
        // RFC 6750, section 3.
        let ask = HeaderValue::from_static("Bearer realm=\"sonde\"");
        headers.insert(WWW_AUTHENTICATE, ask);
    }
    response
}

fn with_body(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn utc_now() -> UtcInstant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UtcInstant::from_ns(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Who shows no token.
const ANONYMOUS: &str = "anonymous";
/// Requests that are worked on at a time.
pub(super) const WORKERS: usize = 8;
