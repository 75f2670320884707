use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::super::disk::HostDisk;
use super::super::names::JOURNAL;
use super::super::{Store, StoreOptions};
use super::*;
use crate::batch::{Batch, Rows};
use crate::series::SeriesLabels;
use crate::testing::{self, Folder};
use crate::{MINUTE_NS, Writer as _};

const MODE: u32 = 0o7777;

fn options() -> StoreOptions {
    StoreOptions { reserve_octets: 10_000, ..StoreOptions::default() }
}

/// A store in `folder` with segments of one batch.
fn make(folder: &Path) {
    let store = Store::open(folder, options()).unwrap();
    write(&store);
    store.flush().unwrap();
}

fn write(store: &Store) {
    for target in 0..4 {
        let target = format!("t{target}");
        store.register(&SeriesLabels { target, ..SeriesLabels::default() }).unwrap();
    }
    let rows = Rows::Intervals(testing::intervals(1, 4, 30, 5));
    let number = store.last_batch("probe") + 1;
    let mut writer = store.writer().unwrap();
    writer.append(&Batch { writer: "probe".into(), number, rows: rows.into() }).unwrap();
    writer.sync().unwrap();
}

/// Files of somebody else, some of them with names as the store gives.
fn victim(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let day = folder.join("iv/2026-11-25");
    fs::create_dir_all(&day).unwrap();
    fs::create_dir_all(folder.join("a/b")).unwrap();
    fs::create_dir_all(folder.join("2026-11-25")).unwrap();
    for name in [
        "passwd",
        "a/one",
        "a/b/two",
        "0000000001.journal",
        "2026-11-25/23-0000000007.parquet",
        "23-0000000007.parquet",
        "iv/2026-11-25/23-0000000007.parquet",
        "iv/2026-11-25/23-0000000007.tmp",
    ] {
        fs::write(folder.join(name), name).unwrap();
    }
    contents(folder)
}

/// All below a folder, through no link.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for (path, _) in entries(folder).unwrap() {
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            all.insert(path.clone(), Vec::new());
            all.extend(contents(&path));
        } else {
            all.insert(path.clone(), fs::read(&path).unwrap_or_default());
        }
    }
    all
}

#[test]
fn a_store_whose_folders_are_links_is_refused_and_nothing_changes_behind_them() {
    for link in ["seg", "seg/iv", "seg/iv/2026-11-25", "journal", "damaged"] {
        let outside = Folder::new();
        let before = victim(outside.path());
        let folder = Folder::new();
        let own = folder.path().join("store");
        make(&own);
        let linked = own.join(link);
        fs::create_dir_all(&linked).unwrap();
        fs::rename(&linked, folder.path().join("moved")).unwrap();
        symlink(outside.path(), &linked).unwrap();
        let error = Store::open(&own, options()).err().unwrap();
        let StoreError::Linked { path } = &error else { panic!("{link}: {error}") };
        assert_eq!(path, &linked);
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(contents(outside.path()), before, "{link}");
        assert!(linked.is_symlink(), "it is left");
        // With the folder back in its place it goes on.
        fs::remove_file(&linked).unwrap();
        fs::rename(folder.path().join("moved"), &linked).unwrap();
        let store = Store::open(&own, options()).unwrap();
        assert_eq!((store.recovery().set_aside, store.recovery().foreign), (0, 0), "{link}");
    }
}

#[test]
fn a_link_that_comes_while_the_store_works_is_not_followed() {
    for link in ["seg", "seg/iv", "seg/iv1m", "journal"] {
        let outside = Folder::new();
        let before = victim(outside.path());
        let folder = Folder::new();
        let own = folder.path().join("store");
        let store = Store::open(&own, options()).unwrap();
        write(&store);
        store.flush().unwrap();
        write(&store);
        let linked = own.join(link);
        fs::rename(&linked, folder.path().join("moved")).unwrap();
        symlink(outside.path(), &linked).unwrap();
        let failed = store.flush().is_err();
        assert!(failed || link == "journal", "{link}: it went into the link");
        let all = store.shared.segment_infos().iter().map(|s| s.id).collect();
        let _ = store.shared.give_up(all);
        let _ = store.maintain(testing::START + 400 * crate::DAY_NS, Some(0));
        let _ = store.maintain(testing::START + 400 * crate::DAY_NS + MINUTE_NS, Some(0));
        drop(store);
        assert_eq!(contents(outside.path()), before, "{link}");
    }
}

#[test]
fn files_that_are_links_are_not_written_through() {
    for name in
        ["lock", "reserve", "catalogue.db", "catalogue.db-wal", "journal/0000000001.journal"]
    {
        let outside = Folder::new();
        let kept = outside.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        let folder = Folder::new();
        fs::create_dir_all(folder.path().join("journal")).unwrap();
        symlink(&kept, folder.path().join(name)).unwrap();
        let opened = Store::open(folder.path(), options());
        // Without the reserve the store works; all others are needed.
        assert_eq!(opened.is_ok(), name == "reserve", "{name}");
        if let Ok(store) = opened {
            let _ = store.maintain(testing::START, None);
        }
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept", "{name}");
        assert!(folder.path().join(name).is_symlink(), "{name}");
    }
}

#[test]
fn what_the_store_did_not_make_is_left_and_told_of() {
    let folder = Folder::new();
    make(folder.path());
    let day = entries(&folder.path().join("seg/iv")).unwrap().remove(0).0;
    let seg = folder.path().join("seg");
    fs::create_dir_all(seg.join("mine/2026-11-25")).unwrap();
    let foreign = [
        seg.join("notes.txt"),
        seg.join("mine/2026-11-25/00-0000000009.parquet"),
        day.join("notes.txt"),
        day.join("00-9.parquet"),
    ];
    for path in &foreign {
        fs::write(path, "mine").unwrap();
    }
    symlink(folder.path(), day.join("00-0000000009.parquet")).unwrap();
    // What a crash leaves is the store's own.
    for name in ["00-0000000900.tmp", "00-0000000900.parquet"] {
        fs::write(day.join(name), "half").unwrap();
    }
    let store = Store::open(folder.path(), options()).unwrap();
    let recovery = store.recovery();
    assert_eq!((recovery.orphans, recovery.foreign, recovery.set_aside), (2, 5, 0));
    assert!(recovery.foreign_example.is_some());
    assert!(!day.join("00-0000000900.tmp").exists() && !day.join("00-0000000900.parquet").exists());
    for path in &foreign {
        assert_eq!(fs::read_to_string(path).unwrap(), "mine");
    }
    assert!(day.join("00-0000000009.parquet").is_symlink());
}

#[test]
fn the_folder_itself_may_be_reached_by_a_link() {
    let folder = Folder::new();
    make(&folder.path().join("disk"));
    let link = folder.path().join("store");
    symlink(folder.path().join("disk"), &link).unwrap();
    let store = Store::open(&link, options()).unwrap();
    assert_eq!(store.recovery().set_aside, 0);
    write(&store);
    store.flush().unwrap();
}

fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let paths = contents(folder).into_keys().chain([folder.to_owned()]);
    paths.map(|p| (p.clone(), fs::metadata(p).unwrap().permissions().mode() & MODE)).collect()
}

#[test]
fn files_are_for_owner_and_group_and_an_earlier_store_is_closed_to_others() {
    let outside = Folder::new();
    let own = outside.path().join("a/store");
    let store = Store::open(&own, options()).unwrap();
    write(&store);
    store.flush().unwrap();
    write(&store);
    store.maintain(testing::START, None).unwrap();
    let check = |when: &str| {
        for (path, mode) in modes(&own) {
            assert_eq!(mode & OTHERS, 0, "{when}: {} has {mode:o}", path.display());
        }
    };
    check("new");
    drop(store);
    for (path, _) in modes(&own) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let store = Store::open(&own, options()).unwrap();
    check("of an earlier version");
    drop(store);
    // A folder that is not the store's alone keeps its mode.
    fs::write(own.join("mine.txt"), "").unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    drop(Store::open(&own, options()).unwrap());
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & MODE, 0o755);
}

#[test]
fn the_disk_takes_away_only_what_the_store_makes() {
    let folder = Folder::new();
    let root = folder.path();
    let disk = OwnFiles::new(Arc::new(HostDisk), root, &root.join(JOURNAL));
    for other in ["passwd", "seg/iv/notes.txt", "journal/notes.txt", "damaged/x.parquet"] {
        let path = root.join(other);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "kept").unwrap();
        assert!(disk.remove(&path).is_err(), "{other}");
        assert!(disk.rename(&path, &root.join("x")).is_err(), "{other}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
    assert!(disk.remove(&root.join("../passwd")).is_err());
    assert!(disk.remove(Path::new("/nonexistent/0000000001.journal")).is_err());
    let own = root.join("journal/0000000001.journal");
    fs::write(&own, "").unwrap();
    disk.remove(&own).unwrap();
    assert!(!own.exists());
    // A folder of a file's name is not taken away either.
    fs::create_dir(&own).unwrap();
    assert!(disk.remove(&own).is_err() && own.is_dir());
}
