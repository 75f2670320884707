//! What can be read while a run goes on, and after it has ended in whatever way.

use std::fs::File;
use std::net::Ipv4Addr;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use sonde_results::flow::{FlowEnd, FlowKey, FlowSide};

use super::*;
use crate::flow::export::segments::tests::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).unwrap();
    folder
}

const NEVER: Duration = Duration::MAX;

fn records(count: u16) -> Vec<FlowRecord> {
    let record = |source_port| FlowRecord {
        key: FlowKey {
            point: 0,
            vlan: 0,
            protocol: 17,
            source: Ipv4Addr::LOCALHOST.into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            source_port,
            destination_port: 53,
        },
        forward: FlowSide { packets: 1, bytes: 28, ..FlowSide::default() },
        reverse: FlowSide::default(),
        end: FlowEnd::Idle,
        extra: None,
    };
    (0..count).map(record).collect()
}

/// Rows of every file that is called one, in the order of their names.
fn rows(folder: &Folder) -> Vec<i64> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "parquet"));
    paths.sort_by_key(|path| path.file_stem().unwrap().to_owned());
    let rows = |path| {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        reader.metadata().file_metadata().num_rows()
    };
    paths.into_iter().map(rows).collect()
}

#[test]
fn a_run_that_is_killed_has_lost_its_last_part_at_most() {
    let folder = folder();
    let path = folder.0.join("a.parquet");
    let limits = FileLimits { every: Duration::ZERO, rows: u64::MAX };
    let mut files = ParquetFiles::create(&path, 0, limits).unwrap();
    // Nothing yet, and no empty file for it.
    files.tick(0, &ExportStats::default());
    assert_eq!(rows(&folder), [0i64; 0]);
    for count in [3, 5] {
        files.records(&records(count), 0);
        files.tick(0, &ExportStats::default());
    }
    assert_eq!(rows(&folder), [3, 5]);
    files.records(&records(7), 0);
    // Killed: nobody finishes it.
    std::mem::forget(files);
    assert_eq!(rows(&folder), [3, 5]);
    let again = ParquetFiles::create(&path, 0, limits).err().unwrap().to_string();
    assert!(again.contains("a-0002.parquet is of an earlier run"), "{again}");
}

#[test]
fn rows_are_bounded_and_all_are_there_in_the_end() {
    let (folder, short) = (folder(), folder());
    let path = folder.0.join("a.parquet");
    let mut files = ParquetFiles::create(&path, 0, FileLimits { every: NEVER, rows: 10 }).unwrap();
    for _ in 0..3 {
        files.records(&records(12), 0);
        files.write();
    }
    files.records(&records(4), 0);
    files.finish(0, &ExportStats::default());
    assert_eq!(rows(&folder), [12, 12, 12, 4]);
    assert_eq!((files.lost(), files.total().counters["files"]), (0, 4));
    // A short run is one file, also an empty one.
    let path = short.0.join("b.parquet");
    let mut files = ParquetFiles::create(&path, 0, FileLimits { every: NEVER, rows: 10 }).unwrap();
    files.finish(0, &ExportStats::default());
    drop(files);
    assert_eq!((rows(&short), fs::read_dir(&short.0).unwrap().count()), (vec![0], 1));
}

/// What cannot be written is counted, and what comes later has another chance.
#[test]
fn a_part_that_fails_is_lost_and_the_next_is_begun() {
    let folder = folder();
    let path = folder.0.join("a.parquet");
    let mut files = ParquetFiles::create(&path, 0, FileLimits { every: NEVER, rows: 1 }).unwrap();
    files.records(&records(2), 0);
    files.write();
    // At the path of the next part is something that is no file.
    fs::create_dir(folder.0.join("a-0002.parquet.part")).unwrap();
    files.records(&records(3), 0);
    files.write();
    fs::remove_dir(folder.0.join("a-0002.parquet.part")).unwrap();
    files.records(&records(4), 0);
    files.finish(0, &ExportStats::default());
    assert_eq!((rows(&folder), files.lost()), (vec![2, 4], 3));
}
