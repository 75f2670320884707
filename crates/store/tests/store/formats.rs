//! Stores as earlier versions wrote them: each is read, brought up to date and written on.
//!
//! `formats/N` is a store of schema N, `formats/N.test` what was put into it and what it answers.
//! `SONDE_MAKE_FORMAT=1` writes the store of the present schema where there is none; a released one is
//! never made again.

use std::path::{Path, PathBuf};

use sonde_store::embedded::SCHEMA_VERSION;
use sonde_store::{EmbeddedReader, Limit, Query, Reader, Store};

use crate::queries::load;
use crate::support::script::{BASE_NS, Script, parse};
use crate::support::{Folder, model, options, render::render};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

fn script(version: u32) -> Script {
    parse(&std::fs::read_to_string(folder().join(format!("{version}.test"))).unwrap())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Segments at the full rate and of roll-ups, and rows that are in the journal only.
fn make(path: &Path, script: &Script) {
    let store = Store::open(path, options()).unwrap();
    let mut batches = 0;
    load(&store, script, 2, || {
        batches += 1;
        if batches == 5 {
            store.flush().unwrap();
            store.maintain(BASE_NS + 2 * sonde_store::HOUR_NS, None).unwrap();
        }
    });
}

#[test]
fn stores_of_every_version_are_read_and_written_on() {
    for version in 1..=SCHEMA_VERSION {
        let script = script(version);
        let committed = folder().join(version.to_string());
        if version == SCHEMA_VERSION
            && !committed.exists()
            && std::env::var_os("SONDE_MAKE_FORMAT").is_some()
        {
            make(&committed, &script);
        }
        assert!(script.questions.len() > 5);
        let own = Folder::new(&format!("format-{version}"));
        copy(&committed, own.path());
        let check = |state: &str, ask: &dyn Fn(&Query) -> String| {
            for q in &script.questions {
                let at = format!("{state}, format {version}, line {}: {}", q.line, q.text);
                assert_eq!(render(&model::answer(&script, &q.query)), q.expected, "model, {at}");
                assert_eq!(ask(&q.query), q.expected, "{at}");
            }
        };
        let ask = |reader: &EmbeddedReader, query: &Query| {
            render(&reader.query(query, &Limit::default()).unwrap().answer)
        };
        let reader = EmbeddedReader::open(own.path(), None).unwrap();
        check("read beside its writer", &|query| ask(&reader, query));
        let store = Store::open(own.path(), options()).unwrap();
        assert!(store.recovery().batches > 0 && store.recovery().set_aside == 0);
        check("opened", &|query| ask(&store.reader(), query));
        store.flush().unwrap();
        store.maintain(BASE_NS + 1_000 * sonde_store::DAY_NS, None).unwrap();
        check("rolled up and compacted", &|query| ask(&store.reader(), query));
        drop(store);
        let store = Store::open(own.path(), options()).unwrap();
        check("opened again", &|query| ask(&store.reader(), query));
    }
}
