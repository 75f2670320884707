//! ClickHouse's HTTP interface: a POST a statement.
//!
//! Answers are made whole by the server before it sends them (`wait_end_of_query`): an error has a
//! status then, and is never the end of a table.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use super::ClickHouseServer;
use crate::error::StoreError;
use crate::query::Limit;

/// A connection to a server, and the database there.
#[derive(Clone)]
pub(super) struct ClickHouseClient {
    agent: Agent,
    server: Arc<ClickHouseServer>,
}

/// An answer that is being read.
pub(super) type AnswerBody = Box<dyn Read + Send>;

impl ClickHouseClient {
    pub(super) fn new(server: &ClickHouseServer) -> ClickHouseClient {
        let roots = authorities(Path::new(HOST_AUTHORITIES));
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .user_agent(concat!("sonde/", env!("CARGO_PKG_VERSION")))
            .build();
        ClickHouseClient { agent: config.new_agent(), server: Arc::new(server.clone()) }
    }

    /// The database, as statements name it.
    pub(super) fn database(&self) -> &str {
        &self.server.database
    }

    /// Does what changes something. Its answer is nothing.
    pub(super) fn run(&self, what: &'static str, statement: &str) -> Result<(), StoreError> {
        let mut answer = self.post(what, statement, &[], None)?;
        // Read whole, the connection serves again.
        std::io::copy(&mut answer, &mut std::io::sink()).map_err(self.unreachable())?;
        Ok(())
    }

    /// Inserts rows from `rows`, which `statement` reads as the table `lot_rows` of that structure.
    /// While a statement of the name `id` runs, another one is refused.
    pub(super) fn insert(
        &self,
        statement: &str,
        structure: &str,
        rows: &[u8],
        id: &str,
    ) -> Result<(), StoreError> {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"lot_rows\"; filename=\"lot\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{BOUNDARY}--\r\n");
        let body = [head.as_bytes(), rows, tail.as_bytes()].concat();
        let settings = [
            ("lot_rows_format", "RowBinary"),
            ("lot_rows_structure", structure),
            ("query_id", id),
            // All of it is one block, which is inserted whole or not at all.
            ("max_threads", "1"),
            ("min_insert_block_size_rows", "100000000"),
            ("min_insert_block_size_bytes", "10000000000"),
        ];
        let mut answer = self.post("insert rows", statement, &settings, Some(&body))?;
        std::io::copy(&mut answer, &mut std::io::sink()).map_err(self.unreachable())?;
        Ok(())
    }

    /// The answer to a question.
    pub(super) fn select(&self, question: &str) -> Result<AnswerBody, StoreError> {
        self.post("read", question, &[], None)
    }

    /// The same, until its limit is reached; `settings` are the server's.
    pub(super) fn select_within(
        &self,
        question: &str,
        settings: &[(&str, &str)],
        limit: &Limit,
    ) -> Result<AnswerBody, StoreError> {
        let Some(stop) = &limit.stop else {
            return self.post("read", question, settings, None);
        };
        // The server answers when it has the whole: until then nothing here could look at the flag.
        let (tell, told) = channel();
        let (own, question) = (self.clone(), question.to_owned());
        let settings: Vec<(String, String)> =
            settings.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        std::thread::spawn(move || {
            let settings: Vec<(&str, &str)> =
                settings.iter().map(|(name, value)| (&**name, &**value)).collect();
            let _ = tell.send(own.post("read", &question, &settings, None));
        });
        loop {
            match told.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(StoreError::Stopped),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err(StoreError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn post(
        &self,
        what: &'static str,
        statement: &str,
        settings: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Result<AnswerBody, StoreError> {
        let server = &self.server;
        let mut request = self
            .agent
            .post(&server.url)
            .query("wait_end_of_query", "1")
            .query_pairs(settings.iter().copied());
        if let Some(user) = &server.user {
            request = request.header("X-ClickHouse-User", user);
        }
        if let Some(password) = &server.password {
            request = request.header("X-ClickHouse-Key", password);
        }
        let sent = match body {
            None => request.send(statement.as_bytes()),
            Some(body) => request
                .query("query", statement)
                .content_type(format!("multipart/form-data; boundary={BOUNDARY}"))
                .send(body),
        };
        let answer = sent.map_err(|error| self.unreachable()(std::io::Error::other(error)))?;
        let status = answer.status().as_u16();
        let mut body = answer.into_body().into_reader();
        if (200..300).contains(&status) {
            return Ok(Box::new(std::io::BufReader::with_capacity(1 << 16, body)));
        }
        let mut text = Vec::new();
        // Half an answer does not say what is wrong: it is as none.
        (&mut body).take(TEXT_MOST).read_to_end(&mut text).map_err(self.unreachable())?;
        let why = String::from_utf8_lossy(&text).trim().replace(['\n', '\r'], " ");
        let code = why.strip_prefix("Code: ").and_then(|rest| rest.split(&[',', '.'][..]).next());
        let code = code.and_then(|code| code.trim().parse().ok()).unwrap_or(0);
        Err(StoreError::Refused { url: server.url.clone(), what, code, why })
    }

    /// The error of a connection.
    pub(super) fn unreachable(&self) -> impl Fn(std::io::Error) -> StoreError + use<> {
        let url = self.server.url.clone();
        move |error| StoreError::Unreachable { url: url.clone(), why: error.to_string() }
    }
}

/// Those that a host trusts; one without them trusts nobody, and says so when it meets TLS.
fn authorities(path: &Path) -> Vec<Certificate<'static>> {
    let Ok(text) = std::fs::read(path) else { return Vec::new() };
    let all = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok);
    all.map(|der| Certificate::from_der(&der).to_owned()).collect()
}

/// Where Debian keeps the authorities that a host trusts.
const HOST_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A statement that takes longer has failed, for all that is known here.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);
/// How often it is looked whether a question is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Of an error's text, bytes.
const TEXT_MOST: u64 = 600;
/// Between the parts of a form. Rows may hold it, but not as a whole line with this many marks:
/// 122 bits of them are chosen at random.
const BOUNDARY: &str = "sonde-7d1b6f0e5a5c4f0f9d3be1c2a4f86d17-lot";
