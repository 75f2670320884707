//! The kernel's IPv4 and IPv6 router.

use std::collections::BTreeMap;

use super::context::DeviceContext;
use super::function::Function;
use crate::LabError;

pub(crate) struct Router {
    /// Of each family in each direction.
    pub(crate) routes: u32,
}

impl Function for Router {
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        at.route(self.routes)
    }

    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        at.unroute()
    }

    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError> {
        let routes = self.routes.max(1).to_string();
        facts.insert(at.fact("routes per family and direction"), routes);
        Ok(())
    }
}
