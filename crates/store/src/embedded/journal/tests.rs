use proptest::prelude::*;

use super::*;
use crate::batch::Rows;
use crate::embedded::disk::HostDisk;
use crate::testing::{self, Folder};

fn batch(number: u64, rows: usize) -> Batch {
    let rows = Rows::Intervals(testing::intervals(number, rows as u32, 1, 3));
    Batch { writer: "probe".into(), number, rows: rows.into() }
}

/// A journal of frames of so many batches, with the octets after each frame.
fn written(folder: &Folder, frames: &[usize]) -> (Vec<u8>, Vec<usize>, Vec<(u64, Batch)>) {
    let mut journal = Journal::begin(Arc::new(HostDisk), folder.path(), 1).unwrap();
    let (mut ends, mut all) = (vec![], vec![]);
    for &n in frames {
        let first = all.len() as u64 + 1;
        let batches: Vec<Batch> = (0..n as u64).map(|i| batch(first + i, 2)).collect();
        journal.write(first, &batches).unwrap();
        ends.push(journal.length() as usize);
        all.extend((first..).zip(batches));
    }
    (fs::read(journal_path(folder.path(), 1)).unwrap(), ends, all)
}

#[test]
fn frames_are_read_back_and_files_follow_each_other() {
    let folder = Folder::new();
    let (octets, _, all) = written(&folder, &[1, 3, 0]);
    let content = read_journal(&journal_path(folder.path(), 1)).unwrap();
    assert_eq!(content.batches, all);
    assert_eq!((content.length, content.torn, content.damaged), (octets.len() as u64, 0, 0));
    let mut journal = Journal::begin(Arc::new(HostDisk), folder.path(), 4).unwrap();
    journal.rotate().unwrap();
    assert_eq!(journal_files(folder.path()).unwrap(), [1, 4, 5]);
}

/// Cut at every octet: the frames before are there, nothing else is.
#[test]
fn a_torn_end_is_cut_at_every_octet() {
    let folder = Folder::new();
    let (octets, ends, all) = written(&folder, &[1, 2, 1]);
    for cut in 0..=octets.len() {
        let content = parse_journal(&octets[..cut]).unwrap();
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let kept = [0, 1, 3, 4][whole];
        assert_eq!(content.batches, all[..kept], "cut at {cut}");
        let length = if whole == 0 { 0 } else { ends[whole - 1] };
        assert_eq!(content.length, length as u64, "cut at {cut}");
        assert_eq!((content.torn, content.damaged), ((cut - length) as u64, 0));
    }
}

/// Garbled at every octet: the frame that it hits is lost, all others are there.
#[test]
fn damage_costs_the_frame_that_it_hits() {
    let folder = Folder::new();
    let (octets, ends, all) = written(&folder, &[1, 2, 1]);
    let of_frame = [0..1, 1..3, 3..4];
    for at in 0..octets.len() {
        let mut bad = octets.clone();
        bad[at] ^= 0x40;
        let content = parse_journal(&bad).unwrap();
        let hit = ends.iter().position(|&end| at < end).unwrap();
        let mut expected = all.clone();
        expected.drain(of_frame[hit].clone());
        assert_eq!(content.batches, expected, "garbled at {at}");
        let lost = (ends[hit] - if hit == 0 { 0 } else { ends[hit - 1] }) as u64;
        // A last frame whose length grew looks as one that was being written.
        let begin = ends[1];
        let grew = hit == 2 && (begin..begin + 4).contains(&at) && bad[at] > octets[at];
        let (torn, damaged) = if grew { (lost, 0) } else { (0, lost) };
        assert_eq!((content.torn, content.damaged), (torn, damaged), "garbled at {at}");
    }
}

/// All from some octet on is garbled: that is no crash.
#[test]
fn a_garbled_end_is_damage_and_room_without_octets_is_not() {
    let folder = Folder::new();
    let (octets, ends, all) = written(&folder, &[1, 2, 1]);
    let mut bad = octets.clone();
    bad[ends[0] + 20..].iter_mut().for_each(|octet| *octet ^= 0x55);
    let content = parse_journal(&bad).unwrap();
    assert_eq!(content.batches, all[..1]);
    assert_eq!((content.torn, content.damaged), (0, (octets.len() - ends[0]) as u64));
    let mut unwritten = octets.clone();
    unwritten[ends[1] + 20..].fill(0);
    let content = parse_journal(&unwritten).unwrap();
    assert_eq!(content.batches, all[..3]);
    assert_eq!((content.torn, content.damaged), ((octets.len() - ends[1]) as u64, 0));
}

#[test]
fn a_frame_of_a_later_version_is_refused_and_not_lost() {
    let folder = Folder::new();
    let (mut octets, ..) = written(&folder, &[1]);
    let payload = zstd::bulk::compress(&[9, 1, 0], 1).unwrap();
    octets.extend((payload.len() as u32).to_le_bytes());
    octets.extend(crc32fast::hash(&payload).to_le_bytes());
    octets.extend(payload);
    let path = journal_path(folder.path(), 2);
    fs::write(&path, octets).unwrap();
    let error = read_journal(&path).unwrap_err();
    assert!(
        matches!(&error, StoreError::Newer { what, .. } if what.contains("version 9")),
        "{error}"
    );
}

/// After a write that failed half way, the next frame is read all the same.
#[test]
fn a_write_that_fails_leaves_no_half_frame_in_the_way() {
    use crate::testing::FaultyDisk;
    for truncate_fails in [false, true] {
        let folder = Folder::new();
        let disk = Arc::new(FaultyDisk::default());
        let mut journal = Journal::begin(disk.clone(), folder.path(), 1).unwrap();
        journal.write(1, &[batch(1, 2)]).unwrap();
        disk.room_for(40);
        disk.truncate_fails(truncate_fails);
        let error = journal.write(2, &[batch(2, 9)]).unwrap_err();
        assert!(error.is_full(), "{error}");
        disk.room_for(u64::MAX);
        journal.write(2, &[batch(2, 9)]).unwrap();
        let mut all = vec![];
        for number in journal_files(folder.path()).unwrap() {
            all.extend(read_journal(&journal_path(folder.path(), number)).unwrap().batches);
        }
        assert_eq!(all, [(1, batch(1, 2)), (2, batch(2, 9))]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What a crash may leave: the durable frames, then any part of what was being written, then
    /// what the disk held there before.
    #[test]
    fn nothing_durable_is_lost_in_a_crash(
        frames in prop::collection::vec(0usize..3, 1..5),
        durable in any::<prop::sample::Index>(),
        part in any::<prop::sample::Index>(),
        old in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let folder = Folder::new();
        let (octets, ends, all) = written(&folder, &frames);
        let durable = durable.index(frames.len());
        let synced = ends[durable];
        let next = ends.get(durable + 1).copied().unwrap_or(synced);
        let reached = synced + part.index(next - synced + 1);
        let image = [&octets[..reached], &old[..]].concat();
        let content = parse_journal(&image).unwrap();
        let kept = frames[..=durable].iter().sum::<usize>();
        prop_assert!(content.batches.len() >= kept);
        prop_assert_eq!(&content.batches[..], &all[..content.batches.len()], "in order, none torn");
    }

    #[test]
    fn arbitrary_octets_do_no_harm(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_journal(&octets);
        let _ = parse_journal(&[&40u32.to_le_bytes(), &octets[..]].concat());
    }
}
