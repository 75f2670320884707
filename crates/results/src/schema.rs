//! JSON schemas, for programs that read run files, or write settings into a file or a request.

use schemars::JsonSchema;

/// The JSON schema of `T`: a run file, the settings of an instrument, or a plan.
pub fn of<T: JsonSchema>() -> serde_json::Value {
    schemars::schema_for!(T).to_value()
}
