"""All live interoperation tests; scripts/interop.sh prepares what they need."""

import sys

import live_scapy
import live_stamp_suite
import twamp_light
from harness import Host, Results


def main():
    host, results = Host.from_environment(), Results()
    for part in (live_scapy, live_stamp_suite, twamp_light):
        print(f"{part.__name__}: {part.__doc__.splitlines()[0]}", flush=True)
        part.run(host, results)
    skipped = f", {results.skipped} skipped" if results.skipped else ""
    print(f"interop: {results.passed} passed, {len(results.failures)} failed{skipped}", flush=True)
    for name in results.failures:
        print(f"interop: failed: {name}", flush=True)
    sys.exit(1 if results.failures else 0)


if __name__ == "__main__":
    main()
