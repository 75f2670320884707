//! InfluxDB: what it is sent over HTTP and UDP is what the station measured.

use std::process::Command;

use serde_json::Value;
use sonde_lab::Host;

use crate::bed::{Bed, program};
use crate::network::{Network, PROBE};

#[test]
fn influxdb_is_sent_every_interval_over_http_and_udp() {
    let test = "influxdb_is_sent_every_interval_over_http_and_udp";
    if sonde_lab::skip(test) {
        return;
    }
    let Some(found) = program(test, "influxd", "influxdb") else { return };
    let network = Network::new("influx", PROBE);
    let (bed, near) = (&network.bed, &network.near);
    let _influx = bed.start(influxd(bed, near, &found));
    bed.until("InfluxDB", || ask(near, "/ping").is_some());
    for name in ["http", "udp"] {
        assert!(ask(near, &format!("/query?q=CREATE%20DATABASE%20{name}")).is_some());
    }
    // Exporters that come with a reload know the streams of a probe that runs.
    let exports = "
[export.http]
kind = 'influx'
url = 'http://127.0.0.1:8086/write?db=http&precision=ns'
every = '1s'
[export.udp]
kind = 'influx'
udp = '127.0.0.1:8089'
every = '1s'
";
    network.reload(&format!("{PROBE}{exports}"));
    bed.until("lines", || {
        let taken = |name: &str| network.export(name)["delivered_points"].as_u64();
        taken("http") > Some(20) && taken("udp") > Some(20)
    });
    let health = network.client().get("/sonde/v1/station/health").unwrap();
    for export in health["exports"].as_array().unwrap() {
        assert!(export["refused_points"] == 0 && export["failing_since"].is_null(), "{export}");
    }
    // A secret that cannot be read changes nothing, and says whose it is.
    let refused =
        format!("{PROBE}[export.other]\nkind = 'influx'\nurl = 'http://r.example/write'\n");
    let refused = network.try_reload(&format!("{refused}token_file = '/nonexistent/token'\n"));
    let why = refused.unwrap_err().to_string();
    assert!(why.starts_with("export.other.token_file: ") && why.contains("/nonexistent"), "{why}");
    assert_eq!(network.export("other"), Value::Null);
    assert_ne!(network.export("http"), Value::Null);
    // Neither does a reload that is refused for another reason: what it had begun ends.
    let other = "[export.later]\nkind = 'influx'\nudp = '127.0.0.1:8089'\n[alert]\nto = []\n";
    let refused = network.try_reload(&format!("{PROBE}{exports}{other}")).unwrap_err().to_string();
    assert!(refused.contains("[alert]"), "{refused}");
    bed.until("the end of what was begun", || !has_thread("sonde-to-later"));
    assert!(has_thread("sonde-to-http"));
    // The probe ends, the exporters go on: then all is there that was measured since.
    network.reload(exports);
    let rows = |name: &str| {
        let query = "SELECT%20sent,received,rtt_max,class,unit%20FROM%20sonde_interval";
        ask(near, &format!("/query?db={name}&q={query}")).map(|answer| {
            let series = &answer["results"][0]["series"][0];
            series["values"].as_array().cloned().unwrap_or_default()
        })
    };
    let sum = |rows: &[Value], column: usize| -> f64 {
        rows.iter().map(|row| row[column].as_f64().unwrap_or(0.0)).sum()
    };
    let lines = |name: &str| network.export(name)["delivered_points"].as_u64().unwrap() as usize;
    bed.until("the last lines", || {
        let (http, udp) = (rows("http").unwrap(), rows("udp").unwrap());
        // Lines of both exporters and both databases are the same.
        http.len() == lines("http") && http == udp && lines("udp") == lines("http")
    });
    let all = rows("http").unwrap();
    let (sent, received) = (sum(&all, 1), sum(&all, 2));
    assert!(received > 0.0 && received <= sent, "{sent} {received}");
    assert!(sent <= network.metric("sonde_sent_total{"), "{sent}");
    // An interval without an answer has no round trips.
    let agree = |row: &Value| (row[2].as_f64() > Some(0.0)) == (row[3].as_f64() > Some(0.0));
    assert!(all.iter().all(|row| agree(row) && row[5] == "probe.core"), "{all:?}");
    let classes: std::collections::BTreeSet<&str> =
        all.iter().map(|row| row[4].as_str().unwrap()).collect();
    assert_eq!(classes.len(), 2, "{classes:?}");
}

fn influxd(bed: &Bed, near: &Host, found: &Command) -> Command {
    let (meta, data, wal) = (bed.path("meta"), bed.path("data"), bed.path("wal"));
    let config = format!(
        "reporting-disabled = true\nbind-address = '127.0.0.1:8088'\n[meta]\ndir = '{meta}'\n\
         [data]\ndir = '{data}'\nwal-dir = '{wal}'\n[http]\nbind-address = '127.0.0.1:8086'\n\
         [[udp]]\nenabled = true\nbind-address = '127.0.0.1:8089'\ndatabase = 'udp'\n\
         batch-timeout = '100ms'\n"
    );
    let mut command = near.command(found.get_program().to_str().unwrap());
    command.args(["-config", &bed.write("influxdb.conf", &config)]);
    command
}

/// Whether this process has a thread of this name, of which the kernel keeps 15 characters.
fn has_thread(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = threads.filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
    names.any(|thread| thread.trim() == name)
}

/// An answer of its HTTP API; `None`: it is not there, or refuses.
fn ask(near: &Host, path: &str) -> Option<Value> {
    let address = format!("http://127.0.0.1:8086{path}");
    let ask = move || {
        let text = match address.contains("CREATE") {
            true => ureq::post(&address).send_empty().ok()?.into_body().read_to_string(),
            false => ureq::get(&address).call().ok()?.into_body().read_to_string(),
        };
        let text = text.ok()?;
        if text.is_empty() { Some(Value::Null) } else { serde_json::from_str(&text).ok() }
    };
    near.inside(ask).unwrap()
}
