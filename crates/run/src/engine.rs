//! How packets are sent and received.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
pub use sonde_port::{Engine, XdpMode};

use crate::bounds::bounded;
use crate::error::SettingsError;
use crate::text;

/// An engine, and how it is opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// How packets are sent and received.
    #[serde(with = "crate::text")]
    #[schemars(schema_with = "engine_names")]
    pub engine: Engine,
    /// Use this interface instead of that of the route (socket: SO_BINDTODEVICE).
    pub iface: Option<String>,
    /// `af_xdp`: how to bind: `auto`, `zerocopy`, `copy` or `generic`.
    #[serde(with = "crate::text")]
    #[schemars(schema_with = "xdp_mode_names")]
    pub xdp_mode: XdpMode,
    /// `af_xdp`: the queues to bind; none: all.
    pub queues: Vec<u32>,
    /// `af_xdp`: busy polling is preferred, with this budget in packets, 1 to 512.
    pub busy_poll: Option<u32>,
    /// The sending and receiving thread runs on this processor.
    pub cpu: Option<usize>,
}

impl EngineSettings {
    /// Whether they can be: the first that cannot is named, below the key `engine`.
    ///
    /// # Errors
    /// A value out of its range, one given twice, one that the engine does not have.
    pub fn check(&self) -> Result<(), SettingsError> {
        if let Some(budget) = self.busy_poll {
            bounded("engine.busy_poll", budget, 1..=MOST_BUDGET)?;
        }
        if let Some(queue) = twice(&self.queues) {
            let why = format!("{queue} is given twice; give it once");
            return Err(SettingsError::new("engine.queues", why));
        }
        let of_af_xdp = [
            ("engine.xdp_mode", self.xdp_mode != XdpMode::Auto),
            ("engine.queues", !self.queues.is_empty()),
            ("engine.busy_poll", self.busy_poll.is_some()),
        ];
        match of_af_xdp.iter().find(|(_, given)| *given) {
            Some((key, _)) if self.engine != Engine::AfXdp => {
                let engine = self.engine.name();
                let why = format!(
                    "it is for `engine.engine = af_xdp`, and has no effect on {engine}; leave it out"
                );
                Err(SettingsError::new(key, why))
            }
            _ => Ok(()),
        }
    }
}

/// The schema of an engine.
pub(crate) fn engine_names(_: &mut SchemaGenerator) -> Schema {
    text::one_of(Engine::ALL)
}

fn xdp_mode_names(_: &mut SchemaGenerator) -> Schema {
    text::one_of(XdpMode::ALL)
}

/// The first value of a list that is in it before.
pub(crate) fn twice<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter().enumerate().find(|(i, value)| list[..*i].contains(value)).map(|(_, value)| value)
}

/// Packets of busy polling.
const MOST_BUDGET: u32 = 512;

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            engine: Engine::Socket,
            iface: None,
            xdp_mode: XdpMode::Auto,
            queues: Vec::new(),
            busy_poll: None,
            cpu: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_af_xdp_has_is_refused_with_the_others() {
        type Given = fn(&mut EngineSettings);
        let given: [(&str, Given); 3] = [
            ("engine.xdp_mode", |s| s.xdp_mode = XdpMode::Copy),
            ("engine.queues", |s| s.queues = vec![0]),
            ("engine.busy_poll", |s| s.busy_poll = Some(64)),
        ];
        for (key, given) in given {
            for &engine in Engine::ALL {
                let mut settings = EngineSettings { engine, ..EngineSettings::default() };
                assert_eq!(settings.check(), Ok(()));
                given(&mut settings);
                let wrong = settings.check().err().map(|wrong| wrong.message);
                assert_eq!(wrong.is_none(), engine == Engine::AfXdp, "{key}: {wrong:?}");
                let named = wrong.is_none_or(|wrong| {
                    wrong.starts_with(&format!("{key}: "))
                        && wrong.contains("`engine.engine = af_xdp`")
                });
                assert!(named, "{key}");
            }
        }
        let af_xdp = EngineSettings { engine: Engine::AfXdp, ..EngineSettings::default() };
        let queues = EngineSettings { queues: vec![0, 1, 0], ..af_xdp.clone() };
        assert!(queues.check().unwrap_err().message.starts_with("engine.queues: 0 is given twice"));
        let budget = EngineSettings { busy_poll: Some(513), ..af_xdp };
        assert_eq!(
            budget.check().unwrap_err().message,
            "engine.busy_poll: 513 must be between 1 and 512"
        );
    }
}
