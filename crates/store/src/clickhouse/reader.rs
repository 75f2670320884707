//! Answers queries: the rows that they read come from the server, merged there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::ClickHouseServer;
use super::http::ClickHouseClient;
use super::layout::{RowDecoder, ServerField, ServerRow, fields, partition_ns, quote, quoted};
use super::schema::{self, rows};
use super::ship::LASTS;
use super::spool::SpoolShared;
use crate::Reader;
use crate::embedded::{SqlTable, SqlTableInfo, SqlValue, lock};
use crate::error::StoreError;
use crate::event::{EventId, EventSeverity, StoredEvent};
use crate::flow::{FlowRow, FlowSum};
use crate::interface::InterfaceRow;
use crate::interval::IntervalRow;
use crate::query::{self, Limit, Query, Response, RowSink, Scan, Source, TimeRange};
use crate::rtt::RttRow;
use crate::series::{Series, SeriesId};
use crate::table::Table;

/// Reads what stations wrote into a ClickHouse.
#[derive(Clone)]
pub struct ClickHouseReader {
    client: ClickHouseClient,
    /// The station of this process: what it knows itself is not asked of the server.
    own: Option<Arc<SpoolShared>>,
    labels: Arc<Mutex<LabelCache>>,
}

/// Labels as they were read last.
#[derive(Default)]
struct LabelCache {
    /// Count and sum of the numbers of the server's rows: another one says that there are others.
    mark: (u64, u64),
    series: Arc<Vec<Series>>,
}

impl ClickHouseReader {
    /// Of any process.
    pub fn open(server: &ClickHouseServer) -> Self {
        ClickHouseReader {
            client: ClickHouseClient::new(server),
            own: None,
            labels: Arc::default(),
        }
    }

    pub(super) fn of_station(shared: Arc<SpoolShared>) -> Self {
        let client = shared.client.clone();
        ClickHouseReader { client, own: Some(shared), labels: Arc::default() }
    }

    /// Labels of all stations. Where the server is away, the own ones.
    fn all_series(&self) -> Result<Arc<Vec<Series>>, StoreError> {
        let Some(own) = &self.own else { return self.series_there() };
        let known = lock(&own.state).series.clone();
        let mut all = self.unless_away(own, || Ok(self.series_there()?.to_vec()))?;
        all.retain(|series| known.get(series.id).is_none());
        all.extend(known.iter().cloned());
        all.sort_by_key(|series| series.id);
        Ok(Arc::new(all))
    }

    /// What others have; nothing while the server is away.
    fn unless_away<T>(
        &self,
        own: &SpoolShared,
        ask: impl FnOnce() -> Result<Vec<T>, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        if own.away.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        match ask() {
            Err(StoreError::Unreachable { .. }) => {
                // The next one does not wait for it; upkeep sees when it is back.
                own.away.store(true, Ordering::Relaxed);
                Ok(Vec::new())
            }
            answer => answer,
        }
    }

    fn series_there(&self) -> Result<Arc<Vec<Series>>, StoreError> {
        let database = self.client.database();
        let question =
            format!("SELECT count(), sum(toUInt64(id)) FROM {database}.series FORMAT RowBinary");
        let mark = rows(&self.client, &question, |from| Ok((from.u64()?, from.u64()?)))?;
        let mark = mark.first().copied().unwrap_or_default();
        let mut labels = lock(&self.labels);
        if labels.mark != mark {
            let question = format!(
                "SELECT id, any(labels) FROM {database}.series GROUP BY id ORDER BY id FORMAT RowBinary"
            );
            let all = rows(&self.client, &question, |from| {
                let id = SeriesId(u32::from_le_bytes(from.octets()?));
                Ok(Series { id, labels: serde_json::from_slice(&from.counted()?)? })
            })?;
            *labels = LabelCache { mark, series: Arc::new(all) };
        }
        Ok(labels.series.clone())
    }

    fn snapshot<'a>(
        &'a self,
        limit: &'a Limit,
        partitions: BTreeMap<Table, i64>,
    ) -> Result<ServerSnapshot<'a>, StoreError> {
        Ok(ServerSnapshot {
            reader: self,
            limit,
            series: self.all_series()?,
            partitions,
            oldest: RefCell::default(),
            failed: RefCell::default(),
        })
    }

    /// Whether the user may change nothing there, by the server's own settings.
    fn only_reads(&self) -> Result<bool, StoreError> {
        let question = "SELECT value FROM system.settings WHERE name = 'readonly' FORMAT RowBinary";
        let mode = rows(&self.client, question, |from| from.text())?;
        Ok(mode.first().is_some_and(|mode| mode != "0"))
    }

    /// The oldest partition of each table.
    fn oldest_partitions(&self) -> Result<BTreeMap<Table, i64>, StoreError> {
        let question = format!(
            "SELECT table, min(toInt64(partition)) FROM system.parts WHERE database = '{}' AND active \
             AND table IN ({}) GROUP BY table FORMAT RowBinary",
            self.client.database(),
            Table::ALL.map(|t| format!("'{}'", t.name())).join(", ")
        );
        let all = rows(&self.client, &question, |from| {
            Ok((from.text()?, i64::from_le_bytes(from.octets()?)))
        })?;
        Ok(all.into_iter().filter_map(|(name, n)| Some((Table::from_name(&name)?, n))).collect())
    }
}

impl Reader for ClickHouseReader {
    fn query(&self, query: &Query, limit: &Limit) -> Result<Response, StoreError> {
        let partitions = match query {
            // Events need no table, and are there while the server is away.
            Query::Events(_) => BTreeMap::new(),
            _ => self.oldest_partitions()?,
        };
        let snapshot = self.snapshot(limit, partitions)?;
        let answer = query::answer(query, &snapshot, limit);
        match snapshot.failed.into_inner() {
            Some(error) => Err(error),
            None => answer,
        }
    }

    fn sql(&self, text: &str, _range: TimeRange, limit: &Limit) -> Result<SqlTable, StoreError> {
        // Who has been stopped already asks nothing.
        limit.check_scanned(0)?;
        // Where the answer is cut, one more says that there were more; a whole block may come.
        let rows = limit.answer_rows.saturating_add(limit.cut.into()).to_string();
        let scanned = limit.scanned_rows.to_string();
        let memory = limit.memory_octets.to_string();
        let mut settings = vec![
            ("database", self.client.database()),
            ("default_format", "JSONCompact"),
            ("output_format_json_quote_64bit_integers", "0"),
            ("max_result_rows", &*rows),
            ("result_overflow_mode", if limit.cut { "break" } else { "throw" }),
            ("max_rows_to_read", &*scanned),
            ("max_memory_usage", &*memory),
        ];
        // Who may only read may not say so again: the server refuses it.
        if !self.only_reads()? {
            settings.push(("readonly", "1"));
        }
        let body = self.client.select_within(text, &settings, limit).map_err(of_sql)?;
        let mut answer = String::new();
        let most = limit.memory_octets.saturating_add(1);
        body.take(most).read_to_string(&mut answer).map_err(self.client.unreachable())?;
        if answer.len() as u64 == most {
            return Err(StoreError::Limit { limit: most, of: "octets of the answer" });
        }
        let answer: JsonCompact =
            serde_json::from_str(&answer).map_err(|error| StoreError::Query {
                what: format!("the answer is no table: {error}"),
                help: "give one SELECT without FORMAT",
            })?;
        let cell = |value: serde_json::Value| match value {
            serde_json::Value::Null => SqlValue::Null,
            serde_json::Value::String(text) => SqlValue::Text(text),
            serde_json::Value::Number(n) => match (n.as_i64(), n.as_f64()) {
                (Some(n), _) => SqlValue::Integer(n),
                (None, Some(x)) => SqlValue::Real(x),
                (None, None) => SqlValue::Text(n.to_string()),
            },
            other => SqlValue::Text(other.to_string()),
        };
        let most = usize::try_from(limit.answer_rows).unwrap_or(usize::MAX);
        let truncated = answer.data.len() > most;
        let rows = answer.data.into_iter().take(most);
        Ok(SqlTable {
            columns: answer.meta.into_iter().map(|column| column.name).collect(),
            rows: rows.map(|row| row.into_iter().map(cell).collect()).collect(),
            truncated,
            damaged_segments: 0,
        })
    }

    fn sql_tables(&self) -> Vec<SqlTableInfo> {
        schema::sql_tables()
    }

    fn event_changes(&self) -> Option<u64> {
        let own = self.own.as_ref()?;
        let of_others = own.other_events.load(Ordering::Relaxed);
        Some(lock(&own.catalogue).event_changes().wrapping_add(of_others))
    }

    fn series(&self) -> Result<Vec<Series>, StoreError> {
        Ok(self.all_series()?.to_vec())
    }

    fn ask_source(
        &self,
        limit: &Limit,
        ask: &dyn Fn(&dyn Source) -> Result<u64, StoreError>,
    ) -> Result<(u64, u64), StoreError> {
        Ok((ask(&self.snapshot(limit, BTreeMap::new())?)?, 0))
    }
}

/// What the server refuses of a question is for who asked to mend.
fn of_sql(error: StoreError) -> StoreError {
    match error {
        StoreError::Refused { why, .. } => {
            StoreError::Query { what: why, help: "give one SELECT in ClickHouse's dialect" }
        }
        other => other,
    }
}

#[derive(serde::Deserialize)]
struct JsonCompact {
    meta: Vec<JsonColumn>,
    data: Vec<Vec<serde_json::Value>>,
}

#[derive(serde::Deserialize)]
struct JsonColumn {
    name: String,
}

/// What a query asks.
struct ServerSnapshot<'a> {
    reader: &'a ClickHouseReader,
    limit: &'a Limit,
    series: Arc<Vec<Series>>,
    partitions: BTreeMap<Table, i64>,
    oldest: RefCell<BTreeMap<Table, Option<i64>>>,
    /// Why the oldest row of a table is not known.
    failed: RefCell<Option<StoreError>>,
}

impl ServerSnapshot<'_> {
    /// Rows of a table, those of a roll-up with equal keys as one.
    fn rows<R: ServerRow>(
        &self,
        table: Table,
        scan: &Scan,
        sink: &mut RowSink<R>,
    ) -> Result<(), StoreError> {
        if scan.series.as_ref().is_some_and(BTreeSet::is_empty) {
            return Ok(());
        }
        let client = &self.reader.client;
        let wanted = |name: &str| {
            scan.columns.is_empty()
                || scan.columns.contains(&name)
                || R::KEYS.contains(&name)
                || name == R::SERIES
                || name == R::TIME
        };
        let mut fields: Vec<ServerField<R>> = fields::<R>(table);
        fields.retain(|field| wanted(field.column.name));
        let read: Vec<&str> = fields.iter().flat_map(|f| &f.read).map(String::as_str).collect();
        let group = match table.is_raw() {
            true => String::new(),
            false => format!(" GROUP BY {}", quoted(R::KEYS)),
        };
        let question = format!(
            "SELECT {} FROM {}.{} WHERE {}{group} FORMAT RowBinary",
            read.join(", "),
            client.database(),
            table.name(),
            self.condition::<R>(scan)
        );
        let mut from = RowDecoder(client.select_within(&question, &[], self.limit)?);
        while let Some(row) = from.row(&fields).map_err(client.unreachable())? {
            if scan.series.as_ref().is_none_or(|set| set.contains(&row.series())) {
                sink(&row)?;
            }
        }
        Ok(())
    }

    fn condition<R: ServerRow>(&self, scan: &Scan) -> String {
        let time = quote(R::TIME);
        let mut all = format!("{time} >= {} AND {time} < {}", scan.from_ns, scan.to_ns);
        let Some(set) = &scan.series else { return all };
        let series = quote(R::SERIES);
        let (first, last) = (set.first().unwrap_or(&0), set.last().unwrap_or(&0));
        if set.len() <= MOST_NAMED {
            let ids: Vec<String> = set.iter().map(u32::to_string).collect();
            all.push_str(&format!(" AND {series} IN ({})", ids.join(", ")));
        } else if set.len() < self.series.len() {
            // What is between them is left out here.
            all.push_str(&format!(" AND {series} BETWEEN {first} AND {last}"));
        }
        all
    }

    fn find_oldest(&self, table: Table) -> Result<Option<i64>, StoreError> {
        let Some(partition) = self.partitions.get(&table) else { return Ok(None) };
        let client = &self.reader.client;
        let time = quote(if table == Table::Flow { "last" } else { "start" });
        let question = format!(
            "SELECT min({time}) FROM {}.{} WHERE {time} < {} FORMAT RowBinary",
            client.database(),
            table.name(),
            (partition + 1).saturating_mul(partition_ns(table))
        );
        let found = rows(client, &question, |from| Ok(i64::from_le_bytes(from.octets()?)))?;
        Ok(found.first().copied())
    }
}

impl Source for ServerSnapshot<'_> {
    fn series(&self) -> Vec<Series> {
        self.series.to_vec()
    }

    fn intervals(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<IntervalRow>,
    ) -> Result<(), StoreError> {
        self.rows(level, scan, sink)
    }

    fn flows(&self, scan: &Scan, sink: &mut RowSink<FlowRow>) -> Result<(), StoreError> {
        self.rows(Table::Flow, scan, sink)
    }

    fn flow_sums(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<FlowSum>,
    ) -> Result<(), StoreError> {
        self.rows(level, scan, sink)
    }

    fn rtt(&self, level: Table, scan: &Scan, sink: &mut RowSink<RttRow>) -> Result<(), StoreError> {
        self.rows(level, scan, sink)
    }

    fn interfaces(
        &self,
        level: Table,
        scan: &Scan,
        sink: &mut RowSink<InterfaceRow>,
    ) -> Result<(), StoreError> {
        self.rows(level, scan, sink)
    }

    fn oldest_ns(&self, table: Table) -> Option<i64> {
        if let Some(&known) = self.oldest.borrow().get(&table) {
            return known;
        }
        let found = self.find_oldest(table).unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            None
        });
        self.oldest.borrow_mut().insert(table, found);
        found
    }

    /// Those of this station, and of others where the server answers.
    fn events(&self, from_ns: i64, to_ns: i64) -> Result<Vec<(EventId, StoredEvent)>, StoreError> {
        let others = || self.events_there(&format!("begin_ns < {to_ns} AND end_ns >= {from_ns}"));
        let Some(own) = &self.reader.own else { return others() };
        let mut all = self.reader.unless_away(own, others)?;
        all.retain(|(id, _)| !own.is_own_event(*id));
        let events = lock(&own.catalogue).events(from_ns, to_ns)?;
        all.extend(events.into_iter().map(|(id, event)| (own.everywhere(id), event)));
        all.sort_by_key(|(id, event)| (event.begin_ns, *id));
        Ok(all)
    }

    fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        if let Some(own) = &self.reader.own
            && let Some(id) = own.own_event(id)
        {
            return lock(&own.catalogue).event(id);
        }
        let found = self.events_there(&format!("id = {}", id.0))?;
        Ok(found.into_iter().next().map(|(_, event)| event))
    }
}

impl ServerSnapshot<'_> {
    fn events_there(&self, which: &str) -> Result<Vec<(EventId, StoredEvent)>, StoreError> {
        let client = &self.reader.client;
        // FINAL: of each event the last change.
        let question = format!(
            "SELECT id, kind, severity, series, begin_ns, end_ns, title, evidence FROM {}.event FINAL \
             WHERE {which} ORDER BY begin_ns, id FORMAT RowBinary",
            client.database()
        );
        rows(client, &question, |from| {
            let id = EventId(from.u64()?);
            let kind = from.text()?;
            let severity = EventSeverity::from_name(&from.text()?).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "an event has an unknown severity")
            })?;
            let mut number = || Ok::<_, io::Error>(i64::from_le_bytes(from.octets()?));
            let (series, begin_ns, end_ns) = (number()?, number()?, number()?);
            Ok((
                id,
                StoredEvent {
                    kind,
                    severity,
                    series: u32::try_from(series).ok().map(SeriesId),
                    begin_ns,
                    end_ns: (end_ns != LASTS).then_some(end_ns),
                    title: from.text()?,
                    evidence: serde_json::from_slice(&from.counted()?)?,
                },
            ))
        })
    }
}

/// Series that are named one by one in a question.
const MOST_NAMED: usize = 2_000;
