//! Messages on standard error: those of the libraries, by [`tracing`], and those of the commands,
//! by [`errln!`](crate::errln).

use std::fmt;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use serde_json::json;
use sonde_results::plain_text::plain;
use sonde_sys::clock::unix_now_ns;
pub use tracing::Level;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::options;

/// How much is said, and how.
#[derive(Args, Clone, Copy, Debug)]
pub struct LogArgs {
    /// Say also what is opened and how
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// How messages look on standard error
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// The form of what goes to standard error, by `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people; most messages begin with "sonde: "
    Text,
    /// An object for programs, one a line: at_ns, level, module, message
    Json,
}

/// What most messages begin with, as text.
pub const LEAD: &str = "sonde: ";

/// Set by [`show`].
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Shows it from now on.
pub fn show(args: LogArgs) {
    let _ = FORMAT.set(args.log_format);
    if args.log_format == LogFormat::Json {
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let text = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
            // A failure cannot be reported anywhere.
            let _ = write("", Level::ERROR, "std::panic", &text);
        }));
    }
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(if args.verbose { Level::DEBUG } else { Level::INFO })
        .with_writer(io::stderr)
        // A failure cannot be reported anywhere.
        .log_internal_errors(false)
        .event_format(Line(args.log_format));
    // Whoever has set another one before shows it there.
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
}

/// Writes a message of `module`. As text it begins with `lead`; an object has no lead.
///
/// # Errors
/// Standard error cannot be written to.
pub fn write(lead: &str, level: Level, module: &str, text: &str) -> io::Result<()> {
    let format = FORMAT.get().copied().unwrap_or(LogFormat::Text);
    io::stderr().write_all(format.message(lead, level, module, text).as_bytes())
}

impl LogFormat {
    /// A message with the end of its line.
    fn message(self, lead: &str, level: Level, module: &str, text: &str) -> String {
        match self {
            LogFormat::Text => format!("{lead}{}\n", indented(text, lead.len())),
            LogFormat::Json => {
                let object = json!({
                    "at_ns": unix_now_ns(),
                    "level": level.as_str().to_lowercase(),
                    "module": module,
                    "message": text,
                });
                format!("{object}\n")
            }
        }
    }
}

/// A message as people read it: what would steer a terminal is seen, and further lines of it stand below its text,
/// `columns` from the left, so that none can be taken for another message.
fn indented(text: &str, columns: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(plain).collect();
    lines.join(&format!("\n{}", " ".repeat(columns)))
}

struct Line(LogFormat);

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = String::new();
        context.field_format().format_fields(Writer::new(&mut message), event)?;
        let message = options::named(&message);
        let about = event.metadata();
        writer.write_str(&self.0.message(LEAD, *about.level(), about.target(), &message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said(format: LogFormat) -> String {
        let said = Said::default();
        let to = said.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .event_format(Line(format))
            .finish();
        tracing::subscriber::with_default(subscriber, || tracing::warn!("eth0 is \"gone\""));
        String::from_utf8(said.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_message_is_a_line_for_people_or_an_object_for_programs() {
        assert_eq!(said(LogFormat::Text), "sonde: eth0 is \"gone\"\n");
        let line: serde_json::Value = serde_json::from_str(&said(LogFormat::Json)).unwrap();
        assert_eq!(
            (&line["level"], &line["message"]),
            (&"warn".into(), &"eth0 is \"gone\"".into())
        );
        assert!(line["at_ns"].as_i64().unwrap() > 0);
    }

    #[test]
    fn several_lines_are_one_object() {
        let of = |format: LogFormat| format.message("", Level::INFO, "m", "a\n  b");
        assert_eq!(of(LogFormat::Text), "a\n  b\n");
        let forged =
            LogFormat::Text.message(LEAD, Level::INFO, "m", "no \u{1b}[31mx\nsonde: all is well");
        assert_eq!(forged, "sonde: no \u{fffd}[31mx\n       sonde: all is well\n");
        let object = of(LogFormat::Json);
        assert_eq!(object.find('\n'), Some(object.len() - 1));
        let object: serde_json::Value = serde_json::from_str(&object).unwrap();
        assert_eq!((&object["module"], &object["message"]), (&"m".into(), &"a\n  b".into()));
    }

    #[test]
    fn an_object_has_no_lead() {
        let of = |format: LogFormat| format.message(LEAD, Level::ERROR, "m", "no way");
        assert_eq!(of(LogFormat::Text), "sonde: no way\n");
        let object: serde_json::Value = serde_json::from_str(&of(LogFormat::Json)).unwrap();
        assert_eq!((&object["level"], &object["message"]), (&"error".into(), &"no way".into()));
    }
}
