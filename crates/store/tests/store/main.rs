//! The store as its users have it: questions, crashes, full disks, formats of earlier versions.

mod faults;
mod formats;
mod queries;
mod size;
mod support;
