//! What the commands that run for long, and that strangers can reach, give up once they have opened
//! what they need. The page docs/security.md has the same in a table.

use std::fmt;
use std::path::PathBuf;

use sonde_port::Engine;
use sonde_sys::privilege::{Capability, Needs, confine};

use crate::error::RunError;

/// What a command still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// An engine, which opens its interface again when that is made again.
    Engine(Engine),
    /// A program in the kernel, likewise.
    Program,
    /// Ports in network namespaces that others name.
    Namespaces,
    /// Trials of a tester.
    Trials,
    /// Programs that the settings name, which have no more rights than is kept.
    Programs,
    /// Commands and laboratories: all that root may do.
    Commands,
}

/// Gives up everything else; what could not be given up is said in one line. To be called before
/// threads are started that use what is kept.
///
/// # Errors
/// The kernel does not let go of capabilities.
pub fn give_up(uses: &[Uses], writes: &[PathBuf]) -> Result<(), RunError> {
    give_up_rights(uses, writes, None)
}

/// The same of a program that writes to `written` and nowhere else, of which `owned` are to be its
/// user's, with secrets that only their owner reads.
///
/// # Errors
/// As [`give_up`].
pub fn give_up_with_files(
    uses: &[Uses],
    owned: &[PathBuf],
    written: &[PathBuf],
) -> Result<(), RunError> {
    give_up_rights(uses, owned, Some(written.to_vec()))
}

fn give_up_rights(
    uses: &[Uses],
    owned: &[PathBuf],
    written: Option<Vec<PathBuf>>,
) -> Result<(), RunError> {
    let needs = Needs {
        capabilities: uses.iter().flat_map(|uses| uses.capabilities()).copied().collect(),
        writes: owned.to_vec(),
        programs: uses.contains(&Uses::Programs),
        commands: uses.contains(&Uses::Commands),
        written,
    };
    let failed = |e| anyhow::anyhow!("cannot give up the capabilities that are not needed: {e}");
    if let Some(short) = confine(&needs).map_err(failed)? {
        tracing::warn!("{short} (docs/security.md)");
    }
    Ok(())
}

/// Those of `wanted` for which what `kept` needs does not suffice.
pub fn beyond(kept: &[Uses], wanted: &[Uses]) -> Vec<Uses> {
    // Whoever starts commands gave nothing up.
    if kept.contains(&Uses::Commands) {
        return Vec::new();
    }
    let held: Vec<Capability> = kept.iter().flat_map(|u| u.capabilities()).copied().collect();
    let lacks = |uses: &&Uses| match uses {
        Uses::Programs | Uses::Commands => !kept.contains(uses),
        uses => uses.capabilities().iter().any(|c| !held.contains(c)),
    };
    wanted.iter().filter(lacks).copied().collect()
}

impl fmt::Display for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uses::Engine(engine) => write!(f, "engine {}", engine.name()),
            Uses::Program => f.write_str("programs in the kernel"),
            Uses::Namespaces => f.write_str("network namespaces"),
            Uses::Trials => f.write_str("trials"),
            Uses::Programs => f.write_str("programs that are told of alerts"),
            Uses::Commands => f.write_str("commands"),
        }
    }
}

impl Uses {
    fn capabilities(self) -> &'static [Capability] {
        use Capability::{
            Bpf, IpcLock, NetAdmin, NetBindService, NetRaw, Perfmon, SysAdmin, SysNice,
        };
        match self {
            // An interface's name binds to it, and the port may be below 1024.
            Uses::Engine(Engine::Socket) => &[NetBindService, NetRaw],
            Uses::Engine(Engine::AfPacket) => &[NetBindService, NetRaw, NetAdmin],
            Uses::Engine(Engine::AfXdp) => {
                &[NetBindService, NetRaw, NetAdmin, Bpf, Perfmon, IpcLock]
            }
            // An interface that returns is made promiscuous again.
            Uses::Program => &[NetRaw, NetAdmin, Bpf, Perfmon],
            Uses::Namespaces => &[SysAdmin],
            Uses::Trials => &[NetRaw, NetAdmin, Bpf, Perfmon, SysNice],
            Uses::Programs | Uses::Commands => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_more_rights_is_named() {
        let kept = [Uses::Engine(Engine::AfPacket)];
        assert_eq!(beyond(&kept, &[Uses::Engine(Engine::Socket)]), []);
        assert_eq!(beyond(&kept, &[Uses::Program, kept[0]]), [Uses::Program]);
        assert_eq!(beyond(&kept, &[Uses::Programs]), [Uses::Programs]);
        assert_eq!(beyond(&[Uses::Programs], &[Uses::Programs]), []);
        assert_eq!(beyond(&kept, &[Uses::Commands]), [Uses::Commands]);
        assert_eq!(beyond(&[Uses::Commands], &[Uses::Program, Uses::Commands]), []);
        assert_eq!(Uses::Program.to_string(), "programs in the kernel");
    }
}
