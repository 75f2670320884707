//! Flooding of a bridge. It is the greatest rate of frames to unknown stations of which every other
//! port receives every copy. RFC 2285, section 3.8.3, names the copies; it is searched as the
//! throughput of RFC 2889, section 5.1.

use sonde_results::trial::Pattern;

use super::rate_search::{RateSearch, RateSearchConfig};

impl RateSearch {
    /// Zero loss at all receiving ports; `config` says nothing of the pattern.
    pub fn flooding(config: RateSearchConfig) -> RateSearch {
        let config = RateSearchConfig { pattern: Pattern::Unknown, ..config };
        RateSearch::named("flooding_throughput", config)
    }
}
