#!/usr/bin/env python3
"""STAMP packets as scapy writes them: the byte oracle of crates/wire.

    python3 tests/interop/scapy_stamp.py generate   print the fixtures
    python3 tests/interop/scapy_stamp.py check      fail if the checked-in ones differ

Needs scapy (`pip install scapy`). The values of a packet and the octets that scapy
makes of them stand on one line; crates/wire/tests/golden/scapy_stamp.rs writes and reads
the same packets. scapy knows the TLV container, not what is in the TLVs.
"""

import difflib
import pathlib
import sys

FIXTURES = (
    pathlib.Path(__file__).parents[2] / "crates/wire/tests/fixtures/scapy_stamp.txt"
)

# Timestamps are (seconds, second half), of which NTP's fraction must be exact in a float.
# Error estimates are (S, Z, scale, multiplier). TLVs are (flags, type, value).
SENDERS = {
    "zero": dict(seq=0, ts=(0, 0), ee=(0, 0, 0, 1), ssid=0, tlvs=[]),
    "ntp": dict(seq=7, ts=(3976214400, 0x80000000), ee=(1, 0, 15, 132), ssid=0x1234, tlvs=[]),
    "ptp": dict(seq=0xFFFFFFFF, ts=(1767225637, 123456789), ee=(1, 1, 3, 255), ssid=1, tlvs=[]),
    "padding": dict(seq=1, ts=(1, 0x40000000), ee=(0, 0, 63, 1), ssid=65535,
                    tlvs=[(0x80, 1, bytes(20))]),
    "requests": dict(seq=2, ts=(2, 0), ee=(0, 0, 1, 2), ssid=2,
                     tlvs=[(0x80, 3, bytes(4)), (0x80, 4, b"\xb8\x00\x00\x00"),
                           (0x80, 5, b"\x00\x00\x00\x2a" + bytes(8)), (0x80, 7, bytes(16)),
                           (0x80, 1, b"")]),
    "location": dict(seq=3, ts=(3, 0), ee=(0, 0, 1, 2), ssid=3,
                     tlvs=[(0x80, 2, bytes(4)
                            + b"\x80\x07\x00\x10" + bytes(16)
                            + b"\x80\x04\x00\x10" + bytes(16))]),
}
REFLECTORS = {
    "ntp": dict(seq=9, ts=(3976214401, 0x00100000), ee=(1, 0, 15, 132), ssid=0x1234,
                rx=(3976214401, 0), sender_seq=7, sender_ts=(3976214400, 0x80000000),
                sender_ee=(0, 0, 20, 9), ttl=63, tlvs=[]),
    "mixed": dict(seq=0x80000000, ts=(1767225637, 999999999), ee=(1, 1, 2, 3), ssid=0,
                  rx=(1767225637, 1), sender_seq=0x01020304, sender_ts=(5, 0xC0000000),
                  sender_ee=(1, 0, 1, 1), ttl=255, tlvs=[]),
    "flags": dict(seq=1, ts=(1, 0), ee=(0, 0, 0, 1), ssid=1, rx=(2, 0), sender_seq=3,
                  sender_ts=(4, 0), sender_ee=(0, 0, 0, 1), ttl=1,
                  tlvs=[(0x00, 4, b"\xb8\xa4\x00\x00"), (0x80, 200, b"abc"), (0x40, 1, b""),
                        (0x20, 8, bytes(range(16)))]),
}


def raw(timestamp):
    return timestamp[0] << 32 | timestamp[1]


def estimate(fields):
    s, z, scale, multiplier = fields
    return s << 15 | z << 14 | scale << 8 | multiplier


def stamp(packet, field, timestamp, error):
    """scapy takes NTP as a number of seconds, PTP as the 64 bits; the format is that of
    the error estimate, which must be set before."""
    seconds, rest = timestamp
    if error[1]:
        setattr(packet, field, raw(timestamp))
    else:
        assert (float(seconds) + rest / 2**32) * 2**32 == raw(timestamp)
        setattr(packet, field, seconds + rest / 2**32)


def lines():
    from scapy.contrib.stamp import (
        ErrorEstimate,
        STAMPSessionReflectorTestUnauthenticated,
        STAMPSessionSenderTestUnauthenticated,
        STAMPTestTLV,
    )

    def error(fields):
        return ErrorEstimate(**dict(zip(("S", "Z", "scale", "multiplier"), fields)))

    def tlvs(case):
        return [STAMPTestTLV(flags=f, type=t, len=len(v), value=v) for f, t, v in case["tlvs"]]

    def text(case):
        return ",".join(f"{f:02x}:{t}:{v.hex()}" for f, t, v in case["tlvs"]) or "-"

    for name, case in SENDERS.items():
        packet = STAMPSessionSenderTestUnauthenticated(
            seq=case["seq"], err_estimate=error(case["ee"]), ssid=case["ssid"],
            tlv_objects=tlvs(case),
        )
        stamp(packet, "ts", case["ts"], case["ee"])
        yield (
            f"sender {name} seq={case['seq']} ts={raw(case['ts']):016x}"
            f" ee={estimate(case['ee']):04x} ssid={case['ssid']} tlvs={text(case)}"
            f" hex={bytes(packet).hex()}"
        )
    for name, case in REFLECTORS.items():
        packet = STAMPSessionReflectorTestUnauthenticated(
            seq=case["seq"], err_estimate=error(case["ee"]), ssid=case["ssid"],
            seq_sender=case["sender_seq"], err_estimate_sender=error(case["sender_ee"]),
            ttl_sender=case["ttl"], tlv_objects=tlvs(case),
        )
        stamp(packet, "ts", case["ts"], case["ee"])
        stamp(packet, "ts_rx", case["rx"], case["ee"])
        stamp(packet, "ts_sender", case["sender_ts"], case["sender_ee"])
        yield (
            f"reflector {name} seq={case['seq']} ts={raw(case['ts']):016x}"
            f" ee={estimate(case['ee']):04x} ssid={case['ssid']} rx={raw(case['rx']):016x}"
            f" sender_seq={case['sender_seq']} sender_ts={raw(case['sender_ts']):016x}"
            f" sender_ee={estimate(case['sender_ee']):04x} ttl={case['ttl']}"
            f" tlvs={text(case)} hex={bytes(packet).hex()}"
        )


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("generate", "check"):
        sys.exit(__doc__)
    try:
        made = "".join(line + "\n" for line in lines())
    except ImportError as error:
        sys.exit(f"{error}; install it with: pip install scapy")
    if sys.argv[1] == "generate":
        sys.stdout.write(made)
        return
    kept = FIXTURES.read_text()
    if made != kept:
        diff = difflib.unified_diff(kept.splitlines(), made.splitlines(), "kept", "scapy", "", "", 0, "")
        sys.exit("\n".join(diff) + "\nscapy writes other octets than the fixtures hold")
    print(f"{len(made.splitlines())} packets are as scapy writes them")


if __name__ == "__main__":
    main()
