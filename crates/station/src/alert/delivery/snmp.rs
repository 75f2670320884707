//! SNMP notifications over UDP, and the engine that sends them.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::datagram::send_datagrams;
use super::{Stopwatch, utc_now_ns};
use crate::alert::sink::SinkReply;
use crate::alert::sink::address::ServerAddress;
use crate::alert::sink::snmp::ber::{SnmpValue, community_message, trap_pdu};
use crate::alert::sink::snmp::usm::{UsmKeys, UsmMoment};
use crate::alert::sink::snmp::{SnmpManager, SnmpSecurity, SnmpTrap};
use crate::alert::spool::write_whole;

/// Sends notifications to one receiver.
pub(super) struct SnmpClient {
    address: ServerAddress,
    sender: SnmpSender,
    up: Stopwatch,
    next: RefCell<NextSnmpMessage>,
}

enum SnmpSender {
    Community(String),
    User { keys: Box<UsmKeys>, engine: Vec<u8>, file: PathBuf },
}

/// What is different in the next message.
struct NextSnmpMessage {
    /// How often the engine has started; `None`: nothing was sent since this start.
    boots: Option<i32>,
    id: i32,
    salt: u64,
}

/// The file that says how often an engine has started.
#[derive(Serialize, Deserialize)]
struct EngineBoots {
    engine: Vec<u8>,
    boots: i32,
}

impl SnmpClient {
    /// `folder` keeps how often the engine has started.
    pub fn new(manager: &SnmpManager, folder: &Path) -> SnmpClient {
        let sender = match &manager.security {
            SnmpSecurity::Community(community) => {
                SnmpSender::Community(community.expose().to_owned())
            }
            SnmpSecurity::User(user) => SnmpSender::User {
                keys: Box::new(UsmKeys::new(user)),
                engine: user.engine.clone(),
                file: folder.join(BOOTS_FILE),
            },
        };
        let now = utc_now_ns().cast_unsigned();
        let next = NextSnmpMessage { boots: None, id: (now >> 20) as i32 & i32::MAX, salt: now };
        let up = Stopwatch::start();
        SnmpClient { address: manager.address.clone(), sender, up, next: RefCell::new(next) }
    }

    /// Sends each as a message of its own.
    pub fn send(&self, traps: &[SnmpTrap]) -> Result<SinkReply, String> {
        let messages: Vec<Vec<u8>> = traps.iter().map(|trap| self.message(trap)).collect();
        let said = |e: io::Error| format!("{}, port {}: {e}", self.address.host, self.address.port);
        send_datagrams(&self.address, &messages).map(|()| SinkReply::Sent).map_err(said)
    }

    fn message(&self, trap: &SnmpTrap) -> Vec<u8> {
        let mut next = self.next.borrow_mut();
        next.id = next.id.checked_add(1).unwrap_or(1);
        next.salt = next.salt.wrapping_add(1);
        let up_ns = self.up.ns();
        let mut objects = vec![
            // It counts modulo 2^32.
            (SYS_UP_TIME.to_vec(), SnmpValue::TimeTicks((up_ns / 10_000_000) as u32)),
            (SNMP_TRAP_OID.to_vec(), SnmpValue::Oid(trap.oid.clone())),
        ];
        objects.extend(trap.objects.iter().cloned());
        let pdu = trap_pdu(next.id, &objects);
        match &self.sender {
            SnmpSender::Community(community) => community_message(community, &pdu),
            SnmpSender::User { keys, engine, file } => {
                let boots = *next.boots.get_or_insert_with(|| another_start(file, engine));
                let time = (up_ns / 1_000_000_000) as i32;
                keys.message(&UsmMoment { boots, time, message: next.id, salt: next.salt }, &pdu)
            }
        }
    }
}

/// How often the engine has started, with this time. Receivers refuse one that starts less often
/// than they know (RFC 3414, section 2.3). Where the count is lost, it goes on from one that it
/// cannot have come to.
fn another_start(file: &Path, engine: &[u8]) -> i32 {
    let lost = || {
        let minutes = (utc_now_ns() - YEAR_2020_NS) / 60_000_000_000;
        i32::try_from(minutes).unwrap_or(1).max(1)
    };
    let boots = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 1,
        Err(_) => lost(),
        Ok(text) => match serde_json::from_slice::<EngineBoots>(&text) {
            Ok(old) if old.engine != engine => 1,
            Ok(old) => old.boots.saturating_add(1),
            Err(_) => lost(),
        },
    };
    let text = serde_json::to_vec(&EngineBoots { engine: engine.to_owned(), boots });
    // Alerts are not held back for it.
    if let Err(error) = text.map_err(io::Error::from).and_then(|text| write_whole(file, &text)) {
        let file = file.display();
        tracing::warn!("{file}: {error}; after a restart SNMP receivers may refuse notifications");
    }
    boots
}

const BOOTS_FILE: &str = "snmp-engine";
const SYS_UP_TIME: [u32; 9] = [1, 3, 6, 1, 2, 1, 1, 3, 0];
const SNMP_TRAP_OID: [u32; 11] = [1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];
const YEAR_2020_NS: i64 = 1_577_836_800_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::testing::Folder;

    #[test]
    fn an_engine_starts_once_more_each_time_and_another_from_one() {
        let folder = Folder::new("snmp-engine");
        let file = folder.0.join(BOOTS_FILE);
        let starts = |engine: &[u8]| another_start(&file, engine);
        assert_eq!([starts(b"one"), starts(b"one"), starts(b"one")], [1, 2, 3]);
        assert_eq!([starts(b"two"), starts(b"two")], [1, 2]);
        fs::write(&file, "{").unwrap();
        let lost = starts(b"two");
        assert!(lost > 1_000_000, "{lost}");
        assert_eq!(starts(b"two"), lost + 1);
    }
}
