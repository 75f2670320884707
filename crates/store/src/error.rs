//! What the store cannot do, to what, and the next step.

use std::io;
use std::path::{Path, PathBuf};

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused something. Nothing that was acknowledged is lost.
    #[error("cannot {what} {}: {cause}; {}", path.display(), advice(cause))]
    Io {
        /// The verb: "write".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// No room even after the oldest data were given up. The batch was not taken: keep it, send it
    /// again.
    #[error(
        "{} is full and nothing more in it can be given up; free space there, or lower the \
         retention; batches are refused until then",
        path.display()
    )]
    Full {
        /// The folder of the store.
        path: PathBuf,
    },
    /// A change of the catalogue failed, and it is not known whether it was made.
    #[error(
        "the catalogue in {} did not say whether it took the last change; check its disk ('dmesg') \
         and start the station again: nothing that was acknowledged is lost",
        path.display()
    )]
    Uncertain {
        /// The folder of the store.
        path: PathBuf,
    },
    /// Another process writes there.
    #[error(
        "{} is in use by another station; stop that one, or give this one a folder of its own",
        path.display()
    )]
    Locked {
        /// The folder of the store.
        path: PathBuf,
    },
    /// A second writer was asked for.
    #[error("this store has its writer already; give batches to that one")]
    WriterTaken,
    /// The catalogue refused something.
    #[error("cannot {what} in the catalogue {}: {cause}; {}", path.display(), sqlite_advice(cause))]
    Catalogue {
        /// The verb: "read the segments".
        what: &'static str,
        /// The catalogue's file.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
    /// A file holds what no version up to this one writes.
    #[error(
        "{} was written by a later version ({what}); use that version, or restore a back-up made \
         by this one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// What is unknown.
        what: String,
    },
    /// A folder of the store is a link.
    #[error(
        "{} is a symbolic link, or no folder: nothing below the folder of a store may be a link, \
         because the store takes files away there; name the real folder in [store] path, or mount \
         the disk there; nothing was changed",
        path.display()
    )]
    Linked {
        /// The link.
        path: PathBuf,
    },
    /// The catalogue is not there, and what it listed is.
    #[error(
        "the catalogue of the store {} is missing or empty, and {segments} segments and \
         {journal_octets} octets of the journal lie beside it; nothing was changed; {}",
        folder.display(), restore(folder)
    )]
    CatalogueGone {
        /// The folder of the store.
        folder: PathBuf,
        /// Segments that are there.
        segments: u64,
        /// Octets of the journal that are there.
        journal_octets: u64,
    },
    /// The catalogue is not what was written.
    #[error(
        "the catalogue of the store {} is damaged ({what}); nothing was changed; {}",
        folder.display(), restore(folder)
    )]
    CatalogueDamaged {
        /// The folder of the store.
        folder: PathBuf,
        /// Where and how.
        what: String,
    },
    /// A file is no catalogue.
    #[error("{} is no catalogue of a store; name the folder of a station's store", path.display())]
    NoStore {
        /// The file.
        path: PathBuf,
    },
    /// A file is not what was written.
    #[error("{} is damaged ({what}); it is set aside in the folder 'damaged'", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and how.
        what: String,
    },
    /// A segment could not be made.
    #[error("cannot write the segment {}: {cause}; report this as a fault of Sonde", path.display())]
    Segment {
        /// The file.
        path: PathBuf,
        /// What the writer of Parquet said.
        cause: parquet::errors::ParquetError,
    },
    /// Rows or a query name a series that was never registered.
    #[error("series {0} is not registered; register its labels first")]
    UnknownSeries(u32),
    /// The query is not one that can be answered.
    #[error("{what}; {help}")]
    Query {
        /// What is wrong.
        what: String,
        /// What is allowed.
        help: &'static str,
    },
    /// The query reached its limit.
    #[error(
        "the query met more than {limit} {of}; narrow its range or its series, or raise the limit"
    )]
    Limit {
        /// The limit.
        limit: u64,
        /// Of what: "rows".
        of: &'static str,
    },
    /// Whoever asked does not wait any more.
    #[error("the query was stopped; narrow its range or its series, or give it more time")]
    Stopped,
    /// ClickHouse does not answer.
    #[error(
        "ClickHouse at {url} cannot be reached: {why}; check that it runs, and its address; what is \
         measured meanwhile is kept in the spool"
    )]
    Unreachable {
        /// Its address.
        url: String,
        /// What the system said.
        why: String,
    },
    /// ClickHouse does not do what it was asked.
    #[error("ClickHouse at {url} refuses to {what}: {why}")]
    Refused {
        /// Its address.
        url: String,
        /// The verb: "insert rows".
        what: &'static str,
        /// The number of its error; 0: none.
        code: u32,
        /// What it said.
        why: String,
    },
    /// Another station of the same name writes there.
    #[error(
        "the station '{name}' writes into this ClickHouse from another folder; give this one another \
         name, or, if that folder is lost, run 'DROP TABLE {claim}' there"
    )]
    NameTaken {
        /// The station's name.
        name: String,
        /// What holds it.
        claim: String,
    },
    /// The database is not that which a spool was made for.
    #[error(
        "{claim} there is the number of another station than that of this spool; name the database \
         that the spool was made for, or a new folder"
    )]
    SpoolOfAnother {
        /// What holds the number.
        claim: String,
    },
    /// The server has lots that the spool never made: the spool is a copy of an earlier time.
    #[error(
        "the spool {} is older than what {claim} has: it was restored from a copy, and its rows would \
         be taken for repeats; stop the station, remove that folder, say 'DROP TABLE {claim}' there, \
         and start it again: it goes on after what the server has",
        path.display()
    )]
    SpoolRestored {
        /// Its folder.
        path: PathBuf,
        /// What holds the station's number.
        claim: String,
    },
    /// The spool is as large as it may be.
    #[error(
        "the spool {} holds {octets} octets that ClickHouse did not take yet, and may not grow; \
         bring ClickHouse back, raise the spool's size, or make room on the disk; batches are refused \
         until then",
        path.display()
    )]
    SpoolFull {
        /// Its folder.
        path: PathBuf,
        /// What it holds.
        octets: u64,
    },
    /// A station has no numbers left.
    #[error("one station can have {most} series; split its targets among stations of other names")]
    SeriesFull {
        /// So many.
        most: u32,
    },
    /// What no backend of this kind can do.
    #[error("{what} cannot be asked of this store; {help}")]
    Unsupported {
        /// What was asked.
        what: &'static str,
        /// What to ask instead.
        help: &'static str,
    },
}

impl StoreError {
    /// Of a failed call: `what` was to be done to `path`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |cause| StoreError::Io { what, path, cause }
    }

    /// Of a commit: whether it is certain that nothing was changed.
    pub(crate) fn changed_nothing(&self) -> bool {
        use rusqlite::ErrorCode::{ConstraintViolation, DatabaseBusy, DatabaseLocked, ReadOnly};
        self.is_full()
            || matches!(
                self,
                StoreError::Catalogue { cause, .. }
                    if matches!(
                        cause.sqlite_error_code(),
                        Some(ConstraintViolation | DatabaseBusy | DatabaseLocked | ReadOnly)
                    )
            )
    }

    /// Whether the disk has no room, so that giving up old data helps.
    pub fn is_full(&self) -> bool {
        match self {
            StoreError::Full { .. } => true,
            StoreError::Io { cause, .. } => is_full(cause),
            StoreError::Catalogue { cause, .. } => is_sqlite_full(cause),
            StoreError::Segment {
                cause: parquet::errors::ParquetError::External(inner), ..
            } => inner.downcast_ref::<io::Error>().is_some_and(is_full),
            _ => false,
        }
    }
}

/// No room for the database, its log, or the index of its log.
fn is_sqlite_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
        || error
            .sqlite_error()
            .is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// ENOSPC or EDQUOT.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The way on without a catalogue.
fn restore(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "move the store aside with 'mv {folder} {folder}.damaged', then copy a back-up to {folder}, \
         or start with an empty store; docs/store.md says how the Parquet files of the old one are read"
    )
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on its disk, or lower the retention"
        }
        io::ErrorKind::PermissionDenied => "give the station's user the rights to it",
        io::ErrorKind::NotFound => "check that the folder of the store exists",
        io::ErrorKind::ReadOnlyFilesystem => "mount its disk for writing",
        _ => "check its disk ('dmesg', 'smartctl')",
    }
}

fn sqlite_advice(cause: &rusqlite::Error) -> &'static str {
    match cause.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => "free space on its disk, or lower the retention",
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            "end what else has it open for writing"
        }
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            "restore a back-up of the store"
        }
        Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::PermissionDenied) => {
            "give the station's user the rights to it"
        }
        _ => "check its disk ('dmesg', 'smartctl')",
    }
}
