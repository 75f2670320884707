//! Captures as they come: files, compressed or not, pipes and standard input, several in a row.
//!
//! A regular file is mapped and is one [`CapturePiece`]. All else is read by a thread of its own
//! and cut into pieces of whole packets. Each piece is handed on as soon as it has come. So a
//! capture under way (`tcpdump -w - | sonde rtt -`) is measured while it grows. A compressed one is
//! never in memory as a whole.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use flate2::bufread::MultiGzDecoder;
use sonde_port::pcap::MappedFile;
use sonde_wire::capture::{CaptureError, CaptureErrorKind, Reader, ReaderState};
use sonde_wire::pcap;

/// Captures, one behind the other.
pub struct CaptureFiles {
    waiting: VecDeque<Source>,
    current: Option<Current>,
    groups: Option<BatchLimits>,
}

/// Packets that stay together: at most so many, and no longer than this after the first, ns.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most packets of a group.
    pub packets: usize,
    /// Time after the first packet, ns, at most.
    pub longest_ns: i64,
}

enum Source {
    Stdin(File),
    Path(PathBuf),
}

enum Current {
    Mapped(String, MappedFile),
    Stream(Box<Stream>),
}

/// Whole packets of a capture, in their order.
pub struct CapturePiece {
    bytes: Bytes,
    state: Box<ReaderState>,
    is_last: bool,
    /// Which capture it is of, for people.
    pub name: Arc<str>,
    /// It is the first piece of its capture.
    pub is_first: bool,
}

enum Bytes {
    Mapped(MappedFile),
    Held(Vec<u8>),
}

/// What is there before anything can be said.
pub enum First {
    Piece(CapturePiece),
    Nothing,
    /// The wait for it was broken off.
    BrokenOff,
}

pub enum NextPiece {
    Piece(CapturePiece),
    Wait,
    /// A capture ends here, for this reason; what is behind it in a row still comes.
    Broken(String),
    /// There is nothing more.
    End,
}

impl CapturePiece {
    pub fn reader(&self) -> Reader<'_> {
        Reader::resume(ReaderState::clone(&self.state), self.bytes(), self.is_last)
    }

    /// Time of its first packet that has one, ns since 1970 UTC.
    pub fn begin_ns(&self) -> Option<i64> {
        self.reader().find_map(|r| r.ok().filter(|r| r.is_timed).map(|r| r.unix_nanos))
    }

    /// What the capture calls the interface of its first packet.
    pub fn interface_name(&self) -> Option<String> {
        let mut reader = self.reader();
        let first = reader.next()?.ok()?;
        reader.interface_name(first.interface).map(str::to_owned)
    }

    /// The last part of its capture's name.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.as_slice(),
            Bytes::Held(bytes) => bytes,
        }
    }
}

impl CaptureFiles {
    /// Finds captures, `-` being standard input. Regular files are mapped: they must not be
    /// shortened while they are read.
    ///
    /// # Errors
    /// One of them is not there or cannot be opened.
    pub fn open(paths: &[PathBuf]) -> Result<CaptureFiles> {
        let waiting = paths.iter().map(|path| Source::find(path)).collect::<Result<_>>()?;
        Ok(CaptureFiles { waiting, current: None, groups: None })
    }

    /// Whether all that is still to be opened are regular files, which hold the same each time.
    pub fn are_regular(&self) -> bool {
        let is_file = |about: io::Result<std::fs::Metadata>| about.is_ok_and(|a| a.is_file());
        self.current.is_none()
            && self.waiting.iter().all(|source| match source {
                Source::Stdin(file) => is_file(file.metadata()),
                Source::Path(path) => is_file(path.metadata()),
            })
    }

    /// Pieces end where such groups end, so that how a file was read makes no difference. What is
    /// live does not wait for the rest of a group.
    pub fn in_groups(self, groups: BatchLimits) -> CaptureFiles {
        CaptureFiles { groups: Some(groups), ..self }
    }

    /// A capture that is being read already.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn of(name: &str, octets: impl Read + Send + 'static) -> Result<CaptureFiles> {
        let stream = Stream::begin(name.into(), octets, true)?;
        let current = Some(Current::Stream(Box::new(stream)));
        Ok(CaptureFiles { waiting: VecDeque::new(), current, groups: None })
    }

    /// The first packets, for which it waits until `is_over` says that they are not wanted.
    ///
    /// # Errors
    /// What comes first is no capture; no thread or memory to be had.
    pub fn first(&mut self, is_over: impl Fn() -> bool) -> Result<First> {
        loop {
            match self.next(LOOK_AROUND)? {
                NextPiece::Piece(piece) => return Ok(First::Piece(piece)),
                NextPiece::Broken(why) => return Err(anyhow!(why)),
                NextPiece::End => return Ok(First::Nothing),
                NextPiece::Wait if is_over() => return Ok(First::BrokenOff),
                NextPiece::Wait => {}
            }
        }
    }

    /// What comes next, for which it waits at most `patience`.
    ///
    /// # Errors
    /// No thread or memory to be had.
    pub fn next(&mut self, patience: Duration) -> Result<NextPiece> {
        let Some(current) = &mut self.current else {
            let Some(source) = self.waiting.pop_front() else { return Ok(NextPiece::End) };
            match source.begin() {
                Ok(current) => self.current = Some(current),
                Err(error) => return Ok(NextPiece::Broken(format!("{error:#}"))),
            }
            return self.next(patience);
        };
        match current {
            Current::Stream(stream) => {
                let next = stream.next(patience, self.groups);
                if matches!(next, NextPiece::End | NextPiece::Broken(_)) {
                    self.current = None;
                }
                match next {
                    NextPiece::End => self.next(patience),
                    next => Ok(next),
                }
            }
            Current::Mapped(..) => {
                let Some(Current::Mapped(name, mapping)) = self.current.take() else {
                    return Ok(NextPiece::End);
                };
                if let Err(error) = Reader::new(mapping.as_slice()) {
                    return Ok(NextPiece::Broken(describe(&name, error)));
                }
                Ok(NextPiece::Piece(CapturePiece {
                    bytes: Bytes::Mapped(mapping),
                    state: Box::default(),
                    is_last: true,
                    name: name.into(),
                    is_first: true,
                }))
            }
        }
    }
}

impl Source {
    /// Looks whether it can be read. It is opened when its turn comes: there may be thousands.
    fn find(path: &Path) -> Result<Source> {
        if path.as_os_str() == "-" {
            let file = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .context("there is no standard input to read; name a file")?;
            return Ok(Source::Stdin(file.into()));
        }
        // Opening a pipe would wait for its writer.
        let about = path.metadata().with_context(|| unreadable(path))?;
        if about.is_dir() {
            return Err(anyhow!("{} is a folder; name the captures in it", path.display()));
        }
        if about.is_file() {
            open(path)?;
        }
        Ok(Source::Path(path.to_owned()))
    }

    fn begin(self) -> Result<Current> {
        let path = match self {
            // It may have been read before.
            Source::Stdin(file) => {
                let is_live = !file.metadata().is_ok_and(|about| about.is_file());
                return Ok(Current::Stream(Box::new(Stream::begin(STDIN.into(), file, is_live)?)));
            }
            Source::Path(path) => path,
        };
        let name = path.display().to_string();
        let what = || unreadable(&path);
        let is_regular = path.metadata().with_context(what)?.is_file();
        if is_regular {
            let file = open(&path)?;
            let mut magic = [0; MAGIC];
            let got = file.read_at(&mut magic, 0).with_context(what)?;
            if Compression::of(&magic[..got]).is_none() {
                let mapping = MappedFile::new(&file).with_context(what)?;
                return Ok(Current::Mapped(name, mapping));
            }
        }
        let octets = OnceRead { path, file: None };
        Ok(Current::Stream(Box::new(Stream::begin(name, octets, !is_regular)?)))
    }
}

/// Opens when it is first read, on the thread that reads: a pipe waits for its writer.
struct OnceRead {
    path: PathBuf,
    file: Option<File>,
}

impl Read for OnceRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(File::open(&self.path)?),
        };
        file.read(buffer)
    }
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| unreadable(path))
}

/// What to say of a file that fails, before the cause.
pub fn unreadable(path: &Path) -> String {
    format!("cannot read {}; name a whole file that this user may read", path.display())
}

/// A capture that cannot be mapped.
struct Stream {
    name: Arc<str>,
    came: Receiver<io::Result<Vec<u8>>>,
    /// Begins with the first packet that is not handed on yet.
    window: Vec<u8>,
    state: ReaderState,
    has_begun: bool,
    is_live: bool,
    /// The error that ended reading.
    failed: Option<io::Error>,
    /// Nothing can be read behind what was handed on.
    is_over: bool,
}

impl Stream {
    fn begin(name: String, octets: impl Read + Send + 'static, is_live: bool) -> Result<Stream> {
        let (give, came) = sync_channel(PIECES_AHEAD);
        std::thread::Builder::new()
            .name("sonde-read".into())
            .spawn(move || pump(octets, is_live, &give))
            .context("cannot start a reading thread; 'ulimit -u' bounds them")?;
        let (window, state) = (Vec::new(), ReaderState::default());
        Ok(Stream {
            name: name.into(),
            came,
            window,
            state,
            has_begun: false,
            is_live,
            failed: None,
            is_over: false,
        })
    }

    fn next(&mut self, patience: Duration, groups: Option<BatchLimits>) -> NextPiece {
        loop {
            if let Some(error) = self.failed.take() {
                return NextPiece::Broken(format!("{}: {error}", self.name));
            }
            if self.is_over {
                return NextPiece::End;
            }
            let (mut is_last, mut groups, mut waits) = (false, groups, false);
            match self.came.recv_timeout(patience) {
                Ok(Ok(bytes)) => self.window.extend(bytes),
                Ok(Err(error)) => {
                    // Half a packet has to go; what is whole is handed on first.
                    self.failed = Some(error);
                    groups = None;
                }
                Err(RecvTimeoutError::Timeout) if self.is_live && !self.window.is_empty() => {
                    (groups, waits) = (None, true);
                }
                Err(RecvTimeoutError::Timeout) => return NextPiece::Wait,
                Err(RecvTimeoutError::Disconnected) => is_last = true,
            }
            if is_last && self.has_begun && self.window.is_empty() {
                return NextPiece::End;
            }
            let Whole { packets, wrong, consumed, state } = self.whole(is_last, groups);
            if let Some(error) = wrong
                && packets == 0
                && !self.has_begun
                && is_of_header(error.kind, self.window.len())
            {
                return NextPiece::Broken(describe(&self.name, error));
            }
            self.is_over = wrong.is_some();
            if consumed > 0 || is_last {
                return NextPiece::Piece(self.take(consumed, state, is_last));
            }
            if waits {
                return NextPiece::Wait;
            }
        }
    }

    /// What of the window can be handed on.
    fn whole(&self, is_last: bool, groups: Option<BatchLimits>) -> Whole {
        let mut reader = Reader::resume(self.state.clone(), &self.window, is_last);
        let (mut packets, mut wrong) = (0, None);
        // Where the group under way began, and its packets and time.
        let (mut group, mut passed, mut begun) = (0, 0, 0);
        loop {
            let before = reader.consumed();
            match reader.next() {
                Some(Ok(record)) => {
                    let is_full = groups.is_some_and(|g| {
                        let lasted = record.unix_nanos.saturating_sub(begun);
                        passed == g.packets || lasted > g.longest_ns
                    });
                    if passed == 0 || is_full {
                        (group, passed, begun) = (before, 0, record.unix_nanos);
                    }
                    (packets, passed) = (packets + 1, passed + 1);
                }
                Some(Err(error)) => wrong = Some(error),
                None => break,
            }
        }
        if groups.is_some() && wrong.is_none() && !is_last && group < reader.consumed() {
            reader = Reader::resume(self.state.clone(), &self.window[..group], false);
            reader.by_ref().for_each(drop);
        }
        Whole { packets, wrong, consumed: reader.consumed(), state: reader.into_state() }
    }

    fn take(&mut self, consumed: usize, state: ReaderState, is_last: bool) -> CapturePiece {
        let state = Box::new(std::mem::replace(&mut self.state, state));
        let rest = self.window.split_off(consumed);
        let bytes = std::mem::replace(&mut self.window, rest);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let (bytes, name) = (Bytes::Held(bytes), Arc::clone(&self.name));
        CapturePiece { bytes, state, is_last, name, is_first }
    }
}

/// The whole packets, or groups of them, in a window.
struct Whole {
    packets: u64,
    wrong: Option<CaptureError>,
    consumed: usize,
    /// The reader's state behind them.
    state: ReaderState,
}

/// What a file holds, without its compression (gzip, zstd), `-` being standard input.
///
/// # Errors
/// It cannot be opened or read.
pub fn octets(path: &Path) -> Result<Octets> {
    let file = match Source::find(path)? {
        Source::Stdin(file) => file,
        Source::Path(path) => open(&path)?,
    };
    let (_, octets) = decompressed(file).with_context(|| unreadable(path))?;
    Ok(octets)
}

/// A source of octets that a thread may own.
pub type Octets = Box<dyn Read + Send>;

fn decompressed(
    mut octets: impl Read + Send + 'static,
) -> io::Result<(Option<Compression>, Octets)> {
    let mut head = [0; MAGIC];
    let (got, error) = fill(&mut octets, &mut head);
    if let Some(error) = error {
        return Err(error);
    }
    let compression = Compression::of(&head[..got]);
    let plain = Cursor::new(head).take(got as u64).chain(octets);
    let buffered = |plain| io::BufReader::with_capacity(BUFFER, plain);
    let octets: Octets = match compression {
        None => Box::new(plain),
        Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(buffered(plain))),
        Some(Compression::Zstd) => {
            Box::new(zstd::stream::read::Decoder::with_buffer(buffered(plain))?)
        }
    };
    Ok((compression, octets))
}

/// Reads to the end, and hands on what it reads: of a regular file in even pieces, of what is
/// live whatever is there.
fn pump(octets: impl Read + Send + 'static, is_live: bool, give: &SyncSender<io::Result<Vec<u8>>>) {
    let (compression, mut reader) = match decompressed(octets) {
        Ok(decompressed) => decompressed,
        Err(error) => return drop(give.send(Err(error))),
    };
    loop {
        let mut piece = vec![0; if is_live { BUFFER } else { PIECE }];
        let (got, error) = match is_live {
            true => some(&mut reader, &mut piece),
            false => fill(&mut reader, &mut piece),
        };
        piece.truncate(got);
        if got > 0 && give.send(Ok(piece)).is_err() {
            return;
        }
        let why = match (compression, error) {
            (_, None) if got > 0 => continue,
            (_, None) => return,
            (Some(_), Some(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                io::Error::other("what is compressed ends too early; what comes before was read")
            }
            (Some(_), Some(error)) => {
                io::Error::other(format!("it cannot be decompressed further: {error}"))
            }
            (None, Some(error)) => error,
        };
        return drop(give.send(Err(why)));
    }
}

/// Whether a capture of so many octets is not even begun.
fn is_of_header(kind: CaptureErrorKind, len: usize) -> bool {
    matches!(kind, CaptureErrorKind::Magic | CaptureErrorKind::Version { .. })
        || len < pcap::FILE_HEADER_LEN
}

/// Some octets, or none at the end or for an error.
fn some(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (0, Some(error)),
            Ok(got) => return (got, None),
        }
    }
}

/// As many octets as there are up to the end or an error, and as there is room for.
pub fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut got = 0;
    while got < buffer.len() {
        match some(reader, &mut buffer[got..]) {
            (0, error) => return (got, error),
            (n, _) => got += n,
        }
    }
    (got, None)
}

/// By the first octets, whatever the name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    fn of(magic: &[u8]) -> Option<Compression> {
        match magic {
            [0x1F, 0x8B, ..] => Some(Compression::Gzip),
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// Between two looks whether to go on while nothing comes.
pub const LOOK_AROUND: Duration = Duration::from_millis(100);
/// Name of standard input in messages.
const STDIN: &str = "standard input";
/// Octets by which the compression is recognised.
const MAGIC: usize = 4;
/// Octets of a piece of what is not live.
const PIECE: usize = 1 << 20;
/// Octets that are read at a time of what is live: as many as a pipe holds.
const BUFFER: usize = 1 << 16;
/// Pieces that are read ahead.
const PIECES_AHEAD: usize = 2;

/// A capture error as a message with the name of the capture.
pub fn describe(name: &str, error: CaptureError) -> String {
    let hint = match error.kind {
        CaptureErrorKind::Magic => "; pcap and pcapng can be read, also compressed (gzip, zstd)",
        CaptureErrorKind::Truncated => "",
        _ => "; 'capinfos' says more",
    };
    format!("{name}: {error}{hint}")
}
