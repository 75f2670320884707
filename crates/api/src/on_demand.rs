//! A short measurement on demand, as blackbox_exporter makes one for each scrape, under its names.

use std::fmt::Write as _;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Deserialize;
use sonde_results::{Counters, Hist};

use crate::Asked;
use crate::openmetrics::{OPENMETRICS, escaped, seconds};
use crate::problem::ProblemDetails;
use crate::role::AccessRole;
use crate::route::{ApiRoute, RouteHead};

/// What measures on demand.
pub trait OnDemandProbes {
    /// Measures now, and waits for the result. A target that does not answer is a result; a module
    /// that is not there is a 422, and too many at a time are a 503.
    fn probe_now(&self, ask: &OnDemandParams) -> Result<OnDemandResult, ProblemDetails>;
}

/// What is measured on demand, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnDemandParams {
    /// Name or address of one host, with a port or without: `192.0.2.1`, `[2001:db8::1]:862`.
    #[schemars(length(min = 1, max = 260))]
    pub target: String,
    /// A module of the station's configuration (`[module.NAME]`); absent: `stamp`.
    pub module: Option<String>,
}

/// What came of a measurement on demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnDemandResult {
    /// How long all of it took, ns.
    pub duration_ns: i64,
    /// How long the name was looked up, ns; 0 for an address.
    pub lookup_ns: i64,
    /// The longest that a measurement of this module takes once the name is known, ns.
    pub limit_ns: i64,
    /// Where probes went; `None`: nowhere.
    pub address: Option<IpAddr>,
    /// Why it failed; `None`: each stream had an answer.
    pub failure: Option<OnDemandFailure>,
    /// Counts of all streams.
    pub counters: Counters,
    /// Round trips without the reflector's dwell, ns.
    pub rtt: Hist,
}

/// Why a measurement on demand failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDemandFailure {
    /// The name has no address.
    Lookup,
    /// This host has no way to the target.
    NotSent,
    /// A stream had no answer.
    NoAnswer,
}

impl OnDemandFailure {
    /// As it stands in a label.
    pub fn name(self) -> &'static str {
        match self {
            OnDemandFailure::Lookup => "lookup",
            OnDemandFailure::NotSent => "not_sent",
            OnDemandFailure::NoAnswer => "no_answer",
        }
    }
}

impl OnDemandResult {
    /// As OpenMetrics 1.0 text. Names that begin with `probe_` are blackbox_exporter's, with their
    /// meaning there.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, help: &str, samples: &[(String, String)]| {
            let _ = writeln!(text, "# TYPE {name} gauge\n# HELP {name} {help}.");
            for (labels, value) in samples {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let one = |value: String| [(String::new(), value)];
        let of_time = |ns: i64| one(seconds(i128::from(ns)));
        family(
            "probe_success",
            "1: each stream had an answer",
            &one(u8::from(self.failure.is_none()).to_string()),
        );
        family("probe_duration_seconds", "How long it took", &of_time(self.duration_ns));
        family("probe_dns_lookup_time_seconds", "Look-up of the name", &of_time(self.lookup_ns));
        family(
            "probe_timeout_seconds",
            "Longest measurement of the module, without the look-up",
            &of_time(self.limit_ns),
        );
        if let Some(address) = self.address {
            let version = if address.is_ipv4() { "4" } else { "6" };
            family("probe_ip_protocol", "Version of IP, 4 or 6", &one(version.to_owned()));
            let hash = hash_of(address).to_string();
            family("probe_ip_addr_hash", "Changes with the target's address", &one(hash));
        }
        if let Some(failure) = self.failure {
            let labels = format!("{{reason=\"{}\"}}", escaped(failure.name()));
            let samples = [(labels, "1".to_owned())];
            family("sonde_probe_failure", "Why it failed", &samples);
        }
        let Counters { sent, received, lost_forward, lost_backward, lost_unknown, .. } =
            self.counters;
        family("sonde_probe_sent", "Probes sent", &one(sent.to_string()));
        family("sonde_probe_received", "Probes answered in time", &one(received.to_string()));
        let sides = [
            ("forward", lost_forward.unwrap_or(0)),
            ("backward", lost_backward.unwrap_or(0)),
            ("unknown", lost_unknown),
        ];
        let lost = sides.map(|(side, n)| (format!("{{direction=\"{side}\"}}"), n.to_string()));
        family("sonde_probe_lost", "Probes lost, by side", &lost);
        let quantile = |q: f64| {
            let enough = self.rtt.count as f64 * (1.0 - q) >= BEYOND;
            self.rtt.quantile(q).filter(|_| enough)
        };
        let quantiles = [
            ("0", self.rtt.min()),
            ("0.5", quantile(0.5)),
            ("0.95", quantile(0.95)),
            ("1", self.rtt.max()),
        ];
        let rtt: Vec<_> = quantiles
            .into_iter()
            .filter_map(|(q, ns)| Some((format!("{{quantile=\"{q}\"}}"), seconds(i128::from(ns?)))))
            .collect();
        family("sonde_probe_rtt_seconds", RTT_HELP, &rtt);
        text.push_str("# EOF\n");
        text
    }
}

/// FNV-1a of 32 bits over the address's octets, as blackbox_exporter has it.
fn hash_of(address: IpAddr) -> u32 {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets
        .iter()
        .fold(0x811c_9dc5, |hash: u32, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193))
}

pub(crate) fn routes() -> Vec<ApiRoute> {
    let head = RouteHead {
        path: "/probe",
        operation: "probe_now",
        summary: "Measures to a target now, for scrapes of Prometheus",
    };
    let route =
        ApiRoute::get_other(head, OPENMETRICS, |backend, asked: &Asked<'_, OnDemandParams>| {
            Ok(backend.probe_now(&asked.params)?.render().into_bytes().into())
        });
    // It changes nothing here, but who may ask has packets sent to wherever they say.
    vec![route.by(AccessRole::Operate)]
}

/// Samples beyond a quantile, at least.
const BEYOND: f64 = 5.0;
const RTT_HELP: &str = "Round trip without the time that the reflector held the probe; \
    quantile 0 and 1 are the least and the greatest";

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(text: &'a str, series: &str) -> Option<&'a str> {
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
    }

    #[test]
    fn a_result_has_blackbox_exporters_names_and_our_counts() {
        let mut rtt = Hist::default();
        (1..=10).for_each(|ms| rtt.add(ms * 1_000_000));
        let counters = Counters {
            sent: 12,
            received: 10,
            lost: 2,
            lost_forward: Some(1),
            lost_backward: Some(0),
            lost_unknown: 1,
            ..Counters::default()
        };
        let result = OnDemandResult {
            duration_ns: 1_250_000_000,
            lookup_ns: 3_000_000,
            limit_ns: 2_000_000_000,
            address: Some("127.0.0.1".parse().unwrap()),
            failure: None,
            counters,
            rtt,
        };
        let text = result.render();
        for (series, wanted) in [
            ("probe_success", "1"),
            ("probe_duration_seconds", "1.25"),
            ("probe_dns_lookup_time_seconds", "0.003"),
            ("probe_timeout_seconds", "2.0"),
            ("probe_ip_protocol", "4"),
            ("sonde_probe_sent", "12"),
            ("sonde_probe_received", "10"),
            ("sonde_probe_lost{direction=\"forward\"}", "1"),
            ("sonde_probe_lost{direction=\"unknown\"}", "1"),
            ("sonde_probe_rtt_seconds{quantile=\"0\"}", "0.001"),
            ("sonde_probe_rtt_seconds{quantile=\"1\"}", "0.01"),
        ] {
            assert_eq!(value(&text, series), Some(wanted), "{series} in {text}");
        }
        // Ten samples carry a median and no more.
        assert!(value(&text, "sonde_probe_rtt_seconds{quantile=\"0.5\"}").is_some());
        assert_eq!(value(&text, "sonde_probe_rtt_seconds{quantile=\"0.95\"}"), None);
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn a_failure_says_why_and_has_no_round_trips() {
        let failure = Some(OnDemandFailure::Lookup);
        let text = OnDemandResult { failure, ..OnDemandResult::default() }.render();
        assert_eq!(value(&text, "probe_success"), Some("0"));
        assert_eq!(value(&text, "sonde_probe_failure{reason=\"lookup\"}"), Some("1"));
        assert!(!text.contains("probe_ip_protocol") && !text.contains("quantile="), "{text}");
    }

    #[test]
    fn an_address_has_the_hash_that_blackbox_exporter_gives() {
        // FNV-1a of 32 bits: the offset basis for no octet, and "a" of the reference tables.
        let of = |octets: [u8; 4]| hash_of(IpAddr::from(octets));
        // "foob" of the test vectors of the hash.
        assert_eq!(of(*b"foob"), 0x3f50_76ef);
        assert_ne!(of([10, 0, 0, 1]), of([10, 0, 0, 2]));
    }
}
