//! Whether a trial may be used: the tester must have offered what it was to offer, when it
//! was to offer it, and have lost nothing itself.
//!
//! Nothing that the tester did wrong may count as loss of the device; a trial that is in
//! doubt is repeated. The limits are those of docs/bench.md.

use sonde_meter::load::LoadSchedule;
use sonde_results::Hist;
use sonde_results::trial::{
    Direction, Invalid, LedgerEntry, Offer, Side, Trial, TrialHealth, is_for_latency,
};

/// Every reason against a trial; none: it is valid.
pub fn judge(
    offer: &Offer,
    directions: &[Direction],
    ledger: &[LedgerEntry],
    health: &TrialHealth,
) -> Vec<Invalid> {
    let mut reasons = Vec::new();
    let schedule = LoadSchedule::new(offer);
    // What is discarded is sent, but not counted.
    let counted = schedule.duration_ns() - schedule.counted_ns();
    let planned = schedule.duration_ns();
    // Loss that was brought about is measured by how long it lasts: there a pause may blur it by
    // a tenth.
    let brought_about = |d: &Direction| match offer.event {
        Some(_) => d.arrival_gap_ns / 10,
        None => 0,
    };
    // Other loss, of which a disturbance can explain a small part at most, is the device's.
    let explains =
        |frames: f64, d: &Direction| offer.event.is_some() || frames > d.lost as f64 * EXPLAINED;
    for d in directions {
        let ratio = d.sent as f64 / d.intended.max(1) as f64;
        if (ratio - 1.0).abs() > SENT {
            reasons.push(Invalid::NotSent { direction: d.name.clone(), ratio });
            continue;
        }
        let took = d.sending_ns(offer.burst) as i64;
        if d.sent > 1 && (took - counted).abs() > (counted as f64 * TIME) as i64 + TIME_NS {
            let ratio = took as f64 / counted.max(1) as f64;
            reasons.push(Invalid::Slow { direction: d.name.clone(), ratio });
        }
        let late = d.lateness.quantile(0.99).unwrap_or(0);
        let worst = if d.lateness.count > 0 { d.lateness.max } else { 0 };
        if late > LATE_NS {
            reasons.push(Invalid::Pacing { direction: d.name.clone(), late_ns: late });
        } else if d.lost > 0
            && worst > GAP_WITH_LOSS_NS.max(brought_about(d))
            && explains(d.lateness.count_above(HELD_BACK_NS) as f64, d)
        {
            // What stopped the tester may have stopped the device, too, or led to small lumps.
            reasons.push(Invalid::Pacing { direction: d.name.clone(), late_ns: worst });
        }
    }
    let dropped = ledger.iter().filter(|e| e.side == Side::Tester).map(|e| e.frames).sum();
    if dropped > 0 {
        reasons.push(Invalid::TesterDrops { frames: dropped });
    }
    let away = health.stolen_ns.max(health.throttled_ns);
    let paused_ns = health.pauses.count_above(PAUSE_NS) as f64 * longest(&health.pauses) as f64;
    if away > (planned as f64 * STARVED) as i64 + STARVED_NS {
        reasons.push(Invalid::Starved { ns: away });
    } else if directions.iter().any(|d| {
        d.lost > 0
            && longest(&health.pauses) > PAUSE_WITH_LOSS_NS.max(brought_about(d))
            && explains(paused_ns * 1e-9 * offer.peak_fps(), d)
    }) {
        reasons.push(Invalid::Starved { ns: health.pauses.max });
    }
    // A clock is slewed by 500 ppm at most; what is beyond that was set.
    if health.clock_drift_ns.abs() > (planned as f64 * SLEW) as i64 + CLOCK_NS {
        reasons.push(Invalid::Clock { ns: health.clock_drift_ns });
    }
    reasons
}

/// Whether other work on the host was in the device's way, so that what was measured is the
/// host's. For a latency trial the limit is a share of the time that reaches the 99th percentile.
/// For any trial it is whether the disturbance explains the loss. The trial is repeated; at the last
/// try it is marked (`Caveat::DeviceDisturbed`).
pub fn disturbed(
    offer: &Offer,
    purpose: &str,
    directions: &[Direction],
    health: &TrialHealth,
) -> Option<Invalid> {
    let device = health.device.as_ref()?;
    let planned = LoadSchedule::new(offer).duration_ns().max(1) as f64;
    let reason = |ns: i64| Invalid::Disturbed { ns, share: ns as f64 / planned };
    let (all, work) = (device.disturbed_ns(), device.foreign_work_ns());
    if is_for_latency(purpose) && all as f64 > planned * DISTURBED {
        return Some(reason(all));
    }
    let frames = work as f64 * 1e-9 * offer.peak_fps();
    let explained = |d: &Direction| d.lost > 0 && frames > d.lost as f64 * EXPLAINED;
    let much = work as f64 > planned * DISTURBED && offer.event.is_none();
    (much && directions.iter().any(explained)).then(|| reason(work))
}

/// The share of a trial's time for which the device was kept from running: percentiles beyond its
/// complement are the host's.
pub fn disturbed_share(trial: &Trial) -> f64 {
    let planned = LoadSchedule::new(&trial.offer).duration_ns().max(1) as f64;
    trial.health.device.as_ref().map_or(0.0, |d| d.disturbed_ns() as f64 / planned)
}

/// Whether a further try of the same offer would fail as this one did. The tester is too slow by
/// far, by more than a host stops a processor, and only its own speed was in its way.
pub fn hopeless(trial: &Trial) -> bool {
    let planned = LoadSchedule::new(&trial.offer).duration_ns() as f64;
    let far = |reason: &Invalid| match reason {
        Invalid::NotSent { ratio, .. } => *ratio < HOPELESS && (1.0 - ratio) * planned > STOPPED_NS,
        Invalid::Slow { ratio, .. } => {
            *ratio > 1.0 / HOPELESS && (ratio - 1.0) * planned > STOPPED_NS
        }
        _ => false,
    };
    let of_speed = |reason: &Invalid| {
        matches!(reason, Invalid::NotSent { .. } | Invalid::Slow { .. } | Invalid::Pacing { .. })
    };
    trial.invalid.iter().any(far)
        && trial.invalid.iter().all(of_speed)
        && longest(&trial.health.pauses) < PAUSE_NS
        && trial.health.stolen_ns.max(trial.health.throttled_ns) == 0
}

fn longest(pauses: &Hist) -> i64 {
    if pauses.count > 0 { pauses.max } else { 0 }
}

/// Of the time the device may be kept from running before its 99th percentile is the host's.
const DISTURBED: f64 = 0.01;
/// Frames sent may differ by this from those intended (CSIT uses 0.1 %).
const SENT: f64 = 0.001;
/// And the time that it took.
const TIME: f64 = 0.001;
/// A short trial may be off by this, ns: one time slice of the kernel's scheduler.
const TIME_NS: i64 = 4_000_000;
/// 99 % of the frames must leave earlier than this after their due times, ns.
const LATE_NS: i64 = 1_000_000;
/// With loss: no frame may leave later than this, ns.
const GAP_WITH_LOSS_NS: i64 = 1_000_000;
/// A frame that leaves later than this was held back, ns.
const HELD_BACK_NS: i64 = 100_000;
/// Of the frames lost, so many may have met a disturbance: more cannot be its doing.
const EXPLAINED: f64 = 0.1;
/// Of the trial's duration the processors may be away: stolen, or throttled.
const STARVED: f64 = 0.01;
/// And at least this, ns: the kernel counts stolen time in steps of 10 ms.
const STARVED_NS: i64 = 20_000_000;
/// With loss: the longest pause of an idle thread, ns.
const PAUSE_WITH_LOSS_NS: i64 = 20_000_000;
/// A tester that offers less than this of a load is too slow for it, rather than disturbed.
const HOPELESS: f64 = 0.9;
/// Hosts of virtual machines stop a processor for 25 ms and more, which a thread on another one
/// does not see.
const STOPPED_NS: f64 = 60e6;
/// From here on the pause of an idle thread shows other work on the host, ns.
const PAUSE_NS: i64 = 5_000_000;
/// 600 ppm: the kernel slews by 500, and the raw clock itself is not exact.
const SLEW: f64 = 600e-6;
const CLOCK_NS: i64 = 10_000;

#[cfg(test)]
mod tests {
    use sonde_results::trial::{DeviceEvent, DeviceHealth};

    use super::*;

    /// A second at 1,000 frames a second, all well.
    fn sound() -> (Offer, Direction) {
        let offer = Offer::steady(1000.0, 1_000_000_000);
        let mut d = Direction {
            name: "a>b".into(),
            intended: 1000,
            sent: 1000,
            received: 1000,
            sent_ns: [5, 999_000_005],
            ..Default::default()
        };
        (0..1000).for_each(|_| d.lateness.add(2_000));
        (offer, d)
    }

    fn reasons(d: Direction, ledger: &[LedgerEntry], health: &TrialHealth) -> Vec<Invalid> {
        judge(&sound().0, &[d], ledger, health)
    }

    #[test]
    fn a_sound_trial_is_valid_with_loss_and_without() {
        let (_, d) = sound();
        assert_eq!(reasons(d.clone(), &[], &TrialHealth::default()), []);
        let device = LedgerEntry {
            side: Side::Device,
            place: "router".into(),
            counter: "drops".into(),
            frames: 10,
        };
        let lossy = Direction { received: 990, lost: 10, ..d };
        assert_eq!(reasons(lossy, &[device], &TrialHealth::default()), []);
    }

    #[test]
    fn what_was_not_sent_or_late_is_found() {
        let (_, d) = sound();
        let short = Direction { sent: 998, ..d.clone() };
        assert!(matches!(
            reasons(short, &[], &TrialHealth::default())[..],
            [Invalid::NotSent { .. }]
        ));
        let slow = Direction { sent_ns: [0, 1_020_000_000], ..d.clone() };
        assert!(matches!(reasons(slow, &[], &TrialHealth::default())[..], [Invalid::Slow { .. }]));
        let mut late = d.clone();
        (0..20).for_each(|_| late.lateness.add(3_000_000));
        assert!(matches!(
            reasons(late, &[], &TrialHealth::default())[..],
            [Invalid::Pacing { .. }]
        ));
    }

    #[test]
    fn a_pause_of_the_tester_makes_loss_doubtful_but_not_its_absence() {
        let (_, mut d) = sound();
        d.lateness.add(8_000_000);
        assert_eq!(reasons(d.clone(), &[], &TrialHealth::default()), []);
        let lossy = Direction { received: 999, lost: 1, ..d };
        assert!(matches!(
            reasons(lossy, &[], &TrialHealth::default())[..],
            [Invalid::Pacing { .. }]
        ));
        let (_, d) = sound();
        let mut health = TrialHealth::default();
        health.pauses.add(40_000_000);
        assert_eq!(reasons(d.clone(), &[], &health), []);
        let lossy = Direction { received: 999, lost: 1, ..d };
        assert_eq!(reasons(lossy, &[], &health), [Invalid::Starved { ns: 40_000_000 }]);
    }

    #[test]
    fn a_disturbance_that_explains_little_of_the_loss_leaves_it_the_devices() {
        let (_, mut d) = sound();
        (0..5).for_each(|_| d.lateness.add(8_000_000));
        let judged = |lost: u64, health: &TrialHealth| {
            reasons(Direction { received: 1000 - lost, lost, ..d.clone() }, &[], health)
        };
        assert_eq!(judged(500, &TrialHealth::default()), []);
        assert!(matches!(judged(40, &TrialHealth::default())[..], [Invalid::Pacing { .. }]));
        // 40 ms at 1,000 a second.
        let mut health = TrialHealth::default();
        health.pauses.add(40_000_000);
        assert_eq!(judged(500, &health), []);
        assert_eq!(judged(390, &health), [Invalid::Starved { ns: 40_000_000 }]);
    }

    #[test]
    fn a_burst_has_a_slot_of_its_own() {
        let (_, d) = sound();
        let offer = Offer { burst: 50, ..Offer::steady(1000.0, 1_000_000_000) };
        // 20 bursts, 50 ms apart.
        let d = Direction { sent_ns: [5, 950_000_005], ..d };
        assert_eq!(judge(&offer, &[d], &[], &TrialHealth::default()), []);
    }

    #[test]
    fn what_is_discarded_takes_no_time_of_what_is_counted() {
        let (offer, d) = sound();
        let offer = Offer { discard_ns: 200_000_000, ..offer };
        let counted = |sent_ns| Direction { intended: 800, sent: 800, sent_ns, ..d.clone() };
        let judged = |d| judge(&offer, &[d], &[], &TrialHealth::default());
        assert_eq!(judged(counted([200_000_005, 999_000_005])), []);
        assert!(matches!(judged(counted([5, 999_000_005]))[..], [Invalid::Slow { .. }]));
    }

    #[test]
    fn only_a_tester_that_is_too_slow_undisturbed_is_hopeless() {
        let of = |health: TrialHealth| Trial {
            number: 1,
            measurement: "m".into(),
            attempt: 1,
            purpose: String::new(),
            start_ns: 0,
            offer: sound().0,
            directions: Vec::new(),
            ledger: Vec::new(),
            health,
            invalid: Vec::new(),
        };
        let judged = |sent: u64, sent_ns: [i64; 2], health: TrialHealth, ledger: &[LedgerEntry]| {
            let (offer, d) = sound();
            let directions = vec![Direction { sent, sent_ns, ..d }];
            let invalid = judge(&offer, &directions, ledger, &health);
            hopeless(&Trial { offer, directions, ledger: ledger.into(), invalid, ..of(health) })
        };
        let (planned, twice) = ([0, 999_000_000], [0, 1_998_000_000]);
        let calm = TrialHealth::default;
        assert!(!judged(1000, planned, calm(), &[]));
        assert!(judged(800, planned, calm(), &[]));
        assert!(judged(1000, twice, calm(), &[]));
        // A little short, or disturbed: the next try may be better.
        assert!(!judged(950, planned, calm(), &[]));
        assert!(!judged(1000, [0, 1_050_000_000], calm(), &[]));
        // One stop of 25 ms in a trial of 200 ms.
        let short = |sent_ns| {
            let (offer, d) = sound();
            let offer = Offer { frames: 200, ..offer };
            let directions = vec![Direction { intended: 200, sent: 200, sent_ns, ..d }];
            let invalid = judge(&offer, &directions, &[], &calm());
            assert!(matches!(invalid[..], [Invalid::Slow { .. }]), "{invalid:?}");
            hopeless(&Trial { offer, directions, invalid, ..of(calm()) })
        };
        assert!(!short([0, 225_000_000]));
        assert!(short([0, 400_000_000]));
        let mut paused = calm();
        paused.pauses.add(8_000_000);
        assert!(!judged(800, planned, paused, &[]));
        assert!(!judged(800, planned, TrialHealth { stolen_ns: 10_000_000, ..calm() }, &[]));
        let own = LedgerEntry {
            side: Side::Tester,
            place: "port a".into(),
            counter: "tx_dropped".into(),
            frames: 3,
        };
        assert!(!judged(800, planned, calm(), &[own]));
    }

    /// 4 ms of every 40, as a foreign real-time thread takes them.
    #[test]
    fn what_holds_the_devices_processor_is_not_the_devices() {
        let (offer, d) = sound();
        let with = |device: DeviceHealth| TrialHealth {
            device: Some(Box::new(device)),
            ..Default::default()
        };
        let judged = |purpose: &str, lost: u64, health: &TrialHealth| {
            let d = Direction { received: 1000 - lost, lost, ..d.clone() };
            disturbed(&offer, purpose, &[d], health)
        };
        let taken = with(DeviceHealth {
            foreign_ns: 100_000_000,
            waited_ns: 90_000_000,
            ..Default::default()
        });
        let disturbed_by = Some(Invalid::Disturbed { ns: 90_000_000, share: 0.09 });
        assert_eq!(judged("latency at 50 %", 0, &taken), disturbed_by);
        assert_eq!(judged("fixed load", 0, &taken), disturbed_by);
        // A search asks for loss only; and this loss it explains.
        assert_eq!(judged("search", 0, &taken), None);
        assert_eq!(judged("search", 50, &taken), disturbed_by);
        // A real-time thread is late as well, wherever the other one came from.
        let mut late = DeviceHealth::default();
        (0..25).for_each(|_| late.pauses.add(3_900_000));
        assert!(judged("soak, 1 of 3", 0, &with(late)).is_some());
        // Other work while the device has nothing to do, and waiting for its own threads.
        let idle = DeviceHealth { foreign_ns: 500_000_000, ..Default::default() };
        let busy = DeviceHealth { waited_ns: 500_000_000, ..Default::default() };
        for harmless in [idle, busy] {
            assert_eq!(judged("latency at 50 %", 500, &with(harmless)), None);
        }
        assert_eq!(judged("latency at 50 %", 0, &TrialHealth::default()), None);
    }

    #[test]
    fn loss_that_was_brought_about_may_be_blurred_by_a_tenth() {
        let (offer, mut d) = sound();
        d.lateness.add(8_000_000);
        let reset = DeviceEvent { action: "reset".into(), at_ns: 1 };
        let offer = Offer { event: Some(reset), ..offer };
        let judged = |lost: u64, arrival_gap_ns| {
            let d = Direction { received: 1000 - lost, lost, arrival_gap_ns, ..d.clone() };
            judge(&offer, &[d], &[], &TrialHealth::default())
        };
        assert_eq!(judged(100, 100_000_000), []);
        assert!(matches!(judged(50, 50_000_000)[..], [Invalid::Pacing { .. }]));
    }

    #[test]
    fn own_drops_stolen_time_and_a_set_clock_are_found() {
        let (_, d) = sound();
        let own = LedgerEntry {
            side: Side::Tester,
            place: "port a".into(),
            counter: "tx_dropped".into(),
            frames: 3,
        };
        let health =
            TrialHealth { stolen_ns: 40_000_000, clock_drift_ns: -2_000_000, ..Default::default() };
        assert_eq!(
            reasons(d, &[own], &health),
            [
                Invalid::TesterDrops { frames: 3 },
                Invalid::Starved { ns: 40_000_000 },
                Invalid::Clock { ns: -2_000_000 }
            ]
        );
    }
}
