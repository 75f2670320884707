//! Export over TLS and over SCTP.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::collector::{accept, silent_port};
use super::packets::{flow_index, flows, pcap};
use super::support::{Exported, Folder, flow, run_of, start};

/// An authority, and certificates that it has signed, made by openssl.
struct Authority {
    folder: Folder,
}

impl Authority {
    fn new() -> Authority {
        let folder = Folder::new();
        openssl(
            &folder,
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                          -subj /CN=authority -keyout ca.key -out ca.pem",
        );
        let authority = Authority { folder };
        authority.sign("server", "subjectAltName=IP:127.0.0.1");
        authority.sign("client", "subjectAltName=DNS:exporter.example");
        authority
    }

    fn sign(&self, name: &str, extension: &str) {
        self.folder.write("ext", extension.as_bytes());
        let folder = &self.folder;
        openssl(
            folder,
            &format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
                                  -subj /CN={name} -keyout {name}.key -out {name}.csr"
            ),
        );
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -days 2 \
                                  -CAcreateserial -extfile ext -out {name}.pem"
            ),
        );
    }

    fn certificates(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let path = self.folder.file(name);
        CertificateDer::pem_file_iter(path).unwrap().map(|c| c.unwrap()).collect()
    }

    /// A collector's settings; `demanding`: exporters need a certificate of this authority.
    fn server(&self, demanding: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.certificates("ca.pem").remove(0)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match demanding {
            true => builder.with_client_cert_verifier(verifier.build().unwrap()),
            false => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::from_pem_file(self.folder.file("server.key")).unwrap();
        Arc::new(builder.with_single_cert(self.certificates("server.pem"), key).unwrap())
    }

    fn file(&self, name: &str) -> String {
        self.folder.file(name)
    }
}

fn openssl(folder: &Folder, line: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(line.split_whitespace()).current_dir(&folder.0).output();
    let output = output.unwrap_or_else(|e| panic!("openssl: {e}; 'make setup' installs it"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What comes until the exporter closes; an error of the session ends it, too.
fn collect(config: Arc<ServerConfig>, mut stream: TcpStream) -> Result<Vec<u8>, std::io::Error> {
    let mut session = ServerConnection::new(config).unwrap();
    let mut all = Vec::new();
    let result = rustls::Stream::new(&mut session, &mut stream).read_to_end(&mut all);
    // The alert that says why.
    while session.wants_write() && session.write_tls(&mut stream).is_ok() {}
    let _ = stream.flush();
    result.map(|_| all)
}

#[test]
fn over_tls_every_record_arrives_with_and_without_our_certificate() {
    let authority = Authority::new();
    let capture = authority.folder.write("a.pcap", &pcap(&flows(30_000), 1, false));
    for demanding in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut line = format!(
            "{capture} --export tls://{} --tls-ca {} --json",
            listener.local_addr().unwrap(),
            authority.file("ca.pem")
        );
        if demanding {
            let (pem, key) = (authority.file("client.pem"), authority.file("client.key"));
            line.push_str(&format!(" --tls-cert {pem} --tls-key {key}"));
        }
        let run = start(&line);
        let all = collect(authority.server(demanding), accept(&listener)).unwrap();
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let exported = Exported::of(&all);
        assert!(exported.is_whole);
        let mut indices: Vec<u32> = exported.flows.iter().map(flow_index).collect();
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..30_000));
        let run = run_of(&ended.out);
        assert_eq!(run.exports[0].counters["messages_sent_again"], 0);
    }
}

#[test]
fn a_collector_that_cannot_be_trusted_or_does_not_trust_us_gets_nothing() {
    let (ours, other) = (Authority::new(), Authority::new());
    let capture = ours.folder.write("a.pcap", &pcap(&flows(200), 1, false));
    for (demanding, ca, part) in [
        (false, other.file("ca.pem"), "invalid peer certificate"),
        (true, ours.file("ca.pem"), "--tls-cert"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let spool = ours.folder.file(&format!("spool-{demanding}"));
        let line = format!("{capture} --export tls://{address} --spool {spool} -q");
        let mut run = start(&format!("{line} --tls-ca {ca}"));
        assert!(collect(ours.server(demanding), accept(&listener)).is_err());
        run.until("the reason", |p| p.err().iter().any(|l| l.contains(part)));
        // Nobody listens any more, so the run ends after its last tries.
        drop(listener);
        let ended = run.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        // The next run is trusted, and sends what has waited.
        let listener = TcpListener::bind(address).unwrap();
        let run = start(&format!(
            "{line} --tls-ca {} --tls-cert {} --tls-key {}",
            ours.file("ca.pem"),
            ours.file("client.pem"),
            ours.file("client.key")
        ));
        for _ in 0..2 {
            let exported =
                Exported::of(&collect(ours.server(demanding), accept(&listener)).unwrap());
            assert!(exported.is_whole && exported.flows.len() == 200, "{}", exported.flows.len());
        }
        assert_eq!(run.end().code, 0);
    }
}

#[test]
fn settings_of_tls_that_cannot_work_are_refused_at_once() {
    let authority = Authority::new();
    let capture = authority.folder.write("a.pcap", &pcap(&flows(3), 1, false));
    let to = format!("{capture} --export tls://{}", silent_port());
    let (key, none) = (authority.file("client.key"), authority.file("absent.pem"));
    let ca = authority.file("ca.pem");
    for (options, part) in [
        (String::new(), "--tls-ca"),
        (format!("--tls-ca {none}"), "absent.pem"),
        (format!("--tls-ca {key}"), "holds no certificate"),
        (format!("--tls-ca {ca} --tls-cert {none} --tls-key {key}"), "--tls-cert: cannot read"),
        (format!("--tls-ca {ca} --tls-cert {ca} --tls-key {key}"), "does not belong to"),
    ] {
        let ended = flow(&format!("{to} {options}"));
        assert_eq!(ended.code, 2, "{}", ended.err);
        assert!(ended.err.contains(part), "{}", ended.err);
    }
}

#[test]
fn without_sctp_the_message_names_the_next_step() {
    if std::fs::read_to_string("/proc/net/protocols").unwrap().contains("SCTP") {
        println!("this kernel has SCTP");
        return;
    }
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(3), 1, false));
    let ended = flow(&format!("{capture} --export sctp://127.0.0.1"));
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(ended.err.contains("modprobe sctp"), "{}", ended.err);
}
