//! Whatever comes, the decoder counts it: no bytes cause a panic, or memory without bound.

use proptest::prelude::*;

use super::sample::{NOW, Random, export, extra};
use crate::export::{Config, Decoder, ExportProtocol, ExportStats, Extra, Profile, TimeUnit};

/// Messages of every format, with every field.
fn messages() -> Vec<Vec<u8>> {
    let all = Extra { link: true, tcp: true, apps: true };
    let full = Profile {
        biflow: true,
        time: TimeUnit::Nano,
        lists: true,
        extra: all,
        ..Profile::default()
    };
    let netflow = |protocol| Profile { protocol, ..Profile::default() };
    let profiles = [
        Profile::default(),
        full,
        netflow(ExportProtocol::Netflow9),
        netflow(ExportProtocol::Netflow5),
    ];
    let mut random = Random(1);
    let mut messages = Vec::new();
    for profile in profiles {
        let mut records: Vec<_> = (0..8).map(|_| random.record()).collect();
        records[0].extra = Some(Box::new(extra()));
        let (mut exporter, mut made) = export(&Config { profile, ..Config::default() }, &records);
        exporter.options(&ExportStats::default(), NOW, &mut |m| made.push(m.to_vec()));
        messages.append(&mut made);
    }
    messages
}

proptest! {
    #[test]
    fn bytes_changed_anywhere_do_not_panic(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..20),
        cut in any::<u16>(),
    ) {
        let mut decoder = Decoder::new(37);
        for mut message in messages() {
            for (at, value) in &changes {
                let at = usize::from(*at) % message.len();
                message[at] = *value;
            }
            message.truncate(message.len() - usize::from(cut) % message.len());
            decoder.message(&message, &mut |_| ());
            decoder.file(&message, &mut |_| ());
        }
    }

    #[test]
    fn arbitrary_sets_do_not_panic(
        sets in proptest::collection::vec(any::<u8>(), 0..400),
        version in prop_oneof![Just(5u16), Just(9), Just(10)],
    ) {
        let mut message = version.to_be_bytes().to_vec();
        message.extend_from_slice(&(sets.len() as u16 + 16).to_be_bytes());
        message.extend_from_slice(&[0; 12]);
        message.extend_from_slice(&sets);
        Decoder::new(37).message(&message, &mut |_| ());
    }
}

#[test]
fn templates_without_end_are_refused() {
    let mut decoder = Decoder::new(37);
    for n in 0..5000u32 {
        // A template of one field, each in a domain of its own.
        let mut message = vec![0, 10, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&n.to_be_bytes());
        message.extend_from_slice(&[0, 2, 0, 12, 1, 0, 0, 1, 0, 1, 0, 8]);
        decoder.message(&message, &mut |_| ());
    }
    assert_eq!(decoder.counters().templates, 5000);
    assert_eq!(decoder.counters().templates_refused, 5000 - 4096);
}
