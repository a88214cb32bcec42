//! `weir check`: judges configurations and scenarios.

use super::kind::{Kind, is_scenario, refusal};
use super::tables::print_wrapped;
use super::{Done, Failure, print_json};
use serde_json::json;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use weir_conf::{Checked, Plan, View, protect::names};
use weir_core::packet::{ControlSet, Meta};
use weir_core::port::{BYTES_PER_LEAF, Protect};
use weir_core::queue::Curve;
use weir_core::sched::{ClassConfig, Footprint, Guarantee, Registry};
use weir_core::units::Duration;
use weir_report::RunKind;
use weir_scenario::Scenario;
use weir_sys::allocations::live_bytes_on_this_thread;
use weir_text::{COLUMNS, Diagnostic, Severity, Unit, fold, show, wrap};

/// The longest frame that a link is checked for.
const MTU: u32 = 1514;

/// One message.
enum Finding {
    Located(Diagnostic),
    /// An error of a scenario as a whole: what is wrong, and how to mend it if that is known.
    Whole(String, Option<String>),
}

impl Finding {
    fn is_error(&self) -> bool {
        match self {
            Finding::Located(diagnostic) => diagnostic.is_error(),
            Finding::Whole(..) => true,
        }
    }
    /// What it has in common with those that say the same of other things.
    fn kind(&self) -> (Severity, String) {
        match self {
            Finding::Located(diagnostic) => diagnostic.kind(),
            Finding::Whole(message, _) => (Severity::Error, message.clone()),
        }
    }
    fn json(&self) -> serde_json::Value {
        match self {
            Finding::Located(d) => {
                json!({"severity": if d.is_error() { "error" } else { "warning" }, "file": d.file, "line": d.line,
                    "column": d.column, "message": d.message, "help": d.help})
            }
            Finding::Whole(message, None) => json!({"severity": "error", "message": message}),
            Finding::Whole(message, Some(help)) => {
                json!({"severity": "error", "message": message, "help": help})
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Located(diagnostic) => diagnostic.fmt(f),
            Finding::Whole(message, help) => {
                let help = help.as_ref().map(|help| format!("  help: {help}"));
                let lines = std::iter::once(format!("error: {message}")).chain(help);
                let lines: Vec<String> = lines.flat_map(|line| wrap(&line, COLUMNS, 8)).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

/// A class's curve, the burst that it is about, and the time within which that is out.
type Promise = (Curve, u64, Option<Duration>);

/// A remark.
enum Fact {
    /// About the whole.
    Plain(String),
    /// About an interface of a file.
    Of(Rc<str>, String),
    /// What a class of an interface of a file is promised.
    Promise(Rc<str>, Guarantee),
}

impl Fact {
    /// What it has in common with remarks that say the same of other interfaces and classes.
    fn kind(&self) -> (String, Option<Promise>) {
        match self {
            Fact::Plain(text) | Fact::Of(_, text) => (text.clone(), None),
            Fact::Promise(_, Guarantee { class: _, curve, burst_bytes, delay }) => {
                (String::new(), Some((*curve, *burst_bytes, *delay)))
            }
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Plain(text) => f.write_str(text),
            Fact::Of(of, text) => write!(f, "{of}: {text}"),
            Fact::Promise(of, guarantee) => write!(f, "{of}: {guarantee}"),
        }
    }
}

/// Judges every file; fails with 2 if one of them has an error.
pub fn run(registry: &Registry, files: &[PathBuf], json: bool) -> Done {
    let (mut errors, mut warnings, mut rows) = (0, 0, Vec::new());
    for file in files {
        let (findings, facts) = match refusal(file, &[Kind::Configuration, Kind::Scenario]) {
            Some((what, mend)) => (vec![Finding::Whole(what, Some(mend))], Vec::new()),
            None if is_scenario(file) => scenario(file, registry),
            None => configuration(file, registry)?,
        };
        let bad = findings.iter().filter(|f| f.is_error()).count();
        errors += bad;
        warnings += findings.len() - bad;
        if json {
            let all: Vec<_> = findings.iter().map(Finding::json).collect();
            let facts: Vec<String> = facts.iter().map(Fact::to_string).collect();
            rows.push(json!({"file": file, "usable": bad == 0, "diagnostics": all, "facts": facts}));
            continue;
        }
        let more = |count: usize| format!("{count} more like this: `weir check --json` has all");
        for (finding, count) in fold(findings, Finding::kind) {
            out!("{finding}\n");
            if count > 0 {
                out!("{}\n", more(count));
            }
        }
        for (fact, count) in fold(facts, Fact::kind) {
            print_wrapped(&fact.to_string());
            if count > 0 {
                out!("{}", more(count));
            }
        }
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

fn configuration(path: &Path, registry: &Registry) -> Result<(Vec<Finding>, Vec<Fact>), Failure> {
    let name = path.display().to_string();
    match super::included(&name, &super::text_of(path)?) {
        Err(said) => Ok((said.into_iter().map(Finding::Located).collect(), Vec::new())),
        Ok(text) => {
            let judged = judge(&name, &text, registry);
            Ok((judged.findings, judged.facts))
        }
    }
}

/// What is to be said of a configuration, and the plan if it can be used.
struct Judged {
    findings: Vec<Finding>,
    facts: Vec<Fact>,
    plan: Option<Plan>,
}

/// What is to be said of the text of a configuration.
fn judge(name: &str, text: &str, registry: &Registry) -> Judged {
    let outcome = weir_conf::read(name, text, registry);
    let mut all = outcome.diagnostics;
    let mut facts = Vec::new();
    if let Some(plan) = &outcome.plan {
        all.extend(weir_conf::doubts(plan, registry));
        for (view, checked) in plan.views().zip(plan.check(registry, MTU, &live_bytes_on_this_thread)) {
            let of: Rc<str> = format!("{name}: interface {}", view.name).into();
            let fact = |said: &dyn Display| Fact::Of(of.clone(), said.to_string());
            facts.extend(unsaid_rate(&view).map(|rate| fact(&rate)));
            match checked {
                Ok(checked) => {
                    all.extend(view.short_of_room(checked.room));
                    facts.push(fact(&checked.room));
                    facts.extend(memory(&checked).map(|memory| fact(&memory)));
                    if view.parts() > 1 {
                        let link = view.link(MTU);
                        facts.extend(view.cut(registry, link).map(|(loans, leaves)| {
                            let queues: Vec<String> = leaves.iter().map(|part| part.len().to_string()).collect();
                            let lane = view.protect(&link).map_or(0, |protect| protect.depth_bytes);
                            fact(&format!(
                                "{} workers share it, with {} of its queues; beyond its rate {} bytes leave at most in any window, and {lane} of control packets",
                                loans.parts,
                                queues.join(", "),
                                loans.bound_bytes()
                            ))
                        }));
                    }
                    let control = control(view.protect(&view.link(MTU)));
                    facts.push(fact(&control));
                    let outer = view.discipline.as_ref().and_then(|outer| registry.find(&outer.name));
                    let outer = outer.map_or("", |entry| entry.name);
                    facts.extend(checked.made.iter().map(|class| fact(&made(outer, class))));
                }
                Err(refused) => all.push(refused),
            }
            let guarantees = view.guarantees(registry, &view.link(MTU));
            facts.extend(guarantees.into_iter().map(|guarantee| Fact::Promise(of.clone(), guarantee)));
        }
    }
    all.dedup();
    Judged { findings: all.into_iter().map(Finding::Located).collect(), facts, plan: outcome.plan }
}

/// What is taken for a bandwidth that the line does not give.
fn unsaid_rate(view: &View<'_>) -> Option<String> {
    let taken = view.bandwidth.is_none() && view.discipline.is_some();
    let rate = view.rate();
    taken.then(|| {
        format!("its line has no `bandwidth`, so that it sends at most {rate}: write the rate of its link, as in `bandwidth {rate}`")
    })
}

/// What the port takes of memory beside its frames; `None` where this program's allocator does not count.
fn memory(checked: &Checked) -> Option<String> {
    let Footprint { classes, flow_queues } = checked.footprint;
    if classes == 0 {
        return None;
    }
    let leaves = checked.leaves.len() as u64;
    let classes = classes + leaves * BYTES_PER_LEAF;
    let rows = u64::from(checked.room.packets) * size_of::<Meta>() as u64;
    let kilobytes = |bytes: u64| bytes.div_ceil(1_000);
    let mut text = format!("takes {} kB beside frames: ", kilobytes(classes + flow_queues + rows));
    let plural = if leaves == 1 { "" } else { "s" };
    text += &format!("{leaves} queue{plural} of classes, {} bytes each, ", classes.div_ceil(leaves.max(1)));
    if checked.flow_queues > 0 {
        let each = flow_queues.div_ceil(checked.flow_queues);
        text += &format!("{} of flows, {each} bytes each, ", checked.flow_queues);
    }
    Some(text + &format!("and {} kB of rows for packets", kilobytes(rows)))
}

/// A class that nobody declared: a discipline makes it behind all others.
fn made(discipline: &str, class: &ClassConfig) -> String {
    // A flag has no value.
    let typed = class.params.iter().map(|(name, value)| format!("{name} {value}").trim_end().to_owned());
    let options: Vec<String> = typed.collect();
    format!("{discipline} makes class `{}` by itself: {}", class.name, options.join(" "))
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

fn scenario(path: &Path, registry: &Registry) -> (Vec<Finding>, Vec<Fact>) {
    let scenario = match Scenario::read(path) {
        Ok(scenario) => scenario,
        Err(all) => return (all.0.into_iter().map(Finding::Located).collect(), Vec::new()),
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
                    Err(error) => findings.push(Finding::Located(error)),
                }
            }
            Err(e) => findings.push(Finding::Whole(format!("port {}: {e}", port.name()), None)),
        }
    }
    let count = classes.iter().map(|names| names.len() as u64).sum();
    if let Some((what, mend)) = scenario.too_large(count) {
        findings.push(Finding::Whole(what, Some(mend)));
    }
    if classes.len() == scenario.ports.len()
        && let Err(all) = scenario.fits(&classes)
    {
        findings.extend(all.0.into_iter().map(Finding::Located));
    }
    let congestion = |at| weir_scenario::congestion(&scenario, at);
    match congestion(RunKind::Sim) {
        Ok(says) => facts.extend(says.into_iter().map(Fact::Plain)),
        Err(why) => facts.push(Fact::Plain(format!("the simulator cannot run it: {why}"))),
    }
    match weir_lab::layout_here(&scenario).and_then(|_| congestion(RunKind::Lab).map_err(|why| why.0)) {
        Ok(says) => {
            let can = std::iter::once("the lab can run it".to_string());
            facts.extend(can.chain(says).map(Fact::Plain));
        }
        Err(why) => facts.push(Fact::Plain(format!("the lab cannot run it: {why}"))),
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
