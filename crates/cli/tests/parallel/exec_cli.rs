//! A receiver of alerts that is a program, told by a station that has given up its rights.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::Process;

#[test]
fn a_confined_station_runs_the_programs_that_are_told() {
    let folder = std::env::temp_dir().join(format!("sonde-exec-cli-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    // The station becomes a user who owns nothing: what it starts writes here.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let told = folder.join("told");
    let script = format!("cat > {0}.part && mv {0}.part {0}", told.display());
    // The interface is nowhere: the unit fails, which is an alert.
    let config = format!(
        "[station]\nname = 'ber'\n[flow.absent]\nsources = ['sonde-absent']\n\
         [store]\npath = '{0}/store'\n\
         [alert]\nto = ['own']\nwait = '0s'\nfolder = '{0}/alerts'\n\
         [alert.receiver.own.exec]\ncommand = ['/bin/sh', '-c', '{script}']\n",
        folder.display()
    );
    fs::write(folder.join("sonde.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonde"));
    command.arg("run").arg(folder.join("sonde.toml"));
    let station = Process::start(command);
    let end = Instant::now() + Duration::from_secs(60);
    let text = loop {
        if let Ok(text) = fs::read_to_string(&told) {
            break text;
        }
        assert!(Instant::now() < end, "nobody was told: {:?}", station.err());
        std::thread::sleep(Duration::from_millis(50));
    };
    let message: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(message["alerts"][0]["labels"]["unit"], "flow.absent", "{message:#}");
    station.signal("INT");
    assert_eq!(station.end().code, 0);
    fs::remove_dir_all(&folder).unwrap();
}
