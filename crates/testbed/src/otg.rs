//! A traffic generator that speaks the Open Traffic Generator model, so that its clients drive
//! Sonde. docs/otg.md says what of the model is there.

mod allowed;
mod capture;
mod details;
mod devices;
mod ethertype;
mod flow;
mod frames;
mod generator;
mod plans;
mod port;
mod rates;
mod receiver;
mod runs;
mod sender;
mod setting;
mod sizes;
pub mod token;
mod values;
mod way;

pub use allowed::Allowed;
pub use frames::EtherType;
pub use generator::Generator;
pub use runs::PlanRuns;
