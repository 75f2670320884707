//! The guest's kernel, modules and busybox, from Debian's packages: fetched by apt once, and
//! kept.

use std::fs;
use std::path::{Path, PathBuf};

use super::cpio::File;
use crate::LabError;
use crate::device::run_dir::file_error;
use crate::host::run;

/// Where the parts of a guest lie.
pub(crate) struct Image {
    pub(crate) kernel: PathBuf,
    folder: PathBuf,
}

impl Image {
    /// The parts, fetched where they are not there yet.
    pub(crate) fn get() -> Result<Image, LabError> {
        let folder = PathBuf::from(CACHE);
        if !folder.join(KERNEL).exists() {
            // Another may fetch at the same time: each works in a folder of its own, and
            // the first one's becomes the cache.
            let new = PathBuf::from(format!("{CACHE}.{}", std::process::id()));
            let made = fetch(&new);
            if made.is_ok() && fs::rename(&new, &folder).is_err() && !folder.join(KERNEL).exists() {
                return Err(LabError::Bed(format!("cannot make {CACHE}")));
            }
            let _ = fs::remove_dir_all(&new);
            made.map_err(|e| {
                LabError::Bed(format!(
                    "{NO_IMAGE}, and apt cannot fetch it ('apt-get update'?): {e}"
                ))
            })?;
        }
        Ok(Image { kernel: folder.join(KERNEL), folder })
    }

    /// The files of every guest.
    pub(crate) fn files(&self) -> Result<Vec<File>, LabError> {
        let read = |name: &str| {
            let path = self.folder.join(name);
            fs::read(&path).map_err(|e| file_error(&path, e))
        };
        let folders = ["bin", "dev", "modules", "proc", "sys"];
        let mut files: Vec<File> = folders.into_iter().map(File::folder).collect();
        files.push(File::console());
        files.push(File::program("bin/busybox", read("busybox")?));
        for module in MODULES {
            let name = format!("{module}.ko");
            files.push(File::program(&format!("modules/{name}"), read(&name)?));
        }
        Ok(files)
    }
}

/// Fetches the packages and keeps of them what a guest needs.
fn fetch(folder: &Path) -> Result<(), LabError> {
    let path = folder.to_str().expect("made of plain names");
    fs::create_dir_all(folder).map_err(|e| file_error(folder, e))?;
    let names = run(&["apt-cache", "depends", META])?;
    let kernel = (names.lines())
        .find_map(|l| l.trim().strip_prefix("Depends: "))
        .ok_or_else(|| LabError::Bed(format!("apt knows no package {META}: 'apt-get update'")))?;
    // In that folder; apt's own user need not be able to write there.
    let script = "cd \"$1\" && shift && \
                  apt-get -q -o APT::Sandbox::User=root download \"$@\" >&2 && \
                  for p in *.deb; do dpkg-deb -x \"$p\" . || exit 1; done";
    run(&["sh", "-c", script, "sh", path, kernel, "busybox-static"])?;
    let find = |name: &str| run(&["find", path, "-path", &format!("*/{name}"), "-type", "f"]);
    let keep = |found: &str, name: &str| {
        let path = found.lines().next().unwrap_or_default();
        fs::rename(path, folder.join(name)).map_err(|e| file_error(&folder.join(name), e))
    };
    keep(&find("bin/busybox")?, "busybox")?;
    for module in MODULES {
        let (name, packed) = (format!("{module}.ko"), format!("{module}.ko.xz"));
        let found = find(&name)?;
        if found.is_empty() {
            // As of Debian 13.
            run(&["xz", "-d", find(&packed)?.trim()])?;
        }
        keep(&find(&name)?, &name)?;
    }
    // The mark that all is there comes last.
    keep(&find("vmlinuz-*")?, KERNEL)?;
    run(&["sh", "-c", "cd \"$1\" && rm -rf *.deb boot lib usr etc bin", "sh", path]).map(drop)
}

/// Modules in the order of their loading.
pub(crate) const MODULES: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];
const NO_IMAGE: &str = "a virtual machine's kernel comes from Debian's archive";
const CACHE: &str = "/var/cache/sonde/vm";
const KERNEL: &str = "vmlinuz";
/// Depends on the current kernel for virtual machines.
const META: &str = "linux-image-cloud-amd64";
