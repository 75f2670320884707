//! The ports of a plan that are on other hosts.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::ClientConfig;
use sonde_run::error::RunError;

use super::link::{AgentAddress, AgentLink, BUSY};
use super::protocol::{PortDescription, PortName};
use super::rig::{AgentRig, AgentRigSpec};
use crate::plan::{BenchPlan, DevicePlan, PortPlan};
use crate::tester::{CopySpec, DirectionSpec};
use crate::tls::{self, Role};

/// The agents that have the ports of one device.
#[derive(Clone)]
pub struct Remote {
    agents: Vec<AgentAddress>,
    tls: Arc<ClientConfig>,
}

impl Remote {
    /// `None`: the device's ports are on this host.
    ///
    /// # Errors
    /// Ports here and there, an agent that the plan does not name, certificates that cannot be
    /// read.
    pub fn of(plan: &BenchPlan, device: &DevicePlan) -> Result<Option<Remote>, RunError> {
        let wrong = |why: String| RunError::settings(why);
        if device.ports.values().all(|port| port.agent.is_none()) {
            return Ok(None);
        }
        let mut agents: Vec<AgentAddress> = Vec::new();
        for (port, PortPlan { agent, .. }) in &device.ports {
            let name = agent.as_ref().ok_or_else(|| {
                wrong(format!("port {port}: all ports of a device are on agents, or none is"))
            })?;
            let known = plan.agents.iter().find(|a| a.name == *name).ok_or_else(|| {
                wrong(format!("port {port}: add [[agent]] with name = '{name}' and its address"))
            })?;
            if agents.iter().all(|a| a.name != *name) {
                agents.push(AgentAddress { name: name.clone(), address: known.address.clone() });
            }
        }
        let missing =
            "agents need [controller] with cert, key and ca; see 'sonde agent cert --help'";
        let own = plan.controller.as_ref().ok_or_else(|| wrong(missing.into()))?;
        let tls = Arc::new(tls::client(&own.cert, &own.key, &own.ca)?);
        tls::fit(&own.cert, &own.ca, Role::Controller, SystemTime::now())?;
        Ok(Some(Remote { agents, tls }))
    }

    /// What a port is.
    ///
    /// # Errors
    /// No such agent or port.
    pub fn look(&self, name: &str, plan: &PortPlan) -> Result<PortDescription, RunError> {
        let agent = &self.agents[self.index(plan)?];
        let mut link = AgentLink::connect(agent, &self.tls, BUSY, &AtomicBool::new(false))?;
        Ok(link.look(&port_name(name, plan))?)
    }

    /// A rig of these ports, by their names in the plan.
    ///
    /// # Errors
    /// Whatever is in the way, with the agent's name.
    pub fn rig(
        &self,
        device: &DevicePlan,
        names: &[String],
        ways: Vec<DirectionSpec>,
        copies: CopySpec,
        drain: Duration,
    ) -> Result<AgentRig, RunError> {
        let mut ports = Vec::new();
        for name in names {
            let plan = device
                .ports
                .get(name)
                .ok_or_else(|| RunError::settings(format!("there is no port {name}")))?;
            ports.push((self.index(plan)?, port_name(name, plan)));
        }
        let mut secret = [0; 16];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| anyhow!("the kernel gives no random numbers (getrandom)"))?;
        let secret = u128::from_ne_bytes(secret);
        AgentRig::open(AgentRigSpec {
            agents: self.agents.clone(),
            tls: self.tls.clone(),
            ports,
            ways,
            copies,
            drain,
            secret: [secret as u64, (secret >> 64) as u64],
            busy: BUSY,
        })
    }

    /// How frames are sent and received, for people.
    pub fn mode(&self) -> String {
        let names: Vec<&str> = self.agents.iter().map(|a| a.name.as_str()).collect();
        format!("live frames; analysers in XDP; on agents {}", names.join(", "))
    }

    fn index(&self, plan: &PortPlan) -> Result<usize, RunError> {
        let index = self.agents.iter().position(|a| Some(&a.name) == plan.agent.as_ref());
        index.ok_or_else(|| {
            RunError::settings(format!(
                "interface {} is of no agent; name one in its port",
                plan.interface
            ))
        })
    }
}

fn port_name(name: &str, plan: &PortPlan) -> PortName {
    PortName {
        name: name.to_owned(),
        interface: plan.interface.clone(),
        netns: plan.netns.clone(),
        cpu: None,
    }
}
