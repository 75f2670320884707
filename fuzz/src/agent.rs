//! What a controller or an agent may be sent by the other: octets in any pieces are the same
//! messages.

use std::io::{self, Cursor, Read, Write};

use sonde_testbed::agent::protocol::{AgentReply, AgentRequest, Channel};

/// Octets in pieces.
struct Pieces<'a>(Cursor<&'a [u8]>, usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(buffer.len());
        self.0.read(&mut buffer[..n])
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn agent(data: &[u8]) {
    assert_eq!(requests(data, 1), requests(data, usize::MAX));
    let mut replies = Channel::new(Pieces(Cursor::new(data), usize::MAX));
    while let Ok(Some(reply)) = replies.poll::<AgentReply>() {
        replies.send(&reply).expect("what was read can be said");
    }
}

/// As they are said again.
fn requests(data: &[u8], piece: usize) -> Vec<String> {
    let mut channel = Channel::new(Pieces(Cursor::new(data), piece));
    let mut all = Vec::new();
    while let Ok(Some(request)) = channel.poll::<AgentRequest>() {
        all.push(serde_json::to_string(&request).expect("what was read can be said"));
    }
    all
}
