"""TCP: RFC 9293, timestamps of RFC 7323, Karn's rule of RFC 6298 section 3."""

import struct

from packets import Tcp, link
from scapy.layers.inet import IP, TCP
from scapy.packet import Raw

CLIENT, SERVER = ("192.0.2.1", 40000), ("198.51.100.2", 80)
CLIENT6, SERVER6 = ("2001:db8::1", 40000), ("2001:db8:2::2", 443)


def timestamps(new):
    case = new("tcp_timestamps", "a whole connection: handshake, request, answer, both FINs")
    tcp = Tcp(case)
    tcp.handshake(0)
    request = tcp.client(20, "PA", 100)
    answer = tcp.server(33, "PA", 500)
    case.sample("tcp_timestamp", request, answer)
    case.sample("tcp_timestamp", answer, tcp.client(33.25))
    last = tcp.client(40, "FA")
    closing = tcp.server(50.5, "FA")
    case.sample("tcp_timestamp", last, closing)
    case.sample("tcp_timestamp", closing, tcp.client(51))
    case.flow(*CLIENT, reason="fin", handshake_server_ns=10_000_000, handshake_client_ns=512_000,
              responses=1, response_sum_ns=13_000_000, response_max_ns=13_000_000)
    return case


def timestamps_v6(new):
    case = new("tcp_timestamps_v6", "the same over IPv6")
    tcp = Tcp(case, CLIENT6, SERVER6)
    tcp.handshake(0)
    request = tcp.client(20, "PA", 100)
    answer = tcp.server(33, "PA", 500)
    case.sample("tcp_timestamp", request, answer)
    case.sample("tcp_timestamp", answer, tcp.client(33.25))
    return case


def wraps(new):
    case = new("tcp_wraps", "TSval and sequence numbers of both sides pass 2^32")
    tcp = Tcp(case, isn=(2**32 - 150, 2**32 - 1000), clocks=(2**32 - 45, 2**32 - 65))
    tcp.handshake(0)
    for n in range(8):
        ms = 20 + 20 * n
        request = tcp.client(ms, "PA", 100)
        answer = tcp.server(ms + 11, "PA", 400)
        case.sample("tcp_timestamp", request, answer)
        case.sample("tcp_timestamp", answer, tcp.client(ms + 12))
    case.flow(*CLIENT, forward={"retransmitted": 0, "gaps": 0, "samples": 9})
    return case


def wraps_sequence(new):
    case = new("tcp_wraps_sequence", "sequence numbers pass 2^32 without timestamps")
    tcp = Tcp(case, timestamps=False, isn=(2**32 - 150, 2**32 - 1000))
    tcp.handshake(0)
    for n in range(4):
        ms = 20 + 20 * n
        request = tcp.client(ms, "PA", 100)
        answer = tcp.server(ms + 11, "PA", 400)
        case.sample("tcp_sequence", request, answer)
        case.sample("tcp_sequence", answer, tcp.client(ms + 12))
    case.flow(*CLIENT, forward={"retransmitted": 0, "gaps": 0, "samples": 5})
    return case


def zero_tsval(new):
    case = new("tcp_zero_tsval", "a TSval of 0 is one like any other")
    tcp = Tcp(case, clocks=(0, 0))
    syn = tcp.client(0, "S", tsval=2**32 - 20)
    syn_ack = tcp.server(10, "SA", tsval=2**32 - 30)
    case.sample("tcp_handshake_server", syn, syn_ack)
    case.sample("tcp_handshake_client", syn_ack, tcp.client(10.5, tsval=2**32 - 10))
    request = tcp.client(20, "PA", 100, tsval=0)
    answer = tcp.server(33, "PA", 100, tsval=0)
    case.sample("tcp_timestamp", request, answer)
    case.sample("tcp_timestamp", answer, tcp.client(33.5, tsval=14))
    return case


def repeated_tsval(new):
    case = new("tcp_repeated_tsval", "of segments with one TSval the first is timed, and the "
               "first echo answers it")
    tcp = Tcp(case)
    tcp.handshake(0)
    burst = [tcp.client(20 + n / 8, "A", 1000) for n in range(6)]
    start = tcp.next[0] - 6000
    echo = 100_020
    first = tcp.server(31, ack=start + 2000, tsecr=echo)
    tcp.server(32, ack=start + 4000, tsecr=echo)
    tcp.server(33, ack=start + 6000, tsecr=echo)
    case.sample("tcp_timestamp", burst[0], first)
    return case


def many_in_flight(new):
    case = new("tcp_many_in_flight", "forty TSvals on their way at once; each is answered")
    tcp = Tcp(case)
    tcp.handshake(0, rtt=60)
    start, sent, count = tcp.next[0], [], 40
    # 60 ms there and back, a segment a millisecond.
    for n in range(count):
        sent.append(tcp.client(100 + n, "A", 1000, tsecr=700_060))
    for n in range(count):
        ack = tcp.server(160 + n, ack=start + 1000 * (n + 1), tsecr=100_100 + n)
        case.sample("tcp_timestamp", sent[n], ack)
    return case


def pure_acknowledgements(new):
    case = new("tcp_pure_acknowledgements", "a segment without data is never timed; the data "
               "that follows it with the same TSval is")
    tcp = Tcp(case)
    tcp.handshake(0)
    data = tcp.server(20, "PA", 100)
    case.sample("tcp_timestamp", data, tcp.client(21, tsval=100_500))
    # 400 ms later the server speaks: its echo of the client's acknowledgement is old.
    later = tcp.server(420, "PA", 100)
    case.sample("tcp_timestamp", later, tcp.client(421, tsval=100_600))
    # Data with the TSval of the acknowledgement before: what acknowledges the data echoes it.
    request = tcp.client(422, "PA", 100, tsval=100_600)
    case.sample("tcp_timestamp", request, tcp.server(433))
    return case


def without_ack_flag(new):
    case = new("tcp_without_ack_flag", "TSecr means nothing without the ACK flag")
    tcp = Tcp(case)
    tcp.handshake(0)
    request = tcp.client(20, "PA", 100)
    tcp.server(25, "P", 10, tsecr=100_020)
    case.sample("tcp_timestamp", request, tcp.server(31))
    return case


def first_edge(new):
    case = new("tcp_first_edge", "a capture that begins amidst a connection: the first TSval "
               "seen may be an old one's repetition, so numbers are timed")
    tcp = Tcp(case)
    case.sample("tcp_sequence", tcp.client(0, "PA", 100), tcp.server(12))
    tcp.client(30, "PA", 100)
    tcp.client(50, "PA", 100)
    third = tcp.client(60, "PA", 100)
    case.sample("tcp_timestamp", third, tcp.server(71))
    case.flow(*CLIENT, handshake_server_ns=0, handshake_client_ns=0, reason="stopped")
    return case


def port_reuse(new):
    case = new("tcp_port_reuse", "a new connection on the same ports, with lower TSvals and "
               "another sequence, while the old one was never closed")
    old = Tcp(case, clocks=(3_000_000_000, 900_000))
    old.handshake(0)
    request = old.client(20, "PA", 100)
    case.sample("tcp_timestamp", request, old.server(30))
    fresh = Tcp(case, isn=(2_000_000_000, 77), clocks=(1_000, 2_000))
    fresh.handshake(500, rtt=14)
    request = fresh.client(520, "PA", 100)
    case.sample("tcp_timestamp", request, fresh.server(534))
    case.flow(*CLIENT, reason="reuse", handshake_server_ns=10_000_000)
    case.flow(*CLIENT, reason="stopped", handshake_server_ns=14_000_000)
    return case


def sequence(new):
    case = new("tcp_sequence", "no timestamps: an acknowledgement answers the segment whose "
               "end it names; Ethernet padding is no data")
    tcp = Tcp(case, timestamps=False)
    tcp.handshake(0)
    one = tcp.client(20, "PA", 100)
    case.sample("tcp_sequence", one, tcp.server(31))
    start = tcp.next[0]
    for n in range(3):
        last = tcp.client(40 + n / 4, "A", 1000)
    case.sample("tcp_sequence", last, tcp.server(52))  # the newest that it covers
    start = tcp.next[0]
    tcp.client(60, "A", 1000)
    tcp.client(60.5, "A", 1000)
    tcp.server(71, ack=start + 1500)  # amidst a segment: names none
    case.flow(*CLIENT, forward={"retransmitted": 0, "samples": 3}, backward={"bytes": 40 * 4})
    return case


def karn(new):
    case = new("tcp_karn", "what was sent twice is not timed; what follows is again")
    tcp = Tcp(case, timestamps=False)
    tcp.handshake(0)
    start = tcp.next[0]
    tcp.client(20, "PA", 100)
    tcp.client(240, "PA", 100, seq=start)
    tcp.server(251, ack=start + 100)
    request = tcp.client(300, "PA", 100)
    case.sample("tcp_sequence", request, tcp.server(312))
    case.flow(*CLIENT, forward={"retransmitted": 1, "reordered": 0, "gaps": 0, "samples": 2})
    return case


def recovery(new):
    case = new("tcp_recovery", "selective acknowledgements: a loss behind the monitor; the "
               "sample taken meanwhile says so, the one after does not")
    tcp = Tcp(case)
    tcp.handshake(0)
    start = tcp.next[0]
    # Of three segments the second is lost. The first one's acknowledgement was waiting for
    # the second; what arrives out of order sends it off.
    first, _, _ = [tcp.client(20 + n, "A", 1000) for n in range(3)]
    answer = tcp.server(32, ack=start + 1000, tsecr=100_020, sack=(start + 2000, start + 3000))
    case.sample("tcp_timestamp", first, answer, "recovery")
    again = tcp.client(33, "A", 1000, seq=start + 1000)
    answer = tcp.server(44, ack=start + 3000, tsecr=100_033)
    case.sample("tcp_timestamp", again, answer, "recovery")
    request = tcp.client(60, "PA", 100)
    case.sample("tcp_timestamp", request, tcp.server(71))
    case.flow(*CLIENT, forward={"retransmitted": 1, "samples": 2, "samples_recovery": 2})
    return case


def hole(new):
    case = new("tcp_hole", "segments change their order before the monitor: no loss, no sample")
    tcp = Tcp(case, timestamps=False)
    tcp.handshake(0)
    start = tcp.next[0]
    tcp.client(20, "A", 1000)
    tcp.client(21, "A", 1000, seq=start + 2000)
    tcp.client(21.5, "A", 1000, seq=start + 1000)
    tcp.server(31.5, ack=start + 3000)
    request = tcp.client(40, "PA", 100)
    case.sample("tcp_sequence", request, tcp.server(52))
    case.flow(*CLIENT, forward={"gaps": 1, "reordered": 1, "retransmitted": 0, "samples": 2})
    return case


def lost_before(new):
    case = new("tcp_lost_before", "a segment is lost before the monitor and comes much later")
    tcp = Tcp(case, timestamps=False)
    tcp.handshake(0)
    start = tcp.next[0]
    tcp.client(20, "A", 1000)
    tcp.client(21, "A", 1000, seq=start + 2000)
    tcp.server(31, ack=start + 1000)
    tcp.client(240, "A", 1000, seq=start + 1000)
    tcp.server(250, ack=start + 3000)
    request = tcp.client(260, "PA", 100)
    case.sample("tcp_sequence", request, tcp.server(271))
    case.flow(*CLIENT, forward={"gaps": 1, "reordered": 0, "retransmitted": 1, "samples": 2})
    return case


def keepalive(new):
    case = new("tcp_keepalive", "keepalives, empty and of one byte, are timed, and not taken "
               "for retransmissions")
    for ts, client in ((False, CLIENT), (True, ("192.0.2.1", 40001))):
        tcp = Tcp(case, client, timestamps=ts)
        base = 100_000 * ts
        tcp.handshake(base)
        request = tcp.client(base + 20, "PA", 100)
        kind = "tcp_timestamp" if ts else "tcp_sequence"
        case.sample(kind, request, tcp.server(base + 31))
        for n, size in enumerate((0, 1, 1)):
            ms = base + 10_000 * (n + 1)
            probe = tcp.client(ms, size=size, seq=tcp.next[0] - 1)
            case.sample("tcp_sequence", probe, tcp.server(ms + 10, tsecr=tcp.echo[0]))
        request = tcp.client(base + 40_000, "PA", 100)
        case.sample(kind, request, tcp.server(base + 40_011))
        case.flow(*client, forward={"retransmitted": 0, "samples": 6},
                  backward={"duplicate_acks": 0})
    return case


def zero_window(new):
    case = new("tcp_zero_window", "a closed window: its probes are not timed")
    tcp = Tcp(case, timestamps=False)
    tcp.handshake(0)
    request = tcp.client(20, "PA", 100)
    case.sample("tcp_sequence", request, tcp.server(31, window=0))
    tcp.client(230, size=1)  # RFC 9293 section 3.8.6.1: one byte of new data
    tcp.server(241, window=0)
    tcp.client(700, seq=tcp.next[0] - 1)  # as Linux probes
    tcp.server(711, window=64000)
    request = tcp.client(720, "PA", 100)
    case.sample("tcp_sequence", request, tcp.server(731))
    case.flow(*CLIENT, forward={"retransmitted": 0, "samples": 3}, backward={"zero_windows": 2})
    return case


def delayed(new):
    case = new("tcp_delayed_ack", "one segment, acknowledged late by itself: held back")
    tcp = Tcp(case)
    tcp.handshake(0)
    first = tcp.client(20, "PA", 100)
    case.sample("tcp_timestamp", first, tcp.server(30.5))
    held = tcp.client(100, "PA", 100)
    case.sample("tcp_timestamp", held, tcp.server(150), "delayed_ack")
    # The same time, but the answer brings data: the server's work, not its acknowledgement.
    worked = tcp.client(200, "PA", 100)
    case.sample("tcp_timestamp", worked, tcp.server(250, "PA", 100))
    case.flow(*CLIENT, forward={"samples": 3, "samples_delayed_ack": 1,
                                "rtt_min_ns": 10_000_000})
    return case


def syn_again(new):
    case = new("tcp_syn_again", "a SYN sent twice times no server, a SYN-ACK sent twice no client")
    tcp = Tcp(case, timestamps=False)
    tcp.client(0, "S", seq=1000)
    tcp.client(1000, "S", seq=1000)
    syn_ack = tcp.server(1010, "SA")
    case.sample("tcp_handshake_client", syn_ack, tcp.client(1011))
    tcp = Tcp(case, ("192.0.2.1", 40001), timestamps=False)
    syn = tcp.client(2000, "S")
    syn_ack = tcp.server(2010, "SA", seq=5000)
    case.sample("tcp_handshake_server", syn, syn_ack)
    tcp.server(3010, "SA", seq=5000)
    tcp.client(3011)
    case.flow(*CLIENT, handshake_server_ns=0, handshake_client_ns=1_000_000)
    case.flow("192.0.2.1", 40001, handshake_server_ns=10_000_000, handshake_client_ns=0)
    return case


def resets(new):
    case = new("tcp_reset", "a reset ends a flow, and answers nothing")
    tcp = Tcp(case, timestamps=False)
    tcp.handshake(0)
    tcp.client(20, "PA", 100)
    tcp.server(31, "RA")
    # A refused connection, and a reset out of nowhere.
    refused = Tcp(case, ("192.0.2.1", 40001), timestamps=False)
    refused.client(100, "S")
    refused.server(110, "RA")
    Tcp(case, ("192.0.2.1", 40002), timestamps=False).client(120, "R")
    case.flow(*CLIENT, reason="reset")
    case.flow("192.0.2.1", 40001, reason="reset", handshake_server_ns=0)
    return case


def one_way(new):
    case = new("tcp_one_way", "only one direction passes here: nothing to time but the server's "
               "absence")
    for ts, client in ((False, CLIENT), (True, ("192.0.2.1", 40001))):
        tcp = Tcp(case, client, timestamps=ts)
        tcp.client(500 * ts, "S")
        for n in range(1, 10):
            tcp.client(500 * ts + 10 * n, "PA", 100, ack=5001 + n, tsecr=700_000 + n)
        case.flow(*client, backward={"packets": 0}, handshake_server_ns=0)
    return case


def options(new):
    case = new("tcp_options", "timestamps wherever RFC 9293 lets an option stand")
    stamp = lambda v, e: struct.pack("!II", v, e)  # noqa: E731
    layouts = [
        lambda v, e: [("MSS", 1460), ("Timestamp", (v, e)), ("WScale", 7)],
        lambda v, e: [("NOP", None), ("Timestamp", (v, e)), ("EOL", None)],
        lambda v, e: [("NOP", None)] * 3 + [("Timestamp", (v, e))],
        lambda v, e: [(253, b"\x00" * 5), ("Timestamp", (v, e))],
        lambda v, e: [("SAckOK", b""), ("NOP", None), (34, b"12345678"), ("Timestamp", (v, e))],
        lambda v, e: [(8, stamp(v, e)), ("NOP", None), ("NOP", None)],
    ]
    for n, layout in enumerate(layouts):
        client = ("192.0.2.1", 40000 + n)
        tcp = Tcp(case, client)
        base = 1000 * n
        tcp.handshake(base)
        request = tcp.client(base + 20, "PA", 100, options=layout)
        answer = tcp.server(base + 33, "PA", 100, options=layout)
        case.sample("tcp_timestamp", request, answer)
        case.sample("tcp_timestamp", answer, tcp.client(base + 34))
    return case


def bad_options(new):
    case = new("tcp_bad_options", "options of a length that cannot be: the segment counts, "
               "without them")
    # Kind 30 of length 0, of length 1, and beyond the header.
    for n, bad in enumerate((b"\x1e\x00\x01\x01", b"\x1e\x01\x01\x01", b"\x01\x01\x1e\x09")):
        tcp = Tcp(case, ("192.0.2.1", 40000 + n), timestamps=False)
        base = 1000 * n
        tcp.handshake(base)
        request = tcp.client(base + 20, "PA", 100, options=bad)
        case.sample("tcp_sequence", request, tcp.server(base + 31))
    case.counter(malformed=3)
    return case


def bad_lengths(new):
    case = new("tcp_bad_lengths", "headers that contradict themselves: counted, and nothing else")
    def segment(**fields):
        return TCP(sport=40000, dport=80, flags="PA", seq=1, ack=1, **fields) / Raw(b"x" * 20)

    ip = lambda **fields: IP(src="192.0.2.1", dst="198.51.100.2", **fields)  # noqa: E731
    frames = [
        link() / ip() / segment(dataofs=4),
        link() / ip() / segment(dataofs=15),  # beyond the packet
        link() / ip(ihl=4) / segment(),
        link() / ip(len=19) / segment(),
    ]
    for n, frame in enumerate(frames):
        case.put(n, frame)
    case.counter(malformed=len(frames))
    return case


def snapped(new):
    case = new("tcp_snapped", "captured without the data: the lengths are in the headers", snap=66)
    tcp = Tcp(case)
    tcp.handshake(0)
    for n in range(3):
        ms = 20 + 30 * n
        request = tcp.client(ms, "PA", 1000)
        answer = tcp.server(ms + 11, "PA", 1400)
        case.sample("tcp_timestamp", request, answer)
        case.sample("tcp_timestamp", answer, tcp.client(ms + 12))
    case.flow(*CLIENT, forward={"retransmitted": 0, "gaps": 0})
    return case


def dns(new):
    case = new("tcp_dns", "DNS over TCP: the acknowledgement comes at once, the answer later; "
               "an answer with another identifier is none")
    tcp = Tcp(case, server=("198.51.100.2", 53), timestamps=False)
    tcp.handshake(0)

    def message(ident, response):
        body = struct.pack("!HHHHHH", ident, 0x8180 if response else 0x0100, 1, 0, 0, 0)
        body += b"\x05sonde\x04test\x00\x00\x01\x00\x01"
        return struct.pack("!H", len(body)) + body

    for n, (asked, answered) in enumerate(((0x1234, 0x1234), (0x2345, 0x5432))):
        ms = 100 * n + 20
        query = tcp.client(ms, "PA", data=message(asked, False))
        case.sample("tcp_sequence", query, tcp.server(ms + 11))
        answer = tcp.server(ms + 40, "PA", data=message(answered, True))
        if asked == answered:
            case.sample("dns", query, answer)
        case.sample("tcp_sequence", answer, tcp.client(ms + 41))
    return case


CASES = [
    timestamps, timestamps_v6, wraps, wraps_sequence, zero_tsval, repeated_tsval, many_in_flight,
    pure_acknowledgements, without_ack_flag, first_edge, port_reuse, sequence, karn, recovery,
    hole, lost_before, keepalive, zero_window, delayed, syn_again, resets, one_way, options,
    bad_options, bad_lengths, snapped, dns,
]
