//! The OpenAPI 3.1 document, made of the table of routes.
//!
//! Its schemas are JSON Schema 2020-12, which OpenAPI 3.1 takes as they are. What is read and what
//! is written have schemas of their own: a field with a default may be left out of a request and
//! is in every answer. So a type that is used both ways must look the same both ways.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::problem::{PROBLEM_JSON, ProblemDetails, ProblemKind};
use crate::route::{ApiRoute, BODY_TYPE, HttpMethod, ReplyForm, RouteHandler, SchemaFn};
use crate::{API_VERSION, routes};

/// The document.
pub fn document() -> Value {
    of_routes(&routes()).0
}

/// The document of a table, and the names that two different schemas claim.
pub(crate) fn of_routes(routes: &[ApiRoute]) -> (Value, Vec<String>) {
    let mut schemas = Schemas::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let operation = schemas.operation(route);
        let path = paths.entry(route.path).or_default();
        path.insert(route.method.name().to_lowercase(), operation);
    }
    let problem = schemas.written(|generator| generator.subschema_for::<ProblemDetails>());
    let (schemas, conflicts) = schemas.merged();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sonde station",
            "version": API_VERSION,
            "description": DESCRIPTION,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": problem_responses(&problem),
            "parameters": header_parameters(),
            "headers": headers(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token (RFC 6750). Its role is `read`, `operate` or `admin`; each includes those before it. The role that an operation needs stands in its `security`.",
                },
            },
        },
        "x-problems": problems(),
    });
    (document, conflicts)
}

/// Schemas of what is read, and of what is written.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    fn new() -> Schemas {
        let settings = || {
            SchemaSettings::draft2020_12().with(|s| s.definitions_path = DEFINITIONS_PATH.into())
        };
        Schemas {
            read: settings().for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    fn written(&mut self, schema: SchemaFn) -> Value {
        schema(&mut self.written).to_value()
    }

    fn operation(&mut self, route: &ApiRoute) -> Value {
        let mut operation = json!({
            "operationId": route.operation,
            "summary": route.summary,
            "tags": [tag(route.path)],
            "security": [{ "bearer": [route.role.name()] }],
            "parameters": self.parameters(route),
            "responses": self.responses(route),
        });
        if let Some(body) = route.request {
            let schema = body(&mut self.read).to_value();
            operation["requestBody"] =
                json!({ "required": true, "content": { BODY_TYPE: { "schema": schema } } });
        }
        operation
    }

    fn parameters(&mut self, route: &ApiRoute) -> Value {
        let schema = (route.parameters)(&mut self.read).to_value();
        let of_path: Vec<&str> = route.path_parameters().collect();
        let required: Vec<&str> = strings(&schema["required"]);
        let properties = schema["properties"].as_object();
        let mut parameters: Vec<Value> = Vec::new();
        for (name, schema) in properties.into_iter().flatten() {
            let in_path = of_path.contains(&name.as_str());
            let mut schema = without_null(schema.clone());
            let description = schema.as_object_mut().and_then(|s| s.remove("description"));
            let mut parameter = json!({
                "name": name,
                "in": if in_path { "path" } else { "query" },
                "required": in_path || required.contains(&name.as_str()),
                "schema": schema,
            });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            if parameter["schema"]["type"] == "array" {
                parameter["style"] = "form".into();
                parameter["explode"] = false.into();
            }
            parameters.push(parameter);
        }
        let of_headers = [
            (route.if_match, "IfMatch"),
            (route.changes && route.method == HttpMethod::Post, "IdempotencyKey"),
            (matches!(route.handler, RouteHandler::Stream(_)), "LastEventId"),
        ];
        let of_headers = of_headers.into_iter().filter(|(has, _)| *has);
        parameters.extend(
            of_headers.map(|(_, n)| json!({ "$ref": format!("#/components/parameters/{n}") })),
        );
        parameters.into()
    }

    fn responses(&mut self, route: &ApiRoute) -> Value {
        let content = match route.response {
            ReplyForm::Json(schema) => {
                let schema = self.written(schema);
                Some(json!({ BODY_TYPE: { "schema": schema } }))
            }
            ReplyForm::Other(media) => Some(json!({ media: { "schema": { "type": "string" } } })),
            ReplyForm::Events(schema) => {
                let schema = self.written(schema);
                Some(json!({ "text/event-stream": {
                    "schema": { "type": "string" },
                    // What OpenAPI 3.1 cannot say: the schema of each event's data.
                    "x-event-data": schema,
                }}))
            }
            ReplyForm::Empty => None,
        };
        let mut success = json!({ "description": success_text(route) });
        if let Some(content) = content {
            success["content"] = content;
        }
        if route.method == HttpMethod::Get && !matches!(route.response, ReplyForm::Events(_)) {
            success["headers"] = json!({ "ETag": { "$ref": "#/components/headers/ETag" } });
        }
        if route.status == 201 {
            success["headers"] = json!({ "Location": { "$ref": "#/components/headers/Location" } });
        }
        let mut responses = Map::new();
        responses.insert(route.status.to_string(), success);
        if route.method == HttpMethod::Get && !matches!(route.response, ReplyForm::Events(_)) {
            let text = "It is as the ETag in `If-None-Match` says.";
            responses.insert("304".into(), json!({ "description": text }));
        }
        for kind in problems_of(route) {
            let name = format!("#/components/responses/{}", kind.name());
            responses.insert(kind.status().to_string(), json!({ "$ref": name }));
        }
        responses.into()
    }

    /// All definitions, and the names whose two schemas differ.
    fn merged(mut self) -> (Map<String, Value>, Vec<String>) {
        let mut all = self.written.take_definitions(true);
        let mut conflicts = Vec::new();
        for (name, schema) in self.read.take_definitions(true) {
            if all.get(&name).is_some_and(|other| *other != schema) {
                conflicts.push(name.clone());
            }
            all.insert(name, schema);
        }
        (all, conflicts)
    }
}

/// What can go wrong with any request to a route, as far as its types say.
fn problems_of(route: &ApiRoute) -> impl Iterator<Item = ProblemKind> {
    use ProblemKind::*;
    let body = route.request.is_some();
    let names = route.may_miss || route.path_parameters().next().is_some();
    [
        (true, Malformed),
        (true, Unauthenticated),
        (true, Forbidden),
        (names, NotFound),
        (body, RequestTimeout),
        (route.changes, Conflict),
        (route.if_match, Stale),
        (body, TooLarge),
        (body, MediaType),
        (true, Misdirected),
        (true, Unprocessable),
        (route.if_match, PreconditionRequired),
        (true, TooManyRequests),
        (true, Internal),
        (true, NotOffered),
        (true, Unavailable),
    ]
    .into_iter()
    .filter_map(|(can, kind)| can.then_some(kind))
}

fn success_text(route: &ApiRoute) -> &'static str {
    match (route.status, &route.response) {
        (201, _) => "It was made.",
        (_, ReplyForm::Empty) => "It was removed.",
        (_, ReplyForm::Events(_)) => {
            "Server-sent events. `id` ascends; `event` is the topic, or `gap` where events were left out; a comment every 15 s keeps the connection."
        }
        _ => "What was asked for.",
    }
}

fn problem_responses(problem: &Value) -> Map<String, Value> {
    let response = |kind: ProblemKind| {
        let mut response = json!({
            "description": format!("{}: {}.", kind.title(), kind.advice()),
            "content": { PROBLEM_JSON: { "schema": problem } },
        });
        if matches!(kind, ProblemKind::TooManyRequests | ProblemKind::Unavailable) {
            response["headers"] =
                json!({ "Retry-After": { "$ref": "#/components/headers/RetryAfter" } });
        }
        (kind.name().to_owned(), response)
    };
    // The server answers 405 before any operation is found.
    let kinds = ProblemKind::ALL.into_iter().filter(|k| *k != ProblemKind::MethodNotAllowed);
    kinds.map(response).collect()
}

fn problems() -> Map<String, Value> {
    let of = |kind: ProblemKind| {
        let about =
            json!({ "title": kind.title(), "status": kind.status(), "advice": kind.advice() });
        (kind.name().to_owned(), about)
    };
    ProblemKind::ALL.into_iter().map(of).collect()
}

fn header_parameters() -> Value {
    json!({
        "IfMatch": {
            "name": "If-Match",
            "in": "header",
            "required": true,
            "description": "ETag of the version that is changed (RFC 9110, section 13.1.1), or `*`.",
            "schema": { "type": "string" },
        },
        "IdempotencyKey": {
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "Marks tries of one change: another try with the same key and body gets the first one's answer. Kept for a day.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 128 },
        },
        "LastEventId": {
            "name": "Last-Event-ID",
            "in": "header",
            "required": false,
            "description": "Goes on after this event, as far as the last 5 minutes hold it.",
            "schema": { "type": "string" },
        },
    })
}

fn headers() -> Value {
    json!({
        "ETag": {
            "description": "Version of what was answered. A strong one can be named in `If-Match`.",
            "schema": { "type": "string" },
        },
        "Location": {
            "description": "Path of what was made.",
            "schema": { "type": "string" },
        },
        "RetryAfter": {
            "description": "Seconds after which another try may do better.",
            "schema": { "type": "integer", "minimum": 1 },
        },
    })
}

/// The resource: what follows the prefix in a path.
fn tag(path: &str) -> &str {
    path.strip_prefix(crate::PREFIX).unwrap_or(&path[1..]).split('/').next().unwrap_or_default()
}

/// A parameter that may be left out is no parameter that may be null.
fn without_null(mut schema: Value) -> Value {
    if let Some(types) = schema["type"].as_array() {
        let rest: Vec<Value> = types.iter().filter(|t| *t != "null").cloned().collect();
        schema["type"] = match rest.as_slice() {
            [one] => one.clone(),
            _ => rest.into(),
        };
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let rest: Vec<Value> = any.iter().filter(|s| s["type"] != "null").cloned().collect();
        match <[Value; 1]>::try_from(rest) {
            Ok([one]) => {
                let object = schema.as_object_mut();
                object.map(|o| o.remove("anyOf"));
                for (key, value) in one.as_object().into_iter().flatten() {
                    schema[key] = value.clone();
                }
            }
            Err(rest) => schema["anyOf"] = rest.into(),
        }
    }
    if let Some(object) = schema.as_object_mut() {
        object.retain(|key, value| !(key == "default" && value.is_null()));
    }
    schema
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

const DEFINITIONS_PATH: &str = "/components/schemas";
const DESCRIPTION: &str = "What a Sonde station measures, judges and tells, and what can be changed in it. \
Instants are RFC 3339 text and whole milliseconds since 1970 UTC, never nanoseconds since 1970: those are beyond what JavaScript holds exactly. \
Delays are nanoseconds. Readings are columns: beside each value stand its state, its number of samples and its caveats.";

#[cfg(test)]
mod tests;
