//! Programs that take notifications on their standard input.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sonde_run::thread;
use sonde_sys::process::end_group;

use super::Deadline;
use crate::alert::sink::SinkReply;
use crate::alert::sink::exec::ExecCommand;

/// Runs the program once for each input, in order, up to the first that it does not take.
pub(super) fn run_each(
    about: &ExecCommand,
    inputs: &[Vec<u8>],
) -> Result<Option<SinkReply>, String> {
    let mut last = None;
    for input in inputs {
        let reply = run(about, input)?;
        let taken = matches!(reply, SinkReply::Exit { code: 0, .. });
        last = Some(reply);
        if !taken {
            break;
        }
    }
    Ok(last)
}

/// Runs the program, and waits for its end. It has a group of its own, an environment of
/// [`ENVIRONMENT`] alone, `/` as its folder, and of open files only the standard three.
fn run(about: &ExecCommand, payload: &[u8]) -> Result<SinkReply, String> {
    let [program, arguments @ ..] = &about.command[..] else { return Err("no program".into()) };
    let said = |e: io::Error| format!("{program}: {e}");
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(ENVIRONMENT)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(said)?;
    let talk = talk(&mut child, payload);
    let ended = talk.and_then(|messages| {
        let ended = wait(&mut child, Deadline::after(about.timeout))?;
        let text = messages.recv_timeout(TEXT_WITHIN).unwrap_or_default();
        Ok(ended.map(|status| (status, text)))
    });
    if !matches!(ended, Ok(Some(_))) {
        // One that has ended meanwhile has no group any more.
        let _ = end_group(child.id());
        let _ = child.wait();
    }
    match ended.map_err(said)? {
        None => Err(format!("{program}: it was ended after {:?}", about.timeout)),
        Some((status, text)) => match (status.code(), status.signal()) {
            (Some(code), _) => Ok(SinkReply::Exit { code, text }),
            (None, signal) => Err(format!("{program}: signal {}", signal.unwrap_or(0))),
        },
    }
}

/// Threads that write to it and read from it. They end with the last who holds its pipes.
fn talk(child: &mut Child, payload: &[u8]) -> io::Result<Receiver<String>> {
    let (input, errors) = (child.stdin.take(), child.stderr.take());
    let (tell, messages) = channel();
    let read = move || {
        let mut text = Vec::new();
        if let Some(mut errors) = errors {
            // What cannot be read of the text changes nothing; more than that is not kept.
            let _ = (&mut errors).take(TEXT_MOST).read_to_end(&mut text);
            let _ = io::copy(&mut errors, &mut io::sink());
            let _ = tell.send(String::from_utf8_lossy(&text).trim().to_owned());
        }
    };
    let payload = payload.to_vec();
    // A program need not read its input.
    let write = move || drop(input.map(|mut input: ChildStdin| input.write_all(&payload)));
    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        thread::spawn(name, work).map(drop).map_err(io::Error::other)
    };
    start("sonde-exec-out", Box::new(read))?;
    start("sonde-exec-in", Box::new(write))?;
    Ok(messages)
}

/// `None`: the time is over.
fn wait(child: &mut Child, deadline: Deadline) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let Some(left) = deadline.left() else { return Ok(None) };
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// All that a program finds in its environment.
const ENVIRONMENT: [(&str, &str); 2] =
    [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("LANG", "C.UTF-8")];
/// Of what it says on its standard error, bytes.
const TEXT_MOST: u64 = 500;
/// For the text after the end: something that it has started may hold the pipe for long.
const TEXT_WITHIN: Duration = Duration::from_millis(200);
/// Between two looks whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::testing::Folder;
    use std::fs;

    fn sh(script: &str, argument: &str, timeout: Duration) -> Result<SinkReply, String> {
        let command = ["/bin/sh", "-c", script, argument].map(str::to_owned).into();
        run(&ExecCommand { command, timeout }, b"{}\n")
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what a program must not inherit")]
    fn a_program_gets_its_input_its_arguments_and_nothing_else() {
        let folder = Folder::new("exec");
        let file = folder.0.join("a b; $HOME");
        let file = file.to_str().unwrap();
        // The harness has variables of its own: none of them comes through.
        assert!(std::env::vars().count() > 3);
        let script =
            "cat > \"$0\"; pwd >> \"$0\"; /usr/bin/env >> \"$0\"; ls /proc/$$/fd >> \"$0\"";
        assert_eq!(sh(script, file, LONG), Ok(SinkReply::Exit { code: 0, text: String::new() }));
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["{}", "/"]);
        let mut names: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split_once('=').map(|(name, _)| name))
            // The shell sets these itself.
            .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["LANG", "PATH"]);
        // The standard three; a shell may hold its own above them.
        let low: Vec<_> = lines.iter().filter_map(|line| line.parse::<u32>().ok()).collect();
        assert!(low.iter().all(|fd| *fd <= 2 || *fd >= 10), "{text}");
    }

    #[test]
    fn its_status_and_what_it_says_come_back() {
        let ends = sh("echo why >&2; exit 3", "", LONG);
        assert_eq!(ends, Ok(SinkReply::Exit { code: 3, text: "why".into() }));
        let loud = sh("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1", "", LONG).unwrap();
        let SinkReply::Exit { text, .. } = loud else { panic!("{loud:?}") };
        assert_eq!(text, "x".repeat(500));
        assert_eq!(sh("kill -9 $$", "", LONG), Err("/bin/sh: signal 9".into()));
        let none = ExecCommand { command: vec!["/no/such/program".into()], timeout: LONG };
        assert!(run(&none, b"").unwrap_err().starts_with("/no/such/program: No such file"));
    }

    #[test]
    fn after_its_time_it_ends_with_all_that_it_has_started() {
        let folder = Folder::new("exec-late");
        let file = folder.0.join("pid");
        let script = "sleep 1000 & echo $! > \"$0\"; wait";
        let late = sh(script, file.to_str().unwrap(), Duration::from_secs(1)).unwrap_err();
        assert_eq!(late, "/bin/sh: it was ended after 1s");
        let process = fs::read_to_string(&file).unwrap();
        // Gone, or dead and not taken note of by its new parent.
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
        let patience = Deadline::after(LONG);
        let lives =
            |stat: &str| !stat.is_empty() && !stat.contains(") Z ") && !stat.contains(") X ");
        let mut stat = stat;
        while lives(&stat) {
            assert!(patience.left().is_some(), "{stat}");
            stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
        }
    }
}
