#!/usr/bin/env python3
"""Small captures for the passive round-trip instrument, and what must come out of them.

    python3 tests/golden/make_rtt.py generate   write tests/golden/rtt/
    python3 tests/golden/make_rtt.py check      fail if the checked-in files differ

Each case states which packet answers which: the expectations follow from how a capture
is made, not from a matcher. Needs scapy (`pip install scapy`).
"""

import pathlib

import cases_other
import cases_tcp
import golden
from packets import Case

FOLDER = pathlib.Path(__file__).parent / "rtt"


def files():
    """All files by name."""
    found = {}
    for module in (cases_tcp, cases_other):
        for make in module.CASES:
            case = make(Case)
            assert f"{case.name}.pcap" not in found, case.name
            found[f"{case.name}.pcap"] = case.pcap()
            found[f"{case.name}.json"] = case.expected().encode()
    return found


if __name__ == "__main__":
    golden.run(__doc__, FOLDER, files)
