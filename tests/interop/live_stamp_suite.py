"""stamp-suite (crates.io), another implementation of STAMP, as the peer in both directions."""

from harness import check_run, equal, expect, sonde_counters, sonde_probe, sonde_reflect
from harness import stamp_suite_reflect, stamp_suite_send

COUNT = 50
SENDER = ("-d", "5ms", "-c", str(COUNT), "-L", "2")
PROBE = ("-i", "5ms", "-c", str(COUNT))
# Each TLV that both sides know, by the sender's option for it and its type.
TLVS = {
    "--location": 2,
    "--timestamp-info": 3,
    "--direct-measurement": 5,
    "--follow-up-telemetry": 7,
}


def check_report(report):
    """All answered, nothing twice or out of order, no TLV or session refused."""
    for key, wanted in (("packets_sent", COUNT), ("packets_received", COUNT),
                        ("packets_lost", 0)):
        equal(f"'{key}'", report[key], wanted)
    replies = report["measurements"]
    for key in ("duplicate_replies", "unknown_replies", "reordered_replies", "late_replies"):
        equal(f"'{key}'", replies[key], 0)
    equal("replies refused", replies["tlv_validation"]["rejected_replies"], 0)
    equal("delays without an error estimate", report["owd"]["clock_quality"]["unknown"], 0)
    equal("invalid error estimates", report["owd"]["clock_quality"]["invalid_estimate"], 0)
    expect(report["owd"]["forward_min_ms"] >= -0.001, "a request that came before it left")
    expect(report["owd"]["reverse_min_ms"] >= -0.001, "a reply that came before it left")


def check_flags(report, kind, **flags):
    """A TLV of this type came back in every reply, this many with these flags."""
    found = report["measurements"]["tlv_validation"]["by_type"].get(str(kind), {})
    equal(f"TLVs of type {kind}", found.get("observed", 0), COUNT)
    for name, count in found["flags"].items():
        equal(f"{name} of type {kind}", count, flags.get(name, 0))


def probe_cases(host, results):
    """`sonde probe` -> stamp-suite's reflector."""
    for family in (4, 6):
        for stateful in (True, False):
            kind = "stateful" if stateful else "stateless"
            name = f"sonde probe -> stamp-suite, IPv{family}, {kind}"
            option = ["--stateful-reflector"] if stateful else []
            with results.guard(name), stamp_suite_reflect(host, family, *option) as port:
                for size in (None, 150, 1400):
                    with results.case(f"{name}: {size or 'fewest'} octets"):
                        options = ["-s", str(size)] if size else []
                        run = sonde_probe(host, family, port, *PROBE, *options,
                                          "--reflector", kind)
                        check_run(run, COUNT)
                        # Nothing was lost, whoever counts.
                        equal("the loss side", run["overall"]["loss_side"], "known")
                with results.case(f"{name}: 3 classes x 4 flows"):
                    run = sonde_probe(host, family, port, "-i", "20ms", "-c", "25",
                                      "--dscp", "BE,AF41,EF", "--flows", "4")
                    equal("the streams", len(run["streams"]), 12)
                    check_run(run, 300)
    name = "sonde probe -> stamp-suite, IPv4: replies with PTP timestamps"
    with results.case(name), stamp_suite_reflect(host, 4, "-K", "PTP") as port:
        check_run(sonde_probe(host, 4, port, *PROBE), COUNT)
    name = "sonde probe -> stamp-suite, IPv4: what its rate limit drops is lost forward"
    limit = ("--stateful-reflector", "--max-pps", "50", "--reflector-rate-burst", "5")
    with results.case(name), stamp_suite_reflect(host, 4, *limit) as port:
        run = sonde_probe(host, 4, port, *PROBE, "--timeout", "500ms")
        counters = run["overall"]["counters"]
        equal("sent", counters["sent"], COUNT)
        expect(counters["lost"] > 0, "nothing was lost")
        # Of probes that it drops after its last reply nobody can tell: those of one turn of its
        # limiter, at most.
        forward, lost = counters["lost_forward"], counters["lost"]
        expect(lost - forward <= 5, f"{forward} of {lost} are known to be lost forward")
        equal("lost backward", counters["lost_backward"], 0)


def sender_cases(host, results):
    """stamp-suite's sender -> `sonde reflect` on the socket engine."""
    for family in (4, 6):
        for stateful in (True, False):
            kind = "stateful" if stateful else "stateless"
            name = f"stamp-suite -> sonde reflect, IPv{family}, {kind}"
            options = [] if stateful else ["--stateless"]
            with results.guard(name), sonde_reflect(host, *options) as (port, program):
                one_reflector(host, results, family, stateful, port, name)
                with results.case(f"{name}: nothing dropped"):
                    for key, count in sonde_counters(program)["user"].items():
                        if key.startswith("dropped"):
                            equal(f"'{key}'", count, 0)


def one_reflector(host, results, family, stateful, port, name):
    def send(*options):
        report = stamp_suite_send(host, family, port, *SENDER, *options)
        check_report(report)
        return report

    with results.case(f"{name}: base packets"):
        send()
    with results.case(f"{name}: PTP timestamps in requests"):
        send("-K", "PTP")
    with results.case(f"{name}: SSID"):
        send("--ssid", "7", "--on-zero-ssid", "stop")
    with results.case(f"{name}: Class of Service, EF"):
        report = send("--cos", "--dscp", "46")
        check_flags(report, 4)
    with results.case(f"{name}: all TLVs in one packet"):
        report = send("--ssid", "8", "--cos", "--dscp", "46", "--extra-padding", "600", *TLVS)
        for kind in (1, 2, 3, 4, 5, 7):
            unknown = COUNT if kind == 5 and not stateful else 0
            check_flags(report, kind, unrecognized=unknown)
    if stateful:
        with results.case(f"{name}: what its Direct Measurement finds"):
            found = send("--ssid", "9", "--direct-measurement")
            found = found["measurements"]["direct_measurement"]
            for key, wanted in (("observations", COUNT), ("unavailable", 0), ("discontinuities", 0),
                                ("forward_missing", 0), ("reverse_missing", 0)):
                equal(f"'{key}'", found[key], wanted)
        with results.case(f"{name}: what its Follow-Up Telemetry finds"):
            found = send("--ssid", "10", "--follow-up-telemetry")
            found = found["measurements"]["follow_up"]
            # The first reply has none before it, nor has one that the kernel's stamp of the
            # reply before came too late for: on a busy machine requests arrive in bursts.
            expect(found["matched"] >= COUNT // 2, f"{found['matched']} replies corrected")
            for key in ("unmatched", "ambiguous"):
                equal(f"'{key}'", found[key], 0)
            expect(found["reverse_delay"]["min_ms"] >= -0.001, "a reply came before it left")
    with results.case(f"{name}: TLVs that Sonde does not serve"):
        report = send("--ssid", "11", "--reflected-control-count", "3", "--dest-node-addr",
                      "192.0.2.1")
        check_flags(report, 9, unrecognized=COUNT)
        check_flags(report, 12, unrecognized=COUNT)
    with results.case(f"{name}: malformed, reserved flags set"):
        # Without a TLV of its own it does not look at the reply's.
        report = send("--malformed", "bad-flags", "--timestamp-info")
        check_flags(report, 1)
        check_flags(report, 3)
    with results.case(f"{name}: malformed, length beyond the end"):
        report = send("--malformed", "bad-length", "--timestamp-info")
        check_flags(report, 3)
        check_flags(report, 1, malformed=COUNT)
    with results.case(f"{name}: an HMAC TLV, for which Sonde has no key"):
        report = send("--timestamp-info", "--hmac-key", "ab" * 16)
        check_flags(report, 8, unrecognized=COUNT)


def kernel_cases(host, results):
    """stamp-suite's sender -> `sonde reflect --kernel`: base packets stay in the kernel."""
    for family in (4, 6):
        for stateful in (True, False):
            kind = "stateful" if stateful else "stateless"
            name = f"stamp-suite -> sonde reflect --kernel, IPv{family}, {kind}"
            if not host.interface:
                results.skip(name, "needs root, for a network namespace")
                continue
            options = ["--kernel", "--iface", host.interface, *([] if stateful else ["--stateless"])]
            with results.guard(name), sonde_reflect(host, *options) as (port, program):
                with results.case(f"{name}: base packets"):
                    check_report(stamp_suite_send(host, family, port, *SENDER))
                with results.case(f"{name}: SSID"):
                    check_report(stamp_suite_send(host, family, port, *SENDER, "--ssid", "7"))
                with results.case(f"{name}: TLVs go up to user space"):
                    report = stamp_suite_send(host, family, port, *SENDER, "--timestamp-info")
                    check_report(report)
                    check_flags(report, 3)
                with results.case(f"{name}: who answered"):
                    counters = sonde_counters(program)
                    equal("in the kernel", counters["kernel"]["reflected"], 2 * COUNT)
                    equal("in user space", counters["user"]["reflected"], COUNT)


def run(host, results):
    probe_cases(host, results)
    sender_cases(host, results)
    kernel_cases(host, results)
