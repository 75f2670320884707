#!/usr/bin/env python3
"""Small captures for the passive round-trip instrument, and what must come out of them.

    python3 tests/golden/make_rtt.py generate   write tests/golden/rtt/
    python3 tests/golden/make_rtt.py check      fail if the checked-in files differ

Each case states which packet answers which: the expectations follow from how a capture
is made, not from a matcher. Needs scapy (`pip install scapy`).
"""

import pathlib
import sys

import cases_other
import cases_tcp
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


def main():
    if sys.argv[1:] == ["generate"]:
        FOLDER.mkdir(exist_ok=True)
        for old in FOLDER.iterdir():
            old.unlink()
        for name, content in files().items():
            (FOLDER / name).write_bytes(content)
    elif sys.argv[1:] == ["check"]:
        made = files()
        kept = {p.name: p.read_bytes() for p in FOLDER.iterdir()}
        wrong = sorted(n for n in made.keys() | kept.keys() if made.get(n) != kept.get(n))
        if wrong:
            sys.exit(f"not as made: {', '.join(wrong)}; run {sys.argv[0]} generate")
        print(f"{len(made)} golden files are as made")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
