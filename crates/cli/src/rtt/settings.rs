//! From what was typed to what the matchers are told.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sonde_meter::rtt::{Config, EventLimit, Filter, GroupBy, PrefixTable, Protocols};
use sonde_results::rtt::GroupKey;
use sonde_results::rtt_run::RttRunConfig;

use super::args::{By, FilterArgs, Proto, RttArgs, SampleLimit};
use super::collect::{GroupOf, Prints};
use crate::settings::secrets;

/// The settings of a matcher that serves `prints`.
pub fn config(args: &RttArgs, prints: &Prints) -> Result<Config> {
    if args.by == By::As && args.prefixes.is_none() {
        bail!("--by as needs --prefixes with a prefix and its AS number on each line");
    }
    if args.prefixes.is_some() && !matches!(args.by, By::Prefix | By::As) {
        bail!("--prefixes serves --by prefix and --by as, not --by {}", args.by.name());
    }
    if args.by == By::Vlan && args.no_vlan_in_key {
        bail!("--by vlan needs the VLAN in a flow's key: leave --no-vlan-in-key out");
    }
    let config = Config {
        flows: args.flows as usize,
        seed: secrets(args.seed),
        group_by: group_by(args.by),
        groups: groups(args.by),
        prefixes: args.prefixes.as_deref().map(prefixes).transpose()?.unwrap_or_default(),
        events: match args.output.sample_limit {
            _ if !prints.samples => EventLimit::None,
            None | Some(SampleLimit::None) => EventLimit::All,
            Some(SampleLimit::Every(ns)) => EventLimit::Every(Duration::from_nanos(ns as u64)),
            Some(SampleLimit::RoundTrips(n)) => EventLimit::RttMultiple(16 * n),
        },
        weight_by_flow: args.output.weight.is_some(),
        hide_addresses: args.filter.prefix_only,
        vlan_in_key: !args.no_vlan_in_key,
        filter: filter(&args.filter),
        ..Config::default()
    };
    config.check()?;
    Ok(config)
}

/// The same for the run file.
pub fn run_config(args: &RttArgs) -> RttRunConfig {
    RttRunConfig {
        command: std::env::args().collect(),
        group_by: args.by.name().into(),
        interval_ns: args.interval,
        flows_max: args.flows.into(),
        weight_by_flow: args.output.weight.is_some(),
        prefix_only: args.filter.prefix_only,
    }
}

/// Gives the group of a flow's answering host, where it follows from the flow's key.
pub fn group_of(config: &Config) -> GroupOf {
    let (by, table) = (config.group_by, config.prefixes.clone());
    Box::new(move |flow| match by {
        GroupBy::Flow => Some(GroupKey::Flow(*flow)),
        GroupBy::Prefix => {
            let (address, length) = table.prefix_of(flow.source);
            Some(GroupKey::Prefix { address, length })
        }
        GroupBy::As => Some(GroupKey::As(table.as_of(flow.source).unwrap_or(0))),
        GroupBy::Interface => Some(GroupKey::Interface(flow.point)),
        GroupBy::Vlan => Some(GroupKey::Vlan(flow.vlan)),
        // Of the first packet, which the key does not hold.
        GroupBy::Dscp => None,
    })
}

fn group_by(by: By) -> GroupBy {
    match by {
        By::Flow => GroupBy::Flow,
        By::Prefix => GroupBy::Prefix,
        By::As => GroupBy::As,
        By::Interface => GroupBy::Interface,
        By::Vlan => GroupBy::Vlan,
        By::Dscp => GroupBy::Dscp,
    }
}

/// Groups at once in the matcher, that is, between two readings of it.
fn groups(by: By) -> usize {
    match by {
        // The most that the kernel's program takes.
        By::Flow => 16_383,
        _ => Config::default().groups,
    }
}

fn prefixes(path: &Path) -> Result<PrefixTable> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the prefixes in {}", path.display()))?;
    let table =
        PrefixTable::parse(&text).with_context(|| format!("in the file {}", path.display()))?;
    if table.is_empty() {
        bail!("{} holds no prefix; write one on each line, as 192.0.2.0/24", path.display());
    }
    Ok(table)
}

fn filter(args: &FilterArgs) -> Filter {
    let protocols = args.proto.iter().fold(Protocols::default(), |all, proto| {
        all.with(match proto {
            Proto::Tcp => Protocols::TCP,
            Proto::Icmp => Protocols::ICMP,
            Proto::Quic => Protocols::QUIC,
            Proto::Dns => Protocols::DNS,
            Proto::Sctp => Protocols::SCTP,
        })
    });
    let nets = args.net.iter().map(|p| (p.address, p.bits)).collect();
    Filter { protocols, nets, ports: args.port.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::sample;
    use clap::Parser;

    #[derive(Parser)]
    struct Rtt {
        #[command(flatten)]
        args: RttArgs,
    }

    fn settle(line: &str) -> Result<Config> {
        let args = Rtt::try_parse_from(format!("rtt eth0 {line}").split_whitespace())?.args;
        let prints = Prints::new(&args.output, true)?;
        config(&args, &prints)
    }

    #[test]
    fn no_event_is_asked_for_unless_samples_are_printed() {
        for (line, events) in [
            ("", EventLimit::None),
            ("--format jsonl", EventLimit::None),
            ("--format jsonl --sample-limit none", EventLimit::All),
            ("--format standard", EventLimit::All),
            ("--format json --sample-limit 100ms", EventLimit::Every(Duration::from_millis(100))),
            ("--format ppviz --sample-limit 4x", EventLimit::RttMultiple(64)),
        ] {
            assert_eq!(settle(line).unwrap().events, events, "{line}");
        }
    }

    #[test]
    fn the_filter_is_handed_on_and_its_limits_are_named() {
        let config =
            settle("--proto tcp,dns --net 10.0.0.0/8 --port 443,53 --prefix-only --weight flow")
                .unwrap();
        assert_eq!(config.filter.protocols, Protocols::TCP.with(Protocols::DNS));
        assert_eq!(config.filter.nets, [("10.0.0.0".parse().unwrap(), 8)]);
        assert!(config.hide_addresses && config.weight_by_flow);
        let error = settle("--port 1,2,3,4,5,6,7,8,9").unwrap_err();
        assert!(error.to_string().contains("at most 8"), "{error}");
    }

    #[test]
    fn the_vlan_is_left_out_of_the_key_and_not_grouped_by() {
        assert!(settle("").unwrap().vlan_in_key);
        assert!(!settle("--no-vlan-in-key").unwrap().vlan_in_key);
        let error = settle("--by vlan --no-vlan-in-key").unwrap_err().to_string();
        assert!(error.contains("leave --no-vlan-in-key out"), "{error}");
    }

    #[test]
    fn a_seed_repeats_and_no_seed_does_not() {
        let seed = |line| settle(line).unwrap().seed;
        assert_eq!(seed("--seed 7"), seed("--seed 7"));
        assert_ne!(seed(""), seed(""));
    }

    #[test]
    fn wrong_prefixes_are_named() {
        let missing = format!("{:#}", settle("--prefixes /nonexistent/p").unwrap_err());
        assert!(missing.contains("/nonexistent/p"), "{missing}");
        let idle = settle("--by vlan --prefixes x").unwrap_err().to_string();
        assert!(idle.contains("not --by vlan"), "{idle}");
        assert!(settle("--by as").unwrap_err().to_string().contains("--prefixes"));
        let path = std::env::temp_dir().join(format!("sonde-prefixes-{}", std::process::id()));
        std::fs::write(&path, "192.0.2.0/24\n10.0.0.1/8\n").unwrap();
        let wrong = settle(&format!("--prefixes {}", path.display()));
        std::fs::write(&path, "# none\n").unwrap();
        let empty = settle(&format!("--prefixes {}", path.display()));
        std::fs::remove_file(&path).unwrap();
        let wrong = format!("{:#}", wrong.unwrap_err());
        assert!(wrong.contains("line 2") && wrong.contains("sonde-prefixes"), "{wrong}");
        assert!(empty.unwrap_err().to_string().contains("no prefix"));
    }

    #[test]
    fn the_group_of_a_flow_is_that_of_the_host_that_answers() {
        let flow = sample::from_server();
        let of = |by| group_of(&Config { group_by: by, ..Config::default() })(&flow);
        let prefix = GroupKey::Prefix { address: "192.0.2.0".parse().unwrap(), length: 24 };
        assert_eq!(of(GroupBy::Prefix), Some(prefix));
        assert_eq!(of(GroupBy::Flow), Some(GroupKey::Flow(flow)));
        assert_eq!(of(GroupBy::As), Some(GroupKey::As(0)));
        assert_eq!((of(GroupBy::Vlan), of(GroupBy::Dscp)), (Some(GroupKey::Vlan(0)), None));
    }
}
