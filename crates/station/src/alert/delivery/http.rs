//! POST requests over HTTP/1.1 and TLS, of alerts and exporters.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sonde_run::error::SettingsError;
use sonde_run::pem;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use super::SEND_WITHIN;
use crate::alert::sink::{HttpPost, SinkReply};

/// Sends requests. No proxy of the environment, no redirection, no connection kept.
pub(crate) struct HttpClient {
    agent: Agent,
}

/// A request with any body.
pub(crate) struct SentPost<'a> {
    /// Where to: `http` or `https`.
    pub url: &'a str,
    /// Media type of the body.
    pub content_type: &'a str,
    /// Headers besides those that every request has.
    pub headers: &'a [(&'static str, String)],
    /// What is sent.
    pub body: &'a [u8],
}

/// What came back.
pub(crate) struct HttpAnswer {
    status: u16,
    retry_after: Option<Duration>,
    /// The begin of its body.
    pub begin: Vec<u8>,
}

impl From<HttpAnswer> for SinkReply {
    fn from(answer: HttpAnswer) -> SinkReply {
        let HttpAnswer { status, retry_after, begin } = answer;
        let text = String::from_utf8_lossy(&begin).trim().to_owned();
        SinkReply::Http { status, retry_after, text }
    }
}

impl HttpClient {
    /// One that trusts the authorities in `ca`, or those of this host.
    pub fn new(ca: Option<&Path>) -> Result<HttpClient, SettingsError> {
        let roots = match ca {
            Some(path) => pem::certificates(path).map_err(|e| e.because_of("ca"))?,
            // A host without the package ca-certificates trusts nobody, and says so.
            None => pem::certificates(Path::new(HOST_AUTHORITIES)).unwrap_or_default(),
        };
        let roots = roots.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(pem::provider())
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .max_idle_connections(0)
            .timeout_global(Some(SEND_WITHIN))
            .user_agent(concat!("sonde/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(HttpClient { agent: config.new_agent() })
    }

    /// Sends one after the other, until one is not taken. The last answer.
    pub fn post_all(&self, posts: &[HttpPost]) -> Result<SinkReply, String> {
        let mut last = SinkReply::Sent;
        for HttpPost { url, headers, body } in posts {
            let post = SentPost { url, content_type: "application/json", headers, body };
            last = self.send(&post)?.into();
            if !matches!(last, SinkReply::Http { status: 200..300, .. }) {
                break;
            }
        }
        Ok(last)
    }

    /// Sends one.
    pub fn send(&self, post: &SentPost<'_>) -> Result<HttpAnswer, String> {
        let mut request = self.agent.post(post.url).content_type(post.content_type);
        for (name, value) in post.headers {
            request = request.header(*name, value);
        }
        let mut answer = request.send(post.body).map_err(|e| e.to_string())?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get("retry-after").and_then(|v| v.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.trim().parse().ok());
        let mut begin = Vec::new();
        // What cannot be read of the text changes nothing.
        let _ = answer.body_mut().as_reader().take(TEXT_MOST).read_to_end(&mut begin);
        Ok(HttpAnswer { status, retry_after: retry_after.map(Duration::from_secs), begin })
    }
}

/// Where Debian keeps the authorities that a host trusts.
pub(super) const HOST_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Of an answer's text, for people, bytes.
const TEXT_MOST: u64 = 500;
