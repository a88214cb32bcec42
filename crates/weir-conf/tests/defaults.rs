//! The defaults that disciplines declare, as the reader of altq.conf reads them.

use weir_core::queue::Kind;
use weir_core::sched::Registry;
use weir_text::number;

#[test]
fn a_default_means_what_it_means_when_it_is_written() {
    let (registry, mut read) = (Registry::builtin(), 0);
    for entry in registry.iter() {
        for spec in registry.params(entry).filter(|s| s.default.starts_with(|c: char| c.is_ascii_digit())) {
            let word = spec.default;
            let value = match spec.kind {
                Kind::Count { .. } => number::integer(word, "").ok().map(|r| r.value as u64),
                Kind::Bytes { .. } => number::bytes(word).ok(),
                Kind::Time { bare } => number::time(word, Some(bare)).ok().map(|r| r.value.as_nanos()),
                // The reader rounds to the nearest, a constructor down.
                Kind::Percent => number::percent(word).ok().map(|r| r.value.raw()),
                Kind::Fraction => number::fraction(word).ok().map(|r| r.raw()),
                kind => panic!("{} {}: a number for {kind}", entry.name, spec.name),
            };
            let value = value.unwrap_or_else(|| panic!("{} {}: `{word}`", entry.name, spec.name));
            let near = matches!(spec.kind, Kind::Percent | Kind::Fraction);
            let number = spec.default_number();
            assert!(
                value.abs_diff(number) <= u64::from(near),
                "{} {}: {value}, {number}",
                entry.name,
                spec.name
            );
            read += 1;
        }
        for spec in registry.params(entry) {
            if let Kind::Word(words) = spec.kind {
                assert!(words.contains(&spec.default), "{} {}: `{}`", entry.name, spec.name, spec.default);
            }
        }
    }
    assert!(read > 50, "{read} defaults");
}
