//! Passive round-trip times held against the truth: captures whose answers are known by
//! construction, other people's tools over the same packets, and real hosts whose packets
//! a relay delays and loses. Without root, or without a tool, a test is skipped, and says so.

mod capture;
mod differential;
mod golden;
mod live;
mod net;
mod oracle;
mod quic;
mod subject;
mod tools;
mod traffic;
mod truth;
