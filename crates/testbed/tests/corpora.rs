//! The fuzzers' corpora (fuzz/corpus) through the fuzzers' own functions, and each input again cut
//! short and with single octets changed.

#[path = "../../../fuzz/src/agent.rs"]
mod agent;
#[path = "../../../fuzz/src/otg.rs"]
mod otg;
#[path = "../../../fuzz/src/plan.rs"]
mod plan;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn plans() {
    replay::replay("plan", 60, plan::plan);
}

#[test]
fn messages_of_agents_and_controllers() {
    replay::replay("agent", 200, agent::agent);
}

#[test]
fn configurations_of_the_traffic_generator() {
    replay::replay("otg", 200, otg::otg);
}
