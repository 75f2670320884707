//! Tables: what every tabular output is written from.

mod bed;
mod key;
mod results;
mod rfc2544;
mod trials;

use sonde_results::bench::{BenchRun, Case};
use sonde_results::units::format_count;

use crate::quantity::show;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Name for files and links: "throughput".
    pub id: String,
    pub title: String,
    /// What a reader must know; may be empty.
    pub note: String,
    pub columns: Vec<SheetColumn>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Columns that people see although all of their cells are alike.
    pub keep: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetColumn {
    /// Its name: lower case, joined by `_` where files need it.
    pub name: String,
    /// Unit of its values; empty: none, or another in each row (see the column "unit").
    pub unit: String,
}

impl SheetColumn {
    /// Name and unit as a heading has them. Times and ratios carry their unit in each cell.
    pub fn heading(&self) -> String {
        match self.unit.as_str() {
            "" | "ns" | "ratio" => self.name.clone(),
            unit => format!("{}, {unit}", self.name),
        }
    }

    /// Name for a file: "received_frames", "median_ns".
    pub fn key(&self) -> String {
        let joined = |text: &str| {
            text.replace('%', "percent").replace("/s", "_per_s").replace([' ', '-', '.', '/'], "_")
        };
        match self.unit.as_str() {
            "" => joined(&self.name),
            unit => match (joined(&self.name), joined(unit)) {
                (name, unit) if name == unit || name.ends_with(&format!("_{unit}")) => name,
                (name, unit) => format!("{name}_{unit}"),
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    /// An integer, printed in full.
    Count(u64),
    /// A value in the column's unit.
    Number(f64),
    /// A value with a unit of its own.
    Of(f64, String),
    /// The same, and people see the unit beside it.
    Unit(f64, String),
    None,
}

impl Cell {
    /// As people read it. `unit` is the column's.
    pub fn text(&self, unit: &str) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(n) => grouped(*n),
            Cell::Number(v) => show(*v, unit),
            Cell::Of(v, unit) => show(*v, unit),
            Cell::Unit(v, unit) => {
                let text = show(*v, unit);
                // After a prefix its unit follows at once: "1.235 Mframes/s".
                match text.ends_with(|c: char| c.is_ascii_alphabetic()) || unit.is_empty() {
                    true => format!("{text}{unit}"),
                    false => format!("{text} {unit}"),
                }
            }
            Cell::None => "-".into(),
        }
    }

    /// As programs read it: all digits, no prefix; empty: no value.
    pub fn raw(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(n) => n.to_string(),
            Cell::Number(v) | Cell::Of(v, _) | Cell::Unit(v, _) if v.is_finite() => v.to_string(),
            _ => String::new(),
        }
    }

    /// The value; `None`: text or nothing.
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Count(n) => Some(*n as f64),
            Cell::Number(v) | Cell::Of(v, _) | Cell::Unit(v, _) => Some(*v),
            _ => None,
        }
    }

    fn maybe(value: Option<f64>) -> Cell {
        value.map_or(Cell::None, Cell::Number)
    }
}

/// An integer with a thin space before each three digits, where it has more than four.
fn grouped(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        n => format_count(n).replace(',', "\u{2009}"),
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

/// Every table of a run that has rows: results first, then what they rest on.
pub fn sheets(run: &BenchRun) -> Vec<Sheet> {
    let mut sheets = vec![key::sheet(run)];
    sheets.extend(rfc2544::sheets(run));
    sheets.extend([
        results::sheet(run),
        results::checks(run),
        results::notes(run),
        trials::caveats(run),
        trials::invalid(run),
        trials::ledger(run),
        bed::ports(run),
        bed::facts(run),
        trials::all(run),
        trials::latency_buckets(run),
    ]);
    sheets.retain(|s| !s.rows.is_empty());
    sheets
}

impl Sheet {
    /// Those that only files have: too long to be read.
    pub fn for_programs_only(&self) -> bool {
        ["trials", "latency_histograms"].contains(&self.id.as_str())
    }

    /// The table of key results, which every format has first.
    pub fn is_key(&self) -> bool {
        self.id == "key_results"
    }

    pub(crate) fn new(id: &str, title: &str, note: &str, columns: &[(&str, &str)]) -> Sheet {
        let columns = columns
            .iter()
            .map(|&(name, unit)| SheetColumn { name: name.into(), unit: unit.into() })
            .collect();
        Sheet {
            id: id.into(),
            title: title.into(),
            note: note.into(),
            columns,
            rows: Vec::new(),
            keep: Vec::new(),
        }
    }

    /// As people read it: without columns of text that are the same in every row, which the
    /// note says instead, and without empty ones, whatever is kept.
    pub fn for_people(&self) -> Sheet {
        let constant = |i: usize| {
            let text = |row: &Vec<Cell>| match &row[i] {
                Cell::Text(text) => Some(text.clone()),
                _ => None,
            };
            let first = self.rows.first().and_then(text);
            let same = first.is_some() && self.rows.iter().all(|row| text(row) == first);
            let none = self.rows.iter().all(|row| row[i] == Cell::None);
            let keep = self.keep.contains(&self.columns[i].name.as_str());
            let empty = same && first.as_deref() == Some("");
            (none || empty || same && !keep).then_some(first)
        };
        let dropped: Vec<Option<Option<String>>> = (0..self.columns.len()).map(constant).collect();
        let said = self.columns.iter().zip(&dropped).filter_map(|(column, text)| match text {
            Some(Some(text)) if !text.is_empty() => Some(format!("{} {text}", column.name)),
            _ => None,
        });
        let said = said.collect::<Vec<_>>().join(", ");
        let mut sheet = self.clone();
        if !said.is_empty() {
            let gap = if self.note.is_empty() { "" } else { " " };
            sheet.note.push_str(&format!("{gap}All rows: {said}."));
        }
        let kept = |i: &usize| dropped[*i].is_none();
        sheet.columns =
            (0..self.columns.len()).filter(kept).map(|i| self.columns[i].clone()).collect();
        for row in &mut sheet.rows {
            *row = (0..row.len()).filter(kept).map(|i| row[i].clone()).collect();
        }
        sheet
    }

    pub(crate) fn keeping(mut self, columns: &[&'static str]) -> Sheet {
        self.keep = columns.to_vec();
        self
    }
}

/// Columns that identify a case, and their cells.
const CASE_COLUMNS: [(&str, &str); 8] = [
    ("procedure", ""),
    ("device", ""),
    ("condition", ""),
    ("frame", ""),
    ("direction", ""),
    ("flows", ""),
    ("load", ""),
    ("sweep", ""),
];

fn case_cells(case: &Case) -> Vec<Cell> {
    let sweep: Vec<String> = case.sweep.iter().map(|(n, v)| format!("{n}={v}")).collect();
    vec![
        case.procedure.as_str().into(),
        case.device.as_str().into(),
        case.condition.as_str().into(),
        case.frame.as_str().into(),
        case.direction.as_str().into(),
        case.flows.to_string().into(),
        case.load.as_str().into(),
        sweep.join(" ").into(),
    ]
}
