//! Throughput by binary search with loss verification (ETSI GS NFV-TST 009, section 12.3.3).
//!
//! A software device shares its processors with others, and now and then loses frames at
//! loads that it carries. A lossy trial is therefore repeated; a load fails when it is lossy
//! each time. The price is a bias towards higher loads: what a load loses at random with
//! probability p it is forgiven with probability 1 - p.

use super::rate_search::{RateSearch, RateSearchConfig};

impl RateSearch {
    /// Each load is tried at least twice before it fails, more often where `config` says so.
    pub fn with_loss_verification(config: RateSearchConfig) -> RateSearch {
        let attempts = config.attempts.max(2);
        RateSearch::named("throughput", RateSearchConfig { attempts, ..config })
    }
}
