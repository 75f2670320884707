#!/bin/sh
# The rules of ARCHITECTURE.md that neither Cargo nor clippy enforces: which crate uses which,
# and what only some of them may do.
set -eu
cd "$(dirname "$0")/.."

failed=0
fail() {
    printf 'lint: %s (ARCHITECTURE.md, "The crates")\n' "$*" >&2
    failed=1
}

# The crates that a crate may use; tests may use others.
may_use() {
    case $1 in
    wire) ;;
    results | sys) echo wire ;;
    report) echo results ;;
    api) echo wire results ;;
    server) echo results api ;;
    port) echo wire sys bpf ;;
    bpf | meter | store) echo wire results ;;
    lab) echo results sys ;;
    run) echo wire results sys bpf port meter ;;
    station) echo wire results sys meter run api server store ;;
    testbed) echo wire results sys bpf port meter lab report run server ;;
    cli) echo wire results sys lab report run testbed station store ;;
    perf) echo wire results sys bpf port meter lab report run testbed server store ;;
    *) return 1 ;;
    esac
}

# Names of the dependencies of a manifest, without those of tests.
dependencies() {
    awk '/^\[/ { on = $0 ~ /^\[(target\..*\.)?(build-)?dependencies\]/ }
        /^\[(target\..*\.)?(build-)?dependencies\./ { sub(/.*dependencies\./, ""); sub(/\].*/, ""); print; next }
        on && /^[a-z]/ { split($0, a, /[. =]/); print a[1] }' "$1"
}

# Code without its tests: a module of tests is the end of its file; comments apart.
code() {
    find "$1" -name '*.rs' ! -name tests.rs ! -path '*/tests/*' ! -path 'crates/results/src/testing*' | sort | while read -r file; do
        awk -v file="$file" '
            held && /^mod [a-z_]+ \{/ { exit }
            { held = /^#\[cfg\(test\)\]/ }
            !/^ *\/\// { print file ":" FNR ": " $0 }' "$file"
    done
}

# None of the crates but those named has code that matches: WHAT PATTERN CRATE...
only() {
    what=$1 pattern=$2
    shift 2
    for folder in crates/*; do
        crate=${folder#crates/}
        case " $* " in *" $crate "*) continue ;; esac
        found=$(code "$folder/src" | grep -E "$pattern" | head -n 3 || true)
        [ -z "$found" ] || fail "$crate may not $what:
$found"
    done
}

for manifest in crates/*/Cargo.toml perf/Cargo.toml; do
    crate=$(basename "$(dirname "$manifest")")
    allowed=" $(may_use "$crate") " || fail "$crate has no rule: add it to scripts/lint-crates.sh"
    for dependency in $(dependencies "$manifest"); do
        case $dependency in
        sonde-*)
            case $allowed in
            *" ${dependency#sonde-} "*) ;;
            *) fail "$crate may not use ${dependency#sonde-}" ;;
            esac
            ;;
        clap | clap_* | argh | lexopt | pico-args | gumdrop | signal-hook | signal-hook-* | ctrlc | \
            terminal_size | crossterm | termion | console | ratatui | tracing-subscriber | env_logger)
            case $crate in cli | perf) ;; *) fail "$crate may not use $dependency" ;; esac ;;
        libc | nix | rustix) case $crate in sys | bpf | port | run | cli) ;; *) fail "$crate may not use $dependency" ;; esac ;;
        rusqlite) case $crate in store) ;; *) fail "$crate may not use $dependency" ;; esac ;;
        libbpf-rs | libbpf-cargo) case $crate in bpf) ;; *) fail "$crate may not use $dependency" ;; esac ;;
        axum | hyper | hyper-* | tokio | tokio-* | async-* | futures* | smol | mio | reqwest) case $crate in server) ;; *) fail "$crate may not use $dependency" ;; esac ;;
        esac
    done
done

# By another name, a dependency would pass all of the above.
for manifest in Cargo.toml crates/*/Cargo.toml perf/Cargo.toml; do
    ! grep -nE '(^|[{,[:space:]])package[[:space:]]*=' "$manifest" ||
        fail "$manifest: a dependency keeps its own name"
done

# What tests share reads the environment and prints: no program may have it.
for manifest in crates/*/Cargo.toml perf/Cargo.toml; do
    awk '/^\[/ { on = $0 ~ /dev-dependencies/ } /"test-support"/ && !on { exit 1 }' "$manifest" ||
        fail "$manifest: test-support is for [dev-dependencies]"
done

only 'be unsafe, but in meter/src/flow/prefetch.rs' \
    '(^|[^_[:alnum:]/])unsafe (\{|fn|impl|trait|extern)' sys bpf port meter
found=$(code crates/meter/src | grep -v '^crates/meter/src/flow/prefetch.rs:' |
    grep -E '(^|[^_[:alnum:]/])unsafe (\{|fn|impl)' || true)
[ -z "$found" ] || fail "meter may be unsafe only in flow/prefetch.rs:
$found"
only 'print' '(^|[^_[:alnum:]])e?print(ln)?!|io::(stdout|stderr)\(' cli
only 'read its arguments or environment, or end the process' \
    'env::(args|var|current_exe)|process::(exit|abort)' cli
only 'look at the terminal' 'is_terminal|isatty|terminal_size|TIOCGWINSZ|tracing_subscriber' cli
only 'catch a signal' 'sigaction|sigwait|signalfd|sigmask|libc::signal|signal_hook|SIGINT|SIGTERM|SIGHUP' cli bpf
only 'be asynchronous' '(^|[^_[:alnum:]])async (fn|move|\{)|\.await([^[:alnum:]_]|$)' server
only 'do input or output' '(^|[^_[:alnum:]])fs::|std::process::|std::io::(stdin|stdout|stderr)|(TcpStream|TcpListener|UdpSocket)' sys bpf port lab run station testbed server store cli
only 'read a clock' '(Instant|SystemTime)::now|clock_gettime' sys bpf port lab run testbed server cli

found=$(code crates/station/src |
    grep -Ev '^crates/station/src/(runner|service|serve|alert/delivery|keep/thread|live/thread|judge/thread).rs:' |
    grep -E '(steady|tai|unix|realtime)_now|thread::(spawn|Builder)' || true)
[ -z "$found" ] || fail "station reads clocks and starts threads in runner.rs, service.rs, serve.rs, alert/delivery.rs and the thread.rs of keep, live and judge alone:
$found"

exit $failed
