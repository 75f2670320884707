//! Prints the OpenAPI document: `cargo run -p sonde-api --example openapi > openapi/sonde-v1.json`.

#![expect(clippy::disallowed_methods, reason = "an example is a program")]

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let mut text = serde_json::to_string_pretty(&sonde_api::document())?;
    text.push('\n');
    std::io::stdout().write_all(text.as_bytes())
}
