//! Configurations, right and wrong.

use std::path::PathBuf;

use super::*;

fn parse(text: &str) -> Result<Config, Vec<SettingsError>> {
    let text = TomlText { file: "s.toml".into(), text: text.into() };
    Config::of(&[ReadFile::parse(text).map_err(|e| vec![e])?])
}

fn messages(errors: &[SettingsError]) -> Vec<String> {
    errors.iter().map(SettingsError::to_string).collect()
}

const GOOD: &str = r#"
[station]
name = "ber"

[probe.core]
stream = { interval = "100ms", dscp = [0, 46] }
[[probe.core.target]]
host = "192.0.2.1"
[[probe.core.target]]
host = "192.0.2.2"
name = "muc"

[reflect.main]
port = [862]

[rtt.uplink]
sources = ["eth0"]

[flow.uplink]
sources = ["eth0"]
export = { write = ["/var/lib/sonde/uplink.ipfix"] }
"#;

#[test]
fn a_table_is_a_unit() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.station.name.as_deref(), Some("ber"));
    let names: Vec<&str> = config.plan.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(names, ["flow.uplink", "probe.core", "reflect.main", "rtt.uplink"]);
    let unit = config.plan.get(&UnitId::new("probe.core")).unwrap();
    let Instrument::Probe(probe) = &unit.instrument else { panic!() };
    assert_eq!(probe.stream.interval, Some(100_000_000));
    let lines: Vec<usize> = probe.targets.iter().map(|t| t.at.as_ref().unwrap().line).collect();
    assert_eq!(lines, [7, 9]);
}

#[test]
fn units_work_in_namespaces_and_exclude_each_other_there_only() {
    let two = "[reflect.a]\nport = [862]\n[reflect.b]\nport = [862]\n";
    assert!(parse(two).is_err());
    let apart = format!("{two}[netns]\n'reflect.b' = 'blue'\n");
    let config = parse(&apart).unwrap();
    let netns = |id| config.plan.get(&UnitId::new(id)).unwrap().netns.as_deref();
    assert_eq!((netns("reflect.a"), netns("reflect.b")), (None, Some("blue")));
    assert!(config.uses().contains(&Uses::Namespaces));
    let same = format!("{two}[netns]\n'reflect.a' = 'blue'\n'reflect.b' = 'blue'\n");
    let errors = parse(&same).unwrap_err();
    assert!(errors[0].to_string().contains("UDP port 862 in 'blue'"), "{errors:?}");
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_key() {
    for (text, message, key) in [
        (
            "[probe.p]\n[[probe.p.target]]\nhost = '192.0.2.1:862'",
            "s.toml line 2: 192.0.2.1:862: is no name; give the port apart: 192.0.2.1 \
             `stream.port = 862`",
            "probe.p.target.host",
        ),
        (
            "[netns]\n'rtt.router' = 'a'",
            "s.toml line 2: netns: there is no unit [rtt.router]; write it, or drop this",
            "netns.rtt.router",
        ),
        (
            "[reflect.r]\n[netns]\n'reflect.r' = 'a/b'",
            "s.toml line 3: netns: 'a/b' is no name of a namespace; 'ip netns' lists them",
            "netns.reflect.r",
        ),
        (
            "[store]\npath = ''",
            "s.toml line 2: store.path: it is empty; name a folder",
            "store.path",
        ),
        (
            "[store]\nkeep_free = 'unlimited'",
            "s.toml line 2: store.keep_free: give a size, as 2GB; 0B keeps nothing free",
            "store.keep_free",
        ),
        (
            "[store.keep]\niv1m = { age = '2d' }\nflow = { size = '3kB' }",
            "s.toml line 3: store.keep.flow.size: at least 1MB, or unlimited",
            "store.keep.flow.size",
        ),
        (
            "[alert]\nlink = 'ftp://a'",
            "s.toml line 2: alert.link: give an address of http or https",
            "alert.link",
        ),
        (
            "[alert]\n[[alert.route]]\n[[alert.route]]\nto = ['x']",
            "s.toml line 3: route.to: route 2 of [alert]: there is no receiver 'x'; write \
             [alert.receiver.x.KIND]",
            "alert.route.to",
        ),
        (
            "[alert.receiver.a.webhook]\nurl = 'a'",
            "s.toml line 2: alert.receiver.a.webhook.url: give an address of http or https",
            "alert.receiver.a.webhook.url",
        ),
        (
            "[alert.receiver.a.snmp]\nto = 'nms'\nuser = 'u'\nauth_file = '/a'\nengine_id = '80'",
            "s.toml line 5: alert.receiver.a.snmp.engine_id: version 3 needs 5 to 32 octets in \
             hexadecimal digits, as \"80007ed904\" and the name of the station in such digits",
            "alert.receiver.a.snmp.engine_id",
        ),
        (
            "[alert.receiver.a.email]\nto = ['a@b.example']\nserver = 'mail'",
            "s.toml line 1: alert.receiver.a.email.from: '' is no address in ASCII; give \
             one as noc@example.org",
            "alert.receiver.a.email.from",
        ),
        (
            "[alert.receiver.a.syslog]\nto = 'log'\ntransport = 'dccp'",
            "s.toml line 3: transport: unknown variant `dccp`, expected one of `udp`, `tcp`, `tls`",
            "alert.receiver.a.syslog.transport",
        ),
        (
            "[probe.a]\nstream = { ttl = 0 }\n[[probe.a.target]]\nhost = 'h'",
            "s.toml line 2: probe.a.stream.ttl: 0 must be between 1 and 255",
            "probe.a.stream.ttl",
        ),
        (
            "[probe.a]\n[[probe.a.target]]\nhost = 'h'\n[[probe.a.target]]\nhost = 'k'\n\
             stream = { port = 0 }",
            "s.toml line 4: target.stream.port: target k: 0 must be between 1 and 65535",
            "probe.a.target.stream.port",
        ),
        (
            "[probe.a]\nstreams = {}",
            "s.toml line 2: unknown key 'streams' in [probe.a]; did you mean 'stream'?",
            "probe.a.streams",
        ),
        ("[prob.a]", "s.toml line 1: unknown key 'prob'; did you mean 'probe'?", "prob"),
        (
            "[reflect.b]\n[reflect.a]\nport = [0]",
            "s.toml line 3: reflect.a.port: name at least one, 1..65535",
            "reflect.a.port",
        ),
        (
            "[reflect.a]\n\n[reflect.b]\nport = [861, 862]",
            "s.toml line 3: reflect.a and reflect.b both need UDP port 862; change one of them",
            "reflect.b",
        ),
        (
            "[station]\nname = 'a b'",
            "s.toml line 2: station.name: 'a b' is no name; write up to 64 letters, digits, '-', \
             '_' and '.'",
            "station.name",
        ),
        (
            "[objective.a]\nmetric = 'loss_ratio'\nlimit = '2ms'",
            "s.toml line 3: objective.a.limit: '2ms' is not a share; write 0 to 1, as 5% or 0.05",
            "objective.a.limit",
        ),
        (
            "[objective.a]\n\nmetric = 'loss'",
            "s.toml line 3: metric: unknown variant `loss`, expected one of `delay_percentile`, \
             `delay_mean`, `pdv_percentile`, `ipdv_percentile`, `loss_ratio`, `errored_seconds`, \
             `availability`",
            "objective.a.metric",
        ),
        (
            "[objective.a]\nmetric = 'loss_ratio'\nlimit = 0\navailable_time = { blok = '1m' }",
            "s.toml line 4: unknown key 'blok' in [objective.a.available_time]; did you mean \
             'block'?",
            "objective.a.available_time.blok",
        ),
        (
            "[objective.'a b']\npreset = 'mef_10'\ntarget_percent = 99",
            "s.toml line 1: objective.a b: 'a b' is no name; write up to 64 letters, digits, '-', \
             '_' and '.'",
            "objective.a b",
        ),
        (
            "[objective.a]\nmetric = 'loss_ratio'\nlimit = 0",
            "s.toml line 1: objective.a: no probe is there to be judged; write [probe.NAME]",
            "objective.a",
        ),
        (
            "[probe.a]\ntarget = [{ host = 'h' }]\n[objective.a]\nmatch = { unit = 'probe.b*' }\n\
             metric = 'loss_ratio'\nlimit = 0",
            "s.toml line 3: objective.a.match.unit: no probe fits 'probe.b*'; there are probe.a",
            "objective.a.match.unit",
        ),
        (
            "[maintenance.night]\nday = 'sunday'\nstart = '25:00'\nlength = '1h'",
            "s.toml line 3: maintenance.night.start: '25:00' is no time of day; write it as 02:00",
            "maintenance.night.start",
        ),
        (
            "[flow.a]\nsources = ['-']",
            "s.toml line 2: flow.a.sources: a station has no standard input; name a file",
            "flow.a.sources",
        ),
    ] {
        let errors = parse(text).unwrap_err();
        assert_eq!(messages(&errors).first().map(String::as_str), Some(message), "{text}");
        assert_eq!(errors[0].key.as_deref(), Some(key), "{text}");
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let errors = parse("[reflect.a]\nport = [0]\n[rtt.b]\n[station]\nname = ''").unwrap_err();
    assert_eq!(errors.len(), 3, "{:?}", messages(&errors));
}

#[test]
fn keys_and_types_of_all_tables_are_said_with_what_is_out_of_range() {
    let errors = parse(
        "[station]\nnam = 'x'\n[prob.core]\n[probe.a]\nstreem = {}\n\
         stream = { intervall = 1, size = 'x' }\n[[probe.a.target]]\nnmae = 'x'\nhost = 'h'\n\
         [objective.o]\nmetric = 'loss'\nmatch = { unit = 'probe.a' }\n\
         [alert]\ntoo = ['x']\n[alert.receiver.r.webhok]\nurl = 'x'\n[alert.receiver.s.webhook]\nulr = 'x'\n\
         [reflect.b]\nport = [0]\n[netns]\n'probe.a' = 'blue'",
    )
    .unwrap_err();
    let found = messages(&errors);
    let lines: Vec<Option<usize>> = errors.iter().map(|error| error.line).collect();
    let wanted = [2, 3, 5, 6, 6, 8, 11, 14, 15, 18, 20].map(Some);
    assert_eq!(lines, wanted, "{found:#?}");
    assert!(found[0].contains("did you mean 'name'?") && found[5].contains("'name'"), "{found:?}");
    assert!(found[10].contains("reflect.b.port: name at least one"), "{found:?}");
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("conf.d")).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn objectives_and_maintenance_stand_in_one_file_each() {
    let text = "[probe.a]\ntarget = [{ host = 'h' }]\n\
                [objective.loss]\nmetric = 'loss_ratio'\nlimit = '1%'\n\
                [maintenance.night]\nday = 'sunday'\nstart = '02:00'\nlength = '2h'";
    let config = parse(text).unwrap();
    assert_eq!(config.judge.objectives[0].objective.name, "loss");
    assert_eq!(config.judge.maintenance[0].window.name, "night");
    let again = TomlText { file: "t.toml".into(), text: text[text.find("[obj").unwrap()..].into() };
    let first = TomlText { file: "s.toml".into(), text: text.into() };
    let files = [first, again].map(|text| ReadFile::parse(text).unwrap());
    let errors = messages(&Config::of(&files).unwrap_err());
    assert_eq!(
        errors,
        [
            "t.toml line 1: objective.loss: it stands in s.toml line 3 already; give one of them \
             another name",
            "t.toml line 4: maintenance.night: it stands in s.toml line 6 already; give one of \
             them another name"
        ]
    );
}

#[test]
fn included_files_count_as_one_configuration() {
    let folder = Folder::new("include");
    let first = folder.write("s.toml", "include = ['conf.d/*.toml', 'more.toml']\n[reflect.a]");
    folder.write("conf.d/b.toml", "include = ['../s.toml']\n[reflect.b]\nport = [863]");
    folder.write("conf.d/c.toml", "[rtt.c]\nsources = ['eth0']");
    folder.write("conf.d/c.txt", "no TOML");
    folder.write("more.toml", "[reflect.d]\nport = [864]");
    let config = Config::load(&first).unwrap();
    let names: Vec<&str> = config.plan.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(names, ["reflect.a", "reflect.b", "reflect.d", "rtt.c"]);
    folder.write("more.toml", "[reflect.a]");
    let errors = messages(&Config::load(&first).unwrap_err());
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert!(error.contains("more.toml line 1: reflect.a: it stands in "), "{error}");
    assert!(error.ends_with("s.toml line 2 already; give one of them another name"), "{error}");
    std::fs::remove_file(folder.0.join("more.toml")).unwrap();
    let errors = messages(&Config::load(&first).unwrap_err());
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert!(
        error.contains("s.toml line 1: ") && error.contains("more.toml: cannot be read"),
        "{error}"
    );
}

#[test]
fn what_is_included_is_a_regular_file_of_bounded_size() {
    let folder = Folder::new("regular");
    let first = folder.write("s.toml", "include = ['socket', '/dev/zero', 'large.toml']");
    let _held = std::os::unix::net::UnixListener::bind(folder.0.join("socket")).unwrap();
    let large = std::fs::File::create(folder.0.join("large.toml")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    let errors = messages(&Config::load(&first).unwrap_err());
    let ends = [
        "socket: it is no regular file; name a TOML file",
        "/dev/zero: it is no regular file; name a TOML file",
        "large.toml: it has more than 16 MiB; share it out",
    ];
    assert_eq!(errors.len(), ends.len(), "{errors:?}");
    for (error, end) in errors.iter().zip(ends) {
        assert!(error.contains("s.toml line 1: ") && error.ends_with(end), "{error}");
    }
}

#[test]
fn files_without_which_a_station_does_not_start_are_looked_at_when_asked() {
    let text = "[alert.receiver.a.webhook]\nurl = 'http://h/'\nhmac_file = '/nonexistent/a'\n\
                [export.b]\nkind = 'influx'\nurl = 'http://h/'\ntoken_file = '/nonexistent/b'\n\
                [api]\nlisten = '127.0.0.1:0'\ntokens = '/nonexistent/c'\n[alert]\nto = ['a']";
    let file = ReadFile::parse(TomlText { file: "s.toml".into(), text: text.into() }).unwrap();
    let config = Config::of(std::slice::from_ref(&file)).unwrap();
    let errors = messages(&config.check_secrets(&[file]));
    let wanted = [
        "s.toml line 3: alert.receiver.a.webhook.hmac_file: /nonexistent/a cannot be read: ",
        "s.toml line 7: export.b.token_file: /nonexistent/b cannot be read: ",
        "s.toml line 10: api.tokens: ",
    ];
    assert_eq!(errors.len(), wanted.len(), "{errors:?}");
    for (error, begin) in errors.iter().zip(wanted) {
        assert!(error.starts_with(begin), "{error}");
    }
}

#[test]
fn a_reflector_is_not_at_a_port_from_which_a_probe_sends() {
    let of = |stream: &str| {
        parse(&format!(
            "[reflect.a]\nport = [8863]\n[probe.x]\nstream = {stream}\ntarget = [{{ host = 'h' }}]"
        ))
    };
    let errors = messages(&of("{ source_port = 8862, dscp = [0, 46] }").unwrap_err());
    let wanted = "s.toml line 1: probe.x and reflect.a both need UDP ports 8862 to 8863; change \
                  one of them";
    assert_eq!(errors, [wanted]);
    assert!(of("{ source_port = 8862 }").is_ok() && of("{ source_port = 8864 }").is_ok());
    let two = "[probe.x]\nstream = { source_port = 9 }\ntarget = [{ host = 'h' }]\n\
               [probe.y]\nstream = { source_port = 9 }\ntarget = [{ host = 'k' }]";
    assert!(parse(two).is_ok(), "source ports differ by destination");
}

#[test]
fn the_objectives_of_the_documentation_can_be_judged() {
    let page = include_str!("../../../../docs/sla.md");
    let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let units = "[probe.core]\ntarget = [{ host = 'h' }]\n[rtt.uplink]\nsources = ['eth0']";
    let config = parse(&format!("{units}\n{block}"));
    let config = config.unwrap_or_else(|errors| panic!("{:?}", messages(&errors)));
    assert_eq!((config.judge.objectives.len(), config.judge.maintenance.len()), (7, 1));
}

#[test]
fn an_exporter_or_module_that_cannot_be_is_named_by_its_line_and_key() {
    let text = "[probe.core]\ntarget = [{ host = 'h' }]\n[export.a]\nkind = 'otlp'\n\
                url = 'collector:4318'\n[export.b]\nkind = 'influx'\n\
                [module.c]\nstream = { count = 5000 }\n[module.'d e']\n";
    let errors = parse(text).unwrap_err();
    let found = messages(&errors);
    for wanted in [
        "s.toml line 5: export.a.url: ",
        "s.toml line 6: export.b.url: ",
        "s.toml line 9: module.c.stream.count: ",
        "s.toml line 10: module.d e: ",
    ] {
        assert!(found.iter().any(|error| error.starts_with(wanted)), "{wanted}: {found:?}");
    }
    assert_eq!(errors.len(), 4, "{found:?}");
    let unknown = parse("[export.a]\nkind = 'statsd'\n").unwrap_err();
    assert!(messages(&unknown)[0].contains("`otlp`"), "{:?}", messages(&unknown));
}

#[test]
fn every_example_can_be_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/station");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let config = Config::load(&path);
        let config = config.unwrap_or_else(|errors| panic!("{:?}", messages(&errors)));
        assert!(config.station.name.is_some() && config.plan.iter().count() > 0, "{path:?}");
        found += 1;
    }
    assert!(found >= 4, "{found} examples");
}

#[test]
fn two_targets_of_one_name_and_class_are_refused_with_both_lines() {
    let of = |second: &str| {
        parse(&format!(
            "[probe.core]\n[[probe.core.target]]\nhost = '192.0.2.1'\nname = 'x'\n{second}"
        ))
    };
    let twin = "[[probe.core.target]]\nhost = '192.0.2.9'\nname = 'x'\n";
    let errors = messages(&of(twin).unwrap_err());
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert!(error.starts_with("s.toml line 5: ") && error.contains("at s.toml line 2"), "{error}");
    assert!(error.contains("'x' is the name of the target 192.0.2.1"), "{error}");
    assert!(of(&format!("{twin}stream = {{ dscp = [46] }}\n")).is_ok(), "another class");
    let of_another = twin.replace("core", "edge");
    assert!(of(&format!("[probe.edge]\n{of_another}")).is_ok(), "another unit");
    let unnamed = "[[probe.core.target]]\nhost = 'x'\n";
    assert!(of(unnamed).is_err(), "a host that is called as the other");
}

#[test]
fn an_objective_that_no_window_can_meet_is_warned_of() {
    let of = |objective: &str| {
        let config = parse(&format!("{GOOD}\n[objective.it]\n{objective}")).unwrap();
        let unmeetable = config.unmeetable();
        unmeetable.into_iter().map(|warning| warning.message).collect::<Vec<_>>()
    };
    let warned = of("metric = 'loss_ratio'\nlimit = '0.1%'\nwindow = '1m'");
    assert_eq!(
        warned,
        ["objective.it: probe.core 192.0.2.1 BE: a window has 600 samples at most, and 2,995 are \
          needed to say that it is met: it can be missed, and else says nothing; take a longer \
          `window`, or send more often"]
    );
    assert_eq!(of("metric = 'loss_ratio'\nlimit = '0.1%'\nwindow = '5m'"), [""; 0]);
    assert_eq!(of("metric = 'loss_ratio'\nlimit = '1%'\nwindow = '1m'"), [""; 0]);
    assert_eq!(of("preset = 'mef_10'\ntarget_percent = 99.9"), [""; 0]);
    let nobody = "match = { target = 'zz' }\nmetric = 'loss_ratio'\nlimit = '0.1%'\nwindow = '1m'";
    assert_eq!(of(nobody), [""; 0]);
}
