//! Labs and devices under test on the real kernel. Needs root.

mod devices;
mod namespaces;
