"""Unified headers as scapy sees them: what a frame must be parsed into.

Every number is one of scapy's own fields, read from the packet as scapy dissects it again
from its octets, or the length of something that scapy built: no header is parsed here.
A case states what scapy cannot know: how many octets of a transport header that it does
not dissect come first, and which packets must be refused.
"""

import ipaddress
import json
import struct

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    _MobilityHeader,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import Dot1AD, Dot1Q
from scapy.layers.sctp import SCTP
from scapy.contrib.mpls import MPLS
from scapy.packet import NoPayload

BASE_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_003
ETHERNET, RAW, COOKED, COOKED2 = 1, 101, 113, 276
EXTENSIONS = (
    AH,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    _MobilityHeader,
)
HEADER_LENGTHS = {ICMP: 8, SCTP: 12, UDP: 8}
ICMPV6 = 58


class Case:
    """A capture, and what each of its packets is."""

    def __init__(self, name, why, link=ETHERNET):
        self.name, self.why, self.link = name, why, link
        self.packets = []  # (octets kept, length on the wire)
        self.expectations = []

    def put(self, frame, key=None, inner=None, tail=b"", snap=None, header=None, **wrong):
        """Adds a packet. `key` is the IP layer in `frame` that counts, the first one if it
        is not given; `inner` the one inside a tunnel. `tail` comes after the IP packet,
        `snap` is all that the capture keeps. `header`: of a transport that scapy does not
        dissect, (source port, destination port, header length). `wrong`: fields that
        are not what the headers say, because the packet is cut or malformed."""
        octets = bytes(frame) + tail
        if key is None:
            key = next(layer for layer in walk(frame) if isinstance(layer, (IP, IPv6)))
        kept = octets if snap is None else octets[:snap]
        tag = first(frame, (Dot1Q, Dot1AD), key)
        below = dict(vlan=tag.vlan if tag else 0)
        below["mpls"] = offset(frame, first(frame, MPLS, key))
        outer = feature(frame, key, len(kept), header if inner is None else None)
        expected = {"outer": {**outer, **below, **(wrong if inner is None else {})}}
        if inner is not None:
            inside = feature(frame, inner, len(kept), header)
            below["mpls"] = offset(frame, first(frame, MPLS, inner))
            below.update(inner=True, outer_ip=offset(frame, key))
            expected["inner"] = {**inside, **below, **wrong}
        self.add(kept, len(octets), expected)

    def refuse(self, frame, error, snap=None):
        """Adds a frame that is no IP packet that can be counted."""
        octets = bytes(frame)
        self.add(octets[:snap], len(octets), {"error": error})

    def add(self, kept, wire, expected):
        self.packets.append((kept, wire))
        self.expectations.append(expected)

    def pcap(self):
        """The capture: nanoseconds, little-endian."""
        parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, self.link)]
        for number, (kept, wire) in enumerate(self.packets):
            seconds, nanos = divmod(BASE_NS + number * STEP_NS, 1_000_000_000)
            parts += [struct.pack("<IIII", seconds, nanos, len(kept), wire), kept]
        return b"".join(parts)

    def expected(self):
        """What must come out of it: one packet a line, so that changes can be read."""
        lines = ",\n  ".join(json.dumps(e) for e in self.expectations)
        return f'{{\n "why": {json.dumps(self.why)},\n "packets": [\n  {lines}\n ]\n}}\n'


def offset(frame, layer):
    """Where a layer of a frame that scapy built begins; 0 if there is none."""
    return 0 if layer is None else len(bytes(frame)) - len(bytes(layer))


def first(frame, kinds, before):
    """The outermost layer of these kinds in front of `before`, if there is one."""
    # By their places: a frame consists of copies of what it was put together from.
    end = offset(frame, before)
    found = (l for l in walk(frame) if isinstance(l, kinds) and offset(frame, l) < end)
    return next(found, None)


def walk(layer):
    """This layer and those above it, outermost first."""
    while not isinstance(layer, NoPayload):
        yield layer
        layer = layer.payload


def mapped(address):
    """An address as 32 hexadecimal digits."""
    address = ipaddress.ip_address(address)
    prefix = "00000000000000000000ffff" if address.version == 4 else ""
    return prefix + address.packed.hex()


def feature(frame, key, captured, header):
    """The unified header of the IP packet `key`, and its layers' places in `frame`."""
    start = offset(frame, key)
    again = key.__class__(bytes(key))
    v6 = isinstance(again, IPv6)
    fragment = again.getlayer(IPv6ExtHdrFragment) if v6 else again
    more, later, identification = 0, 0, 0
    if v6 and fragment is not None:
        more, later, identification = fragment.m, fragment.offset, fragment.id
    elif not v6:
        more, later, identification = int(again.flags.MF), again.frag, again.id
    ip_len = again.plen + 40 if v6 else again.len
    protocol = again.nh if v6 else again.proto
    # Up to the first layer that is neither IP nor stepped over.
    transport = key.payload
    stop = later and not v6
    while isinstance(transport, EXTENSIONS) and not stop:
        stop = later and isinstance(transport, IPv6ExtHdrFragment)
        protocol = transport.__class__(bytes(transport)).nh
        transport = transport.payload
    before = len(bytes(key)) - len(bytes(transport))
    if not isinstance(transport, NoPayload):
        transport = transport.__class__(bytes(transport))
    end = min(start + ip_len, captured)
    found = dict(
        source=mapped(again.src),
        destination=mapped(again.dst),
        source_port=0,
        destination_port=0,
        ip_len=ip_len,
        sequence=0,
        tcp_flags=0,
        protocol=protocol,
        tos=again.tc if v6 else again.tos,
        ttl=again.hlim if v6 else again.ttl,
        ipv6=v6,
        fragment=bool(more or later),
        later_fragment=bool(later),
        inner=False,
        no_transport=False,
        window=0,
        ip=start,
        outer_ip=0,
        transport=start + before,
    )
    header_len = 0
    if later:
        found["transport"] = 0
    elif header is not None:
        found["source_port"], found["destination_port"], header_len = header
    elif isinstance(transport, TCP):
        header_len = transport.dataofs * 4
        # Scapy has the reserved bits (RFC 9293: 4 of them, one of which was NS) apart.
        flags = int(transport.flags) | transport.reserved << 9
        found.update(sequence=transport.seq, tcp_flags=flags, window=transport.window)
    elif protocol == ICMPV6:
        header_len = 8
    else:
        header_len = HEADER_LENGTHS.get(type(transport), 0)
    if header is None and not later:
        if isinstance(transport, (TCP, UDP, SCTP)):
            found.update(source_port=transport.sport, destination_port=transport.dport)
        elif isinstance(transport, ICMP) or protocol == ICMPV6:
            found["destination_port"] = transport.type * 256 + transport.code
    if more or later:
        found["sequence"] = identification
    payload = before + header_len
    found.update(headers=-(-payload // 4), payload=min(start + payload, end), end=end)
    return found
