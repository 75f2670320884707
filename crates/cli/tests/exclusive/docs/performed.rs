//! The command lines of the pages, carried out.

use std::collections::BTreeSet;
use std::fs::{metadata, read_to_string};
use std::time::{Duration, Instant};

use super::bed::Bed;
use super::pages::{blocks, code, pages, sonde};
use crate::process::{Ended, Process};
use crate::turn;

/// Lines that no test can carry out, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("sudo sonde bench examples/bench/vcpe-short.toml --out runs/vcpe", VIRTUAL_MACHINE),
    ("sudo sonde bench examples/bench/soak.toml --out runs/soak", VIRTUAL_MACHINE),
];
const VIRTUAL_MACHINE: &str = "needs qemu, and Debian's kernel from its archive";

/// What the reader puts in, what lies outside of the test's folder, what would fill the disk.
const INSTEAD: &[(&str, &str)] = &[
    ("probe HOST", "probe 192.0.2.7"),
    ("ExecStart=/usr/local/bin/", ""),
    ("/etc/bash_completion.d/sonde", "completion"),
    ("--packets 8M", "--packets 800k"),
];

/// How a command goes.
enum Course {
    /// Comes to its end.
    Ends,
    /// Goes on; interrupted once it has printed what it measured.
    Watches,
    /// Goes on while the rest of its page is carried out.
    Serves,
    /// Takes minutes; interrupted after its first trial, and says so by its exit code.
    Tries { out: String },
}

impl Course {
    fn of(arguments: &[String]) -> Course {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let after = |option| arguments.iter().skip_while(|w| **w != option).nth(1);
        match arguments[1..] {
            ["bench", ..] if !arguments.contains(&"--dry-run") => {
                Course::Tries { out: (*after("--out").expect("a folder for the run")).to_owned() }
            }
            ["reflect" | "otg", ..] | ["agent", "--listen", ..] | ["lab", "up", ..] => {
                Course::Serves
            }
            ["probe", ..] if !arguments.contains(&"-c") => Course::Watches,
            ["rtt" | "flow", interface, ..] if interface.starts_with("eth") => Course::Watches,
            _ => Course::Ends,
        }
    }
}

#[test]
fn what_the_pages_say_to_type_works() {
    if sonde_lab::skip("what_the_pages_say_to_type_works") {
        return;
    }
    let _turn = turn::alone();
    let bed = Bed::new();
    let (mut wrong, mut typed) = (Vec::new(), BTreeSet::new());
    for page in pages() {
        let mut serving: Vec<Serving> = Vec::new();
        let text = read_to_string(&page).unwrap();
        for line in code(&text) {
            let Some(arguments) = sonde(&line) else { continue };
            if !typed.insert(line.clone()) || LEFT_OUT.iter().any(|(l, _)| *l == line) {
                continue;
            }
            let course = Course::of(&arguments);
            if let Course::Serves = course {
                // Two of a kind want the same port.
                let of_kind = serving.extract_if(.., |s| s.arguments[1] == arguments[1]);
                wrong.extend(of_kind.filter_map(Serving::end));
            }
            let process = begin(&bed, &line, &course);
            match course {
                Course::Serves => serving.push(Serving { line, arguments, process }),
                _ => wrong.extend(end(&line, process, &course)),
            }
        }
        wrong.extend(serving.into_iter().filter_map(Serving::end));
        let parts: &[_] = match page.file_name().and_then(|name| name.to_str()) {
            Some("results.md") => &[("python", "python3")],
            Some("bench.md") => &[("toml", "sonde bench --dry-run")],
            _ => &[],
        };
        for (language, program) in parts {
            // What is a part of a plan shows how to write that part.
            let whole = |block: &String| *language != "toml" || block.starts_with("title");
            let blocks: Vec<String> = blocks(&text, language).into_iter().filter(whole).collect();
            assert!(!blocks.is_empty(), "{} has no {language}", page.display());
            wrong.extend(blocks.iter().filter_map(|block| given(&bed, program, block)));
        }
    }
    let stale = |text: &str, whole: bool| {
        !typed.iter().any(|line| if whole { line == text } else { line.contains(text) })
    };
    wrong.extend(LEFT_OUT.iter().filter(|l| stale(l.0, true)).map(|l| format!("stale: {}", l.0)));
    wrong.extend(INSTEAD.iter().filter(|l| stale(l.0, false)).map(|l| format!("stale: {}", l.0)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Gives a program a block of a page, beside the files that the page's lines have made.
fn given(bed: &Bed, program: &str, block: &str) -> Option<String> {
    std::fs::write(bed.file("block"), block).unwrap();
    let line = format!("{program} block");
    end(&line, begin(bed, &line, &Course::Ends), &Course::Ends)
}

/// What goes on beside the next lines of its page.
struct Serving {
    line: String,
    arguments: Vec<String>,
    process: Process,
}

impl Serving {
    fn end(mut self) -> Option<String> {
        if self.process.is_running() {
            self.process.signal("INT");
        }
        end(&self.line, self.process, &Course::Serves)
    }
}

/// Starts a line, and waits until it has come as far as it is to be let.
fn begin(bed: &Bed, line: &str, course: &Course) -> Process {
    let printed = |lines| move |p: &Process| p.out().len() + p.err().len() >= lines;
    let instead = INSTEAD.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
    // The shell makes way for what will be interrupted.
    let exec = if matches!(course, Course::Ends) { "" } else { "exec " };
    let mut process = Process::start(bed.command(&format!("{exec}{instead}")));
    match course {
        Course::Ends => {}
        Course::Serves => wait(line, &mut process, printed(1)),
        Course::Watches => wait(line, &mut process, printed(2)),
        Course::Tries { out } => {
            let trials = bed.file(out).join("trials.jsonl");
            wait(line, &mut process, |_| metadata(&trials).is_ok_and(|m| m.len() > 0));
        }
    }
    if matches!(course, Course::Watches | Course::Tries { .. }) && process.is_running() {
        process.signal("INT");
    }
    process
}

/// Waits for the end of a line, and says what was wrong with it.
fn end(line: &str, process: Process, course: &Course) -> Option<String> {
    let ended = process.end();
    let expected = if matches!(course, Course::Tries { .. }) { 130 } else { 0 };
    (ended.code != expected).then(|| {
        let Ended { code, out, err } = ended;
        format!("{line}\ncode {code}, not {expected}\n{out}\n{err}")
    })
}

/// Until it holds, or the process has ended.
fn wait(line: &str, process: &mut Process, holds: impl Fn(&Process) -> bool) {
    let limit = Instant::now() + BOUND;
    while process.is_running() && !holds(process) {
        let (out, err) = (process.out(), process.err());
        assert!(Instant::now() < limit, "{line} hangs: {out:?} {err:?}");
        std::thread::sleep(POLL);
    }
}

/// Only what hangs takes longer to say anything, also beside other work.
const BOUND: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
