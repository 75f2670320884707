#!/usr/bin/env python3
"""A station's API, asked by schemathesis whatever its OpenAPI document allows, and more.

    api_schemathesis.py SONDE SCHEMATHESIS [argument of schemathesis...]

A station runs on the loopback, measures itself, and is asked with a token of an administrator. No answer may be
a fault of the station (5xx), and each has to be as the document says. Routes that this station does not offer
(501) and the stream, which has no end, are left out.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

CONFIG = """
[station]
name = "fuzzed"
[store]
path = "{folder}/store"
[api]
listen = "127.0.0.1:0"
tokens = "{folder}/tokens"
[alert]
to = ["nobody"]
folder = "{folder}/alerts"
[alert.receiver.nobody.exec]
command = ["/bin/true"]
[reflect.main]
port = [{port}]
[probe.itself]
stream = {{ interval = "20ms", port = {port} }}
run = {{ record_interval = "200ms", timeout = "500ms" }}
[[probe.itself.target]]
host = "127.0.0.1"
[objective.loss]
metric = "loss_ratio"
limit = "20%"
window = "2s"
least_samples = 10
customer = "itself"
"""

# They answer 501, or have no end.
LEFT_OUT = [
    "live_stream",
    "list_runs",
    "get_run",
    "run_report",
    "add_target",
    "remove_target",
    "flow_points",
    "explain_event",
]
PATIENCE = 120


def main():
    sonde, schemathesis, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="sonde-fuzzed-") as folder:
        folder = pathlib.Path(folder)
        command = [sonde, "token", "fuzz", "--role", "admin", "--file", str(folder / "tokens")]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        token = re.search(r"sonde_[0-9a-zA-Z]+", made.stdout).group()
        config = folder / "sonde.toml"
        config.write_text(CONFIG.format(folder=folder, port=20_000 + os.getpid() % 20_000))
        station = subprocess.Popen([sonde, "run", str(config)], stderr=subprocess.PIPE, text=True)
        try:
            address = listens(station)
            base = f"http://{address}"
            operations = wait_until_it_measures(base, token)
            code = fuzz(schemathesis, base, token, operations, more)
            if station.poll() is not None:
                sys.exit("the station has ended while it was asked")
            health(base, token)
        finally:
            station.send_signal(signal.SIGINT)
            station.stderr.close()
            if station.wait(timeout=PATIENCE) != 0:
                sys.exit(f"the station ended with {station.returncode}")
        sys.exit(code)


def listens(station):
    for line in station.stderr:
        found = re.search(r"the API listens on (\S+)", line)
        if found:
            return found.group(1)
        print(line, end="", file=sys.stderr)
    sys.exit("the station did not start")


def ask(base, token, path):
    request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def wait_until_it_measures(base, token):
    """Names of the operations of its document."""
    end = time.monotonic() + PATIENCE
    while not ask(base, token, "/sonde/v1/series")["items"]:
        if time.monotonic() > end:
            sys.exit("the station measures nothing")
        time.sleep(0.1)
    document = ask(base, token, "/sonde/v1/openapi.json")
    routes = [route for path in document["paths"].values() for route in path.values()]
    return {route["operationId"] for route in routes}


def fuzz(schemathesis, base, token, operations, more):
    # A name that is wrong here would leave nothing out, and nobody would see why.
    strange = set(LEFT_OUT) - operations
    if strange:
        sys.exit(f"the document has no operation {', '.join(sorted(strange))}")
    command = [
        schemathesis,
        "run",
        f"{base}/sonde/v1/openapi.json",
        "--url",
        base,
        "--header",
        f"Authorization: Bearer {token}",
        # A token has 50 requests a second.
        "--rate-limit",
        "45/s",
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "25",
        "--seed",
        "1",
        "--request-timeout",
        "60",
        "--no-color",
    ]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    return subprocess.run(command + more).returncode


def health(base, token):
    now = ask(base, token, "/sonde/v1/station/health")
    lost = [drop for drop in now["drops"] if drop["reason"] == "records_lost"]
    if lost:
        sys.exit(f"records were lost while it was asked: {lost}")


main()
