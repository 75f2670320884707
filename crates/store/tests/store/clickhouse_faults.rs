//! What a spool in front of ClickHouse can meet: its station is killed, a second one wants it, a lot is
//! damaged.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sonde_store::query::{EventList, TimeRange};
use sonde_store::{
    ClickHouseOptions, ClickHouseServer, ClickHouseStore, Query, StoreBackend as _, StoreError,
};

use crate::clickhouse::{SAME_STATEMENT_RUNS, ask, holds, labels, options, write};
use crate::clickhouse_server::Server;
use crate::support::script::BASE_NS;

/// Lots of 40 batches.
fn small_lots(server: &ClickHouseServer) -> ClickHouseOptions {
    ClickHouseOptions { seal_rows: 400, ..options(server, "ber") }
}

/// Writes until it is killed, and says which batch is durable. Lots are sent meanwhile.
#[test]
fn writer_into_a_spool_that_is_killed() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (url, folder) = told.split_once(' ').unwrap();
    let options = small_lots(&ClickHouseServer::parse(url).unwrap());
    let store = ClickHouseStore::open(Path::new(folder), options).unwrap();
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    std::thread::scope(|scope| {
        // What was cut off may still run at the server: the same statement is refused until then.
        let upkeep = || {
            loop {
                drop(store.maintain(BASE_NS, None));
            }
        };
        scope.spawn(upkeep);
        let first = store.last_batch("it") + 1;
        for number in first..first + MOST {
            write(&store, series, number).unwrap();
            println!("durable {number}");
        }
        loop {
            std::thread::park();
        }
    });
}

#[test]
fn twenty_kills_of_a_station_lose_nothing_that_was_durable_and_have_each_row_once() {
    let test = "twenty_kills_of_a_station_lose_nothing_that_was_durable_and_have_each_row_once";
    let Some(server) = Server::start(test) else { return };
    let (database, folder) = (server.database("killed"), server.spool("ber"));
    let told = format!("http://127.0.0.1:{}/killed {}", server.port(), folder.display());
    let part = ["--exact", "clickhouse_faults::writer_into_a_spool_that_is_killed", "--nocapture"];
    let mut last = 0;
    for round in 0..20 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(part).env(CHILD, &told).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // The test harness writes without an end of line, too.
        let number = |line: String| line.rsplit_once("durable ")?.1.trim().parse::<u64>().ok();
        let mut durable = lines.filter_map(number);
        let seen = durable.by_ref().nth((round * 37) % MOST as usize).unwrap();
        // One batch more may be there than was said.
        assert!(seen > last, "round {round}: {seen} after {last}");
        if round == 0 {
            let second = ClickHouseStore::open(&folder, small_lots(&database)).err().unwrap();
            assert!(matches!(second, StoreError::Locked { .. }), "{second}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        last = durable.last().unwrap_or(seen);
    }
    let store = ClickHouseStore::open(&folder, small_lots(&database)).unwrap();
    let known = store.last_batch("it");
    assert!((last..=last + 1).contains(&known), "{known} of {last}");
    while let Err(error) = store.flush() {
        let runs = matches!(error, StoreError::Refused { code: SAME_STATEMENT_RUNS, .. });
        assert!(runs, "{error}");
    }
    assert_eq!(store.spool_octets(), 0);
    holds(&database, known);
}

#[test]
fn a_damaged_lot_costs_its_own_rows_and_is_told_of() {
    let test = "a_damaged_lot_costs_its_own_rows_and_is_told_of";
    let Some(server) = Server::start(test) else { return };
    let (database, folder) = (server.database("damaged"), server.spool("ber"));
    let open = || ClickHouseStore::open(&folder, options(&database, "ber")).unwrap();
    {
        let store = open();
        let series = store.register_all(&[labels("a")]).unwrap()[0];
        (1..=3).for_each(|number| write(&store, series, number).unwrap());
    }
    let files = std::fs::read_dir(folder.join("journal")).unwrap().map(|e| e.unwrap().path());
    let lot: PathBuf = files.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut octets = std::fs::read(&lot).unwrap();
    // In the second of three batches.
    let middle = octets.len() / 2;
    octets[middle] ^= 0x55;
    std::fs::write(&lot, octets).unwrap();

    let store = open();
    assert_eq!(store.last_batch("it"), 3);
    store.flush().unwrap();
    holds(&database, 2);
    let range = TimeRange { from_ns: 0, to_ns: i64::MAX };
    let events = Query::Events(EventList { range, ..EventList::default() });
    let told = ask(&*store.reader(), &events);
    assert!(told.contains("journal_damaged"), "{told}");
    // It goes on.
    let series = store.register_all(&[labels("a")]).unwrap()[0];
    write(&store, series, 4).unwrap();
    store.flush().unwrap();
    holds(&database, 3);
}

/// Tells a child where to write: an address and a folder.
const CHILD: &str = "SONDE_SPOOL_CHILD";
/// Batches that a child writes before it waits for its end.
const MOST: u64 = 120;
