//! What every running instrument needs: the head of its run file, and files that are whole.
#![forbid(unsafe_code)]

pub mod header;
pub mod whole_file;
