//! The configuration of a matcher.

use sonde_results::rtt::{RttEvents, RttGroupBy};

use super::config_error::ConfigError;
use super::filter::RttFilter;
use super::prefix::PrefixTable;
use super::slots::Pool;

/// The settings of a [`super::Matcher`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Flows tracked at once: a power of two, 8 to 2^24.
    pub flows: usize,
    /// Secrets of the hashes, random per run: nobody outside can aim at one bucket, and
    /// hidden addresses cannot be found by trying.
    pub seed: [u64; 2],
    /// What the samples of one histogram have in common.
    pub group_by: RttGroupBy,
    /// Groups at once, 1 to 2^24; samples beyond go to [`sonde_results::rtt::GroupKey::Other`].
    pub groups: usize,
    /// Prefixes and their autonomous systems.
    pub prefixes: PrefixTable,
    /// Which samples become events.
    pub events: RttEvents,
    /// At most one clean sample a second and direction of a flow enters the histograms,
    /// so that busy flows weigh no more than quiet ones.
    pub weight_by_flow: bool,
    /// Keep only prefixes (/24, /48) of addresses, and a keyed hash to distinguish hosts.
    pub hide_addresses: bool,
    /// The VLAN is part of a flow's key; else both directions may have their own.
    pub vlan_in_key: bool,
    /// Which packets are looked at.
    pub filter: RttFilter,
    /// Pages of 128 slots (1 KiB each) for flows with more than four timestamps or segments
    /// in flight; 0 to 65,535.
    pub slot_pages: usize,
}

impl Default for Config {
    /// 131,072 flows, 4,096 prefixes, 2,048 pages, no events; seeds 0, which the caller
    /// should replace.
    fn default() -> Self {
        Config {
            flows: 131_072,
            seed: [0; 2],
            group_by: RttGroupBy::Prefix,
            groups: 4_096,
            prefixes: PrefixTable::default(),
            events: RttEvents::None,
            weight_by_flow: false,
            hide_addresses: false,
            vlan_in_key: true,
            filter: RttFilter::default(),
            slot_pages: 2_048,
        }
    }
}

impl Config {
    /// Whether a matcher can be made of it.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.flows.is_power_of_two() || !(8..=MAX_FLOWS).contains(&self.flows) {
            return Err(ConfigError::Flows(self.flows));
        }
        if !(1..=MAX_GROUPS).contains(&self.groups) {
            return Err(ConfigError::Groups(self.groups));
        }
        if self.slot_pages > Pool::MAX {
            return Err(ConfigError::SlotPages(self.slot_pages));
        }
        self.filter.check()
    }
}

const MAX_FLOWS: usize = 1 << 24;
const MAX_GROUPS: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_say_what_to_give() {
        assert_eq!(Config::default().check(), Ok(()));
        for flows in [0, 4, 9, 1 << 25] {
            let config = Config { flows, ..Config::default() };
            assert_eq!(config.check(), Err(ConfigError::Flows(flows)));
        }
        for groups in [0, MAX_GROUPS + 1] {
            let config = Config { groups, ..Config::default() };
            assert_eq!(config.check(), Err(ConfigError::Groups(groups)));
        }
        let config = Config { slot_pages: 65_536, ..Config::default() };
        assert!(config.check().unwrap_err().to_string().ends_with("give 0 to 65535"));
        let filter = RttFilter { ports: vec![1; 9], ..RttFilter::default() };
        let config = Config { filter, ..Config::default() };
        assert_eq!(config.check(), Err(ConfigError::Ports(9)));
    }
}
