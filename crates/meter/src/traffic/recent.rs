//! The latest frames, so that those that did not leave can be taken out of the truth again.

use std::collections::VecDeque;

use super::config::Config;
use super::flow::{Flow, FlowSideTruth};
use super::truth::{self, FlowTruth};

/// The latest frames, and the flows that ended with them.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    most: usize,
    frames: VecDeque<CountedFrame>,
    /// Flows that are over, with how many frames there were by then.
    over: VecDeque<(u64, Flow)>,
}

/// A frame as the truth counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedFrame {
    /// Its flow, and where that stood among the open ones.
    pub flow: u64,
    pub slot: usize,
    pub side: u8,
    /// Octets of the frame.
    pub len: u32,
    /// What was counted of its side before it.
    pub before: FlowSideTruth,
}

impl Recent {
    /// Of at most `most` frames.
    pub fn new(most: usize) -> Recent {
        Recent { most, frames: VecDeque::with_capacity(most + 1), over: VecDeque::new() }
    }

    /// A further frame, the `nth`. What is too old to be taken back by now is reported.
    #[inline]
    pub fn add(
        &mut self,
        frame: CountedFrame,
        nth: u64,
        config: &Config,
        truth: &mut impl FnMut(&FlowTruth),
    ) {
        self.frames.push_back(frame);
        if self.frames.len() <= self.most {
            return;
        }
        self.frames.pop_front();
        let settled = nth - self.most as u64;
        while self.over.front().is_some_and(|(last, _)| *last <= settled) {
            if let Some((_, flow)) = self.over.pop_front() {
                truth::report(config, &flow, truth);
            }
        }
    }

    /// A flow that is over with the `nth` frame.
    pub fn end(&mut self, flow: Flow, nth: u64) {
        self.over.push_back((nth, flow));
    }

    /// Takes the latest frame out of its flow, which is one of `open` or over. Its octets.
    pub fn take_back(&mut self, open: &mut [Flow]) -> Option<u32> {
        let frame = self.frames.pop_back()?;
        let is_it = |flow: &Flow| flow.index == frame.flow;
        let at_its_place = open.get(frame.slot).is_some_and(is_it);
        let flow = match at_its_place {
            true => open.get_mut(frame.slot),
            false => {
                let over = self.over.iter_mut().rev().map(|(_, flow)| flow);
                over.chain(open).find(|flow| is_it(flow))
            }
        };
        if let Some(flow) = flow {
            flow.sides[usize::from(frame.side)] = frame.before;
        }
        Some(frame.len)
    }

    /// Reports what is over.
    pub fn finish(&mut self, config: &Config, truth: &mut impl FnMut(&FlowTruth)) {
        self.over.drain(..).for_each(|(_, flow)| truth::report(config, &flow, truth));
    }
}
