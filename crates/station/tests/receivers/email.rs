//! aiosmtpd: mail comes with TLS and a password, and to no one else.

use std::process::Command;

use serde_json::Value;

use crate::bed::{Bed, Program, free_port};

/// The Python that has aiosmtpd: scripts/interop.sh names it.
const PYTHON: &str = "SONDE_SMTP_PYTHON";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/interop/smtp_server.py");

fn server(test: &str, security: &str) -> Option<(Bed, Program, u16)> {
    let Some(python) = std::env::var_os(PYTHON) else {
        sonde_lab::skipped(test, format!("{PYTHON} names no Python; scripts/interop.sh does"));
        return None;
    };
    let bed = Bed::new("email");
    let [certificate, key] = bed.identity();
    let port = free_port();
    let mut command = Command::new(python);
    command.args([SCRIPT, &port.to_string(), security, &certificate, &key]);
    let program = bed.start(command);
    bed.until("its port", || bed.read("out").lines().any(|line| line == "ready"));
    Some((bed, program, port))
}

fn mails(bed: &Bed) -> Vec<Value> {
    let out = bed.read("out");
    out.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn table(bed: &Bed, port: u16, security: &str, password: &str) -> String {
    let mut table = format!(
        "to = ['noc@b.example', 'Ann <ann@b.example>']\nfrom = 'Sonde <sonde@a.example>'\n\
         server = '127.0.0.1:{port}'\nsecurity = '{security}'\n"
    );
    if security != "none" {
        let file = bed.write(password, password);
        let ca = bed.path("certificate.pem");
        table += &format!("user = 'sonde'\npassword_file = '{file}'\nca = '{ca}'\n");
    }
    table
}

fn comes_with(test: &str, security: &str) {
    let Some((bed, _program, port)) = server(test, security) else { return };
    let station = bed.station("email", &table(&bed, port, security, "open sesame"));
    station.raise(None);
    bed.until("the mail", || mails(&bed).len() == 1);
    station.end();
    bed.until("the second mail", || mails(&bed).len() == 2);
    bed.until("both taken", || station.status().delivered == 2);
    let [firing, resolved] = &mails(&bed)[..] else { panic!("{}", bed.read("out")) };
    assert_eq!(firing["from"], "sonde@a.example");
    let mut to: Vec<&str> =
        firing["to"].as_array().unwrap().iter().map(|to| to.as_str().unwrap()).collect();
    to.sort_unstable();
    assert_eq!(to, ["ann@b.example", "noc@b.example"]);
    let secured = security != "none";
    assert_eq!(firing["tls"], secured);
    assert_eq!(firing["user"], if secured { "sonde".into() } else { Value::Null });
    let header = |mail: &Value, name: &str| {
        let text = mail["text"].as_str().unwrap().to_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let thread = header(firing, "References: ");
    assert_eq!(header(resolved, "References: "), thread);
    assert_ne!(header(firing, "Message-ID: "), header(resolved, "Message-ID: "));
    assert!(header(resolved, "Subject: ").contains("RESOLVED"), "{resolved}");
    assert!(resolved["text"].as_str().unwrap().contains("lasted 3 m 05 s"), "{resolved}");
    assert_eq!(station.status().failures, 0, "{:?}", station.status());
}

#[test]
fn mail_comes_by_starttls() {
    comes_with("mail_comes_by_starttls", "starttls");
}

#[test]
fn mail_comes_by_tls_from_the_begin() {
    comes_with("mail_comes_by_tls_from_the_begin", "tls");
}

#[test]
fn mail_comes_to_a_server_on_this_host_in_the_clear() {
    comes_with("mail_comes_to_a_server_on_this_host_in_the_clear", "none");
}

#[test]
fn a_wrong_password_is_shown_without_it_and_tried_again() {
    let test = "a_wrong_password_is_shown_without_it_and_tried_again";
    let Some((bed, _program, port)) = server(test, "starttls") else { return };
    let station = bed.station("email", &table(&bed, port, "starttls", "close barley"));
    station.raise(None);
    bed.until("a failure", || station.status().failures > 0);
    let status = station.status();
    let said = status.last_error.unwrap();
    assert!(said.starts_with("SMTP reply 535: ") && !said.contains("barley"), "{said}");
    assert_eq!((status.queued, status.given_up), (1, 0));
}

#[test]
fn a_server_with_a_certificate_of_somebody_else_gets_nothing() {
    let test = "a_server_with_a_certificate_of_somebody_else_gets_nothing";
    let Some((bed, _program, port)) = server(test, "tls") else { return };
    let other = Bed::new("email-other");
    let [certificate, _] = other.identity();
    let table = table(&bed, port, "tls", "open sesame");
    let station = bed.station("email", &table.replace(&bed.path("certificate.pem"), &certificate));
    station.raise(None);
    bed.until("a failure", || station.status().failures > 0);
    let said = station.status().last_error.unwrap();
    assert!(said.contains("certificate"), "{said}");
    assert_eq!(mails(&bed), [] as [Value; 0]);
}
