//! Packets within packets, octet by octet: each function puts its header before what it is
//! given.

/// The protocol numbers of what these functions make.
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP: u8 = 1;
pub const ICMP6: u8 = 58;
pub const SCTP: u8 = 132;
pub const GRE: u8 = 47;
pub const HOP_BY_HOP: u8 = 0;
pub const ROUTING: u8 = 43;
pub const FRAGMENT: u8 = 44;
pub const AH: u8 = 51;
pub const DESTINATION: u8 = 60;
pub const MOBILITY: u8 = 135;
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const BRIDGED: u16 = 0x6558;
pub const VLAN: u16 = 0x8100;
pub const QINQ: u16 = 0x88a8;
pub const PPPOE: u16 = 0x8864;
pub const MPLS: u16 = 0x8847;

/// A packet and what the layer below calls it: an EtherType.
#[derive(Clone, Debug)]
pub struct Layer {
    pub kind: u16,
    pub bytes: Vec<u8>,
}

fn before(header: &[u8], bytes: &[u8]) -> Vec<u8> {
    [header, bytes].concat()
}

/// IPv4 from host `from` to host `to` of 10.0.0.0/24.
pub fn v4(from: u8, to: u8, protocol: u8, payload: &[u8]) -> Layer {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let header = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    let header = [&header[..], &[10, 0, 0, from, 10, 0, 0, to]].concat();
    Layer { kind: IPV4, bytes: before(&header, payload) }
}

/// IPv6 from host `from` to host `to` of 2001:db8::/64.
pub fn v6(from: u8, to: u8, protocol: u8, payload: &[u8]) -> Layer {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, high, low, protocol, 64];
    for host in [from, to] {
        header.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    Layer { kind: IPV6, bytes: before(&header, payload) }
}

/// An IPv6 extension header of so many octets in all (a multiple of 8).
pub fn extension(kind: u8, next: u8, size: usize, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; size];
    header[0] = next;
    header[1] = if kind == AH { size / 4 - 2 } else { size / 8 - 1 } as u8;
    before(&header, payload)
}

/// An IPv6 fragment header: offset in octets (a multiple of 8), and whether more follow.
pub fn fragment(next: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (offset | u16::from(more)).to_be_bytes();
    before(&[next, 0, high, low, 0, 0, 0, 9], payload)
}

pub fn datagram(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; 8];
    header[..2].copy_from_slice(&from.to_be_bytes());
    header[2..4].copy_from_slice(&to.to_be_bytes());
    header[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    before(&header, payload)
}

/// ICMP or ICMPv6 echo, by its type.
pub fn echo(kind: u8, id: u16, sequence: u16) -> Vec<u8> {
    let ([a, b], [c, d]) = (id.to_be_bytes(), sequence.to_be_bytes());
    vec![kind, 0, 0, 0, a, b, c, d]
}

/// A query or response with this identifier, for a one-letter name.
pub fn dns(response: bool, id: u8, name: u8) -> Vec<u8> {
    let mut message = vec![0, id, u8::from(response) << 7, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend([1, name, 0, 0, 1, 0, 1]);
    message
}

/// SCTP with a HEARTBEAT (4) or HEARTBEAT ACK (5) of this information.
pub fn heartbeat(from: u16, to: u16, kind: u8, info: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet[..2].copy_from_slice(&from.to_be_bytes());
    packet[2..4].copy_from_slice(&to.to_be_bytes());
    packet.extend([kind, 0, 0, info.len() as u8 + 8, 0, 1, 0, info.len() as u8 + 4]);
    before(&packet, info)
}

pub fn ethernet(inside: &Layer) -> Vec<u8> {
    let [high, low] = inside.kind.to_be_bytes();
    before(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, high, low], &inside.bytes)
}

pub fn tagged(tpid: u16, tci: u16, inside: &Layer) -> Layer {
    let ([a, b], [c, d]) = (tci.to_be_bytes(), inside.kind.to_be_bytes());
    Layer { kind: tpid, bytes: before(&[a, b, c, d], &inside.bytes) }
}

/// A tag of this EtherType with so many octets before the EtherType of what follows.
pub fn long_tag(kind: u16, octets: usize, inside: &Layer) -> Layer {
    let tag = [&vec![0x0b; octets][..], &inside.kind.to_be_bytes()].concat();
    Layer { kind, bytes: before(&tag, &inside.bytes) }
}

/// A frame with a length, and SNAP with this last octet of its organisation.
pub fn snap(organisation: u8, inside: &Layer) -> Layer {
    let [high, low] = inside.kind.to_be_bytes();
    let bytes = before(&[0xaa, 0xaa, 3, 0, 0, organisation, high, low], &inside.bytes);
    Layer { kind: bytes.len().min(1500) as u16, bytes }
}

pub fn pppoe(inside: &Layer) -> Layer {
    let [high, low] = (inside.bytes.len() as u16 + 2).to_be_bytes();
    let protocol = if inside.kind == IPV4 { 0x21 } else { 0x57 };
    Layer { kind: PPPOE, bytes: before(&[0x11, 0, 0, 7, high, low, 0, protocol], &inside.bytes) }
}

/// A stack of so many labels.
pub fn mpls(labels: u8, inside: &Layer) -> Layer {
    let stack: Vec<u8> = (1..=labels).flat_map(|n| [0, 1, u8::from(n == labels), 64]).collect();
    Layer { kind: MPLS, bytes: before(&stack, &inside.bytes) }
}

/// GRE with these of its flags (checksum 0x80, key 0x20, sequence number 0x10), as the
/// payload of IP; of an Ethernet frame if the layer is [`BRIDGED`].
pub fn gre(flags: u8, inside: &Layer) -> Vec<u8> {
    let [high, low] = inside.kind.to_be_bytes();
    let mut header = vec![flags, 0, high, low];
    header.resize(4 + 4 * (flags & 0xb0).count_ones() as usize, 9);
    before(&header, &inside.bytes)
}

/// VXLAN, as the payload of UDP.
pub fn vxlan(inside: &Layer) -> Vec<u8> {
    before(&[8, 0, 0, 0, 0, 0, 5, 0], &ethernet(inside))
}

/// GTP-U, as the payload of UDP, with extension headers of these sizes (in 4 octets).
pub fn gtpu(extensions: &[u8], inside: &Layer) -> Vec<u8> {
    let mut header = vec![if extensions.is_empty() { 0x30 } else { 0x34 }, 255, 0, 0, 0, 0, 0, 5];
    if !extensions.is_empty() {
        header.extend([0, 0, 0, 0x85]);
    }
    for (n, &size) in extensions.iter().enumerate() {
        let at = header.len();
        header.resize(at + 4 * usize::from(size), 0);
        header[at] = size;
        *header.last_mut().unwrap() = if n + 1 < extensions.len() { 0x85 } else { 0 };
    }
    before(&header, &inside.bytes)
}

/// GENEVE, as the payload of UDP, with so many words of options.
pub fn geneve(options: u8, inside: &Layer) -> Vec<u8> {
    let [high, low] = inside.kind.to_be_bytes();
    let mut header = vec![options, 0, high, low, 0, 0, 5, 0];
    header.resize(8 + 4 * usize::from(options), 9);
    before(&header, &inside.bytes)
}

/// An Ethernet frame, as GRE and GENEVE carry it.
pub fn bridged(inside: &Layer) -> Layer {
    Layer { kind: BRIDGED, bytes: ethernet(inside) }
}

/// An Ethernet frame behind so many labels and these octets.
pub fn pseudowire(labels: u8, control_word: &[u8], inside: &Layer) -> Layer {
    mpls(labels, &Layer { kind: 0, bytes: before(control_word, &ethernet(inside)) })
}

/// Puts a layer into another one.
pub type Wrap = fn(&Layer) -> Layer;
/// Puts a layer into a tunnel: the protocol that IP names it by, and IP's payload.
pub type Tunnel = fn(&Layer) -> (u8, Vec<u8>);

/// All that is stepped over between Ethernet and IP, and the VLAN that it names.
pub const LINKS: [(&str, u16, Wrap); 23] = [
    ("plain", 0, |ip| ip.clone()),
    ("VLAN", 0x123, |ip| tagged(VLAN, 0xe123, ip)),
    ("QinQ", 0x64, |ip| tagged(QINQ, 0x64, &tagged(VLAN, 5, ip))),
    ("priority tag", 0, |ip| tagged(VLAN, 0xe000, ip)),
    ("priority tag outside a VLAN", 5, |ip| tagged(VLAN, 0xe000, &tagged(VLAN, 5, ip))),
    ("priority tag in a VLAN", 5, |ip| tagged(VLAN, 5, &tagged(VLAN, 0xe000, ip))),
    ("the old QinQ", 7, |ip| tagged(0x9100, 7, &tagged(VLAN, 5, ip))),
    ("three tags", 7, |ip| tagged(QINQ, 7, &tagged(VLAN, 5, &tagged(VLAN, 6, ip)))),
    ("HSR", 9, |ip| long_tag(0x892f, 4, &tagged(VLAN, 9, ip))),
    ("VN-Tag", 9, |ip| long_tag(0x8926, 4, &tagged(VLAN, 9, ip))),
    ("FabricPath", 9, |ip| long_tag(0x8903, 14, &tagged(VLAN, 9, ip))),
    ("802.1ah", 9, |ip| long_tag(0x88e7, 16, &tagged(VLAN, 9, ip))),
    ("SNAP", 0, |ip| snap(0, ip)),
    ("SNAP by IEEE 802.1H", 0, |ip| snap(0xf8, ip)),
    ("SNAP in a VLAN", 9, |ip| tagged(VLAN, 9, &snap(0, ip))),
    ("PPPoE", 0, pppoe),
    ("PPPoE in a VLAN", 9, |ip| tagged(VLAN, 9, &pppoe(ip))),
    ("MPLS", 0, |ip| mpls(3, ip)),
    ("deep MPLS", 0, |ip| mpls(8, ip)),
    ("MPLS, multicast", 0, |ip| Layer { kind: 0x8848, ..mpls(2, ip) }),
    ("pseudowire", 0, |ip| pseudowire(1, &[], ip)),
    ("pseudowire with a control word", 0, |ip| pseudowire(1, &[0, 0, 0, 9], ip)),
    ("pseudowire of a VLAN", 2, |ip| pseudowire(2, &[0; 4], &tagged(VLAN, 2, ip))),
];

/// All tunnels that are looked into.
pub const TUNNELS: [(&str, Tunnel); 16] = [
    ("IP in IP", |ip| (if ip.kind == IPV4 { 4 } else { 41 }, ip.bytes.clone())),
    ("GRE", |ip| (GRE, gre(0, ip))),
    ("GRE with a key", |ip| (GRE, gre(0x20, ip))),
    ("GRE with all fields", |ip| (GRE, gre(0xb0, ip))),
    ("GRE of Ethernet", |ip| (GRE, gre(0x20, &bridged(ip)))),
    ("GRE of MPLS", |ip| (GRE, gre(0, &mpls(2, ip)))),
    ("VXLAN", |ip| (UDP, over_udp(4789, &vxlan(ip)))),
    ("VXLAN with a tag", |ip| (UDP, over_udp(4789, &vxlan(&tagged(VLAN, 0x77, ip))))),
    ("VXLAN of MPLS", |ip| (UDP, over_udp(4789, &vxlan(&mpls(2, ip))))),
    ("VXLAN of a pseudowire", |ip| (UDP, over_udp(4789, &vxlan(&pseudowire(1, &[0; 4], ip))))),
    ("GENEVE", |ip| (UDP, over_udp(6081, &geneve(0, ip)))),
    ("GENEVE with options", |ip| (UDP, over_udp(6081, &geneve(3, ip)))),
    ("GENEVE of Ethernet", |ip| (UDP, over_udp(6081, &geneve(63, &bridged(ip))))),
    ("GENEVE with a tag", |ip| (UDP, over_udp(6081, &geneve(1, &bridged(&tagged(VLAN, 9, ip)))))),
    ("GTP-U", |ip| (UDP, over_udp(2152, &gtpu(&[], ip)))),
    ("GTP-U with extensions", |ip| (UDP, over_udp(2152, &gtpu(&[1, 2, 1, 1], ip)))),
];

fn over_udp(port: u16, payload: &[u8]) -> Vec<u8> {
    datagram(50_000, port, payload)
}
