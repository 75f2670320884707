//! Certificates for a laboratory: an authority, and what it signs for agents and controllers.
//!
//! Each certificate is for one role, by its extended key usage (RFC 5280, section 4.2.1.12): an
//! agent's is a server's, a controller's is a client's. So who has taken an agent's key from its
//! host has none to order others with.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::tls::Role;
use sonde_run::error::RunError;
use sonde_run::pem;

/// Which certificates to make, and where.
#[derive(Clone, Debug)]
pub struct CertRequest {
    /// Names or addresses of the agents' hosts, as plans have them, each for one certificate;
    /// "controller" is a controller's.
    pub hosts: Vec<String>,
    pub controllers: Vec<String>,
    /// Sign the certificates that are there anew, for another year; of `hosts`, or of all.
    pub renew: bool,
    /// The directory to write to.
    pub dir: PathBuf,
}

/// Makes `ca.pem` and `ca.key`, and `HOST.pem` and `HOST.key` for each name; of an authority that
/// is there already only the latter. Returns what was written.
///
/// # Errors
/// A file that is there already, or cannot be written; a name that no certificate carries; an
/// authority without its key.
pub fn make(request: &CertRequest) -> Result<Vec<PathBuf>, RunError> {
    make_all(request).map_err(RunError::settings)
}

fn make_all(request: &CertRequest) -> Result<Vec<PathBuf>> {
    let dir = &request.dir;
    let agents = request
        .hosts
        .iter()
        .map(|h| (h, if h == CONTROLLER { Role::Controller } else { Role::Agent }));
    let named: Vec<(&String, Role)> =
        agents.chain(request.controllers.iter().map(|c| (c, Role::Controller))).collect();
    for (name, _) in &named {
        ensure!(is_name(name), "'{name}' is no name of a host; give a DNS name or an IP address");
        certificate(name, Role::Agent)?;
    }
    if request.renew {
        return renew(dir, &named.into_iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    }
    fs::create_dir_all(dir).with_context(|| {
        format!("cannot make the folder {}; choose another `dir`", dir.display())
    })?;
    let mut written = Vec::new();
    let issuer = match authority_key(dir)? {
        Some(key) => Issuer::new(authority()?, key),
        None => {
            let key = KeyPair::generate()?;
            let params = authority()?;
            save(&mut written, dir.join(CA_KEY), 0o600, &key.serialize_pem())?;
            save(&mut written, dir.join(CA), 0o644, &params.self_signed(&key)?.pem())?;
            Issuer::new(params, key)
        }
    };
    for (name, role) in named {
        let key = KeyPair::generate()?;
        let signed = certificate(name, role)?.signed_by(&key, &issuer)?;
        save(&mut written, dir.join(format!("{name}.key")), 0o600, &key.serialize_pem())?;
        save(&mut written, dir.join(format!("{name}.pem")), 0o644, &signed.pem())?;
    }
    Ok(written)
}

/// Signs what is there anew, with the keys that are there: only certificates have to be copied.
fn renew(dir: &Path, names: &[String]) -> Result<Vec<PathBuf>> {
    let Some(key) = authority_key(dir)? else {
        bail!("{} is not there; make certificates first, without `renew`", dir.join(CA).display());
    };
    let names = if names.is_empty() { all_names(dir)? } else { names.to_vec() };
    let mut signed = Vec::new();
    let params = authority()?;
    signed.push((dir.join(CA), params.self_signed(&key)?.pem()));
    let issuer = Issuer::new(params, key);
    for name in names {
        let path = dir.join(format!("{name}.pem"));
        let role = role(&path)?;
        let key = read_key(&dir.join(format!("{name}.key")))?;
        signed.push((path, certificate(&name, role)?.signed_by(&key, &issuer)?.pem()));
    }
    // All could be signed: the old ones go, each at once.
    let mut written = Vec::new();
    for (path, text) in signed {
        let next = path.with_extension("pem.new");
        let replaced = fs::write(&next, text).and_then(|()| fs::rename(&next, &path));
        replaced.with_context(|| {
            format!("cannot write {}; renew as the user who made it", path.display())
        })?;
        written.push(path);
    }
    Ok(written)
}

/// The key of the authority of a folder; `None`: it has neither.
fn authority_key(dir: &Path) -> Result<Option<KeyPair>> {
    let (certificate, key) = (dir.join(CA), dir.join(CA_KEY));
    match (certificate.exists(), key.exists()) {
        (false, false) => Ok(None),
        (true, true) => read_key(&key).map(Some),
        (true, false) => bail!(
            "{} is there and its key, {}, is not: an older Sonde kept none; make all certificates \
             anew in another `dir`",
            certificate.display(),
            key.display()
        ),
        (false, true) => bail!(
            "{} is there without {}; bring it back, or make all anew in another `dir`",
            key.display(),
            certificate.display()
        ),
    }
}

fn all_names(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| {
        format!("cannot read {}; is it the `dir` of the certificates?", dir.display())
    })?;
    let files = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    let names = files.filter_map(|f| f.strip_suffix(".key").map(str::to_owned));
    let mut names: Vec<String> =
        names.filter(|n| n != "ca" && dir.join(format!("{n}.pem")).exists()).collect();
    names.sort();
    ensure!(
        !names.is_empty(),
        "{} has no certificates to renew; name the folder where they were made as `dir`",
        dir.display()
    );
    Ok(names)
}

/// What the certificate in a file is for.
fn role(path: &Path) -> Result<Role> {
    if !path.exists() {
        bail!(
            "{} cannot be read: there is no such file; name a host whose certificate is there, or \
             make one without `renew`",
            path.display()
        );
    }
    let certificates = pem::certificates(path)?;
    let der = &certificates[0];
    // id-kp-serverAuth and id-kp-clientAuth, as they are encoded (RFC 5280, section 4.2.1.12).
    let has = |last: u8| {
        let id = [6, 8, 0x2b, 6, 1, 5, 5, 7, 3, last];
        der.windows(id.len()).any(|w| w == id)
    };
    match (has(1), has(2)) {
        (true, false) => Ok(Role::Agent),
        (false, true) => Ok(Role::Controller),
        _ => bail!(
            "{} is neither an agent's nor a controller's; make another in another `dir`",
            path.display()
        ),
    }
}

fn read_key(path: &Path) -> Result<KeyPair> {
    let text = fs::read_to_string(path).with_context(|| {
        format!("cannot read {}; only the user who made it can", path.display())
    })?;
    KeyPair::from_pem(&text).with_context(|| {
        format!(
            "{} holds no private key; bring it back, or make all anew in another `dir`",
            path.display()
        )
    })
}

fn authority() -> Result<CertificateParams> {
    let mut params = for_a_year(&[])?;
    params.distinguished_name.push(DnType::CommonName, "Sonde laboratory");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn certificate(name: &str, role: Role) -> Result<CertificateParams> {
    let mut params = for_a_year(&[name.to_owned()])
        .with_context(|| format!("'{name}' is no name that a certificate can carry"))?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![match role {
        Role::Agent => ExtendedKeyUsagePurpose::ServerAuth,
        Role::Controller => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    Ok(params)
}

/// Valid for a year from now, with these names.
fn for_a_year(names: &[String]) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(now);
    params.not_after = params.not_before + YEAR;
    Ok(params)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.') && name != "ca"
}

/// Never over another file: a key that is lost is lost for good.
fn save(written: &mut Vec<PathBuf>, path: PathBuf, mode: u32, text: &str) -> Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
    let saved = made.and_then(|mut file| file.write_all(text.as_bytes()));
    saved.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            anyhow!("{} is there already; `renew` signs it anew", path.display())
        }
        _ => anyhow!(e).context(format!("cannot write {}; choose another `dir`", path.display())),
    })?;
    written.push(path);
    Ok(())
}

/// Of the certificate of the authority.
const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
/// Who is called so is one.
const CONTROLLER: &str = "controller";
const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls;

    fn args(dir: &Path, hosts: &[&str], controllers: &[&str], renew: bool) -> CertRequest {
        let list = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
        let (hosts, controllers) = (list(hosts), list(controllers));
        CertRequest { hosts, controllers, renew, dir: dir.to_owned() }
    }

    #[test]
    fn certificates_are_for_one_role_for_a_year_and_are_renewed_for_their_keys() {
        let dir = std::env::temp_dir().join(format!("sonde-cert-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let made = make(&args(&dir, &["192.0.2.1", "controller"], &["ann"], false)).unwrap();
        assert_eq!(made.len(), 8, "{made:?}");
        let file = |name: &str| dir.join(name);
        let fits = |name: &str, role: Role, days: u64| {
            let now = SystemTime::now() + Duration::from_secs(days * 86_400);
            tls::fit(&file(name), &file("ca.pem"), role, now)
        };
        for (name, role, other) in [
            ("192.0.2.1.pem", Role::Agent, Role::Controller),
            ("controller.pem", Role::Controller, Role::Agent),
            ("ann.pem", Role::Controller, Role::Agent),
        ] {
            fits(name, role, 0).unwrap();
            let wrong = format!("{:#}", fits(name, other, 0).unwrap_err());
            assert!(wrong.contains("is not for"), "{wrong}");
            fits(name, role, 364).unwrap();
            let late = format!("{:#}", fits(name, role, 366).unwrap_err());
            assert!(late.contains("--renew"), "{late}");
        }
        // A key that was lost is lost: nothing is overwritten.
        let again = make(&args(&dir, &["192.0.2.1"], &[], false)).unwrap_err().to_string();
        assert!(again.contains("`renew`"), "{again}");
        // Another host of the same authority; then all of them for their keys and roles.
        make(&args(&dir, &["192.0.2.2"], &[], false)).unwrap();
        let key = fs::read(file("ann.key")).unwrap();
        let before = fs::read(file("ann.pem")).unwrap();
        let renewed = make(&args(&dir, &[], &[], true)).unwrap();
        assert_eq!(renewed.len(), 5, "{renewed:?}");
        assert_eq!(fs::read(file("ann.key")).unwrap(), key);
        assert_ne!(fs::read(file("ann.pem")).unwrap(), before);
        fits("ann.pem", Role::Controller, 0).unwrap();
        fits("192.0.2.2.pem", Role::Agent, 0).unwrap();
        tls::client(&file("ann.pem"), &file("ann.key"), &file("ca.pem")).unwrap();
        let missing = make(&args(&dir, &["nope"], &[], true)).unwrap_err().to_string();
        assert!(missing.contains("nope.pem cannot be read: there is no such file"), "{missing}");
        // Without the authority's key nothing can be signed.
        fs::remove_file(file("ca.key")).unwrap();
        let lost = make(&args(&dir, &[], &[], true)).unwrap_err().to_string();
        assert!(lost.contains("another `dir`"), "{lost}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
