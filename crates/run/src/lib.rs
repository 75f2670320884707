//! What running instruments need: the head of their run file, files that are whole, certificates.
#![forbid(unsafe_code)]

pub mod header;
pub mod pem;
pub mod whole_file;
