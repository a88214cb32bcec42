//! What `weir disciplines` and the book say of a parameter's value is what the reader takes.

#![allow(clippy::unwrap_used)]

use weir_conf::{Diagnostic, read};
use weir_core::queue::{Kind, ParamSpec, Scope};
use weir_core::sched::{Entry, Registry};

/// What the reader says of `value` where it stands as that of `spec`.
fn said(registry: &Registry, entry: &Entry, spec: &ParamSpec, value: &str) -> Vec<Diagnostic> {
    let option = match spec.kind {
        Kind::Curve => value.to_string(),
        _ => format!("{} {value}", spec.name),
    };
    let text = match spec.scope {
        Scope::Discipline => format!("interface em0 bandwidth 10M {} {option}\n", entry.name),
        Scope::Class => {
            format!("interface em0 bandwidth 10M {0}\nclass {0} em0 a NULL {option}\n", entry.name)
        }
    };
    let value = value.split(' ').next().unwrap().to_string();
    let all = read("altq.conf", &text, registry).diagnostics;
    all.into_iter().filter(|d| d.is_error() && under(d).starts_with(&value)).collect()
}

/// The text that a diagnostic underlines.
fn under(d: &Diagnostic) -> String {
    d.text.chars().skip((d.column as usize).saturating_sub(1)).take(d.length as usize).collect()
}

#[test]
fn every_form_that_is_shown_is_read() {
    let registry = Registry::builtin();
    let (mut shown, mut refused, mut wrong) = (0, 0, Vec::new());
    for entry in registry.iter().filter(|entry| entry.build.is_some()) {
        for spec in registry.params(entry).filter(|spec| spec.kind != Kind::Flag) {
            let form = spec.form();
            let examples: Vec<&str> = form.split('`').skip(1).step_by(2).collect();
            assert!(!examples.is_empty(), "{}: {form}", spec.name);
            // `MTU` is the interface's, and not a value.
            let defaults = Some(spec.default).filter(|default| !matches!(*default, "" | "MTU"));
            for example in examples.into_iter().chain(defaults) {
                let said = said(&registry, entry, spec, example);
                wrong.extend(said.first().map(|d| format!("{} {}: {d}", entry.name, spec.name)));
                shown += 1;
            }
            // Reversed: what is no value is refused where it stands.
            refused += self::said(&registry, entry, spec, "?").len().min(1);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(shown > 300 && refused > 100, "{shown} forms, {refused} refused");
}
