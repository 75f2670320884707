//! Answers for the addresses of test frames, for as long as the tester has its ports: a device
//! asks again during a trial, too. Before a trial it shows bridges where the ports are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use sonde_meter::load::{AddressRule, NeighbourAnswers};
use sonde_port::raw::NeighbourSocket;
use sonde_run::thread;
use sonde_run::thread::join_logged;
use sonde_sys::netns;

use super::TesterSpec;
use super::bed::PortFacts;

/// A thread a port. Dropping it ends them.
pub(super) struct NeighbourResponder {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    ports: Vec<Arc<AnsweringPort>>,
}

struct AnsweringPort {
    socket: NeighbourSocket,
    neighbours: NeighbourAnswers,
    /// VLAN tags of its frames.
    tags: Vec<u8>,
}

impl NeighbourResponder {
    pub(super) fn start(spec: &TesterSpec, ports: &[PortFacts]) -> Result<NeighbourResponder> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut answering = NeighbourResponder { stop, threads: Vec::new(), ports: Vec::new() };
        for (i, (port, facts)) in spec.ports.iter().zip(ports).enumerate() {
            let neighbours = NeighbourAnswers::new(facts.mac, behind(spec, i));
            let open = || NeighbourSocket::open(&port.interface);
            let socket = netns::inside(port.netns.as_deref(), open)?;
            let socket = socket.with_context(|| format!("port {}", port.name))?;
            let port_of = Arc::new(AnsweringPort { socket, neighbours, tags: tags(spec, i) });
            answering.ports.push(Arc::clone(&port_of));
            let stop = Arc::clone(&answering.stop);
            let work = move || answer(&port_of, &stop);
            let thread = thread::spawn(format!("sonde-arp-{}", port.name), work)?;
            answering.threads.push(thread);
        }
        Ok(answering)
    }

    /// A frame of each port, whether or not it sends in the trial (RFC 2544, section 23): what a
    /// bridge does not know it floods.
    pub(super) fn announce(&self) {
        let mut frame = [0; NeighbourAnswers::ANSWER_MAX];
        for AnsweringPort { socket, neighbours, tags } in self.ports.iter().map(Arc::as_ref) {
            if let Some(len) = neighbours.announce(tags, &mut frame) {
                socket.send(&frame[..len]);
            }
        }
    }
}

impl Drop for NeighbourResponder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            join_logged(thread);
        }
    }
}

/// Where frames of a port come from, and where those that arrive at it go.
fn behind(spec: &TesterSpec, port: usize) -> Vec<AddressRule> {
    let mut rules = Vec::new();
    for way in &spec.ways {
        if way.from == port {
            rules.push(way.traffic.source);
        }
        if way.to == port {
            rules.push(way.traffic.destination);
        }
    }
    rules
}

/// The tags of what a port sends or receives.
fn tags(spec: &TesterSpec, port: usize) -> Vec<u8> {
    let way = spec.ways.iter().find(|way| way.from == port || way.to == port);
    let tags = way.map(|way| &way.traffic.tags[..]).unwrap_or_default();
    tags.iter().flat_map(|tag| [tag.tpid.to_be_bytes(), tag.tci.to_be_bytes()].concat()).collect()
}

fn answer(port: &AnsweringPort, stop: &AtomicBool) {
    let AnsweringPort { socket, neighbours, .. } = port;
    let (mut question, mut reply) = ([0; 256], [0; NeighbourAnswers::ANSWER_MAX]);
    while !stop.load(Ordering::Relaxed) {
        match socket.receive(&mut question, LOOK_NS) {
            Ok(Some(frame)) => {
                if let Some(len) = neighbours.answer(frame, &mut reply) {
                    socket.send(&reply[..len]);
                }
            }
            Ok(None) => {}
            // The interface is gone: the trial says so.
            Err(_) => return,
        }
    }
}

/// Between two looks at the order to stop.
const LOOK_NS: i64 = 100_000_000;
