#!/usr/bin/env python3
"""Traces of the reference implementation of MLRsearch on Sonde's simulated device.

The reference is the package MLRsearch, 1.2.1, of FD.io CSIT on PyPI; it is run, no part of
it is kept. Each trace holds every trial it asked for, what the device answered, and the
results. crates/meter/src/trial/mlrsearch/tests.rs replays them.

    python3 -m venv target/mlrsearch
    target/mlrsearch/bin/pip install MLRsearch==1.2.1
    cargo build --release -p sonde-meter --example sim_device
    target/mlrsearch/bin/python tests/golden/make_mlrsearch.py DEVICE [--table]

DEVICE is the example that cargo built. With --table no traces are written: the rates and
durations of the reference's no drop rate over 15 seeds are printed, for docs/procedures.md.
"""

import json
import pathlib
import statistics
import subprocess
import sys

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)

HERE = pathlib.Path(__file__).resolve().parent
NDR = dict(loss_ratio=0.0, exceed_ratio=0.5, width=0.005, initial=1, final=1, sum=21, preceding=2)
PDR = dict(NDR, loss_ratio=0.005)
RFC2544 = dict(NDR, exceed_ratio=0.0, final=60, sum=60)
TST009 = dict(NDR, final=60, sum=120)
PLAIN = dict(capacity=1e6, buffer=1000, stalls=0, stall_ns=1e6)

# name, goals, least and greatest load, warm-up, device, seed
CASES = [
    ("csit, quiet", [NDR, PDR], 9001, 2e6, 1, PLAIN, 1),
    ("csit, rare stalls", [NDR, PDR], 9001, 2e6, 1, dict(PLAIN, stalls=0.05), 2),
    ("csit, stalls", [NDR, PDR], 9001, 2e6, 1, dict(PLAIN, stalls=0.5), 3),
    ("csit, many stalls", [NDR, PDR], 9001, 2e6, 1, dict(PLAIN, stalls=2), 4),
    ("csit, other seed", [NDR, PDR], 9001, 2e6, 1, dict(PLAIN, stalls=2), 5),
    ("pdr first", [PDR, NDR], 9001, 14.88e6, 0, dict(PLAIN, stalls=5, stall_ns=3e6), 6),
    ("rfc 2544", [RFC2544], 1000, 2e6, 0, dict(PLAIN, stalls=0.05), 7),
    ("tst 009", [TST009], 1000, 2e6, 0, dict(PLAIN, stalls=0.2), 8),
    ("four goals", [RFC2544, TST009, NDR, PDR], 9001, 5e6, 1, dict(PLAIN, stalls=0.3), 9),
    ("greatest load passes", [NDR, PDR], 9001, 9e5, 1, PLAIN, 10),
    ("least load fails", [NDR, PDR], 9001, 2e6, 1, dict(PLAIN, capacity=5000, buffer=10), 11),
    ("just below the greatest", [NDR], 9001, 1.004e6, 0, PLAIN, 12),
    ("wide goals", [dict(NDR, width=0.2, preceding=1), dict(PDR, width=0.05, preceding=4)],
     100, 1e7, 1, dict(PLAIN, stalls=3), 13),
    ("one trial decides", [dict(NDR, exceed_ratio=0.0, initial=5, final=5, sum=5, preceding=0)],
     100, 1e7, 0, dict(PLAIN, stalls=0.5), 14),
    ("no buffer to speak of", [NDR, PDR], 9001, 2e6, 1, dict(PLAIN, buffer=20, stalls=1), 15),
]


class Measurer(AbstractMeasurer):
    """Asks the simulated device, and keeps what was asked and answered."""

    def __init__(self, program, device, seed):
        keys = ("capacity", "buffer", "stalls", "stall_ns")
        args = [str(seed)] + [repr(float(device[k])) for k in keys]
        self.process = subprocess.Popen(
            [program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.trials = []

    def measure(self, intended_duration, intended_load):
        line = f"{intended_load!r} {round(intended_duration * 1e9)}\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()
        sent, lost = map(int, self.process.stdout.readline().split())
        self.trials.append([intended_load, intended_duration, sent, lost])
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=sent,
            loss_count=lost,
        )

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def search(program, goals, low, high, warmup, device, seed):
    """Trials, and by goal both relevant bounds and the conditional throughput."""
    searched = [
        SearchGoal(
            loss_ratio=g["loss_ratio"],
            exceed_ratio=g["exceed_ratio"],
            relative_width=g["width"],
            initial_trial_duration=g["initial"],
            final_trial_duration=g["final"],
            duration_sum=g["sum"],
            preceding_targets=g["preceding"],
            fail_fast=False,
        )
        for g in goals
    ]
    config = Config(goals=searched)
    config.max_load = high
    config.min_load = low
    config.warmup_duration = warmup
    measurer = Measurer(program, device, seed)
    found = MultipleLossRatioSearch(config=config).search(measurer, debug=lambda text: None)
    measurer.close()

    def number(load):
        return None if load is None else float(load)

    results = []
    for goal in searched:
        result = found[goal]
        low_bound = number(result.relevant_lower_bound)
        # The reference cannot scale a load by 0.
        throughput = None if low_bound is None else number(result.conditional_throughput)
        results.append([low_bound, number(result.relevant_upper_bound), throughput])
    return measurer.trials, results


def main():
    program = sys.argv[1]
    if "--table" in sys.argv:
        for stalls in (0, 0.05, 0.5, 2):
            rates, times = [], []
            for seed in range(1, 16):
                trials, results = search(
                    program, [NDR, PDR], 9001, 2e6, 1, dict(PLAIN, stalls=stalls), seed
                )
                rates.append(results[0][2])
                times.append(sum(t[1] for t in trials))
            mean = statistics.mean(rates)
            cv = statistics.stdev(rates) / mean * 100
            print(f"{stalls}: {mean:.0f} frames/s, cv {cv:.1f} %, {statistics.mean(times):.0f} s")
        return
    for number, (name, goals, low, high, warmup, device, seed) in enumerate(CASES, 1):
        trials, results = search(program, goals, low, high, warmup, device, seed)
        head = dict(name=name, goals=goals, low=low, high=high, warmup=warmup, device=device,
                    seed=seed, results=results)
        lines = ",\n".join(json.dumps(t) for t in trials)
        text = json.dumps(head)[:-1] + ', "trials": [\n' + lines + "\n]}\n"
        path = HERE / "mlrsearch" / f"{number:02}.json"
        path.write_text(text)
        print(f"{path.name}: {name}: {len(trials)} trials, {results}")


if __name__ == "__main__":
    main()
