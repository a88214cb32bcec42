//! `weir up`, and what it is asked: `stats`, `apply`, `diff`, `set`, `confirm`, `rollback`.

use super::edge::{print_brokers, print_edge};
use super::fail_open::fails;
use super::tables::{print_wrapped, say, table};
use super::{Done, Failure, cage};
use crate::operate::ports::bridges;
use crate::operate::remote::needs;
use crate::operate::request::{Applied, Report, Request, ask};
use crate::operate::rules::Rules;
use crate::operate::state::LastGood;
use crate::operate::{Configuration, Operator, Workers, takeover};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_conf::Difference;
use weir_core::sched::Registry;
use weir_engine::server::{Answer, Server};
use weir_engine::state::FailState;
use weir_engine::state::{BridgeState, ClassState, Egress, Snapshot};
use weir_engine::status::Finding;
use weir_engine::up::NFQUEUE;
use weir_report::report::ConditionerReport;
use weir_sys::Priority;

/// Where `weir up` serves statistics unless told otherwise.
pub const SOCKET: &str = "/run/weir.sock";
/// What `weir up` is told.
#[derive(clap::Args)]
pub struct UpArguments {
    /// The altq.conf; interfaces say `attach bridge PEER`, for each bridge one. SIGHUP reads it again
    #[arg(required_unless_present = "last_good")]
    conf: Option<PathBuf>,
    /// The Unix socket that `weir stats` and the others ask
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Where the last configuration that ran well is kept [default: /var/lib/weir/NAME.altq, NAME being the socket's]
    #[arg(long, value_name = "PATH")]
    state: Option<PathBuf>,
    /// Run the last configuration that ran well, instead of a file
    #[arg(long, conflicts_with = "conf")]
    last_good: bool,
    /// Run the last configuration that ran well, if the file cannot be used
    #[arg(long)]
    or_last_good: bool,
    /// Processors that the workers stay on, each on the next one in turn, as in `2,3`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// What each worker asks the system for: `fifo` (SCHED_FIFO), `nice` (-20) or `none`
    #[arg(long, value_name = "fifo|nice|none", default_value = "fifo")]
    priority: Priority,
    /// Bridge interfaces although another weir or the kernel takes their frames, too
    #[arg(long)]
    force: bool,
    /// Go on with what the weir has that serves at the socket, which then ends; start as usual if none does
    #[arg(long, conflicts_with = "force")]
    takeover: bool,
    /// Keep every right, file and system call; a worker still gives up its rights
    #[arg(long)]
    unconfined: bool,
}

/// `weir up`: brings up the bridges of a file, each egress managed as the file says, and does what it
/// is asked through its socket, until a signal ends it.
pub fn up(registry: &Registry, arguments: UpArguments) -> Done {
    let UpArguments {
        conf,
        socket,
        state,
        last_good,
        or_last_good,
        cpus,
        priority,
        force,
        takeover,
        unconfined,
    } = arguments;
    let state = LastGood::new(state.as_deref(), &socket);
    let kept = state.path().to_path_buf();
    let path = conf.as_deref().filter(|_| !last_good).unwrap_or(&kept);
    let read = |path: &Path| {
        let read =
            Configuration::read(&path.display().to_string(), &super::configuration_of(path)?, registry)?;
        bridges(&read.plan)?;
        Ok(read)
    };
    let configuration = match read(path) {
        Err(Failure { message, .. }) if or_last_good => {
            eprintln!("weir: {}", weir_text::visible(&message));
            eprintln!("weir: so the last good configuration runs, {}", kept.display());
            read(&kept)?
        }
        read => read?,
    };
    cage::permitted()?;
    let (processors, named) = (usable(&cpus)?, !cpus.is_empty());
    // Before anything else, so that a second box on the same socket never touches an interface.
    let bound = match takeover && takeover::runs(&socket)? {
        true => None,
        false => Some(Server::bind(&socket).map_err(Failure::failed)?),
    };
    // Before the box is up, so that a signal never finds it without an end in order.
    let (stop, again) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for (signal, flag) in [(SIGINT, &stop), (SIGTERM, &stop), (SIGHUP, &again)] {
        signal_hook::flag::register(signal, flag.clone()).map_err(Failure::failed)?;
    }
    state.prepare();
    // Before the cage, in which no other program can be started.
    if bound.is_none() {
        takeover::possible(&configuration.plan)?;
    }
    let rules = Rules::for_(&configuration.plan)?;
    // A panic is survived, also where nobody reads what it says.
    std::panic::set_hook(Box::new(|panic| weir_sys::say(&panic.to_string())));
    let mut connects = None;
    if !unconfined {
        let locks = configuration.plan.interfaces.iter().any(|interface| interface.xdp.is_some());
        // Files that are included may stand elsewhere, and are read again as well.
        let included: Vec<PathBuf> =
            weir_text::include::files(&configuration.text).map(PathBuf::from).collect();
        let (keys, ports) = needs(&configuration.plan);
        let others = included.iter().chain(&keys).map(PathBuf::as_path);
        let reads: Vec<&Path> = std::iter::once(path).chain(others).collect();
        connects = Some(ports.clone());
        cage::enter(&reads, &[&socket, &kept], ports, locks)?;
    }
    let workers = Workers { cpus, priority, force, ports: connects };
    let (mut operator, mut server) = match bound {
        Some(server) => (Operator::start(registry, configuration, workers, state, rules)?, server),
        None => Operator::take_over(registry, configuration, workers, state, rules, &socket)?,
    };
    let running = operator.up().snapshot().bridges;
    if let Some(crowd) = crowd(&running, processors, named) {
        eprintln!("weir: {crowd}");
    }
    for BridgeState { interfaces: [left, right], priority, workers, way, without, .. } in running {
        let each = if workers.len() > 1 { format!("{} workers, ", workers.len()) } else { String::new() };
        match left.as_str() {
            NFQUEUE => eprintln!("weir: queueing what leaves by {right}, {priority}; {}", fails(&without)),
            _ => {
                eprintln!("weir: bridging {left} and {right} by {way}, {each}{priority}; {}", fails(&without))
            }
        }
    }
    eprintln!("weir: `weir stats --socket {}` shows counters; end with ^C", socket.display());
    while !stop.load(Ordering::Relaxed) {
        let (mut given, ended) = (false, || stop.load(Ordering::Relaxed));
        server.serve(Duration::from_millis(100), &ended, &mut |request, client, listener| {
            let answer = operator.give(request, client, listener);
            given = matches!(answer, Some(Answer::Last));
            answer.unwrap_or_else(|| Answer::Line(operator.answer(request)))
        });
        if given {
            operator.leave();
            server.leave();
            return Ok(());
        }
        operator.tick();
        if again.swap(false, Ordering::Relaxed) {
            match read(path).and_then(|new| operator.apply(new, None)) {
                Ok(applied) => {
                    weir_sys::say(&format!("{} is read again: {}", path.display(), summary(&applied)));
                }
                Err(Failure { message, .. }) => {
                    weir_sys::say(&format!("nothing changes: {}", weir_text::visible(&message)));
                }
            }
        }
        if let Some([left, right]) = operator.up().has_ended() {
            return Err(Failure::failed(format!(
                "the worker between {left} and {right} has ended by itself"
            )));
        }
    }
    print_snapshot(&operator.stop());
    Ok(())
}

/// What it does: its requests come by standard input.
pub fn guard() -> Done {
    weir_sys::take_priority(Priority::Fifo);
    let requests = std::io::stdin().as_fd().try_clone_to_owned().map_err(Failure::failed)?;
    weir_engine::guard::run(requests.into()).map_err(Failure::failed)
}

/// Tries the processors that workers are to stay on: how many they have.
fn usable(cpus: &[usize]) -> Result<usize, Failure> {
    let tried = cpus.iter().map(|&cpu| std::thread::spawn(move || weir_sys::pin_to(cpu)).join());
    match cpus.iter().zip(tried).find(|(_, tried)| !matches!(tried, Ok(Ok(())))) {
        None if cpus.is_empty() => Ok(std::thread::available_parallelism().map_or(usize::MAX, NonZero::get)),
        None => Ok(cpus.iter().collect::<HashSet<_>>().len()),
        Some((cpu, _)) => Err(Failure::usage(format!(
            "--cpus: no worker can stay on processor {cpu}: name processors as `nproc --all` counts them, from 0"
        ))),
    }
}

/// What is said where a bridge has several workers, and all workers together are more than the processors that they have.
fn crowd(bridges: &[BridgeState], processors: usize, named: bool) -> Option<String> {
    let several = bridges.iter().any(|bridge| bridge.workers.len() > 1);
    let workers: usize = bridges.iter().map(|bridge| bridge.workers.len().max(1)).sum();
    (several && workers > processors).then(|| {
        let more = if named { ", or name more processors in `--cpus`" } else { "" };
        let s = if processors == 1 { "" } else { "s" };
        format!(
            "warning: {workers} workers share {processors} processor{s}, so some wait for others: write a smaller `workers`{more}"
        )
    })
}

/// What was changed, in one line.
fn summary(applied: &Applied) -> String {
    let Applied { differences, ports_changed_in_place, ports_exchanged, .. } = applied;
    match differences.len() {
        0 => "it says what runs already".into(),
        n => format!(
            "{n} difference{}, {ports_changed_in_place} of the ports changed in place, {ports_exchanged} exchanged",
            if n == 1 { "" } else { "s" }
        ),
    }
}

/// Shows differences, or prints them as JSON.
fn show(applied: &Applied, json: bool) -> Done {
    if json {
        return super::print_json(applied);
    }
    for said in &applied.differences {
        out!("{}", Difference::from(said));
    }
    Ok(())
}

/// The text of a file and its name for messages.
fn named(conf: &Path) -> Result<(String, String), Failure> {
    Ok((conf.display().to_string(), super::configuration_of(conf)?))
}

/// `weir apply`.
pub fn apply(conf: &Path, confirm: Option<Duration>, socket: &Path, json: bool) -> Done {
    let (name, text) = named(conf)?;
    let confirm_within_ns = confirm.map(|time| time.as_nanos() as u64);
    let applied: Applied = ask(socket, &Request::Apply { name, text, confirm_within_ns })?;
    show(&applied, json)?;
    say(&summary(&applied));
    if let Some(time) = confirm {
        let seconds = time.as_secs_f64();
        say(&format!("`weir confirm` keeps it; without, what ran before runs again in {seconds} s"));
    }
    Ok(())
}

/// `weir diff`: exit 1 if something would change.
pub fn diff(conf: &Path, socket: &Path, json: bool) -> Done {
    let (name, text) = named(conf)?;
    let would: Applied = ask(socket, &Request::Diff { name, text })?;
    show(&would, json)?;
    match would.differences.is_empty() {
        true => Ok(()),
        false => Err(Failure { code: 1, message: String::new() }),
    }
}

/// `weir set`: the words are a class, if the first one is no option, and an option with its value.
pub fn set(interface: &str, words: &[String], socket: &Path, json: bool) -> Done {
    let request = Request::Set { interface: interface.to_string(), words: words.to_vec() };
    let applied: Applied = ask(socket, &request)?;
    by_hand(&applied, json)
}

/// What a change by hand came to.
pub fn by_hand(applied: &Applied, json: bool) -> Done {
    show(applied, json)?;
    say(&format!("{}; the file does not say so yet, and `weir diff` shows it", summary(applied)));
    Ok(())
}

/// `weir status`: exit 1 if something is not as configured.
pub fn status(socket: &Path, json: bool) -> Done {
    let report: Report = ask(socket, &Request::Status)?;
    let code = u8::from(!report.as_configured);
    if json {
        super::print_json(&report)?;
        return if code == 0 { Ok(()) } else { Err(Failure { code, message: String::new() }) };
    }
    let mut rows = table(&["INTERFACE", "CLASS", "STATE", ">FOR", "WHY"]);
    for Finding { interface, class, state, why, for_ns } in &report.findings {
        let name = if class.is_some() { String::new() } else { interface.clone() };
        let age = format!("{} s", for_ns / 1_000_000_000);
        rows.add(vec![name, class.clone().unwrap_or_default(), state.to_string(), age, why.clone()]);
    }
    rows.print();
    print_brokers(&report.brokers);
    if let Some(left) = report.confirm_within_ns {
        let seconds = left / 1_000_000_000;
        out!("goes back to what ran before in {seconds} s, unless `weir confirm` comes");
    }
    if code == 0 { Ok(()) } else { Err(Failure { code, message: String::new() }) }
}

/// `weir confirm`.
pub fn confirm(socket: &Path) -> Done {
    let _: Applied = ask(socket, &Request::Confirm)?;
    Ok(())
}

/// `weir rollback`.
pub fn rollback(socket: &Path, json: bool) -> Done {
    let applied: Applied = ask(socket, &Request::Rollback)?;
    show(&applied, json)?;
    say(&summary(&applied));
    Ok(())
}

/// A time on the command line, where minutes are `5m` too.
pub fn time(text: &str) -> Result<Duration, String> {
    let minutes = text.strip_suffix('m').map(|digits| format!("{digits}min"));
    let time = weir_text::Time::parse(minutes.as_deref().unwrap_or(text)).map_err(|e| e.to_string())?;
    Ok(Duration::from_nanos(time.as_nanos()))
}

/// `weir stats`.
pub fn stats(socket: &Path, json: bool) -> Done {
    let snapshot: Snapshot = ask(socket, &Request::Stats)?;
    if json {
        return super::print_json(&snapshot);
    }
    print_snapshot(&snapshot);
    Ok(())
}

fn print_snapshot(snapshot: &Snapshot) {
    for (index, bridge) in snapshot.bridges.iter().enumerate() {
        if index > 0 {
            out!("");
        }
        print_bridge(bridge);
    }
    if !snapshot.brokers.is_empty() {
        out!("");
    }
    print_brokers(&snapshot.brokers);
}

fn print_bridge(bridge: &BridgeState) {
    let [left, right] = &bridge.interfaces;
    if let Some(why) = &bridge.silent {
        out!("bridge {left} {right}: no answer: {why}");
        return;
    }
    let seconds = bridge.uptime_ns as f64 / 1e9;
    let cpu = |cpu_ns: u64| format!("{:.0}", 100.0 * cpu_ns as f64 / bridge.uptime_ns.max(1) as f64);
    let workers = match &bridge.workers[..] {
        [] => format!("worker at {}", cpu(bridge.cpu_ns)),
        all => format!("workers at {}", all.iter().map(|w| cpu(w.cpu_ns)).collect::<Vec<_>>().join(" and ")),
    };
    out!("bridge {left} {right}: up {seconds:.1} s, {workers} % of a processor, {}", bridge.priority);
    if !bridge.way.is_empty() {
        out!("by {}", bridge.way);
    }
    print_wrapped(&fails(&bridge.without));
    if bridge.without.bypassed {
        out!("BYPASSED: the kernel carries the traffic, without any discipline");
    }
    let FailState { lapses, stale_packets, .. } = bridge.without;
    if lapses > 0 {
        out!("the worker was silent {lapses} times, {stale_packets} packets dropped as too old");
    }
    if let Some(why) = &bridge.failed {
        out!("BYPASSED: the bridge forwards plainly: {why}");
    }
    for egress in &bridge.egresses {
        print_egress(egress);
    }
}

fn print_egress(egress: &Egress) {
    out!("");
    print_wrapped(&format!(
        "egress {}: {} packets out, {} lost before the queue (overrun {}, no buffer {}), {} refused by the device{}",
        egress.interface,
        egress.sent_packets,
        egress.overrun_packets + egress.nobuf_packets + egress.unhanded_packets,
        egress.overrun_packets,
        egress.nobuf_packets,
        egress.refused_packets,
        if egress.refused.is_empty() { String::new() } else { format!(" ({})", reasons(&egress.refused)) }
    ));
    if let Some(link) = &egress.link {
        let changes = link.changes.iter().map(|(what, count)| format!(", {what} {count}"));
        out!("link {}, MTU {}{}", link.state, link.mtu, changes.collect::<String>());
        for taker in &link.taken {
            print_wrapped(&format!("TWICE: {taker}"));
        }
    }
    if egress.device_queue_most_bytes > 0 {
        let (now, most) = (egress.device_queue_bytes, egress.device_queue_most_bytes);
        out!("in the device {now} bytes, {most} at most");
    }
    let Some(port) = &egress.port else {
        out!("not managed: forwarded plainly");
        return;
    };
    if egress.handed_packets + egress.unhanded_packets > 0 {
        let (handed, lost) = (egress.handed_packets, egress.unhanded_packets);
        out!("{handed} packets handed from worker to worker, {lost} lost on the way");
    }
    out!("seed {}", port.seed);
    if port.lost_ns > 0 {
        out!("late by {:.1} ms more than the token bucket holds", port.lost_ns as f64 / 1e6);
    }
    if let Some(why) = &port.broken {
        out!("BYPASSED: runs as one FIFO: {why}");
    }
    let mut rows = table(&["CLASS", ">OFFERED", ">SENT", ">BYTES", ">DROPPED", ">WAITING", "WHY DROPPED"]);
    let control = port.protected.as_ref().map(|counts| ("(control)", counts));
    let classes =
        port.classes.iter().filter_map(|c| c.counts.as_ref().map(|counts| (c.name.as_str(), counts)));
    for (name, counts) in control.into_iter().chain(classes) {
        let dropped: u64 = counts.dropped_packets.values().sum();
        rows.add(vec![
            name.to_string(),
            counts.offered_packets.to_string(),
            counts.sent_packets.to_string(),
            counts.sent_bytes.to_string(),
            dropped.to_string(),
            counts.inside_packets.to_string(),
            reasons(&counts.dropped_packets),
        ]);
    }
    rows.print();
    if let Some(edge) = &egress.edge {
        print_edge(edge);
    }
    let element = |state: &ClassState| {
        let values = state.values.iter().map(|(name, value)| (name.as_str(), *value));
        ConditionerReport::of(&state.name, values)
    };
    let conditioners: Vec<ConditionerReport> = port.conditioners.iter().map(element).collect();
    super::report::print_conditioners(&conditioners);
}

/// Counts by reason, as in "tail 42, toolong 3".
fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let said: Vec<String> =
        counts.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| format!("{reason} {n}")).collect();
    said.join(", ")
}
