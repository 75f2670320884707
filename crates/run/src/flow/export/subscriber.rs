//! The program that runs the meter, as an output.

use sonde_meter::export::ExportStats;
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ExportTotal;

use super::Output;
use crate::running::{RecordReceiver, RecordSender, Stop, records};

/// Hands batches of records to the program.
pub struct Subscriber {
    sender: RecordSender<Vec<FlowRecord>>,
    /// Records can wait for their reader, until this is urgent.
    waits: Option<Stop>,
    records: u64,
}

impl Subscriber {
    /// With what the program reads. Times of its records are not UTC.
    pub fn new(waits: Option<Stop>) -> (Subscriber, RecordReceiver<Vec<FlowRecord>>) {
        let (sender, receiver) = records(BATCHES);
        (Subscriber { sender, waits, records: 0 }, receiver)
    }
}

impl Output for Subscriber {
    fn records(&mut self, records: &[FlowRecord], _: i64) {
        self.records += records.len() as u64;
        let batch = records.to_vec();
        let n = records.len() as u64;
        match &self.waits {
            Some(stop) => {
                if self.sender.push_unless_urgent(batch, stop).is_err() {
                    self.sender.lose(n);
                }
            }
            None => self.sender.push_many(batch, n),
        }
    }

    fn set_utc_offset(&mut self, _: i64) {}

    fn tick(&mut self, _: i64, _: &ExportStats) {}

    fn finish(&mut self, _: i64, _: &ExportStats) {}

    fn total(&self) -> ExportTotal {
        ExportTotal {
            to: "program".into(),
            form: "batches".into(),
            records: self.records,
            counters: [("lost".to_string(), self.lost())].into(),
        }
    }

    fn lost(&self) -> u64 {
        self.sender.lost()
    }

    fn is_unread(&self) -> bool {
        self.sender.is_unread()
    }
}

/// Batches that wait for the reader: of 256 records each.
const BATCHES: usize = 1_024;
