//! The objectives that docs/sla.md shows.

use super::super::Objective;

#[test]
fn the_examples_of_the_documentation_are_sound() {
    let text = include_str!("../../../../../docs/sla.md");
    let mut examples = 0;
    for block in text.split("```json\n").skip(1) {
        let json = block.split("```").next().unwrap();
        let objective: Objective =
            serde_json::from_str(json).unwrap_or_else(|e| panic!("{e} in {json}"));
        assert_eq!(objective.diagnose(), [], "{json}");
        // The line after it says it in words.
        let words = objective.to_string();
        assert!(text.contains(&words), "docs/sla.md lacks the words: {words}");
        examples += 1;
    }
    assert!(examples >= 4, "{examples}");
}
