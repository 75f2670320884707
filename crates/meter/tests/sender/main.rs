//! The sender in virtual time, against a reflector and a path made here: every number
//! that it reports is known beforehand.

mod clocks;
mod counts;
mod delays;
mod sending;
mod strangers;
mod world;
