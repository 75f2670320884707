#!/bin/sh
# All tests. All of it runs to its end, whatever fails: one fault must not hide the others. What
# failed and what is skipped is named once more at the end.
set -u
cd "$(dirname "$0")/.."

[ "$(id -u)" -eq 0 ] || echo "test: not root: the tests in network namespaces will be skipped"
SONDE_SKIPPED=$(mktemp)
export SONDE_SKIPPED
said=$(mktemp)
trap 'rm -f "$SONDE_SKIPPED" "$said"' EXIT

failed=
{ cargo test --workspace --locked --no-fail-fast || echo "cargo-test failed"; } 2>&1 | tee "$said"
! tail -n 1 "$said" | grep -qx 'cargo-test failed' || failed="$failed cargo-test"
scripts/interop.sh || failed="$failed interop"

sort -u "$SONDE_SKIPPED"
echo "test: $(sort -u "$SONDE_SKIPPED" | wc -l) skipped"
if [ -n "$failed" ]; then
    # Cargo prints what a test said between two lists of names.
    awk '/^failures:$/ { on = 1 } /^test result/ { on = 0 } on' "$said"
    echo "test: failed:$failed"
    exit 1
fi
