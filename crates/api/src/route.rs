//! A route: what may be asked, by whom, and what answers. The table of all of them is
//! [`crate::routes`]; the document and the server both walk it.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sonde_results::plain_text::is_steering;

use crate::Backend;
use crate::live::EventStream;
use crate::page::{ListPage, PageRequest};
use crate::params;
use crate::problem::{ProblemDetails, ProblemKind};
use crate::request::{ApiReply, ApiRequest, Asked, JSON, RouteAnswer};
use crate::role::AccessRole;

/// A method of HTTP. `HEAD` is answered as `GET` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpMethod {
    /// Reads.
    Get,
    /// Adds, or does something; some only ask.
    Post,
    /// Changes what is there.
    Put,
    /// Removes.
    Delete,
}

/// Makes a schema, and the definitions that it refers to.
pub type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// What a route answers with.
#[derive(Clone, Copy, Debug)]
pub enum ReplyForm {
    /// JSON of this schema.
    Json(SchemaFn),
    /// Nothing: 204.
    Empty,
    /// A body of this media type.
    Other(&'static str),
    /// Server-sent events, whose data are JSON of this schema.
    Events(SchemaFn),
}

/// What answers.
pub enum RouteHandler {
    /// With a whole reply. It may take long: it is called where that holds up nobody.
    Reply(ReplyFn),
    /// With events for as long as the client listens.
    Stream(StreamFn),
}

/// Answers a request with a whole reply.
pub type ReplyFn =
    Box<dyn Fn(&dyn Backend, &ApiRequest) -> Result<ApiReply, ProblemDetails> + Send + Sync>;
/// Answers a request with events.
pub type StreamFn = fn(&dyn Backend, &ApiRequest) -> Result<Box<dyn EventStream>, ProblemDetails>;

/// A route's function: asks the backend what was asked of it.
pub type AnswerFn<P, B, R> = fn(&dyn Backend, &Asked<'_, P, B>) -> Result<R, ProblemDetails>;
/// That of a route which answers with a page.
pub type PageFn<P, R> = fn(&dyn Backend, &Asked<'_, P>, &PageRequest) -> Result<R, ProblemDetails>;

/// One entry of the table.
pub struct ApiRoute {
    /// The method.
    pub method: HttpMethod,
    /// The path; `{name}` is a segment that is a parameter.
    pub path: &'static str,
    /// The least role.
    pub role: AccessRole,
    /// Its name in the document and in clients made from it.
    pub operation: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Schema of the parameters of path and query: an object.
    pub parameters: SchemaFn,
    /// Schema of the body; `None`: it takes none.
    pub request: Option<SchemaFn>,
    /// What it answers with.
    pub response: ReplyForm,
    /// The status of its success: 200, 201 or 204.
    pub status: u16,
    /// Whether it changes something. Then a browser's `Origin` is looked at, and a POST may be
    /// marked by an `Idempotency-Key`.
    pub changes: bool,
    /// Whether it needs `If-Match`.
    pub if_match: bool,
    /// Whether its query names something that may not be there: then it is a 404, as with a path.
    pub may_miss: bool,
    /// What answers.
    pub handler: RouteHandler,
}

/// What every entry has besides its types.
#[derive(Clone, Copy, Debug)]
pub struct RouteHead {
    /// The path.
    pub path: &'static str,
    /// Name of the operation.
    pub operation: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
}

/// No parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// What tells a page from others: parameters of a list beside its filters.
pub trait ListParams {
    /// Parameter `limit`.
    fn limit(&self) -> Option<u32>;
    /// Parameter `cursor`.
    fn cursor(&self) -> Option<String>;
}

/// Implements [`ListParams`] for types with those fields.
macro_rules! list_params {
    ($($params:ty),*) => {$(
        impl $crate::route::ListParams for $params {
            fn limit(&self) -> Option<u32> {
                self.limit
            }

            fn cursor(&self) -> Option<String> {
                self.cursor.clone()
            }
        }
    )*};
}
pub(crate) use list_params;

impl HttpMethod {
    /// As it stands in a request.
    pub fn name(self) -> &'static str {
        match self {
            HttpMethod::Get => "GET",
            HttpMethod::Post => "POST",
            HttpMethod::Put => "PUT",
            HttpMethod::Delete => "DELETE",
        }
    }
}

impl ApiRoute {
    /// Reads something.
    pub fn get<P, R>(head: RouteHead, answer: AnswerFn<P, (), RouteAnswer<R>>) -> ApiRoute
    where
        P: DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        let reply = move |backend: &dyn Backend, request: &ApiRequest| {
            written(200, answer(backend, &asked(request)?)?)
        };
        ApiRoute::of::<P>(HttpMethod::Get, head, ReplyForm::Json(schema_of::<R>), Box::new(reply))
    }

    /// Reads a page of a collection.
    pub fn list<P, T>(head: RouteHead, answer: PageFn<P, RouteAnswer<ListPage<T>>>) -> ApiRoute
    where
        P: ListParams + DeserializeOwned + JsonSchema + 'static,
        T: Serialize + JsonSchema + 'static,
    {
        let reply = move |backend: &dyn Backend, request: &ApiRequest| {
            let asked = asked::<P>(request)?;
            let scope = scope(head.operation, request);
            let page = PageRequest::new(asked.params.limit(), asked.params.cursor(), scope)?;
            let answer = answer(backend, &asked, &page)?;
            let next = answer.body.next.clone();
            Ok(ApiReply { next, ..written(200, answer)? })
        };
        let form = ReplyForm::Json(schema_of::<ListPage<T>>);
        ApiRoute::of::<P>(HttpMethod::Get, head, form, Box::new(reply))
    }

    /// Reads a page of a table by columns: what answers gives it, and the cursor of the next page.
    pub fn table<P, R>(head: RouteHead, answer: PageFn<P, (R, Option<String>)>) -> ApiRoute
    where
        P: ListParams + DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        let reply = move |backend: &dyn Backend, request: &ApiRequest| {
            let asked = asked::<P>(request)?;
            let scope = scope(head.operation, request);
            let page = PageRequest::new(asked.params.limit(), asked.params.cursor(), scope)?;
            let (table, next) = answer(backend, &asked, &page)?;
            Ok(ApiReply { next, ..ApiReply::json(200, &table)? })
        };
        ApiRoute::of::<P>(HttpMethod::Get, head, ReplyForm::Json(schema_of::<R>), Box::new(reply))
    }

    /// Reads what is no JSON.
    pub fn get_other<P>(
        head: RouteHead,
        content_type: &'static str,
        answer: AnswerFn<P, (), RouteAnswer<Vec<u8>>>,
    ) -> ApiRoute
    where
        P: DeserializeOwned + JsonSchema + 'static,
    {
        let reply = move |backend: &dyn Backend, request: &ApiRequest| {
            let RouteAnswer { body, etag, .. } = answer(backend, &asked(request)?)?;
            Ok(ApiReply { content_type, etag, ..ApiReply::of(200, body) })
        };
        let form = ReplyForm::Other(content_type);
        ApiRoute::of::<P>(HttpMethod::Get, head, form, Box::new(reply))
    }

    /// Does something with a body in JSON.
    pub fn post<P, B, R>(head: RouteHead, answer: AnswerFn<P, B, RouteAnswer<R>>) -> ApiRoute
    where
        P: DeserializeOwned + JsonSchema + 'static,
        B: DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        ApiRoute::with_body(HttpMethod::Post, 200, head, answer)
    }

    /// Makes something of a body in JSON.
    pub fn create<P, B, R>(head: RouteHead, answer: AnswerFn<P, B, RouteAnswer<R>>) -> ApiRoute
    where
        P: DeserializeOwned + JsonSchema + 'static,
        B: DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        ApiRoute::with_body(HttpMethod::Post, 201, head, answer)
    }

    /// Changes what is there to what a body in JSON says.
    pub fn put<P, B, R>(head: RouteHead, answer: AnswerFn<P, B, RouteAnswer<R>>) -> ApiRoute
    where
        P: DeserializeOwned + JsonSchema + 'static,
        B: DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        ApiRoute::with_body(HttpMethod::Put, 200, head, answer)
    }

    /// Removes something.
    pub fn delete<P>(head: RouteHead, answer: AnswerFn<P, (), ()>) -> ApiRoute
    where
        P: DeserializeOwned + JsonSchema + 'static,
    {
        let reply = move |backend: &dyn Backend, request: &ApiRequest| {
            answer(backend, &asked(request)?)?;
            Ok(ApiReply::of(204, Vec::new()))
        };
        let route = ApiRoute::of::<P>(HttpMethod::Delete, head, ReplyForm::Empty, Box::new(reply));
        ApiRoute { status: 204, changes: true, role: AccessRole::Operate, ..route }
    }

    /// Sends events.
    pub fn stream<P, E>(head: RouteHead, answer: StreamFn) -> ApiRoute
    where
        P: JsonSchema + 'static,
        E: JsonSchema + 'static,
    {
        ApiRoute {
            method: HttpMethod::Get,
            path: head.path,
            role: AccessRole::Read,
            operation: head.operation,
            summary: head.summary,
            parameters: inline_schema_of::<P>,
            request: None,
            response: ReplyForm::Events(schema_of::<E>),
            status: 200,
            changes: false,
            if_match: false,
            may_miss: false,
            handler: RouteHandler::Stream(answer),
        }
    }

    /// Needs at least `role`.
    #[must_use]
    pub fn by(self, role: AccessRole) -> ApiRoute {
        ApiRoute { role, ..self }
    }

    /// Only asks, although it is a POST: its question is too long for an address.
    #[must_use]
    pub fn only_asks(self) -> ApiRoute {
        ApiRoute { changes: false, role: AccessRole::Read, ..self }
    }

    /// Its query names something that may not be there.
    #[must_use]
    pub fn may_miss(self) -> ApiRoute {
        ApiRoute { may_miss: true, ..self }
    }

    /// Needs `If-Match`.
    #[must_use]
    pub fn needs_version(self) -> ApiRoute {
        ApiRoute { if_match: true, ..self }
    }

    /// The names in braces of its path, in order.
    pub fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        let segments = self.path.split('/');
        segments.filter_map(|s| s.strip_prefix('{').and_then(|s| s.strip_suffix('}')))
    }

    /// The parameters of a path that is this route's, still percent-encoded; `None`: it is
    /// another's.
    pub fn matches<'p>(&self, path: &'p str) -> Option<Vec<(&'static str, &'p str)>> {
        let (mut own, mut given) = (self.path.split('/'), path.split('/'));
        let mut found = Vec::new();
        loop {
            match (own.next(), given.next()) {
                (None, None) => return Some(found),
                (Some(own), Some(given)) => {
                    let name = own.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
                    match name {
                        Some(name) if !given.is_empty() => found.push((name, given)),
                        None if own == given => {}
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
    }

    fn with_body<P, B, R>(
        method: HttpMethod,
        status: u16,
        head: RouteHead,
        answer: AnswerFn<P, B, RouteAnswer<R>>,
    ) -> ApiRoute
    where
        P: DeserializeOwned + JsonSchema + 'static,
        B: DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        let reply = move |backend: &dyn Backend, request: &ApiRequest| {
            let Asked { params, now, caller, if_match, .. } = asked::<P>(request)?;
            let body = read_body(&request.body)?;
            written(status, answer(backend, &Asked { params, body, now, caller, if_match })?)
        };
        let form = ReplyForm::Json(schema_of::<R>);
        let route = ApiRoute::of::<P>(method, head, form, Box::new(reply));
        let request = Some(schema_of::<B> as SchemaFn);
        ApiRoute { status, request, changes: true, role: AccessRole::Operate, ..route }
    }

    fn of<P: JsonSchema>(
        method: HttpMethod,
        head: RouteHead,
        response: ReplyForm,
        reply: ReplyFn,
    ) -> ApiRoute {
        ApiRoute {
            method,
            path: head.path,
            role: AccessRole::Read,
            operation: head.operation,
            summary: head.summary,
            parameters: inline_schema_of::<P>,
            request: None,
            response,
            status: 200,
            changes: false,
            if_match: false,
            may_miss: false,
            handler: RouteHandler::Reply(reply),
        }
    }
}

/// The request with its parameters in their types.
///
/// # Errors
/// 400: a parameter that cannot be read.
pub fn asked<P: DeserializeOwned>(request: &ApiRequest) -> Result<Asked<'_, P>, ProblemDetails> {
    Ok(Asked {
        params: params::read(&request.parameters)?,
        body: (),
        now: request.now,
        caller: &request.caller,
        if_match: request.if_match.as_ref(),
    })
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema itself, where [`schema_of`] may refer to it.
fn inline_schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

fn written<R: Serialize>(status: u16, answer: RouteAnswer<R>) -> Result<ApiReply, ProblemDetails> {
    let RouteAnswer { body, etag, location } = answer;
    Ok(ApiReply { etag, location, ..ApiReply::json(status, &body)? })
}

fn read_body<B: DeserializeOwned>(body: &[u8]) -> Result<B, ProblemDetails> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read: B = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let pointer = pointer_of(error.path());
        let kind = match error.inner().classify() {
            serde_json::error::Category::Data => ProblemKind::Unprocessable,
            _ => ProblemKind::Malformed,
        };
        ProblemDetails::of_body(kind, &pointer, error.into_inner().to_string())
    })?;
    json.end()
        .map_err(|error| ProblemDetails::of_body(ProblemKind::Malformed, "", error.to_string()))?;
    let texts: Value = serde_json::from_slice(body).unwrap_or_default();
    check_texts(&texts, "")?;
    Ok(read)
}

/// Refuses texts that would steer the terminal or the reader of whoever they are shown to. A statement in SQL
/// is shown to nobody, and has lines.
fn check_texts(value: &Value, pointer: &str) -> Result<(), ProblemDetails> {
    let wrong = |text: &str, at: &str| match text.chars().find(|c| is_steering(*c)) {
        Some(c) => {
            let why =
                format!("the text has the character {}, which cannot be shown", c.escape_unicode());
            Err(ProblemDetails::of_body(ProblemKind::Unprocessable, at, why))
        }
        None => Ok(()),
    };
    match value {
        Value::String(text) => wrong(text, pointer),
        Value::Array(items) => {
            let each = |(i, item)| check_texts(item, &format!("{pointer}/{i}"));
            items.iter().enumerate().try_for_each(each)
        }
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            let at = format!("{pointer}/{}", pointer_part(name));
            wrong(name, &at)?;
            if pointer.is_empty() && name == "sql" { Ok(()) } else { check_texts(field, &at) }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// A part of a body, which stands at the JSON pointer `at`, in its type.
///
/// # Errors
/// 422 with the pointer to what is wrong in it.
pub fn read_part<B: DeserializeOwned>(part: Value, at: &str) -> Result<B, ProblemDetails> {
    serde_path_to_error::deserialize(part).map_err(|error| {
        let pointer = format!("{at}{}", pointer_of(error.path()));
        let why = error.into_inner().to_string();
        ProblemDetails::of_body(ProblemKind::Unprocessable, &pointer, why)
    })
}

/// RFC 6901.
fn pointer_of(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let parts = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(format!("/{index}")),
        Segment::Map { key } => Some(format!("/{}", pointer_part(key))),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    parts.collect()
}

/// A name within a pointer (RFC 6901, section 3).
fn pointer_part(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The operation, and the parameters by which one list differs from another.
fn scope(operation: &str, request: &ApiRequest) -> String {
    let filters = request.parameters.iter().filter(|(n, _)| n != "limit" && n != "cursor");
    let mut filters: Vec<String> = filters.map(|(n, v)| format!("{n}={v}")).collect();
    filters.sort_unstable();
    format!("{operation}?{}", filters.join("&"))
}

/// What the document says of JSON bodies.
pub(crate) const BODY_TYPE: &str = JSON;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(parameters: &[(&str, &str)], body: &str) -> ApiRequest {
        let pair = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        ApiRequest {
            parameters: parameters.iter().map(pair).collect(),
            body: body.as_bytes().to_vec(),
            now: crate::testing::FAKE_START,
            caller: crate::Caller { name: "me".into(), role: AccessRole::Admin },
            if_match: None,
            last_event_id: None,
        }
    }

    fn route(operation: &str) -> ApiRoute {
        crate::routes().into_iter().find(|route| route.operation == operation).unwrap()
    }

    fn ask(operation: &str, request: &ApiRequest) -> Result<ApiReply, ProblemDetails> {
        let RouteHandler::Reply(reply) = route(operation).handler else { panic!() };
        reply(&crate::testing::FakeBackend::with_units(250), request)
    }

    #[test]
    fn a_path_is_matched_by_whole_segments() {
        let route = route("explain_event");
        let matched = |path: &'static str| route.matches(path);
        assert_eq!(matched("/sonde/v1/events/a%2Fb/explanation"), Some(vec![("id", "a%2Fb")]));
        for other in [
            "/sonde/v1/events//explanation",
            "/sonde/v1/events/a/explanation/",
            "/sonde/v1/events/a/b/explanation",
            "/sonde/v1/events/a",
            "sonde/v1/events/a/explanation",
        ] {
            assert_eq!(matched(other), None, "{other}");
        }
    }

    #[test]
    fn texts_that_steer_are_refused_where_they_stand() {
        let refused = |body: &str, at: &str| {
            let value: Value = serde_json::from_str(body).unwrap();
            let problem = check_texts(&value, "").unwrap_err();
            assert_eq!(
                (problem.status, problem.errors[0].pointer.as_deref()),
                (422, Some(at)),
                "{problem:?}"
            );
        };
        refused(r#"{"note": "a\u001b[31m"}"#, "/note");
        refused(r#"{"labels": {"target": ["x", "y\nz"]}}"#, "/labels/target/1");
        refused(r#"{"labels": {"a\u202e/b": "x"}}"#, "/labels/a\u{202e}~1b");
        let fine = r#"{"sql": "SELECT 1\n", "note": "größer 東京", "n": 1, "none": null}"#;
        assert_eq!(check_texts(&serde_json::from_str(fine).unwrap(), ""), Ok(()));
    }

    #[test]
    fn no_path_is_two_routes() {
        let routes = crate::routes();
        for route in &routes {
            let same = |other: &&ApiRoute| {
                other.method == route.method && other.matches(route.path).is_some()
            };
            assert_eq!(routes.iter().filter(same).count(), 1, "{}", route.path);
        }
    }

    #[test]
    fn pages_of_a_list_follow_each_other_to_its_end() {
        let (mut names, mut cursor) = (Vec::<String>::new(), None);
        loop {
            let mut parameters = vec![("phase", "running")];
            parameters.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let reply = ask("list_units", &request(&parameters, "")).unwrap();
            let page: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            let items = page["items"].as_array().unwrap();
            names.extend(items.iter().map(|unit| unit["name"].as_str().unwrap().to_owned()));
            assert_eq!(page["next"].as_str(), reply.next.as_deref());
            cursor = reply.next;
            if cursor.is_none() {
                break;
            }
        }
        // One waits.
        assert_eq!(names.len(), 249);
        assert!(names.is_sorted());
    }

    #[test]
    fn what_was_made_has_a_path_and_a_version() {
        let body = r#"{"unit":"probe.0000","host":"192.0.2.1"}"#;
        let version = crate::etag::TagCondition::parse("\"0\"");
        let order = ApiRequest { if_match: version, ..request(&[], body) };
        let reply = ask("add_target", &order).unwrap();
        assert_eq!((reply.status, reply.location.as_deref()), (201, Some("/sonde/v1/targets/t1")));
        assert_eq!(reply.etag.unwrap().to_string(), "\"1\"");
        assert_eq!(ask("add_target", &request(&[], body)).unwrap_err().status, 428);
        let wrong = request(&[], r#"{"unit":"probe.0000","host":"a b"}"#);
        assert_eq!(
            ask("add_target", &wrong).unwrap_err().detail,
            "/host: it has no spaces and no control characters"
        );
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sent {
        list: Vec<u8>,
    }

    #[test]
    fn what_is_wrong_in_a_body_is_named_by_a_pointer() {
        let wrong = |body: &str| {
            let problem = read_body::<Sent>(body.as_bytes()).unwrap_err();
            (problem.status, problem.errors[0].pointer.clone().unwrap())
        };
        assert_eq!(wrong("{\"list\":[1,900]}"), (422, "/list/1".into()));
        assert_eq!(wrong("{\"list\":[],\"a/b\":1}"), (422, "/a~1b".into()));
        assert_eq!(wrong("{}"), (422, String::new()));
        assert_eq!(wrong("{\"list\":[1"), (400, "/list".into()));
        assert_eq!(wrong("{\"list\":[]} x"), (400, String::new()));
        assert_eq!(wrong(""), (400, String::new()));
        let part = read_part::<Sent>(serde_json::json!({ "list": [1, 900] }), "/settings");
        let problem = part.unwrap_err();
        assert_eq!(
            (problem.status, problem.errors[0].pointer.as_deref()),
            (422, Some("/settings/list/1"))
        );
    }
}
