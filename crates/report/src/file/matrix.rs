//! Binary matrices for NumPy: each table's values and each line of a figure as 64-bit floats. The
//! texts of a table are beside them as strings, and an index names the columns.

use npyz::WriterBuilder as _;
use serde_json::{Map, Value, json};

use super::{Page, RenderError, Report};
use crate::chart::{AxisScale, Chart, Series, Shape};
use crate::sheet::Cell;

pub(super) fn render(report: &Report<'_>) -> Result<Vec<Page>, RenderError> {
    let mut pages = Vec::new();
    let mut index = Map::new();
    for sheet in &report.sheets {
        let is_text = |i: &usize| sheet.rows.iter().any(|r| matches!(r[*i], Cell::Text(_)));
        let (textual, numeric): (Vec<usize>, Vec<usize>) =
            (0..sheet.columns.len()).partition(is_text);
        let numeric: Vec<usize> = numeric
            .into_iter()
            .filter(|&i| sheet.rows.iter().any(|r| r[i].number().is_some()))
            .collect();
        let keys = |of: &[usize]| of.iter().map(|&i| sheet.columns[i].key()).collect::<Vec<_>>();
        // The texts of a row say what its values are of: both have the same rows.
        let texts = format!("npy/{}_text.npy", sheet.id);
        if !textual.is_empty() {
            let cells = sheet.rows.iter().flat_map(|row| textual.iter().map(|&i| row[i].raw()));
            pages.push(strings(&texts, textual.len(), &cells.collect::<Vec<_>>()));
            index.insert(texts.clone(), json!({ "of": sheet.title, "columns": keys(&textual) }));
        }
        if numeric.is_empty() {
            continue;
        }
        let cell = |row: &Vec<Cell>, i: usize| row[i].number().unwrap_or(f64::NAN);
        let values = sheet.rows.iter().flat_map(|row| numeric.iter().map(move |&i| cell(row, i)));
        let name = format!("npy/{}.npy", sheet.id);
        pages.push(matrix(&name, numeric.len(), values.collect())?);
        let mut about = json!({ "of": sheet.title, "columns": keys(&numeric) });
        if !textual.is_empty() {
            about["rows_are_told_by"] = texts.into();
        }
        index.insert(name, about);
    }
    for chart in &report.charts {
        for (i, series) in chart.series.iter().enumerate() {
            let Some((columns, mut values)) = line(series) else { continue };
            replace_by_number(chart, series, columns.len(), &mut values);
            let name = format!("npy/{}_{i}.npy", chart.id);
            pages.push(matrix(&name, columns.len(), values)?);
            index.insert(name, described(chart, series, &columns));
        }
    }
    let index = format!("{:#}\n", Value::Object(index));
    pages.push(Page { name: "npy/index.json".into(), bytes: index.into_bytes() });
    Ok(pages)
}

/// Where names on the x axis stand for values (frame sizes), x is that value.
fn replace_by_number(chart: &Chart, series: &Series, columns: usize, values: &mut [f64]) {
    let numbers = &chart.x.numbers;
    let by_index = matches!(series.shape, Shape::Line { .. } | Shape::Intervals(_));
    if numbers.is_empty() || !by_index {
        return;
    }
    for row in values.chunks_mut(columns) {
        row[0] = numbers.get(row[0] as usize).copied().unwrap_or(f64::NAN);
    }
}

/// An array of strings, row after row: NumPy's `<U`, which is UTF-32 of a fixed length.
fn strings(name: &str, columns: usize, cells: &[String]) -> Page {
    let longest = cells.iter().map(|c| c.chars().count()).max().unwrap_or(0).max(1);
    let rows = cells.len() / columns;
    let head = format!(
        "{{'descr': '<U{longest}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    );
    // Magic, version 1.0, the length of the head in two octets; the data begins at a multiple
    // of 64 (NEP 1).
    let whole = (10 + head.len() + 1).next_multiple_of(64);
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(((whole - 10) as u16).to_le_bytes());
    bytes.extend(head.bytes());
    bytes.resize(whole - 1, b' ');
    bytes.push(b'\n');
    for cell in cells {
        let mut left = longest;
        for c in cell.chars() {
            bytes.extend(u32::from(c).to_le_bytes());
            left -= 1;
        }
        bytes.resize(bytes.len() + 4 * left, 0);
    }
    Page { name: name.into(), bytes }
}

fn described(chart: &Chart, series: &Series, columns: &[&str]) -> Value {
    json!({
        "of": chart.title,
        "series": series.name,
        "columns": columns,
        "x": chart.x.title,
        "y": chart.y.title,
        // Where x or y is the index of a name: names from 0 on.
        "x_names": names(&chart.x.scale),
        "x_numbers": chart.x.numbers,
        "y_names": names(&chart.y.scale),
        // Values are not scaled: those of a time are ns whatever unit the axis shows.
        "axis_divisors": [chart.x.divisor, chart.y.divisor],
    })
}

fn names(scale: &AxisScale) -> &[String] {
    match scale {
        AxisScale::Names(names) => names,
        _ => &[],
    }
}

fn line(series: &Series) -> Option<(Vec<&'static str>, Vec<f64>)> {
    match &series.shape {
        Shape::Line { points, .. } if !points.is_empty() => {
            Some((vec!["x", "y"], points.iter().flat_map(|p| [p.0, p.1]).collect()))
        }
        Shape::Intervals(points) | Shape::Rows(points) if !points.is_empty() => Some((
            vec!["x", "y", "low", "high"],
            points.iter().flat_map(|p| [p.x, p.y, p.low, p.high]).collect(),
        )),
        Shape::Cells(cells) if !cells.is_empty() => Some((
            vec!["x from", "x to", "y from", "y to", "level"],
            cells.iter().flat_map(|c| [c.x.0, c.x.1, c.y.0, c.y.1, c.level as f64]).collect(),
        )),
        _ => None,
    }
}

/// Row after row.
fn matrix(name: &str, columns: usize, values: Vec<f64>) -> Result<Page, RenderError> {
    let mut bytes = Vec::new();
    let shape = [(values.len() / columns) as u64, columns as u64];
    let written = || -> std::io::Result<()> {
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&shape)
            .writer(&mut bytes)
            .begin_nd()?;
        writer.extend(values)?;
        writer.finish()
    };
    let result = { written }();
    result.map_err(|e| RenderError::Matrix(name.into(), e))?;
    Ok(Page { name: name.into(), bytes })
}
