#!/bin/sh
# All tests. All of it runs to its end, whatever fails: one fault must not hide the others. What is
# skipped is counted and named at the end.
set -u
cd "$(dirname "$0")/.."

[ "$(id -u)" -eq 0 ] || echo "test: not root: the tests in network namespaces will be skipped"
SONDE_SKIPPED=$(mktemp)
export SONDE_SKIPPED
trap 'rm -f "$SONDE_SKIPPED"' EXIT

failed=
cargo test --workspace --locked --no-fail-fast || failed="$failed cargo-test"
scripts/interop.sh || failed="$failed interop"

sort -u "$SONDE_SKIPPED"
echo "test: $(sort -u "$SONDE_SKIPPED" | wc -l) skipped"
if [ -n "$failed" ]; then
    echo "test: failed:$failed"
    exit 1
fi
