"""TWAMP Light (RFC 5357, appendix I) as written from the RFC, sharing no code with Sonde.

Both sides in open mode: a session-sender whose requests are as short as 14 octets, and a
session-reflector that answers with the 41 octets of RFC 5357, section 4.2.1, and no more.
"""

import contextlib
import os
import signal
import struct
import sys

from harness import PORTS, Program, check_run, equal, exchange, expect, in_order, ntp_now
from harness import receive, sonde_counters, sonde_probe, sonde_reflect, udp_socket

SENDER = struct.Struct("!IQH")  # sequence number, timestamp, error estimate
REFLECTOR = struct.Struct("!IQHHQIQHHB")
ESTIMATE = 0x8A4D  # synchronised, scale 10, multiplier 77
TTL = 64


def ask(sock, to, seq, padding):
    """One exchange; the reply's sequence number."""
    t1 = ntp_now()
    reply = exchange(sock, to, SENDER.pack(seq, t1, ESTIMATE) + padding)
    t4 = ntp_now()
    expect(len(reply.payload) >= REFLECTOR.size, f"a reply of {len(reply.payload)} octets")
    (number, t3, estimate, _, t2, sender_seq, sender_time, sender_estimate, _, ttl) = (
        REFLECTOR.unpack_from(reply.payload)
    )
    equal("the sender's sequence number", sender_seq, seq)
    equal("the sender's timestamp", sender_time, t1)
    equal("the sender's error estimate", sender_estimate, ESTIMATE)
    equal("the sender's TTL", ttl, TTL)
    expect(estimate & 0xFF, "an error estimate with a multiplier of 0")
    equal("the timestamp format", estimate & 0x4000, 0)
    in_order(("T2 < T1", "T3 < T2", "T4 < T3"), t1, t2, t3, t4)
    equal("the reply's TTL", reply.ttl, 255)
    return number, reply.payload


def reflect(local, port):
    """Answers until killed, with 41 octets, numbered per sender from 0."""
    family = 6 if ":" in local else 4
    sessions = {}
    with udp_socket(family, local, port=port) as sock:
        sock.settimeout(None)
        while True:
            request = receive(sock)
            if len(request.payload) < SENDER.size:
                continue
            t2 = ntp_now()
            number = sessions.get(request.sender, 0)
            sessions[request.sender] = number + 1
            seq, t1, estimate = SENDER.unpack_from(request.payload)
            sock.sendto(
                REFLECTOR.pack(number, ntp_now(), ESTIMATE, 0, t2, seq, t1, estimate, 0,
                               request.ttl),
                request.sender,
            )


def senders(host, results, name, arguments, pad):
    """Requests of many lengths to one of Sonde's reflectors, each length a session."""
    lengths = (*range(SENDER.size, 45), 100, 1400)
    for family in (4, 6):
        title = f"TWAMP Light -> {name}, IPv{family}"
        # All sockets stay open: a port that is used again would go on with an earlier session.
        with (
            results.guard(title),
            sonde_reflect(host, *arguments) as (port, program),
            contextlib.ExitStack() as sockets,
        ):
            to = host.addresses[family], port
            with results.case(f"{title}: requests of 14 to 44, 100 and 1400 octets"):
                for length in lengths:
                    sock = sockets.enter_context(udp_socket(family, host.near[family], ttl=TTL))
                    for count in range(3):
                        number, reply = ask(sock, to, 7000 + count, pad(length - SENDER.size))
                        equal(f"the sequence number to {length} octets", number, count)
                        equal("the reply's length", len(reply), max(length, 44))
            with results.case(f"{title}: shorter ones get no reply"):
                sock = sockets.enter_context(udp_socket(family, host.near[family], ttl=TTL))
                for length in range(SENDER.size):
                    sock.sendto(bytes(length), to)
                # This one's reply would come after replies to those.
                number, _ = ask(sock, to, 1, b"")
                equal("the sequence number", number, 0)
            with results.case(f"{title}: all counted"):
                equal("the count", sonde_counters(program)["reflected"], 3 * len(lengths) + 1)


def reflectors(host, results):
    """`sonde probe` to a reflector that sends 41 octets whatever it was sent."""
    for family, size in ((4, 72), (4, 150), (6, 92)):
        name = f"sonde probe -> TWAMP Light, IPv{family}, {size} octets, replies of 41"
        port = next(PORTS)
        command = (*host.prefix, sys.executable, __file__, host.addresses[family], str(port))
        with results.case(name), Program(*command, interrupt=signal.SIGKILL) as peer:
            peer.wait_for_port(port)
            run = sonde_probe(host, family, port, "-s", str(size), "-i", "2ms", "-c", "100")
            check_run(run, 100)


def run(host, results):
    senders(host, results, "sonde reflect", (), os.urandom)
    if host.interface:
        kernel = ("--kernel", "--iface", host.interface)
        senders(host, results, "sonde reflect --kernel", kernel, os.urandom)
    else:
        results.skip("TWAMP Light -> sonde reflect --kernel", "needs root, for a namespace")
    reflectors(host, results)


if __name__ == "__main__":
    reflect(sys.argv[1], int(sys.argv[2]))
