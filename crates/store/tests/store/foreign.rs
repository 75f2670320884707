//! Other people's programs read the segments while a station writes: the recipes of docs/store.md.
//!
//! `scripts/interop.sh` installs them and sets `SONDE_STORE_PYTHON` to their Python.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sonde_store::{Store, StoreOptions, Writer};

use crate::faults::{ROWS, batch, skipped};
use crate::support::script::BASE_NS;
use crate::support::{Folder, options};

/// Reads with both, in turn, until it has seen the store grow; what it sees is whole batches.
const READ: &str = r#"
import sqlite3, sys
import duckdb, pyarrow.dataset as ds

folder, rows = sys.argv[1], int(sys.argv[2])
print(duckdb.__version__, flush=True)
seen = set()
for _ in range(5000):
    if len(seen) == 3:
        break
    try:
        # The recipe of docs/store.md: what the catalogue lists, all of one instant.
        con = duckdb.connect()
        cat = sqlite3.connect(f"file:{folder}/catalogue.db?mode=ro", uri=True)
        files = [folder + "/" + p for (p,) in cat.execute("SELECT path FROM segment WHERE tab = 'iv'")]
        if not files:
            continue
        d = con.execute("SELECT count(*), sum(sent), min(epoch_ns(start)) FROM read_parquet(?, union_by_name=true)", [files]).fetchone()
        table = ds.dataset(files, format="parquet").to_table(columns=["sent", "start", "rtt_net_count"])
    except (duckdb.IOException, OSError, sqlite3.OperationalError):
        continue  # compacted away since: ask again
    assert table.num_rows == d[0], (table.num_rows, d)
    assert d[0] % rows == 0 and d[1] > 0, d
    assert str(table.schema.field("start").type) == "timestamp[ns, tz=UTC]", table.schema
    seen.add(d[0])
assert len(seen) == 3, f"it does not grow: {seen}"
print("seen", sorted(seen), flush=True)
"#;

#[test]
fn duckdb_and_pyarrow_read_segments_while_a_store_is_written() {
    let test = "duckdb_and_pyarrow_read_segments_while_a_store_is_written";
    let Some(python) = std::env::var_os("SONDE_STORE_PYTHON") else {
        return skipped(
            test,
            "no SONDE_STORE_PYTHON; 'scripts/interop.sh' installs DuckDB and pyarrow",
        );
    };
    let folder = Folder::new("foreign");
    let store = Store::open(folder.path(), StoreOptions { seal_rows: 400, ..options() }).unwrap();
    store.register(&Default::default()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let written = AtomicU64::new(0);
    let out = std::thread::scope(|scope| {
        scope.spawn(|| write(&store, &done, &written));
        let out = read(Path::new(&python), folder.path());
        done.store(true, Ordering::Relaxed);
        out
    });
    let text = String::from_utf8_lossy(&out.stdout);
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("seen ["), "{text}\n{why}");
    println!("{text} of {} batches", written.load(Ordering::Relaxed));
}

fn read(python: &Path, folder: &Path) -> std::process::Output {
    let mut command = Command::new(python);
    command.args(["-c", READ]).arg(folder).arg(ROWS.to_string()).stdin(Stdio::null());
    command.output().unwrap()
}

fn write(store: &Store, done: &AtomicBool, written: &AtomicU64) {
    let mut writer = store.writer().unwrap();
    for number in 1..200_000u64 {
        if done.load(Ordering::Relaxed) {
            return;
        }
        writer.append(&batch(number)).unwrap();
        writer.sync().unwrap();
        written.store(number, Ordering::Relaxed);
        if number % 20 == 0 {
            store.flush().unwrap();
            store.maintain(BASE_NS + number as i64 * 60_000_000_000, None).unwrap();
        }
    }
}
