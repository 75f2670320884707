//! A port, its worker, and the streams that leave there.

use sonde_meter::stamp::{SenderConfig, StreamSpec};
use sonde_port::Filter;
use sonde_port::icmp::IcmpError;

use crate::probe::event::Event;
use crate::probe::outbox::Outbox;
use crate::probe::worker::{ProbeWorker, WorkerStatus};

/// One port, one worker, and the streams that leave there.
pub struct Lane {
    pub worker: ProbeWorker,
    /// What its sender goes by.
    pub config: SenderConfig,
    /// The interface that is its own; 0: none.
    pub ifindex: u32,
    pub filter: Filter,
    /// Identifier of each of its streams, unique in the run.
    pub streams: Vec<u32>,
    pub latest: WorkerStatus,
}

impl Lane {
    /// Hands over what the worker has finished, as far as there is room. Its streams are some of
    /// `plan`.
    pub fn drain(&mut self, plan: &[StreamSpec], outbox: &mut Outbox) {
        while outbox.has_room()
            && let Ok(mut record) = self.worker.records.pop()
        {
            record.stream = self.streams[record.stream as usize];
            outbox.push(Event::Record(record.clone()));
            let _ = self.worker.recycled.push(record);
        }
        while outbox.has_room()
            && let Ok(mut sample) = self.worker.samples.pop()
        {
            sample.stream = self.streams[sample.stream as usize];
            outbox.push(Event::Sample(sample));
        }
        while outbox.has_room()
            && let Ok(error) = self.worker.errors.pop()
        {
            outbox.push(Event::Undelivered(whole(error, plan, &self.streams)));
        }
    }
}

/// With the port that was probed. Of a packet that is too big for the way the kernel names the
/// address alone, as the socket is connected to nobody.
fn whole(mut error: IcmpError, plan: &[StreamSpec], streams: &[u32]) -> IcmpError {
    let is_it = |s: &&StreamSpec| {
        s.destination.ip() == error.destination.ip() && s.source.port() == error.source_port
    };
    if error.destination.port() == 0
        && let Some(found) = streams.iter().map(|&i| &plan[i as usize]).find(is_it)
    {
        error.destination.set_port(found.destination.port());
    }
    error
}

/// Those of `plan` that a port carries.
pub fn of_lane(plan: &[StreamSpec], streams: &[u32]) -> Vec<StreamSpec> {
    streams.iter().map(|&i| plan[i as usize].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_meter::stamp::{ReflectorKind, Schedule};
    use sonde_port::icmp::IcmpKind;

    #[test]
    fn what_names_no_port_gets_that_of_its_stream() {
        let spec = |source: &str, destination: &str| StreamSpec {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            dscp: 0,
            ttl: 64,
            next_hop: 0,
            ssid: 1,
            ip_length: 72,
            period: 1_000_000,
            phase: 0,
            schedule: Schedule::Periodic,
            count: None,
            reflector: ReflectorKind::Auto,
        };
        let plan = [
            spec("10.9.0.1:62000", "10.9.0.2:863"),
            spec("10.9.0.1:62001", "10.9.0.3:864"),
            spec("10.9.0.1:62001", "10.9.0.2:862"),
        ];
        let error = |destination: &str, source_port| IcmpError {
            from: None,
            destination: destination.parse().unwrap(),
            source_port,
            kind: IcmpKind::TooBig(68),
        };
        let port = |error, streams: &[u32]| whole(error, &plan, streams).destination.port();
        assert_eq!(port(error("10.9.0.2:0", 62_001), &[0, 1, 2]), 862);
        assert_eq!(port(error("10.9.0.2:9", 62_001), &[0, 1, 2]), 9, "what it names stays");
        assert_eq!(port(error("10.9.0.2:0", 62_001), &[0, 1]), 0, "no stream of this port");
    }
}
