//! What is given up on the server: whole partitions, by age and by size. Where the server knows it, the
//! age is a TTL of the table besides, so that it is kept also while no station runs.
//!
//! The tables are of all stations: what one gives up is gone for all.

use std::collections::BTreeMap;

use super::layout::{partition_ns, quote};
use super::schema::rows;
use super::spool::{ServerUpkeep, SpoolShared};
use crate::MINUTE_NS;
use crate::embedded::{Maintenance, lock};
use crate::error::StoreError;
use crate::retention::KeepTable;
use crate::table::Table;

impl SpoolShared {
    /// Gives up what expired, every ten minutes and where the rules changed.
    pub(super) fn retain(
        &self,
        upkeep: &mut ServerUpkeep,
        now_ns: i64,
        done: &mut Maintenance,
    ) -> Result<(), StoreError> {
        let rules = lock(&self.retention).clone();
        let same = upkeep.retained.as_ref().is_some_and(|(_, last)| *last == rules);
        let recent = upkeep
            .retained
            .as_ref()
            .is_some_and(|(at, _)| (0..EVERY_NS).contains(&now_ns.saturating_sub(*at)));
        if !upkeep.prepared || (same && recent) {
            return Ok(());
        }
        let database = self.client.database();
        if !same && self.knows_ttl()? {
            for (&table, keep) in &rules.tables {
                match ttl(database, table, keep) {
                    Some(statement) => self.client.run("set a TTL", &statement)?,
                    None => {
                        let statement =
                            format!("ALTER TABLE {database}.{} REMOVE TTL", table.name());
                        // Where there is none, that is refused.
                        match self.client.run("remove a TTL", &statement) {
                            Ok(()) | Err(StoreError::Refused { .. }) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        let all = self.partitions()?;
        for (table, partitions) in all {
            let keep = rules.tables.get(&table).copied().unwrap_or_default();
            for partition in expired(table, &partitions, &keep, now_ns) {
                let table = table.name();
                self.client.run(
                    "give up a partition",
                    &format!("ALTER TABLE {database}.{table} DROP PARTITION {partition}"),
                )?;
                done.expired += 1;
            }
        }
        upkeep.retained = Some((now_ns, rules));
        Ok(())
    }

    fn knows_ttl(&self) -> Result<bool, StoreError> {
        let version =
            rows(&self.client, "SELECT version() FORMAT RowBinary", |from| from.text())?.concat();
        let major = version.split('.').next().and_then(|n| n.parse::<u32>().ok());
        Ok(major.is_some_and(|major| major >= TTL_SINCE))
    }

    /// The partitions of each table, and their octets.
    fn partitions(&self) -> Result<BTreeMap<Table, Vec<(i64, u64)>>, StoreError> {
        let question = format!(
            "SELECT table, partition, sum(bytes) FROM system.parts WHERE database = '{}' AND active \
             GROUP BY table, partition FORMAT RowBinary",
            self.client.database()
        );
        let found =
            rows(&self.client, &question, |from| Ok((from.text()?, from.text()?, from.u64()?)))?;
        let mut all: BTreeMap<Table, Vec<(i64, u64)>> = BTreeMap::new();
        for (table, partition, octets) in found {
            if let (Some(table), Ok(number)) = (Table::from_name(&table), partition.parse()) {
                all.entry(table).or_default().push((number, octets));
            }
        }
        Ok(all)
    }
}

/// The partitions that go: those whose last row is too old, and the oldest while the table is too
/// large, but never the newest.
fn expired(table: Table, partitions: &[(i64, u64)], keep: &KeepTable, now_ns: i64) -> Vec<i64> {
    let mut all = partitions.to_vec();
    all.sort_unstable();
    let mut octets: u64 = all.iter().map(|(_, octets)| octets).sum();
    all.pop();
    let mut gone = Vec::new();
    for (number, own) in all {
        let end = (number + 1).saturating_mul(partition_ns(table));
        let old = keep.age_ns.is_some_and(|age| end < now_ns.saturating_sub(age));
        if old || keep.octets.is_some_and(|most| octets > most) {
            octets -= own;
            gone.push(number);
        }
    }
    gone
}

/// The statement that gives a table the age of its rows. `None`: they stay, also where an age reaches
/// beyond what a DateTime can say.
fn ttl(database: &str, table: Table, keep: &KeepTable) -> Option<String> {
    let time = quote(if table == Table::Flow { "last" } else { "start" });
    let seconds = keep.age_ns? / 1_000_000_000;
    (seconds <= TTL_MOST).then(|| {
        format!(
            "ALTER TABLE {database}.{} MODIFY TTL toDateTime(intDiv({time}, 1000000000)) + \
             INTERVAL {seconds} SECOND",
            table.name()
        )
    })
}

/// Between two looks at what expired, ns.
const EVERY_NS: i64 = 10 * MINUTE_NS;
/// The first major version whose tables have a TTL without an experimental switch.
const TTL_SINCE: u32 = 20;
/// Twenty years, in seconds: a DateTime ends in 2106.
const TTL_MOST: i64 = 20 * 366 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DAY_NS;

    #[test]
    fn whole_partitions_go_by_age_and_by_size_and_the_newest_stays() {
        let parts = [(102, 10), (100, 10), (101, 10), (103, 10)];
        let now = 103 * DAY_NS + 1;
        let of =
            |age_ns, octets| expired(Table::Interval, &parts, &KeepTable { age_ns, octets }, now);
        assert_eq!(of(None, None), [0i64; 0]);
        assert_eq!(of(Some(2 * DAY_NS), None), [100], "the last row of 101 is not two days old");
        assert_eq!(of(Some(0), None), [100, 101, 102]);
        assert_eq!(of(None, Some(25)), [100, 101]);
        assert_eq!(of(None, Some(0)), [100, 101, 102]);
        assert_eq!(of(Some(DAY_NS), Some(25)), [100, 101]);
        assert_eq!(expired(Table::Interval, &[], &KeepTable::default(), now), [0i64; 0]);
    }
}
