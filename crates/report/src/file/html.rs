//! One self-contained HTML page: figures, style and tables inside, no script, nothing fetched.

use std::fmt::Write as _;

use super::Report;
use crate::chart::Chart;
use crate::chart::svg::{self, escape};
use crate::sheet::{Cell, Sheet};

/// A page of tables, with sentences before and after them.
pub(crate) fn page(title: &str, lead: &[String], sheets: &[&Sheet], methods: &str) -> String {
    let mut out = begin(title, lead);
    sheets.iter().for_each(|sheet| table(&mut out, sheet));
    let _ = write!(
        out,
        "<h2 id=\"methods\">Methods</h2>\n<p>{}</p>\n</body>\n</html>\n",
        escape(methods)
    );
    out
}

fn begin(title: &str, lead: &[String]) -> String {
    let title = escape(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{}{}{PAGE_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
        root(),
        svg::style()
    );
    for line in lead {
        let _ = writeln!(out, "<p>{}</p>", escape(line));
    }
    out
}

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out = begin(report.title(), &report.lead());
    let (before, after): (Vec<&Sheet>, Vec<&Sheet>) = report
        .sheets
        .iter()
        .filter(|s| !s.for_programs_only())
        .partition(|s| ["key_results", "thresholds", "caveats"].contains(&s.id.as_str()));
    before.iter().for_each(|s| table(&mut out, s));
    let (minor, major): (Vec<&Chart>, Vec<&Chart>) = report.charts.iter().partition(|c| c.minor);
    if !report.charts.is_empty() {
        out.push_str("<h2>Figures</h2>\n");
        figures(&mut out, &major);
    }
    if !minor.is_empty() {
        let _ = writeln!(
            out,
            "<details>\n<summary>{} more figures: the frame sizes between</summary>",
            minor.len()
        );
        figures(&mut out, &minor);
        out.push_str("</details>\n");
    }
    after.iter().for_each(|s| table(&mut out, s));
    let _ = write!(
        out,
        "<h2 id=\"methods\">Methods</h2>\n<p>{}</p>\n<details><summary>The plan</summary>\n\
         <pre>{}</pre></details>\n</body>\n</html>\n",
        escape(&report.methods()),
        escape(&report.run.config.plan)
    );
    out
}

/// The page's own colours, those of the charts.
fn root() -> String {
    let colours = |g: &svg::Ground| {
        let svg::Ground { ink, soft, rule, ground } = g;
        format!(":root{{--ink:{ink};--soft:{soft};--rule:{rule};--ground:{ground}}}")
    };
    let (light, dark) = (colours(&svg::LIGHT), colours(&svg::DARK));
    format!("{light}{}{{{dark}}}", svg::WHEN_DARK)
}

fn figures(out: &mut String, charts: &[&Chart]) {
    out.push_str("<div class=\"figures\">\n");
    for chart in charts {
        let _ = write!(
            out,
            "<figure id=\"figure-{}\">\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>\n</figure>\n",
            chart.id,
            escape(&chart.title),
            svg::render(chart, false),
            escape(&chart.caption)
        );
    }
    out.push_str("</div>\n");
}

fn table(out: &mut String, sheet: &Sheet) {
    let sheet = &sheet.for_people();
    let _ = writeln!(out, "<section>\n<h2 id=\"{0}\">{1}</h2>", sheet.id, escape(&sheet.title));
    if !sheet.note.is_empty() {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&sheet.note));
    }
    out.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    // A column is of numbers where no cell is text.
    let numeric: Vec<bool> = (0..sheet.columns.len())
        .map(|i| sheet.rows.iter().all(|r| !matches!(r[i], Cell::Text(_))))
        .collect();
    for (column, numeric) in sheet.columns.iter().zip(&numeric) {
        let class = if *numeric { " class=\"n\"" } else { "" };
        let _ = write!(out, "<th{class}>{}</th>", escape(&column.heading()));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &sheet.rows {
        out.push_str("<tr>");
        for ((cell, column), numeric) in row.iter().zip(&sheet.columns).zip(&numeric) {
            let class = if *numeric { " class=\"n\"" } else { "" };
            let _ = write!(out, "<td{class}>{}</td>", escape(&cell.text(&column.unit)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

const PAGE_STYLE: &str = "\
body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:var(--ink);background:var(--ground);\
max-width:76rem;margin:0 auto;padding:1.5rem}\
h1{font-size:1.7rem;line-height:1.2}h2{font-size:1.2rem;margin:2.2rem 0 .4rem}\
h3{font-size:1rem;margin:0 0 .3rem}\
p{max-width:52rem}.note,figcaption{color:var(--soft);font-size:.85rem;max-width:52rem}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(34rem,100%),1fr));gap:2rem}\
figure{margin:0;break-inside:avoid;min-width:0}figure svg{width:100%;height:auto}\
.scroll{overflow-x:auto}\
table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top;\
border-bottom:1px solid var(--rule);overflow-wrap:anywhere;min-width:3.2rem}\
th{overflow-wrap:normal;border-bottom:2px solid var(--soft);font-weight:600}.n{text-align:right;white-space:nowrap}\
th.n{white-space:normal}\
pre{overflow-x:auto;font-size:.8rem}\
@media print{body{max-width:none;padding:0;font-size:10pt}.figures{display:block}\
figure{margin-bottom:1.5rem}h2{break-after:avoid}tr{break-inside:avoid}.scroll{overflow:visible}}";
