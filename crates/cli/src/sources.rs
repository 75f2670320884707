//! Where packets come from, as people name it: interfaces, or one capture file.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use sonde_port::netlink::{Link, Links};

use crate::exit::Failure;

/// Where packets come from.
pub enum Source<'a> {
    /// Interfaces, each once.
    Interfaces(Vec<Link>),
    /// A capture file.
    File(&'a Path),
}

/// An interface's name counts before a file's; a path with a '/' is always a file.
pub fn source(names: &[String]) -> Result<Source<'_>, Failure> {
    let all = Links::open()
        .and_then(|mut links| links.all())
        .context("cannot ask the kernel for interfaces")?;
    let mut links: Vec<Link> = Vec::new();
    for name in names {
        match all.iter().find(|l| l.name == *name) {
            Some(link) if links.iter().any(|l| l.ifindex == link.ifindex) => {
                return Err(Failure::Usage(anyhow!("interface {name} is named twice")));
            }
            Some(link) => links.push(link.clone()),
            None if Path::new(name).exists() && names.len() == 1 => {
                return Ok(Source::File(Path::new(name)));
            }
            None if Path::new(name).exists() => {
                return Err(Failure::Usage(anyhow!(
                    "{name} is a file: give one file alone, or interfaces"
                )));
            }
            None => {
                return Err(Failure::CannotRun(anyhow!(
                    "no interface and no file named '{name}'; 'ip link' lists the interfaces of \
                     this network namespace"
                )));
            }
        }
    }
    Ok(Source::Interfaces(links))
}
