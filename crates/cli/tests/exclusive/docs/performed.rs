//! The command lines of the pages, carried out.

use std::collections::BTreeSet;
use std::fs::{metadata, read_to_string};
use std::path::Path;
use std::time::{Duration, Instant};

use sonde_lab::skipped;

use super::bed::Bed;
use super::pages::{Block, blocks, code, pages, program, sonde};
use crate::process::{Ended, Process};
use crate::turn;

/// Lines that no test can carry out, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("sudo sonde bench examples/bench/vcpe-short.toml --out runs/vcpe", VIRTUAL_MACHINE),
    ("sudo sonde bench examples/bench/soak.toml --out runs/soak", VIRTUAL_MACHINE),
    ("cargo build --release --locked", BUILDS),
    ("cargo test --workspace --test exclusive e2e::clock", BUILDS),
    ("rm -rf target/debug", BUILDS),
    ("rm -rf target/release", BUILDS),
    ("time cargo build --release --locked --bin sonde --timings", BUILDS),
    ("time cargo test --workspace --locked --no-run --timings", BUILDS),
    ("target/release/sonde-perf --only flow-engines --seconds 1", MEASURES),
    ("target/release/sonde-perf --only search", MEASURES),
    ("scripts/interop.sh", "is run by `make test` beside this test"),
    ("for i in 1 2; do while :; do :; done & done", "endless: what a measurement had beside it"),
];
const VIRTUAL_MACHINE: &str = "needs qemu, and Debian's kernel from its archive";
const BUILDS: &str = "builds this tree, which whoever runs this test has just done";
const MEASURES: &str = "needs a release build and this machine to itself for minutes: `make bench`";

/// What else than `sonde` a line may begin with to be carried out: it changes nothing outside of
/// the bed. `make` only says what it would do.
const HARMLESS: &[&str] = &["curl", "env", "install", "ip", "jq", "make", "ssh"];

/// What the reader puts in, what lies outside of the test's folder, what would fill the disk, what
/// has no end. And `curl` says by its exit code that a request was refused; whoever types is slower
/// than a link that comes up.
const INSTEAD: &[(&str, &str)] = &[
    ("probe HOST", "probe 192.0.2.7"),
    ("ExecStart=/usr/local/bin/", ""),
    ("/usr/local/bin/", "installed"),
    ("/etc/bash_completion.d/sonde", "completion"),
    ("--packets 8M", "--packets 800k"),
    ("ping 198.19.0.2", "ping -c 1 198.19.0.2"),
    ("curl ", "curl -sS --fail-with-body "),
    (
        "ip -n b link set eth0 up",
        "ip -n b link set eth0 up; until ip -n b link | grep -q 'state UP'; do :; done",
    ),
];

/// Begins every line of `docs/interop.md` for a program of others.
const OF_OTHERS: &str = "target/interop/";
/// What has these modules is carried out in Python as `scripts/interop.sh` installs it.
const MODULES_OF_OTHERS: &[&str] = &["pandas", "numpy", "snappi", "duckdb", "pyarrow"];

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
            ["reflect" | "otg" | "run", ..] | ["agent", "--listen", ..] | ["lab", "up", ..] => {
                Course::Serves
            }
            ["probe", ..] if !arguments.contains(&"-c") => Course::Watches,
            ["rtt" | "flow", interface, ..] if interface.starts_with("eth") => Course::Watches,
            _ => Course::Ends,
        }
    }
}

/// The lines of a page that can be carried out, or might be.
fn lines(text: &str) -> Vec<String> {
    let left_out = |line: &String| LEFT_OUT.iter().any(|(l, _)| l == line);
    code(text).into_iter().filter(|line| !left_out(line)).collect()
}

#[test]
fn each_line_of_the_pages_is_carried_out_or_left_out_with_a_reason() {
    let (mut unknown, mut all) = (Vec::new(), BTreeSet::new());
    for page in pages() {
        let text = read_to_string(&page).unwrap();
        for line in lines(&text) {
            let program = program(&line);
            // Within a pipeline, too.
            let known = sonde(&line).is_some()
                || HARMLESS.contains(&&*program)
                || program.starts_with(OF_OTHERS);
            if !known {
                unknown.push(format!("{}: {line}", page.display()));
            }
        }
        all.extend(code(&text));
    }
    assert!(
        unknown.is_empty(),
        "neither carried out nor in LEFT_OUT with a reason (what is not for the shell stands in a \
         fence with a language):\n{}",
        unknown.join("\n")
    );
    let stale = |text: &str, whole: bool| {
        !all.iter().any(|line| if whole { line == text } else { line.contains(text) })
    };
    let left_out = LEFT_OUT.iter().filter(|l| stale(l.0, true)).map(|l| l.0);
    let stale: Vec<_> =
        left_out.chain(INSTEAD.iter().map(|l| l.0).filter(|l| stale(l, false))).collect();
    assert!(stale.is_empty(), "in no page any more: {stale:?}");
}

#[test]
fn what_the_pages_say_to_type_works() {
    const NAME: &str = "what_the_pages_say_to_type_works";
    if sonde_lab::skip(NAME) {
        return;
    }
    let _turn = turn::alone();
    let bed = Bed::new();
    let (mut wrong, mut typed) = (Vec::new(), BTreeSet::new());
    for page in pages() {
        let mut serving: Vec<Serving> = Vec::new();
        let text = read_to_string(&page).unwrap();
        for line in lines(&text) {
            // What serves, serves the page that it stands in.
            let course = sonde(&line).map(|arguments| Course::of(&arguments));
            let again = !typed.insert(line.clone()) && !matches!(course, Some(Course::Serves));
            if again || program(&line).starts_with(OF_OTHERS) {
                continue;
            }
            let (Some(arguments), Some(course)) = (sonde(&line), course) else {
                let typed = with_values(&line, &serving);
                wrong.extend(end(&line, begin(&bed, &typed, &Course::Ends), &Course::Ends));
                continue;
            };
            let kind = arguments[1].clone();
            if let Course::Serves = course {
                // Two of a kind want the same port.
                let of_kind = serving.extract_if(.., |s| s.kind == kind);
                wrong.extend(of_kind.filter_map(Serving::end));
            }
            let process = begin(&bed, &line, &course);
            match course {
                Course::Serves => serving.push(Serving { line, kind, process }),
                _ => wrong.extend(end(&line, process, &course)),
            }
        }
        wrong.extend(serving.into_iter().filter_map(Serving::end));
        for block in blocks(&text) {
            let program = match &*block.language {
                "python" if !is_of_others(&block) => "python3",
                // What is a part of a plan shows how to write that part.
                "toml" if block.lines[0].starts_with("title") => "sonde bench --dry-run",
                "r" if has(&bed, "Rscript -e 'library(jsonlite)'") => "Rscript",
                "ini" if has(&bed, "systemd-analyze --version") => "verify-unit",
                "r" | "ini" => {
                    let what = format!("{NAME}: the {} of {}", block.language, page.display());
                    skipped(&what, "needs Rscript with jsonlite, or systemd-analyze");
                    continue;
                }
                _ => continue,
            };
            wrong.extend(given(&bed, program, &block.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// With `SONDE_DOCS_PEERS`, a folder of what `scripts/interop.sh` installs.
#[test]
fn what_the_pages_say_of_programs_of_others_works() {
    const NAME: &str = "what_the_pages_say_of_programs_of_others_works";
    if sonde_lab::skip(NAME) {
        return;
    }
    let Some(peers) = std::env::var_os("SONDE_DOCS_PEERS") else {
        skipped(NAME, "needs stamp-suite, pandas, numpy and snappi; scripts/interop.sh has them");
        return;
    };
    let (_turn, peers) = (turn::alone(), Path::new(&peers).to_owned());
    let bed = Bed::with_peers(&peers);
    let page = |name: &str| read_to_string(super::bed::root().join("docs").join(name)).unwrap();
    let (mut wrong, mut found) = (Vec::new(), 0);
    // An exchange is a block.
    for block in blocks(&page("interop.md")) {
        let lines = block.commands();
        if !lines.iter().any(|line| line.starts_with(OF_OTHERS)) {
            continue;
        }
        found += 1;
        let mut serving = Vec::new();
        for line in lines {
            let is_reflector = line.starts_with("sonde reflect") || line.contains("suite -i ");
            let course = if is_reflector { Course::Serves } else { Course::Ends };
            let typed = line.replace(OF_OTHERS, &format!("{}/", peers.display()));
            let process = begin(&bed, &typed, &course);
            match course {
                Course::Serves => serving.push(Serving { line, kind: String::new(), process }),
                _ => wrong.extend(end(&line, process, &course)),
            }
        }
        wrong.extend(serving.into_iter().filter_map(Serving::end));
    }
    assert_eq!(found, 2, "exchanges in docs/interop.md");
    let python = peers.join("venv/bin/python");
    for (name, before) in [
        ("results.md", "sonde probe"),
        ("results.md", "sonde flow"),
        ("report.md", "sonde report runs/router -f"),
        ("otg.md", "sudo sonde otg"),
    ] {
        let text = page(name);
        let line = code(&text).into_iter().find(|line| line.starts_with(before)).expect(before);
        let kind = sonde(&line).unwrap()[1].clone();
        let course = if kind == "otg" { Course::Serves } else { Course::Ends };
        let mut serving = Vec::new();
        let process = begin(&bed, &line, &course);
        match course {
            Course::Serves => serving.push(Serving { line, kind, process }),
            _ => wrong.extend(end(&line, process, &course)),
        }
        // The second line of the page makes the rest of what its Python reads.
        if before != "sonde probe" {
            let of_others: Vec<Block> = blocks(&text).into_iter().filter(is_of_others).collect();
            assert_eq!(of_others.len(), 1, "{name}");
            let block = with_values(&of_others[0].text(), &serving);
            wrong.extend(given(&bed, &python.display().to_string(), &block));
        }
        wrong.extend(serving.into_iter().filter_map(Serving::end));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Whether it is Python that needs more than Python brings.
fn is_of_others(block: &Block) -> bool {
    let imports = |line: &String| {
        line.starts_with("import ") && MODULES_OF_OTHERS.iter().any(|module| line.contains(module))
    };
    block.language == "python" && block.lines.iter().any(imports)
}

/// Whether a program is there, by a line that asks nothing of it.
fn has(bed: &Bed, line: &str) -> bool {
    end(line, begin(bed, line, &Course::Ends), &Course::Ends).is_none()
}

/// What a server has printed, or a laboratory is called, where the page stands for it in capitals.
fn with_values(line: &str, serving: &[Serving]) -> String {
    let said = |kind: &str| {
        let of_kind = serving.iter().filter(|s| s.kind == kind);
        of_kind.flat_map(|s| s.process.out().into_iter().chain(s.process.err())).collect::<Vec<_>>()
    };
    let between = |text: &[String], begin: &str, end: &str| {
        let text = text.join("\n");
        let rest = text.split_once(begin)?.1;
        Some(rest.split_once(end)?.0.to_owned())
    };
    let token = between(&said("otg"), "http://sonde:", "@").unwrap_or("TOKEN".into());
    let bed = said("lab").iter().find_map(|line| {
        let word =
            line.split_whitespace().find(|word| word.trim_end_matches(':').ends_with(".a"))?;
        Some(word.trim_end_matches(':').trim_end_matches(".a").to_owned())
    });
    line.replace("TOKEN", &token).replace("NAME", &bed.unwrap_or("NAME".into()))
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
    /// What there is one of at a time.
    kind: String,
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
