//! `weir disciplines`: what there is.

use super::tables::{print_text, print_wrapped, table};
use super::{Done, Failure, print_json};
use serde_json::json;
use weir_core::aqm::AqmEntry;
use weir_core::queue::Scope;
use weir_core::sched::{Entry, Registry};
use weir_text::suggest_or_list;

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

/// The disciplines, and behind them those AQMs that only a class can have.
fn all(registry: &Registry) -> Vec<Entry> {
    let aqms = registry.aqms().filter(|aqm| !aqm.is_discipline);
    let as_entry = |aqm: &AqmEntry| Entry {
        name: aqm.name,
        source: aqm.source,
        params: aqm.class_params,
        build: registry.find("fifoq").and_then(|e| e.build),
        ..Entry::PLAIN
    };
    registry.iter().copied().chain(aqms.map(as_entry)).collect()
}

/// How long the queue of a class is whose `qlimit` is not given, where it has an AQM.
fn limits_of_aqms(registry: &Registry) -> String {
    let aqms = registry.aqms().filter(|aqm| aqm.is_for_classes());
    let each: Vec<String> = aqms.map(|aqm| format!("{} {}", aqm.name, aqm.usual_limit)).collect();
    format!(
        "The default of `qlimit` is that of a queue without an AQM. With one it is the AQM's own, in packets: {}.",
        each.join(", ")
    )
}

/// Lists all, or shows one whole.
pub fn run(registry: &Registry, name: Option<&str>, json: bool) -> Done {
    let Some(name) = name else {
        if json {
            let all: Vec<_> = all(registry).iter().map(|entry| as_json(registry, entry)).collect();
            return print_json(&json!({ "disciplines": all }));
        }
        let mut rows = table(&["NAME", "WHAT IT IS"]);
        for entry in all(registry) {
            rows.add(vec![entry.name.to_string(), entry.summary().to_string()]);
        }
        rows.print();
        return Ok(());
    };
    let known = all(registry);
    let by_name = |e: &&Entry| e.name == name || e.aliases.iter().any(|a| a.name == name);
    let Some(entry) = known.iter().find(by_name) else {
        let names: Vec<&str> = known.iter().map(|e| e.name).collect();
        return Err(Failure::usage(format!("no discipline `{name}`; {}", suggest_or_list(name, &names))));
    };
    if json {
        return print_json(&as_json(registry, entry));
    }
    print_text(entry.manual().trim_end());
    for (on, title) in [
        (Scope::Discipline, "Parameters of the interface, or of a class whose queue it is:"),
        (Scope::Class, "Parameters of its classes:"),
    ] {
        let mut rows = table(&["NAME", "VALUE", "DEFAULT", "MEANING"]);
        let mut any = false;
        for p in registry.params(entry).filter(|p| p.scope == on) {
            any = true;
            rows.add(vec![
                p.name.to_string(),
                p.form().replace('`', ""),
                p.default.to_string(),
                p.help.to_string(),
            ]);
        }
        if any {
            out!("\n{title}\n");
            rows.print();
        }
    }
    if entry.class_queues {
        out!("");
        print_wrapped(&limits_of_aqms(registry));
    }
    Ok(())
}
