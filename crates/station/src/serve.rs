//! Where a station's API is reached: a Unix socket for this host, an address of TCP for others.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use rustls::ServerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use sonde_api::AccessRole;
use sonde_api::Backend;
use sonde_api::instant::UtcInstant;
use sonde_run::error::{RunError, SettingsError};
use sonde_run::pem;
use sonde_run::thread;
use sonde_server::api::{
    ApiAccess, ApiHooks, ApiLimits, ApiServer, ApiToken, TokenStore, parse_tokens,
};
use sonde_server::http::ServerStop;

/// How the API is reached, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiSettings {
    /// A Unix socket, mode 0600: whoever may open it is an administrator. Absent: the path of the
    /// store with `.sock` behind it. An empty text: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Address and port of TCP besides: `127.0.0.1:8620`. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Who is let in by TCP: a file with a line `NAME ROLE EXPIRY SHA256` for each token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<PathBuf>,
    /// Certificates for TLS, PEM, the station's own first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The private key of the first certificate, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// What those may do by TCP who show no token. Absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<AccessRole>,
    /// Names by which this host is called, beside its addresses and `localhost`.
    pub names: Vec<String>,
    /// Listens on an address that others reach, also without TLS or tokens.
    pub exposed: bool,
}

impl ApiSettings {
    /// Whether the settings can be.
    ///
    /// # Errors
    /// The first that cannot, with its key.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |key, why: &str| Err(SettingsError::new(key, why));
        match (&self.certificate, &self.key) {
            (Some(_), None) => return wrong("key", "it is missing; name the certificate's key"),
            (None, Some(_)) => {
                return wrong("certificate", "it is missing; name that of the key");
            }
            _ => {}
        }
        let Some(listen) = self.listen else {
            let useless = [
                ("tokens", self.tokens.is_some()),
                ("certificate", self.certificate.is_some()),
                ("anonymous", self.anonymous.is_some()),
                ("names", !self.names.is_empty()),
                ("exposed", self.exposed),
            ];
            let why = "it has no effect without listen; the socket needs none of it";
            return match useless.iter().find(|(_, set)| *set) {
                Some((key, _)) => wrong(key, why),
                None => Ok(()),
            };
        };
        if self.tokens.is_none() && self.anonymous.is_none() {
            return wrong("tokens", "nobody is let in without; name a file, or set anonymous");
        }
        if listen.ip().is_loopback() || self.exposed {
            return Ok(());
        }
        let lacks = match () {
            () if self.certificate.is_none() => "without certificate and key they read the tokens",
            () if self.anonymous.is_some() => "anonymous lets in whoever shows no token",
            () if self.tokens.is_none() => "there are no tokens",
            () => return Ok(()),
        };
        let why = format!(
            "{listen} can be reached by others, and {lacks}; give it both, listen on a loopback address, or set `exposed = true`"
        );
        Err(SettingsError::new("listen", why))
    }

    /// Where the Unix socket of a station with that store is; `None`: it has none.
    pub fn socket_path(&self, store: &Path) -> Option<PathBuf> {
        match &self.socket {
            Some(path) if path.as_os_str().is_empty() => None,
            Some(path) => Some(path.clone()),
            None => Some(default_socket(store)),
        }
    }

    /// Whether the files of tokens and TLS can be used.
    ///
    /// # Errors
    /// The first that cannot, with its key within `[api]`.
    pub(crate) fn check_files(&self) -> Result<(), SettingsError> {
        if self.listen.is_none() {
            return Ok(());
        }
        let tokens = self.tokens.as_ref().map(|path| TokenStore::read(path));
        tokens.transpose().map_err(|e| SettingsError::new("tokens", e))?;
        self.tls().map(drop)
    }

    fn tls(&self) -> Result<Option<Arc<ServerConfig>>, SettingsError> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            return Ok(None);
        };
        let of = |key: &'static str| move |e: SettingsError| e.because_of(key);
        let chain = pem::certificates(certificate).map_err(of("certificate"))?;
        let private = pem::private_key(key).map_err(of("key"))?;
        let config = ServerConfig::builder_with_provider(pem::provider())
            .with_safe_default_protocol_versions()
            .context("TLS cannot be used")?
            .with_no_client_auth()
            .with_single_cert(chain, private);
        let config = config.map_err(|e| {
            let (key, certificate) = (key.display(), certificate.display());
            let why = format!("{key} is not the key of {certificate}; name that which is: {e}");
            SettingsError::new("key", why)
        })?;
        Ok(Some(Arc::new(config)))
    }
}

/// The Unix socket of a station whose store is `store`, unless its configuration says otherwise.
pub fn default_socket(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(".sock");
    path.into()
}

/// A token that is made.
pub struct IssuedToken {
    /// Its line in a file of tokens.
    pub line: String,
    /// What its owner shows. It is kept nowhere.
    pub secret: String,
}

/// Makes a token; `expires_ns` since 1970 UTC, `None`: never.
///
/// # Errors
/// A name that is none; no randomness to be had.
pub fn issue_token(
    name: &str,
    role: AccessRole,
    expires_ns: Option<i64>,
) -> Result<IssuedToken, String> {
    let (token, secret) = ApiToken::issue(name, role, expires_ns.map(UtcInstant::from_ns))?;
    Ok(IssuedToken { line: token.line(), secret })
}

/// Whether a text is a file of tokens that has none of this name.
///
/// # Errors
/// The line that is none, or the name.
pub fn check_new_token(path: &str, text: &str, name: &str) -> Result<(), String> {
    let tokens = parse_tokens(path, text).map_err(|error| error.to_string())?;
    match tokens.iter().any(|token| token.name == name) {
        true => Err(format!("{path} has a token '{name}'; take its line out, or use another name")),
        false => Ok(()),
    }
}

/// What the API is reached by, taken while the station still has its rights.
#[derive(Default)]
pub struct BoundApi {
    servers: Vec<ApiServer>,
    tokens: Arc<TokenStore>,
    address: Option<SocketAddr>,
}

impl BoundApi {
    /// Takes the socket and the address.
    ///
    /// # Errors
    /// Another station answers there; what the kernel refuses; files of tokens or TLS that cannot
    /// be used.
    pub fn bind(settings: &ApiSettings, store: &Path) -> Result<BoundApi, RunError> {
        let mut bound = BoundApi::default();
        if let Some(path) = settings.socket_path(store) {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let made = folder.map_or(Ok(()), std::fs::create_dir_all);
            let everything =
                ApiAccess { anonymous: Some(AccessRole::Admin), ..ApiAccess::default() };
            let server = made.and_then(|()| ApiServer::bind_socket(&path, everything));
            let why = || format!("cannot serve the API on {}", path.display());
            bound.servers.push(server.with_context(why)?);
        }
        if let Some(listen) = settings.listen {
            if let Some(path) = &settings.tokens {
                let tokens = TokenStore::read(path)
                    .map_err(|e| SettingsError::new("tokens", e).inside("api"))?;
                bound.tokens = Arc::new(tokens);
            }
            let access = ApiAccess {
                tls: settings.tls().map_err(|e| e.inside("api"))?,
                tokens: bound.tokens.clone(),
                anonymous: settings.anonymous,
                names: settings.names.clone(),
                exposed: settings.exposed,
            };
            let server = ApiServer::bind(listen, access);
            let server = server.with_context(|| format!("cannot serve the API on {listen}"))?;
            bound.address = server.address().ok();
            bound.servers.push(server);
        }
        Ok(bound)
    }

    /// Where it listens by TCP: with port 0 the kernel chose one. `None`: it does not.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Who is let in by TCP.
    pub(crate) fn tokens(&self) -> &Arc<TokenStore> {
        &self.tokens
    }

    /// Serves `backend` on threads of its own.
    pub(crate) fn serve(
        self,
        backend: &Arc<dyn Backend>,
        hooks: &ApiHooks,
    ) -> Result<ServedApi, RunError> {
        let mut served = ServedApi { stop: ServerStop::new(), threads: Vec::new() };
        for server in self.servers {
            let (backend, hooks, stop) = (backend.clone(), hooks.clone(), served.stop.clone());
            let work = move || {
                if let Err(error) = server.serve(backend, ApiLimits::default(), hooks, &stop) {
                    tracing::error!("the API is served no more: {error}");
                }
            };
            // Those that serve already end where one cannot.
            served.threads.push(thread::spawn("sonde-api", work)?);
        }
        Ok(served)
    }
}

/// An API that is served. Dropped, it ends: requests under way are answered, within a bound.
pub(crate) struct ServedApi {
    stop: ServerStop,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for ServedApi {
    fn drop(&mut self) {
        self.stop.stop();
        for thread in self.threads.drain(..) {
            sonde_run::thread::join_logged(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: &ApiSettings) -> Option<String> {
        settings.check().err().map(|error| error.to_string())
    }

    #[test]
    fn what_others_reach_needs_tls_and_tokens_or_is_forced_by_name() {
        let of = |listen: &str| ApiSettings {
            listen: Some(listen.parse().unwrap()),
            tokens: Some("tokens".into()),
            ..ApiSettings::default()
        };
        assert_eq!(refused(&ApiSettings::default()), None);
        assert_eq!(refused(&of("127.0.0.1:8620")), None);
        assert_eq!(refused(&of("[::1]:8620")), None);
        let bare = of("0.0.0.0:8620");
        assert!(refused(&bare).unwrap().contains("without certificate"), "{bare:?}");
        let (certificate, key) = (Some("c".into()), Some("k".into()));
        let tls = ApiSettings { certificate, key, ..bare.clone() };
        assert_eq!(refused(&tls), None);
        let anonymous = Some(AccessRole::Read);
        let open = ApiSettings { anonymous, ..tls.clone() };
        assert!(refused(&open).unwrap().contains("shows no token"));
        assert!(refused(&ApiSettings { tokens: None, ..tls.clone() }).is_some());
        assert_eq!(refused(&ApiSettings { exposed: true, ..bare }), None);
        assert!(refused(&ApiSettings { key: None, ..tls.clone() }).unwrap().starts_with("key"));
        assert!(refused(&ApiSettings { listen: None, ..tls }).unwrap().contains("no effect"));
    }

    /// Exit code 2: see docs/exit-codes.md.
    #[test]
    fn files_that_cannot_be_used_are_wrong_settings() {
        let absent = Some(PathBuf::from("/nonexistent/file"));
        let of = |tokens: bool| ApiSettings {
            socket: Some(PathBuf::new()),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            tokens: absent.clone().filter(|_| tokens),
            certificate: absent.clone(),
            key: absent.clone(),
            anonymous: (!tokens).then_some(AccessRole::Read),
            ..ApiSettings::default()
        };
        for (tokens, key) in [(true, "api.tokens"), (false, "api.certificate")] {
            match BoundApi::bind(&of(tokens), Path::new("/nonexistent/store")) {
                Err(RunError::Settings(wrong)) => {
                    assert_eq!(wrong.key.as_deref(), Some(key));
                    assert!(wrong.message.contains("/nonexistent/file"), "{wrong}");
                }
                Err(other) => panic!("{other:?}"),
                Ok(_) => panic!("it was bound"),
            }
        }
    }

    #[test]
    fn the_socket_is_beside_the_store() {
        let of = |socket: Option<&str>| {
            let socket = socket.map(PathBuf::from);
            ApiSettings { socket, ..ApiSettings::default() }.socket_path(Path::new("/a/store"))
        };
        assert_eq!(of(None), Some("/a/store.sock".into()));
        assert_eq!(of(Some("/run/s")), Some("/run/s".into()));
        assert_eq!(of(Some("")), None);
    }
}
