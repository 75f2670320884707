//! A capture file on disk, mapped, and what can be wrong with it.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use sonde_port::pcap::Mapping;
use sonde_wire::capture::{CaptureError, CaptureErrorKind};

/// Maps a capture file. It must not be shortened while it is read.
pub fn open(path: &Path) -> anyhow::Result<Mapping> {
    let what = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(what)?;
    if !file.metadata().with_context(what)?.is_file() {
        return Err(anyhow!(
            "{} is not a regular file; save the capture first, then read it",
            path.display()
        ));
    }
    Mapping::new(&file).with_context(what)
}

/// The error for people.
pub fn unreadable(path: &Path, error: CaptureError) -> anyhow::Error {
    let hint = match error.kind {
        CaptureErrorKind::Magic => "; pcap and pcapng can be read",
        CaptureErrorKind::Truncated => "",
        _ => "; 'capinfos' says more",
    };
    anyhow!("{}: {error}{hint}", path.display())
}
