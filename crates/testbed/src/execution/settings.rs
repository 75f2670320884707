//! What is asked of a benchmark.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_run::change::{Change, restart};
use sonde_run::error::SettingsError;

use crate::expand::expand;
use crate::plan::{BenchPlan, TomlText};

/// What is asked of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The plan, as docs/bench.md describes it.
    pub plan: TomlText,
    /// The folder of the run: a new one, or that of a run of the same plan.
    pub out: PathBuf,
}

impl Settings {
    /// What going over to `new` takes.
    pub fn change(&self, new: &Settings) -> Change {
        match (self.plan.parse::<BenchPlan>(), new.plan.parse::<BenchPlan>()) {
            (Ok(old), Ok(plan)) if self.out == new.out => old.change(&plan),
            _ => restart(self, new),
        }
    }

    /// Whether they can be: the message names the key, or the plan's line.
    ///
    /// # Errors
    /// A plan that is wrong; no folder.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.out.as_os_str().is_empty() {
            return Err(SettingsError::new("out", "name the folder of the run"));
        }
        expand(&self.plan).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_says_the_same_in_another_form_is_the_same() {
        let of = |text: &str| Settings {
            plan: TomlText { file: "p.toml".into(), text: text.into() },
            out: "p.run".into(),
        };
        let plan = of("title = 'x'\n[[procedure]]\nkind = 'throughput'\n");
        let same =
            of("# A comment.\ntitle = \"x\"\nseed = 1\n[[procedure]]\nkind = 'throughput'\n");
        assert_eq!(plan.change(&same), Change::Same);
        let slower = of("title = 'x'\n[run]\nrest = '5s'\n[[procedure]]\nkind = 'throughput'\n");
        assert_eq!(
            plan.change(&slower),
            Change::Restart("run.rest cannot change while it runs".into())
        );
        assert_eq!(plan.check(), Ok(()));
        let wrong = of("title = 'x'\nwhat = 1\n").check().unwrap_err();
        assert!(wrong.message.starts_with("p.toml line 2: "), "{wrong}");
        assert_eq!((wrong.key.as_deref(), wrong.line), (Some("what"), Some(2)));
        let nowhere = Settings { out: PathBuf::new(), ..plan };
        assert!(nowhere.check().unwrap_err().message.starts_with("out: "));
    }
}
