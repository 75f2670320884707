#!/bin/sh
# The rules of ARCHITECTURE.md that neither Cargo nor clippy enforces: which crate uses which,
# and what only some of them may do.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
    printf 'lint: %s (ARCHITECTURE.md, "The crates")\n' "$*" | tee -a "$scratch/failed" >&2
}

# Fails with the first of the lines that come in, if there are any: WHAT
none() {
    head -n 3 >"$scratch/found"
    [ ! -s "$scratch/found" ] || fail "$1:
$(cat "$scratch/found")"
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
    bpf) echo wire results sys ;;
    meter | store) echo wire results ;;
    lab) echo results sys ;;
    run) echo wire results sys bpf port meter ;;
    station) echo wire results sys meter report run testbed api server store ;;
    testbed) echo wire results sys bpf port meter lab report run server ;;
    cli) echo wire results sys lab report run testbed station store ;;
    perf) echo wire results sys bpf port meter lab report run testbed server store ;;
    fuzz) echo wire results meter run server testbed ;;
    *) return 1 ;;
    esac
}

# The crates that may use what others make, by its name; fails where all may.
users() {
    case $1 in
    clap | clap_* | argh | lexopt | pico-args | gumdrop | signal-hook | signal-hook-* | ctrlc | \
        terminal_size | crossterm | termion | console | ratatui | tracing-subscriber | env_logger) echo cli ;;
    libc | nix | rustix) echo sys bpf port run cli ;;
    rusqlite) echo store ;;
    libbpf-rs | libbpf-cargo) echo bpf ;;
    axum | hyper | hyper-* | tokio | tokio-* | async-* | futures* | smol | mio | reqwest) echo server ;;
    *) return 1 ;;
    esac
}

# What a manifest says as Cargo reads it, whatever its form: "CRATE DEPENDENCY KIND NAME FEATURES",
# KIND being null, build or dev, and NAME another one that it is given, or null.
dependencies() {
    tr '{' '\n' | awk '
        function field(name) {
            if (!match($0, "\"" name "\":(\"[^\"]*\"|null|\\[[^]]*\\])")) return "null"
            text = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
            gsub(/[" ]/, "", text)
            return text
        }
        /^"name":"[^"]*","version":/ { crate = field("name"); sub("sonde-", "", crate) }
        /^"name":"[^"]*","source":/ {
            print crate, field("name"), field("kind"), field("rename"), field("features")
        }'
}

# The fuzzers are a workspace of their own.
for manifest in Cargo.toml fuzz/Cargo.toml; do
    cargo metadata --no-deps --offline --format-version 1 --manifest-path "$manifest" >"$scratch/metadata" ||
        fail "cargo cannot read $manifest"
    dependencies <"$scratch/metadata" >>"$scratch/dependencies"
done

while read -r crate dependency kind name features; do
    # By another name, a dependency would pass what is checked of the code.
    [ "$name" = null ] || fail "$crate: $dependency keeps its own name"
    [ "$kind" != dev ] || continue
    # What tests share reads the environment and prints: no program may have it.
    case $features in *test-support* | *testing*) fail "$crate: $features is for [dev-dependencies]" ;; esac
    case $dependency in
    sonde-*) allowed=$(may_use "$crate") || fail "$crate has no rule: add it to scripts/lint-crates.sh" ;;
    *) allowed=$(users "$dependency") || continue ;;
    esac
    case " $allowed " in
    *" ${dependency#sonde-} "* | *" $crate "*) ;;
    *) fail "$crate may not use ${dependency#sonde-}" ;;
    esac
done <"$scratch/dependencies"

# All code as "FILE:LINE: TEXT", without comments and tests: modules of tests are files of that name,
# or the end of a file, as clippy sees to.
find crates/*/src perf/src fuzz/src fuzz/fuzz_targets -name '*.rs' | sort >"$scratch/files"
grep -v -e '/tests.rs$' -e '/src/.*/tests/' -e '^crates/results/src/testing' "$scratch/files" |
    while read -r file; do
        awk -v file="$file" '
            held && /^mod [a-z_]+ \{/ { exit }
            { held = /^#\[cfg\(test\)\]/ }
            !/^ *\/\// { print file ":" FNR ": " $0 }' "$file"
    done >"$scratch/code"

# None of the crates but those named has code that matches: WHAT PATTERN CRATE...
only() {
    what=$1 pattern=$2
    shift 2
    allowed=$(printf '|%s' "$@")
    grep -E "$pattern" "$scratch/code" | grep -Ev "^(crates/)?(${allowed#|})/" | none "only $* may $what"
}

# In a crate only some files have code that matches: WHAT CRATE PATTERN FILE...
only_files() {
    what=$1 crate=$2 pattern=$3
    shift 3
    allowed=$(printf '|%s' "$@")
    grep "^crates/$crate/" "$scratch/code" | grep -E "$pattern" |
        grep -Ev "^crates/$crate/src/(${allowed#|})" | none "in $crate only $* may $what"
}

# What is left out above is compiled for tests alone.
while read -r file; do
    awk -v file="$file" '
        /^ *(pub(\([a-z]+\))? )?mod tests;/ && !held { print file ":" FNR ": " $0 }
        { held = /^ *#\[cfg\(test\)\]/ || held && /^ *#\[/ }' "$file"
done <"$scratch/files" | none 'a module of tests is for #[cfg(test)]'
grep -E '#\[path' "$scratch/code" | grep -Ev '^(fuzz/|perf/src/main.rs:|crates/lab/src/lib.rs:)' | none 'a module is where its name says'
grep -B1 -E '^(pub )?mod testing;' crates/results/src/lib.rs | grep -q 'feature = "testing"' ||
    fail 'results: its module testing is for the feature of that name'

unsafe='(^|[^_[:alnum:]])unsafe([^-_[:alnum:]]|$)'
only 'be unsafe' "$unsafe" sys bpf port meter
only_files 'be unsafe' meter "$unsafe" flow/prefetch.rs
only 'print' '(^|[^_[:alnum:]])e?print(ln)?!|io::(stdout|stderr)\(' cli perf
only 'read arguments or the environment, or end the process' \
    'env::(args|var|current_exe)|process::(exit|abort)' cli perf
only 'look at the terminal' 'is_terminal|isatty|terminal_size|TIOCGWINSZ|tracing_subscriber' cli
signals='sigaction|sigwait|signalfd|sigmask|libc::signal|signal_hook|SIG(INT|TERM|HUP|URG|USR)'
only 'handle signals' "$signals" cli bpf
# Nothing else ends a call that sends live frames.
only_files 'handle signals' bpf "$signals" load_gen/generator.rs
only 'be asynchronous' '(^|[^_[:alnum:]])async *(fn|move|unsafe|\{|\|)|\.await([^[:alnum:]_]|$)' server
only 'do input or output' \
    '(^|[^_[:alnum:]])fs::|std::process|process::(Command|Child|Stdio)|io::(stdin|stdout|stderr)|Tcp(Stream|Listener)|UdpSocket|Unix(Stream|Listener|Datagram)|ToSocketAddrs' \
    sys bpf port lab run station testbed server store cli perf fuzz
only 'have threads' 'thread::(spawn|scope|Builder|sleep)' sys port lab run station testbed server store cli perf
clock='(Instant|SystemTime)::now|clock_gettime'
only 'read a clock' "$clock" sys bpf port lab run station testbed server cli perf
only_files 'read clocks and start threads' station \
    "$clock|(steady|tai|unix|realtime)_now|thread::(spawn|Builder)" \
    runner.rs service.rs serve.rs alert/delivery export/on_demand export/thread.rs \
    keep/thread.rs live/thread.rs judge/thread.rs explain/thread.rs interfaces/thread.rs
# The system has time, prefixes and hardware addresses of packets, and nothing else of them.
grep '^crates/sys/' "$scratch/code" |
    sed -E 's/sonde_wire::(Time|Scale|\{(SECOND, )?Scale, Time\}|prefix::Prefix|ethernet::\{Mac, Tag\})([^[:alnum:]_:]|$)//' |
    grep sonde_wire | none 'sys knows no packets'
only_files 'change the host beyond its namespaces' lab \
    'fs::write\([^)]*/(proc|sys)/|kernel_path|[^.]run\(&\["(chrt|sysctl|modprobe|ethtool|tc|nft)"' tune/
grep -q '^#!\[no_std\]' crates/wire/src/lib.rs || fail 'wire is no_std'
grep -E '^crates/wire/.*extern crate std|^crates/wire/.*[^_[:alnum:]]std::' "$scratch/code" | none 'wire has no std'

[ ! -e "$scratch/failed" ]
