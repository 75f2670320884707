//! Where packets come from, as people name it: interfaces, or captures.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use sonde_sys::netlink::{Link, Links};

use crate::error::{RunError, SettingsError};
use crate::links::netlink;

/// Where packets come from.
pub enum Source {
    /// Interfaces, each once.
    Interfaces(Vec<Link>),
    /// Captures, to be read one behind the other; `-` is standard input.
    Files(Vec<PathBuf>),
}

/// An interface's name counts before a file's; a path with a '/' is always a file.
///
/// # Errors
/// A name of neither, one given twice, interfaces and files together.
pub fn source(names: &[String]) -> Result<Source, RunError> {
    let all = Links::open()
        .and_then(|mut links| links.all())
        .with_context(|| netlink("ask the kernel for interfaces"))?;
    let (mut links, mut files): (Vec<Link>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for name in names {
        match all.iter().find(|l| l.name == *name) {
            Some(link) if links.iter().any(|l| l.ifindex == link.ifindex) => {
                return Err(wrong(format!("interface {name} is named twice; name it once")));
            }
            Some(link) => links.push(link.clone()),
            None if name == "-" && files.iter().any(|f| f.as_os_str() == "-") => {
                return Err(wrong("standard input (-) is named twice; name it once".into()));
            }
            None if name == "-" || Path::new(name).exists() => files.push(name.into()),
            None => {
                return Err(RunError::Host(anyhow!(
                    "no interface and no file named '{name}'; 'ip link' lists the interfaces of \
                     this network namespace"
                )));
            }
        }
    }
    match (links.first(), files.first()) {
        (Some(link), Some(file)) => Err(wrong(format!(
            "{} is a file and {} an interface: give files alone, or interfaces",
            file.display(),
            link.name
        ))),
        (None, _) => Ok(Source::Files(files)),
        _ => Ok(Source::Interfaces(links)),
    }
}

fn wrong(message: String) -> RunError {
    SettingsError::of("sources", message).into()
}
