#!/usr/bin/env bash
# Gets the servers beside which `sonde-perf --only queries` asks: Debian's PostgreSQL, which is installed,
# and its ClickHouse, which is unpacked. TimescaleDB is in no release of Debian.
# Needs root and the package archive. Prints how to measure then.
set -euo pipefail
cd "$(dirname "$0")/.."
CLICKHOUSE=$(realpath -m "${CARGO_TARGET_DIR:-target}")/interop/clickhouse

if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
    echo "bench-peers: installing postgresql" >&2
    apt-get -qq -y --no-install-recommends install postgresql
fi
# As scripts/interop.sh has it: a package that is installed would start its daemon.
if [ ! -x "$CLICKHOUSE/usr/sbin/clickhouse-server" ] && [ ! -x "$CLICKHOUSE/usr/bin/clickhouse-server" ]; then
    echo "bench-peers: unpacking clickhouse-server into $CLICKHOUSE" >&2
    mkdir -p "$CLICKHOUSE/archives/partial"
    apt-get -qq -y --no-install-recommends --download-only -o Debug::NoLocking=1 \
        -o "Dir::Cache::archives=$CLICKHOUSE/archives" install clickhouse-server
    for package in "$CLICKHOUSE"/archives/*.deb; do
        dpkg-deb -x "$package" "$CLICKHOUSE"
    done
    rm -rf "$CLICKHOUSE/archives"
    echo clickhouse-server >"$CLICKHOUSE/unpacked.txt"
fi
echo "SONDE_CLICKHOUSE=$CLICKHOUSE ${CARGO_TARGET_DIR:-target}/release/sonde-perf --only queries"
