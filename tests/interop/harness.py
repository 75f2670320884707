"""What the live tests stand on: two hosts, programs on them, and cases that pass or fail.

The tests themselves run on the near host. The far host is a network namespace behind a
veth pair where root has made one (scripts/interop.sh), else this host's loopback.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile
import time

SONDE = os.environ.get("SONDE", "sonde")
STAMP_SUITE = os.environ.get("STAMP_SUITE", "stamp-suite")
NTP_TO_UNIX = 2_208_988_800
SOCKET_TIMEOUT = 2.0
IP_RECVTTL = 12  # linux/in.h; Python's socket module lacks it
# One for each reflector, so that nothing is left over from the last.
PORTS = itertools.count(18620)


@dataclasses.dataclass(frozen=True)
class Host:
    """The far host: how programs are started on it, and where it is."""

    prefix: tuple
    addresses: dict  # 4 and 6
    near: dict  # the near host's addresses
    interface: str  # of the far host; empty: loopback

    @classmethod
    def from_environment(cls):
        namespace = os.environ.get("FAR_NAMESPACE")
        if not namespace:
            loopback = {4: "127.0.0.1", 6: "::1"}
            return cls((), loopback, loopback, "")
        return cls(
            ("ip", "netns", "exec", namespace),
            {4: os.environ["FAR_V4"], 6: os.environ["FAR_V6"]},
            {4: os.environ["NEAR_V4"], 6: os.environ["NEAR_V6"]},
            os.environ["FAR_INTERFACE"],
        )


class Failed(Exception):
    """A case did not come out as it should."""


def expect(condition, message):
    if not condition:
        raise Failed(message)


def equal(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what} is {got!r}, not {wanted!r}")


class Results:
    """Counts the cases and prints each as it ends."""

    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []

    @contextlib.contextmanager
    def case(self, name):
        """One case. It fails by any exception; the next one runs all the same."""
        before, began = len(self.failures), time.monotonic()
        with self.guard(name):
            yield
        if len(self.failures) == before:
            self.passed += 1
            print(f"  ok   {name} ({time.monotonic() - began:.1f} s)", flush=True)

    @contextlib.contextmanager
    def guard(self, name):
        """Around cases that share a program: its failure to start is one failure."""
        try:
            yield
        except Exception as error:  # noqa: BLE001: whatever it is, it is a failure
            kind = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
            self.failures.append(name)
            print(f"  FAIL {name}: {kind}{error}", flush=True)

    def skip(self, name, reason):
        self.skipped += 1
        print(f"  skip {name}: {reason}", flush=True)


class Program:
    """A program that runs in the background until the block ends; its output is kept."""

    def __init__(self, *command, interrupt=signal.SIGINT):
        self.command = command
        self.interrupt = interrupt

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT
        )
        return self

    def __exit__(self, kind, error, trace):
        if self.process.poll() is None:
            self.process.send_signal(self.interrupt)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if kind is not None:
            print(f"  note {' '.join(self.command)}\n{self.output()}", flush=True)
        self.log.close()

    def output(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def wait_for_port(self, port):
        """Returns once the program's network has somebody on this UDP port."""
        wanted = f":{port:04X} "
        for _ in within(10):
            expect(self.process.poll() is None, f"ended at once:\n{self.output()}")
            for table in ("udp", "udp6"):
                with contextlib.suppress(FileNotFoundError):
                    if wanted in pathlib.Path(f"/proc/{self.process.pid}/net/{table}").read_text():
                        return
        raise Failed(f"nobody listens on port {port}:\n{self.output()}")


def within(seconds):
    """Turns of a loop that polls: gives up after so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.01)


@contextlib.contextmanager
def sonde_reflect(host, *arguments):
    """`sonde reflect` on the far host; its port."""
    port = next(PORTS)
    command = (*host.prefix, SONDE, "reflect", "--port", str(port), "--json", *arguments)
    with Program(*command) as program:
        program.wait_for_port(port)
        yield port, program


@contextlib.contextmanager
def stamp_suite_reflect(host, family, *arguments):
    """The reflector of stamp-suite on the far host; its port."""
    port = next(PORTS)
    address = host.addresses[family]
    command = (*host.prefix, STAMP_SUITE, "-i", "-S", address, "-o", str(port), *arguments)
    with Program(*command) as program:
        program.wait_for_port(port)
        yield port


def sonde_counters(program):
    """What a reflector says of itself as it ends."""
    program.process.send_signal(signal.SIGINT)
    program.process.wait(10)
    return json.loads(program.output().splitlines()[-1])


def run(*command, timeout=60, accept=(0,)):
    """Runs a program to its end; what it printed on standard output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
    )
    if done.returncode not in accept:
        shown = (done.stdout[-1000:] + done.stderr[-2000:]).strip()
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{shown}")
    return done.stdout


def sonde_probe(host, family, port, *arguments):
    """A run of `sonde probe` against the far host, as its JSON."""
    return json.loads(
        run(SONDE, "probe", host.addresses[family], "--port", str(port), "--json", *arguments)
    )


def check_run(run, sent):
    """All answered, once and in time. (On a busy machine some may be skipped, and made up for.)"""
    counters = run["overall"]["counters"]
    for key, wanted in (("sent", sent), ("received", sent), ("lost", 0), ("duplicated", 0),
                        ("late", 0)):
        if counters[key] != wanted:
            engine = {name: n for name, n in run["health"]["counters"].items() if n}
            raise Failed(f"'{key}' is {counters[key]}, not {wanted}: {counters}, {engine},"
                         f" {run['caveats']}, {(run['end_ns'] - run['start_ns']) / 1e9:.1f} s")


def stamp_suite_send(host, family, port, *arguments):
    """A run of stamp-suite's sender against the far host, as its JSON summary."""
    output = run(
        STAMP_SUITE, "-r", host.addresses[family], "-p", str(port), "-S", host.near[family],
        "--output-format", "json", *arguments,
    )
    reports = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    summaries = [report for report in reports if report.get("type", "summary") == "summary"]
    expect(summaries, f"stamp-suite printed no summary:\n{output}")
    return summaries[-1]


@dataclasses.dataclass(frozen=True)
class Datagram:
    payload: bytes
    tos: int
    ttl: int
    sender: tuple


def udp_socket(family, local, tos=0, ttl=255, port=0):
    """A bound UDP socket that sends with these and tells those of what arrives."""
    sock = socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    sock.settimeout(SOCKET_TIMEOUT)
    if family == 4:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        sock.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, ttl)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
    sock.bind((local, port))
    return sock


def receive(sock):
    """The next datagram, with the TOS and TTL it came with."""
    payload, control, _, sender = sock.recvmsg(65_535, 256)
    tos = ttl = None
    for level, kind, data in control:
        value = data[0] if len(data) == 1 else struct.unpack("=i", data[:4])[0]
        if (level, kind) in ((socket.IPPROTO_IP, socket.IP_TOS),
                             (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)):
            tos = value
        elif (level, kind) in ((socket.IPPROTO_IP, socket.IP_TTL),
                               (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT)):
            ttl = value
    return Datagram(payload, tos, ttl, sender)


def exchange(sock, to, request):
    """Sends a datagram and waits for the reply to it."""
    sock.sendto(request, to)
    try:
        reply = receive(sock)
    except socket.timeout:
        raise Failed(f"no reply within {SOCKET_TIMEOUT} s") from None
    equal("where the reply comes from", reply.sender[:2], to)
    return reply


def ntp_now():
    """The time as NTP's 64 bits (RFC 5905, section 6)."""
    seconds, rest = divmod(time.time_ns(), 10**9)
    return (seconds + NTP_TO_UNIX) << 32 | (rest << 32) // 10**9


def in_order(names, *times):
    """Instants of one clock, in NTP's 64 bits. A stamp may be rounded to a microsecond."""
    microsecond = 2**32 // 10**6
    for (a, b), name in zip(zip(times, times[1:]), names):
        expect(a <= b + microsecond, f"{name} by {(a - b) / 2**32 * 1e6:.1f} us")
