//! Running instruments, which any program can start: plain settings in, records out.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bounds;
mod capture_file;
pub mod change;
pub mod confined;
pub mod doctor;
pub mod duration;
pub mod engine;
pub mod error;
mod figures;
pub mod files;
pub mod flow;
pub mod header;
pub mod joins;
mod links;
pub mod nearest;
pub mod octets;
pub mod output_file;
pub mod pem;
pub mod probe;
pub mod pump;
pub mod reflect;
pub mod rtt;
mod run_clock;
pub mod running;
mod secrets;
pub mod sink;
pub mod sources;
pub mod text;
pub mod text_file;
pub mod thread;
pub mod toml_file;
pub mod traffic;
pub mod whole_file;

#[cfg(test)]
mod settings_keys;
#[cfg(test)]
mod virtual_time;
