use std::sync::Mutex;

use super::*;
use crate::http::testing::ask_json;

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

fn known(id: &str) -> Result<(), RunRefusal> {
    match id {
        "a1" => Ok(()),
        _ => Err(RunRefusal::Unknown(format!("there is no run '{id}'"))),
    }
}

impl Runs for Shelf {
    fn start(&self, plan: &str) -> Result<RunState, RunRefusal> {
        match plan {
            "good" => Ok(run()),
            "evil" => Err(RunRefusal::Forbidden("no commands".into())),
            "late" => Err(RunRefusal::Busy("another run".into())),
            _ => Err(RunRefusal::Wrong("plan line 1: what?".into())),
        }
    }
    fn list(&self) -> Result<Vec<RunSummary>, RunRefusal> {
        Ok(vec![run().summary])
    }
    fn state(&self, id: &str) -> Result<RunState, RunRefusal> {
        known(id).map(|()| run())
    }
    fn measurements(&self, id: &str) -> Result<Vec<Measurement>, RunRefusal> {
        known(id).map(|()| vec![Measurement { id: "m".into(), ..Default::default() }])
    }
    fn trials(&self, _: &str) -> Result<Vec<Trial>, RunRefusal> {
        Err(RunRefusal::Failed("the disk is gone".into()))
    }
    fn stop(&self, id: &str) -> Result<RunState, RunRefusal> {
        known(id)?;
        *self.stopped.lock().unwrap() = true;
        Ok(run())
    }
    fn report(&self, id: &str) -> Result<Vec<u8>, RunRefusal> {
        known(id).map(|()| b"<html>".to_vec())
    }
}

fn ask(shelf: Option<Shelf>, method: &str, path: &str, body: &str) -> (u16, Value) {
    ask_json(&routes(shelf.map(Arc::new)), method, path, body)
}

fn post(path: &str, body: &str) -> (u16, Value) {
    ask(Some(Shelf::default()), "POST", path, body)
}

fn get(path: &str) -> (u16, Value) {
    ask(Some(Shelf::default()), "GET", path, "")
}

#[test]
fn a_plan_is_begun_or_refused_with_its_reason() {
    let (status, run) = post("/sonde/v1/runs", r#"{"plan": "good"}"#);
    assert_eq!((status, &run["id"], &run["state"]), (201, &json!("a1"), &json!("running")));
    for (plan, code, part) in
        [("bad", 400, "line 1"), ("evil", 403, "commands"), ("late", 409, "another run")]
    {
        let (status, answer) = post("/sonde/v1/runs", &json!({ "plan": plan }).to_string());
        assert_eq!((status, &answer["code"]), (code, &json!(code)));
        assert!(answer["errors"][0].as_str().unwrap().contains(part), "{answer}");
    }
    for body in ["", "{}", r#"{"plan": 1}"#, r#"{"plan": "good", "folder": "/etc"}"#] {
        assert_eq!(post("/sonde/v1/runs", body).0, 400, "{body}");
    }
    let long = json!({ "plan": "#".repeat(PLAN_MAX) }).to_string();
    assert_eq!(post("/sonde/v1/runs", &long).0, 413);
}

#[test]
fn runs_are_listed_shown_and_stopped() {
    assert_eq!(get("/sonde/v1/runs").1["runs"][0]["planned"], 2);
    assert_eq!(get("/sonde/v1/runs/a1").1["findings"], json!([]));
    assert_eq!(get("/sonde/v1/runs/a1/measurements").1["measurements"][0]["id"], "m");
    assert_eq!(get("/sonde/v1/runs/a1/trials").0, 500);
    assert_eq!(get("/sonde/v1/runs/b2").0, 404);
    let shelf = Arc::new(Shelf::default());
    let routes = routes(Some(shelf.clone()));
    http::testing::ask(&routes, "POST", "/sonde/v1/runs/a1/stop", "");
    assert!(*shelf.stopped.lock().unwrap());
    let report = http::testing::ask(&routes, "GET", "/sonde/v1/runs/a1/report", "");
    assert_eq!(report, (200, "<html>".into()));
}

#[test]
fn without_a_folder_the_option_is_named_and_other_paths_are_none() {
    let (status, answer) = ask(None, "GET", "/sonde/v1/runs", "");
    assert!(status == 404 && answer["errors"][0].as_str().unwrap().contains("--runs"), "{answer}");
    for path in ["/sonde/v1/runsx", "/sonde/v1/runs/a1/", "/sonde/v1/runs/a1/b", "/x"] {
        let (status, answer) = get(path);
        assert_eq!(
            (status, &answer["errors"][0]),
            (404, &json!(format!("there is no {path} here")))
        );
    }
    let (status, answer) = get("/sonde/v1/runs/a1/stop");
    let why = "/sonde/v1/runs/a1/stop takes POST, not GET";
    assert_eq!((status, &answer["errors"][0]), (405, &json!(why)));
    // What is encoded stays so: no name of a folder has a slash in it.
    assert_eq!(get("/sonde/v1/runs/%2e%2e%2Fa1").1["errors"][0], "there is no run '%2e%2e%2Fa1'");
}
