//! What other load would disturb: memory, costs, stamps, two processors at once. Each test file has
//! the processors for itself: see [`turn`].

#[path = "../common/mod.rs"]
mod common;

mod reflect_sessions;
mod reflect_speed;
mod rtt_flood;
mod rtt_measure;
mod stamper;
#[path = "../../../../tests/support/turn.rs"]
mod turn;
