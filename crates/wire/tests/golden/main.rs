//! What others wrote or read, held against what this crate makes of it.

mod flow;
mod reading;
mod scapy_stamp;
