//! A copy of a store that is being written.

use std::fs;
use std::path::Path;

use super::disk::create_new;
use super::open::CATALOGUE;
use super::own_files::open_own;
use super::{Store, journal, lock};
use crate::error::StoreError;

/// What a back-up holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupManifest {
    /// Segments, linked where the file system can, else copied.
    pub segments: u64,
    /// Their size, octets.
    pub octets: u64,
    /// Files of the journal.
    pub journals: u64,
    /// The last batch in it, by its number in the store.
    pub last_batch: u64,
}

impl Store {
    /// Makes a copy in `to`, a folder that is not there or empty, while the store is written. It
    /// holds at least all that was durable when this was called, with what the station's judge goes on
    /// from and the targets that its API added, and is opened as a store is.
    pub fn back_up(&self, to: &Path) -> Result<BackupManifest, StoreError> {
        let shared = &self.shared;
        if to.exists() && fs::read_dir(to).map_err(StoreError::io("list", to))?.next().is_some() {
            let source = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(StoreError::io("back up into", to)(source));
        }
        // No segment is made or taken away meanwhile; batches are still taken.
        let _alone = lock(&shared.maintaining);
        let journals = to.join(super::open::JOURNAL);
        for folder in [to, &journals] {
            shared.disk.create_folder(folder).map_err(StoreError::io("create", folder))?;
        }
        // The journal first: what moves from it into segments meanwhile is in both, and counts once.
        let mut manifest = BackupManifest::default();
        let (from, files) = {
            let journal = lock(&shared.journal);
            let files = journal::journal_files(journal.folder())?;
            manifest.last_batch = lock(&shared.state).next_batch - 1;
            (journal.folder().to_owned(), files)
        };
        for number in files {
            let (from, to) =
                (journal::journal_path(&from, number), journal::journal_path(&journals, number));
            copy_of(&from, &to).map_err(StoreError::io("copy", &from))?;
            manifest.journals += 1;
        }
        let (segments, copied) = {
            let catalogue = lock(&shared.catalogue);
            let segments = lock(&shared.state).segments.clone();
            (segments, catalogue.back_up(&to.join(CATALOGUE)))
        };
        copied?;
        for segment in segments.iter() {
            let path = to.join(&segment.record.path);
            let folder = path.parent().unwrap_or(to);
            shared.disk.create_folder(folder).map_err(StoreError::io("create", folder))?;
            shared.disk.link(segment.path(), &path).map_err(StoreError::io("link", &path))?;
            sync(folder)?;
            manifest.segments += 1;
            manifest.octets += segment.record.octets;
        }
        for name in BESIDE {
            let (from, copy) = (shared.folder.join(name), to.join(name));
            match copy_of(&from, &copy) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => copied.map_err(StoreError::io("copy", &from))?,
            }
        }
        sync(&journals)?;
        sync(to)?;
        Ok(manifest)
    }
}

/// Files that a station keeps beside its store, each written whole: what its judge goes on from, and
/// targets that its API added.
const BESIDE: [&str; 2] = ["judge.json", "targets.json"];

/// Makes a new file of the octets of another one, for owner and group, and makes it durable.
fn copy_of(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut source = open_own(from, fs::File::options().read(true))?;
    let mut target = create_new(to)?;
    std::io::copy(&mut source, &mut target)?;
    target.sync_all()
}

/// Makes a file, or the names in a folder, durable.
fn sync(path: &Path) -> Result<(), StoreError> {
    let synced = fs::File::open(path).and_then(|file| file.sync_all());
    synced.map_err(StoreError::io("sync", path))
}
