//! `sonde rtt` as a process: what it prints of a capture and of an interface, what it says
//! when it is refused something, and how it ends.

mod captures;
mod cases;
mod interfaces;
mod joins;
mod links;
mod persist;
mod refused;
mod streams;
mod support;
