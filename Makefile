# The only entry points. `make` alone lists them.

# Rust as rustup installs it, also where the shell was not told; ip and ethtool
# for users whose PATH lacks them.
export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/sbin:/sbin
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
# Namespaces and packet sockets are root's; building is not.
AS_ROOT := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo)

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench lint package

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## Install the Debian packages that are missing; says which and why
	@scripts/setup.sh

run: setup ## Build, and show a station at work on a network of namespaces
	cargo build --release --locked --bin sonde
	$(AS_ROOT) $(RELEASE)/sonde demo --station results/station

test: setup ## All tests; those on real packets are skipped unless root runs them
	@scripts/test.sh

check: ## Unit tests only: offline, without root and set-up, in under two minutes once built
	cargo test --workspace --locked --offline --lib --bins

bench: setup ## Measure Sonde's own speed and accuracy; prints a table
	cargo build --release --locked -p sonde-cli -p sonde-perf
	$(AS_ROOT) $(RELEASE)/sonde-perf

package: setup ## A Debian package and a tarball in target/package, tried in a clean Debian
	cargo build --release --locked --bin sonde
	scripts/package.sh $(RELEASE)/sonde target/package
	$(AS_ROOT) scripts/package-test.sh target/package/sonde_*.deb

lint: setup ## Format, clippy with warnings as errors, rules of the crates, licences
	cargo fmt --all --check
	scripts/lint-crates.sh
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if command -v cargo-deny >/dev/null; then \
		cargo deny --locked check bans licenses sources; \
	else \
		echo "lint: cargo-deny is not installed: licences and sources were not checked"; \
	fi
