//! What a key has of the layers below IP: VLAN and observation point.

use sonde_wire::feature::Feature;

/// Which VLANs and interfaces keep flows apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The bits of the VLAN identifier that count.
    vlan: u16,
    /// The observation point of each interface.
    points: [u8; 256],
}

impl Scope {
    /// See [`super::Config::vlan_in_key`] and [`super::Config::observation_points`].
    pub(super) fn new(vlan_in_key: bool, points: &[u8]) -> Self {
        let point = |i: usize| points.get(i).copied().unwrap_or(i as u8);
        Scope { vlan: if vlan_in_key { 0xFFF } else { 0 }, points: std::array::from_fn(point) }
    }

    /// A packet's share of the key: VLAN from bit 40 on, observation point from bit 52 on.
    #[inline]
    pub(super) fn bits(&self, packet: &Feature) -> u64 {
        u64::from(packet.vlan & self.vlan) << 40
            | u64::from(self.points[usize::from(packet.point)]) << 52
    }
}
