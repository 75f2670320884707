//! Who may do what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a token allows. Each role includes those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AccessRole {
    /// Sees everything, changes nothing.
    Read,
    /// Also acknowledges, silences and adds or removes targets.
    Operate,
    /// Also changes the configuration.
    Admin,
}

impl AccessRole {
    /// Every role, the least first.
    pub const ALL: [AccessRole; 3] = [AccessRole::Read, AccessRole::Operate, AccessRole::Admin];

    /// Its name: `read`, `operate`, `admin`.
    pub fn name(self) -> &'static str {
        match self {
            AccessRole::Read => "read",
            AccessRole::Operate => "operate",
            AccessRole::Admin => "admin",
        }
    }

    /// The role of a name; `None`: no role has it.
    pub fn of_name(name: &str) -> Option<AccessRole> {
        AccessRole::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for AccessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Name of the token; it stands beside what was changed with it.
    pub name: String,
    /// What it allows.
    pub role: AccessRole,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_include_those_before_them_and_have_their_json_names() {
        assert!(AccessRole::Admin > AccessRole::Operate && AccessRole::Operate > AccessRole::Read);
        for role in AccessRole::ALL {
            assert_eq!(AccessRole::of_name(role.name()), Some(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
        assert_eq!(AccessRole::of_name("root"), None);
    }
}
