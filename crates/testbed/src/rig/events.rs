//! What is done to a device before and during a trial.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sonde_lab::Host;
use sonde_lab::device::{DeviceReset, LabBed};
use sonde_meter::trial::{FORGET, POWER, POWER_OFF_NS};
use sonde_results::trial::{DeviceEvent, Offer};
use sonde_sys::clock::tai_now;
use sonde_wire::Time;

use super::made::TestBed;

/// What an offer asks for.
pub struct Events(Option<DeviceEvent>);

impl Events {
    pub fn of(offer: &Offer) -> Events {
        Events(offer.event.clone())
    }

    /// Does what is to be done before the first frame, and rests as long as asked.
    pub fn before(&mut self, made: &mut TestBed) -> Result<()> {
        if self.0.as_ref().is_none_or(|e| e.at_ns >= 0) {
            return Ok(());
        }
        let Some(event) = self.0.take() else { return Ok(()) };
        act(made, &event.action)?;
        std::thread::sleep(Duration::from_nanos(event.at_ns.unsigned_abs()));
        Ok(())
    }

    /// Waits for the event's time and acts; returns when it is done. `begins` gets when the first
    /// frame is due; if it closes with nothing in it, no frame ever was.
    pub fn during(
        self,
        made: &mut TestBed,
        begins: &Receiver<Time>,
        stop: &AtomicBool,
    ) -> Result<()> {
        let Some(event) = self.0 else { return Ok(()) };
        let Ok(start) = begins.recv() else { return Ok(()) };
        let stopped = || stop.load(Ordering::Relaxed);
        match reached(start + event.at_ns, tai_now, stopped, std::thread::sleep) {
            true => act(made, &event.action),
            false => Ok(()),
        }
    }
}

/// Sleeps until `due`; whether it came to that before the end was asked for.
fn reached(
    due: Time,
    now: impl Fn() -> Time,
    stopped: impl Fn() -> bool,
    sleep: impl Fn(Duration),
) -> bool {
    loop {
        let left = due - now();
        if left <= 0 {
            return true;
        }
        if stopped() {
            return false;
        }
        sleep(Duration::from_nanos(left.min(STEP_NS) as u64));
    }
}

fn act(made: &mut TestBed, action: &str) -> Result<()> {
    match made {
        TestBed::There(there) => there.run(action),
        TestBed::Lab(bed) => match action {
            FORGET => bed.forget().context(
                "cannot have the lab's device forget its stations; start the same command again",
            ),
            "reset" | "software" => bed
                .reset(DeviceReset::Software)
                .context("cannot reset the lab's device; start the same command again"),
            POWER => bed
                .reset(DeviceReset::Power(Duration::from_nanos(POWER_OFF_NS as u64)))
                .context("cannot cut the power of the lab's device; start the same command again"),
            other => bail!("the lab's devices know reset and power, not '{other}'"),
        },
    }
}

/// One packet there and one back, so that bridges know who is where. Routers of the lab have
/// permanent neighbours, and lose nothing by it.
pub fn learn(bed: &LabBed) -> Result<()> {
    let [a, b, ..] = &bed.info().ports[..] else { return Ok(()) };
    for (from, to) in [(a, b), (b, a)] {
        for address in &to.addresses {
            // A firewall may refuse the answer: what counts is that the frame was seen.
            let ping = ["ping", "-c", "1", "-W", "1", "-q", &address.address];
            let _ = Host::of(&from.netns).run(&ping);
        }
    }
    Ok(())
}

/// How often a stop is looked for, ns.
const STEP_NS: i64 = 50_000_000;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;

    use super::super::external::tests::{Log, external};
    use super::*;

    #[test]
    fn an_event_is_at_its_time_unless_a_stop_comes_before() {
        let due = Time::from_nanos(230_000_000);
        let wait = |stop_at: i64| {
            let (now, steps) = (Cell::new(0), Cell::new(0));
            let sleep = |time: Duration| {
                now.set(now.get() + time.as_nanos() as i64);
                steps.set(steps.get() + 1);
            };
            let clock = || Time::from_nanos(now.get());
            let reached = reached(due, clock, || now.get() >= stop_at, sleep);
            (reached, now.get(), steps.get())
        };
        assert_eq!(wait(i64::MAX), (true, 230_000_000, 5));
        // Seen within a step.
        assert_eq!(wait(60_000_000), (false, 100_000_000, 2));
        // Due and asked to stop at once: it is due.
        assert_eq!(wait(230_000_000), (true, 230_000_000, 5));
    }

    #[test]
    fn an_event_is_carried_out_once_before_the_trial_or_during_it() {
        let log = Log::new("events");
        let mut made = TestBed::There(external(&[("reset", log.append("reset"))], None).unwrap());
        let stop = AtomicBool::new(false);
        let mut trial = |at_ns: i64, begins_at: Option<i64>| {
            let event = Some(DeviceEvent { action: "reset".into(), at_ns });
            let mut events = Events::of(&Offer { event, ..Offer::default() });
            events.before(&mut made).unwrap();
            let before = log.lines().len();
            let (begin, begins) = mpsc::channel();
            begins_at.into_iter().for_each(|ns| begin.send(Time::from_nanos(ns)).unwrap());
            drop(begin);
            events.during(&mut made, &begins, &stop).unwrap();
            (before, log.lines().len())
        };
        assert_eq!(trial(-1, Some(1)), (1, 1));
        assert_eq!(trial(5, Some(1)), (1, 2));
        // No frame was ever due.
        assert_eq!(trial(5, None), (2, 2));
    }
}
