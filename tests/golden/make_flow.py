#!/usr/bin/env python3
"""Small captures of everything that a flow meter looks through, and what each packet is.

    python3 tests/golden/make_flow.py generate   write tests/golden/flow/
    python3 tests/golden/make_flow.py check      fail if the checked-in files differ

What is expected comes from scapy's fields: see features.py. Needs scapy
(`pip install scapy`).
"""

import pathlib

import cases_flow
import golden
from features import Case

FOLDER = pathlib.Path(__file__).parent / "flow"


def files():
    """All files by name."""
    found = {}
    for make in cases_flow.CASES:
        case = make(Case)
        assert f"{case.name}.pcap" not in found, case.name
        found[f"{case.name}.pcap"] = case.pcap()
        found[f"{case.name}.json"] = case.expected().encode()
    return found


if __name__ == "__main__":
    golden.run(__doc__, FOLDER, files)
