//! The program as people use it: the real binary, on real packets, in network namespaces
//! that each test makes and that go with it. Without root they are skipped, and say so.

mod actors;
mod clock;
mod crash;
mod demo;
mod faults;
mod json;
mod matrix;
mod net;
mod outputs;
mod reflector;
mod reflector_addresses;
mod reflector_loops;
mod sender;
mod streams;
mod usage;
