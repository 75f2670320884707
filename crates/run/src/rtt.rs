//! Passive round-trip times, of traffic on interfaces or in captures. Traffic of interfaces is
//! matched in the kernel, or here where eBPF cannot be had. Captures are matched here, by the
//! same rules.
//!
//! `kernel`, `watcher` and `file` are the sources, `live` is the loop of the first two, and all
//! hand what they find to an `RttOutput`.

mod about;
mod collected;
mod control;
pub mod coverage;
pub mod epping;
mod event;
mod file;
pub mod jsonl;
mod kernel;
mod live;
mod loss;
mod out;
mod points;
pub mod settings;
mod source;
mod totals;
mod watcher;

pub use self::about::{About, GroupOf};
pub use self::collected::Collected;
pub use self::control::Control;
pub use self::event::{Event, RttInterval, RttWatching, Status};
pub use self::loss::{Loss, Losses};
pub use self::settings::{Hook, SampleLimit, Settings};
pub use self::totals::{merge, slowest_first};
use crate::error::RunError;
use crate::running::Context;
use crate::sources::{Source, source};

/// Opens interfaces or captures, by their names, and begins to measure.
///
/// # Errors
/// Settings that cannot be; no such interface or file; what the kernel refuses.
pub fn start(settings: Settings, context: &Context) -> Result<(About, RttWatching), RunError> {
    settings.check()?;
    match source(&settings.sources)? {
        Source::Files(paths) => file::start(&paths, settings, context),
        Source::Interfaces(links) => match settings.engine {
            None => kernel::start(links, settings, context),
            Some(engine) => watcher::start(links, engine, settings, context),
        },
    }
}
