//! Metering of flows and exporting them (RFC 7011), from interfaces or captures.
//!
//! Metering threads own a [`meter::Meter`] each. A flow that ends leaves by a queue for the
//! export thread (`exporting`), which hands its record to every output (`export`). The program
//! that reads [`FlowMetering`]'s records is one of these.

mod capture_reader;
mod collector_address;
mod control;
mod export;
mod exporting;
mod file;
mod follow;
mod input;
mod largest;
mod live;
mod meter;
mod outcome;
mod sampling;
mod selection;
pub mod settings;
mod setup;
mod shard;
mod status;
mod top_talkers;
pub mod verify;

pub use self::collector_address::{CollectorAddress, CollectorTransport};
pub use self::control::Control;
pub use self::largest::bytes;
pub use self::sampling::{IpProtocol, Sampling};
pub use self::settings::Settings;
pub use self::status::{FlowMetering, Status};
pub use self::top_talkers::Talker;
use crate::error::RunError;
use crate::running::Context;
use crate::sources::{Source, source};

/// Opens interfaces or captures, by their names, and begins to meter.
///
/// # Errors
/// Settings that cannot be; no such interface, file or collector; what the kernel refuses.
pub fn start(settings: Settings, context: &Context) -> Result<FlowMetering, RunError> {
    settings.check()?;
    match source(&settings.sources)? {
        Source::Files(paths) => file::start(&paths, settings, context),
        Source::Interfaces(links) => live::start(links, settings, context),
    }
}
