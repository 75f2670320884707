//! snmptrapd of net-snmp: what it reads in notifications of versions 2c and 3.

use crate::bed::{Bed, free_port, has_udp, program};

/// Starts snmptrapd, sends it an alert and its end, and what it logs.
fn logged(
    test: &str,
    config: &str,
    table: impl Fn(&Bed) -> String,
    before: &str,
) -> Option<String> {
    let mut command = program(test, "snmptrapd", "snmptrapd")?;
    let bed = Bed::new("snmp");
    let port = free_port();
    let state = bed.path("state");
    command
        .args(["-f", "-C", "-c", &bed.write("trapd.conf", config), "-m", "", "-M", "", "-On"])
        .args(["-Lf", &bed.path("log"), &format!("--persistentDir={state}")])
        .arg(format!("udp:127.0.0.1:{port}"))
        .env("SNMP_PERSISTENT_DIR", &state);
    let _program = bed.start(command);
    bed.until("its port", || has_udp(port));
    let to = format!("to = '127.0.0.1:{port}'\n");
    if !before.is_empty() {
        // What it must not take. It reads in order, so what it logs later shows that it did not.
        let other = bed.station("snmp", &format!("{to}{before}"));
        other.raise(None);
        bed.until("the forged one to be sent", || other.status().delivered == 1);
        drop(other);
        std::fs::remove_dir_all(bed.path("alerts")).unwrap();
    }
    let station = bed.station("snmp", &(to + &table(&bed)));
    station.raise(None);
    bed.until("the alert", || bed.read("log").contains(FAILED));
    station.end();
    bed.until("its end", || bed.read("log").contains(COMPLETED));
    bed.until("both taken", || station.status().delivered == 2);
    Some(bed.read("log"))
}

fn check(log: &str) {
    // Long values go over several lines.
    let log = log.split_whitespace().collect::<Vec<_>>().join(" ");
    for kind in [FAILED, COMPLETED] {
        assert_eq!(log.matches(&format!("{kind} ")).count(), 1, "{log}");
    }
    let failed = log.split(COMPLETED).next().unwrap();
    // Owner "ber" and a name of 16 digits: in the control and in the result table.
    let has = |column: &str, value: &str| {
        let name = format!(".1.3.6.1.2.1.80.1.{column}.3.98.101.114.16.");
        let Some((_, rest)) = failed.split_once(&name) else { panic!("no {column} in {log}") };
        let (_, is) = rest.split_once(" = ").unwrap();
        assert!(is.starts_with(value), "{column} is {is}");
    };
    has("2.1.3", "INTEGER: 1 ");
    // 192.0.2.1
    has("2.1.4", "Hex-STRING: C0 00 02 01 ");
    has("3.1.1", "INTEGER: 1 ");
    has("3.1.4", "Gauge32: 0 ");
    has("3.1.10", "Hex-STRING: 00 00 00 00 00 00 00 00 ");
    // Beyond ASCII it is shown in hexadecimal digits.
    let text: Vec<String> =
        "FIRING error: ber to münchen loses".bytes().map(|b| format!("{b:02X}")).collect();
    has("2.1.17", &format!("Hex-STRING: {} ", text.join(" ")));
}

/// `snmpTrapOID.0` of pingTestFailed and pingTestCompleted.
const FAILED: &str = "OID: .1.3.6.1.2.1.80.0.2";
const COMPLETED: &str = "OID: .1.3.6.1.2.1.80.0.3";

#[test]
fn snmptrapd_reads_notifications_of_version_2c() {
    let table = |bed: &Bed| format!("community_file = '{}'", bed.write("community", "ourselves"));
    let test = "snmptrapd_reads_notifications_of_version_2c";
    if let Some(log) = logged(test, "authCommunity log ourselves\n", table, "") {
        check(&log);
    }
}

const USERS: &str =
    "createUser -e 0x80007ed904626572 sonde SHA-256 \"auth phrase\" AES \"priv phrase\"
createUser -e 0x80007ed904626573 signer SHA-256 \"auth phrase\"
authUser log sonde priv
authUser log signer auth
";

#[test]
fn snmptrapd_decrypts_notifications_of_version_3() {
    let table = |bed: &Bed| {
        format!(
            "user = 'sonde'\nengine_id = '80007ed904626572'\nauth_file = '{}'\npriv_file = '{}'",
            bed.write("auth", "auth phrase"),
            bed.write("priv", "priv phrase")
        )
    };
    let test = "snmptrapd_decrypts_notifications_of_version_3";
    if let Some(log) = logged(test, USERS, table, "") {
        check(&log);
    }
}

#[test]
fn snmptrapd_takes_what_is_signed_and_not_what_is_forged() {
    let forger = Bed::new("forger");
    let user = |auth: &str| {
        format!("user = 'signer'\nengine_id = '80007ed904626573'\nauth_file = '{auth}'")
    };
    let table = |bed: &Bed| user(&bed.write("auth", "auth phrase"));
    let test = "snmptrapd_takes_what_is_signed_and_not_what_is_forged";
    let forged = user(&forger.write("auth", "another phrase"));
    if let Some(log) = logged(test, USERS, table, &forged) {
        check(&log);
    }
}
