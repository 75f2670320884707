//! The store as its users have it: questions, crashes, full disks, formats of earlier versions.

#![expect(
    clippy::disallowed_methods,
    reason = "tests are told by the environment, and play parts in processes of their own"
)]

mod clickhouse;
mod clickhouse_events;
mod clickhouse_faults;
mod clickhouse_operators;
#[path = "../../../../tests/support/clickhouse_server.rs"]
mod clickhouse_server;
mod faults;
mod foreign;
mod formats;
mod queries;
mod size;
#[path = "../../../../tests/support/store_rows.rs"]
mod store_rows;
mod support;

use faults::skipped;
