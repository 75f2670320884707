//! A segment's file, each block of which is checked before its octets are used.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::BLOCK;

/// A file and the sums of its blocks.
#[derive(Clone)]
pub(super) struct CheckedFile(Arc<Inner>);

struct Inner {
    file: File,
    length: u64,
    crcs: Vec<u32>,
    good: Vec<AtomicBool>,
}

impl CheckedFile {
    /// Opens it. `length` and `crcs` are those that were written.
    pub(super) fn open(path: &Path, length: u64, crcs: &[u32]) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?.len();
        if found != length {
            return Err(damaged(format!("it has {found} octets instead of {length}")));
        }
        let good = crcs.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(CheckedFile(Arc::new(Inner { file, length, crcs: crcs.to_vec(), good })))
    }

    /// Reads octets; blocks that were not read before are checked as a whole.
    fn read_at(&self, start: u64, to: &mut [u8]) -> io::Result<()> {
        let end = start.saturating_add(to.len() as u64);
        if end > self.0.length {
            return Err(damaged(format!("its contents end behind octet {}", self.0.length)));
        }
        if to.is_empty() {
            return Ok(());
        }
        let (first, last) = (start / BLOCK as u64, (end - 1) / BLOCK as u64);
        for block in first..=last {
            self.check(block as usize)?;
        }
        self.0.file.read_exact_at(to, start)
    }

    /// Checks all blocks.
    pub(super) fn check_all(&self) -> io::Result<()> {
        let blocks = self.0.length.div_ceil(BLOCK as u64) as usize;
        (0..blocks).try_for_each(|block| self.check(block))
    }

    fn check(&self, block: usize) -> io::Result<()> {
        let (Some(good), Some(&crc)) = (self.0.good.get(block), self.0.crcs.get(block)) else {
            return Err(damaged(format!("block {block} has no checksum")));
        };
        if good.load(Relaxed) {
            return Ok(());
        }
        let start = (block * BLOCK) as u64;
        let mut octets = vec![0; BLOCK.min((self.0.length - start) as usize)];
        self.0.file.read_exact_at(&mut octets, start)?;
        if crc32fast::hash(&octets) != crc {
            return Err(damaged(format!("the checksum of its block {block} is wrong")));
        }
        good.store(true, Relaxed);
        Ok(())
    }
}

fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Length for CheckedFile {
    fn len(&self) -> u64 {
        self.0.length
    }
}

impl ChunkReader for CheckedFile {
    type T = ReadFrom;

    fn get_read(&self, start: u64) -> Result<ReadFrom, ParquetError> {
        Ok(ReadFrom { file: self.clone(), at: start, buffer: Vec::new(), used: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(length as u64);
        if end > self.0.length {
            return Err(damaged(format!("its contents end behind octet {}", self.0.length)).into());
        }
        let mut octets = vec![0; length];
        self.read_at(start, &mut octets)?;
        Ok(octets.into())
    }
}

/// Reads on from a place.
pub(super) struct ReadFrom {
    file: CheckedFile,
    at: u64,
    buffer: Vec<u8>,
    used: usize,
}

impl Read for ReadFrom {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.used == self.buffer.len() {
            let n = (self.file.0.length.saturating_sub(self.at)).min(AHEAD) as usize;
            self.buffer.resize(n, 0);
            self.file.read_at(self.at, &mut self.buffer)?;
            (self.at, self.used) = (self.at + n as u64, 0);
        }
        let n = to.len().min(self.buffer.len() - self.used);
        to[..n].copy_from_slice(&self.buffer[self.used..self.used + n]);
        self.used += n;
        Ok(n)
    }
}

/// A page's header is shorter.
const AHEAD: u64 = 512;
