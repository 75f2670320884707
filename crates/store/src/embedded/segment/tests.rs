use std::path::PathBuf;

use super::*;
use crate::embedded::disk::HostDisk;
use crate::error::StoreError;
use crate::flow::{FlowRow, FlowSum};
use crate::interval::IntervalRow;
use crate::testing::{self, FaultyDisk, Folder, START};

fn sorted<R: StoredRow>(mut rows: Vec<R>) -> Vec<R> {
    rows.sort_by_cached_key(StoredRow::key);
    rows
}

fn write<R: StoredRow>(folder: &Folder, table: Table, rows: &[R]) -> (PathBuf, Written) {
    let path = folder.path().join("a.parquet");
    let written = write_segment(&HostDisk, &path, table, rows.iter().cloned().map(Ok)).unwrap();
    (path, written.unwrap())
}

fn read<R: StoredRow>(
    path: &std::path::Path,
    written: &Written,
    table: Table,
    range: RowRange,
    wanted: &[&str],
) -> Result<Vec<R>, StoreError> {
    let known = (written.octets, &written.crcs[..]);
    let mut reader = SegmentReader::open(path, known, table, range, wanted)?;
    let mut all = Vec::new();
    while let Some(rows) = reader.next(1_000)? {
        all.extend(rows);
    }
    Ok(all)
}

/// As a segment at the full rate has it: without the histograms of delay variation.
fn raw(mut row: IntervalRow) -> IntervalRow {
    (row.ipdv_forward, row.ipdv_backward) = Default::default();
    row
}

#[test]
fn rows_are_read_as_they_were_written() {
    let folder = Folder::new();
    let rows = sorted(testing::intervals(3, 40, 50, 8));
    let (path, written) = write(&folder, Table::Interval, &rows);
    assert_eq!((written.rows, written.series), (2_000, (0, 39)));
    assert_eq!(written.times_ns, (START, START + 49_000_000_000));
    assert_eq!(written.octets, std::fs::metadata(&path).unwrap().len());
    let back: Vec<IntervalRow> =
        read(&path, &written, Table::Interval, RowRange::ALL, &[]).unwrap();
    assert!(back.iter().eq(rows.iter().cloned().map(raw).collect::<Vec<_>>().iter()));

    // A roll-up has all columns.
    let minutes: Vec<IntervalRow> =
        rows.chunk_by(|a, b| a.series == b.series).map(IntervalRow::merged).collect();
    let (path, written) = write(&folder, Table::Interval1m, &minutes);
    let back: Vec<IntervalRow> =
        read(&path, &written, Table::Interval1m, RowRange::ALL, &[]).unwrap();
    assert_eq!(back, minutes);

    let flows = sorted(testing::flows(4, 2, 3_000, 900_000_000_000));
    let (path, written) = write(&folder, Table::Flow, &flows);
    let back: Vec<FlowRow> = read(&path, &written, Table::Flow, RowRange::ALL, &[]).unwrap();
    assert_eq!(back, flows);
    let sums = crate::flow::roll_up_flows(
        flows.iter().map(|f| f.to_sum(300_000_000_000)),
        300_000_000_000,
    );
    let (path, written) = write(&folder, Table::Flow5m, &sums);
    let back: Vec<FlowSum> = read(&path, &written, Table::Flow5m, RowRange::ALL, &[]).unwrap();
    assert_eq!(back, sums);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_sum_of_more_than_64_bits_is_kept() {
    let folder = Folder::new();
    let mut row = IntervalRow::default();
    let mut hist = sonde_results::Hist::default();
    hist.add(i64::MAX - 5);
    hist.add(i64::MAX - 9);
    row.rtt_net = HistBlob::new(&hist);
    let (path, written) = write(&folder, Table::Interval1m, &[row.clone()]);
    let back: Vec<IntervalRow> =
        read(&path, &written, Table::Interval1m, RowRange::ALL, &[]).unwrap();
    assert_eq!(back, [row]);
}

#[test]
fn only_what_is_asked_for_is_read() {
    let folder = Folder::new();
    let rows = sorted(testing::intervals(3, 10, 30, 4));
    let (path, written) = write(&folder, Table::Interval, &rows);
    let range =
        RowRange { times_ns: (START + 5_000_000_000, START + 8_000_000_000), series: (3, 4) };
    let wanted = ["series", "start", "lost"];
    let back: Vec<IntervalRow> = read(&path, &written, Table::Interval, range, &wanted).unwrap();
    let expected: Vec<IntervalRow> = rows
        .iter()
        .filter(|r| range.holds(*r))
        .map(|r| IntervalRow {
            series: r.series,
            start_ns: r.start_ns,
            lost: r.lost,
            ..IntervalRow::default()
        })
        .collect();
    assert_eq!((back.len(), &back), (6, &expected));
    let before = RowRange { times_ns: (0, START), ..RowRange::ALL };
    assert_eq!(read::<IntervalRow>(&path, &written, Table::Interval, before, &[]).unwrap(), []);
}

/// Wherever an octet is wrong, the reader says so; it never gives other rows.
#[test]
fn damage_is_found_wherever_it_is() {
    let folder = Folder::new();
    let rows = sorted(testing::intervals(3, 4, 10, 4));
    let (path, written) = write(&folder, Table::Interval, &rows);
    let octets = std::fs::read(&path).unwrap();
    for at in (0..octets.len()).step_by(1 + octets.len() / 200) {
        let mut bad = octets.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let error = read::<IntervalRow>(&path, &written, Table::Interval, RowRange::ALL, &[]);
        assert!(matches!(error, Err(StoreError::Damaged { .. })), "{at}: {error:?}");
    }
    std::fs::write(&path, &octets[..octets.len() - 7]).unwrap();
    let error = read::<IntervalRow>(&path, &written, Table::Interval, RowRange::ALL, &[]);
    assert!(error.unwrap_err().to_string().contains("octets instead of"));
    std::fs::remove_file(&path).unwrap();
    let error = read::<IntervalRow>(&path, &written, Table::Interval, RowRange::ALL, &[]);
    assert!(matches!(error, Err(StoreError::Io { .. })));
}

/// Whatever call fails for want of room, nothing is left and nothing panics.
#[test]
fn a_full_disk_leaves_no_file_behind() {
    let rows = sorted(testing::intervals(3, 4, 10, 4));
    let mut calls = 0;
    loop {
        let folder = Folder::new();
        let disk = FaultyDisk::default();
        disk.calls_until_full(calls);
        let path = folder.path().join("a.parquet");
        let written = write_segment(&disk, &path, Table::Interval, rows.iter().cloned().map(Ok));
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        match written {
            Ok(written) => {
                assert_eq!((files, written.unwrap().rows), (1, 40));
                break;
            }
            Err(error) => assert!(error.is_full() && files == 0, "{calls}: {error}"),
        }
        calls += 1;
    }
    assert!(calls > 5, "each step was tried: {calls}");
}
