//! Tests of the expansion of targets to streams.

use super::*;
use crate::error::FileLine;
use crate::probe::settings::PortRange;
use proptest::prelude::*;

fn entry(host: &str) -> TargetEntry {
    TargetEntry { host: host.to_string(), ..Default::default() }
}

fn hosts(host: &str, first: Option<u64>) -> Result<Vec<String>, String> {
    addresses(host, first, Family::Any)
        .map(|list| list.iter().map(IpAddr::to_string).collect())
        .map_err(|e| format!("{e:#}"))
}

fn route(targets: &[Target]) -> impl FnMut(usize) -> Result<(IpAddr, u16), String> {
    |i| match targets[i].address {
        IpAddr::V4(_) => Ok(("192.0.2.1".parse().unwrap(), 3)),
        IpAddr::V6(_) => Ok(("2001:db8::1".parse().unwrap(), 4)),
    }
}

fn planned(host: &str, options: StreamOptions) -> StreamPlan {
    let targets = expand(&[entry(host)], &options, Family::Any, false).unwrap().targets;
    plan(&targets, 7, &HashSet::new(), &HashMap::new(), route(&targets)).unwrap()
}

fn all_distinct(plan: &StreamPlan) -> bool {
    let mut seen = HashSet::new();
    plan.streams.iter().all(|s| seen.insert((s.source, s.destination)))
}

#[test]
fn ranges_and_prefixes() {
    assert_eq!(hosts("10.0.0.254-10.0.1.1", None).unwrap().len(), 4);
    assert_eq!(hosts("10.0.0.0/30", None).unwrap(), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(hosts("10.0.0.0/31", None).unwrap(), ["10.0.0.0", "10.0.0.1"]);
    assert_eq!(hosts("10.0.0.7/32", None).unwrap(), ["10.0.0.7"]);
    assert_eq!(hosts("2001:db8::/64", Some(2)).unwrap(), ["2001:db8::1", "2001:db8::2"]);
    assert_eq!(hosts("255.255.255.254-255.255.255.255", None).unwrap().len(), 2);
    assert_eq!(hosts("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some(1)).unwrap(), ["::"]);
    assert!(hosts("2001:db8::/64", None).unwrap_err().contains("'first = N'"));
    assert!(hosts("10.0.0.9-10.0.0.1", None).unwrap_err().contains("lower address first"));
    assert!(hosts("10.0.0.1-::1", None).unwrap_err().contains("one family"));
    assert!(hosts("10.0.0.1/24", None).unwrap_err().contains("bits set"));
    assert!(hosts("10.0.0.1", Some(2)).unwrap_err().contains("'first' needs a range"));
}

#[test]
fn what_no_host_can_be_measured_with_shows_before_a_name_is_looked_up() {
    let check = |host: &str, stream: StreamOptions, family: Family| {
        let targets = vec![entry("name.invalid"), TargetEntry { stream, ..entry(host) }];
        let settings = Settings { targets, family, ..Settings::default() };
        let checked = check_hosts(&settings);
        checked.map_err(|wrong| (wrong.key.unwrap_or_default(), wrong.message))
    };
    let plain = |host: &str| check(host, StreamOptions::default(), Family::Any);
    for good in ["192.0.2.1", "10.0.0.0/20", "fe80::1%eth0", "host.example", "[2001:db8::1]"] {
        assert_eq!(plain(good), Ok(()), "{good}");
    }
    let host = |wrong: Result<(), (String, String)>| {
        let (key, message) = wrong.unwrap_err();
        assert_eq!(key, "target.host", "{message}");
        message
    };
    assert!(host(plain("10.0.0.0/8")).contains("'first = N'"));
    assert!(host(plain("10.0.0.1/24")).contains("bits set"));
    assert!(host(plain("192.0.2.1:862")).contains("stream.port = 862"));
    let six = |host: &str| check(host, StreamOptions::default(), Family::V6);
    assert!(host(six("192.0.2.1")).contains("leave out `family`"));
    assert!(host(six("10.0.0.0/30")).contains("leave out `family`"));
    assert_eq!(six("2001:db8::1"), Ok(()));
    let many = StreamOptions { flows: Some(1_000), ..StreamOptions::default() };
    assert!(host(check("10.0.0.0/20", many, Family::Any)).contains("more than 1000000 streams"));
    let source = Some("::1".parse().unwrap());
    let other = StreamOptions { source, ..StreamOptions::default() };
    let (key, message) = check("10.0.0.0/30", other, Family::Any).unwrap_err();
    assert_eq!(key, "target.stream.source", "{message}");
    let short = StreamOptions { size: Some(80), ..StreamOptions::default() };
    let (key, message) = check("2001:db8::1", short.clone(), Family::Any).unwrap_err();
    assert_eq!(key, "target.stream.size", "{message}");
    assert!(message.contains("at least 92"), "{message}");
    assert_eq!(check("192.0.2.1", short, Family::Any), Ok(()));
}

#[test]
fn names_resolve_and_bad_ones_are_named() {
    assert_eq!(names::resolve("[::1]", Family::Any).unwrap(), ["::1".parse::<IpAddr>().unwrap()]);
    assert!(
        names::resolve("127.0.0.1", Family::V6)
            .unwrap_err()
            .to_string()
            .contains("no IPv6 address")
    );
    for (typed, hint) in
        [("127.0.0.1:9", "127.0.0.1 `stream.port = 9`"), ("[::1]:9", "[::1] `stream.port = 9`")]
    {
        let error = names::resolve(typed, Family::Any).unwrap_err().to_string();
        assert!(error.contains(hint), "{error}");
    }
    let mut bad = entry("no-such-host.invalid");
    bad.at = Some(FileLine { file: "t.toml".into(), line: 3 });
    let error =
        format!("{:#}", expand(&[bad], &StreamOptions::default(), Family::Any, false).unwrap_err());
    assert!(
        error.starts_with("t.toml line 3: no-such-host.invalid: cannot be resolved"),
        "{error}"
    );
}

#[test]
fn one_name_that_does_not_resolve_does_not_stop_the_others() {
    let entries = [entry("10.0.0.1"), entry("no-such-host.invalid"), entry("10.0.0.2")];
    let options = StreamOptions::default();
    let all = expand(&entries, &options, Family::Any, false).unwrap();
    let names: Vec<_> = all.targets.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(all.left_out.len(), 1);
    assert!(all.left_out[0].1.contains("cannot be resolved"), "{:?}", all.left_out);
    let none = [entry("a.invalid"), entry("b.invalid")];
    let error = expand(&none, &options, Family::Any, false).unwrap_err().to_string();
    assert!(error.contains("none of 2 names"), "{error}");
    assert_eq!(error.matches("a.invalid").count(), 1, "{error}");
}

/// What a name is depends on the host and the time; what is no name fails everywhere.
#[test]
fn a_name_that_does_not_resolve_is_no_wrong_setting() {
    let expand = |hosts: &[&str]| {
        let entries: Vec<_> = hosts.iter().map(|host| entry(host)).collect();
        expand(&entries, &StreamOptions::default(), Family::V6, false).unwrap_err()
    };
    for hosts in [&["a.invalid"][..], &["a.invalid", "b.invalid"]] {
        let error = expand(hosts);
        assert!(matches!(error, RunError::Host(_)), "{error}");
        assert_eq!(error.to_string().matches("a.invalid").count(), 1, "{error}");
    }
    for hosts in [&["10.0.0.1:862"][..], &["::1", "[::1]:862"], &["10.0.0.1"], &["::/8"]] {
        let error = expand(hosts);
        assert!(matches!(error, RunError::Settings(_)), "{error}");
    }
}

#[test]
fn what_is_no_single_host_is_refused_before_anything_is_asked() {
    let check = |host: &str| {
        Settings { targets: vec![TargetEntry::of(host)], ..Settings::default() }.check()
    };
    for host in [
        "255.255.255.255",
        "224.0.0.1",
        "ff02::1",
        "[ff02::1]",
        "ff02::1%eth0",
        "239.0.0.0/24",
        "255.255.255.250-255.255.255.255",
    ] {
        let error = check(host).unwrap_err();
        assert_eq!(error.key.as_deref(), Some("target.host"), "{host}");
        assert!(error.message.contains("is not a unicast address"), "{error}");
    }
    for host in ["10.0.0.255", "223.255.255.255", "fe80::1%eth0", "255.example", "240.0.0.1"] {
        check(host).unwrap();
    }
    let source = Some("224.0.0.1".parse().unwrap());
    let stream = StreamOptions { source, ..StreamOptions::default() };
    let settings =
        Settings { targets: vec![TargetEntry::of("10.0.0.1")], stream, ..Settings::default() };
    assert_eq!(settings.check().unwrap_err().key.as_deref(), Some("stream.source"));
}

#[test]
fn a_scope_is_an_interface() {
    let expand = |host| expand(&[entry(host)], &StreamOptions::default(), Family::Any, false);
    for host in ["fe80::1%eth0", "[fe80::1%eth0]"] {
        let target = expand(host).unwrap().targets.remove(0);
        assert_eq!(target.address, "fe80::1".parse::<IpAddr>().unwrap());
        assert_eq!(target.interface.as_deref(), Some("eth0"));
        assert_eq!(target.name, host);
    }
    assert!(expand("fe80::1%").is_err());
}

#[test]
fn a_busy_port_is_passed_over_unless_it_was_asked_for() {
    let busy: HashSet<u16> = [62_000, 62_001].into();
    let first = |source_port| {
        let options = StreamOptions { source_port, ..Default::default() };
        let targets = expand(&[entry("10.0.0.1")], &options, Family::Any, false).unwrap().targets;
        let plan = plan(&targets, 7, &busy, &HashMap::new(), route(&targets)).unwrap();
        plan.streams[0].source.port()
    };
    assert_eq!((first(None), first(Some(62_000))), (62_002, 62_000));
}

#[test]
fn the_main_job_needs_five_source_ports() {
    let options = StreamOptions {
        dscp: Some(vec![0, 10, 18, 34, 46]),
        interval: Some(100_000_000),
        size: Some(150),
        ..Default::default()
    };
    let plan = planned("10.2.0.1-10.2.15.160", options);
    assert_eq!(plan.streams.len(), 20_000);
    let ports: HashSet<u16> = plan.streams.iter().map(|s| s.source.port()).collect();
    assert_eq!(ports.len(), 5);
    assert!(all_distinct(&plan));
    assert!(plan.streams.iter().all(|s| s.ssid != 0 && s.next_hop == 3 && s.ip_length == 150));
    let ssids: HashSet<u16> = plan.streams.iter().map(|s| s.ssid).collect();
    assert_eq!(ssids.len(), 20_000);
    let mut phases: Vec<i64> = plan.streams.iter().map(|s| s.phase).collect();
    phases.sort_unstable();
    assert!(phases.windows(2).all(|w| w[1] - w[0] == 100_000_000 / 20_000));
    // Neighbours in the list are at least a third of the period apart, either way round.
    assert!(plan.streams.windows(2).all(|w| {
        let gap = (w[1].phase - w[0].phase).rem_euclid(100_000_000);
        gap.min(100_000_000 - gap) > 33_000_000
    }));
}

#[test]
fn flows_are_random_repeatable_and_distinct() {
    let options = StreamOptions {
        flows: Some(300),
        dscp: Some(vec![0, 46]),
        flow_ports: Some(PortRange { low: 20_000, high: 20_099 }),
        ..Default::default()
    };
    let plan = planned("10.0.0.1-10.0.0.2", options.clone());
    assert_eq!(plan.streams.len(), 1_200);
    assert!(all_distinct(&plan));
    assert!(plan.streams.iter().all(|s| DYNAMIC_PORTS.contains(&s.source.port())));
    assert!(plan.streams.iter().all(|s| (20_000..=20_099).contains(&s.destination.port())));
    let again = planned("10.0.0.1-10.0.0.2", options);
    assert_eq!(plan.streams, again.streams);
    let ascending =
        plan.streams[..300].windows(2).filter(|w| w[0].source.port() < w[1].source.port());
    assert!((100..200).contains(&ascending.count()));
}

#[test]
fn too_many_flows_for_the_ports_are_refused() {
    let options =
        StreamOptions { flows: Some(4_096), dscp: Some(vec![0, 1, 2, 3, 4]), ..Default::default() };
    let targets = expand(&[entry("10.0.0.1")], &options, Family::Any, false).unwrap().targets;
    let plan = plan(&targets, 1, &HashSet::new(), &HashMap::new(), route(&targets));
    let error = plan.unwrap_err().to_string();
    assert!(error.contains("no source port is left"), "{error}");
}

#[test]
fn one_destination_named_twice_keeps_its_streams_apart() {
    let targets = expand(
        &[entry("10.0.0.1"), entry("10.0.0.1")],
        &StreamOptions::default(),
        Family::Any,
        false,
    )
    .unwrap()
    .targets;
    // Each goes its target's way: one link-local address may be there on two links.
    let ways = ["192.0.2.1", "192.0.2.5"];
    let route = |i: usize| Ok::<_, String>((ways[i].parse().unwrap(), i as u16));
    let plan = plan(&targets, 1, &HashSet::new(), &HashMap::new(), route).unwrap();
    assert_eq!(plan.streams[0].source.port() + 1, plan.streams[1].source.port());
    assert_eq!(plan.target_of, [0, 1]);
    for (i, way) in ways.into_iter().enumerate() {
        let stream = &plan.streams[i];
        assert_eq!((stream.source.ip().to_string(), stream.next_hop), (way.into(), i as u16));
    }
}

#[test]
fn families_and_sizes_must_fit() {
    let v6 = planned("2001:db8::9", StreamOptions::default());
    assert_eq!((v6.streams[0].ip_length, v6.streams[0].next_hop), (LEAST_IPV6, 4));
    let short = StreamOptions { size: Some(80), ..Default::default() };
    let error = expand(&[entry("::1")], &short, Family::Any, false).unwrap_err();
    assert!(format!("{error:#}").contains("size 80 is too short for ::1; at least 92"));
    let source = StreamOptions { source: Some("::1".parse().unwrap()), ..Default::default() };
    // What a target sets itself is named as its own.
    let own = TargetEntry { stream: source.clone(), ..entry("10.0.0.1") };
    let error = expand(&[own], &StreamOptions::default(), Family::Any, false).unwrap_err();
    let RunError::Settings(error) = error else { panic!("{error}") };
    assert_eq!(error.key.as_deref(), Some("target.stream.source"));
    for host in ["10.0.0.1", "10.0.0.1-10.0.0.9"] {
        let error = expand(&[entry(host)], &source, Family::Any, false).unwrap_err();
        let RunError::Settings(error) = error else { panic!("{error}") };
        assert_eq!(error.key.as_deref(), Some("stream.source"));
        assert!(error.message.contains("source ::1 and destination 10.0.0.1 are of"), "{error}");
    }
}

#[test]
fn a_source_port_is_left_or_it_is_a_matter_of_settings_or_of_others() {
    let last = StreamOptions {
        source_port: Some(u16::MAX),
        dscp: Some(vec![0, 46]),
        ..Default::default()
    };
    let targets = expand(&[entry("10.0.0.1")], &last, Family::Any, false).unwrap().targets;
    let error = plan(&targets, 1, &HashSet::new(), &HashMap::new(), route(&targets)).unwrap_err();
    assert!(matches!(error, RunError::Settings(_)), "{error}");
    assert!(error.to_string().contains("no source port is left"), "{error}");
    let usual = StreamOptions::default();
    let targets = expand(&[entry("10.0.0.1")], &usual, Family::Any, false).unwrap().targets;
    let busy = (DEFAULT_SOURCE_PORT..=u16::MAX).collect();
    let error = plan(&targets, 1, &busy, &HashMap::new(), route(&targets)).unwrap_err();
    assert!(matches!(error, RunError::Host(_)), "{error}");
}

#[test]
fn a_host_without_route_is_named() {
    let targets = expand(&[entry("10.0.0.1")], &StreamOptions::default(), Family::Any, false)
        .unwrap()
        .targets;
    let error = plan(&targets, 1, &HashSet::new(), &HashMap::new(), |_| {
        Err::<(IpAddr, u16), _>("no route")
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "10.0.0.1: no route");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sends_of_one_period_divide_it_evenly(n in 1usize..3_000, step in 1i64..10_000_000) {
        let period = step * n as i64;
        let one = planned("10.0.0.1", StreamOptions { interval: Some(period), ..Default::default() });
        let mut streams = vec![one.streams[0].clone(); n];
        spread(&mut streams);
        let mut phases: Vec<i64> = streams.iter().map(|s| s.phase).collect();
        phases.sort_unstable();
        let even: Vec<i64> = (0..n as i64).map(|k| k * step).collect();
        prop_assert_eq!(phases, even);
    }

    #[test]
    fn periods_are_spread_each_by_itself(periods in prop::collection::vec(1i64..5, 1..200)) {
        let one = planned("10.0.0.1", StreamOptions::default());
        let mut streams: Vec<StreamSpec> = periods
            .iter()
            .map(|&p| StreamSpec { period: p * 1_000_000_007, ..one.streams[0].clone() })
            .collect();
        spread(&mut streams);
        let mut seen = HashSet::new();
        for stream in &streams {
            prop_assert!((0..stream.period).contains(&stream.phase));
            prop_assert!(seen.insert((stream.period, stream.phase)));
        }
    }
}
