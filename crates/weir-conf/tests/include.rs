//! The files of a configuration, put together: messages name the file and the line that a person edits.
#![allow(clippy::unwrap_used)]

use weir_core::sched::Registry;
use weir_text::include;

/// What the reader of altq.conf says, it says of the file and the line that a person edits.
#[test]
fn messages_name_the_included_file() {
    let registry = Registry::builtin();
    let main = "interface lan0\ninclude s.conf\nsla lan0 17 10.0.1.0/24 bw 1M\nklass x\n";
    let other = "# contracts\nsla lan0 17 10.0.0.0/24 bw 1M\ninterface lan0\nsla lan0 18 10.0.0.1/24 bw 1M\n";
    let text = include::whole("a.conf", main, 1_000, &mut |_| Ok(other.to_string())).unwrap();
    let said: Vec<String> = weir_conf::read("a.conf", &text, &registry)
        .diagnostics
        .iter()
        .map(|d| format!("{}:{}:{} {} / {}", d.file, d.line, d.column, d.message, d.help))
        .collect();
    let expected = [
        "a.conf:3:10 contract 17 is there already / give each contract of an interface its own number",
        "a.conf:4:1 unknown command `klass` / did you mean `class`?",
        "s.conf:3:11 interface `lan0` is declared twice / it is declared on line 1 of a.conf: make one line of the two",
        "s.conf:4:13 `10.0.0.1/24` has bits beyond its length / the prefix is `10.0.0.0/24`",
    ];
    assert_eq!(said, expected);
}

/// The whole text says the same wherever it goes, also without the files: it is what a running box keeps.
#[test]
fn the_whole_text_stands_by_itself() {
    let registry = Registry::builtin();
    let plan = |text: &str| weir_conf::read("x", text, &registry).into_result().unwrap();
    let contract = "sla lan0 17 10.0.0.0/24 bw 1M\n";
    let whole =
        include::whole("a", "interface lan0\ninclude s\n", 1_000, &mut |_| Ok(contract.into())).unwrap();
    assert_eq!(plan(&whole), plan(&format!("interface lan0\n{contract}")));
    assert_eq!(include::whole("b", &whole, 1_000, &mut |_| Err(String::new())).unwrap(), whole);
    // A line that nobody has put in place of its file is refused.
    let outcome = weir_conf::read("socket", "include s.conf\n", &registry);
    assert_eq!(outcome.diagnostics[0].message, "`include` in a text that is no file");
}
