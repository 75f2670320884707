//! When datagrams may leave: at a steady rate with short bursts. A collector that is not
//! scheduled for some milliseconds finds what came meanwhile in its receive buffer.

/// The generic cell rate algorithm (ITU-T I.371, annex A) over times in ns.
#[derive(Clone, Debug)]
pub struct MessagePace {
    /// Between two datagrams; 0: they need not wait.
    every_ns: u64,
    /// When the next one would leave if they left evenly.
    next_ns: u64,
}

impl MessagePace {
    /// So many datagrams a second; 0: as many as can be sent.
    pub fn new(per_second: u32) -> Self {
        MessagePace {
            every_ns: 1_000_000_000u64.checked_div(per_second.into()).unwrap_or(0),
            next_ns: 0,
        }
    }

    /// Whether one may leave at `now_ns`, and is counted as having left.
    pub fn lets_go(&mut self, now_ns: u64) -> bool {
        if self.next_ns > now_ns.saturating_add(BURST_NS) {
            return false;
        }
        self.next_ns = self.next_ns.max(now_ns) + self.every_ns;
        true
    }

    /// How long so many take, ns.
    pub fn takes_ns(&self, datagrams: usize) -> u64 {
        self.every_ns.saturating_mul(datagrams as u64)
    }
}

/// So much ahead of the even rate a burst may be.
const BURST_NS: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asks whenever: no stretch of time has more than the rate and one burst.
    #[test]
    fn no_stretch_of_time_gets_more_than_the_rate_and_a_burst() {
        for (rate, step_ns) in [(4_000, 100_000), (4_000, 1_000_000), (50, 7_000_000)] {
            let mut pace = MessagePace::new(rate);
            let mut left: Vec<u64> = Vec::new();
            // A second without traffic saves nothing up.
            for now in (1_000_000_000..4_000_000_000u64).step_by(step_ns) {
                while pace.lets_go(now) {
                    left.push(now);
                }
            }
            let every = 1_000_000_000 / u64::from(rate);
            let burst = (BURST_NS / every) as usize + 1;
            for (i, first) in left.iter().enumerate() {
                let within = left[i..].iter().take_while(|at| *at - first < 20_000_000).count();
                assert!(within <= (20_000_000 / every) as usize + 1 + burst, "{within}");
            }
            // And it gets the rate, if it asks often enough.
            let even = 3 * rate as usize;
            assert!(left.len() >= even - even / 50 || step_ns as u64 > BURST_NS, "{}", left.len());
        }
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = MessagePace::new(0);
        assert!((0..10_000).all(|_| pace.lets_go(5)));
        assert_eq!((pace.takes_ns(9), MessagePace::new(1_000).takes_ns(9)), (0, 9_000_000));
    }
}
