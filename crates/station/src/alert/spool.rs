//! Notifications on their way to a receiver: a bounded queue on disk.
//!
//! One file each, in the order of their names. A file is written beside, synced and renamed, so
//! that after a kill or a power failure it is whole or not there. One station uses a folder at a
//! time.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::notification::{Notification, NotificationReason};

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Notifications.
    pub entries: usize,
    /// Bytes of their files together.
    pub bytes: u64,
}

/// What became of notifications that were not taken out by their receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolCounters {
    /// Thrown away because the queue was full: a repetition if there is one, else the oldest.
    pub dropped: u64,
    /// Repetitions that a later one took the place of.
    pub superseded: u64,
    /// Files that could not be read; they stay, as NAME.damaged.
    pub damaged: u64,
    /// Those that could not be written, and are lost if the station ends before they are delivered.
    pub unsaved: u64,
}

/// The queue of one receiver.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    /// Held while the queue is open.
    _lock: File,
    entries: VecDeque<SpoolEntry>,
    bytes: u64,
    next: u64,
    limits: SpoolLimits,
    counters: SpoolCounters,
}

#[derive(Debug)]
struct SpoolEntry {
    /// Its place; later ones are greater.
    seq: u64,
    bytes: u64,
    group: String,
    repeats: bool,
    at_ns: i64,
    /// Itself, where it could not be written.
    unsaved: Option<Box<Notification>>,
}

impl Spool {
    /// Opens the queue in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made, read or locked; another station uses it.
    pub fn open(folder: &Path, limits: SpoolLimits) -> io::Result<Spool> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        refuse_link(folder, fs::FileType::is_dir)?;
        let lock = folder.join("lock");
        // A link in place of the lock would have a file made where it points to.
        let lock = match create_new(&lock) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                refuse_link(&lock, fs::FileType::is_file)?;
                OpenOptions::new().write(true).open(&lock)
            }
            created => created,
        }?;
        lock.try_lock().map_err(|e| match e {
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, "another station uses it")
            }
            fs::TryLockError::Error(error) => error,
        })?;
        let mut spool = Spool {
            folder: folder.to_owned(),
            _lock: lock,
            entries: VecDeque::new(),
            bytes: 0,
            next: 0,
            limits,
            counters: SpoolCounters::default(),
        };
        spool.scan()?;
        Ok(spool)
    }

    /// Puts one in. When this returns `Ok`, it outlives a kill and a power failure. A repetition
    /// of the same alerts of a group that waits already takes its place.
    ///
    /// # Errors
    /// It could not be written; it waits in memory all the same.
    pub fn push(&mut self, notification: &Notification) -> io::Result<()> {
        let (group, repeats) = about(notification);
        if repeats && let Some(at) = self.entries.iter().position(|e| e.repeats && e.group == group)
        {
            self.counters.superseded += 1;
            self.remove(at);
        }
        let seq = self.next;
        self.next += 1;
        let text = serde_json::to_vec(notification)?;
        let bytes = text.len() as u64;
        self.make_room(bytes);
        let written = self.write(seq, &text);
        let unsaved = written.is_err().then(|| Box::new(notification.clone()));
        self.counters.unsaved += u64::from(unsaved.is_some());
        let at_ns = notification.at_ns;
        self.entries.push_back(SpoolEntry { seq, bytes, group, repeats, at_ns, unsaved });
        self.bytes += bytes;
        written
    }

    /// The oldest, and what [`Spool::done`] takes it out by.
    pub fn front(&mut self) -> Option<(u64, Notification)> {
        loop {
            let entry = self.entries.front()?;
            let seq = entry.seq;
            if let Some(notification) = &entry.unsaved {
                return Some((seq, (**notification).clone()));
            }
            let path = self.path(seq);
            match fs::read(&path).map(|text| serde_json::from_slice(&text)) {
                Ok(Ok(notification)) => return Some((seq, notification)),
                Ok(Err(_)) | Err(_) => self.set_aside(seq),
            }
        }
    }

    /// Another bound; what is over it goes with the next one that is put in.
    pub fn set_limits(&mut self, limits: SpoolLimits) {
        self.limits = limits;
    }

    /// Takes out one that is delivered or given up. One that is not there any more is none.
    pub fn done(&mut self, seq: u64) {
        if let Some(at) = self.entries.iter().position(|entry| entry.seq == seq) {
            self.remove(at);
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the oldest was decided, ns since 1970 UTC.
    pub fn oldest_ns(&self) -> Option<i64> {
        self.entries.front().map(|entry| entry.at_ns)
    }

    /// What was counted since it was opened.
    pub fn counters(&self) -> SpoolCounters {
        self.counters
    }

    fn scan(&mut self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            // Links, folders and files of other names are somebody else's, and stay.
            if !entry.file_type()?.is_file() {
                continue;
            }
            let Some((stem, end)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
            let Some(seq) =
                u64::from_str_radix(stem, 16).ok().filter(|n| format!("{n:016x}") == stem)
            else {
                continue;
            };
            match end {
                // It was not acknowledged.
                "tmp" => fs::remove_file(entry.path())?,
                "json" => found.push(seq),
                _ => {}
            }
        }
        found.sort_unstable();
        for seq in found {
            self.next = seq + 1;
            let text = fs::read(self.path(seq))?;
            let Ok(notification) = serde_json::from_slice::<Notification>(&text) else {
                self.set_aside(seq);
                continue;
            };
            let ((group, repeats), bytes) = (about(&notification), text.len() as u64);
            let at_ns = notification.at_ns;
            self.entries.push_back(SpoolEntry { seq, bytes, group, repeats, at_ns, unsaved: None });
            self.bytes += bytes;
        }
        Ok(())
    }

    fn make_room(&mut self, bytes: u64) {
        while !self.entries.is_empty()
            && (self.entries.len() >= self.limits.entries || self.bytes + bytes > self.limits.bytes)
        {
            self.counters.dropped += 1;
            self.remove(self.entries.iter().position(|entry| entry.repeats).unwrap_or(0));
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(entry) = self.entries.remove(at) else { return };
        self.bytes -= entry.bytes;
        if entry.unsaved.is_none()
            && let Err(error) = fs::remove_file(self.path(entry.seq))
        {
            tracing::warn!(
                "{}: {error}; it may be delivered again after a restart",
                self.path(entry.seq).display()
            );
        }
    }

    fn set_aside(&mut self, seq: u64) {
        self.counters.damaged += 1;
        if let Some(at) = self.entries.iter().position(|entry| entry.seq == seq) {
            self.bytes -= self.entries[at].bytes;
            self.entries.remove(at);
        }
        let path = self.path(seq);
        let aside = path.with_extension("damaged");
        match fs::rename(&path, &aside) {
            Ok(()) => {
                tracing::warn!("{} is no notification; see {}", path.display(), aside.display())
            }
            Err(error) => tracing::warn!("{} cannot be read: {error}", path.display()),
        }
    }

    fn write(&self, seq: u64, text: &[u8]) -> io::Result<()> {
        let path = self.path(seq);
        write_whole(&path, text)
    }

    fn path(&self, seq: u64) -> PathBuf {
        self.folder.join(format!("{seq:016x}.json"))
    }
}

fn about(notification: &Notification) -> (String, bool) {
    let repeats = notification.reason == NotificationReason::Repeated;
    let mut group = notification.group_id();
    if repeats {
        // Alerts of a group are repeated apart from each other.
        let mut prints: Vec<String> =
            notification.alerts.iter().map(|told| told.alert.fingerprint()).collect();
        prints.sort();
        group.extend(prints);
    }
    (group, repeats)
}

/// An error where `path` is there and is a link, or nothing that `is_right`.
///
/// # Errors
/// That, with what is to be done.
pub fn refuse_link(path: &Path, is_right: fn(&fs::FileType) -> bool) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(about) if is_right(&about.file_type()) => Ok(()),
        Ok(_) => {
            let why = format!(
                "{} is a link, or no file or folder of the station's; remove it, or name the real \
                 folder",
                path.display()
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// A file that was not there, for its owner alone. The kernel follows no link to make it.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes a file that is whole or not there, also after a power failure. Only its owner reads it.
/// What it is written to first follows no link.
///
/// # Errors
/// It cannot be written, synced or renamed; a link stands in its way.
pub fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    refuse_link(&beside, fs::FileType::is_file)?;
    let written = match create_new(&beside) {
        // What a crash left.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&beside).and_then(|()| create_new(&beside))
        }
        created => created,
    }
    .and_then(|mut file| file.write_all(text).and_then(|()| file.sync_all()))
    .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
        return written;
    }
    // The name is on the disk with its folder.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::testing::{firing, resolved};
    use crate::alert::testing::Folder;

    const LIMITS: SpoolLimits = SpoolLimits { entries: 3, bytes: 1 << 20 };

    fn at(at_ns: i64, reason: NotificationReason) -> Notification {
        Notification { at_ns, reason, ..firing() }
    }

    fn drained(spool: &mut Spool) -> Vec<i64> {
        std::iter::from_fn(|| {
            let (seq, notification) = spool.front()?;
            spool.done(seq);
            Some(notification.at_ns)
        })
        .collect()
    }

    use NotificationReason::{Changed, Opened, Repeated};

    #[test]
    fn what_was_put_in_comes_out_in_order_also_after_a_restart() {
        let folder = Folder::new("spool");
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        spool.push(&firing()).unwrap();
        spool.push(&resolved()).unwrap();
        // What a kill leaves of one that was not acknowledged.
        fs::write(folder.0.join("00000000000000ff.tmp"), "{\"gro").unwrap();
        drop(spool);
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        let (first, notification) = spool.front().unwrap();
        assert_eq!((spool.len(), notification), (2, firing()));
        spool.done(first);
        spool.push(&at(9, Changed)).unwrap();
        assert_eq!(spool.front().unwrap().1, resolved());
        drop(spool);
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        assert_eq!(drained(&mut spool), [resolved().at_ns, 9]);
        let left: Vec<_> =
            fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
    }

    #[test]
    fn nothing_is_written_or_removed_through_a_link() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new("links");
        let kept = folder.0.join("kept");
        fs::write(&kept, "kept").unwrap();
        // A folder, a lock and a file beside that are links.
        let outside = folder.0.join("outside");
        fs::create_dir(&outside).unwrap();
        symlink(&outside, folder.0.join("spool")).unwrap();
        assert!(Spool::open(&folder.0.join("spool"), LIMITS).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let own = folder.0.join("own");
        fs::create_dir(&own).unwrap();
        symlink(&kept, own.join("lock")).unwrap();
        assert!(Spool::open(&own, LIMITS).is_err());
        fs::remove_file(own.join("lock")).unwrap();
        symlink(&kept, own.join("0000000000000000.tmp")).unwrap();
        fs::write(own.join("notes.tmp"), "mine").unwrap();
        let mut spool = Spool::open(&own, LIMITS).unwrap();
        assert!(spool.push(&firing()).is_err(), "it waits in memory");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        assert_eq!(fs::read_to_string(own.join("notes.tmp")).unwrap(), "mine");
        assert!(own.join("0000000000000000.tmp").is_symlink());
    }

    #[test]
    fn a_full_queue_drops_repetitions_and_then_the_oldest() {
        let folder = Folder::new("full");
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        for (at_ns, reason) in
            [(1, Opened), (2, Repeated), (3, Changed), (4, Changed), (5, Changed)]
        {
            spool.push(&at(at_ns, reason)).unwrap();
        }
        assert_eq!(spool.counters().dropped, 2);
        assert_eq!(drained(&mut spool), [3, 4, 5]);

        let bytes = 2 * serde_json::to_vec(&firing()).unwrap().len() as u64 + 10;
        let mut spool = {
            drop(spool);
            Spool::open(&folder.0, SpoolLimits { entries: 9, bytes }).unwrap()
        };
        (1..=3).for_each(|at_ns| spool.push(&at(at_ns, Opened)).unwrap());
        assert_eq!((drained(&mut spool), spool.counters().dropped), (vec![2, 3], 1));
    }

    #[test]
    fn a_repetition_takes_the_place_of_one_that_waits() {
        let folder = Folder::new("repeat");
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        for at_ns in 1..=50 {
            spool.push(&at(at_ns, if at_ns == 1 { Opened } else { Repeated })).unwrap();
        }
        let counted = spool.counters();
        assert_eq!((counted.superseded, counted.dropped), (48, 0));
        assert_eq!(drained(&mut spool), [1, 50]);
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_the_others_come() {
        let folder = Folder::new("damaged");
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        (1..=3).for_each(|at_ns| spool.push(&at(at_ns, Changed)).unwrap());
        fs::write(folder.0.join("0000000000000000.json"), "{").unwrap();
        assert_eq!((drained(&mut spool), spool.counters().damaged), (vec![2, 3], 1));
        drop(spool);
        (1..=2).for_each(|seq| {
            fs::write(folder.0.join(format!("000000000000000{seq}.json")), "").unwrap();
        });
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        assert_eq!((spool.front(), spool.counters().damaged), (None, 2));
        assert!(folder.0.join("0000000000000001.damaged").exists());
    }

    #[test]
    fn one_folder_is_of_one_station() {
        let folder = Folder::new("two");
        let first = Spool::open(&folder.0, LIMITS).unwrap();
        let second = Spool::open(&folder.0, LIMITS).unwrap_err();
        assert_eq!(second.to_string(), "another station uses it");
        drop(first);
        Spool::open(&folder.0, LIMITS).unwrap();
    }

    #[test]
    fn what_cannot_be_written_waits_in_memory_and_is_counted() {
        let folder = Folder::new("gone");
        let mut spool = Spool::open(&folder.0, LIMITS).unwrap();
        fs::remove_dir_all(&folder.0).unwrap();
        spool.push(&firing()).unwrap_err();
        assert_eq!((spool.len(), spool.counters().unsaved), (1, 1));
        assert_eq!(spool.front().unwrap().1, firing());
        assert_eq!(drained(&mut spool).len(), 1);
        fs::create_dir(&folder.0).unwrap();
    }
}
