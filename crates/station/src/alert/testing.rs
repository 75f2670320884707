//! A folder of a test.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder that goes with the value.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sonde-alert-{name}-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// A file in it that holds a secret: its path.
    pub(crate) fn secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }
}

/// A certificate of `localhost` and 127.0.0.1 that has signed itself, and its private key: files.
pub(crate) struct TestIdentity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Folder {
    pub(crate) fn identity(&self) -> TestIdentity {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = self.0.join("certificate.pem");
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        let key = self.secret("key.pem", &made.signing_key.serialize_pem());
        TestIdentity { certificate, key }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
