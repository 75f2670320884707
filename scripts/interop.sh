#!/usr/bin/env bash
# Interoperation tests: other people's STAMP and TWAMP against the Sonde of this tree.
# Missing peers are installed inside the build folder, from the public registries.
# As root, the two sides are network namespaces; else both are this host's loopback.
#   SONDE_INTEROP=skip   leaves everything out, for machines that cannot reach a registry
set -euo pipefail
cd "$(dirname "$0")/.."
# As in the Makefile: Rust as rustup installs it, and ip for users whose PATH lacks it.
export PATH="${HOME:-/root}/.cargo/bin:$PATH:/usr/sbin:/sbin"

STAMP_SUITE_VERSION=1.0.0
GOFLOW2_VERSION=v2.2.3
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
PEERS=$TARGET/interop
VENV=$PEERS/venv

say() { printf 'interop: %s\n' "$*"; }
die() {
    printf 'interop: %s\n' "$*" >&2
    exit 1
}
unreachable() {
    die "$1 could not be installed (see above); where no registry can be reached:" \
        "SONDE_INTEROP=skip"
}

if [ "${SONDE_INTEROP:-}" = skip ]; then
    say "skipped, as SONDE_INTEROP=skip asks"
    exit 0
fi

# As the other tests have it: nothing is built twice.
say "building sonde and its tests"
cargo test --workspace --locked --no-run --quiet

# The stamp is written last: an installation that was interrupted is made anew.
if ! cmp -s tests/interop/requirements.txt "$VENV/installed.txt"; then
    say "installing scapy, aioquic, snappi, pandas, aiosmtpd, chdb, schemathesis and others into $VENV"
    rm -rf "$VENV"
    python3 -m venv "$VENV"
    "$VENV/bin/pip" install --quiet --disable-pip-version-check --require-hashes \
        --requirement tests/interop/requirements.txt || unreachable "scapy, aioquic, snappi and others"
    cp tests/interop/requirements.txt "$VENV/installed.txt"
fi
export STAMP_SUITE=$PEERS/stamp-suite/bin/stamp-suite
if [ "$("$STAMP_SUITE" --version 2>/dev/null)" != "stamp-suite $STAMP_SUITE_VERSION" ]; then
    say "installing stamp-suite $STAMP_SUITE_VERSION into $PEERS/stamp-suite: some minutes, once"
    # Little optimisation: it is asked what it sends, not how fast.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_TARGET_DIR=$PEERS/build \
        cargo install stamp-suite --version "=$STAMP_SUITE_VERSION" --locked --force --quiet \
        --root "$PEERS/stamp-suite" || unreachable stamp-suite
    rm -rf "$PEERS/build"
fi

# Without Go the tests with goflow2 are left out, and say so.
if command -v go >/dev/null; then
    export SONDE_GOFLOW2=$PEERS/goflow2-$GOFLOW2_VERSION/goflow2
    if [ ! -x "$SONDE_GOFLOW2" ]; then
        say "installing goflow2 $GOFLOW2_VERSION into ${SONDE_GOFLOW2%/*}: a minute, once"
        GOBIN=${SONDE_GOFLOW2%/*} GOFLAGS=-modcacherw \
            go install "github.com/netsampler/goflow2/v2/cmd/goflow2@$GOFLOW2_VERSION" ||
            unreachable goflow2
    fi
else
    say "no go: goflow2 is left out"
fi

# Debian's packages of what others run, with what they need. Unpacked, not installed: a package would
# start its daemon. What this host has already is not fetched.
fetch() { # folder, packages
    # shellcheck disable=SC2086 # one word a name
    apt-get -qq -y --no-install-recommends --download-only -o Debug::NoLocking=1 \
        -o "Dir::Cache::archives=$1/archives" install $2
}
unpack() { # folder, packages
    local package
    if ! command -v apt-get >/dev/null; then
        say "no apt-get: $2 are used where they are installed"
    elif [ "$(cat "$1/unpacked.txt" 2>/dev/null)" != "$2" ]; then
        say "unpacking $2 into $1, as far as they are not installed"
        rm -rf "$1"
        mkdir -p "$1/archives/partial"
        # Lists of packages that are missing or of long ago are no reason to give up.
        fetch "$1" "$2" || { [ "$(id -u)" -eq 0 ] && apt-get -qq update && fetch "$1" "$2"; } ||
            unreachable "$2"
        for package in "$1"/archives/*.deb; do
            [ ! -e "$package" ] || dpkg-deb -x "$package" "$1"
        done
        rm -rf "$1/archives"
        echo "$2" >"$1/unpacked.txt"
    fi
}
# Receivers of alerts and metrics.
RECEIVERS=$PEERS/receivers
unpack "$RECEIVERS" 'prometheus-alertmanager rsyslog rsyslog-openssl snmptrapd prometheus influxdb'
CLICKHOUSE=$PEERS/clickhouse
unpack "$CLICKHOUSE" clickhouse-server

say "packets as scapy writes them, against the fixtures of crates/wire"
"$VENV/bin/python" tests/interop/scapy_stamp.py check

say "golden captures as scapy makes them, against tests/golden/rtt and tests/golden/flow"
PYTHONDONTWRITEBYTECODE=1 "$VENV/bin/python" tests/golden/make_rtt.py check
PYTHONDONTWRITEBYTECODE=1 "$VENV/bin/python" tests/golden/make_flow.py check

say "passive round-trip times of a QUIC client and server, which must not be skipped here"
SONDE_QUIC_PYTHON=$VENV/bin/python cargo test --workspace --locked --test exclusive rtt::quic

say "segments of a store that is written, as DuckDB and pyarrow read them"
SONDE_STORE_PYTHON=$VENV/bin/python cargo test --workspace --locked --test store foreign

say "the store in ClickHouse"
SONDE_CLICKHOUSE=$CLICKHOUSE SONDE_STORE_PYTHON=$VENV/bin/python \
    cargo test --workspace --locked --test store clickhouse

say "what the pages of docs/ say of these programs"
SONDE_DOCS_PEERS=$PEERS cargo test --workspace --locked --test exclusive docs::performed::what_the_pages_say_of

say "alerts at Alertmanager, rsyslog, snmptrapd and aiosmtpd"
SONDE_RECEIVERS=$RECEIVERS SONDE_SMTP_PYTHON=$VENV/bin/python \
    cargo test --workspace --locked --test receivers

say "what a station exports, at Prometheus, InfluxDB and opentelemetry-proto"
SONDE_RECEIVERS=$RECEIVERS SONDE_OTLP_PYTHON=$VENV/bin/python \
    cargo test --workspace --locked --test exporters

say "exported flows at goflow2"
cargo test --workspace --locked --test parallel flow_collectors::goflow2

export SONDE=$TARGET/debug/sonde PYTHONDONTWRITEBYTECODE=1
# A variable of this name would be taken for a key.
unset STAMP_HMAC_KEY

say "a station's API as schemathesis asks it by its OpenAPI document: some minutes"
"$VENV/bin/python" tests/interop/api_schemathesis.py "$SONDE" "$VENV/bin/schemathesis"

if [ "$(id -u)" -ne 0 ]; then
    say "not root: the peers meet on the loopback, and the kernel reflector is left out"
    exec "$VENV/bin/python" tests/interop/run.py
fi

say "traffic that snappi orders by the Open Traffic Generator model"
"$VENV/bin/python" tests/interop/otg_snappi.py "$SONDE"

NEAR=sonde-interop-near-$$
export FAR_NAMESPACE=sonde-interop-far-$$ FAR_INTERFACE=far
export NEAR_V4=10.233.0.1 FAR_V4=10.233.0.2 NEAR_V6=fd53:6f6e::1 FAR_V6=fd53:6f6e::2

clean_up() {
    local namespace process
    for namespace in "$NEAR" "$FAR_NAMESPACE"; do
        [ -e "/run/netns/$namespace" ] || continue
        for process in $(ip netns pids "$namespace"); do
            kill -KILL "$process" 2>/dev/null || true
        done
        ip netns del "$namespace"
    done
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

say "two network namespaces, $NEAR and $FAR_NAMESPACE"
for namespace in "$NEAR" "$FAR_NAMESPACE"; do
    ip netns add "$namespace"
    ip -netns "$namespace" link set lo up
done
ip -netns "$NEAR" link add near type veth peer name "$FAR_INTERFACE" netns "$FAR_NAMESPACE"
address() { # namespace, interface, addresses
    ip -netns "$1" address add "$3/24" dev "$2"
    ip -netns "$1" address add "$4/64" dev "$2" nodad
    ip -netns "$1" link set "$2" up
}
address "$NEAR" near "$NEAR_V4" "$NEAR_V6"
address "$FAR_NAMESPACE" "$FAR_INTERFACE" "$FAR_V4" "$FAR_V6"
# What XDP sends on one end of a veth pair reaches the other only if that has an XDP
# program too: one that passes everything. Network cards need none.
echo '__attribute__((section("xdp"), used)) int pass(void *packet) { return 2; }' |
    clang -O2 -target bpf -x c -c - -o "$PEERS/pass.o"
ip -netns "$NEAR" link set near xdpdrv object "$PEERS/pass.o" section xdp

ip netns exec "$NEAR" "$VENV/bin/python" tests/interop/run.py
