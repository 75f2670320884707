//! Measurements on demand, for `/probe`: by the `run` crate, within bounds, kept nowhere.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sonde_api::on_demand::{OnDemandFailure, OnDemandParams, OnDemandResult};
use sonde_api::problem::{ProblemDetails, ProblemKind};
use sonde_results::{Counters, Interval};
use sonde_run::error::{RunError, SettingsError};
use sonde_run::probe::settings::{RunOptions, StreamOptions};
use sonde_run::probe::{self, Event, Family, Probe, TargetEntry};
use sonde_run::running::{Context, Stop};
use sonde_sys::clock::steady_now;

/// How a measurement on demand is made: a table `[module.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModuleSettings {
    /// As of a probe, but 10 probes of each stream, 100 ms apart, if nothing is said.
    pub stream: StreamOptions,
    /// A probe not answered after this is lost, ns, 1 ms to 60 s. `None`: 1 s.
    #[serde(with = "sonde_run::duration::option", skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<String>",
        description = "A probe not answered after this is lost [default: 1s]"
    )]
    pub timeout: Option<i64>,
    /// Which addresses of a name will do.
    pub family: Family,
    /// Probes longer than the path's MTU go in pieces, instead of with "don't fragment".
    pub fragment: bool,
}

/// All modules, by name. [`STAMP`] is there also where no configuration names it.
pub type Modules = BTreeMap<String, ModuleSettings>;

/// Measures on demand, a few at a time.
#[derive(Default)]
pub(crate) struct OnDemand {
    /// Measurements under way.
    under_way: Mutex<usize>,
    /// Held while one opens its sockets: two at a time could choose one port.
    opening: Mutex<()>,
    /// Asks all of them to end.
    stop: Stop,
}

impl ModuleSettings {
    /// Whether they can be.
    ///
    /// # Errors
    /// The first that cannot, with its key.
    pub fn check(&self) -> Result<(), SettingsError> {
        let renamed = |error: SettingsError| match error.key.as_deref() {
            Some("run.timeout") => SettingsError::of(
                "timeout",
                error.message.strip_prefix("run.").unwrap_or(&error.message),
            ),
            _ => error,
        };
        self.probe(String::from("127.0.0.1"), None).check().map_err(renamed)?;
        let stream = self.stream();
        let count = stream.count.unwrap_or(1);
        let wrong = |key, why: String| Err(SettingsError::new(key, why));
        if count > MOST_PROBES {
            return wrong("stream.count", format!("{count} is more than {MOST_PROBES}"));
        }
        let interval = stream.interval.unwrap_or(INTERVAL_NS);
        if interval < LEAST_INTERVAL_NS {
            return wrong("stream.interval", "it must be 1ms or longer on demand".to_owned());
        }
        let classes = stream.dscp.as_ref().map_or(1, Vec::len);
        let streams = classes * usize::from(stream.flows.unwrap_or(1));
        if streams > MOST_STREAMS {
            let key = if stream.flows.unwrap_or(1) > 1 { "stream.flows" } else { "stream.dscp" };
            return wrong(key, format!("{streams} streams are more than {MOST_STREAMS}"));
        }
        if self.limit_ns() > LONGEST_NS {
            let why = format!(
                "{count} probes and `timeout` take {:.1} s, more than {} s; use fewer, or a \
                 shorter interval",
                self.limit_ns() as f64 / 1e9,
                LONGEST_NS / 1_000_000_000
            );
            return wrong("stream.count", why);
        }
        Ok(())
    }

    fn stream(&self) -> StreamOptions {
        let defaults = StreamOptions {
            count: Some(COUNT),
            interval: Some(INTERVAL_NS),
            ..StreamOptions::default()
        };
        self.stream.clone().or(&defaults)
    }

    /// How long one takes at most once the name is known, ns.
    fn limit_ns(&self) -> i64 {
        let stream = self.stream();
        let count = i64::try_from(stream.count.unwrap_or(1)).unwrap_or(i64::MAX);
        let sends = stream.interval.unwrap_or(INTERVAL_NS).saturating_mul(count);
        sends.saturating_add(self.timeout.unwrap_or(TIMEOUT_NS))
    }

    fn probe(&self, host: String, port: Option<u16>) -> probe::Settings {
        let stream = self.stream();
        let sends = self.limit_ns() - self.timeout.unwrap_or(TIMEOUT_NS);
        let stream = StreamOptions { port: port.or(stream.port), ..stream };
        let run = RunOptions {
            // The count ends it before; but not where times between probes are random.
            duration: Some(sends + START_NS),
            timeout: Some(self.timeout.unwrap_or(TIMEOUT_NS)),
            record_interval: Some(self.limit_ns().clamp(LEAST_RECORD_NS, MOST_RECORD_NS)),
            ..RunOptions::default()
        };
        probe::Settings {
            targets: vec![TargetEntry::of(host)],
            stream,
            run,
            family: self.family,
            fragment: self.fragment,
            ..probe::Settings::default()
        }
    }
}

impl OnDemand {
    /// Has all that are under way end.
    pub fn end(&self) {
        self.stop.hurry();
    }

    /// Measures, and waits for it.
    pub fn measure(
        &self,
        modules: &Modules,
        ask: &OnDemandParams,
    ) -> Result<OnDemandResult, ProblemDetails> {
        let name = ask.module.as_deref().unwrap_or(STAMP);
        let builtin = ModuleSettings::default();
        let module = modules.get(name).or((name == STAMP).then_some(&builtin));
        let Some(module) = module else {
            let known: Vec<&str> = modules.keys().map(String::as_str).chain([STAMP]).collect();
            let why = format!("there is no [module.{name}]; there are {}", known.join(", "));
            return Err(ProblemDetails::of_parameter(ProblemKind::Unprocessable, "module", why));
        };
        let (host, port) = host_and_port(&ask.target).map_err(|why| {
            ProblemDetails::of_parameter(ProblemKind::Unprocessable, "target", why)
        })?;
        let _slot = self.slot()?;
        let begun = steady_now();
        let mut result = OnDemandResult { limit_ns: module.limit_ns(), ..Default::default() };
        let addresses = match probe::look_up(host, module.family) {
            Ok(addresses) => addresses,
            Err(error) => {
                tracing::debug!("/probe: {host}: {error}");
                result.failure = Some(OnDemandFailure::Lookup);
                Vec::new()
            }
        };
        if host.parse::<IpAddr>().is_err() {
            result.lookup_ns = steady_now() - begun;
        }
        if result.failure.is_none() {
            self.follow(module, &addresses, port, &mut result)?;
        }
        result.duration_ns = steady_now() - begun;
        Ok(result)
    }

    /// Measures to the first of the addresses that there is a way to.
    fn follow(
        &self,
        module: &ModuleSettings,
        addresses: &[IpAddr],
        port: Option<u16>,
        result: &mut OnDemandResult,
    ) -> Result<(), ProblemDetails> {
        let context = Context { stop: self.stop.clone(), ..Context::default() };
        let mut failure = None;
        for &address in addresses {
            let started = {
                let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
                probe::start(module.probe(address.to_string(), port), &context)
            };
            match started {
                Ok((about, running)) => {
                    result.address = Some(address);
                    return self.collect(about.streams.len(), running, result);
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(RunError::Settings(error)) => {
                Err(ProblemDetails::new(ProblemKind::Unprocessable, error.to_string()))
            }
            failure => {
                let why = failure.map(|error| error.to_string()).unwrap_or_default();
                tracing::debug!("/probe: nothing was sent to {addresses:?}: {why}");
                result.failure = Some(OnDemandFailure::NotSent);
                Ok(())
            }
        }
    }

    fn collect(
        &self,
        streams: usize,
        running: Probe,
        result: &mut OnDemandResult,
    ) -> Result<(), ProblemDetails> {
        let mut answered = vec![false; streams];
        let mut counters = Counters::default();
        for event in running.records.iter() {
            let Event::Record(record) = event else { continue };
            let Interval { stream, counters: counted, rtt_net, .. } = *record;
            counters.merge(&counted);
            result.rtt.merge(&rtt_net);
            if let Some(answered) = answered.get_mut(stream as usize) {
                *answered |= counted.received > 0;
            }
        }
        let ended = running.join();
        if self.stop.is_asked() {
            return Err(ProblemDetails::new(ProblemKind::Unavailable, "the station ends"));
        }
        if let Some(failure) = ended.failure {
            return Err(ProblemDetails::new(ProblemKind::Internal, failure.to_string()));
        }
        result.counters = counters;
        result.failure = match () {
            () if counters.sent == 0 => Some(OnDemandFailure::NotSent),
            () if answered.iter().all(|answered| *answered) => None,
            () => Some(OnDemandFailure::NoAnswer),
        };
        Ok(())
    }

    fn slot(&self) -> Result<Slot<'_>, ProblemDetails> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if *under_way >= AT_ONCE {
            let why = format!("{AT_ONCE} measurements on demand are under way; try again");
            return Err(ProblemDetails::new(ProblemKind::Unavailable, why).retry_after(1));
        }
        *under_way += 1;
        Ok(Slot(&self.under_way))
    }
}

/// One of the measurements under way, until it is dropped.
struct Slot<'a>(&'a Mutex<usize>);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

/// One host of a target, and its port: `a`, `a:862`, `2001:db8::1`, `[2001:db8::1]:862`.
fn host_and_port(target: &str) -> Result<(&str, Option<u16>), String> {
    let bare = |host: &'_ str| host.is_empty() || host.contains(['/', ' ', '[', ']']);
    let (host, port) = match target.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => return Err("'[' has no ']'; write [2001:db8::1]:862".to_owned()),
        },
        None => match target.rsplit_once(':') {
            // More than one colon: an address of IPv6 without a port.
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            _ => (target, None),
        },
    };
    if bare(host) || host.len() > LONGEST_HOST {
        return Err(format!("'{target}' is no host; name one address or one name"));
    }
    match port.map(str::parse::<u16>) {
        None if target.ends_with(']') || !target.starts_with('[') => Ok((host, None)),
        Some(Ok(port)) if port > 0 => Ok((host, Some(port))),
        _ => Err(format!("'{target}' has no port behind its colon, 1 to 65535")),
    }
}

/// The module that is always there.
pub const STAMP: &str = "stamp";
/// Measurements at a time: half of the API's workers, so that they keep nobody from the rest.
const AT_ONCE: usize = 4;
/// Probes of each stream, if nothing is said.
const COUNT: u64 = 10;
/// Between them, ns.
const INTERVAL_NS: i64 = 100_000_000;
/// For the first probe to leave, ns.
const START_NS: i64 = 1_000_000_000;
/// Until a probe is lost, ns.
const TIMEOUT_NS: i64 = 1_000_000_000;
/// The longest measurement, ns: less than the API waits for an answer.
const LONGEST_NS: i64 = 30_000_000_000;
const LEAST_INTERVAL_NS: i64 = 1_000_000;
const MOST_PROBES: u64 = 1_000;
const MOST_STREAMS: usize = 16;
/// Bounds of `run.record_interval`, ns.
const LEAST_RECORD_NS: i64 = 100_000_000;
const MOST_RECORD_NS: i64 = 60_000_000_000;
/// Characters of a name (RFC 1035).
const LONGEST_HOST: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(module: &ModuleSettings) -> Option<String> {
        module.check().err().map(|error| error.to_string())
    }

    fn module(text: &str) -> ModuleSettings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_module_is_bounded_in_time_and_packets_and_says_which_key_is_beyond() {
        assert_eq!(refused(&ModuleSettings::default()), None);
        assert_eq!(ModuleSettings::default().limit_ns(), 2_000_000_000);
        assert_eq!(refused(&module("stream = { count = 29, interval = '1s' }")), None);
        let key = |text: &str| {
            let error = module(text).check().unwrap_err();
            assert!(error.message.starts_with(error.key.as_deref().unwrap()), "{error}");
            error.key.unwrap()
        };
        assert_eq!(key("stream = { count = 30, interval = '1s' }"), "stream.count");
        assert_eq!(key("stream = { count = 1001 }"), "stream.count");
        assert_eq!(key("stream = { interval = '10us' }"), "stream.interval");
        assert_eq!(key("stream = { flows = 17 }"), "stream.flows");
        assert_eq!(key("timeout = '2h'"), "timeout");
        assert_eq!(key("stream = { ttl = 0 }"), "stream.ttl");
    }

    #[test]
    fn a_target_is_one_host_with_or_without_a_port() {
        for (target, wanted) in [
            ("a.example", ("a.example", None)),
            ("a.example:863", ("a.example", Some(863))),
            ("192.0.2.1:1", ("192.0.2.1", Some(1))),
            ("2001:db8::1", ("2001:db8::1", None)),
            ("[2001:db8::1]", ("2001:db8::1", None)),
            ("[2001:db8::1]:863", ("2001:db8::1", Some(863))),
        ] {
            assert_eq!(host_and_port(target), Ok(wanted), "{target}");
        }
        for wrong in [
            "",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "10.0.0.0/24",
            "[::1",
            "[::1]x",
            "a b",
            "[]:1",
        ] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_a_problem_or_a_result_and_gives_its_slot_back() {
        let on_demand = OnDemand::default();
        let ask = |target: &str, module: Option<&str>| {
            let ask = OnDemandParams { target: target.into(), module: module.map(Into::into) };
            on_demand.measure(&Modules::new(), &ask)
        };
        let unknown = ask("127.0.0.1", Some("icmp")).unwrap_err();
        assert_eq!(unknown.status, 422);
        assert!(unknown.to_string().contains("[module.icmp]"), "{unknown}");
        assert_eq!(ask("10.0.0.0/8", None).unwrap_err().status, 422);
        let lookup = ask("no-such-host.invalid", None).unwrap();
        assert_eq!(lookup.failure, Some(OnDemandFailure::Lookup));
        assert_eq!((lookup.address, lookup.counters.sent), (None, 0));
        let held: Vec<_> = (0..AT_ONCE).map(|_| on_demand.slot().unwrap()).collect();
        let full = ask("127.0.0.1", None).unwrap_err();
        assert_eq!((full.status, full.retry_after_s), (503, Some(1)));
        drop(held);
        assert_eq!(*on_demand.under_way.lock().unwrap(), 0);
    }
}
