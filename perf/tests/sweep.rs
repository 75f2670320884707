//! What a benchmark that was killed leaves behind.

use std::process::{Command, Stdio};

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_namespaces_of_a_process_are_removed_when_it_has_ended_and_not_before() {
    if sonde_lab::skip("the_namespaces_of_a_process_are_removed_when_it_has_ended_and_not_before") {
        return;
    }
    let mut killed = Command::new("sleep").arg("3600").spawn().unwrap();
    let pid = killed.id().to_string();
    // As a lab of that process is named.
    let namespace = format!("sonde.killed.{pid}.0.host");
    ip(&["netns", "add", &namespace]);
    let mut inside =
        Command::new("ip").args(["netns", "exec", &namespace, "sleep", "3600"]).spawn().unwrap();
    let mut sweeper = Command::new(env!("CARGO_BIN_EXE_sonde-perf"))
        .args(["sweep", &pid])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // What the process held is closed before it has ended.
    drop(sweeper.stdin.take());
    assert!(ip(&["netns"]).contains(&namespace));
    assert!(sweeper.try_wait().unwrap().is_none(), "it did not wait for the process");
    // Nobody waits for it: it stays a zombie.
    killed.kill().unwrap();
    assert!(sweeper.wait().unwrap().success());
    assert!(!ip(&["netns"]).contains(&namespace));
    assert!(!inside.wait().unwrap().success(), "what ran there is ended as well");
    killed.wait().unwrap();
}
