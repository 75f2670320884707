//! The unified header of every packet in tests/golden/flow, against scapy's word for it.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use sonde_wire::capture;
use sonde_wire::feature::{
    self, Feature, Keys, Layers, SHAPE_FRAGMENT, SHAPE_INNER, SHAPE_IPV6, SHAPE_LATER_FRAGMENT,
    SHAPE_NO_TRANSPORT,
};
use sonde_wire::flow::LinkType;

/// A feature and its layers as the golden files have them.
fn fields(feature: &Feature, layers: &Layers) -> Value {
    let hex = |address: &[u8; 16]| address.iter().map(|o| format!("{o:02x}")).collect::<String>();
    let is = |shape| feature.shape & shape != 0;
    json!({
        "source": hex(&feature.source),
        "destination": hex(&feature.destination),
        "source_port": feature.source_port,
        "destination_port": feature.destination_port,
        "ip_len": feature.ip_len,
        "sequence": feature.sequence,
        "tcp_flags": feature.tcp_flags,
        "vlan": feature.vlan,
        "protocol": feature.protocol,
        "tos": feature.tos,
        "ttl": feature.ttl,
        "ipv6": is(SHAPE_IPV6),
        "fragment": is(SHAPE_FRAGMENT),
        "later_fragment": is(SHAPE_LATER_FRAGMENT),
        "inner": is(SHAPE_INNER),
        "no_transport": is(SHAPE_NO_TRANSPORT),
        "window": feature.window,
        "headers": feature.headers,
        "ip": layers.ip,
        "mpls": layers.mpls,
        "outer_ip": layers.outer_ip,
        "transport": layers.transport,
        "payload": layers.payload,
        "end": layers.end,
    })
}

/// What the packet must be under these keys: without a tunnel the same for both.
fn expected(packet: &Value, keys: Keys) -> Value {
    let outer = packet.get("outer").unwrap_or(packet);
    match keys {
        Keys::Outer => outer.clone(),
        Keys::Inner => packet.get("inner").unwrap_or(outer).clone(),
    }
}

/// The fields in which the two differ.
fn differ(found: &Value, expected: &Value) -> Value {
    let (Value::Object(found), Value::Object(expected)) = (found, expected) else {
        return json!([found, expected]);
    };
    assert_eq!(found.len(), expected.len(), "{found:?}\n{expected:?}");
    let pairs = found.iter().filter(|(name, value)| expected.get(*name) != Some(value));
    let named = pairs.map(|(name, value)| {
        let wanted = expected.get(name).cloned().unwrap_or(Value::Null);
        (name.clone(), json!({ "found": value, "expected": wanted }))
    });
    Value::Object(named.collect::<Map<_, _>>())
}

#[test]
fn every_packet_is_what_scapy_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/flow");
    let (mut captures, mut packets) = (0, 0);
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        captures += 1;
        let file = fs::read(&path).unwrap();
        let text = fs::read(path.with_extension("json")).unwrap();
        let golden: Value = serde_json::from_slice(&text).unwrap();
        let golden = golden["packets"].as_array().unwrap();
        let records: Vec<_> = capture::Reader::new(&file).unwrap().map(Result::unwrap).collect();
        assert_eq!(records.len(), golden.len(), "{}", path.display());
        for (i, (record, packet)) in records.iter().zip(golden).enumerate() {
            packets += 1;
            for keys in [Keys::Outer, Keys::Inner] {
                let link = LinkType::from_capture(record.link_type).unwrap();
                let wire_len = record.original_len as usize;
                let at_ns = record.unix_nanos;
                let found = match feature::parse_cut(record.data, wire_len, link, keys, at_ns, 9) {
                    Ok((feature, layers)) => {
                        assert_eq!((feature.at_ns, feature.point), (at_ns, 9));
                        fields(&feature, &layers)
                    }
                    Err(error) => json!({ "error": error.name() }),
                };
                let expected = expected(packet, keys);
                if found != expected {
                    let name = path.file_stem().unwrap().to_string_lossy();
                    let differ = differ(&found, &expected);
                    wrong.push(format!("{name}, packet {}, {keys:?}: {differ}", i + 1));
                }
            }
        }
    }
    assert!(captures >= 17 && packets >= 250, "{packets} packets in {captures} captures");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
