//! The fuzzers' corpora (fuzz/corpus) through the fuzzers' own functions, and each input again cut
//! short and with single octets changed.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

#[test]
fn target_files() {
    replay::replay("targets", 200, targets::targets);
}
