//! Where devices run, which decides whether they can drop.

use serde::{Deserialize, Serialize};

/// On which processor the devices run: what `Caveat::DeviceInline` and
/// `Caveat::ProcessorsShared` are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// There is no device.
    None,
    /// On the sender's, inside its system calls: it cannot drop.
    Inline,
    /// In threads or processes of their own, wherever the kernel runs them.
    Anywhere,
    /// In threads or processes of their own on this processor.
    OwnCpu {
        /// Its index, from 0.
        cpu: usize,
        /// The tester's ports receive there, too.
        shared: bool,
    },
}
