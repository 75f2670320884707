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
# The package in a clean Debian, of the program that the tests have built.
if [ "$(id -u)" -ne 0 ] || [ "${SONDE_INTEROP:-}" = skip ]; then
    echo "package: not tried: it needs root and Debian's archive" | tee -a "$SONDE_SKIPPED"
else
    target=${CARGO_TARGET_DIR:-target}
    rm -rf "$target/package/test"
    scripts/package.sh "$target/debug/sonde" "$target/package/test" &&
        scripts/package-test.sh "$target"/package/test/sonde_*.deb || failed="$failed package"
fi

sort -u "$SONDE_SKIPPED"
echo "test: $(sort -u "$SONDE_SKIPPED" | wc -l) skipped"
if [ -n "$failed" ]; then
    # Cargo prints what a test said between two lists of names.
    awk '/^failures:$/ { on = 1 } /^test result/ { on = 0 } on' "$said"
    echo "test: failed:$failed"
    exit 1
fi
