//! The same rows and questions in PostgreSQL, as Debian packages it, in a folder of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use sonde_store::{IntervalRow, TimeRange};

use super::{Checksum, HeavyQuery, OtherStore, forget, line};

/// A running server.
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    /// What takes rows.
    copy: Option<(Child, ChildStdin)>,
}

impl Postgres {
    /// Starts one; `None`: it is not installed.
    pub fn start(folder: &Path) -> Result<Option<Postgres>> {
        let Some(programs) = programs() else { return Ok(None) };
        let folder = folder.join("postgres");
        std::fs::create_dir(&folder)?;
        let owned = Command::new("chown").arg("postgres:").arg(&folder).status()?;
        ensure!(owned.success(), "there is no user postgres, which its package makes");
        let server = Postgres { programs, folder, copy: None };
        let data = server.data();
        server.as_user("initdb", &["-D", &data, "-A", "trust", "-U", "postgres", "--no-sync"])?;
        server.run()?;
        server.sql(
            "CREATE TABLE iv1m (series int NOT NULL, t int NOT NULL, sent bigint, lost bigint, \
             lossy bigint, k smallint[], n int[]);",
        )?;
        Ok(Some(server))
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    fn run(&self) -> Result<()> {
        let settings = format!(
            "-k {} -h '' -c shared_buffers=1GB -c work_mem=256MB -c maintenance_work_mem=512MB \
             -c max_wal_size=8GB",
            self.folder.display()
        );
        let log = self.folder.join("log").display().to_string();
        self.as_user("pg_ctl", &["-D", &self.data(), "-w", "-l", &log, "-o", &settings, "start"])
    }

    fn stop(&self) -> Result<()> {
        self.as_user("pg_ctl", &["-D", &self.data(), "-w", "-m", "fast", "stop"])
    }

    /// A program of the server, which root must not run.
    fn as_user(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        command.arg(self.programs.join(program)).args(arguments).current_dir(&self.folder);
        // The server outlives pg_ctl with these open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().with_context(|| format!("cannot run {program}"))?;
        ensure!(status.success(), "{program} ended with {status}");
        Ok(())
    }

    fn client(&self) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]);
        command.arg(&self.folder);
        command
    }

    /// What it prints, with the time of each statement.
    fn sql(&self, text: &str) -> Result<String> {
        let mut client = self.client();
        let output =
            client.args(["-c", "\\timing on", "-c", text]).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "psql: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl OtherStore for Postgres {
    fn add(&mut self, rows: &[IntervalRow]) -> Result<()> {
        if self.copy.is_none() {
            let mut client = self.client();
            client.args(["-c", "COPY iv1m FROM STDIN"]).stdin(Stdio::piped());
            let mut child = client.spawn().context("psql")?;
            let input = child.stdin.take().context("psql has no input")?;
            self.copy = Some((child, input));
        }
        let mut text = String::new();
        rows.iter().for_each(|row| line(row, ['{', '}'], &mut text));
        let (_, input) = self.copy.as_mut().context("psql is gone")?;
        Ok(input.write_all(text.as_bytes())?)
    }

    fn finish(&mut self) -> Result<u64> {
        if let Some((mut child, input)) = self.copy.take() {
            drop(input);
            let status = child.wait()?;
            ensure!(status.success(), "COPY: psql ended with {status}");
        }
        self.sql("CREATE INDEX ON iv1m (series, t)")?;
        self.sql("VACUUM ANALYZE iv1m")?;
        let said = self.sql("SELECT pg_total_relation_size('iv1m')")?;
        said.lines().find_map(|line| line.parse().ok()).context("PostgreSQL says no size")
    }

    fn cool(&mut self) -> Result<()> {
        self.stop()?;
        forget(&self.folder)?;
        self.run()
    }

    fn ask(&mut self, query: HeavyQuery, range: TimeRange) -> Result<(f64, Checksum)> {
        let said = self.sql(&statement(query, range))?;
        let time = said.lines().rev().find_map(|line| line.strip_prefix("Time: "));
        let ms = time.and_then(|text| text.split_whitespace().next()?.parse().ok());
        let rows = said.lines().filter(|line| line.contains('|'));
        Ok((ms.context("psql says no time")?, checksum(query, rows.map(|row| row.split('|')))?))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.copy.take());
        // Its folder goes next.
        let _ = self.stop();
    }
}

/// Rows of text as [`statement`] and ClickHouse's own give them: a key, a sum, the bucket of the last
/// quantile.
pub fn checksum<'a, F: Iterator<Item = &'a str>>(
    query: HeavyQuery,
    rows: impl Iterator<Item = F>,
) -> Result<Checksum> {
    let mut sum = Checksum::default();
    for row in rows {
        let fields: Vec<&str> = row.collect();
        let at = |n: usize| -> Result<i64> {
            let field = fields.get(n).with_context(|| format!("{fields:?} is short"))?;
            field.parse().with_context(|| format!("'{field}' is no integer"))
        };
        sum.rows += 1;
        // The sum stands behind the keys.
        let (keys, has_quantiles) = match query {
            HeavyQuery::Overview | HeavyQuery::Bands => (1, true),
            HeavyQuery::Points => (2, true),
            HeavyQuery::Heat => (2, false),
            HeavyQuery::Availability => (1, false),
        };
        sum.total += at(keys)?.unsigned_abs();
        if has_quantiles {
            sum.buckets += at(fields.len() - 1)?;
        }
    }
    Ok(sum)
}

fn statement(query: HeavyQuery, range: TimeRange) -> String {
    let [from, to] = [range.from_ns, range.to_ns].map(|ns| ns / 1_000_000_000);
    let within = format!("t >= {from} AND t < {to}");
    let window = format!("(t - {from}) / 300");
    // Sums by a key, and quantiles of the merged histogram.
    let merged = |key: &str, within: &str, quantiles: &[f64]| {
        let columns: String = (0..quantiles.len()).map(|n| format!(", q{n}")).collect();
        let picks: String = quantiles
            .iter()
            .enumerate()
            .map(|(n, q)| format!(", min(k) FILTER (WHERE c >= {q} * total) AS q{n}"))
            .collect();
        format!(
            "WITH rows AS MATERIALIZED (SELECT {key} AS key, sent, k, n FROM iv1m WHERE {within}), \
             b AS (SELECT key, u.k, sum(u.n) AS n FROM rows, unnest(rows.k, rows.n) AS u(k, n) GROUP BY 1, 2), \
             c AS (SELECT key, k, sum(n) OVER (PARTITION BY key ORDER BY k) AS c, \
             sum(n) OVER (PARTITION BY key) AS total FROM b), \
             q AS (SELECT key{picks} FROM c GROUP BY key), \
             s AS (SELECT key, sum(sent) AS sent FROM rows GROUP BY key) \
             SELECT key, sent{columns} FROM s JOIN q USING (key) ORDER BY key"
        )
    };
    match query {
        HeavyQuery::Overview => merged("series", &within, &[0.5, 0.99]),
        HeavyQuery::Bands => merged(&window, &within, &[0.1, 0.25, 0.5, 0.75, 0.9, 0.99]),
        HeavyQuery::Heat => format!(
            "SELECT {window} AS w, u.k, sum(u.n) FROM iv1m, unnest(k, n) AS u(k, n) WHERE {within} \
             GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        HeavyQuery::Availability => {
            format!(
                "SELECT series, sum(lossy) FROM iv1m WHERE {within} GROUP BY series ORDER BY series"
            )
        }
        // A row is a point already, so that nothing is merged.
        HeavyQuery::Points => format!(
            "SELECT series, t, sent, (SELECT min(k) FILTER (WHERE c >= 0.5 * total) FROM (SELECT u.k, \
             sum(u.n) OVER (ORDER BY u.k) AS c, sum(u.n) OVER () AS total FROM unnest(k, n) AS u(k, n)) x), \
             (SELECT min(k) FILTER (WHERE c >= 0.99 * total) FROM (SELECT u.k, \
             sum(u.n) OVER (ORDER BY u.k) AS c, sum(u.n) OVER () AS total FROM unnest(k, n) AS u(k, n)) x) \
             FROM iv1m WHERE {within} AND series < {} ORDER BY series, t",
            super::POINT_SERIES
        ),
    }
}

/// The folder of the newest version that Debian has installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut all: Vec<PathBuf> = versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("postgres").is_file() && bin.join("psql").is_file())
        .collect();
    all.sort();
    all.pop()
}
