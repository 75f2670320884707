//! A folder of one test.

use std::path::PathBuf;

/// A path that nothing is at yet; dropping it removes what is there by then.
pub struct TestFolder(pub PathBuf);

impl TestFolder {
    /// `name`: of no other test of this crate.
    pub fn new(name: &str) -> TestFolder {
        let name = format!("sonde-testbed-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        TestFolder(path)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
