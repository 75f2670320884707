//! Which files a run writes and reads: two outputs on one file spoil it, and so does an output
//! on an input.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::error::SettingsError;
use crate::whole_file::{lock_of, part_of};

/// The files of a run, with the settings that name them.
#[derive(Clone, Debug, Default)]
pub struct RunFiles<'a> {
    outputs: Vec<(&'a str, &'a Path)>,
    inputs: Vec<(&'a str, &'a Path)>,
    /// Those of the outputs that grow under another name.
    renamed: Vec<&'a Path>,
}

impl<'a> RunFiles<'a> {
    /// With the files that the setting `key` has written; `-` is standard output.
    pub fn writes(
        mut self,
        key: &'a str,
        paths: impl IntoIterator<Item = &'a (impl AsRef<Path> + ?Sized + 'a)>,
    ) -> Self {
        self.outputs.extend(paths.into_iter().map(|path| (key, path.as_ref())));
        self
    }

    /// These of the files that are written get their names at the end, and have others until then.
    pub fn renames(
        mut self,
        paths: impl IntoIterator<Item = &'a (impl AsRef<Path> + ?Sized + 'a)>,
    ) -> Self {
        self.renamed.extend(paths.into_iter().map(|path| path.as_ref()));
        self
    }

    /// With the files that the setting `key` has read; `-` is standard input.
    pub fn reads(
        mut self,
        key: &'a str,
        paths: impl IntoIterator<Item = &'a (impl AsRef<Path> + ?Sized + 'a)>,
    ) -> Self {
        self.inputs.extend(paths.into_iter().map(|path| (key, path.as_ref())));
        self
    }

    /// Whether each output has a file for itself, by whatever name. Devices, as /dev/null, take
    /// what they are given.
    ///
    /// # Errors
    /// Two outputs, or an output and an input, are one file, or one is a file that the other makes
    /// beside its own. The message names both settings.
    pub fn check(&self) -> Result<(), SettingsError> {
        for (i, &(key, path)) in self.outputs.iter().enumerate() {
            let written = Identity::of(path, "/dev/stdout");
            let others = self.outputs[..i].iter();
            if let Some((other, _)) =
                others.clone().find(|(_, other)| written.meets(&Identity::of(other, "/dev/stdout")))
            {
                let why = match (path == Path::new("-"), *other == key) {
                    (true, true) => "standard output (-) is given twice".to_owned(),
                    (true, false) => format!("`{other}` has standard output (-), too"),
                    (false, true) => format!("{} is given twice", path.display()),
                    (false, false) => {
                        format!("{} is written by `{other}`, too", path.display())
                    }
                };
                return Err(SettingsError::new(key, format!("{why}; name a file for each")));
            }
            if let Some((other, working)) = self.others(i).find_map(|(other, its)| {
                let working = self.working_names(its);
                let is_it = |name: &PathBuf| written.meets(&Identity::of(name, "/dev/stdout"));
                Some((other, working.into_iter().find(is_it)?))
            }) {
                let why = format!(
                    "`{other}` needs {} while it is written; name another file",
                    working.display()
                );
                return Err(SettingsError::new(key, why));
            }
            if let Some((other, read)) = self.working_names(path).into_iter().find_map(|working| {
                let working = Identity::of(&working, "/dev/stdout");
                let is_it = |(_, read): &&(&str, &Path)| {
                    read.exists() && working.meets(&Identity::of(read, "/dev/stdin"))
                };
                self.inputs.iter().find(is_it)
            }) {
                let why = format!(
                    "it needs {} while it is written, which is read as `{other}`; write elsewhere",
                    read.display()
                );
                return Err(SettingsError::new(key, why));
            }
            if let Some((other, _)) = self.inputs.iter().find(|(_, read)| {
                // What is not there is no file that is read.
                (*read == Path::new("-") || read.exists())
                    && written.meets(&Identity::of(read, "/dev/stdin"))
            }) {
                let why = format!("{} is read as `{other}`; write elsewhere", path.display());
                return Err(SettingsError::new(key, why));
            }
        }
        Ok(())
    }

    /// The outputs but the `index`th.
    fn others(&self, index: usize) -> impl Iterator<Item = (&'a str, &'a Path)> {
        let all = self.outputs.iter().enumerate();
        all.filter(move |(i, _)| *i != index).map(|(_, output)| *output)
    }

    /// The further files beside `path` that are made while it is written: its lock, and what is
    /// renamed to it at the end.
    fn working_names(&self, path: &Path) -> Vec<PathBuf> {
        let is_special = fs::metadata(path).is_ok_and(|about| !about.is_file());
        if path == Path::new("-") || is_special || path.file_name().is_none() {
            return Vec::new();
        }
        let part = self.renamed.contains(&path).then(|| part_of(path));
        part.into_iter().chain([lock_of(path)]).collect()
    }
}

/// What makes two paths one file.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Nothing is there: its folder, and its name in it.
    New(PathBuf, OsString),
    /// Device and inode of a file or pipe.
    Inode(u64, u64),
    /// Standard input or output that is no file.
    Standard(&'static str),
    /// A device, or nothing that can be written to.
    Any,
}

impl Identity {
    /// Of `path`; `-` is `standard`.
    fn of(path: &Path, standard: &'static str) -> Identity {
        let is_standard = path == Path::new("-");
        let named = if is_standard { Path::new(standard) } else { path };
        match fs::metadata(named) {
            Ok(about) if about.is_file() || about.file_type().is_fifo() => {
                Identity::Inode(about.dev(), about.ino())
            }
            _ if is_standard => Identity::Standard(standard),
            Ok(_) => Identity::Any,
            Err(_) => new(named).unwrap_or(Identity::Any),
        }
    }

    fn meets(&self, other: &Identity) -> bool {
        *self != Identity::Any && self == other
    }
}

/// A file that would be made at `path`, also by a symbolic link to where nothing is.
fn new(path: &Path) -> Option<Identity> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let folder = match path.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    Some(Identity::New(folder.canonicalize().ok()?, path.file_name()?.to_owned()))
}

/// More symbolic links in a row are a loop.
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sonde-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("sub")).unwrap();
        Folder(path)
    }

    /// Parquet grows under another name.
    fn is_renamed(path: &&Path) -> bool {
        path.extension().is_some_and(|extension| extension == "parquet")
    }

    fn outputs(a: &Path, b: &Path) -> Result<(), SettingsError> {
        let files = RunFiles::default().writes("out", [a]).writes("csv", [b]);
        files.renames([a, b].into_iter().filter(is_renamed)).check()
    }

    #[test]
    fn one_file_by_two_names_is_refused_whether_it_is_there_or_not() {
        let folder = folder("one-file");
        let at = |name: &str| folder.0.join(name);
        symlink("new", at("link")).unwrap();
        symlink("link", at("link-to-link")).unwrap();
        for there in [false, true] {
            if there {
                fs::write(at("new"), "old").unwrap();
                fs::hard_link(at("new"), at("hard")).unwrap();
            }
            for other in ["new", "./new", "sub/../new", "link", "link-to-link"] {
                let wrong = outputs(&at("new"), &at(other)).unwrap_err();
                assert_eq!(wrong.key.as_deref(), Some("csv"), "{other}");
                assert!(wrong.message.contains("written by `out`, too"), "{wrong}");
            }
        }
        assert!(outputs(&at("new"), &at("hard")).is_err());
        assert_eq!(outputs(&at("new"), &at("other")), Ok(()));
        assert_eq!(outputs(&at("other"), &at("sub/other")), Ok(()));
    }

    #[test]
    fn what_is_made_beside_an_output_is_neither_output_nor_input() {
        let folder = folder("beside");
        let at = |name: &str| folder.0.join(name);
        for (a, b) in [("z.parquet", "z.parquet.part"), ("z.jsonl", ".z.jsonl.lock")] {
            for (out, csv, to_blame) in [(a, b, "csv"), (b, a, "out")] {
                let wrong = outputs(&at(out), &at(csv)).unwrap_err();
                assert_eq!(wrong.key.as_deref(), Some(to_blame), "{out} {csv}");
                assert!(wrong.message.contains(b), "{wrong}");
            }
            let (out, read) = (at(a), at(b));
            let files = RunFiles::default().writes("out", [&out]).reads("sources", [&read]);
            let files = files.renames([out.as_path()].into_iter().filter(is_renamed));
            assert_eq!(files.check(), Ok(()), "nothing is read there");
            fs::write(&read, "packets").unwrap();
            let wrong = files.check().unwrap_err();
            assert!(wrong.message.contains("`sources`") && wrong.message.contains(b), "{wrong}");
        }
        assert_eq!(outputs(&at("z.ipfix"), &at("z.ipfix.part")), Ok(()));
    }

    #[test]
    fn an_output_is_no_input() {
        let folder = folder("in-and-out");
        let (read, other) = (folder.0.join("read"), folder.0.join("other"));
        fs::write(&read, "packets").unwrap();
        let files = |path| RunFiles::default().writes("out", [path]).reads("sources", [&read]);
        let wrong = files(&read).check().unwrap_err();
        assert!(
            wrong.message.starts_with("out: ") && wrong.message.contains("`sources`"),
            "{wrong}"
        );
        assert_eq!(files(&other).check(), Ok(()));
        // The name of an interface, where no file is.
        let named = RunFiles::default().writes("out", [&other]).reads("sources", [&other]);
        assert_eq!(named.check(), Ok(()));
    }

    #[test]
    fn standard_output_is_for_one_and_devices_are_for_all() {
        let (stdout, null) = (Path::new("-"), Path::new("/dev/null"));
        let wrong = outputs(stdout, stdout).unwrap_err();
        assert!(wrong.message.contains("standard output"), "{wrong}");
        assert_eq!(outputs(null, null), Ok(()));
        let twice = RunFiles::default().writes("write", [Path::new("/a"), Path::new("/a")]);
        assert!(twice.check().unwrap_err().message.contains("given twice"));
        assert_eq!(
            RunFiles::default().writes("out", [stdout]).reads("sources", [stdout]).check(),
            Ok(())
        );
    }
}
