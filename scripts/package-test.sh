#!/usr/bin/env bash
# Installs a package in a clean Debian, starts what it brings as its unit does, upgrades it, removes
# it and purges it.
# package-test.sh DEB: as `make package` made it. Needs root, and Debian's archive.
set -euo pipefail
cd "$(dirname "$0")/.."
deb=$(realpath "$1")
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
clean=$target/package/bookworm.tar

say() { printf 'package-test: %s\n' "$*"; }
die() {
    printf 'package-test: %s\n' "$*" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] || die "needs root: it makes a root of its own"
command -v debootstrap >/dev/null || die "debootstrap is missing: run 'make setup'"

# Such a root is made once for each build folder.
work=$(mktemp -d)
root=$work/root
cleanup() {
    # Its end is asked for by the end of its orders.
    exec 7>&-
    [ -z "${station:-}" ] || wait "$station" || true
    for mount in dev/null dev/urandom proc sys; do
        umount -q "$root/$mount" 2>/dev/null || true
    done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
if [ ! -f "$clean" ]; then
    say "making a clean root"
    mkdir -p "$(dirname "$clean")"
    debootstrap --variant=minbase --include=adduser,systemd,ca-certificates bookworm "$work/first" \
        >"$work/log" 2>&1 || { tail -n 20 "$work/log"; die "debootstrap failed: can the archive be reached?"; }
    tar -C "$work/first" --one-file-system -cf "$clean.part" .
    mv "$clean.part" "$clean"
    rm -rf --one-file-system "$work/first"
fi
mkdir "$root"
tar -C "$root" -xf "$clean"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
for device in null urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
cp /etc/resolv.conf "$root/etc/resolv.conf"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
# $1: the package; apt finds what it depends on.
install_deb() {
    cp "$1" "$root/tmp/sonde.deb"
    inside apt-get -q update >/dev/null
    inside apt-get -q install -y --no-install-recommends --allow-downgrades /tmp/sonde.deb >"$work/log" 2>&1 ||
        { cat "$work/log"; die "apt-get refuses it"; }
}
expect() {
    say "$1"
    shift
    "$@" || die "failed: $*"
}
lacks() { ! grep -q "$@"; }

install_deb "$deb"
expect "it says its version" inside sonde --version
expect "a user of its own" inside getent passwd sonde
expect "its configuration can be run" inside sonde check-config /etc/sonde/sonde.toml
for example in "$root"/usr/share/doc/sonde/examples/station/*.toml; do
    expect "example $(basename "$example")" inside sonde check-config "${example#"$root"}"
done
expect "a man page" test -s "$root/usr/share/man/man1/sonde-run.1.gz"
expect "completions" inside bash -n /usr/share/bash-completion/completions/sonde
# What the chroot lacks, the manual's reader and D-Bus, is not the unit's fault.
inside systemd-analyze verify --man=no /usr/lib/systemd/system/sonde.service 2>&1 | tee "$work/verify"
expect "the unit is one" lacks sonde.service "$work/verify"
inside systemd-analyze security --offline=true --no-pager sonde.service 2>/dev/null |
    sed -n 's/^.*Overall exposure level.*: /package-test: exposure of the unit, 0 to 10: /p'
[ -L "$root/etc/systemd/system/multi-user.target.wants/sonde.service" ] || die "the unit is not enabled"

# As the unit has it: the user, the capabilities, the folders.
run_unit() {
    mkdir -p "$root/var/lib/sonde"
    inside chown sonde:sonde /var/lib/sonde
    rm -f "$root/run/notify"
    capabilities=$(sed -n 's/^AmbientCapabilities=//p' "$root/usr/lib/systemd/system/sonde.service" |
        tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
    mkfifo "$work/orders"
    python3 tests/interop/notified.py "$root/run/notify" \
        chroot "$root" setpriv --reuid sonde --regid sonde --init-groups \
        --inh-caps="$capabilities" --ambient-caps="$capabilities" --bounding-set="-all,$capabilities" \
        --no-new-privs env -i PATH=/usr/bin NOTIFY_SOCKET=/run/notify WATCHDOG_USEC=400000 \
        /usr/bin/sonde run /etc/sonde/sonde.toml \
        <"$work/orders" >"$work/states" 2>"$work/station" &
    station=$!
    exec 7>"$work/orders"
    rm "$work/orders"
}
# $1: a state, $2: how often. Bounded: what never comes fails.
hears() {
    local left=600
    until [ "$(grep -c "^$1" "$work/states")" -ge "$2" ]; do
        left=$((left - 1))
        [ "$left" -gt 0 ] && kill -0 "$station" 2>/dev/null || { cat "$work/states" "$work/station"; return 1; }
        sleep 0.1
    done
}
end_unit() {
    echo end >&7
    exec 7>&-
    wait "$station" || { cat "$work/station"; return 1; }
    station=
}
cat >"$root/etc/sonde/conf.d/here.toml" <<END
[reflect.main]
port = [18620]
[probe.self]
stream = { interval = "10ms", port = 18620 }
run = { record_interval = "100ms" }
target = [{ host = "127.0.0.1", name = "self" }]
END
inside chgrp sonde /etc/sonde/conf.d/here.toml
run_unit
expect "the station is ready" hears READY=1 1
expect "it goes on saying that it works" hears WATCHDOG=1 10
expect "its units work" sh -c "! grep -q 'waits\|failed' '$work/station'"
expect "its state is JSON" sh -c "chroot '$root' sonde status --json | python3 -m json.tool >'$work/status'; test -s '$work/status'"
expect "it is no longer root" sh -c "ps -o user:20= -C sonde | grep -qv root"
expect "it ends in order" end_unit
kept=$(find "$root/var/lib/sonde" -type f | wc -l)
expect "it keeps what it measures" test "$kept" -gt 0

say "the next version"
dpkg-deb -R "$deb" "$work/next"
sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
dpkg-deb --root-owner-group -b "$work/next" "$work/next.deb" >/dev/null
echo '# mine' >>"$root/etc/sonde/sonde.toml"
install_deb "$work/next.deb"
expect "it is the next one" inside sh -c "dpkg-query -W -f '\${Version}' sonde | grep -q next"
expect "the user's configuration stays" grep -q '# mine' "$root/etc/sonde/sonde.toml"
run_unit
expect "the next version is ready" hears READY=1 1
expect "it ends in order, too" end_unit
expect "what was measured before is there" inside sonde query overview --store /var/lib/sonde/store

inside apt-get -q remove -y sonde >"$work/log" 2>&1 || { cat "$work/log"; die "it cannot be removed"; }
expect "the program is gone" test ! -e "$root/usr/bin/sonde"
expect "measurements and configuration stay" test -d "$root/var/lib/sonde/store" -a -f "$root/etc/sonde/sonde.toml"
rm "$root/etc/sonde/conf.d/here.toml"
inside apt-get -q purge -y sonde >"$work/log" 2>&1 || { cat "$work/log"; die "it cannot be purged"; }
expect "nothing is left" test ! -e "$root/var/lib/sonde" -a ! -e "$root/etc/sonde"
expect "nor is the user" sh -c "! chroot '$root' getent passwd sonde"
say "all is well"
