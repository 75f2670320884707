//! What the user gets: text for people, records for programs. Pure functions of the
//! results, written into any `Write`.

pub mod groups;
pub mod interval_lines;
pub mod live;
pub mod ping_line;
pub mod run_file;
pub mod sparkline;
pub mod style;
pub mod summary;
pub mod table;
pub mod text_table;
mod unanswered;
