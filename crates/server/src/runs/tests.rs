use std::sync::Mutex;

use super::*;
use crate::http::{Ends, Method};

/// One run, of the plan "good".
#[derive(Default)]
struct Shelf {
    stopped: Mutex<bool>,
}

fn run() -> RunState {
    let (id, title) = ("a1".into(), "t".into());
    let state = Phase::Running;
    let summary = RunSummary { id, title, start_ns: 1, state, measured: 0, planned: 2 };
    RunState { summary, present: None, findings: Vec::new(), errors: Vec::new() }
}

fn known(id: &str) -> Result<(), Refusal> {
    match id {
        "a1" => Ok(()),
        _ => Err(Refusal::Unknown(format!("there is no run '{id}'"))),
    }
}

impl Runs for Shelf {
    fn start(&self, plan: &str) -> Result<RunState, Refusal> {
        match plan {
            "good" => Ok(run()),
            "evil" => Err(Refusal::Forbidden("no commands".into())),
            "late" => Err(Refusal::Busy("another run".into())),
            _ => Err(Refusal::Wrong("plan line 1: what?".into())),
        }
    }
    fn list(&self) -> Result<Vec<RunSummary>, Refusal> {
        Ok(vec![run().summary])
    }
    fn state(&self, id: &str) -> Result<RunState, Refusal> {
        known(id).map(|()| run())
    }
    fn measurements(&self, id: &str) -> Result<Vec<Measurement>, Refusal> {
        known(id).map(|()| vec![Measurement { id: "m".into(), ..Default::default() }])
    }
    fn trials(&self, _: &str) -> Result<Vec<Trial>, Refusal> {
        Err(Refusal::Failed("the disk is gone".into()))
    }
    fn stop(&self, id: &str) -> Result<RunState, Refusal> {
        known(id)?;
        *self.stopped.lock().unwrap() = true;
        Ok(run())
    }
    fn report(&self, id: &str) -> Result<Vec<u8>, Refusal> {
        known(id).map(|()| b"<html>".to_vec())
    }
}

/// What is not about runs.
struct Rest;

impl Service for Rest {
    fn answer(&self, request: &Request) -> Response {
        Response { status: StatusCode::OK, body: Body::Json(json!(request.path)) }
    }
    fn refusal(&self, status: StatusCode, why: &str) -> Response {
        Response { status, body: Body::Json(json!(why)) }
    }
    fn methods(&self, path: &str) -> &'static [&'static str] {
        if path == "/config" { &["GET"] } else { &[] }
    }
}

fn ask(shelf: Option<Shelf>, method: Method, path: &str, body: &str) -> (u16, Value) {
    let service = WithRuns::new(shelf.map(Arc::new), Rest);
    assert!(service.methods(path).contains(&method.as_str()), "{method} {path}");
    let response = service.answer(&Request {
        method,
        path: path.into(),
        body: body.into(),
        ends: Ends::LOOPBACK,
    });
    let Body::Json(body) = response.body else { panic!("no JSON") };
    (response.status.as_u16(), body)
}

fn post(path: &str, body: &str) -> (u16, Value) {
    ask(Some(Shelf::default()), Method::POST, path, body)
}

fn get(path: &str) -> (u16, Value) {
    ask(Some(Shelf::default()), Method::GET, path, "")
}

#[test]
fn a_plan_is_begun_or_refused_with_its_reason() {
    let (status, run) = post("/sonde/v1/runs", r#"{"plan": "good"}"#);
    assert_eq!((status, &run["id"], &run["state"]), (201, &json!("a1"), &json!("running")));
    for (plan, code, word) in
        [("bad", 400, "line 1"), ("evil", 403, "commands"), ("late", 409, "another run")]
    {
        let (status, answer) = post("/sonde/v1/runs", &json!({ "plan": plan }).to_string());
        assert_eq!((status, &answer["code"]), (code, &json!(code)));
        assert!(answer["errors"][0].as_str().unwrap().contains(word), "{answer}");
    }
    for body in ["", "{}", r#"{"plan": 1}"#, r#"{"plan": "good", "folder": "/etc"}"#] {
        assert_eq!(post("/sonde/v1/runs", body).0, 400, "{body}");
    }
    let long = json!({ "plan": "#".repeat(PLAN_MAX) }).to_string();
    assert_eq!(post("/sonde/v1/runs", &long).0, 400);
}

#[test]
fn runs_are_listed_told_and_stopped() {
    assert_eq!(get("/sonde/v1/runs").1["runs"][0]["planned"], 2);
    assert_eq!(get("/sonde/v1/runs/a1").1["findings"], json!([]));
    assert_eq!(get("/sonde/v1/runs/a1/measurements").1["measurements"][0]["id"], "m");
    assert_eq!(get("/sonde/v1/runs/a1/trials").0, 500);
    assert_eq!(get("/sonde/v1/runs/b2").0, 404);
    let service = WithRuns::new(Some(Arc::new(Shelf::default())), Rest);
    let request = |method, path: &str| Request {
        method,
        path: path.into(),
        body: Vec::new(),
        ends: Ends::LOOPBACK,
    };
    service.answer(&request(Method::POST, "/sonde/v1/runs/a1/stop"));
    assert!(*service.runs.as_ref().unwrap().stopped.lock().unwrap());
    let report = service.answer(&request(Method::GET, "/sonde/v1/runs/a1/report"));
    assert_eq!(report.body, Body::Html(b"<html>".to_vec()));
}

#[test]
fn without_a_folder_the_option_is_named_and_the_rest_is_as_ever() {
    let (status, answer) = ask(None, Method::GET, "/sonde/v1/runs", "");
    assert!(status == 404 && answer["errors"][0].as_str().unwrap().contains("--runs"), "{answer}");
    assert_eq!(ask(None, Method::GET, "/config", ""), (200, json!("/config")));
    let service = WithRuns::new(Some(Arc::new(Shelf::default())), Rest);
    for path in ["/sonde/v1/runsx", "/sonde/v1/runs/a1/", "/sonde/v1/runs/a1/b", "/x"] {
        assert!(service.methods(path).is_empty(), "{path}");
    }
    assert_eq!(service.methods("/sonde/v1/runs/a1/stop"), ["POST"]);
}
