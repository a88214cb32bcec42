//! `weir disciplines`: what there is.

use super::{Done, Failure, print_json, print_table, table};
use serde_json::json;
use weir_core::queue::Scope;
use weir_core::sched::{Entry, Registry};

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Discipline => "interface",
        Scope::Class => "class",
    }
}

fn as_json(registry: &Registry, entry: &Entry) -> serde_json::Value {
    let params: Vec<_> = registry
        .params(entry)
        .map(|p| {
            json!({"name": p.name, "on": scope(p.scope), "kind": p.kind.to_string(), "default": p.default,
                   "none": p.none, "help": p.help})
        })
        .collect();
    json!({"name": entry.name, "summary": entry.summary(), "built": entry.build.is_some(),
           "aliases": entry.aliases.iter().map(|a| a.name).collect::<Vec<_>>(), "parameters": params})
}

/// Lists all, or shows one whole.
pub fn run(name: Option<&str>, json: bool) -> Done {
    let registry = Registry::builtin();
    let Some(name) = name else {
        if json {
            let all: Vec<_> = registry.iter().map(|entry| as_json(&registry, entry)).collect();
            return print_json(&json!({ "disciplines": all }));
        }
        let mut rows = table(&["NAME", "WHAT IT IS"]);
        for entry in registry.iter() {
            rows.add_row(vec![entry.name.to_string(), entry.summary().to_string()]);
        }
        print_table(rows, 2);
        return Ok(());
    };
    let Some(entry) = registry.find(name) else {
        let names: Vec<&str> = registry.iter().map(|e| e.name).collect();
        return Err(Failure::usage(format!("no discipline `{name}`; there are: {}", names.join(", "))));
    };
    if json {
        return print_json(&as_json(&registry, entry));
    }
    out!("{}", entry.manual().trim_end());
    for (on, title) in [
        (Scope::Discipline, "Parameters of the interface, or of a class whose queue it is:"),
        (Scope::Class, "Parameters of its classes:"),
    ] {
        let mut rows = table(&["NAME", "VALUE", "DEFAULT", "MEANING"]);
        let mut any = false;
        for p in registry.params(entry).filter(|p| p.scope == on) {
            any = true;
            let value = if p.none { format!("{} or -1", p.kind) } else { p.kind.to_string() };
            rows.add_row(vec![p.name.to_string(), value, p.default.to_string(), p.help.to_string()]);
        }
        if any {
            out!("\n{title}\n");
            print_table(rows, 4);
        }
    }
    Ok(())
}
