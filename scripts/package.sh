#!/bin/sh
# A Debian package and a tarball of a built program. `make package` builds it before.
# package.sh SONDE FOLDER: the program, and where both go. The same program and commit give the
# same octets.
set -eu
cd "$(dirname "$0")/.."
sonde=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")

version=$("$sonde" --version | awk 'NR == 1 { print $2 }')
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# $1: a root, as the package has it below /usr.
usr() {
    install -D -m 755 "$sonde" "$1/bin/sonde"
    strip --strip-debug "$1/bin/sonde"
    install -d "$1/share/man/man1" "$1/share/doc/sonde"
    "$sonde" man "$1/share/man/man1" >/dev/null
    gzip -9n "$1"/share/man/man1/*.1
    # As in the sources, so that links from page to page lead there.
    cp -r --no-preserve=ownership README.md ARCHITECTURE.md CHANGELOG.md docs examples openapi \
        "$1/share/doc/sonde/"
    gzip -9n "$1/share/doc/sonde/CHANGELOG.md"
    for shell in bash zsh fish; do
        case $shell in
        bash) file=bash-completion/completions/sonde ;;
        zsh) file=zsh/vendor-completions/_sonde ;;
        fish) file=fish/vendor_completions.d/sonde.fish ;;
        esac
        mkdir -p "$(dirname "$1/share/$file")"
        "$sonde" completion $shell >"$1/share/$file"
    done
    cat >"$1/share/doc/sonde/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Sonde

Files: *
Copyright: the authors of Sonde
License: Apache-2.0

Files: crates/bpf/c/*
Copyright: the authors of Sonde
License: GPL-2.0

License: Apache-2.0
 The text is in /usr/share/common-licenses/Apache-2.0.

License: GPL-2.0
 The text is in /usr/share/common-licenses/GPL-2.
END
}

# The tarball: below /usr/local, without a unit of a user that it cannot make.
tar_root=$work/sonde-$version-$arch
usr "$tar_root"
install -D -m 644 packaging/deb/sonde.service "$tar_root/share/doc/sonde/sonde.service"
install -D -m 644 packaging/deb/sonde.toml "$tar_root/share/doc/sonde/sonde.toml"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    -czf "$out/sonde-$version-$arch.tar.gz" "sonde-$version-$arch"

deb=$work/deb
usr "$deb/usr"
install -D -m 644 packaging/deb/sonde.service "$deb/usr/lib/systemd/system/sonde.service"
install -d -m 750 "$deb/etc/sonde/conf.d"
install -m 640 packaging/deb/sonde.toml "$deb/etc/sonde/sonde.toml"
install -d "$deb/DEBIAN"
install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$deb/DEBIAN/"
echo /etc/sonde/sonde.toml >"$deb/DEBIAN/conffiles"
# The libraries that it is linked with, in the versions whose symbols it uses.
mkdir -p "$work/debian"
printf 'Source: sonde\n\nPackage: sonde\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e deb/usr/bin/sonde | sed -n 's/^shlibs:Depends=//p')
cat >"$deb/DEBIAN/control" <<END
Package: sonde
Version: $version
Architecture: $arch
Maintainer: the authors of Sonde <sonde@localhost>
Installed-Size: $(du -sk --apparent-size "$deb/usr" | cut -f1)
Depends: $depends, adduser
Recommends: iproute2, ethtool
Section: net
Priority: optional
Description: active, passive and laboratory measurement of networks
 Probes by STAMP and TWAMP Light, reflectors, passive round trips by eBPF, flows
 by IPFIX, benchmarks of forwarding devices; and a station that runs them for
 years, keeps what they measure, judges it by objectives and tells people.
END
find "$deb" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --build "$deb" "$out/sonde_${version}_$arch.deb" >/dev/null
echo "package: $out/sonde_${version}_$arch.deb"
echo "package: $out/sonde-$version-$arch.tar.gz"
