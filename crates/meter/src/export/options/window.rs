//! The span of time in an IPFIX file.

use sonde_wire::ipfix::element as ie;
use sonde_wire::ipfix::time;

use super::{OptionRecord, send};
use crate::export::fields::Fields;
use crate::export::message::MessageWriter;

/// The span of an IPFIX file (RFC 5655, section 8.1.2), ns since 1970 TAI.
pub(in crate::export) struct Window {
    first_ns: i64,
    last_ns: i64,
    /// When the first record was exported.
    begun_ns: i64,
}

impl Default for Window {
    fn default() -> Self {
        Window { first_ns: i64::MAX, last_ns: i64::MIN, begun_ns: i64::MAX }
    }
}

impl Window {
    #[inline(always)]
    pub fn add(&mut self, first_ns: i64, last_ns: i64, now_ns: i64) {
        self.first_ns = self.first_ns.min(first_ns);
        self.last_ns = self.last_ns.max(last_ns);
        self.begun_ns = self.begun_ns.min(now_ns);
    }

    /// Writes it, if there was a record.
    pub fn export(
        &self,
        messages: &mut MessageWriter,
        now_ns: i64,
        tai_offset_ns: i64,
        out: &mut impl FnMut(&[u8]),
    ) {
        if self.begun_ns > now_ns {
            return;
        }
        let seconds = |ns: i64| (ns - tai_offset_ns).div_euclid(1_000_000_000) as u32;
        let millis = |ns: i64| time::millis(ns - tai_offset_ns);
        let record = TimeWindow {
            exported: (seconds(self.begun_ns), seconds(now_ns)),
            flows: (millis(self.first_ns), millis(self.last_ns)),
        };
        send(messages, &record, out);
    }
}

struct TimeWindow {
    exported: (u32, u32),
    flows: (u64, u64),
}

impl OptionRecord for TimeWindow {
    fn kind(&self) -> u32 {
        9
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        // The scope is the file; its value is always 0 and says nothing.
        w.u8(ie::SESSION_SCOPE, 0);
        w.u32(ie::MIN_EXPORT_SECONDS, self.exported.0);
        w.u32(ie::MAX_EXPORT_SECONDS, self.exported.1);
        w.u64(ie::MIN_FLOW_START_MILLISECONDS, self.flows.0);
        w.u64(ie::MAX_FLOW_END_MILLISECONDS, self.flows.1);
    }
}
