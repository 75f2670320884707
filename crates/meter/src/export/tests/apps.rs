//! What applications said, in others' elements: identifiers, lengths and order of the values as
//! their documents have them.

use sonde_results::flow::{App, FlowExtra};

use super::formats::config;
use super::sample::{Random, export};
use crate::export::{Decoded, Decoder, Extra, Profile};

/// The enterprise's fields of a record with this application, in their order.
fn exported(app: App) -> Vec<(u32, u16, Vec<u8>)> {
    let mut record = Random(3).biflow();
    record.reverse.packets = 0;
    record.forward.packets = 1;
    record.extra = Some(Box::new(FlowExtra { app: Some(app), ..FlowExtra::default() }));
    let extra = Extra { apps: true, ..Extra::default() };
    let (_, messages) = export(&config(Profile { extra, ..Profile::default() }), &[record]);
    let mut found = Vec::new();
    for message in &messages {
        Decoder::new(37).message(message, &mut |decoded| {
            if let Decoded::Flow(flow) = decoded {
                let raw = flow.raw.expect("IPFIX");
                let own = raw.values().filter(|(field, _)| field.enterprise != 0);
                found.extend(own.map(|(f, value)| (f.enterprise, f.id, value.to_vec())));
            }
        });
    }
    found
}

fn dns(latency_ns: u64) -> Vec<(u32, u16, Vec<u8>)> {
    exported(App::Dns {
        name: "a.example".into(),
        qtype: 28,
        rcode: Some(3),
        answers: 2,
        latency_ns,
    })
}

#[test]
fn dns_with_its_latency() {
    assert_eq!(
        dns(12_000_001),
        [
            (8057, 2, b"a.example".to_vec()),
            (8057, 3, vec![0, 28]),
            (8057, 1, vec![3]),
            (8057, 14, vec![0, 2]),
            (35_632, 125, vec![0, 0, 0, 13]),
        ]
    );
    for (latency_ns, ms) in [(0, 0), (1, 1), (1_000_000, 1), (u64::MAX, u32::MAX)] {
        assert_eq!(dns(latency_ns)[4].2, ms.to_be_bytes(), "{latency_ns} ns");
    }
}

#[test]
fn ssh_of_the_client_and_then_of_the_server() {
    let app = App::Ssh { client: "SSH-2.0-client".into(), server: "SSH-2.0-server".into() };
    let ends = [(6871, 171, b"SSH-2.0-client".to_vec()), (6871, 171, b"SSH-2.0-server".to_vec())];
    assert_eq!(exported(app), ends);
}

#[test]
fn dhcp() {
    let app = App::Dhcp {
        message: 5,
        client_mac: [2, 0, 0, 0, 0, 7],
        host_name: "printer".into(),
        vendor: "MSFT 5.0".into(),
    };
    assert_eq!(
        exported(app),
        [
            (35_632, 429, vec![5]),
            (35_632, 353, vec![2, 0, 0, 0, 0, 7]),
            (35_632, 355, b"printer".to_vec()),
            (6871, 243, b"MSFT 5.0".to_vec()),
        ]
    );
}
