//! Engine `pcap`: capture files in, capture files out.
//!
//! The file's clock is its packets' time. [`Port::now`] is the time of the latest packet handed
//! out, so that a replay gives the same results at any speed. What is sent goes into another file,
//! with nanoseconds, or nowhere. Files are in UTC, Sonde in TAI; the offset is the caller's to
//! know.

mod mapping;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sonde_wire::capture::{
    CaptureError, LINKTYPE_ETHERNET, LINKTYPE_LINUX_SLL, LINKTYPE_RAW, Reader, Record,
};
use sonde_wire::ethernet::HEADER_LEN as ETHERNET;
use sonde_wire::pcap::{MAX_CAPTURED_LEN, file_header, record_header};
use sonde_wire::{Stamp, StampSource, Time, Verdict};

pub use self::mapping::MappedFile;
use crate::{Caps, FrameDesc, Port, PortError, PortStats, RxBurst, TxBurst, TxDesc};

/// A capture file being replayed.
///
/// Every frame begins with an Ethernet header. Packets of raw IP and Linux cooked captures are
/// given one with zero addresses. Those of other link types are counted as `rx_invalid`. A frame
/// cut by the capture's snap length stays as short as it is.
pub struct PcapPort {
    // Both borrow from `_mapping`; declared, and so dropped, before it.
    reader: Reader<'static>,
    next: Option<Record<'static>>,
    _mapping: MappedFile,
    path: PathBuf,
    /// What is wrong with the file behind the packets read so far.
    broken: Option<CaptureError>,
    offset_ns: i64,
    now: Time,
    rx_memory: Box<[u8]>,
    frames: Vec<FrameDesc>,
    output: Option<Output>,
    tx_memory: Box<[u8]>,
    slots: Box<[TxDesc]>,
    used: usize,
    caps: Caps,
    stats: PortStats,
}

struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

impl PcapPort {
    /// Opens the capture file `input` (pcap or pcapng), and creates `output` for what
    /// is sent; without it, that is only counted. `tai_offset_s`: TAI - UTC, seconds.
    ///
    /// The input is mapped: it must not be shortened while it is read.
    pub fn open(input: &Path, output: Option<&Path>, tai_offset_s: i32) -> Result<Self, PortError> {
        let opening = |e| failed("opening", input, e);
        let file = File::open(input).map_err(opening)?;
        let about = file.metadata().map_err(opening)?;
        if !about.is_file() {
            return Err(PortError::Config(format!(
                "{} is not a regular file; save the capture first, then replay it",
                input.display()
            )));
        }
        if let Some(output) = output
            && std::fs::metadata(output)
                .is_ok_and(|o| (o.dev(), o.ino()) == (about.dev(), about.ino()))
        {
            return Err(PortError::Config(format!(
                "{} would be overwritten while it is read; choose another output file",
                input.display()
            )));
        }
        let mapping = MappedFile::new(&file).map_err(opening)?;
        // SAFETY: the slice goes into `reader` and the records that it returns. These are fields of
        // the same struct, hand it to nobody, and go before the mapping.
        let bytes = unsafe { mapping.bytes() };
        let reader = Reader::new(bytes).map_err(|e| broken(input, e))?;
        let slot = |i| TxDesc { offset: i * MAX_FRAME, capacity: MAX_FRAME, len: 0, cookie: 0 };
        let mut port = PcapPort {
            reader,
            next: None,
            _mapping: mapping,
            path: input.to_owned(),
            broken: None,
            offset_ns: i64::from(tai_offset_s) * 1_000_000_000,
            now: Time::ZERO,
            rx_memory: vec![0; RX_MEMORY].into(),
            frames: Vec::with_capacity(BURST),
            output: output.map(Output::create).transpose()?,
            tx_memory: vec![0; BURST * MAX_FRAME].into(),
            slots: (0..BURST).map(slot).collect(),
            used: 0,
            caps: Caps {
                engine: "pcap",
                mode: format!("replay of {}", input.display()),
                rx_stamp: StampSource::File,
                tx_stamp: StampSource::User,
                max_frame: MAX_FRAME,
                link_layer: true,
            },
            stats: PortStats::default(),
        };
        port.step();
        if let Some(first) = &port.next {
            port.now = port.time_of(first);
        }
        Ok(port)
    }

    /// Whether all packets have been handed out, and what is wrong with the file, if
    /// anything, has been reported.
    pub fn finished(&self) -> bool {
        self.next.is_none() && self.broken.is_none()
    }

    /// Fetches the next packet.
    fn step(&mut self) {
        let before = self.reader.skipped().packets();
        self.next = match self.reader.next() {
            Some(Ok(record)) => Some(record),
            Some(Err(error)) => {
                self.broken = Some(error);
                None
            }
            None => None,
        };
        self.stats.rx_invalid += self.reader.skipped().packets() - before;
    }

    fn time_of(&self, record: &Record<'_>) -> Time {
        Time::from_nanos(record.unix_nanos) + self.offset_ns
    }

    /// Writes the frames of the last burst whose verdict was to transmit, each at the time when it
    /// was received. So the output does not depend on how they were bundled.
    fn act_on_verdicts(&mut self) -> Result<(), PortError> {
        for d in self.frames.drain(..) {
            if let Verdict::Transmit { .. } = d.verdict {
                let frame = &self.rx_memory[d.offset..d.offset + d.len];
                let utc = d.stamp.at - self.offset_ns;
                write(&mut self.output, &mut self.stats, utc, frame)?;
            }
        }
        Ok(())
    }

    fn flush_output(&mut self) -> Result<(), PortError> {
        match &mut self.output {
            Some(output) => output.file.flush().map_err(|e| failed("writing", &output.path, e)),
            None => Ok(()),
        }
    }
}

impl Port for PcapPort {
    /// The next packets. What is wrong with the file is reported once, after all
    /// packets before it.
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        self.act_on_verdicts()?;
        let mut offset = 0;
        while self.frames.len() < BURST
            && let Some(record) = self.next
        {
            let Some((made_up, bytes)) = as_ethernet(&record) else {
                self.stats.rx_invalid += 1;
                self.step();
                continue;
            };
            let header = if made_up.is_some() { ETHERNET } else { 0 };
            let len = header + bytes.len();
            let Some(room) = self.rx_memory.get_mut(offset..offset + len) else {
                if self.frames.is_empty() {
                    self.stats.rx_invalid += 1; // Larger than any frame.
                    self.step();
                    continue;
                }
                break;
            };
            if let Some(ethertype) = made_up {
                room[..12].fill(0);
                room[12..ETHERNET].copy_from_slice(&ethertype);
            }
            room[header..].copy_from_slice(bytes);
            let at = self.time_of(&record);
            let stamp = Stamp { at, source: StampSource::File };
            let wire_len = len.max(header + record.original_len as usize);
            let verdict = Verdict::Release;
            self.frames.push(FrameDesc { offset, len, wire_len, segment: 0, stamp, verdict });
            // Files merged of several captures may step back a little; time does not.
            self.now = self.now.max(at);
            offset += len;
            self.step();
        }
        if self.frames.is_empty()
            && let Some(error) = self.broken.take()
        {
            return Err(broken(&self.path, error));
        }
        self.stats.rx_frames += self.frames.len() as u64;
        Ok(RxBurst::new(&mut self.rx_memory, &mut self.frames, &[]))
    }

    fn tx(&mut self) -> TxBurst<'_> {
        self.stats.tx_full += u64::from(self.used == self.slots.len());
        TxBurst::new(&mut self.tx_memory, &mut self.slots, &mut self.used)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.act_on_verdicts()?;
        let utc = self.now - self.offset_ns;
        for d in &self.slots[..std::mem::take(&mut self.used)] {
            let frame = &self.tx_memory[d.offset..d.offset + d.len];
            write(&mut self.output, &mut self.stats, utc, frame)?;
        }
        self.flush_output()
    }

    /// Returns at once: a file has its packets ready.
    fn wait(&mut self, _until: Time) -> Result<(), PortError> {
        Ok(())
    }

    fn now(&self) -> Time {
        self.now
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn stats(&mut self) -> PortStats {
        self.stats
    }
}

impl Output {
    fn create(path: &Path) -> Result<Self, PortError> {
        let new = || {
            let mut file = BufWriter::new(File::create(path)?);
            file.write_all(&file_header(LINKTYPE_ETHERNET, MAX_CAPTURED_LEN))?;
            file.flush()?;
            Ok(file)
        };
        let file = new().map_err(|e| failed("creating", path, e))?;
        Ok(Output { path: path.to_owned(), file })
    }
}

/// One frame into the output, if there is one.
fn write(
    output: &mut Option<Output>,
    stats: &mut PortStats,
    utc: Time,
    frame: &[u8],
) -> Result<(), PortError> {
    if let Some(output) = output {
        let Ok(header) = record_header(utc.as_nanos(), frame.len(), frame.len() as u32) else {
            stats.tx_dropped += 1; // The format knows only the years 1970 to 2106.
            return Ok(());
        };
        let written = output.file.write_all(&header).and_then(|()| output.file.write_all(frame));
        written.map_err(|e| failed("writing", &output.path, e))?;
    }
    stats.tx_frames += 1;
    Ok(())
}

/// The EtherType of the header to be made up, if there is none, and what follows it.
/// `None`: a link type that is not known.
fn as_ethernet<'a>(record: &Record<'a>) -> Option<(Option<[u8; 2]>, &'a [u8])> {
    let data = record.data;
    match record.link_type {
        LINKTYPE_ETHERNET => Some((None, data)),
        LINKTYPE_RAW => match data.first()? >> 4 {
            4 => Some((Some([0x08, 0x00]), data)),
            6 => Some((Some([0x86, 0xdd]), data)),
            _ => None,
        },
        // Packet type, address type and length, address of eight bytes, EtherType.
        LINKTYPE_LINUX_SLL => Some((Some([*data.get(14)?, *data.get(15)?]), &data[16..])),
        _ => None,
    }
}

fn broken(path: &Path, error: CaptureError) -> PortError {
    failed("reading", path, io::Error::new(io::ErrorKind::InvalidData, error))
}

fn failed(doing: &str, path: &Path, source: io::Error) -> PortError {
    let hint = match source.kind() {
        io::ErrorKind::StorageFull => "; free some space there",
        io::ErrorKind::PermissionDenied => "; check who may access it with 'ls -l'",
        io::ErrorKind::InvalidData => "; 'capinfos' says more",
        _ => "",
    };
    PortError::io(format!("{doing} {}", path.display()), source, hint)
}

const BURST: usize = 64;
/// For one burst; more than any frame is long.
const RX_MEMORY: usize = 1 << 20;
const MAX_FRAME: usize = 9216;
