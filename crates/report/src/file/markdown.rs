//! Markdown with pipe tables; figures are SVG files beside it.

use std::fmt::Write as _;

use super::{Report, figure_name};
use crate::sheet::{Cell, Sheet};

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = format!("# {}\n\n", escape(report.title()));
    for line in report.lead() {
        let _ = writeln!(out, "{}\n", escape(&line));
    }
    // The answer first.
    report.sheets.iter().filter(|s| s.is_key()).for_each(|s| table(&mut out, s));
    for chart in &report.charts {
        let _ = writeln!(
            out,
            "## {0}\n\n![{0}]({1})\n\n{2}\n",
            escape(&chart.title),
            figure_name(chart),
            escape(&chart.caption)
        );
    }
    for sheet in report.sheets.iter().filter(|s| !s.for_programs_only() && !s.is_key()) {
        table(&mut out, sheet);
    }
    let _ = writeln!(out, "## Methods\n\n{}", escape(&report.methods()));
    out
}

fn table(out: &mut String, sheet: &Sheet) {
    let sheet = &sheet.for_people();
    let _ = writeln!(out, "## {}\n", escape(&sheet.title));
    if !sheet.note.is_empty() {
        let _ = writeln!(out, "{}\n", escape(&sheet.note));
    }
    out.push('|');
    for column in &sheet.columns {
        let _ = write!(out, " {} |", escape(&column.heading()));
    }
    out.push_str("\n|");
    for i in 0..sheet.columns.len() {
        let has_text = sheet.rows.iter().any(|r| matches!(r[i], Cell::Text(_)));
        out.push_str(if has_text { " --- |" } else { " ---: |" });
    }
    out.push('\n');
    for row in &sheet.rows {
        out.push('|');
        for (cell, column) in row.iter().zip(&sheet.columns) {
            let _ = write!(out, " {} |", escape(&cell.text(&column.unit)));
        }
        out.push('\n');
    }
    out.push('\n');
}

/// Text that stays text: no markup, no cell's end, no line's end.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_cannot_leave_its_cell() {
        assert_eq!(super::escape("a|b\n<i>*x*"), "a\\|b &lt;i>\\*x\\*");
    }
}
