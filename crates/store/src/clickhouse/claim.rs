//! The number of a station in a database: claimed once, for ever.
//!
//! A claim is a view, `station_7`, whose text has the station's name and a number that only its folder
//! knows. That a view of a name can be made once is what decides between two stations.

use super::http::ClickHouseClient;
use super::schema::rows;
use super::{EVENT_BITS, STATIONS, series_of};
use crate::error::StoreError;
use crate::series::SeriesLabels;

/// What a station gets.
pub(super) struct StationClaim {
    /// Its number.
    pub(super) station: u32,
    /// The greatest number of a lot that the tables have of it; 0: none.
    pub(super) last_lot: u64,
    /// The greatest number of an event that it has, as its own catalogue counts; 0: none.
    pub(super) last_event: u64,
    /// The series that it has, by number.
    pub(super) series: Vec<SeriesLabels>,
}

/// Claims a number for the station of that name, or finds that which `identity` has claimed.
pub(super) fn claim(
    client: &ClickHouseClient,
    name: &str,
    identity: u64,
) -> Result<StationClaim, StoreError> {
    loop {
        let taken = claims(client)?;
        if let Some((station, _, owner)) = taken.iter().find(|(_, own, _)| own == name) {
            if *owner != identity {
                let claim = format!("{}.station_{station}", client.database());
                return Err(StoreError::NameTaken { name: name.to_owned(), claim });
            }
            return Ok(StationClaim {
                station: *station,
                last_lot: last_lot(client, *station)?,
                last_event: last_event(client, *station)?,
                series: series(client, *station)?,
            });
        }
        let free = (0..STATIONS).find(|n| taken.iter().all(|(station, ..)| station != n));
        let Some(free) = free else {
            let what = "a further station in this database";
            return Err(StoreError::Unsupported { what, help: "use another database" });
        };
        // Where another station was faster, look again.
        make_claim(client, free, name, identity)?;
    }
}

/// Looks whether a number is still that of a spool. `true`: the database is another one than before,
/// where nobody has the number, and now the spool has it there, too.
pub(super) fn confirm(
    client: &ClickHouseClient,
    station: u32,
    name: &str,
    identity: u64,
) -> Result<bool, StoreError> {
    let anew = make_claim(client, station, name, identity)?;
    let database = client.database();
    let question = format!("SELECT identity FROM {database}.station_{station} FORMAT RowBinary");
    if rows(client, &question, |from| from.u64())? != [identity] {
        let claim = format!("{database}.station_{station}");
        return Err(StoreError::SpoolOfAnother { claim });
    }
    Ok(anew)
}

/// Makes a claim; `false`: the number is taken.
fn make_claim(
    client: &ClickHouseClient,
    station: u32,
    name: &str,
    identity: u64,
) -> Result<bool, StoreError> {
    let view = format!(
        "CREATE VIEW {}.station_{station} AS SELECT {} AS name, toUInt64({identity}) AS identity",
        client.database(),
        literal(name)
    );
    match client.run("claim a number", &view) {
        Ok(()) => Ok(true),
        Err(StoreError::Refused { code: TABLE_ALREADY_EXISTS, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Number, name and identity of each station.
fn claims(client: &ClickHouseClient) -> Result<Vec<(u32, String, u64)>, StoreError> {
    let database = client.database();
    let question = format!(
        "SELECT name FROM system.tables WHERE database = '{database}' AND name LIKE 'station_%' \
         FORMAT RowBinary"
    );
    let names = rows(client, &question, |from| from.text())?;
    let mut numbers: Vec<u32> =
        names.iter().filter_map(|name| name.strip_prefix("station_")?.parse().ok()).collect();
    numbers.sort_unstable();
    let mut all = Vec::new();
    for some in numbers.chunks(50) {
        let of = |n: &u32| {
            format!("SELECT toUInt32({n}) AS n, name, identity FROM {database}.station_{n}")
        };
        let union = some.iter().map(of).collect::<Vec<_>>().join(" UNION ALL ");
        let question = format!("SELECT n, name, identity FROM ({union}) FORMAT RowBinary");
        all.extend(rows(client, &question, |from| {
            let number = u32::from_le_bytes(from.octets()?);
            Ok((number, from.text()?, from.u64()?))
        })?);
    }
    Ok(all)
}

/// The greatest number of a lot that the server has of a station; 0: none. The tables at the full rate
/// have every lot.
pub(super) fn last_lot(client: &ClickHouseClient, station: u32) -> Result<u64, StoreError> {
    let (database, own) = (client.database(), series_of(station));
    let mut last = 0;
    for (table, series) in [("iv", "series"), ("flow", "exporter"), ("rtt", "series")] {
        let question = format!(
            "SELECT max(lot) FROM {database}.{table} WHERE {series} BETWEEN {} AND {} FORMAT RowBinary",
            own.start(),
            own.end()
        );
        last = rows(client, &question, |from| from.u64())?.into_iter().fold(last, u64::max);
    }
    Ok(last)
}

fn last_event(client: &ClickHouseClient, station: u32) -> Result<u64, StoreError> {
    let first = u64::from(station) << EVENT_BITS;
    let question = format!(
        "SELECT max(id) FROM {}.event WHERE id >= {first} AND id < {} FORMAT RowBinary",
        client.database(),
        first + (1 << EVENT_BITS)
    );
    let last = rows(client, &question, |from| from.u64())?;
    Ok(last.into_iter().max().unwrap_or(0).saturating_sub(first))
}

fn series(client: &ClickHouseClient, station: u32) -> Result<Vec<SeriesLabels>, StoreError> {
    let (database, own) = (client.database(), series_of(station));
    let question = format!(
        "SELECT id, any(labels) FROM {database}.series WHERE id BETWEEN {} AND {} GROUP BY id \
         ORDER BY id FORMAT RowBinary",
        own.start(),
        own.end()
    );
    let all = rows(client, &question, |from| {
        let id = u32::from_le_bytes(from.octets()?);
        Ok((id, serde_json::from_slice(&from.counted()?)?))
    })?;
    // They are dense; what stands behind a gap was never referred to.
    Ok(own.zip(all).take_while(|(n, (id, _))| n == id).map(|(_, (_, labels))| labels).collect())
}

/// A text in a statement.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('\'');
    out
}

/// ClickHouse's error for a table that is there.
const TABLE_ALREADY_EXISTS: u32 = 57;
