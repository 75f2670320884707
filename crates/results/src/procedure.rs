//! The procedures of benchmarks by their names: what is known of each where it is not carried out.
//!
//! The test bed's registry takes its names from here, or does not compile, and reports are made by
//! it. A run of another version may have procedures that are not here.

/// What is known of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureInfo {
    /// As in a plan and in a run: "latency_rfc8219".
    pub name: &'static str,
    /// For people: "latency by RFC 8219".
    pub title: &'static str,
    /// The clause of a standard that asks for its results; empty: none does.
    pub clause: &'static str,
    /// What its first value has to do with a rate that the device carries.
    pub rate: RateResult,
    /// In the purpose of those of its trials that are run to see the latency; `None`: it has none.
    pub latency_purpose: Option<&'static str>,
}

/// What the first value of a procedure has to do with a rate that the device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateResult {
    /// It is none.
    None,
    /// It is one, which was not searched.
    Observed,
    /// It is one that was searched for its own sake. Of other procedures, a rate that was searched
    /// is what their loads are shares of.
    Searched,
}

/// Parts of the purposes of trials, by which their results are read.
pub mod purpose {
    /// Latency, at whatever load.
    pub const LATENCY: &str = "latency";
    /// Packet or inter-packet delay variation.
    pub const DELAY_VARIATION: &str = "delay variation";
    /// One load, as it is given.
    pub const FIXED_LOAD: &str = "fixed load";
    /// A load over a long time, in windows.
    pub const SOAK: &str = "soak";
    /// A service at its committed rate (ITU-T Y.1564).
    pub const SERVICE_PERFORMANCE: &str = "service performance";
    /// The device is reset meanwhile.
    pub const RESET: &str = "reset";
    /// More than the device carries, and then less.
    pub const OVERLOAD: &str = "overload";
}

/// The procedure of that name.
pub fn procedure_info(name: &str) -> Option<&'static ProcedureInfo> {
    PROCEDURES.iter().find(|known| known.name == name)
}

/// The same where it must be one: in a constant, whatever is not in the table does not compile.
///
/// # Panics
/// It is not in the table.
pub const fn known_procedure(name: &str) -> &'static ProcedureInfo {
    let mut i = 0;
    while i < PROCEDURES.len() {
        if is_same(PROCEDURES[i].name.as_bytes(), name.as_bytes()) {
            return &PROCEDURES[i];
        }
        i += 1;
    }
    panic!("a procedure has no row in the table of crates/results/src/procedure.rs: add it there")
}

/// Comparing texts is not const.
const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    a.len() == b.len()
}

/// Name, title, clause, what its rate is, and the purpose of its trials for latency.
const fn row(
    name: &'static str,
    title: &'static str,
    clause: &'static str,
    rate: RateResult,
    latency_purpose: Option<&'static str>,
) -> ProcedureInfo {
    ProcedureInfo { name, title, clause, rate, latency_purpose }
}

use self::RateResult::{None as NoRate, Observed, Searched};
use self::purpose::{DELAY_VARIATION, FIXED_LOAD, LATENCY, SERVICE_PERFORMANCE, SOAK};

/// All there are, in the order of docs/procedures.md.
#[rustfmt::skip]
pub const PROCEDURES: &[ProcedureInfo] = &[
    row("throughput", "throughput", "RFC 2544, section 26.1", Searched, None),
    row("tst009", "TST 009", "ETSI GS NFV-TST 009", Searched, None),
    row("mlrsearch", "MLRsearch", "RFC 9971", Searched, None),
    row("latency", "latency", "RFC 2544, section 26.2", NoRate, Some(LATENCY)),
    row("latency_rfc8219", "latency by RFC 8219", "RFC 8219", NoRate, Some(LATENCY)),
    row("pdv", "PDV", "RFC 8219", NoRate, Some(DELAY_VARIATION)),
    row("ipdv", "IPDV", "RFC 8219", NoRate, Some(DELAY_VARIATION)),
    row("frame_loss_rate", "frame loss rate", "RFC 2544, section 26.3", NoRate, None),
    row("back_to_back", "back to back", "RFC 2544, section 26.4, and RFC 9004, section 7", NoRate, None),
    row("system_recovery", "system recovery", "RFC 2544, section 26.5", NoRate, None),
    row("reset", "reset", "RFC 2544, section 26.6, and RFC 6201", NoRate, None),
    row("forwarding_rate", "forwarding rate", "RFC 2889", Observed, None),
    row("address_caching_capacity", "address caching capacity", "RFC 2889", NoRate, None),
    row("address_learning_rate", "address learning rate", "RFC 2889", NoRate, None),
    row("flooding", "flooding", "", Searched, None),
    row("mixed_class_throughput", "mixed class throughput", "RFC 3918", Searched, None),
    row("aggregated_multicast", "aggregated multicast", "RFC 3918", Searched, None),
    row("scaled_group_matrix", "scaled group matrix", "RFC 3918", NoRate, None),
    row("multicast_latency", "multicast latency", "RFC 3918", NoRate, Some(LATENCY)),
    row("y1564_configuration", "Y.1564 configuration", "ITU-T Y.1564", NoRate, None),
    row("y1564_performance", "Y.1564 performance", "ITU-T Y.1564", NoRate, Some(SERVICE_PERFORMANCE)),
    row("fixed_load", "fixed load", "", NoRate, Some(FIXED_LOAD)),
    row("ramp", "ramp", "", NoRate, None),
    row("soak", "soak", "", NoRate, Some(SOAK)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_is_found_by_its_whole_name() {
        assert_eq!(procedure_info("pdv").unwrap().title, "PDV");
        assert_eq!(known_procedure("ipdv"), procedure_info("ipdv").unwrap());
        assert_eq!((procedure_info("pd"), procedure_info("")), (None, None));
        let mut names: Vec<&str> = PROCEDURES.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROCEDURES.len());
    }

    #[test]
    #[should_panic(expected = "crates/results/src/procedure.rs")]
    fn one_without_a_row_says_where_it_belongs() {
        known_procedure("latenc");
    }
}
