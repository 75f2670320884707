//! Binary matrices for NumPy, and by it for MATLAB and Octave: each table's numbers and each
//! line of a figure as 64-bit floats, with an index that names the columns.

use npyz::WriterBuilder as _;
use serde_json::{Map, Value, json};

use super::{Page, RenderError, Report};
use crate::chart::{Chart, Series, Shape};
use crate::sheet::Cell;

pub(super) fn render(report: &Report<'_>) -> Result<Vec<Page>, RenderError> {
    let mut pages = Vec::new();
    let mut index = Map::new();
    for sheet in &report.sheets {
        let numeric: Vec<usize> = (0..sheet.columns.len())
            .filter(|&i| {
                let none_are_words = !sheet.rows.iter().any(|r| matches!(r[i], Cell::Text(_)));
                none_are_words && sheet.rows.iter().any(|r| r[i].number().is_some())
            })
            .collect();
        if numeric.is_empty() {
            continue;
        }
        let cell = |row: &Vec<Cell>, i: usize| row[i].number().unwrap_or(f64::NAN);
        let values = sheet.rows.iter().flat_map(|row| numeric.iter().map(move |&i| cell(row, i)));
        let name = format!("npy/{}.npy", sheet.id);
        let columns: Vec<String> = numeric.iter().map(|&i| sheet.columns[i].key()).collect();
        pages.push(matrix(&name, columns.len(), values.collect())?);
        index.insert(name, json!({ "of": sheet.title, "columns": columns }));
    }
    for chart in &report.charts {
        for (i, series) in chart.series.iter().enumerate() {
            let Some((columns, values)) = line(series) else { continue };
            let name = format!("npy/{}_{i}.npy", chart.id);
            pages.push(matrix(&name, columns.len(), values)?);
            index.insert(name, described(chart, series, &columns));
        }
    }
    let index = format!("{:#}\n", Value::Object(index));
    pages.push(Page { name: "npy/index.json".into(), bytes: index.into_bytes() });
    Ok(pages)
}

fn described(chart: &Chart, series: &Series, columns: &[&str]) -> Value {
    json!({
        "of": chart.title,
        "series": series.name,
        "columns": columns,
        "x": chart.x.title,
        "y": chart.y.title,
        // Values are not scaled: those of a time are ns whatever unit the axis shows.
        "axis_divisors": [chart.x.divisor, chart.y.divisor],
    })
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
