"""Packets and expectations for the golden captures: what a case is made of.

Scapy writes the packets. An expectation names the packet that was timed and the packet
that answered it, by their numbers: nothing here matches anything.
"""

import dataclasses
import json
import struct

from scapy.contrib.mpls import MPLS  # noqa: F401: for make_rtt.py
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, ICMPv6EchoReply, ICMPv6EchoRequest
from scapy.layers.l2 import Ether
from scapy.packet import Raw

BASE_NS = 1_700_000_000_000_000_000
# The instrument counts in steps of 64 ns; the packets' times are such steps, so that
# what is expected is exact.
TICKS_PER_MS = 15_625
TICK_NS = 64
LINKTYPE_ETHERNET = 1
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


@dataclasses.dataclass(frozen=True)
class Flow:
    """Who talks to whom, as the innermost headers say it."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    protocol: int
    vlan: int = 0


class Case:
    """A capture, and what an instrument must make of it."""

    def __init__(self, name, why, tunnels=False, snap=65535):
        self.name, self.why, self.tunnels, self.snap = name, why, tunnels, snap
        self.packets = []  # (ns, frame, flow)
        self.samples, self.flows, self.counters = [], [], {}

    def put(self, ms, frame, flow=None):
        """Adds a packet at `ms` milliseconds; returns its number."""
        at = BASE_NS + round(ms * TICKS_PER_MS) * TICK_NS
        assert not self.packets or at >= self.packets[-1][0], f"{self.name}: back in time"
        self.packets.append((at, bytes(frame), flow))
        return len(self.packets) - 1

    def sample(self, kind, timed, answer, klass="clean"):
        """Packet `answer` gives a sample: the time since packet `timed`."""
        flow = self.packets[answer][2]
        self.samples.append(
            {
                "packet": answer,
                "timed": timed,
                "at_ns": self.packets[answer][0],
                "rtt_ns": self.packets[answer][0] - self.packets[timed][0],
                "kind": kind,
                "class": klass,
                **dataclasses.asdict(flow),
            }
        )

    def flow(self, source, source_port, **fields):
        """A flow record, found by its client's address and port, has these fields."""
        self.flows.append({"source": source, "source_port": source_port, **fields})

    def counter(self, **counters):
        """Counters of the whole run that must be exactly so."""
        self.counters.update(counters)

    def pcap(self):
        """The capture: nanoseconds, little-endian."""
        parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, LINKTYPE_ETHERNET)]
        for at, frame, _ in self.packets:
            seconds, nanos = divmod(at, 1_000_000_000)
            kept = frame[: self.snap]
            parts += [struct.pack("<IIII", seconds, nanos, len(kept), len(frame)), kept]
        return b"".join(parts)

    def expected(self):
        """What must come out of it."""
        # In order of the answers; what one packet answers, in the order it was written.
        samples = sorted(self.samples, key=lambda s: s["packet"])
        value = {
            "why": self.why,
            "tunnels": self.tunnels,
            "packets": len(self.packets),
            "counters": self.counters,
            "flows": self.flows,
            "samples": samples,
        }
        # One record a line: changes can be read.
        lines = []
        for name, part in value.items():
            text = json.dumps(part)
            if isinstance(part, list) and part:
                text = "[\n  " + ",\n  ".join(json.dumps(p) for p in part) + "\n ]"
            lines.append(f' "{name}": {text}')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def link(direction=0, upper=None):
    """An Ethernet header; `direction` 1 is back. `upper`: between it and IP."""
    header = Ether(src=MACS[direction], dst=MACS[1 - direction])
    return header if upper is None else header / upper


def ip(source, destination, **fields):
    """An IP header of the addresses' family."""
    if ":" in source:
        return IPv6(src=source, dst=destination, **fields)
    return IP(src=source, dst=destination, **fields)


def pad(frame):
    """The shortest Ethernet frame is 60 bytes long."""
    return bytes(frame).ljust(60, b"\x00")


class Tcp:
    """One connection. Sequence, acknowledgement and echo follow from what was sent, as
    if everything arrived at once, unless they are given."""

    def __init__(self, case, client=("192.0.2.1", 40000), server=("198.51.100.2", 80),
                 timestamps=True, isn=(1000, 5000), clocks=(100_000, 700_000),
                 upper=None, vlan=0):
        self.case, self.ends, self.ts = case, (client, server), timestamps
        self.next, self.clocks, self.echo = list(isn), clocks, [0, 0]
        self.upper, self.vlan = upper, vlan

    def send(self, side, ms, flags="A", size=0, seq=None, ack=None, tsval=None, tsecr=None,
             window=64000, options=None, sack=None, data=None):
        """A segment from the client (side 0) or server (1); returns its number."""
        data = data if data is not None else b"x" * size
        (source, sport), (destination, dport) = self.ends[side], self.ends[1 - side]
        seq = self.next[side] if seq is None else seq
        ack = (self.next[1 - side] if ack is None else ack) if "A" in flags else 0
        tsval = (self.clocks[side] + int(ms)) % 2**32 if tsval is None else tsval
        tsecr = (self.echo[1 - side] if tsecr is None else tsecr) if "A" in flags else tsecr or 0
        if options is None:
            options = [("NOP", None), ("NOP", None), ("Timestamp", (tsval, tsecr))] if self.ts else []
            if sack:
                options += [("NOP", None), ("NOP", None), ("SAck", sack)]
        elif callable(options):
            options = options(tsval, tsecr)
        fields = dict(sport=sport, dport=dport, flags=flags, seq=seq % 2**32, ack=ack % 2**32)
        if isinstance(options, bytes):  # as they are: scapy would put them right
            header = TCP(**fields, window=window, dataofs=5 + len(options) // 4) / Raw(options)
        else:
            header = TCP(**fields, window=window, options=options)
        frame = link(side, self.upper) / ip(source, destination) / header / Raw(data)
        flow = Flow(source, sport, destination, dport, 6, self.vlan)
        end = seq + len(data) + ("S" in flags) + ("F" in flags)
        if (end - self.next[side]) % 2**32 < 2**31:
            self.next[side] = end % 2**32
        self.echo[side] = tsval
        return self.case.put(ms, pad(frame), flow)

    def client(self, ms, *args, **kwargs):
        return self.send(0, ms, *args, **kwargs)

    def server(self, ms, *args, **kwargs):
        return self.send(1, ms, *args, **kwargs)

    def handshake(self, ms, rtt=10, near=0.512, sampled=True):
        """SYN, SYN-ACK after `rtt`, ACK after `near`: two samples."""
        syn = self.client(ms, "S")
        answer = self.server(ms + rtt, "SA")
        ack = self.client(ms + rtt + near)
        if sampled:
            self.case.sample("tcp_handshake_server", syn, answer)
            self.case.sample("tcp_handshake_client", answer, ack)


def udp(case, ms, source, destination, payload, side=0, upper=None, vlan=0):
    """A UDP datagram between (address, port) pairs; returns its number."""
    frame = link(side, upper) / ip(source[0], destination[0])
    frame = frame / UDP(sport=source[1], dport=destination[1]) / Raw(bytes(payload))
    return case.put(ms, pad(frame), Flow(*source, *destination, 17, vlan))


def echo(case, ms, source, destination, ident, seq, reply=False, wrap=None, vlan=0):
    """An ICMP or ICMPv6 echo; `wrap` puts the IP packet into something else."""
    if ":" in source:
        kind = ICMPv6EchoReply if reply else ICMPv6EchoRequest
        message, protocol = kind(id=ident, seq=seq, data=b"sonde"), 58
    else:
        message, protocol = ICMP(type=0 if reply else 8, id=ident, seq=seq) / Raw(b"sonde"), 1
    packet = ip(source, destination) / message
    frame = wrap(packet, int(reply)) if wrap else link(int(reply)) / packet
    return case.put(ms, pad(frame), Flow(source, ident, destination, ident, protocol, vlan))
