//! For tests: a load of small frames between two addresses.

use std::net::IpAddr;

use sonde_meter::load::{AddressRule, MacRule, PortRule, Traffic};
use sonde_results::trial::Offer;

use super::{DirectionLoad, MTU_MAX};

/// Four flows of 128 octets (FCS included) by IPv4, with the tag 7.
pub(super) fn load(offer: &Offer) -> DirectionLoad {
    DirectionLoad::new(&traffic(), None, offer, 7, MTU_MAX).unwrap()
}

fn traffic() -> Traffic {
    let address = |text: &str| AddressRule::fixed(text.parse::<IpAddr>().unwrap());
    Traffic {
        sizes: vec![128],
        tags: Vec::new(),
        labels: Vec::new(),
        source_mac: MacRule::Fixed([2, 0, 0, 0, 0, 1]),
        destination_mac: MacRule::Fixed([2, 0, 0, 0, 0, 2]),
        source: address("198.18.0.2"),
        destination: address("198.19.0.2"),
        source_port: PortRule::RFC4814_SOURCE,
        destination_port: PortRule::RFC4814_DESTINATION,
        flows: 4,
        tos: vec![0],
        ttl: 64,
        seed: 1,
    }
}
