//! What the libraries say while they work, on standard error.

use std::fmt;
use std::io;

use clap::{Args, ValueEnum};
use serde_json::json;
use sonde_sys::clock::unix_now_ns;
use tracing::{Event, Level, Subscriber};
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

/// How messages look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people: "sonde: TEXT"
    Text,
    /// An object for programs, one a line: at_ns, level, module, message
    Json,
}

/// Shows it from now on.
pub fn show(args: LogArgs) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(if args.verbose { Level::DEBUG } else { Level::INFO })
        .with_writer(io::stderr)
        // A failure cannot be reported anywhere.
        .log_internal_errors(false)
        .event_format(Line(args.log_format));
    // Whoever has set another one before shows it there.
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
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
        match self.0 {
            LogFormat::Text => writeln!(writer, "sonde: {message}"),
            LogFormat::Json => {
                let line = json!({
                    "at_ns": unix_now_ns(),
                    "level": about.level().as_str().to_lowercase(),
                    "module": about.target(),
                    "message": message,
                });
                writeln!(writer, "{line}")
            }
        }
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
}
