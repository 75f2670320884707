//! Whole plans over HTTP, on devices of the lab.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::Server;
use crate::process::{Process, until};

/// Where a server keeps its runs; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-runs-{name}-{}", std::process::id()));
        Folder(path)
    }

    fn server(&self) -> Server {
        Server::with(&["--runs", self.0.to_str().unwrap()])
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A load that any host can offer; many tries, since the host of a test is never quiet.
fn plan(title: &str, trial: &str) -> Value {
    json!({ "plan": format!(
        "title = '{title}'\n[bed]\nengine = 'af_packet'\nmax_rate = '5k'\ndrain = '100ms'\n\
         [run]\nloop = false\nattempts = 12\nback_off = '20ms'\n\
         [[device]]\nname = 'router'\nkind = 'router'\n\
         [[procedure]]\nkind = 'fixed_load'\nloads = ['1000', '2000']\ntrial = '{trial}'\n"
    ) })
}

impl Server {
    fn begin(&self, plan: &Value) -> String {
        let (status, run) = self.ask("POST", RUNS, plan);
        assert_eq!(status, 201, "{run}");
        run["id"].as_str().unwrap().to_owned()
    }

    /// The run, once it has ended.
    fn ended(&self, id: &str) -> Value {
        let state = || self.done("GET", &format!("{RUNS}/{id}"), &Value::Null);
        until("the end of the run", || state()["state"] != "running");
        state()
    }

    fn list(&self, id: &str, what: &str) -> Vec<Value> {
        let mut answer = self.done("GET", &format!("{RUNS}/{id}/{what}"), &Value::Null);
        answer[what].as_array_mut().map(std::mem::take).unwrap()
    }
}

#[test]
fn a_plan_is_measured_and_its_findings_and_report_are_had() {
    if sonde_lab::skip("a_plan_is_measured_and_its_findings_and_report_are_had") {
        return;
    }
    let folder = Folder::new("measured");
    let server = folder.server();
    let plan = plan("a plan over HTTP", "200ms");
    let id = server.begin(&plan);
    let run = server.ended(&id);
    assert_eq!((&run["state"], &run["errors"]), (&json!("finished"), &json!([])), "{run}");
    assert_eq!((&run["measured"], &run["planned"]), (&json!(2), &json!(2)));
    let ids = ["fixed_load/router/64/1000frames/s", "fixed_load/router/64/2000frames/s"];
    let measurements = server.list(&id, "measurements");
    for (i, wanted) in ids.iter().enumerate() {
        assert_eq!(run["findings"][i]["id"], *wanted);
        assert_eq!(measurements[i]["id"], *wanted);
        assert_eq!(run["findings"][i]["finding"], measurements[i]["finding"]);
        assert_eq!(measurements[i]["finding"]["complete"], true, "{}", measurements[i]);
    }
    let trials = server.list(&id, "trials");
    let valid = trials.iter().find(|t| t["invalid"].as_array().is_none_or(Vec::is_empty));
    let valid = valid.unwrap_or_else(|| panic!("{trials:?}"));
    assert!(valid["directions"][0]["sent"].as_u64() > Some(0), "{valid}");
    let (status, page) = server.text("GET", &format!("{RUNS}/{id}/report"), &Value::Null);
    assert!(status == 200 && page.contains("a plan over HTTP"), "{status} {page}");

    // The same plan is the same run, and that is finished.
    assert_eq!(server.begin(&plan), id);
    assert_eq!(server.ended(&id)["state"], "finished");
    assert_eq!(server.list(&id, "trials"), trials);
    server.process.signal("INT");
    assert_eq!(server.process.end().code, 0);
    // The folder is one of sonde bench's.
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    command.arg("report").arg(folder.0.join(&id));
    let ended = Process::start(command).end();
    assert!(ended.code == 0 && folder.0.join(&id).join("report/report.html").exists());
}

#[test]
fn a_run_has_the_host_for_itself_and_goes_on_after_a_stop() {
    if sonde_lab::skip("a_run_has_the_host_for_itself_and_goes_on_after_a_stop") {
        return;
    }
    let folder = Folder::new("stopped");
    let server = folder.server();
    // Far longer than the test.
    let long = plan("long", "600s");
    let id = server.begin(&long);
    let path = format!("{RUNS}/{id}");
    until("a trial", || server.done("GET", &path, &Value::Null)["present"]["attempt"] == 1);
    let (status, answer) = server.ask("POST", RUNS, &plan("other", "200ms"));
    assert!(status == 409 && answer.to_string().contains("under way"), "{answer}");
    server.done("POST", &format!("{path}/stop"), &Value::Null);
    let run = server.ended(&id);
    assert_eq!((&run["state"], &run["measured"]), (&json!("interrupted"), &json!(0)), "{run}");
    assert_eq!(server.list(&id, "trials").len(), 1);
    // It goes on, until the server ends: then it is kept, too, and another server knows it.
    assert_eq!(server.begin(&long), id);
    until("a trial", || server.done("GET", &path, &Value::Null)["present"]["attempt"] == 1);
    server.process.signal("TERM");
    assert_eq!(server.process.end().code, 0);
    let server = folder.server();
    let runs = server.done("GET", RUNS, &Value::Null);
    assert_eq!(
        (&runs["runs"][0]["id"], &runs["runs"][0]["state"]),
        (&json!(id), &json!("interrupted"))
    );
    assert_eq!(server.list(&id, "trials").len(), 2);
}

#[test]
fn a_plan_with_commands_is_refused_and_leaves_nothing() {
    let folder = Folder::new("refused");
    let server = folder.server();
    let mark = folder.0.join("was-here");
    let mut commands = plan("commands", "200ms")["plan"].as_str().unwrap().to_owned();
    commands += &format!("[[condition]]\nname = 'c'\ncommand = 'touch {}'\n", mark.display());
    let (status, answer) = server.ask("POST", RUNS, &json!({ "plan": commands }));
    assert!(status == 403 && answer.to_string().contains("shell"), "{answer}");
    let (status, answer) = server.ask("POST", RUNS, &json!({ "plan": "title = 'x'\nwhat = 1\n" }));
    assert!(status == 400 && answer.to_string().contains("plan line 2"), "{answer}");
    assert_eq!(server.done("GET", RUNS, &Value::Null), json!({ "runs": [] }));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    for id in ["..", ".", "%2e%2e", "0123456789abcdef", "%2Fetc"] {
        assert_eq!(server.ask("GET", &format!("{RUNS}/{id}/trials"), &Value::Null).0, 404, "{id}");
    }
    let (status, answer) = Server::start().ask("GET", RUNS, &Value::Null);
    assert!(status == 404 && answer.to_string().contains("--runs"), "{answer}");
}

const RUNS: &str = "/sonde/v1/runs";
