"""scapy makes STAMP requests, `sonde reflect` answers, scapy reads the replies.

Each octet of a reply is held against what RFC 8762 (section 4.3) and RFC 8972 (section 4)
make of the request. scapy knows the base packet and the TLV container.
"""

import fractions
import socket
import struct

from scapy.contrib.stamp import (
    ErrorEstimate,
    STAMPSessionReflectorTestUnauthenticated,
    STAMPSessionSenderTestUnauthenticated,
    STAMPTestTLV,
)

from harness import equal, exchange, expect, in_order, ntp_now, sonde_counters, sonde_reflect
from harness import udp_socket

U, M = 0x80, 0x40
TOS = 46 << 2 | 2
TTL = 77
SSID = 0xBEEF
SOFTWARE, LOCAL = 2, 5


def request(seq, tlvs, tail=b""):
    """A request stamped now; `tlvs` are (type, value), with the U flag as a sender sets it."""
    now = ntp_now()
    packet = STAMPSessionSenderTestUnauthenticated(
        seq=seq,
        err_estimate=ErrorEstimate(S=1, Z=0, scale=9, multiplier=77),
        ssid=SSID,
        tlv_objects=[STAMPTestTLV(flags=U, type=t, len=len(v), value=v) for t, v in tlvs],
    )
    packet.ts = fractions.Fraction(now, 2**32)
    octets = bytes(packet) + tail
    equal("scapy's timestamp", octets[4:12], struct.pack("!Q", now))
    return octets


def raw(timestamp):
    """A timestamp as scapy gives it, back as 64 bits."""
    return round(fractions.Fraction(str(timestamp)) * 2**32)


def check_base(sent, reply, number, seq, arrived):
    """The base packet of a reply; what scapy parsed of it."""
    equal("the reply's length", len(reply.payload), len(sent))
    parsed = STAMPSessionReflectorTestUnauthenticated(reply.payload)
    equal("the sequence number", parsed.seq, number)
    equal("the SSID", parsed.ssid, SSID)
    equal("the sender's sequence number", parsed.seq_sender, seq)
    equal("the sender's timestamp", reply.payload[28:36], sent[4:12])
    equal("the sender's error estimate", reply.payload[36:38], sent[12:14])
    equal("the sender's TTL", parsed.ttl_sender, TTL)
    equal("the zeros behind the error estimate", parsed.mbz1, 0)
    equal("the zeros behind the TTL", parsed.mbz2, 0)
    expect(parsed.err_estimate.multiplier != 0, "an error estimate with a multiplier of 0")
    equal("the reply's timestamp format", parsed.err_estimate.Z, 0)
    t1 = struct.unpack("!Q", sent[4:12])[0]
    names = ("the request came before it left (T2 < T1)", "the reply left before the request came"
             " (T3 < T2)", "the reply came before it left (T4 < T3)")
    in_order(names, t1, raw(parsed.ts_rx), raw(parsed.ts), arrived)
    equal("the TTL the reply left with", reply.ttl, 255)
    return parsed


def tlvs_of(parsed):
    """(flags, type, value) of each; scapy keeps what is too short for a TLV as something else."""
    whole = (tlv for tlv in parsed.tlv_objects if isinstance(tlv, STAMPTestTLV))
    return [(int(tlv.flags), tlv.type, tlv.value) for tlv in whole]


class Session:
    """One sender against one reflector."""

    def __init__(self, host, family, port, stateful):
        self.family = family
        self.sock = udp_socket(family, host.near[family], TOS, TTL)
        self.near = host.near[family], self.sock.getsockname()[1]
        self.to = host.addresses[family], port
        self.stateful = stateful
        self.sent = 0

    def ask(self, tlvs=(), tail=b"", tos=TOS):
        """Sends one request; the reply's TLVs as (flags, type, value), and its octets."""
        # Not from 0, so that a copied number is told from a counted one.
        seq = 1_000_000 + 3 * self.sent
        sent = request(seq, tlvs, tail)
        reply = exchange(self.sock, self.to, sent)
        arrived = ntp_now()
        number = self.sent if self.stateful else seq
        self.sent += 1
        parsed = check_base(sent, reply, number, seq, arrived)
        # Only the DSCP goes back as it came; ECN is the network's (RFC 3168).
        equal("the reply's DSCP", reply.tos >> 2, tos >> 2)
        return tlvs_of(parsed), reply.payload


def base(s):
    for _ in range(3):
        tlvs, _ = s.ask()
        equal("the TLVs", tlvs, [])


def padding(s):
    value = bytes(range(256)) * 4
    equal("the TLVs", s.ask([(1, value)])[0], [(0, 1, value)])
    equal("the TLVs", s.ask([(1, b"")])[0], [(0, 1, b"")])


def location(s):
    questions = b"".join(
        struct.pack("!BBH", U, kind, length) + bytes(length) for kind, length in ((4, 16), (7, 16))
    )
    [(flags, kind, value)], _ = s.ask([(2, bytes(4) + questions)])
    equal("flags and type", (flags, kind), (0, 2))
    equal("the ports", struct.unpack("!HH", value[:4]), (s.to[1], s.near[1]))
    family, answer = (socket.AF_INET, 1) if s.family == 4 else (socket.AF_INET6, 2)
    for offset, question, (address, _) in ((4, 4, s.to), (24, 7, s.near)):
        equal("a sub-TLV", struct.unpack("!BBH", value[offset:offset + 4]),
              (0, question + answer, 16))
        wanted = socket.inet_pton(family, address).ljust(16, b"\0")
        equal("an address", value[offset + 4:offset + 20], wanted)


def timestamp_information(s):
    [(flags, kind, value)], _ = s.ask([(3, bytes(4))])
    equal("flags and type", (flags, kind), (0, 3))
    sync_in, method_in, sync_out, method_out = value
    equal("the two synchronisation sources", sync_in, sync_out)
    expect(sync_in in (0, LOCAL), f"synchronisation source {sync_in}, which nobody can know")
    equal("how T2 and T3 were taken", (method_in, method_out), (SOFTWARE, SOFTWARE))


def class_of_service(s):
    # DSCP1 is AF11; DSCP2 and ECN are what the request arrived with.
    [answer], _ = s.ask([(4, struct.pack("!HH", 10 << 10, 0))], tos=10 << 2)
    equal("the answer", answer, (0, 4, struct.pack("!HH", 10 << 10 | TOS >> 2 << 4 | 2 << 2, 0)))


def direct_measurement(s):
    [answer], _ = s.ask([(5, struct.pack("!III", 4711, 0, 0))])
    if s.stateful:
        equal("the answer", answer, (0, 5, struct.pack("!III", 4711, s.sent, s.sent)))
    else:
        equal("the answer", answer, (U, 5, struct.pack("!III", 4711, 0, 0)))


def follow_up(s):
    s.ask([(7, bytes(16))])
    _, before = s.ask([(7, bytes(16))])
    [(flags, kind, value)], _ = s.ask([(7, bytes(16))])
    equal("flags and type", (flags, kind), (0, 7))
    number, sent_at, method = struct.unpack("!IQB", value[:13])
    equal("the reserved octets", value[13:], bytes(3))
    if not s.stateful:
        equal("the answer", value, bytes(16))
        return
    equal("the previous reply's number", number, struct.unpack("!I", before[:4])[0])
    equal("how its departure was taken", method, SOFTWARE)
    said = struct.unpack("!Q", before[4:12])[0]
    in_order(("the reply left before it said (follow-up < T3)", "it left in the future"),
             said, sent_at, ntp_now())


def several(s):
    """All of them in one packet keep their order; the sizes do not change."""
    asked = [(3, bytes(4)), (1, b"pad"), (4, struct.pack("!HH", 46 << 10, 0)), (200, b"what"),
             (7, bytes(16)), (1, bytes(500))]
    got, _ = s.ask(asked)
    equal("the types", [kind for _, kind, _ in got], [kind for kind, _ in asked])
    equal("the flags", [flags for flags, _, _ in got], [0, 0, 0, U, 0, 0])
    equal("the unknown one", got[3][2], b"what")


def unknown(s):
    for kind in (0, 6, 8, 9, 12, 100, 255):
        value = bytes(16) if kind == 8 else b"\x01\x02\x03"
        [answer], _ = s.ask([(kind, value)])
        equal(f"the answer to type {kind}", answer, (U, kind, value))


def wrong_length(s):
    """A length that is wrong for its type, or goes beyond the end: M, and nothing after it."""
    tlvs, _ = s.ask([(4, b"\x28\0\0"), (3, bytes(4))])
    equal("a Class of Service of 3 octets", tlvs[0], (M, 4, b"\x28\0\0"))
    equal("the TLV behind it", tlvs[1], (U, 3, bytes(4)))
    for tail in (b"\x80\x01\xff\xff" + bytes(4), b"\x80\x01\x00\x05" + bytes(4)):
        _, payload = s.ask([(1, b"ok")], tail)
        equal("the TLVs", payload[44:], b"\0\1\0\2ok" + bytes([M]) + tail[1:])


def truncated(s):
    """One to three octets behind the last TLV are none; they go back as they came."""
    for tail in (b"\x80", b"\x80\x01", b"\x80\x01\x00"):
        _, payload = s.ask([(1, b"ok")], tail)
        equal("the first TLV", payload[44:50], b"\0\1\0\2ok")
        expect(payload[50:] in (tail, bytes([M]) + tail[1:]), f"the tail is {payload[50:].hex()}")


CASES = (base, padding, location, timestamp_information, class_of_service, direct_measurement,
         follow_up, several, unknown, wrong_length, truncated)


def run(host, results):
    for family in (4, 6):
        for stateful in (True, False):
            kind = "stateful" if stateful else "stateless"
            name = f"scapy -> sonde reflect, IPv{family}, {kind}"
            options = [] if stateful else ["--stateless"]
            with results.guard(name), sonde_reflect(host, *options) as (port, program):
                asked = 0
                for case in CASES:
                    with results.case(f"{name}: {case.__name__}"):
                        session = Session(host, family, port, stateful)
                        with session.sock:
                            case(session)
                        asked += session.sent
                with results.case(f"{name}: all counted"):
                    equal("the reflector's count", sonde_counters(program)["reflected"], asked)
