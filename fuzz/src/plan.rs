//! Plans of benchmarks: whatever stands in one, it is read or refused at a line that it has.

use sonde_testbed::plan::{BenchPlan, TomlText};

pub fn plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let source = TomlText { file: "f".into(), text: text.into() };
    if let Err(error) = source.parse::<BenchPlan>() {
        let lines = text.lines().count().max(1) + 1;
        assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
        assert!(!error.message.is_empty());
    }
}
