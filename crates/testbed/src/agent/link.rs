//! A controller's connection to an agent.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sonde_run::error::RunError;
use sonde_sys::stream::connect_tcp;

use super::clock::{ClockOffset, ask};
use super::protocol::{AgentReply, AgentRequest, Channel, PROTOCOL, PortDescription, PortName};

/// An agent, as a plan names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress {
    /// The name used in messages.
    pub name: String,
    /// "HOST:PORT"; the agent's certificate carries HOST.
    pub address: String,
}

/// Why an agent does not do what a controller asks. Each text has the agent's name.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no connection: its address, a certificate, or the versions are in the way.
    #[error("agent {agent}: {cause:#}")]
    Unreachable { agent: String, cause: anyhow::Error },
    #[error("agent {agent}: busy: {controller} has its ports")]
    Busy { agent: String, controller: String },
    #[error("agent {agent}: {why}")]
    Refused { agent: String, why: String },
    /// The connection broke, or what came by it is no message.
    #[error("agent {agent} is lost: {cause}")]
    Lost { agent: String, cause: io::Error },
    /// No answer within 10 s.
    #[error("agent {agent} is lost: it does not answer; its own output says more")]
    Silent { agent: String },
    /// An answer to another request than the one that was made.
    #[error(
        "agent {agent} answers something else than was asked; has it the same version of sonde?"
    )]
    UnexpectedReply { agent: String },
    #[error("agent {agent}: its clock cannot be compared with this host's: {cause}")]
    Clock { agent: String, cause: io::Error },
}

impl From<AgentError> for RunError {
    fn from(error: AgentError) -> RunError {
        RunError::Host(error.into())
    }
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A connection to an agent.
pub struct AgentLink<S = TlsStream> {
    name: String,
    channel: Channel<S>,
    clock: SocketAddr,
    clock_key: [u8; 32],
}

impl AgentLink {
    /// Connects, and checks that both are of one kind. An agent that another controller has is
    /// asked again for so long, until `stop` is set: after a controller has died its agents
    /// take a moment to notice.
    ///
    /// # Errors
    /// Whatever is in the way, with the agent's name.
    pub fn connect(
        agent: &AgentAddress,
        tls: &Arc<ClientConfig>,
        busy: Duration,
        stop: &AtomicBool,
    ) -> Result<AgentLink, AgentError> {
        let (begin, mut warned) = (Instant::now(), false);
        let name = || agent.name.clone();
        loop {
            let taken = match Self::try_connect(agent, tls) {
                Ok(Greeting::Link(link)) => return Ok(*link),
                Ok(Greeting::Busy(controller)) => AgentError::Busy { agent: name(), controller },
                Err(cause) => return Err(AgentError::Unreachable { agent: name(), cause }),
            };
            if begin.elapsed() >= busy || stop.load(Ordering::Relaxed) {
                return Err(taken);
            }
            if !warned {
                warned = true;
                let seconds = busy.as_secs();
                tracing::warn!("{taken}; waiting up to {seconds} s");
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn try_connect(agent: &AgentAddress, tls: &Arc<ClientConfig>) -> Result<Greeting<TlsStream>> {
        let (host, _) = agent.address.rsplit_once(':').with_context(|| {
            format!("'{}' is no address of an agent; write HOST:PORT", agent.address)
        })?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone())
            .with_context(|| format!("'{host}' is no name that a certificate can carry"))?;
        let found = agent.address.to_socket_addrs();
        let found = found.with_context(|| {
            format!("cannot find the host of {}; is its name right?", agent.address)
        })?;
        let mut error = anyhow!("{} has no address", agent.address);
        for peer in found {
            match connect_tcp(peer, PATIENCE, PATIENCE) {
                Ok(stream) => return Self::shake_hands(agent, name, stream, tls),
                Err(e) => {
                    error = anyhow!(e)
                        .context(format!("cannot connect to {peer}; does 'sonde agent' run there?"))
                }
            }
        }
        Err(error)
    }

    fn shake_hands(
        agent: &AgentAddress,
        name: ServerName<'static>,
        stream: TcpStream,
        tls: &Arc<ClientConfig>,
    ) -> Result<Greeting<TlsStream>> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let peer = stream.peer_addr()?;
        let mut wire = StreamOwned::new(ClientConnection::new(tls.clone(), name)?, stream);
        while wire.conn.is_handshaking() {
            wire.conn.complete_io(&mut wire.sock).with_context(|| {
                format!(
                    "the TLS handshake with {} failed or took more than {} s: is it an agent, with a \
                     certificate of this laboratory (docs/agent.md)?",
                    agent.address,
                    PATIENCE.as_secs()
                )
            })?;
        }
        Self::greet(&agent.name, Channel::new(wire), peer)
    }
}

impl<S: Read + Write> AgentLink<S> {
    /// Checks that both are of one kind. The clock is asked at the address of `peer`.
    fn greet(name: &str, mut channel: Channel<S>, peer: SocketAddr) -> Result<Greeting<S>> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        // An agent that does not want our certificate says so only now.
        channel.send(&AgentRequest::Hello { protocol: PROTOCOL, version }).context(REFUSED)?;
        let reply = channel.poll().context(REFUSED)?;
        let silent = || {
            format!(
                "it did not answer within {} s: is it an agent of Sonde, and not overloaded?",
                PATIENCE.as_secs()
            )
        };
        match reply.with_context(silent)? {
            AgentReply::Hello { protocol: PROTOCOL, clock_port, clock_key, .. } => {
                let clock = SocketAddr::new(peer.ip(), clock_port);
                let link = AgentLink { name: name.to_owned(), channel, clock, clock_key };
                Ok(Greeting::Link(Box::new(link)))
            }
            AgentReply::Hello { protocol, version, .. } => bail!(
                "it is of version {version} and speaks protocol {protocol}, this Sonde speaks \
                 {PROTOCOL}; use the same Sonde on both"
            ),
            AgentReply::Busy(who) => Ok(Greeting::Busy(who)),
            AgentReply::Failed(why) => bail!(why),
            _ => bail!("it answered something else than was asked: use the same Sonde on both"),
        }
    }

    /// What one of its ports is.
    ///
    /// # Errors
    /// No such port; no such agent any more.
    pub fn look(&mut self, port: &PortName) -> Result<PortDescription, AgentError> {
        match self.request(&AgentRequest::Look { port: port.clone() })? {
            AgentReply::Port(description) => Ok(description),
            _ => Err(self.strange()),
        }
    }

    /// Asks, and takes the answer.
    ///
    /// # Errors
    /// The agent is lost, or says why not.
    pub fn request(&mut self, request: &AgentRequest) -> Result<AgentReply, AgentError> {
        self.send(request)?;
        self.reply()
    }

    /// Asks; [`AgentLink::reply`] takes the answer.
    ///
    /// # Errors
    /// The agent is lost.
    pub fn send(&mut self, request: &AgentRequest) -> Result<(), AgentError> {
        let sent = self.channel.send(request);
        sent.map_err(|cause| AgentError::Lost { agent: self.name.clone(), cause })
    }

    /// The answer to what was asked last.
    ///
    /// # Errors
    /// The agent is lost, or says why not.
    pub fn reply(&mut self) -> Result<AgentReply, AgentError> {
        let begin = Instant::now();
        let agent = || self.name.clone();
        loop {
            match self.channel.poll() {
                Ok(Some(AgentReply::Failed(why))) => {
                    return Err(AgentError::Refused { agent: agent(), why });
                }
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) if begin.elapsed() < PATIENCE => {}
                Ok(None) => return Err(AgentError::Silent { agent: agent() }),
                Err(cause) => return Err(AgentError::Lost { agent: agent(), cause }),
            }
        }
    }

    /// Its clock less ours, by so many questions.
    ///
    /// # Errors
    /// It does not answer them.
    pub fn offset(&self, times: u32) -> Result<ClockOffset, AgentError> {
        let asked = ask(self.clock, &self.clock_key, times);
        asked.map_err(|cause| AgentError::Clock { agent: self.name.clone(), cause })
    }

    /// The error for an answer of another kind.
    pub fn strange(&self) -> AgentError {
        AgentError::UnexpectedReply { agent: self.name.clone() }
    }
}

/// What an agent says to a controller.
enum Greeting<S> {
    Link(Box<AgentLink<S>>),
    /// Who has its ports.
    Busy(String),
}

/// An agent that does not want a certificate says so only when something is sent.
const REFUSED: &str = "it does not take this controller's certificate: is that of the agents' \
                       authority, and a controller's (docs/agent.md)?";
/// How long a run waits for an agent that another controller has.
pub const BUSY: Duration = Duration::from_secs(10);
/// Until such an agent is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// For connections, and for an agent's answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::{Cursor, ErrorKind};

    use serde::Serialize;

    use super::*;

    /// What the agent will have sent, and then nothing, or the end of the connection.
    struct Script {
        replies: Cursor<Vec<u8>>,
        ends: bool,
        /// What the controller has sent.
        sent: Vec<u8>,
    }

    impl Script {
        fn new(replies: &[AgentReply], ends: bool) -> Channel<Script> {
            let replies = Cursor::new(replies.iter().flat_map(message).collect());
            Channel::new(Script { replies, ends, sent: Vec::new() })
        }
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.replies.read(buffer)? {
                0 if !self.ends => Err(ErrorKind::WouldBlock.into()),
                n => Ok(n),
            }
        }
    }

    impl Write for Script {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.sent.write(octets)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn message(message: &impl Serialize) -> Vec<u8> {
        let mut channel = Channel::new(Cursor::new(Vec::new()));
        channel.send(message).unwrap();
        channel.stream().get_ref().clone()
    }

    fn hello(protocol: u32) -> AgentReply {
        let version = "9.9".into();
        AgentReply::Hello { protocol, version, clock_port: 77, clock_key: [5; 32] }
    }

    fn greeting(replies: &[AgentReply], ends: bool) -> Result<Greeting<Script>> {
        let peer = "192.0.2.1:8620".parse().unwrap();
        AgentLink::greet("west", Script::new(replies, ends), peer)
    }

    fn link(replies: &[AgentReply], ends: bool) -> AgentLink<Script> {
        let all = [&[hello(PROTOCOL)][..], replies].concat();
        match greeting(&all, ends).unwrap() {
            Greeting::Link(link) => *link,
            Greeting::Busy(who) => panic!("busy: {who}"),
        }
    }

    #[test]
    fn a_link_begins_with_a_hello_and_knows_where_the_clock_is() {
        let link = link(&[], false);
        assert_eq!((link.clock, link.clock_key), ("192.0.2.1:77".parse().unwrap(), [5; 32]));
        let version = env!("CARGO_PKG_VERSION").into();
        let request = AgentRequest::Hello { protocol: PROTOCOL, version };
        assert_eq!(link.channel.stream().sent, message(&request));
    }

    #[test]
    fn an_agent_that_cannot_be_had_gives_the_reason() {
        let busy = greeting(&[AgentReply::Busy("192.0.2.9:1".into())], false).unwrap();
        assert!(matches!(busy, Greeting::Busy(who) if who == "192.0.2.9:1"));
        for (replies, ends, part) in [
            (vec![hello(PROTOCOL + 1)], false, "version 9.9"),
            (vec![AgentReply::Failed("no processor".into())], false, "no processor"),
            (vec![AgentReply::Done], false, "something else"),
            // Over TLS 1.3 a refused certificate shows only as the end of the connection.
            (vec![], true, "certificate"),
            (vec![], false, "did not answer within"),
        ] {
            let error = format!("{:#}", greeting(&replies, ends).err().unwrap());
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn later_failures_are_distinguished_and_have_the_agents_name() {
        let port = PortName { name: "a".into(), interface: "eth0".into(), netns: None, cpu: None };
        let look = |replies: &[AgentReply]| link(replies, true).look(&port).unwrap_err();
        let refused = look(&[AgentReply::Failed("no interface 'eth0'".into())]);
        assert!(matches!(refused, AgentError::Refused { .. }));
        assert_eq!(refused.to_string(), "agent west: no interface 'eth0'");
        let strange = look(&[AgentReply::Done]);
        assert!(matches!(&strange, AgentError::UnexpectedReply { agent } if agent == "west"));
        let lost = look(&[]);
        assert!(matches!(lost, AgentError::Lost { .. }), "{lost}");
        assert!(lost.to_string().starts_with("agent west is lost: "), "{lost}");
    }
}
