//! What a parser of one protocol is given, what it wants, and what it does.

use sonde_results::flow::App;

/// What a parser is given: octets of one direction, and where they stand.
pub(super) struct Input<'a> {
    /// TCP: everything from the direction's start. UDP: one datagram. As captured.
    pub(super) data: &'a [u8],
    /// Length of the packet's payload by its IP header.
    pub(super) length: usize,
    /// From the flow's destination to its source.
    pub(super) reverse: bool,
    /// Of this direction nothing further will come.
    pub(super) last: bool,
    pub(super) at_ns: i64,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

impl Input<'_> {
    pub(super) fn has_port(&self, port: u16) -> bool {
        self.source_port == port || self.destination_port == port
    }
}

/// What a parser wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Further packets of either direction.
    More,
    /// Those of the other direction only.
    Other,
    /// None: everything is known, or nothing can be.
    Done,
}

/// A protocol's parser: one of a flow, given packet after packet until it is done.
pub(super) trait Parse {
    fn input(&mut self, input: &Input<'_>) -> Step;

    /// What is known; called once.
    fn finish(&mut self) -> Option<App>;

    /// Memory in use beyond the value itself, octets.
    fn held(&self) -> usize {
        0
    }
}

/// Octets of a stream's start in which a protocol is recognised, or it is none.
pub(super) const RECOGNISABLE: usize = 32;
