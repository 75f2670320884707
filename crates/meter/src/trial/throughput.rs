//! Throughput (RFC 1242, section 3.17; RFC 2544, section 26.1): the greatest rate at which
//! all frames offered are forwarded.
//!
//! RFC 2544 leaves the search open; this is the usual binary one, and a single lost frame fails a
//! load. The search is the same, with other frames, for IPv6 (RFC 5180, section 7.1). So it
//! is for IPv6 transition (RFC 8219, section 7.1) and bridges (RFC 2889, section 5.1).

use super::rate_search::{RateSearch, RateSearchConfig};

impl RateSearch {
    /// Zero loss, each load tried once, whatever `config` says of attempts.
    pub fn throughput(config: RateSearchConfig) -> RateSearch {
        RateSearch::named("throughput", RateSearchConfig { attempts: 1, ..config })
    }
}
