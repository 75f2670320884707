//! What a reload can do without stopping.

use serde::Serialize;
use serde_json::Value;

/// What other settings mean for an instrument that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The settings are the same.
    Same,
    /// It goes on without stopping.
    Live {
        /// What is measured besides, or otherwise than before.
        added: Vec<String>,
        /// What is not measured any more, or not as it was.
        ended: Vec<String>,
    },
    /// It would have to begin anew, for this reason.
    Restart(String),
}

/// For an instrument that can change nothing while it runs: whether it would have to begin anew,
/// and for which settings.
pub fn restart(old: &impl Serialize, new: &impl Serialize) -> Change {
    // Of types whose keys are strings: this cannot fail.
    let value = |settings: Result<Value, _>| settings.unwrap_or_default();
    let (old, new) = (value(serde_json::to_value(old)), value(serde_json::to_value(new)));
    let mut keys = Vec::new();
    differing("", &old, &new, &mut keys);
    match keys.is_empty() {
        true => Change::Same,
        false => Change::Restart(format!("{} cannot change while it runs", keys.join(", "))),
    }
}

/// Names of what differs, with a dot between a table and its key.
fn differing(prefix: &str, old: &Value, new: &Value, keys: &mut Vec<String>) {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        if old != new {
            keys.push(prefix.to_owned());
        }
        return;
    };
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let of = |table: &serde_json::Map<String, Value>| {
            table.get(name).cloned().unwrap_or(Value::Null)
        };
        differing(&path, &of(old), &of(new), keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Settings;

    #[test]
    fn a_setting_that_differs_is_named_with_its_table() {
        let old = Settings { sources: vec!["eth0".into()], ..Settings::default() };
        assert_eq!(restart(&old, &old.clone()), Change::Same);
        let mut new = old.clone();
        new.metering.idle = 1;
        new.duration = Some(5);
        let why = "duration, metering.idle cannot change while it runs";
        assert_eq!(restart(&old, &new), Change::Restart(why.into()));
    }
}
