//! LaTeX: booktabs tables and pgfplots figures in one source.

use crate::latex_text::escape;
use std::fmt::Write as _;

use super::Report;
use crate::chart::{Chart, Shape, pgf, wrapped};
use crate::sheet::{Cell, Sheet};

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = format!(
        "\\documentclass[a4paper,10pt]{{article}}\n\\usepackage[T1]{{fontenc}}\n\
         \\usepackage[utf8]{{inputenc}}\n\\usepackage{{textcomp}}\n\
         \\usepackage[margin=20mm]{{geometry}}\n\\usepackage{{booktabs,longtable,array,pdflscape}}\n{}\
         \\setlength{{\\LTleft}}{{0pt}}\n\\setlength{{\\tabcolsep}}{{4pt}}\n\
         \\begin{{document}}\n\\section*{{{}}}\n",
        pgf::preamble(),
        escape(report.title())
    );
    for line in report.lead() {
        let _ = writeln!(out, "{}\n", escape(&line));
    }
    // The answer first.
    report.sheets.iter().filter(|s| s.is_key()).for_each(|s| table(&mut out, s));
    for (i, chart) in report.charts.iter().enumerate() {
        // TeX holds some fifty figures back at most.
        if i % 8 == 7 {
            out.push_str("\\clearpage\n");
        }
        let _ = write!(
            out,
            "\\begin{{figure}}[htbp]\n\\centering\n{}\\caption{{{}. {}{}}}\n\\label{{fig:{}}}\n\
             \\end{{figure}}\n",
            pgf::render(chart),
            escape(&chart.title),
            escape(&chart.caption),
            key(chart),
            chart.id.replace('_', "-")
        );
    }
    out.push_str("\\clearpage\n");
    for sheet in report.sheets.iter().filter(|s| !s.for_programs_only() && !s.is_key()) {
        table(&mut out, sheet);
    }
    let _ =
        write!(out, "\\section*{{Methods}}\n{}\n\\end{{document}}\n", escape(&report.methods()));
    out
}

/// The key of a heat map, for its caption.
fn key(chart: &Chart) -> String {
    let mut keys = chart.series.iter().filter(|s| matches!(s.shape, Shape::Cells(_)));
    keys.next().map_or(String::new(), |s| {
        format!(
            " From the strongest colour to the faintest: {}.",
            escape(&s.name.replace('|', ", "))
        )
    })
}

fn table(out: &mut String, sheet: &Sheet) {
    let sheet = &sheet.for_people();
    let width = |i: usize| {
        let texts = sheet.rows.iter().filter_map(|r| match &r[i] {
            Cell::Text(text) => Some(text.chars().count()),
            _ => None,
        });
        texts.max()
    };
    let wide = sheet.columns.len() > 8;
    // Columns of sentences share what the others leave of the line.
    let long: Vec<bool> =
        (0..sheet.columns.len()).map(|i| width(i).is_some_and(|w| w > 24)).collect();
    let line = if wide { LANDSCAPE } else { PORTRAIT };
    let others: usize = (0..sheet.columns.len())
        .filter(|&i| !long[i])
        .map(|i| letters(sheet, i, width(i).is_some()) + GAP)
        .sum();
    let left = 1.0 - others as f64 / line as f64;
    let share = left.clamp(0.15, 0.9) / long.iter().filter(|l| **l).count().max(1) as f64;
    let columns: String = (0..sheet.columns.len())
        .map(|i| match (long[i], width(i)) {
            (true, _) => format!(">{{\\raggedright\\arraybackslash}}p{{{share:.2}\\linewidth}}"),
            (false, Some(_)) => "l".into(),
            (false, None) => "r".into(),
        })
        .collect();
    if wide {
        out.push_str("\\begin{landscape}\n");
    }
    let _ = writeln!(out, "\\subsection*{{{}}}", escape(&sheet.title));
    if !sheet.note.is_empty() {
        let _ = writeln!(out, "{{\\small {}}}", escape(&sheet.note));
    }
    let size = if wide { "\\scriptsize" } else { "\\footnotesize" };
    // The headings of numbers are longer than these: in lines.
    let head = sheet.columns.iter().enumerate().map(|(i, c)| match width(i) {
        Some(_) => escape(&c.heading()),
        None => {
            let lines: Vec<String> =
                wrapped(&c.heading(), 11).iter().map(|l| escape(l.trim_end())).collect();
            format!("\\shortstack[r]{{{}}}", lines.join("\\\\"))
        }
    });
    let head: Vec<String> = head.collect();
    let _ = write!(
        out,
        "{{{size}\n\\begin{{longtable}}{{@{{}}{columns}@{{}}}}\n\\toprule\n{} \\\\\n\\midrule\n\
         \\endhead\n",
        head.join(" & ")
    );
    for row in &sheet.rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&sheet.columns)
            .zip(&long)
            .map(|((cell, column), long)| {
                let text = escape(&cell.text(&column.unit));
                // Paths are broken where a line has no room for them.
                if *long { text.replace('/', "/\\allowbreak{}") } else { text }
            })
            .collect();
        // A bracket at the begin of a row would be read as the option of the one before.
        let _ = writeln!(out, "{{}}{} \\\\", cells.join(" & "));
    }
    out.push_str("\\bottomrule\n\\end{longtable}}\n");
    if wide {
        out.push_str("\\end{landscape}\n");
    }
}

/// Letters of a column's widest cell, or of its heading, which numbers have in lines.
fn letters(sheet: &Sheet, i: usize, text: bool) -> usize {
    let column = &sheet.columns[i];
    let cells = sheet.rows.iter().map(|row| row[i].text(&column.unit).chars().count()).max();
    let heading = match text {
        true => column.heading().chars().count(),
        false => {
            wrapped(&column.heading(), 11).iter().map(|l| l.chars().count()).max().unwrap_or(0)
        }
    };
    cells.unwrap_or(0).max(heading)
}

/// Letters of a line, about: of the tables across the page, and of those along it.
const LANDSCAPE: usize = 180;
const PORTRAIT: usize = 110;
/// Letters' room between two columns.
const GAP: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_command() {
        assert_eq!(
            escape("50 % of \\x_1 {µs}"),
            "50 \\% of \\textbackslash{}x\\_1 \\{\\textmu{}s\\}"
        );
        assert_eq!(escape("--io\u{1f600}\n"), "{-}{-}io? ");
    }
}
