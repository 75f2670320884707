//! Debian's Prometheus in a namespace: what it scrapes, what it was sent, what it answers.

use std::time::Duration;

use serde_json::Value;
use sonde_lab::Host;

use crate::bed::{Bed, Program, program, start_in};

pub struct Prometheus {
    program: Option<Program>,
    start: Box<dyn Fn() -> Program>,
    near: Host,
}

impl Prometheus {
    /// Starts one that scrapes as `scrapes` says (YAML below `scrape_configs`). `None`: there is
    /// no Prometheus here, and the test was noted as skipped.
    pub fn start(test: &str, bed: &Bed, near: &Host, scrapes: &str) -> Option<Prometheus> {
        let found = program(test, "prometheus", "prometheus")?;
        let text = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n{scrapes}"
        );
        let path = found.get_program().to_str().unwrap().to_owned();
        let (config, data) = (bed.write("prometheus.yml", &text), bed.path("data"));
        let (host, folder) = (near.clone(), bed.folder.clone());
        let start = move || {
            let mut command = host.command(&path);
            command.args(["--config.file", &config, "--storage.tsdb.path", &data]).args([
                "--web.enable-remote-write-receiver",
                "--web.listen-address",
                LISTEN,
            ]);
            start_in(&folder, command)
        };
        let program = Some(start());
        let prometheus = Prometheus { program, start: Box::new(start), near: near.clone() };
        bed.until("Prometheus", || prometheus.get("/-/ready").is_some());
        Some(prometheus)
    }

    /// Ends it; its data stay.
    pub fn end(&mut self) {
        self.program = None;
    }

    /// Starts it again.
    pub fn begin(&mut self, bed: &Bed) {
        self.program = Some((self.start)());
        bed.until("Prometheus again", || self.get("/-/ready").is_some());
    }

    /// The answer to a query; an error of it is a failure.
    pub fn query(&self, promql: &str) -> Vec<Value> {
        let encoded: String = promql.bytes().map(|b| format!("%{b:02X}")).collect();
        let text = self.get(&format!("/api/v1/query?query={encoded}"));
        let text = text.unwrap_or_else(|| panic!("{promql} is no query for Prometheus"));
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["status"], "success", "{promql}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// The value of a query that has one series; `None`: it has none yet.
    pub fn value(&self, promql: &str) -> Option<f64> {
        let found = self.query(promql);
        assert!(found.len() <= 1, "{promql}: {found:?}");
        found.first()?["value"][1].as_str()?.parse().ok()
    }

    /// Waits for the value of a query.
    pub fn until(&self, bed: &Bed, promql: &str, is: impl Fn(f64) -> bool) -> f64 {
        let mut last = None;
        bed.until(promql, || {
            last = self.value(promql);
            last.is_some_and(&is)
        });
        last.unwrap()
    }

    fn get(&self, path: &str) -> Option<String> {
        let address = format!("http://{LISTEN}{path}");
        let ask = move || {
            let answer = ureq::get(&address).config();
            let answer = answer.timeout_global(Some(Duration::from_secs(30))).build().call();
            answer.ok()?.into_body().read_to_string().ok()
        };
        self.near.inside(ask).unwrap()
    }
}

/// In a namespace of its own.
pub const LISTEN: &str = "127.0.0.1:9090";
