//! The configuration of a flow cache.

use super::features;

/// The settings of a [`super::FlowCache`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Flows held at once: 8 to 2^26.
    pub flows: usize,
    /// A flow without packets for so long has ended, ns: 1 ms to 12 h.
    pub idle_ns: i64,
    /// A flow that has lasted so long is reported, and goes on as a record of its own,
    /// ns: 1 ms to 12 h.
    pub active_ns: i64,
    /// Both directions in one record (RFC 5103); else each is a flow of its own.
    pub biflow: bool,
    /// The VLAN is part of a flow's key; else packets of all are one flow's, and records have
    /// VLAN 0.
    pub vlan_in_key: bool,
    /// The observation point of each interface, by its index; beyond the end it is a point of
    /// its own. Interfaces with one observation point are one (RFC 7011), and records have
    /// its index.
    pub observation_points: Vec<u8>,
    /// Secret of the hash, random per run: nobody outside can aim at one bucket.
    pub secret: [u64; 2],
    /// What is kept beyond the basic record.
    pub features: features::Config,
}

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// See [`Config::flows`].
    #[error("{0} flows: give 8 to 67108864, such as 1048576 (about 100 MB)")]
    Flows(usize),
    /// See [`Config::idle_ns`].
    #[error("an idle time-out of {0} ns: give 1 ms to 12 h, such as 30 s")]
    Idle(i64),
    /// See [`Config::active_ns`].
    #[error("an active time-out of {0} ns: give 1 ms to 12 h, such as 300 s")]
    Active(i64),
}

impl Default for Config {
    /// 1,048,576 biflows, idle after 30 s, reported every 300 s, nothing beyond the basic
    /// record; the secret is 0, which the caller should replace.
    fn default() -> Self {
        Config {
            flows: 1 << 20,
            idle_ns: 30_000_000_000,
            active_ns: 300_000_000_000,
            biflow: true,
            vlan_in_key: true,
            observation_points: Vec::new(),
            secret: [0; 2],
            features: features::Config::default(),
        }
    }
}

impl Config {
    /// Whether a cache can be made of it.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(8..=MAX_FLOWS).contains(&self.flows) {
            return Err(ConfigError::Flows(self.flows));
        }
        if !TIMEOUT_NS.contains(&self.idle_ns) {
            return Err(ConfigError::Idle(self.idle_ns));
        }
        if !TIMEOUT_NS.contains(&self.active_ns) {
            return Err(ConfigError::Active(self.active_ns));
        }
        Ok(())
    }
}

const MAX_FLOWS: usize = 1 << 26;
/// The upper end keeps differences of times within the 48 bits that a record has for them.
const TIMEOUT_NS: std::ops::RangeInclusive<i64> = 1_000_000..=super::clock::JUMP_NS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_say_what_to_give() {
        assert_eq!(Config::default().check(), Ok(()));
        for flows in [0, 7, MAX_FLOWS + 1] {
            let config = Config { flows, ..Config::default() };
            assert_eq!(config.check(), Err(ConfigError::Flows(flows)));
        }
        for time in [i64::MIN, 0, 999_999, 43_200_000_000_001] {
            let config = Config { idle_ns: time, ..Config::default() };
            assert_eq!(config.check(), Err(ConfigError::Idle(time)));
            let config = Config { active_ns: time, ..Config::default() };
            assert_eq!(config.check(), Err(ConfigError::Active(time)));
        }
        assert!(ConfigError::Flows(0).to_string().contains("give 8 to"));
    }
}
