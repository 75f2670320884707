//! What was changed and has to be restored, on disk before it is changed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layer::{Layer, LayerScope};
use super::setting::SettingChange;
use crate::LabError;
use crate::device::BedInfo;
use crate::device::run_dir::{self, file_error};

/// The changes of one bed, or of the host.
pub(super) struct Journal {
    path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    layer: Layer,
    #[serde(flatten)]
    change: SettingChange,
}

impl Journal {
    /// The one that a layer's changes belong into.
    pub(super) fn open(layer: Layer, bed: &BedInfo) -> Result<Journal, LabError> {
        match layer.scope() {
            LayerScope::Host => Self::of_host(),
            LayerScope::Bed | LayerScope::Build => Self::of_bed(bed),
        }
    }

    pub(super) fn of_bed(bed: &BedInfo) -> Result<Journal, LabError> {
        Self::read(Path::new(run_dir::BASE).join(&bed.name).join("tune.json"))
    }

    pub(super) fn of_host() -> Result<Journal, LabError> {
        Self::read(Path::new(run_dir::BASE).join("host-tune.json"))
    }

    fn read(path: PathBuf) -> Result<Journal, LabError> {
        let entries = run_dir::read(&path)?.unwrap_or_default();
        Ok(Journal { path, entries })
    }

    /// Notes a change that is about to be made.
    pub(super) fn add(&mut self, layer: Layer, change: &SettingChange) -> Result<(), LabError> {
        self.entries.push(Entry { layer, change: change.clone() });
        self.save()
    }

    /// Forgets a layer's changes, which have been restored.
    pub(super) fn remove(&mut self, layer: Layer) -> Result<(), LabError> {
        self.entries.retain(|e| e.layer != layer);
        self.save()
    }

    pub(super) fn holds(&self, layer: Layer) -> bool {
        self.entries.iter().any(|e| e.layer == layer)
    }

    /// A layer's changes in their order.
    pub(super) fn changes(&self, layer: Layer) -> Vec<SettingChange> {
        self.entries.iter().filter(|e| e.layer == layer).map(|e| e.change.clone()).collect()
    }

    /// The layers in the order in which they were applied.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let mut all: Vec<Layer> = Vec::new();
        for entry in &self.entries {
            if !all.contains(&entry.layer) {
                all.push(entry.layer);
            }
        }
        all
    }

    fn save(&self) -> Result<(), LabError> {
        if self.entries.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    Err(file_error(&self.path, e))
                }
                _ => Ok(()),
            };
        }
        run_dir::write_whole(&self.path, &self.entries)
    }
}
