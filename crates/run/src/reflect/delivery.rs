//! Whether what the kernel's program sends leaves the interface: the program's count against the
//! driver's. Pure arithmetic; both counts are arguments.

/// What a driver counts of the frames that XDP sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverCounts {
    /// Those that have left: veth in native mode.
    Departures,
    /// Those that have not: cards, if they count at all.
    Failures,
}

impl DriverCounts {
    /// What the driver of an interface counts.
    pub fn of(veth: bool) -> Self {
        if veth { DriverCounts::Departures } else { DriverCounts::Failures }
    }

    /// Whether the driver's statistic of this name is part of it.
    pub fn include(self, name: &str) -> bool {
        match self {
            DriverCounts::Departures => {
                name.starts_with("tx_queue_") && name.ends_with("_xdp_xmit")
            }
            DriverCounts::Failures => {
                name.contains("xdp_tx")
                    && ["err", "full", "drop"].iter().any(|part| name.contains(part))
            }
        }
    }
}

/// Compares what the program has sent with what the driver says of it.
pub struct Delivery {
    driver: DriverCounts,
    /// The driver's count when this began, and the program's.
    driver_before: u64,
    reflected_before: Option<u64>,
    /// The program's count at the last look: what is under way now is in neither count.
    reflected: u64,
    /// What has left since this began, at the last look.
    departed: u64,
    undelivered: u64,
    earlier: u64,
}

impl Delivery {
    /// Of a program that has sent nothing yet; `now` is the driver's count, if it has one.
    pub fn of(driver: DriverCounts, now: Option<u64>) -> Self {
        Delivery {
            driver,
            driver_before: now.unwrap_or(0),
            reflected_before: Some(0),
            reflected: 0,
            departed: 0,
            undelivered: 0,
            earlier: 0,
        }
    }

    /// Begins anew, on an interface without the program.
    pub fn begin(&mut self, driver: DriverCounts, now: Option<u64>) {
        let earlier = self.undelivered();
        let anew = Delivery::of(driver, now);
        *self = Delivery { reflected_before: None, earlier, ..anew };
    }

    /// A look: the program's count just now, and the driver's. True when replies were made and
    /// none of them has left.
    pub fn look(&mut self, reflected: u64, driver: Option<u64>) -> bool {
        let before = *self.reflected_before.get_or_insert(reflected);
        let made_by_then = std::mem::replace(&mut self.reflected, reflected - before);
        let Some(now) = driver else { return false };
        let transmitted = now.saturating_sub(self.driver_before);
        if self.driver == DriverCounts::Failures {
            self.undelivered = transmitted;
            return false;
        }
        let departed = std::mem::replace(&mut self.departed, transmitted);
        let left = transmitted - departed.min(transmitted);
        let missing = made_by_then.saturating_sub(transmitted);
        let more = missing.saturating_sub(self.undelivered);
        self.undelivered = self.undelivered.max(missing);
        more > 0 && left == 0
    }

    /// Replies that never left, since the start.
    pub fn undelivered(&self) -> u64 {
        self.earlier + self.undelivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn veth() -> Delivery {
        Delivery::of(DriverCounts::Departures, Some(1_000))
    }

    #[test]
    fn the_statistics_of_a_driver_are_found_by_name() {
        let included = |counts: DriverCounts| {
            let names = [
                "tx_queue_0_xdp_xmit",
                "tx_queue_0_xdp_xmit_errors",
                "rx_queue_0_xdp_tx",
                "rx_xdp_tx_full",
                "rx0_xdp_tx_err",
                "xdp_tx_drops",
                "tx_errors",
            ];
            names.into_iter().filter(move |name| counts.include(name)).collect::<Vec<_>>()
        };
        assert_eq!(included(DriverCounts::of(true)), ["tx_queue_0_xdp_xmit"]);
        let failures = ["rx_xdp_tx_full", "rx0_xdp_tx_err", "xdp_tx_drops"];
        assert_eq!(included(DriverCounts::of(false)), failures);
    }

    #[test]
    fn what_is_under_way_at_a_look_is_not_missing() {
        let mut delivery = veth();
        // 5 of the 10 are still to leave.
        assert!(!delivery.look(10, Some(1_005)));
        assert!(!delivery.look(30, Some(1_020)));
        assert_eq!(delivery.undelivered(), 0);
        // Those of the first look and of the second have left by now.
        assert!(!delivery.look(30, Some(1_030)));
        assert_eq!(delivery.undelivered(), 0);
    }

    #[test]
    fn replies_of_which_none_leaves_are_a_failure_at_the_next_look() {
        let mut delivery = veth();
        assert!(!delivery.look(10, Some(1_000)), "they may be under way");
        assert!(delivery.look(25, Some(1_000)));
        assert_eq!(delivery.undelivered(), 10);
        assert!(delivery.look(25, Some(1_000)));
        assert_eq!(delivery.undelivered(), 25);
        // It is one failure, not one a look.
        assert!(!delivery.look(25, Some(1_000)));
    }

    #[test]
    fn replies_of_which_some_leave_are_counted_and_no_failure() {
        let mut delivery = veth();
        delivery.look(10, Some(1_004));
        assert!(!delivery.look(20, Some(1_008)), "4 of 10 left by then");
        assert_eq!(delivery.undelivered(), 2);
        assert!(!delivery.look(20, Some(1_012)));
        assert_eq!(delivery.undelivered(), 8);
        // What was given up for lost and leaves after all was late, and stays counted.
        assert!(!delivery.look(20, Some(1_020)));
        assert_eq!(delivery.undelivered(), 8);
    }

    #[test]
    fn two_looks_at_one_count_find_all_that_is_missing() {
        let mut delivery = veth();
        delivery.look(10, Some(1_007));
        delivery.look(10, Some(1_007));
        assert_eq!(delivery.undelivered(), 3);
    }

    #[test]
    fn a_card_that_counts_failures_is_believed() {
        let mut delivery = Delivery::of(DriverCounts::Failures, Some(40));
        assert!(!delivery.look(10, Some(40)));
        assert_eq!(delivery.undelivered(), 0);
        assert!(!delivery.look(10, Some(43)));
        assert_eq!(delivery.undelivered(), 3);
    }

    #[test]
    fn a_driver_that_counts_nothing_is_not_doubted() {
        for counts in [DriverCounts::Departures, DriverCounts::Failures] {
            let mut delivery = Delivery::of(counts, None);
            assert!(!delivery.look(10, None) && !delivery.look(20, None));
            assert_eq!(delivery.undelivered(), 0);
        }
    }

    #[test]
    fn on_an_interface_that_is_made_again_counts_begin_anew_and_the_sum_stays() {
        let mut delivery = veth();
        delivery.look(10, Some(1_000));
        delivery.look(10, Some(1_000));
        assert_eq!(delivery.undelivered(), 10);
        // A driver begins from 0, the program goes on counting.
        delivery.begin(DriverCounts::Departures, Some(0));
        assert_eq!(delivery.undelivered(), 10);
        assert!(!delivery.look(10, Some(0)));
        assert!(!delivery.look(14, Some(4)));
        assert!(!delivery.look(14, Some(4)));
        assert_eq!(delivery.undelivered(), 10);
        delivery.look(16, Some(4));
        assert!(delivery.look(16, Some(4)));
        assert_eq!(delivery.undelivered(), 12);
    }
}
