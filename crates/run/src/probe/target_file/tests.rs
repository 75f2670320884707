//! Tests of the targets file: its contents, and the messages when it is wrong.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Result<TargetsFile, String> {
    let source = TomlText { file: "t.toml".into(), text: text.into() };
    TargetsFile::parse(&source).map_err(|e| e.to_string())
}

#[test]
fn defaults_and_targets() {
    let file = parse(
        "# lab\ninterval = \"100ms\"\ntimeout = 0.5\ndscp = [\"BE\", 46]\nsize = 150\n\
         [[target]]\nhost = \"10.2.0.0/20\"\nfirst = 4000\n\n\
         [[target]]\nhost = \"edge\"\nname = \"the edge\"\ndscp = \"EF\"\nttl = 9\n",
    )
    .unwrap();
    assert_eq!(file.stream.interval, Some(100_000_000));
    assert_eq!(file.run.timeout, Some(500_000_000));
    assert_eq!(file.stream.dscp, Some(vec![0, 46]));
    assert_eq!(file.targets[0].first, Some(4000));
    assert_eq!(file.targets[1].name.as_deref(), Some("the edge"));
    assert_eq!(file.targets[1].stream.dscp, Some(vec![46]));
    assert_eq!(file.targets[1].stream.ttl, Some(9));
    assert_eq!(file.targets[1].at.as_ref().unwrap().to_string(), "t.toml line 10");
}

#[test]
fn every_key_that_is_offered_is_accepted() {
    let file = parse(
        "duration=10\ntimeout=1\nrecord_interval=\"1s\"\nlate_limit=\"5us\"\nseed=3\n\
         interval=1\ncount=2\nsize=100\ndscp=1\nport=862\nflows=2\nflow_ports=\"1-2\"\n\
         schedule=\"poisson\"\nttl=1\nreflector=\"stateful\"\nsource=\"::1\"\nsource_port=0xffff\n\
         target=[{host=\"h\", name=\"n\", first=1}]",
    )
    .unwrap();
    assert_eq!(file.stream.source_port, Some(65_535));
    assert_eq!(file.run.seed, Some(3));
    let run = ["duration", "timeout", "record_interval", "late_limit", "seed"];
    let stream = [
        "interval",
        "count",
        "size",
        "dscp",
        "port",
        "flows",
        "flow_ports",
        "schedule",
        "ttl",
        "reflector",
        "source",
        "source_port",
    ];
    for key in run.into_iter().chain(stream) {
        let message = parse(&format!("{key} = {{}}\n[[target]]\nhost = \"h\"")).unwrap_err();
        assert!(message.starts_with(&format!("t.toml line 1: {key} must be ")), "{message}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, message) in [
        ("\nintervall = 1", "t.toml line 2: unknown key 'intervall'; did you mean 'interval'?"),
        (
            "zzzzzzzzzz = 1",
            "t.toml line 1: unknown key 'zzzzzzzzzz'; there are duration, timeout, record_interval, \
             late_limit, seed, target, interval, count, size, dscp, port, flows, flow_ports, \
             schedule, ttl, reflector, source, source_port",
        ),
        (
            "[[target]]\nhost = \"a\"\nprot = 1",
            "t.toml line 3: unknown key 'prot' in [[target]]; did you mean 'port'?",
        ),
        (
            "[[target]]\nhost = \"a\"\ntimeout = 1",
            "t.toml line 3: timeout: holds for the whole run; move it above the first [[target]]",
        ),
        ("size = \"big\"", "t.toml line 1: size must be a number, not string \"big\""),
        ("port = true", "t.toml line 1: port must be a number, not boolean `true`"),
        ("schedule = 3", "t.toml line 1: schedule must be a string, not integer `3`"),
        ("dscp = []", "t.toml line 1: dscp: the list is empty; leave the key out instead"),
        (
            "dscp = [0,\n 64]",
            "t.toml line 2: dscp: '64' is not a DSCP; write 0..63, BE, EF, VA, LE, CS1..CS7 or AF11..AF43",
        ),
        ("dscp = [\"EF\",\n 46]", "t.toml line 2: dscp: 46 is listed twice"),
        ("interval = 0", "t.toml line 1: interval: '0' must be longer than zero"),
        ("timeout = \"5m\"", "t.toml line 1: timeout: '5m' must be between 1ms and 60s"),
        ("size = 60", "t.toml line 1: size: '60' is not an IP packet length in bytes, 72..65535"),
        ("size = -1", "t.toml line 1: size: '-1' is not an IP packet length in bytes, 72..65535"),
        ("[[target]]\nname = \"a\"", "t.toml line 1: this [[target]] has no 'host'"),
        ("[[target]]\nhost = \"\"", "t.toml line 2: host: must not be empty"),
        (
            "[[target]]\nhost = \"a\"\nname = \"\\u001b[2J\"",
            "t.toml line 3: name: \"\\u{1b}[2J\" holds a control character; leave it out",
        ),
        ("[target]\nhost = \"a\"", "t.toml line 1: target must be written as [[target]]"),
        (
            "[[target]]\nhost = \"a\"\n[[target]]\nhost = \"a\"",
            "t.toml line 3: host 'a' is there already, at t.toml line 1",
        ),
        (
            "size = 100",
            "t.toml: holds no target; add one host a line, or [[target]] tables with 'host'",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), message, "{text}");
    }
}

#[test]
fn a_key_twice_and_broken_syntax_name_their_line() {
    let twice = parse("ttl = 1\nttl = 2\n").unwrap_err();
    assert!(twice.starts_with("t.toml line 2: ") && twice.contains("duplicate"), "{twice}");
    let broken = parse("ttl = 1\nsize = = 2\n").unwrap_err();
    assert!(broken.starts_with("t.toml line 2: "), "{broken}");
}

#[test]
fn the_same_host_with_other_settings_is_another_target() {
    let text = "[[target]]\nhost = \"a\"\n[[target]]\nhost = \"a\"\nsize = 1500";
    assert_eq!(parse(text).unwrap().targets.len(), 2);
}

#[test]
fn plain_text() {
    let file = parse("# hosts\n10.0.0.1\n\n2001:db8::1  # core\nedge.example\n").unwrap();
    let hosts: Vec<_> = file.targets.iter().map(|t| t.host.as_str()).collect();
    assert_eq!(hosts, ["10.0.0.1", "2001:db8::1", "edge.example"]);
    assert_eq!(file.targets[1].at.as_ref().unwrap().to_string(), "t.toml line 4");
    assert!(parse("a\na b\n").unwrap_err().starts_with("t.toml line 2: 'a b' is not one host"));
    assert!(
        parse("a\nb\na\n").unwrap_err().starts_with("t.toml line 3: host 'a' is there already")
    );
    assert!(parse("# nothing\n").is_err());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message = TargetsFile::read(Path::new("/nonexistent/x")).unwrap_err().to_string();
    assert!(message.starts_with("/nonexistent/x: cannot be read: "), "{message}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "[\\PC\n]{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("{text} = 1"));
    }
}
