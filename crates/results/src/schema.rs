//! JSON schemas of settings, for programs that write them into a file or a request.

use schemars::JsonSchema;

/// The JSON schema of `T`: the settings of an instrument, or a plan.
pub fn of<T: JsonSchema>() -> serde_json::Value {
    schemars::schema_for!(T).to_value()
}
