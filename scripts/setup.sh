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
ca-certificates cargo fetches the dependencies over TLS
python3-venv   a private place for the Python peers of the tests
tcpdump        captures what the tests judge
tshark         judges it: round trips of TCP and DNS, losses
tcptrace       judges it too: round trips by sequence numbers
iputils-ping   ping: traffic of the tests
dnsmasq-base   a DNS server for the tests
bind9-dnsutils dig: its client
nfdump         nfcapd and nfdump: a collector of flows that the tests export to
pmacct         nfacctd: another
jq             reads records where the documentation does; a test carries that out
dpkg-dev       dpkg-shlibdeps: what the package depends on
debootstrap    a clean Debian in which the package is tried
iperf3         the load of make bench on a router that is watched
'
# As in Cargo.toml, rust-version.
RUST_NEEDED=1.89

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        [ -n "${asked:-}" ] || say "sudo may ask for your password"
        asked=1
        sudo "$@"
    else
        die "not root and no sudo; as root run: $*"
    fi
}
update_lists() {
    [ -z "${updated:-}" ] || return 0
    updated=1
    say "apt-get update: learn the packages' current versions"
    as_root apt-get -q update || say "apt-get update failed; trying with the package lists at hand"
}
install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
}

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
        update_lists
        say "apt-get install: without asking, without recommended extras"
        # shellcheck disable=SC2086 # one word a name
        install $missing || die "apt-get could not install:$missing; see its message above"
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

# Rust: a fit one that is there is left alone. Else Debian's `-web` packages, which follow
# the releases (browsers need them); plain `rustc` of Debian 12 is too old.
is_fit() { # of what 'cargo --version' printed, or a package's version
    echo "$1" | awk -v needed="$RUST_NEEDED" '{
        version = $0; sub(/^cargo /, "", version)
        split(version, have, "."); split(needed, want, ".")
        exit !(have[1] > want[1] || (have[1] == want[1] && have[2] + 0 >= want[2] + 0))
    }'
}
have_cargo() { cargo=$(PATH="${HOME:-/root}/.cargo/bin:$PATH" command -v cargo); }
if have_cargo; then
    version=$("$cargo" --version) || die "$cargo does not run; reinstall Rust, then run this again"
    is_fit "$version" && exit 0
    found="$version ($cargo) is older than $RUST_NEEDED"
    case $cargo in
        */.cargo/bin/*) die "$found; run 'rustup update stable', then run this again" ;;
    esac
else
    found='no cargo'
fi
hint="install Rust $RUST_NEEDED or newer with rustup (rust-lang.org, Get Started), then run this again"
command -v apt-get >/dev/null || die "$found; $hint"
candidate=$(apt-cache policy cargo-web 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
if ! is_fit "${candidate:-0.0}"; then
    update_lists # a list of long ago has an older one
    candidate=$(apt-cache policy cargo-web 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
fi
if ! is_fit "${candidate:-0.0}"; then
    # Stable's own is old; the newer one came as a security update.
    grep -rqs -e '-security' /etc/apt/sources.list /etc/apt/sources.list.d/ ||
        hint="enable Debian's security updates (suite $(. /etc/os-release; echo "$VERSION_CODENAME")-security), where a newer one is, or $hint"
    die "$found, and Debian's cargo-web is ${candidate:-not to be had}; $hint"
fi
say "$found: installing Debian's Rust ${candidate%%[+~-]*} (rustc-web, cargo-web, rustfmt-web)"
install --no-remove rustc-web cargo-web rustfmt-web ||
    die "apt-get could not install Rust (an older rustc or Debian's rustup in its way is not
setup: removed without asking: 'apt-get install rustc-web cargo-web' replaces it); or $hint"
have_cargo || die "Rust was installed, but cargo is not on the PATH; add /usr/bin, then run this again"
