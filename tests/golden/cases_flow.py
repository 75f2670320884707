"""What a flow meter meets: transports, extension headers, fragments, everything that is
wrapped around IP, and frames that are cut short or not what they seem."""

import struct

from packets import MACS, link, pad
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.gtp import GTP_U_Header, GTPHeader, GTPPDUSessionContainer
from scapy.contrib.igmp import IGMP
from scapy.contrib.mpls import MPLS, EoMCW
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP, IPOption_Timestamp
from scapy.layers.inet6 import (
    HBHOptUnknown,
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Jumbo,
    MIP6MH_BRR,
    MIP6MH_BU,
    RouterAlert,
)
from scapy.layers.ipsec import AH, ESP
from scapy.layers.l2 import ARP, GRE, LLC, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.sctp import SCTP, SCTPChunkInit
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from features import COOKED, COOKED2, RAW

A, B = "192.0.2.1", "198.51.100.2"
A6, B6 = "2001:db8::1", "2001:db8:2::2"
TUNNEL, TUNNEL6 = ("203.0.113.1", "203.0.113.2"), ("2001:db8:aa::1", "2001:db8:bb::2")


def v4(**fields):
    return IP(src=A, dst=B, **fields)


def v6(**fields):
    return IPv6(src=A6, dst=B6, **fields)


def outer(**fields):
    return IP(src=TUNNEL[0], dst=TUNNEL[1], ttl=250, tos=0x20, **fields)


def outer6(**fields):
    return IPv6(src=TUNNEL6[0], dst=TUNNEL6[1], hlim=251, tc=0x40, **fields)


def tcp(flags="PA", **fields):
    return TCP(sport=40000, dport=443, flags=flags, seq=0xFEDCBA98, ack=7, window=501, **fields)


def udp(data=b"sonde flow meter", dport=5000):
    return UDP(sport=40001, dport=dport) / Raw(data)


def ah(nh):
    """An authentication header of 24 octets (RFC 4302)."""
    return AH(nh=nh, payloadlen=4, spi=0x1234, seq=1, icv=b"\xab" * 12)


def plain(new):
    case = new("plain", "TCP and UDP over IPv4 and IPv6: options, all flags, padding, no data")
    for ip in (v4(tos=0xB8, ttl=3), v6(tc=0xB9, hlim=7, fl=0xABCDE)):
        case.put(link() / ip / tcp() / Raw(b"data"))
        options = [
            ("MSS", 1460),
            ("SAckOK", b""),
            ("Timestamp", (1, 0)),
            ("NOP", None),
            ("WScale", 7),
        ]
        case.put(link() / ip / tcp("S", options=options))
        case.put(link() / ip / tcp(flags="FSRPAUEC", reserved=7) / Raw(b"x" * 100))
        case.put(link() / ip / tcp("R", options=[("NOP", None)] * 40))
        case.put(link() / ip / udp())
        case.put(link() / ip / udp(b""))
    # Ethernet pads what is too short: never a part of IP.
    for packet in (v4() / tcp("A"), v4() / udp(b""), v4() / udp(b"123")):
        frame = link() / packet
        case.put(frame, tail=bytes(60 - len(bytes(frame))))
    case.put(link() / v4() / tcp("A"), tail=b"\xff" * 300)
    case.put(link() / v6() / udp(b"12345"), tail=bytes(4))
    # The UDP length is not looked at; nor are checksums.
    case.put(link() / v4() / UDP(sport=1, dport=2, len=0, chksum=7) / Raw(b"offload"))
    case.put(link() / v4(options=[IPOption_NOP()] * 4) / tcp() / Raw(b"data"))
    case.put(link() / v4(options=[IPOption_Timestamp(length=36, timestamp=1)]) / udp())
    return case


def transports(new):
    case = new("transports", "ICMP, SCTP, UDP-Lite and DCCP; protocols without ports")
    for kind, code in ((8, 0), (0, 0), (3, 4), (11, 0)):
        case.put(link() / v4() / ICMP(type=kind, code=code) / Raw(b"sonde"))
    case.put(link() / v6() / ICMPv6EchoRequest(id=7, seq=9, data=b"sonde"))
    case.put(link() / v6(hlim=255) / ICMPv6ND_NS(tgt=B6))
    chunk = SCTPChunkInit(init_tag=1)
    case.put(link() / v4() / SCTP(sport=36412, dport=36413, tag=0) / chunk)
    case.put(link() / v6() / SCTP(sport=36412, dport=36413, tag=0) / chunk)
    lite = struct.pack("!HHHH", 1111, 2222, 8, 0) + b"lite"
    case.put(link() / v4(proto=136) / Raw(lite), header=(1111, 2222, 8))
    # A DCCP request (RFC 4340): data offset 5 words, long sequence numbers.
    dccp = struct.pack("!HHBBHBBHI", 3333, 4444, 5, 0, 0, 1, 0, 0, 42) + bytes(4) + b"dccp"
    case.put(link() / v4(proto=33) / Raw(dccp), header=(3333, 4444, 20))
    igmp = IGMP(type=0x16, gaddr="233.252.0.1")
    case.put(link() / IP(src=A, dst="233.252.0.1", ttl=1) / igmp)
    for protocol in (46, 88, 89, 103, 112, 255):
        case.put(link() / v4(proto=protocol) / Raw(b"\x01\x02" * 12), header=(0, 0, 0))
    case.put(link() / v4() / ESP(spi=0xAB, seq=1, data=b"\x5a" * 40))
    case.put(link() / v6() / ESP(spi=0xAB, seq=1, data=b"\x5a" * 40))
    return case


def extensions(new):
    case = new(
        "extensions", "extension headers of IPv6, AH and mobility header among them; AH in IPv4"
    )
    alert = IPv6ExtHdrHopByHop(options=[RouterAlert()])
    case.put(link() / v6() / alert / tcp())
    case.put(
        link()
        / v6()
        / IPv6ExtHdrDestOpt(options=[HBHOptUnknown(otype=30, optdata=b"x" * 20)])
        / udp()
    )
    case.put(link() / v6() / IPv6ExtHdrRouting(addresses=["2001:db8::9", B6], segleft=1) / tcp())
    case.put(
        link()
        / v6()
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrDestOpt()
        / IPv6ExtHdrRouting(addresses=[B6])
        / IPv6ExtHdrDestOpt()
        / tcp()
        / Raw(b"data")
    )
    case.put(link() / v6() / ah(6) / tcp() / Raw(b"data"))
    case.put(link() / v6() / IPv6ExtHdrHopByHop() / ah(60) / IPv6ExtHdrDestOpt() / udp())
    # Open Shortest Path First, as it is often authenticated.
    case.put(link() / v6(hlim=1) / ah(89) / Raw(b"\x03\x01" * 18), header=(0, 0, 0))
    # The mobility header's payload protocol is no next header at all (RFC 6275).
    case.put(link() / v6() / MIP6MH_BRR())
    case.put(link() / v6() / IPv6ExtHdrDestOpt() / MIP6MH_BU(seq=1, mhtime=4))
    case.put(link() / v6(nh=59))
    case.put(link() / v6(nh=59) / Raw(b"ignored"), header=(0, 0, 0))
    # A whole packet that carries a fragment header none the less (RFC 6946).
    case.put(link() / v6() / IPv6ExtHdrFragment(id=99) / tcp() / Raw(b"data"))
    case.put(link() / v4() / ah(6) / tcp() / Raw(b"data"))
    case.put(link() / v4() / ah(17) / udp())
    case.put(link() / v4(options=[IPOption_NOP()] * 4) / ah(1) / ICMP())
    case.put(link() / v4() / ah(50) / Raw(b"\x5a" * 40), header=(0, 0, 0))
    return case


def fragments(new):
    case = new("fragments", "first and later fragments: only the first has ports")
    body = bytes(udp(b"u" * 100))
    for more, at, octets in ((1, 0, body[:48]), (1, 6, body[48:96]), (0, 12, body[96:])):
        ports = (40001, 5000, 8) if at == 0 else None
        case.put(link() / v4(id=0x4D2, flags=more, frag=at, proto=17) / Raw(octets), header=ports)
        header = IPv6ExtHdrFragment(nh=17, id=0xDEADBEEF, m=more, offset=at)
        case.put(link() / v6() / header / Raw(octets), header=ports)
    # A first fragment that has all of TCP's header, and options before it.
    case.put(link() / v4(id=5, flags="MF", options=[IPOption_NOP()] * 4) / tcp() / Raw(b"x" * 12))
    case.put(
        link()
        / v6()
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrFragment(id=6, m=1)
        / tcp()
        / Raw(b"x" * 12)
    )
    # Behind the fragment header of the first stands another extension header.
    case.put(
        link()
        / v6()
        / IPv6ExtHdrFragment(id=7, m=1)
        / IPv6ExtHdrDestOpt()
        / UDP(sport=1, dport=2, len=900)
    )
    case.put(link() / v6() / IPv6ExtHdrFragment(nh=60, id=7, offset=8) / Raw(bytes(16)))
    # Too small a first fragment for TCP's header (RFC 1858).
    tiny = bytes(tcp())[:8]
    case.put(
        link() / v4(id=8, flags="MF", proto=6) / Raw(tiny),
        header=(40000, 443, 0),
        no_transport=True,
        transport=0,
    )
    # In a tunnel that is fragmented nothing is looked for.
    inside = bytes(v4() / tcp())
    case.put(link() / outer(id=9, flags="MF", proto=4) / Raw(inside), header=(0, 0, 0))
    return case


def links(new):
    case = new("links", "VLAN tags, one and two, and PPPoE")
    for ip in (v4(), v6()):
        for upper in (
            tcp() / Raw(b"data"),
            udp(),
            ICMP() if isinstance(ip, IP) else ICMPv6EchoRequest(),
        ):
            case.put(link() / Dot1Q(vlan=5) / ip / upper)
            case.put(link() / Dot1Q(vlan=0, prio=6) / ip / upper)
            case.put(link() / Dot1Q(vlan=4095, prio=7) / ip / upper)
            case.put(link() / Dot1AD(vlan=100) / Dot1Q(vlan=7) / ip / upper)
            case.put(link() / Dot1Q(vlan=100) / Dot1Q(vlan=7) / ip / upper)
            case.put(Ether(src=MACS[0], dst=MACS[1], type=0x9100) / Dot1Q(vlan=9) / ip / upper)
            ppp = PPP(proto=0x21 if isinstance(ip, IP) else 0x57)
            case.put(link() / PPPoE(sessionid=3) / ppp / ip / upper)
            case.put(link() / Dot1Q(vlan=8) / PPPoE(sessionid=3) / ppp / ip / upper)
    frame = link() / Dot1Q(vlan=5) / v4() / tcp("A")
    case.put(frame, tail=bytes(64 - len(bytes(frame))))
    return case


def labels(new):
    case = new("mpls", "MPLS: stacks, and Ethernet pseudowires with and without control word")
    one, two = MPLS(label=16, s=1, ttl=64), MPLS(label=1000, s=0, ttl=9) / MPLS(label=0xFFFFF, s=1)
    for stack in (one, two):
        case.put(link() / stack / v4() / tcp() / Raw(b"data"))
        case.put(link() / stack / v6() / udp())
        case.put(link() / Dot1Q(vlan=12) / stack / v4() / udp())
    case.put(Ether(src=MACS[0], dst=MACS[1], type=0x8848) / one / v4() / udp())
    for word in (EoMCW(seq=0), EoMCW(seq=77)):
        case.put(link() / two / word / link() / v4() / tcp())
        case.put(link() / one / word / link() / Dot1Q(vlan=44) / v6() / udp())
        case.put(link() / Dot1Q(vlan=3) / one / word / link() / Dot1Q(vlan=44) / v4() / udp())
    # Without it the first octet of the address looks like anything.
    for first in ("02", "12", "4a", "6a", "fa"):
        inside = Ether(dst=first + ":00:5e:00:53:01", src=MACS[0])
        case.put(link() / one / inside / v4() / tcp())
        case.put(link() / one / inside / Dot1Q(vlan=6) / v6() / udp())
    return case


def gre(new):
    case = new("gre", "GRE with all its fields, around IP, Ethernet and MPLS")
    for ip in (outer(), outer6()):
        for head in (
            GRE(),
            GRE(key_present=1, key=7),
            GRE(chksum_present=1, key_present=1, seqnum_present=1),
        ):
            inside = v4() / tcp() / Raw(b"data")
            case.put(link() / ip / head / inside, inner=inside)
            inside = v6() / udp()
            case.put(link() / ip / head / inside, inner=inside)
        inside = v4() / ICMP()
        case.put(link() / ip / GRE(proto=0x6558, key_present=1) / link() / inside, inner=inside)
        inside = v6() / tcp()
        case.put(link() / ip / GRE(proto=0x6558) / link() / Dot1Q(vlan=9) / inside, inner=inside)
    inside = v4() / udp()
    case.put(link() / Dot1Q(vlan=77) / outer() / GRE() / inside, inner=inside)
    frame = link() / outer() / GRE(proto=0x8847) / MPLS(label=5, s=1) / inside
    case.put(frame, inner=inside)
    # What is no IP inside counts as GRE.
    case.put(link() / outer() / GRE(proto=0x0806) / ARP(), header=(0, 0, 0))
    case.put(
        link() / outer() / GRE(version=1, proto=0x880B, key_present=1) / Raw(bytes(20)),
        header=(0, 0, 0),
    )
    return case


def ipip(new):
    case = new("ipip", "IP in IP; of several levels the first tunnel is looked into")
    for ip in (outer(), outer6()):
        for inside in (
            v4(tos=4) / tcp() / Raw(b"data"),
            v6(tc=8) / udp(),
            v4(flags="MF", id=3) / udp(),
        ):
            case.put(link() / ip / inside, inner=inside)
    inside = v4() / udp()
    middle = IP(src="10.0.0.1", dst="10.0.0.2") / inside
    case.put(link() / outer() / middle, inner=middle)
    middle = IP(src="10.0.0.1", dst="10.0.0.2") / GRE() / inside
    case.put(link() / outer() / middle, inner=middle)
    case.put(link() / outer() / ah(4) / inside, inner=inside)
    case.put(link() / outer6() / IPv6ExtHdrDestOpt() / inside, inner=inside)
    return case


def vxlan(new):
    case = new("vxlan", "VXLAN; and other datagrams to its port")
    for ip in (outer(), outer6()):
        for inside in (v4() / tcp() / Raw(b"data"), v6() / udp(), v4() / ICMP()):
            head = UDP(sport=50000, dport=4789) / VXLAN(vni=0x123456, flags=8)
            case.put(link() / ip / head / link() / inside, inner=inside)
            case.put(
                link() / Dot1Q(vlan=30) / ip / head / link() / Dot1Q(vlan=31) / inside, inner=inside
            )
    # No identifier flag; ARP; a DNS answer from that port.
    case.put(
        link()
        / outer()
        / UDP(sport=50000, dport=4789)
        / Raw(bytes(8) + bytes(link() / v4() / tcp()))
    )
    case.put(
        link() / outer() / UDP(sport=50000, dport=4789) / VXLAN(vni=1, flags=8) / link() / ARP()
    )
    case.put(link() / outer() / UDP(sport=4789, dport=50000) / Raw(b"answer"))
    case.put(link() / outer() / UDP(sport=50000, dport=4789) / Raw(b""))
    return case


def gtpu(new):
    case = new(
        "gtpu", "GTP-U: user packets, with sequence number and extension headers; signalling"
    )
    for ip in (outer(), outer6()):
        for inside in (v4() / tcp() / Raw(b"data"), v6() / udp()):
            port = UDP(sport=2152, dport=2152)
            case.put(link() / ip / port / GTP_U_Header(teid=7, gtp_type=255) / inside, inner=inside)
            case.put(
                link() / ip / port / GTP_U_Header(teid=7, gtp_type=255, S=1, seq=9) / inside,
                inner=inside,
            )
            session = GTPPDUSessionContainer(type=0, QFI=5)
            head = GTP_U_Header(teid=7, gtp_type=255, E=1, next_ex=0x85) / session
            case.put(link() / ip / port / head / inside, inner=inside)
    # An echo request, and another version.
    echo = bytes(GTPHeader(teid=0, gtp_type=1, S=1, seq=1))
    case.put(link() / outer() / UDP(sport=2152, dport=2152) / Raw(echo))
    case.put(link() / outer() / UDP(sport=2152, dport=2152) / Raw(b"\x48" + echo[1:]))
    return case


def geneve(new):
    case = new("geneve", "GENEVE (RFC 8926): Ethernet or IP inside, options; control packets")
    option = GeneveOptions(classid=0x0102, type=0x80, data=b"\x09" * 8)
    for ip in (outer(), outer6()):
        for inside in (v4() / tcp() / Raw(b"data"), v6() / udp()):
            port = UDP(sport=50001, dport=6081)
            case.put(
                link() / ip / port / GENEVE(vni=5, proto=0x6558) / link() / inside, inner=inside
            )
            head = GENEVE(vni=5, proto=0x6558, critical=1, options=[option, option])
            case.put(link() / ip / port / head / link() / Dot1Q(vlan=4) / inside, inner=inside)
            kind = 0x0800 if isinstance(inside, IP) else 0x86DD
            case.put(
                link() / ip / port / GENEVE(vni=6, proto=kind, options=[option]) / inside,
                inner=inside,
            )
    port = UDP(sport=50001, dport=6081)
    control = bytes(GENEVE(vni=5, proto=0x6558, oam=1)) + bytes(link() / v4() / udp())
    case.put(link() / outer() / port / Raw(control))
    case.put(link() / outer() / port / Raw(b"\x40" + bytes(20)))
    case.put(link() / outer() / port / GENEVE(vni=5, proto=0x6558) / link() / ARP())
    return case


def other_link(name, why, number, header):
    def make(new):
        case = new(name, why, number)
        for kind, ip in ((0x0800, v4()), (0x86DD, v6())):
            for packet in (ip / tcp() / Raw(b"data"), ip / udp()):
                case.put(header(kind) / packet if header(kind) else packet)
        inside = v4() / udp()
        tunnel = outer() / GRE() / inside
        frame = header(0x0800) / tunnel if header(0x0800) else tunnel
        case.put(frame, inner=inside)
        if header(0x0800):
            case.put(header(0x8100) / Dot1Q(vlan=17) / v4() / tcp())
        return case

    return make


def cut(new):
    case = new(
        "cut", "what a capture cut short still counts, with the length that its header states"
    )
    for ip, start in ((v4(), 34), (v6(), 54)):
        frame = link() / ip / tcp(options=[("NOP", None)] * 8) / Raw(b"x" * 500)
        case.put(frame, snap=start + 28)
        case.put(frame, snap=start + 24, payload=start + 24)
        case.put(frame, snap=start + 20, payload=start + 20)
        gone = dict(
            sequence=0,
            tcp_flags=0,
            window=0,
            no_transport=True,
            transport=0,
            headers=(start - 14) // 4,
            payload=start,
        )
        case.put(frame, snap=start + 19, **gone)
        case.put(frame, snap=start + 4, **gone)
        case.put(frame, snap=start + 3, **gone, source_port=0, destination_port=0)
        case.put(frame, snap=start, **gone, source_port=0, destination_port=0)
        case.refuse(frame, "truncated", snap=start - 1)
    # IPv4 options that were cut off, and an extension header.
    nowhere = dict(
        source_port=0,
        destination_port=0,
        sequence=0,
        tcp_flags=0,
        window=0,
        no_transport=True,
        transport=0,
    )
    frame = link() / v4(options=[IPOption_NOP()] * 8) / tcp()
    case.put(frame, snap=36, **nowhere, headers=7, payload=36)
    frame = (
        link()
        / v6()
        / IPv6ExtHdrDestOpt(options=[HBHOptUnknown(otype=30, optdata=b"x" * 20)])
        / tcp()
    )
    case.put(frame, snap=60, **nowhere, protocol=60, headers=10, payload=54)
    frame = link() / v4() / ah(6) / tcp()
    case.put(frame, snap=50, **nowhere, protocol=51, headers=5, payload=34)
    # Behind labels, where the length helps to tell what follows.
    frame = link() / MPLS(label=16, s=1, ttl=64) / v4() / tcp() / Raw(b"x" * 200)
    case.put(frame, snap=70)
    # Of a tunnel the header inside is cut off: the outer packet counts.
    frame = link() / outer() / GRE() / v4() / tcp() / Raw(b"x" * 200)
    case.put(frame, snap=54, header=(0, 0, 0))
    inside = v4() / tcp() / Raw(b"x" * 200)
    frame = link() / outer() / GRE() / inside
    case.put(frame, inner=inside, snap=58, **nowhere, headers=5, payload=58)
    return case


def malformed(new):
    case = new("malformed", "transports that contradict themselves, lengths that are not stated")
    nothing = dict(sequence=0, tcp_flags=0, window=0, no_transport=True, transport=0)
    for offset in (0, 4, 15):
        case.put(
            link() / v4() / tcp(dataofs=offset) / Raw(b"x" * 8), **nothing, headers=5, payload=34
        )
    # By the IP header there is half of TCP's: the rest is padding.
    packet = v4(len=30) / tcp()
    case.put(link() / packet, **nothing, ip_len=30, headers=5, payload=34, end=44)
    none = dict(source_port=0, destination_port=0)
    case.put(link() / v4(len=22) / tcp(), **nothing, **none, headers=5, payload=34, end=36)
    # Segmentation offload leaves a total length of 0: what came is what counts.
    case.put(link() / v4(len=0) / tcp() / Raw(b"x" * 1000), ip_len=1040, end=1054, payload=54)
    frame = link() / v4(len=0) / tcp() / Raw(b"x" * 70000)
    case.put(frame, snap=100, ip_len=70040, end=100, payload=54)
    # A jumbogram (RFC 2675).
    jumbo = IPv6ExtHdrHopByHop(options=[Jumbo(jumboplen=70028)])
    frame = link() / v6(plen=0) / jumbo / tcp() / Raw(b"x" * 70000)
    case.put(frame, snap=120, ip_len=70068, end=120, payload=82)
    frame = link() / v6(plen=0) / tcp() / Raw(b"x" * 70000)
    case.put(frame, snap=120, ip_len=70060, end=120, payload=74)
    # A tunnel whose packet is longer than itself is none.
    inside = v4(len=200) / tcp()
    case.put(link() / outer() / GRE() / inside, header=(0, 0, 0))
    return case


def refused(new):
    case = new("refused", "frames that are no IP packets")
    case.refuse(pad(link() / ARP()), "not_ip")
    case.refuse(pad(Dot3(src=MACS[0], dst=MACS[1]) / LLC() / Raw(bytes(20))), "not_ip")
    case.refuse(link() / PPPoE(sessionid=1) / PPP(proto=0xC021) / Raw(bytes(20)), "not_ip")
    case.refuse(Ether(src=MACS[0], dst=MACS[1], type=0x8863) / Raw(bytes(40)), "not_ip")
    case.refuse(link() / MPLS(label=1, s=1) / Raw(b"\x10" + bytes(40)), "not_ip")
    tags = Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / Dot1Q(vlan=4) / Dot1Q(vlan=5)
    case.refuse(link() / tags / v4() / udp(), "vlan_depth")
    case.refuse(link() / MPLS(label=1, s=0) / MPLS(label=1, s=0), "truncated")
    case.refuse(
        Ether(src=MACS[0], dst=MACS[1], type=0x0800) / Raw(bytes(v6() / udp())), "bad_version"
    )
    case.refuse(
        Ether(src=MACS[0], dst=MACS[1], type=0x86DD) / Raw(bytes(v4() / tcp() / Raw(b"x" * 30))),
        "bad_version",
    )
    case.refuse(link() / v4(ihl=4) / udp(), "bad_length")
    case.refuse(link() / v4(ihl=5, len=19) / udp(), "bad_length")
    case.refuse(link(), "truncated", snap=13)
    case.refuse(link() / v4() / udp(), "truncated", snap=20)
    return case


CASES = (
    plain,
    transports,
    extensions,
    fragments,
    links,
    labels,
    gre,
    ipip,
    vxlan,
    gtpu,
    geneve,
    other_link("cooked", "Linux cooked capture", COOKED, lambda kind: CookedLinux(proto=kind)),
    other_link(
        "cooked2",
        "Linux cooked capture, version 2",
        COOKED2,
        lambda kind: CookedLinuxV2(proto=kind),
    ),
    other_link("raw", "IP without a link layer", RAW, lambda kind: None),
    cut,
    malformed,
    refused,
)
