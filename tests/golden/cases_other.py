"""Everything but TCP: echo, DNS, QUIC, SCTP; fragments, and what is wrapped around IP."""

import random
import struct

from packets import MACS, Flow, echo, ip, link, pad, udp
from scapy.contrib.gtp import GTP_U_Header, GTPHeader
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.sctp import (
    SCTP,
    SCTPChunkHeartbeatAck,
    SCTPChunkHeartbeatReq,
    SCTPChunkParamHeartbeatInfo,
)
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

A, B = "192.0.2.1", "198.51.100.2"
A6, B6 = "2001:db8::1", "2001:db8:2::2"


def echoes(new):
    case = new("echo", "ICMP and ICMPv6: overlapping requests, a lost one, and one sent twice")
    for base, a, b in ((0, A, B), (1000, A6, B6)):
        one = echo(case, base, a, b, 77, 1)
        two = echo(case, base + 5, a, b, 77, 2)
        case.sample("icmp_echo", one, echo(case, base + 12, b, a, 77, 1, True))
        case.sample("icmp_echo", two, echo(case, base + 16, b, a, 77, 2, True))
        echo(case, base + 20, a, b, 77, 3)  # never answered
        # Another process with the same sequence number.
        other = echo(case, base + 21, a, b, 78, 4)
        mine = echo(case, base + 22, a, b, 77, 4)
        case.sample("icmp_echo", other, echo(case, base + 31, b, a, 78, 4, True))
        case.sample("icmp_echo", mine, echo(case, base + 33, b, a, 77, 4, True))
        # Sent twice before the answer: which one it answers is open.
        echo(case, base + 40, a, b, 77, 5)
        echo(case, base + 41, a, b, 77, 5)
        echo(case, base + 51, b, a, 77, 5, True)
        # An answer to nothing, and an answer twice.
        echo(case, base + 60, b, a, 77, 9, True)
        six = echo(case, base + 70, a, b, 77, 6)
        case.sample("icmp_echo", six, echo(case, base + 81, b, a, 77, 6, True))
        echo(case, base + 82, b, a, 77, 6, True)
    case.counter(duplicate_ids=2)
    return case


def dns_message(ident, name, response=False, answers=0):
    labels = b"".join(bytes([len(x)]) + x for x in name.encode().split(b"."))
    head = struct.pack("!HHHHHH", ident, 0x8180 if response else 0x0100, 1, answers, 0, 0)
    record = struct.pack("!HHHIH4s", 0xC00C, 1, 1, 60, 4, bytes(4))
    return head + labels + b"\x00" + struct.pack("!HH", 1, 1) + record * answers


def dns(new):
    case = new("dns", "DNS over UDP: two queries at once, another's identifier, a query sent "
               "twice, another name, letters of another case")
    for base, a, b in ((0, (A, 5353), (B, 53)), (1000, (A6, 40000), (B6, 53))):
        one = udp(case, base, a, b, dns_message(0x1111, "one.sonde.test"))
        two = udp(case, base + 1, a, b, dns_message(0x2222, "two.sonde.test"))
        answer = udp(case, base + 9, b, a, dns_message(0x2222, "two.sonde.test", True, 1), 1)
        case.sample("dns", two, answer)
        answer = udp(case, base + 23, b, a, dns_message(0x1111, "one.sonde.test", True, 3), 1)
        case.sample("dns", one, answer)
        # The right identifier for another name: not this one's answer.
        udp(case, base + 40, a, b, dns_message(0x3333, "three.sonde.test"))
        udp(case, base + 50, b, a, dns_message(0x3333, "other.sonde.test", True, 1), 1)
        for ms in (60, 65):
            udp(case, base + ms, a, b, dns_message(0x4444, "four.sonde.test"))
        udp(case, base + 72, b, a, dns_message(0x4444, "four.sonde.test", True, 1), 1)
        # RFC 4343: names are the same in any case.
        mixed = udp(case, base + 80, a, b, dns_message(0x5555, "FiVe.sONde.tEst"))
        answer = udp(case, base + 88, b, a, dns_message(0x5555, "five.sonde.test", True, 1), 1)
        case.sample("dns", mixed, answer)
        # Cut short, or no DNS at all.
        udp(case, base + 95, a, b, b"\x12\x34\x01")
        udp(case, base + 96, b, a, b"", 1)
    case.counter(duplicate_ids=2)
    return case


def long_header(kind, version=1, payload=1200):
    first = 0xC0 | (kind << 4)
    return (struct.pack("!BI", first, version) + b"\x08" + b"DESTCONN" + b"\x08" + b"SRCECONN"
            ).ljust(payload, b"\x5a")


def short_header(spin):
    return bytes([0x40 | spin << 5 | 0x1B]) + b"DESTCONN" + b"\xa7" * 30


def quic_handshake(case, base, client, server, version=1):
    """Version 2 numbers the kinds anew (RFC 9369, section 3.2)."""
    initial, handshake = (0, 2) if version == 1 else (1, 3)
    first = udp(case, base, client, server, long_header(initial, version))
    answer = udp(case, base + 20, server, client, long_header(initial, version), 1)
    udp(case, base + 20.125, server, client, long_header(handshake, version), 1)
    finish = udp(case, base + 22, client, server, long_header(handshake, version, 100))
    case.sample("quic_handshake", first, answer)
    case.sample("quic_handshake", answer, finish)


def quic(new):
    case = new("quic", "the first flights of versions 1 and 2; a repeated Initial, a Retry and a "
               "version negotiation")
    server = (B, 443)
    quic_handshake(case, 0, (A, 50000), server)
    quic_handshake(case, 100, (A6, 50000), (B6, 443), 0x6B3343CF)
    # The client's Initial is lost or late, and comes again: which one is answered is open.
    client = (A, 50001)
    udp(case, 200, client, server, long_header(0))
    udp(case, 500, client, server, long_header(0))
    udp(case, 520, server, client, long_header(0), 1)
    # Without the server's time nothing says whether the client's is plausible.
    udp(case, 521, client, server, long_header(2))
    # The server has the client begin again: with a token, or in another version.
    for client, restart in (((A, 50002), long_header(3)), ((A, 50003), long_header(0, 0))):
        base = 600 + 100 * (client[1] - 50002)
        udp(case, base, client, server, long_header(0))
        udp(case, base + 20, server, client, restart, 1)
        again = udp(case, base + 21, client, server, long_header(0))
        answer = udp(case, base + 42, server, client, long_header(0), 1)
        case.sample("quic_handshake", again, answer)
    return case


def spin(case, base, client, server, bits, rounds):
    """A connection that sends three packets each way a round of 20 ms there and 4 ms back;
    `bits(side, round)` is the spin bit. Returns each round's first packet of both sides."""
    quic_handshake(case, base, client, server)
    firsts = []
    for n in range(rounds):
        ms = base + 30 + 24 * n
        there = [udp(case, ms + k / 8, client, server, short_header(bits(0, n))) for k in range(3)]
        back = [udp(case, ms + 20 + k / 8, server, client, short_header(bits(1, n)), 1)
                for k in range(3)]
        firsts += [there[0], back[0]]
    return firsts


def quic_spin(new):
    case = new("quic_spin", "one connection spins, one holds its bit, one draws it by lot")
    # The server sends the client's bit back, the client turns it round (RFC 9000, 17.4).
    edges = spin(case, 0, (A, 50000), (B, 443), lambda side, n: n % 2, 26)
    # The first value of each side is no edge; the first sixteen edges must show a rhythm.
    for timed, answer in zip(edges[2 + 15 :], edges[2 + 16 :]):
        case.sample("quic_spin", timed, answer)
    spin(case, 2000, (A, 50001), (B, 443), lambda side, n: 1, 26)
    lot = random.Random(3)
    spin(case, 4000, (A, 50002), (B, 443), lambda side, n: lot.getrandbits(1), 26)
    case.flow(A, 50000, spin="spinning")
    case.flow(A, 50001, spin="off")
    case.flow(A, 50002, spin="random")
    return case


def sctp(new):
    case = new("sctp", "heartbeats: answered, answered by another's information, lost")
    for base, a, b in ((0, A, B), (1000, A6, B6)):
        def beat(ms, info, back=False, a=a, b=b):
            chunk = SCTPChunkHeartbeatAck if back else SCTPChunkHeartbeatReq
            chunk = chunk(params=[SCTPChunkParamHeartbeatInfo(data=info)])
            (source, sport), (dest, dport) = [(b, 2905), (a, 36412)][:: 1 if back else -1]
            packet = ip(source, dest) / SCTP(sport=sport, dport=dport, tag=7) / chunk
            flow = Flow(source, sport, dest, dport, 132)
            return case.put(ms, pad(link(int(back)) / packet), flow)

        one = beat(base, b"path one, 0001-and-more")
        case.sample("sctp_heartbeat", one, beat(base + 13, b"path one, 0001-and-more", True))
        beat(base + 100, b"path one, 0002-and-more")
        beat(base + 113, b"quite another information", True)
        short = beat(base + 200, b"123")
        case.sample("sctp_heartbeat", short, beat(base + 208, b"123", True))
    return case


def fragments(new):
    case = new("fragments", "a non-first fragment is never taken for a header; the first one of "
               "an answer answers")
    def part(ms, source, dest, offset, more, data, side):
        flow = Flow(source, 53 if side else 40000, dest, 40000 if side else 53, 17)
        if ":" in source:
            whole = IPv6(src=source, dst=dest) / IPv6ExtHdrFragment(
                nh=17, offset=offset // 8, m=more, id=9)
        else:
            whole = IP(src=source, dst=dest, proto=17, id=9, flags=more, frag=offset // 8)
        return case.put(ms, pad(link(side) / whole / Raw(data)), flow)

    for base, a, b in ((0, A, B), (1000, A6, B6)):
        query = udp(case, base, (a, 40000), (b, 53), dns_message(1, "sonde.test"))
        body = dns_message(1, "sonde.test", True, 80)
        whole = struct.pack("!HHHH", 53, 40000, 8 + len(body), 0) + body
        case.sample("dns", query, part(base + 10, b, a, 0, 1, whole[:800], 1))
        part(base + 10.5, b, a, 800, 0, whole[800:], 1)
        # What would be a query, from a port of its own, were it a header.
        part(base + 20, a, b, 1480, 0, struct.pack("!HHHH", 40001, 53, 60, 0)
             + dns_message(2, "sonde.test"), 0)
    case.flow(A, 40000, forward={"packets": 1}, backward={"packets": 1})
    case.flow(A6, 40000, forward={"packets": 1}, backward={"packets": 1})
    case.counter(fragments=4)
    return case


def wrapped(new):
    case = new("wrapped", "what stands between Ethernet and IP: VLAN, QinQ, PPPoE, MPLS, alone and "
               "together; IPv6 extension headers")
    pppoe = lambda p: PPPoE(sessionid=7) / PPP(proto=0x57 if IPv6 in p else 0x21) / p  # noqa: E731
    mpls = lambda p: MPLS(label=16, s=0, ttl=9) / MPLS(label=17, s=1, ttl=9) / p  # noqa: E731
    wraps = [
        (100, lambda p: Dot1Q(vlan=100, prio=5) / p),
        (200, lambda p: Dot1AD(vlan=200) / Dot1Q(vlan=100) / p),
        (300, lambda p: Dot1Q(vlan=300) / Dot1Q(vlan=100) / p),
        (0, pppoe),
        (400, lambda p: Dot1Q(vlan=400) / pppoe(p)),
        (0, mpls),
        (500, lambda p: Dot1Q(vlan=500) / mpls(p)),
    ]
    ms = 0
    for vlan, wrap in wraps:
        for a, b in ((A, B), (A6, B6)):
            def frame(packet, side, wrap=wrap):
                return link(side, wrap(packet))
            one = echo(case, ms, a, b, 5, ms, wrap=frame, vlan=vlan)
            two = echo(case, ms + 10, b, a, 5, ms, True, wrap=frame, vlan=vlan)
            case.sample("icmp_echo", one, two)
            ms += 100
    headers = [
        lambda: IPv6ExtHdrHopByHop(),
        lambda: IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting() / IPv6ExtHdrDestOpt(),
    ]
    for n, make in enumerate(headers):
        def packet(reply, a, b, make=make, n=n):
            kind = ICMPv6EchoReply if reply else ICMPv6EchoRequest
            flow = Flow(a, 6 + n, b, 6 + n, 58)
            ahead = IPv6(src=a, dst=b) / make()
            return pad(link(reply) / ahead / kind(id=6 + n, seq=1)), flow
        one = case.put(ms, *packet(0, A6, B6))
        case.sample("icmp_echo", one, case.put(ms + 10, *packet(1, B6, A6)))
        ms += 100
    return case


def tunnels(new, inside=True):
    name = "tunnels" if inside else "tunnels_off"
    case = new(name, "GRE, VXLAN and GTP-U: the inner packets are timed" if inside else
               "the same, without the order to look inside: nothing to time", tunnels=inside)
    inner_ether = lambda p, side: Ether(src=MACS[side], dst=MACS[1 - side]) / p  # noqa: E731
    gtp = lambda: GTP_U_Header(teid=0x1234, gtp_type=255)  # noqa: E731
    wraps = [
        lambda p, side: GRE() / p,
        lambda p, side: GRE(key_present=1, seqnum_present=1, key=7, sequence_number=side) / p,
        lambda p, side: GRE(chksum_present=1) / p,
        lambda p, side: UDP(sport=55555, dport=4789) / VXLAN(vni=9, flags=8) / inner_ether(p, side),
        lambda p, side: UDP(sport=2152, dport=2152) / gtp() / p,
        lambda p, side: UDP(sport=2152, dport=2152)
        / GTPHeader(S=1, gtp_type=255, teid=5, seq=1 + side, length=4 + len(p)) / p,
    ]
    outer = [("10.9.0.1", "10.9.0.2"), ("fd00:9::1", "fd00:9::2")]
    ms = 0
    for wrap in wraps:
        for near, far in outer:
            for a, b in ((A, B), (A6, B6)):
                def frame(packet, side, wrap=wrap, near=near, far=far):
                    ends = (near, far) if side == 0 else (far, near)
                    return link(side) / ip(*ends) / wrap(packet, side)
                one = echo(case, ms, a, b, 5, ms, wrap=frame)
                two = echo(case, ms + 10, b, a, 5, ms, True, wrap=frame)
                if inside:
                    case.sample("icmp_echo", one, two)
                ms += 100
    return case


def noise(new):
    case = new("noise", "what can be no flow: empty and cut frames, ARP, UDP of no known kind, "
               "ICMP errors about others' packets")
    from scapy.layers.l2 import ARP

    request = link() / IP(src=A, dst=B) / ICMP(id=5, seq=1) / Raw(b"sonde")
    whole = bytes(request)
    for n, cut in enumerate((14, 17, 20, 33, 34, 37, 41)):
        case.put(n, whole[:cut])
    case.put(10, pad(link() / ARP(psrc=A, pdst=B)))
    udp(case, 11, (A, 40000), (B, 9999), b"hello")
    case.put(12, pad(link(1) / IP(src=B, dst=A) / ICMP(type=3, code=1) / Raw(whole[14:42])))
    case.put(13, b"\x02" * 14)
    return case


CASES = [
    echoes, dns, quic, quic_spin, sctp, fragments, wrapped, tunnels,
    lambda new: tunnels(new, False), noise,
]
