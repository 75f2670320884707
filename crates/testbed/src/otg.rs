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
mod port_settings;
mod rates;
mod receiver;
mod runs;
mod sender;
mod serve;
mod settings;
mod sizes;
mod token;
mod values;
mod way;

use allowed::Allowed;
pub use frames::EtherType;
use generator::OtgGenerator;
use runs::PlanRuns;
pub use serve::{About, ServingOtg, start};
pub use settings::Settings;
