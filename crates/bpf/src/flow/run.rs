//! The program without an interface: for tests, and to measure what a packet costs.

use std::os::fd::AsFd;

use super::FlowProgram;
use crate::BpfError;
use crate::load::{self, TestRun};

impl FlowProgram {
    /// Runs the program on one frame (`BPF_PROG_TEST_RUN`), as if it had come by the first
    /// interface. Where there are several, that one's index must be 1.
    ///
    /// With `repeat` above 1 the frame is what the run before has left of it. A ring that
    /// is full costs less than one that is not: `repeat` must not exceed what it holds.
    ///
    /// # Errors
    /// [`BpfError::Io`] when the kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> Result<TestRun, BpfError> {
        load::test_run(self.program.as_fd(), frame, repeat)
    }
}
