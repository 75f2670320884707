//! What docs/embedding.md shows is a program that works.

use std::fs::read_to_string;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::PoisonError;

use super::ALONE;

#[path = "../../examples/embed.rs"]
#[allow(dead_code)]
mod embed;

#[test]
fn the_program_of_the_page_runs() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    embed::measure(free).unwrap();
}

#[test]
fn the_page_shows_the_program_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = read_to_string(root.join("../../docs/embedding.md")).unwrap();
    let program = read_to_string(root.join("examples/embed.rs")).unwrap();
    let shown = page.split_once("```rust\n").and_then(|(_, rest)| rest.split_once("```\n"));
    assert_eq!(shown.unwrap().0, program, "docs/embedding.md has another text than the example");
}
