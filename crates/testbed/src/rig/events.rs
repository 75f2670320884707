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
        let due = start + event.at_ns;
        while tai_now() < due {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let left = (due - tai_now()).clamp(0, STEP_NS);
            std::thread::sleep(Duration::from_nanos(left as u64));
        }
        act(made, &event.action)
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
