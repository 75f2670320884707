//! Certificates for a laboratory: an authority that signs once and whose key is kept nowhere.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// `sonde agent cert`
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct CertArgs {
    /// Names or addresses, each for one certificate: those of the agents' hosts, as the plan
    /// has them, and any name for the controller
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<String>,
    /// Where to write
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
}

/// Makes `ca.pem`, and `HOST.pem` and `HOST.key` for each host. Returns what was written.
///
/// # Errors
/// A file that is there already, or cannot be written; a name that no certificate carries.
pub fn make(args: &CertArgs) -> Result<Vec<PathBuf>> {
    let year = 1970 + (SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 31_556_952) as i32;
    let params = |names: &[String]| -> Result<CertificateParams> {
        let mut params = CertificateParams::new(names)?;
        params.not_before = date_time_ymd(year - 1, 1, 1);
        params.not_after = date_time_ymd(year + YEARS, 1, 1);
        Ok(params)
    };
    let mut authority = params(&[])?;
    authority.distinguished_name.push(DnType::CommonName, "Sonde laboratory");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate()?;
    let certificate = authority.self_signed(&key)?;
    let issuer = Issuer::new(authority, key);

    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make {}", args.dir.display()))?;
    let mut written = Vec::new();
    let mut write = |name: String, mode: u32, text: String| -> Result<()> {
        let path = args.dir.join(name);
        save(&path, mode, &text).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
        Ok(())
    };
    write("ca.pem".into(), 0o644, certificate.pem())?;
    for host in &args.hosts {
        ensure!(
            !host.contains(['/', '\0']) && !host.starts_with('.'),
            "'{host}' is no name of a host"
        );
        let mut leaf = params(std::slice::from_ref(host))
            .with_context(|| format!("'{host}' is no name that a certificate can carry"))?;
        leaf.distinguished_name.push(DnType::CommonName, host);
        leaf.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        write(format!("{host}.pem"), 0o644, leaf.signed_by(&key, &issuer)?.pem())?;
        write(format!("{host}.key"), 0o600, key.serialize_pem())?;
    }
    Ok(written)
}

/// Never in the place of another file: who has lost a key has lost it.
fn save(path: &Path, mode: u32, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

const HELP: &str = "\
Example:
  sonde agent cert --dir lab 192.0.2.1 192.0.2.2 controller
Everybody in the laboratory needs ca.pem and a certificate with its key. The authority's own
key is not kept: for another host make all of them anew.";

/// For how long they are good.
const YEARS: i32 = 10;
