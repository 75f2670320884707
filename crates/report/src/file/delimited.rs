//! CSV, TSV and JSON: all digits, no prefixes, a unit in each column's name.

use serde_json::{Map, Value, json};

use super::{Page, RenderError, Report};
use crate::sheet::{Cell, Sheet};

/// A file a table.
pub(super) fn render(
    report: &Report<'_>,
    delimiter: u8,
    ending: &str,
) -> Result<Vec<Page>, RenderError> {
    let one = |sheet: &Sheet| {
        let name = format!("{ending}/{}.{ending}", sheet.id);
        let bytes = table(sheet, delimiter).map_err(|e| RenderError::Delimited(name.clone(), e))?;
        Ok(Page { name, bytes })
    };
    report.sheets.iter().map(one).collect()
}

pub(crate) fn table(sheet: &Sheet, delimiter: u8) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    writer.write_record(sheet.columns.iter().map(|c| c.key()))?;
    for row in &sheet.rows {
        writer.write_record(row.iter().map(|cell| guarded(cell.raw(), cell)))?;
    }
    writer.into_inner().map_err(|e| e.into_error().into())
}

/// Texts that a spreadsheet would take for a formula begin with an apostrophe. Names come from
/// files and interfaces, and the file is opened by a double click.
fn guarded(text: String, cell: &Cell) -> String {
    match cell {
        Cell::Text(_) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => format!("'{text}"),
        _ => text,
    }
}

/// All tables and figures in one document.
pub(super) fn json(report: &Report<'_>) -> String {
    let value = |cell: &Cell| match cell {
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Count(n) => Value::from(*n),
        Cell::Number(v) | Cell::Of(v, _) | Cell::Unit(v, _) => Value::from(*v),
        Cell::None => Value::Null,
    };
    let tables: Map<String, Value> = report
        .sheets
        .iter()
        .map(|sheet| {
            let row = |cells: &Vec<Cell>| -> Map<String, Value> {
                sheet.columns.iter().map(|c| c.key()).zip(cells.iter().map(value)).collect()
            };
            let rows: Vec<_> = sheet.rows.iter().map(row).collect();
            (sheet.id.clone(), json!({ "title": sheet.title, "note": sheet.note, "rows": rows }))
        })
        .collect();
    let ablations: Vec<Value> = crate::figure::ablations(report.run)
        .into_iter()
        .map(|a| {
            let shares = a.layers.iter().zip(&a.shares);
            let shares: Vec<Value> = shares
                .map(|(l, s)| json!({ "layer": l, "mean": s.mean, "interval": s.interval }))
                .collect();
            let joint: Vec<Value> = a
                .interactions
                .iter()
                .map(|(i, j, v)| json!({ "layers": [i, j], "mean": v }))
                .collect();
            json!({
                "case": a.case, "quantity": a.quantity.0, "unit": a.quantity.1,
                "blocks": a.blocks, "baseline": a.baseline, "all": a.all,
                "shares": shares, "interactions": joint,
            })
        })
        .collect();
    let document = json!({
        "title": report.title(),
        "summary": report.lead(),
        "methods": report.methods(),
        "tables": tables,
        "ablations": ablations,
    });
    format!("{document:#}\n")
}
