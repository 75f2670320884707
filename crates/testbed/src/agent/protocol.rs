//! What controller and agent say to each other: messages in JSON, each behind its length in
//! four octets, over TLS.

use std::io::{self, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sonde_meter::load::{AddressRule, MacRule, PortRule, Traffic, ValueOrder};
use sonde_results::trial::{Direction, LedgerEntry, Offer, TrialHealth};
use sonde_wire::ethernet::{Mac, Tag};

use crate::tester::{Expects, Mixed};

/// Raised when one side would misunderstand the other of before.
pub const PROTOCOL: u32 = 4;

/// What a controller says. Each is answered by a [`AgentReply`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AgentRequest {
    /// First of all: both must be of one kind.
    Hello {
        /// [`PROTOCOL`]
        protocol: u32,
        /// Of Sonde.
        version: String,
    },
    /// What a port is.
    Look {
        port: PortName,
    },
    /// Takes ports for halves of directions, instead of those taken before.
    Open {
        /// Of the whole tester, in the signatures' digests.
        secret: [u64; 2],
        /// What this agent does.
        halves: Vec<DirectionEnd>,
    },
    Arm(TrialSpec),
    /// How far is it?
    Status,
    /// No further frame leaves.
    Stop,
    /// The trial is over, and this is what was sent in each direction.
    End {
        /// By [`DirectionEnd::way`].
        sent: Vec<u64>,
    },
}

/// What an agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum AgentReply {
    /// To `Hello`.
    Hello {
        /// [`PROTOCOL`]
        protocol: u32,
        /// Of Sonde.
        version: String,
        /// UDP port where its clock can be asked.
        clock_port: u16,
        /// The key that these questions and answers are signed with.
        clock_key: [u8; 32],
    },
    /// To `Look`.
    Port(PortDescription),
    /// To `Open`: how each half works, for people.
    Opened(Vec<String>),
    /// To `Arm` and `Stop`.
    Done,
    /// To `Status`.
    Status(TrialStatus),
    /// To `End`.
    Ended(TrialEnd),
    /// To anything: another controller has the ports, and which.
    Busy(String),
    /// To anything: it could not be done.
    Failed(String),
}

/// A port, by its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortName {
    /// In results: "a".
    pub name: String,
    pub interface: String,
    /// The namespace where it is; `None`: the agent's.
    pub netns: Option<String>,
    /// The processor of the thread that sends from it; `None`: any.
    pub cpu: Option<usize>,
}

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDescription {
    pub mac: Mac,
    /// Largest IP packet, octets.
    pub mtu: u32,
    pub driver: String,
    /// Nominal speed, bit/s, where it means something.
    pub speed_bps: Option<u64>,
}

/// One end of a direction, sending or receiving.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectionEnd {
    /// Index of the direction. Further ports where frames of the first arrive follow all of them,
    /// and have receiving halves alone.
    pub way: usize,
    pub role: EndRole,
    pub port: PortName,
    #[serde(with = "TrafficText")]
    pub traffic: Traffic,
    /// Frames of a second class in the same stream.
    #[serde(with = "mixed")]
    pub mixed: Option<Mixed>,
    /// Octets by which a frame arrives longer than it left.
    pub length_change: i32,
    /// Destination MAC address of what arrives; `None`: any.
    pub for_mac: Option<Mac>,
}

/// Which half of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndRole {
    Source,
    Sink {
        /// What has to arrive.
        expects: Expects,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialSpec {
    /// What is offered in each direction.
    pub offer: Offer,
    /// Of each direction, in the signatures.
    pub tags: Vec<u8>,
    /// When the first frame is due, ns TAI of this agent's own clock.
    pub start_ns: i64,
    /// By how much the clock of each direction's sender is behind this agent's, ns.
    pub offsets_ns: Vec<i64>,
}

/// How far a trial is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TrialStatus {
    /// Whether nothing is sent any more, or yet to be sent.
    pub done: bool,
    /// Frames sent, by direction; `None`: not here.
    pub sent: Vec<Option<u64>>,
    /// Frames received, by direction.
    pub received: Vec<Option<u64>>,
    pub failed: Option<String>,
}

/// What an agent knows of a trial.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TrialEnd {
    /// The sending halves, by direction; stamps are of this agent's clock.
    pub sources: Vec<Option<Direction>>,
    /// The receiving halves, likewise.
    pub sinks: Vec<Option<Direction>>,
    /// What its ports dropped.
    pub ledger: Vec<LedgerEntry>,
    /// The agent's own state.
    pub health: TrialHealth,
}

/// Messages over a stream.
pub struct Channel<S> {
    stream: S,
    /// Octets that have come and are not yet read.
    inbox: Vec<u8>,
}

impl<S: Read + Write> Channel<S> {
    pub fn new(stream: S) -> Channel<S> {
        Channel { stream, inbox: Vec::new() }
    }

    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).ok().filter(|&n| n as usize <= LONGEST);
        let length = length.ok_or_else(|| {
            io::Error::other(format!("a message of {} octets is longer than {LONGEST}", text.len()))
        })?;
        self.stream.write_all(&length.to_be_bytes())?;
        self.stream.write_all(&text)?;
        self.stream.flush()
    }

    /// A message, if a whole one comes within the stream's read timeout.
    ///
    /// # Errors
    /// Those of the stream; `UnexpectedEof`: the other side is gone; `InvalidData`: what came
    /// is no such message.
    pub fn poll<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.inbox.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some((length, rest)) = self.inbox.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LONGEST {
            let why = format!("a message of {length} octets is longer than {LONGEST}");
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        let Some(text) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(text)
            .map_err(|e| io::Error::new(ErrorKind::InvalidData, format!("a message: {e}")))?;
        self.inbox.drain(..4 + length);
        Ok(Some(message))
    }
}

/// [`Traffic`], as it goes over the wire.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Traffic")]
struct TrafficText {
    sizes: Vec<u32>,
    #[serde(with = "tags")]
    tags: Vec<Tag>,
    labels: Vec<u32>,
    #[serde(with = "MacRuleText")]
    source_mac: MacRule,
    #[serde(with = "MacRuleText")]
    destination_mac: MacRule,
    #[serde(with = "AddressRuleText")]
    source: AddressRule,
    #[serde(with = "AddressRuleText")]
    destination: AddressRule,
    #[serde(with = "PortRuleText")]
    source_port: PortRule,
    #[serde(with = "PortRuleText")]
    destination_port: PortRule,
    flows: u32,
    tos: Vec<u8>,
    ttl: u8,
    seed: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ValueOrder")]
enum OrderText {
    Increment,
    Random,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "AddressRule")]
struct AddressRuleText {
    first: std::net::IpAddr,
    count: u32,
    step: u128,
    #[serde(with = "OrderText")]
    order: ValueOrder,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PortRule")]
struct PortRuleText {
    first: u16,
    last: u16,
    #[serde(with = "OrderText")]
    order: ValueOrder,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "MacRule")]
enum MacRuleText {
    Fixed(Mac),
    Increment { first: Mac, count: u32 },
    Random { seed: u64 },
    Group,
}

mod tags {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use sonde_wire::ethernet::Tag;

    pub fn serialize<S: Serializer>(tags: &[Tag], s: S) -> Result<S::Ok, S::Error> {
        tags.iter().map(|t| (t.tpid, t.tci)).collect::<Vec<_>>().serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Tag>, D::Error> {
        let pairs = Vec::<(u16, u16)>::deserialize(d)?;
        Ok(pairs.into_iter().map(|(tpid, tci)| Tag { tpid, tci }).collect())
    }
}

mod mixed {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Mixed, Traffic, TrafficText};

    #[derive(Serialize, Deserialize)]
    struct MixedText {
        #[serde(with = "TrafficText")]
        traffic: Traffic,
        share: f64,
    }

    pub fn serialize<S: Serializer>(mixed: &Option<Mixed>, s: S) -> Result<S::Ok, S::Error> {
        let text = |m: &Mixed| MixedText { traffic: m.traffic.clone(), share: m.share };
        mixed.as_ref().map(text).serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Mixed>, D::Error> {
        let text = Option::<MixedText>::deserialize(d)?;
        Ok(text.map(|MixedText { traffic, share }| Mixed { traffic, share }))
    }
}

/// Octets of a message: the counters of many streams over an hour.
const LONGEST: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn half() -> DirectionEnd {
        DirectionEnd {
            way: 1,
            role: EndRole::Sink { expects: Expects::Mixed },
            port: PortName {
                name: "a".into(),
                interface: "eth0".into(),
                netns: None,
                cpu: Some(1),
            },
            traffic: Traffic {
                sizes: vec![64, 1518],
                tags: vec![Tag { tpid: 0x8100, tci: 7 }],
                labels: vec![16],
                source_mac: MacRule::Fixed([2, 0, 0, 0, 0, 1]),
                destination_mac: MacRule::Increment { first: [2, 0, 0, 0, 0, 2], count: 3 },
                source: AddressRule::fixed("198.18.0.1".parse().unwrap()),
                destination: AddressRule {
                    first: "2001:2::1".parse().unwrap(),
                    count: 3,
                    step: 1 << 64,
                    order: ValueOrder::Random,
                },
                source_port: PortRule::RFC4814_SOURCE,
                destination_port: PortRule::fixed(7),
                flows: 5,
                tos: vec![1, 184],
                ttl: 2,
                seed: u64::MAX,
            },
            mixed: None,
            length_change: -4,
            for_mac: Some([2; 6]),
        }
    }

    /// In half of whose frames groups are addressed.
    fn mixed_half() -> DirectionEnd {
        let traffic = Traffic { destination_mac: MacRule::Group, ..half().traffic };
        DirectionEnd { mixed: Some(Mixed { traffic, share: 0.5 }), ..half() }
    }

    #[test]
    fn messages_arrive_as_they_were_sent_in_whatever_pieces() {
        let mut channel = Channel::new(Cursor::new(Vec::new()));
        let open = AgentRequest::Open { secret: [1, u64::MAX], halves: vec![half(), mixed_half()] };
        channel.send(&open).unwrap();
        channel.send(&AgentRequest::Status).unwrap();
        let all = channel.stream.into_inner();
        for cut in [1, 4, 5, 100, all.len() - 1] {
            let mut read = Channel::new(Cursor::new(Vec::new()));
            read.inbox = all[..cut].to_vec();
            let first = read.take::<AgentRequest>().unwrap();
            read.inbox.extend_from_slice(&all[cut..]);
            let first = first.or_else(|| read.take().unwrap()).unwrap();
            let AgentRequest::Open { secret, halves } = first else { panic!("{first:?}") };
            assert_eq!(secret, [1, u64::MAX]);
            let (a, b) = (&halves[0], half());
            assert_eq!((&a.traffic, a.way, a.role, &a.port), (&b.traffic, b.way, b.role, &b.port));
            let mixed = [&halves[1], &mixed_half()].map(|half| half.mixed.clone().unwrap());
            assert!(a.mixed.is_none() && mixed[0].share == 0.5);
            assert_eq!(mixed[0].traffic, mixed[1].traffic);
            assert!(matches!(read.take().unwrap(), Some(AgentRequest::Status)));
            assert!(read.take::<AgentRequest>().unwrap().is_none());
        }
    }

    #[test]
    fn nonsense_ends_the_conversation() {
        let mut channel = Channel::new(Cursor::new(vec![0xff; 8]));
        assert_eq!(channel.poll::<AgentRequest>().unwrap_err().kind(), ErrorKind::InvalidData);
        let mut channel = Channel::new(Cursor::new(b"\0\0\0\x02{}".to_vec()));
        assert_eq!(channel.poll::<AgentRequest>().unwrap_err().kind(), ErrorKind::InvalidData);
        let mut channel = Channel::new(Cursor::new(b"\0\0\0\x02{".to_vec()));
        assert_eq!(channel.poll::<AgentRequest>().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
