#!/bin/sh
# Checks what building, running and testing Sonde needs, and installs the Debian
# packages that are missing. Says what it does; with nothing missing it says nothing.
set -eu

# The package, and what needs it.
NEEDED='
clang          compiles the eBPF programs
gcc            links the binary and compiles libbpf
libc6-dev      the C library and kernel headers
make           builds libbpf
pkg-config     finds libelf and zlib
libelf-dev     libbpf reads object files with it
zlib1g-dev     libelf needs it
iproute2       ip: network namespaces, links and routes of the demo and the tests
ethtool        switches features of the virtual links
nftables       nft: the firewall and the address translation among the devices of the lab
procps         sysctl: forwarding in the router of the demo and the tests
python3-venv   a private place for the Python peers of the tests
tcpdump        captures what the tests judge
tshark         judges it: round trips of TCP and DNS, losses
tcptrace       judges it too: round trips by sequence numbers
iputils-ping   ping: traffic of the tests
dnsmasq-base   a DNS server for the tests
bind9-dnsutils dig: its client
nfdump         nfcapd and nfdump: a collector of flows that the tests export to
pmacct         nfacctd: another
'
# As in Cargo.toml, rust-version.
RUST_NEEDED=1.89

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

names=$(printf '%s' "$NEEDED" | awk 'NF { print $1 }')

if command -v dpkg-query >/dev/null; then
    # One query for all. Packages that dpkg never heard of are reported on standard
    # error and by the exit status; both only mean that they are missing.
    # shellcheck disable=SC2086 # one word a name
    present=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $names 2>/dev/null |
        awk '$2 == "installed" { print $1 }') || true
    missing=
    for name in $names; do
        case "
$present
" in
        *"
$name
"*) ;;
        *) missing="$missing $name" ;;
        esac
    done
    if [ -n "$missing" ]; then
        say "packages to install, and what for:"
        for name in $missing; do
            printf '%s' "$NEEDED" | awk -v name="$name" \
                '$1 == name { $1 = ""; printf "setup:   %-14s%s\n", name, $0 }'
        done
        as_root=
        if [ "$(id -u)" -ne 0 ]; then
            command -v sudo >/dev/null ||
                die "not root and no sudo; as root run: apt-get install$missing"
            as_root=sudo
            say "sudo may ask for your password"
        fi
        say "apt-get update: learn the packages' current versions"
        $as_root apt-get -q update ||
            say "apt-get update failed; trying with the package lists at hand"
        say "apt-get install: without asking, without recommended extras"
        # shellcheck disable=SC2086 # one word a name
        $as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get -q install -y --no-install-recommends $missing ||
            die "apt-get could not install:$missing; see its message above"
    fi
else
    for tool in clang gcc make pkg-config ip ethtool sysctl python3; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "$tool" >/dev/null || {
            say "no '$tool', and this is no Debian, so nothing was installed;"
            say "install the like of these Debian packages yourself:"
            printf '%s' "$NEEDED" | awk 'NF { print "setup:   " $0 }'
            exit 1
        }
    done
fi

# Debian's own Rust is too old in Debian 12, so Rust is not installed by apt.
rust_hint="install Rust with rustup (rust-lang.org, Get Started), or if you have rustup
setup: run 'rustup update stable'; then run this again"
command -v cargo >/dev/null || die "no cargo; $rust_hint"
version=$(cargo --version) || die "cargo does not run; $rust_hint"
echo "$version" | awk -v needed="$RUST_NEEDED" '{
    split($2, have, "."); split(needed, want, ".")
    exit !(have[1] > want[1] || (have[1] == want[1] && have[2] + 0 >= want[2] + 0))
}' || die "$version is older than $RUST_NEEDED; $rust_hint"
