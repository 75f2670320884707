//! The operating system: clocks, scheduling, memory, netlink, namespaces, privileges and the
//! options of sockets. It knows no packets.

pub mod card_clock;
pub mod clock;
pub mod cpu_time;
pub mod disk;
pub mod driver_stats;
mod error;
pub mod host;
mod kernel_clock;
pub mod landlock;
pub mod link_settings;
pub mod memory;
pub mod netlink;
pub mod netns;
pub mod packet_socket;
pub mod privilege;
pub mod process;
pub mod promiscuous;
pub mod random;
pub mod schedule;
pub mod stream;
pub mod syscall;
pub mod timescale;
pub mod udp;
pub mod usage;

pub use error::SysError;
