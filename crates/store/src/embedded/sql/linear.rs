//! SQLite's functions of text whose time grows with the product of their arguments' lengths, in
//! another form: nothing interrupts a function, and one call of those takes seconds.

use std::collections::HashSet;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};

/// Replaces `instr`, `replace`, and `trim`, `ltrim`, `rtrim` of two arguments. As SQLite's own, but that
/// octets are read as text (UTF-8).
pub(super) fn add(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("instr", 2, flags, |context| {
        let (Some(text), Some(part)) = (text(context, 0), text(context, 1)) else {
            return Ok(None);
        };
        // Characters count from 1; 0: it is not in there.
        Ok(Some(text.find(&part).map_or(0, |at| text[..at].chars().count() as i64 + 1)))
    })?;
    connection.create_scalar_function("replace", 3, flags, |context| {
        let (Some(text), Some(from), Some(to)) =
            (text(context, 0), text(context, 1), text(context, 2))
        else {
            return Ok(None);
        };
        if from.is_empty() {
            return Ok(Some(text));
        }
        let grows = to.len().saturating_sub(from.len());
        let most = LONGEST.saturating_sub(text.len());
        if text.matches(&from).count().saturating_mul(grows) > most {
            let why = format!("replace() would give more than {LONGEST} octets");
            return Err(rusqlite::Error::UserFunctionError(why.into()));
        }
        Ok(Some(text.replace(&from, &to)))
    })?;
    let sides = [("trim", true, true), ("ltrim", true, false), ("rtrim", false, true)];
    for (name, begin, end) in sides {
        connection.create_scalar_function(name, 2, flags, move |context| {
            let (Some(text), Some(set)) = (text(context, 0), text(context, 1)) else {
                return Ok(None);
            };
            let set: HashSet<char> = set.chars().collect();
            let cut = |c: char| set.contains(&c);
            let text = if begin { text.trim_start_matches(cut) } else { &text };
            let text = if end { text.trim_end_matches(cut) } else { text };
            Ok(Some(text.to_owned()))
        })?;
    }
    Ok(())
}

/// An argument as text; `None`: NULL.
fn text(context: &Context<'_>, argument: usize) -> Option<String> {
    match context.get_raw(argument) {
        ValueRef::Null => None,
        ValueRef::Integer(n) => Some(n.to_string()),
        ValueRef::Real(x) => Some(x.to_string()),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Some(String::from_utf8_lossy(text).into_owned())
        }
    }
}

/// The longest value, octets.
pub(super) const LONGEST: usize = 1 << 20;

/// Functions that a question may use: each takes a time that grows with the length of its arguments alone.
pub(super) const ALLOWED: [&str; 90] = [
    "hmerge",
    "hq",
    "hcount",
    "hrange",
    "instr",
    "replace",
    "trim",
    "ltrim",
    "rtrim",
    "abs",
    "avg",
    "ceil",
    "ceiling",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "count",
    "cume_dist",
    "date",
    "datetime",
    "dense_rank",
    "exp",
    "first_value",
    "floor",
    "format",
    "glob",
    "group_concat",
    "hex",
    "if",
    "ifnull",
    "iif",
    "json",
    "json_array",
    "json_array_length",
    "json_each",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_object",
    "json_tree",
    "json_type",
    "json_valid",
    "julianday",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "max",
    "min",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "percent_rank",
    "pow",
    "power",
    "printf",
    "quote",
    "random",
    "rank",
    "round",
    "row_number",
    "sign",
    "sqrt",
    "string_agg",
    "strftime",
    "substr",
    "substring",
    "sum",
    "time",
    "timediff",
    "total",
    "trunc",
    "typeof",
    "unicode",
    "unixepoch",
    "unlikely",
    "upper",
    "->",
    "->>",
];
