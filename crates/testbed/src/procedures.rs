//! The procedures as a plan names them, and what each key means to them. What they do is in
//! `sonde_meter::trial`, and for people in docs/procedures.md.

mod keys;
mod procedure_plan;
mod quantities;
mod registry;

pub use self::keys::ProcedureKeys;
pub use self::procedure_plan::ProcedurePlan;
pub use self::quantities::unit_of;
