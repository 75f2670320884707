//! rsyslog: what it makes of each part of a message, over each transport.

use sonde_lab::skipped;

use crate::bed::{Bed, accepts, free_port, has_udp, library_folders, program};

/// What rsyslog takes for the parts of a message, a line each.
const PARTS: &str = "%protocol-version%|%syslogfacility-text%.%syslogseverity-text%|%timereported:::\
                     date-rfc3339%|%hostname%|%app-name%|%procid%|%msgid%|%structured-data%|%msg%\\n";

/// Starts rsyslogd with the begin of a configuration, sends it an alert and its end, and returns
/// its lines.
fn logged(test: &str, begin: impl Fn(&Bed, u16) -> String, transport: &str) -> Option<Vec<String>> {
    let mut command = program(test, "rsyslogd", "rsyslog")?;
    let bed = Bed::new("syslog");
    let port = free_port();
    let file = bed.path("log");
    let config = format!(
        "{}\ntemplate(name=\"parts\" type=\"string\" string=\"{PARTS}\")\n\
         action(type=\"omfile\" file=\"{file}\" template=\"parts\")\n",
        begin(&bed, port)
    );
    let modules: Vec<String> =
        library_folders().iter().map(|path| format!("{}/rsyslog", path.display())).collect();
    command
        .args(["-n", "-f", &bed.write("rsyslog.conf", &config), "-M", &modules.join(":")])
        .args(["-i", &bed.path("pid")]);
    let _program = bed.start(command);
    bed.until("its port", || if transport == "udp" { has_udp(port) } else { accepts(port) });
    let ca = if transport == "tls" {
        format!("ca = '{}'", bed.path("certificate.pem"))
    } else {
        String::new()
    };
    let station = bed.station(
        "syslog",
        &format!(
            "to = '127.0.0.1:{port}'\ntransport = '{transport}'\nfacility = 'local3'\n\
             enterprise = 32473\n{ca}"
        ),
    );
    station.raise(None);
    bed.until("the alert", || bed.read("log").lines().count() == 1);
    station.end();
    bed.until("its end", || bed.read("log").lines().count() == 2);
    bed.until("both taken", || station.status().delivered == 2);
    assert_eq!(station.status().failures, 0, "{:?}", station.status());
    Some(bed.read("log").lines().map(str::to_owned).collect())
}

fn check(lines: &[String]) {
    let fields = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
    let (firing, resolved) = (fields(&lines[0]), fields(&lines[1]));
    assert_eq!(firing[..2], ["1", "local3.err"]);
    assert_eq!(firing[3..7], ["ber", "sonde", "-", "FIRING"]);
    let data = &firing[7];
    assert!(data.starts_with("[sonde@32473 fingerprint=\""), "{data}");
    assert!(data.contains("][labels@32473 alertname=\"loss\" severity=\"error\" "), "{data}");
    assert!(data.ends_with(" target=\"192.0.2.1\"]"), "{data}");
    // The mark of UTF-8 stays before the text.
    let begin = "\u{feff}FIRING error: ber to münchen loses packets; loss 2.1 % against 0.1 %; ";
    assert!(firing[8].starts_with(begin), "{}", firing[8]);
    assert_eq!(resolved[1], "local3.notice");
    assert_eq!(resolved[6], "RESOLVED");
    assert!(resolved[8].contains("; lasted 3 m 05 s; "), "{}", resolved[8]);
}

#[test]
fn rsyslog_reads_messages_over_udp() {
    let begin = |_: &Bed, port| {
        format!(
            "module(load=\"imudp\")\ninput(type=\"imudp\" address=\"127.0.0.1\" port=\"{port}\")"
        )
    };
    if let Some(lines) = logged("rsyslog_reads_messages_over_udp", begin, "udp") {
        check(&lines);
    }
}

#[test]
fn rsyslog_reads_messages_over_tcp() {
    let begin = |_: &Bed, port| {
        format!(
            "module(load=\"imtcp\")\ninput(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\")"
        )
    };
    if let Some(lines) = logged("rsyslog_reads_messages_over_tcp", begin, "tcp") {
        check(&lines);
    }
}

#[test]
fn rsyslog_reads_messages_over_tls() {
    let test = "rsyslog_reads_messages_over_tls";
    if !library_folders().iter().any(|path| path.join("rsyslog/lmnsd_ossl.so").exists()) {
        skipped(test, "no rsyslog-openssl here; scripts/interop.sh gets it");
        return;
    }
    let begin = |bed: &Bed, port| {
        let [certificate, key] = bed.identity();
        format!(
            "global(DefaultNetstreamDriver=\"ossl\" DefaultNetstreamDriverCAFile=\"{certificate}\" \
             DefaultNetstreamDriverCertFile=\"{certificate}\" DefaultNetstreamDriverKeyFile=\"{key}\")\n\
             module(load=\"imtcp\" StreamDriver.Name=\"ossl\" StreamDriver.Mode=\"1\" \
             StreamDriver.AuthMode=\"anon\")\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\")"
        )
    };
    if let Some(lines) = logged(test, begin, "tls") {
        check(&lines);
    }
}
