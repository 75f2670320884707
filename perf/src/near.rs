//! Each reported T1 and T4 against the stamps that eBPF programs take of the same packet
//! at the probe's interface.

use std::collections::HashMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result};
use sonde_bpf::{StampPoint, Stamper};
use sonde_lab::Topology;
use sonde_wire::Time;

use crate::load::{Load, NearEnd};

/// The stamper, and what was reported meanwhile.
pub struct Near {
    stamper: Stamper,
    reported: Vec<(PacketKey, Time, Time)>,
}

/// The reflector's address, our port, our sequence number.
type PacketKey = (IpAddr, u16, u32);

/// What the stamper has of one packet.
#[derive(Clone, Copy, Default)]
struct Seen {
    tc_egress: Option<Time>,
    handed_over: Option<Time>,
    released: Option<Time>,
    tc_ingress: Option<Time>,
    redirected: Option<Time>,
}

impl Near {
    /// Attaches to the interface of this namespace, with room for all of `load`.
    pub fn attach(load: Load) -> Result<Near> {
        let path = format!("/sys/class/net/{}/ifindex", Topology::INTERFACE);
        let ifindex = std::fs::read_to_string(&path).context(path)?.trim().parse()?;
        let packets = load.rate * load.seconds;
        // Four points at most: three of the probe's and one of the reply's.
        let capacity = u32::try_from(packets * 4 + 100_000).context("the run is too long")?;
        let stamper = Stamper::attach(ifindex, 862, capacity)?;
        Ok(Near { stamper, reported: Vec::with_capacity(packets as usize) })
    }

    /// Takes note of an answered packet.
    pub fn add(&mut self, far: IpAddr, near_port: u16, sequence: u32, t1: Time, t4: Time) {
        self.reported.push(((far, near_port, sequence), t1, t4));
    }

    /// Compares, when the last packet has been answered.
    pub fn finish(self) -> Result<NearEnd> {
        let mut all: HashMap<PacketKey, Seen> = HashMap::with_capacity(self.reported.len());
        for stamp in self.stamper.stamps() {
            let seen = all.entry((stamp.far, stamp.near_port, stamp.sequence)).or_default();
            let at = match stamp.point {
                StampPoint::TcEgress => &mut seen.tc_egress,
                StampPoint::HandedOver => &mut seen.handed_over,
                StampPoint::Released => &mut seen.released,
                StampPoint::TcIngress => &mut seen.tc_ingress,
                StampPoint::Redirected => &mut seen.redirected,
            };
            at.get_or_insert(Time::from_nanos(stamp.ns as i64));
        }
        let mut near = NearEnd { missed: self.stamper.missed()?, ..NearEnd::default() };
        for (packet, t1, t4) in self.reported {
            let Some(seen) = all.get(&packet) else { continue };
            for (hist, stamp) in [
                (&mut near.tc_egress, seen.tc_egress),
                (&mut near.handed_over, seen.handed_over),
                (&mut near.released, seen.released),
            ] {
                if let Some(stamp) = stamp {
                    hist.add(stamp - t1);
                }
            }
            for (hist, stamp) in
                [(&mut near.tc_ingress, seen.tc_ingress), (&mut near.redirected, seen.redirected)]
            {
                if let Some(stamp) = stamp {
                    hist.add(t4 - stamp);
                }
            }
            if let (Some(out), Some(back)) = (seen.released, seen.tc_ingress.or(seen.redirected)) {
                near.rtt.add(back - out);
            }
        }
        Ok(near)
    }
}
