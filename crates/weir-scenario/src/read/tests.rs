use super::*;

/// The diagnostics of a text that must be refused.
fn refused(text: &str) -> String {
    Scenario::from_toml("x.toml", text).expect_err("this must be refused").to_string()
}

#[test]
fn errors_show_place_and_remedy() {
    assert_eq!(
        refused("duration = \"45s\"\nhots = 1\n"),
        "x.toml:2:1: error: unknown key `hots`\n2 | hots = 1\n  | ^^^^\n  help: did you mean `host`?"
    );
}
