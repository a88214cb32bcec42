//! `weir check`: judges configurations and scenarios.

use super::tables::print_wrapped;
use super::{Done, Failure, print_json};
use serde_json::json;
use std::path::{Path, PathBuf};
use weir_conf::{Plan, protect::names};
use weir_core::packet::ControlSet;
use weir_core::port::Protect;
use weir_core::sched::Registry;
use weir_report::RunKind;
use weir_scenario::Scenario;
use weir_text::{Unit, show};

/// The longest frame that a link is checked for.
const MTU: u32 = 1514;

/// One message, whatever it is about.
struct Finding {
    error: bool,
    text: String,
    json: serde_json::Value,
}

/// Judges every file; fails with 2 if one of them has an error.
pub fn run(registry: &Registry, files: &[PathBuf], json: bool) -> Done {
    let (mut errors, mut warnings, mut rows) = (0, 0, Vec::new());
    for file in files {
        let is_scenario = file.extension().is_some_and(|e| e == "toml");
        let (findings, facts) =
            if is_scenario { scenario(file, registry) } else { configuration(file, registry)? };
        let bad = findings.iter().filter(|f| f.error).count();
        errors += bad;
        warnings += findings.len() - bad;
        if json {
            let all: Vec<_> = findings.into_iter().map(|f| f.json).collect();
            rows.push(json!({"file": file, "usable": bad == 0, "diagnostics": all, "facts": facts}));
            continue;
        }
        for finding in findings {
            out!("{}\n", finding.text);
        }
        facts.iter().for_each(|fact| print_wrapped(fact));
        out!("{}: {}", file.display(), if bad == 0 { "usable" } else { "cannot be used" });
    }
    if json {
        print_json(&json!({ "files": rows }))?;
    }
    match errors {
        0 => Ok(()),
        n => {
            let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            Err(Failure::usage(format!("{}, {}", many(n, "error"), many(warnings, "warning"))))
        }
    }
}

fn located(d: &weir_text::Diagnostic) -> Finding {
    Finding {
        error: d.is_error(),
        text: d.to_string(),
        json: json!({"severity": if d.is_error() { "error" } else { "warning" }, "file": d.file, "line": d.line,
            "column": d.column, "message": d.message, "help": d.help}),
    }
}

fn configuration(path: &Path, registry: &Registry) -> Result<(Vec<Finding>, Vec<String>), Failure> {
    let name = path.display().to_string();
    match super::included(&name, &super::text_of(path)?) {
        Err(said) => Ok((said.iter().map(located).collect(), Vec::new())),
        Ok(text) => {
            let judged = judge(&name, &text, registry);
            Ok((judged.findings, judged.facts))
        }
    }
}

/// What is to be said of a configuration, and the plan if it can be used.
struct Judged {
    findings: Vec<Finding>,
    facts: Vec<String>,
    plan: Option<Plan>,
}

/// What is to be said of the text of a configuration.
fn judge(name: &str, text: &str, registry: &Registry) -> Judged {
    let outcome = weir_conf::read(name, text, registry);
    let mut all = outcome.diagnostics;
    let mut facts = Vec::new();
    if let Some(plan) = &outcome.plan {
        all.extend(weir_conf::judge(plan, registry));
        for (view, checked) in plan.views().zip(plan.check(registry, MTU)) {
            match checked {
                Ok(checked) => {
                    all.extend(view.short_of_room(checked.room));
                    facts.push(format!("{name}: interface {}: {}", view.name, checked.room));
                    let control = control(view.protect(&view.link(MTU)));
                    facts.push(format!("{name}: interface {}: {control}", view.name));
                    let made = made(&view, registry);
                    facts.extend(made.iter().map(|made| format!("{name}: interface {}: {made}", view.name)));
                }
                Err(refused) => all.push(refused),
            }
            let guarantees = view.guarantees(registry, &view.link(MTU));
            facts.extend(guarantees.iter().map(|g| format!("{name}: interface {}: {g}", view.name)));
        }
    }
    all.dedup();
    Judged { findings: all.iter().map(located).collect(), facts, plan: outcome.plan }
}

/// The classes that nobody declared: a discipline makes them behind all others.
fn made(view: &weir_conf::View<'_>, registry: &Registry) -> Vec<String> {
    let node = view.node(registry);
    let undeclared = node.classes.iter().rev().take_while(|class| view.class(&class.name).is_none());
    let words = |class: &weir_core::sched::ClassConfig| {
        // A flag has no value.
        let typed = class.params.iter().map(|(name, value)| format!("{name} {value}").trim_end().to_owned());
        let options: Vec<String> = typed.collect();
        format!("{} makes class `{}` by itself: {}", node.discipline, class.name, options.join(" "))
    };
    undeclared.map(words).collect()
}

/// What the packets that keep a link and its routes alive get.
fn control(protect: Option<Protect>) -> String {
    match protect {
        None => "control packets (ARP, routing protocols) go where filters say: `protect off`".into(),
        Some(Protect { rate, kinds, .. }) => {
            let except = match kinds.others() {
                ControlSet::NONE => String::new(),
                others => format!(" except {}", names(others, ", ")),
            };
            format!(
                "control packets (ARP, routing protocols){except} go before all classes up to {}, beyond that where filters say",
                show(rate.as_bps() as f64, Unit::Rate)
            )
        }
    }
}

fn scenario(path: &Path, registry: &Registry) -> (Vec<Finding>, Vec<String>) {
    let scenario = match Scenario::read(path) {
        Ok(scenario) => scenario,
        Err(all) => return (all.0.iter().map(located).collect(), Vec::new()),
    };
    let (mut findings, mut facts, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for (index, port) in scenario.ports.iter().enumerate() {
        match scenario.configuration(index) {
            Ok((name, text)) => {
                let judged = judge(&name, &text, registry);
                findings.extend(judged.findings);
                facts.extend(judged.facts);
                let Some(plan) = judged.plan else { continue };
                match leaves(&plan, port.interface.as_deref(), registry) {
                    Ok(names) => classes.push(names),
                    Err(error) => findings.push(located(&error)),
                }
            }
            Err(e) => findings.push(Finding {
                error: true,
                text: format!("error: port {}: {e}", port.name()),
                json: json!({"severity": "error", "message": e.to_string()}),
            }),
        }
    }
    let count = classes.iter().map(|names| names.len() as u64).sum();
    if let Some((what, mend)) = scenario.too_large(count) {
        findings.push(Finding {
            error: true,
            text: format!("error: {what}\n  help: {mend}"),
            json: json!({"severity": "error", "message": what, "help": mend}),
        });
    }
    if classes.len() == scenario.ports.len()
        && let Err(all) = scenario.fits(&classes)
    {
        findings.extend(all.0.iter().map(located));
    }
    let congestion = |at| weir_scenario::congestion(&scenario, at);
    match congestion(RunKind::Sim) {
        Ok(says) => facts.extend(says),
        Err(why) => facts.push(format!("the simulator cannot run it: {why}")),
    }
    match weir_lab::layout_here(&scenario).and_then(|_| congestion(RunKind::Lab).map_err(|why| why.0)) {
        Ok(says) => facts.extend(std::iter::once("the lab can run it".into()).chain(says)),
        Err(why) => facts.push(format!("the lab cannot run it: {why}")),
    }
    (findings, facts)
}

/// The classes of the port that the interface of a plan makes.
fn leaves(
    plan: &Plan,
    interface: Option<&str>,
    registry: &Registry,
) -> Result<Vec<String>, weir_text::Diagnostic> {
    let view = plan.interface(interface.unwrap_or(""))?;
    let checked = view.check(registry, view.link(MTU))?;
    Ok(checked.leaves.into_iter().map(|leaf| leaf.name).collect())
}
