//! Text cases and the model that answers them; folders.

pub mod model;
pub mod render;
pub mod script;

use std::path::{Path, PathBuf};

use sonde_store::{Retention, StoreOptions};

/// A folder of its own, gone at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("sonde-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store that does nothing by time alone.
pub fn options() -> StoreOptions {
    StoreOptions {
        seal_after_ns: i64::MAX,
        grace_ns: 0,
        retention: Retention { tables: Default::default(), floor_octets: 0 },
        reserve_octets: 0,
        ..StoreOptions::default()
    }
}
