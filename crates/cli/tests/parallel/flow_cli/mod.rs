//! `sonde flow` as a process: what it makes of captures and of interfaces, what reaches
//! files and collectors, and how it ends.

mod captures;
mod cases;
mod collector;
mod datagrams;
mod files;
mod interfaces;
mod joins;
mod packets;
mod secured;
mod spool;
mod streams;
mod support;

pub use self::support::Folder;
