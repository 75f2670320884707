//! Messages of the libraries name keys of settings. Here they are replaced by the options of the
//! command line. A key stands between backticks, or at the head of what is wrong with settings.
//! In a message about a line of a file it stays.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::OnceLock;

static COMMAND: OnceLock<fn() -> clap::Command> = OnceLock::new();
static LONG: OnceLock<BTreeSet<String>> = OnceLock::new();

/// Sets the command whose options replace keys; without it keys stay.
pub fn of(command: fn() -> clap::Command) {
    let _ = COMMAND.set(command);
}

/// `text` with options instead of the keys in it: "`engine.iface`" is "--iface", and
/// "`input.workers = 4`" is "--workers 4". What is no option stays.
pub fn named(text: &str) -> Cow<'_, str> {
    if !text.contains('`') || is_of_file(text) {
        return text.into();
    }
    let mut pieces = text.split('`');
    let mut all = pieces.next().unwrap_or_default().to_owned();
    while let Some(quoted) = pieces.next() {
        let closed = pieces.next();
        let (key, value) = match quoted.split_once(" = ") {
            Some((key, value)) => (key, Some(value)),
            None => (quoted, None),
        };
        match (option(key), closed) {
            (Some(option), Some(_)) => {
                all += &option;
                value.iter().for_each(|value| all.extend([" ", *value]));
            }
            (None, Some(_)) => all.extend(["`", quoted, "`"]),
            (_, None) => all.extend(["`", quoted]),
        }
        all += closed.unwrap_or_default();
    }
    all.into()
}

/// The same for what is wrong with settings: it begins with a key.
pub fn wrong(text: &str) -> String {
    let head = text.split_once(": ").and_then(|(key, why)| Some((option(key)?, why)));
    match head {
        Some((option, why)) => format!("{option}: {}", named(why)),
        None => named(text).into_owned(),
    }
}

/// Whether it is of a line of a file: "FILE line 3: ...".
fn is_of_file(text: &str) -> bool {
    text.split_once(" line ")
        .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The option that gives a key its value.
fn option(key: &str) -> Option<String> {
    let is_key = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '.' | '0'..='9');
    if key.is_empty() || !key.chars().all(is_key) {
        return None;
    }
    if key == "stream.size" || key == "target.stream.size" {
        return Some("-s".into());
    }
    let name = match key.rsplit('.').next().unwrap_or(key) {
        "sources" => return Some("IFACE|FILE".into()),
        "family" => return Some("-4 or -6".into()),
        "encapsulation" => "encap".into(),
        "protocols" => "proto".into(),
        "samples" => "sample-limit".into(),
        "sizes" => "size".into(),
        name => name.replace('_', "-"),
    };
    // Made once, at the first key: it costs more than a message.
    let is_known = COMMAND.get().is_some_and(|command| {
        LONG.get_or_init(|| {
            let mut all = BTreeSet::new();
            add_long(&command(), &mut all);
            all
        })
        .contains(&name)
    });
    is_known.then(|| format!("--{name}"))
}

/// The names of the options of a command and of those under it.
fn add_long(command: &clap::Command, all: &mut BTreeSet<String>) {
    all.extend(command.get_arguments().filter_map(|a| a.get_long().map(str::to_owned)));
    command.get_subcommands().for_each(|below| add_long(below, all));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn keys_are_replaced_by_options() {
        of(Cli::command);
        for (text, named_text) in [
            ("no key", "no key"),
            ("leave `engine.xdp_mode` out", "leave --xdp-mode out"),
            ("use `input.workers = 4`, or `sources`", "use --workers 4, or IFACE|FILE"),
            ("`sizes`: too long", "--size: too long"),
            ("use `stream.size = 1500` or less", "use -s 1500 or less"),
            ("leave out `family`", "leave out -4 or -6"),
            ("unknown field `Colour`", "unknown field `Colour`"),
            ("an open ` is none", "an open ` is none"),
        ] {
            assert_eq!(named(text), named_text);
        }
        assert_eq!(wrong("input.mirror: take `input.trim` off"), "--mirror: take --trim off");
        let of_target = "target.stream.flow_ports: target b: it needs `stream.flows`";
        assert_eq!(wrong(of_target), "--flow-ports: target b: it needs --flows");
        assert_eq!(wrong("target.stream.size: too long"), "-s: too long");
        assert_eq!(wrong("metering.join: x is no interface"), "--join: x is no interface");
        assert_eq!(wrong("t.toml line 3: `size`"), "t.toml line 3: `size`");
        assert_eq!(wrong("192.0.2.1: no way"), "192.0.2.1: no way");
    }
}
