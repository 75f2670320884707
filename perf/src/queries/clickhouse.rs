//! The same rows and questions in ClickHouse, as Debian packages it, in a folder of its own.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use sonde_store::{IntervalRow, TimeRange};

use super::postgres::checksum;
use super::{Checksum, HeavyQuery, OtherStore, forget, line};

/// A running server.
pub struct ClickHouse {
    program: PathBuf,
    /// Where its libraries are, where it is not installed.
    libraries: String,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl ClickHouse {
    /// Starts one; `None`: it is neither installed nor in the folder that SONDE_CLICKHOUSE names.
    pub fn start(folder: &Path) -> Result<Option<ClickHouse>> {
        let unpacked = std::env::var_os("SONDE_CLICKHOUSE").map(PathBuf::from);
        let root = unpacked.clone().unwrap_or_else(|| "/".into());
        let places = ["usr/sbin", "usr/bin"].map(|f| root.join(f).join("clickhouse-server"));
        let Some(program) = places.into_iter().find(|path| path.is_file()) else { return Ok(None) };
        let folders = ["usr/lib", "lib"]
            .map(|f| root.join(f).join(format!("{}-linux-gnu", std::env::consts::ARCH)))
            .map(|path| path.display().to_string());
        let libraries = if unpacked.is_some() { folders.join(":") } else { String::new() };
        let folder = folder.join("clickhouse");
        std::fs::create_dir_all(folder.join("data"))?;
        let port = free_port()?;
        let mut server = ClickHouse { program, libraries, folder, port, child: None };
        server.configure()?;
        server.run()?;
        server.sql(
            "CREATE TABLE iv1m (series UInt32, t UInt32, sent UInt64, lost UInt64, lossy UInt64, \
             k Array(Int16), n Array(UInt32)) ENGINE = MergeTree ORDER BY (series, t)",
            "",
        )?;
        Ok(Some(server))
    }

    fn configure(&self) -> Result<()> {
        let at = self.folder.display();
        let (http, tcp) = (self.port, free_port()?);
        let config = format!(
            "<yandex><logger><level>warning</level><log>{at}/log</log><errorlog>{at}/errors</errorlog>\
             </logger><http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>\
             <listen_host>127.0.0.1</listen_host><path>{at}/data/</path><tmp_path>{at}/tmp/</tmp_path>\
             <users_config>users.xml</users_config><default_profile>default</default_profile>\
             <default_database>default</default_database><mark_cache_size>500000000</mark_cache_size>\
             </yandex>"
        );
        let user = "<password></password><networks><ip>127.0.0.1</ip></networks>\
                    <profile>default</profile><quota>default</quota>";
        let users = format!(
            "<yandex><profiles><default></default></profiles><users><default>{user}</default></users>\
             <quotas><default></default></quotas></yandex>"
        );
        std::fs::create_dir_all(self.folder.join("tmp"))?;
        std::fs::write(self.folder.join("config.xml"), config)?;
        Ok(std::fs::write(self.folder.join("users.xml"), users)?)
    }

    fn run(&mut self) -> Result<()> {
        let config = format!("--config-file={}", self.folder.join("config.xml").display());
        let mut command = Command::new(&self.program);
        command.arg(config).env("LD_LIBRARY_PATH", &self.libraries).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().context("clickhouse-server")?;
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = std::fs::read_to_string(self.folder.join("errors")).unwrap_or_default();
            if let Some(status) = child.try_wait()? {
                bail!("clickhouse-server ended with {status}: {log}");
            }
            ensure!(begin.elapsed() < PATIENCE, "clickhouse-server does not listen: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child = Some(child);
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Its answer to a statement, with the rows that stand behind it.
    fn sql(&self, text: &str, rows: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let length = text.len() + rows.len() + 1;
        writeln!(stream, "POST / HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{text}")?;
        stream.write_all(rows.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("ClickHouse speaks no HTTP")?;
        ensure!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{body}");
        Ok(body.to_owned())
    }
}

impl OtherStore for ClickHouse {
    fn add(&mut self, rows: &[IntervalRow]) -> Result<()> {
        let mut text = String::new();
        rows.iter().for_each(|row| line(row, ['[', ']'], &mut text));
        self.sql("INSERT INTO iv1m FORMAT TabSeparated", &text).map(drop)
    }

    fn finish(&mut self) -> Result<u64> {
        self.sql("OPTIMIZE TABLE iv1m FINAL", "")?;
        let size = self.sql(
            "SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 'iv1m' AND active",
            "",
        )?;
        size.trim().parse().with_context(|| format!("'{size}' is no size"))
    }

    fn cool(&mut self) -> Result<()> {
        self.stop()?;
        forget(&self.folder)?;
        self.run()
    }

    fn ask(&mut self, query: HeavyQuery, range: TimeRange) -> Result<(f64, Checksum)> {
        let statement = statement(query, range);
        let begin = Instant::now();
        let answer = self.sql(&statement, "")?;
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        Ok((ms, checksum(query, answer.lines().map(|line| line.split('\t')))?))
    }
}

impl Drop for ClickHouse {
    fn drop(&mut self) {
        // Its folder goes next.
        let _ = self.stop();
    }
}

fn statement(query: HeavyQuery, range: TimeRange) -> String {
    let [from, to] = [range.from_ns, range.to_ns].map(|ns| ns / 1_000_000_000);
    let within = format!("t >= {from} AND t < {to}");
    let window = format!("intDiv(t - {from}, 300)");
    // One level of subqueries: 18.16 does not see what a lambda of an outer one uses.
    let merged = |key: &str, quantiles: &[f64]| {
        let pick = |q: &f64| format!("bs[arrayFirstIndex(c -> c >= {q} * total, cs)]");
        let picks = quantiles.iter().map(pick).collect::<Vec<_>>().join(", ");
        let columns: String = (1..=quantiles.len()).map(|n| format!(", q.{n}")).collect();
        format!(
            "SELECT key, s{columns} FROM (SELECT {key} AS key, sum(sent) AS s, (sumMap(k, n) AS m).1 AS bs, \
             arrayCumSum(m.2) AS cs, arraySum(m.2) AS total, ({picks}) AS q \
             FROM iv1m WHERE {within} GROUP BY key) ORDER BY key"
        )
    };
    match query {
        HeavyQuery::Overview => merged("series", &[0.5, 0.99]),
        HeavyQuery::Bands => merged(&window, &[0.1, 0.25, 0.5, 0.75, 0.9, 0.99]),
        HeavyQuery::Heat => format!(
            "SELECT {window} AS w, b, sum(c) FROM iv1m ARRAY JOIN k AS b, n AS c WHERE {within} \
             GROUP BY w, b ORDER BY w, b"
        ),
        HeavyQuery::Availability => {
            format!(
                "SELECT series, sum(lossy) FROM iv1m WHERE {within} GROUP BY series ORDER BY series"
            )
        }
        // A row is a point already, so that nothing is merged.
        HeavyQuery::Points => format!(
            "SELECT series, t, sent, k[arrayFirstIndex(c -> c >= 0.5 * arraySum(n), arrayCumSum(n))], \
             k[arrayFirstIndex(c -> c >= 0.99 * arraySum(n), arrayCumSum(n))] \
             FROM iv1m WHERE {within} AND series < {} ORDER BY series, t",
            super::POINT_SERIES
        ),
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

const PATIENCE: Duration = Duration::from_secs(120);
