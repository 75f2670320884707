//! Apache Parquet: a file a table, for DuckDB, Spark, pandas.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::{Page, RenderError, Report};
use crate::sheet::{Cell, Sheet};

pub(super) fn render(report: &Report<'_>) -> Result<Vec<Page>, RenderError> {
    let one = |sheet: &Sheet| {
        let name = format!("parquet/{}.parquet", sheet.id);
        let bytes = table(sheet).map_err(|e| RenderError::Parquet(name.clone(), e))?;
        Ok(Page { name, bytes })
    };
    report.sheets.iter().map(one).collect()
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Whole,
    Number,
}

fn kind(sheet: &Sheet, column: usize) -> Kind {
    let mut cells = sheet.rows.iter().map(|r| &r[column]);
    if cells.clone().any(|c| matches!(c, Cell::Text(_))) {
        Kind::Text
    } else if cells.all(|c| matches!(c, Cell::Count(_))) {
        Kind::Whole
    } else {
        Kind::Number
    }
}

fn table(sheet: &Sheet) -> Result<Vec<u8>, ParquetError> {
    let kinds: Vec<Kind> = (0..sheet.columns.len()).map(|i| kind(sheet, i)).collect();
    let mut schema = "message sheet {".to_string();
    for (column, kind) in sheet.columns.iter().zip(&kinds) {
        // A name of the grammar; what it stands for is in the other formats.
        let name: String = column
            .key()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
            .collect();
        schema += &match kind {
            Kind::Text => format!(" OPTIONAL BYTE_ARRAY {name} (UTF8);"),
            Kind::Whole => format!(" REQUIRED INT64 {name};"),
            Kind::Number => format!(" OPTIONAL DOUBLE {name};"),
        };
    }
    schema.push('}');
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(
        Vec::new(),
        Arc::new(parse_message_type(&schema)?),
        Arc::new(properties),
    )?;
    for rows in sheet.rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        for (i, kind) in kinds.iter().enumerate() {
            let Some(mut column) = group.next_column()? else { break };
            let cells = rows.iter().map(|r| &r[i]);
            match kind {
                Kind::Text => {
                    let (levels, values): (Vec<i16>, Vec<Option<ByteArray>>) = cells
                        .map(|c| match c {
                            Cell::None => (0, None),
                            c => (1, Some(ByteArray::from(c.raw().into_bytes()))),
                        })
                        .unzip();
                    let values: Vec<ByteArray> = values.into_iter().flatten().collect();
                    column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
                }
                Kind::Whole => {
                    let values: Vec<i64> = cells
                        .map(|c| match c {
                            Cell::Count(n) => i64::try_from(*n).unwrap_or(i64::MAX),
                            _ => 0,
                        })
                        .collect();
                    column.typed::<Int64Type>().write_batch(&values, None, None)?;
                }
                Kind::Number => {
                    let numbers: Vec<Option<f64>> = cells.map(Cell::number).collect();
                    let levels: Vec<i16> = numbers.iter().map(|n| i16::from(n.is_some())).collect();
                    let values: Vec<f64> = numbers.into_iter().flatten().collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

/// Rows of a row group.
const GROUP: usize = 65_536;
