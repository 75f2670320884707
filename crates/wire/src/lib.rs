//! Bytes to values and back: every format Sonde reads or writes, one format a file.
//!
//! No I/O, no clock, no allocation, no `unsafe`. A checked view (`Packet<&[u8]>`)
//! reads fields where they lie; a `Repr` is the same packet as a plain value.
//! Where a format has one header before all else (`dns`, `ipfix`, `netflow5`, `netflow9`, `sctp`), it is
//! the module's `Header`, which users name with its module.
#![no_std]
#![forbid(unsafe_code)]

pub mod build;
mod byte_order;
pub mod capture;
mod capture_record;
pub mod checksum;
pub mod dns;
mod error;
pub mod ethernet;
pub mod fcs;
pub mod feature;
mod field;
pub mod flow;
pub mod icmp;
mod ip;
pub mod ipfix;
pub mod ipv4;
pub mod ipv6;
mod link;
pub mod mpls;
pub mod netflow5;
pub mod netflow9;
pub mod packet;
pub mod parse;
pub mod pcap;
pub mod pcapng;
pub mod prefix;
pub mod protocol;
pub mod quic;
pub mod sctp;
pub mod signature;
pub mod stamp;
pub mod tcp;
pub mod time;
pub mod tlv;
pub mod tunnel;
pub mod twamp;
pub mod udp;

pub use error::Error;
pub use packet::{NotSent, Stamp, StampSource, TxDone, TxRefused, Verdict};
pub use parse::{UdpFrame, parse_udp, udp_intact};
pub use time::{ErrorEstimate, NtpTime, PtpTime, SECOND, Scale, Time, TimestampFormat};
