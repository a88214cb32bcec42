//! `weir broker`: the bandwidth broker as a process, and what may be asked of it.

use super::kind::{Kind, wants};
use super::tables::{print_wrapped, table};
use super::{Done, Failure, print_json, text_of};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_broker::audit::Chain;
use weir_broker::bench;
use weir_broker::http::{self, HttpError, Target};
use weir_broker::serve::config::Config;
use weir_broker::serve::{self, Role, new_token};
use weir_broker::store::{Redb, Store};
use weir_broker::wire::{AuditLines, Capacity, LeaseNow, LeasesNow, ResourceNow, ResourcesNow};
use weir_text::{BitRate, Unit, show};

/// What is to be done.
#[derive(clap::Subcommand)]
pub enum Action {
    /// Serve by a file, until SIGINT or SIGTERM
    Run {
        /// The file of the broker, in TOML
        file: PathBuf,
    },
    /// Judge the file of a broker, and the certificates that it names
    Check {
        /// The file of the broker, in TOML
        file: PathBuf,
    },
    /// What leases a running broker has
    Leases {
        /// Only those of this owner
        owner: Option<String>,
        #[command(flatten)]
        asked: Asked,
    },
    /// What a running broker has to give, and what of it is taken
    Resources {
        #[command(flatten)]
        asked: Asked,
    },
    /// Set what a running broker has of a resource, until its file says something new: `set wan0:rt 8M`
    Set {
        /// LINK:CLASS
        resource: String,
        /// As altq.conf writes rates
        capacity: String,
        #[command(flatten)]
        asked: Asked,
    },
    /// The decisions of a broker, a line of JSON each
    Audit {
        /// Print no line, but say whether any was changed, added or taken away; exit 1 if so
        #[arg(long)]
        verify: bool,
        /// The number of the first line
        #[arg(long, value_name = "LINE", default_value_t = 0)]
        from: u64,
        /// The store of a broker that does not run
        #[arg(long, value_name = "FILE", conflicts_with = "socket")]
        store: Option<PathBuf>,
        /// The Unix socket of the broker
        #[arg(long, value_name = "PATH", default_value = serve::SOCKET)]
        socket: PathBuf,
    },
    /// Make a token: print it once, and the lines that the file of the broker keeps of it
    Token {
        /// Whose it is, as the audit is to name it
        name: String,
        /// What it allows
        #[arg(long, value_enum)]
        role: Allowed,
        /// The only owner whose leases it may see and touch
        #[arg(long, value_name = "EDGE")]
        owner: Option<String>,
        /// The day at whose start it ends, as 2027-11-22
        #[arg(long, value_name = "DAY")]
        expires: Option<String>,
    },
    /// Decisions a second on this machine, beside what its disk does; exit 1 if a promise is not kept
    Bench {
        /// Where the files go
        #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
        dir: PathBuf,
        /// Seconds for each row
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
}

/// How a running broker is asked, and answers.
#[derive(clap::Args)]
pub struct Asked {
    /// The Unix socket of the broker
    #[arg(long, value_name = "PATH", default_value = serve::SOCKET)]
    socket: PathBuf,
    /// JSON
    #[arg(short, long)]
    json: bool,
}

/// What a token allows: each what those before do, too.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Allowed {
    /// See leases, resources and metrics
    Read,
    /// Ask for leases and give them back
    Operate,
    /// Set capacities, read the audit
    Admin,
}

/// `weir broker`.
pub fn run(action: Action) -> Done {
    match action {
        Action::Run { file } => serve(&file),
        Action::Check { file } => check(&file),
        Action::Leases { owner, asked } => leases(owner.as_deref(), &asked),
        Action::Resources { asked } => resources(&asked),
        Action::Set { resource, capacity, asked } => set(&resource, &capacity, &asked),
        Action::Audit { verify, from, store, socket } => audit(verify, from, store.as_deref(), &socket),
        Action::Token { name, role, owner, expires } => {
            token(&name, role, owner.as_deref(), expires.as_deref())
        }
        Action::Bench { dir, seconds, json } => measure(&dir, Duration::from_secs(seconds), json),
    }
}

fn read(file: &Path) -> Result<Config, Failure> {
    wants(Kind::Broker, file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let config = Config::read(&text_of(file)?, folder);
    config.map_err(|e| Failure::usage(format!("{}: {e}", file.display())))
}

fn serve(file: &Path) -> Done {
    let waits = |why: &str| eprintln!("weir broker: stands by: {why}");
    let config = read(file)?;
    let granted = weir_sys::take_priority(config.priority);
    granted.refused.iter().for_each(|why| eprintln!("weir broker: priority: {granted}: {why}"));
    serve::run(config, waits, |broker| {
        let doors = [
            broker.http().map(|at| format!("http://{at}")),
            broker.tls().map(|at| format!("https://{at}")),
            broker.cops().map(|at| format!("cops://{at}")),
        ];
        let doors: String = doors.into_iter().flatten().map(|door| format!(", {door}")).collect();
        broker.set_apart().iter().for_each(|line| eprintln!("weir broker: {line}"));
        eprintln!("weir broker: serves at {}{doors}", broker.unix().display());
    })
    .map_err(Failure::failed)
}

fn check(file: &Path) -> Done {
    let config = read(file)?;
    config.check_certificates().map_err(|e| Failure::usage(format!("{}: {e}", file.display())))?;
    let (resources, tokens) = (config.resources.len(), config.tokens.len());
    out!("{}: domain {}, {resources} resources, {tokens} tokens: usable", file.display(), config.domain);
    Ok(())
}

fn not_answered(e: &HttpError) -> Failure {
    match e {
        HttpError::Unreachable(why) => {
            Failure::failed(format!("{why}: `weir broker run FILE` starts a broker"))
        }
        HttpError::Refused { .. } => Failure::usage(e),
        HttpError::Unreadable(_) => Failure::failed(e),
    }
}

fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, Failure> {
    http::get(&Target::Unix(socket.to_owned()), None, path).map_err(|e| not_answered(&e))
}

fn leases(owner: Option<&str>, asked: &Asked) -> Done {
    let mut all: Vec<LeaseNow> = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let part: LeasesNow = get(&asked.socket, &format!("/v1/leases?from={from}"))?;
        all.extend(part.leases);
        next = part.next;
    }
    all.retain(|lease| owner.is_none_or(|owner| lease.lease.split('/').next() == Some(owner)));
    all.sort_by(|a, b| a.lease.cmp(&b.lease));
    if asked.json {
        return print_json(&LeasesNow { leases: all, next: None });
    }
    let mut rows = table(&["LEASE", "PATH", ">ASKED", ">GRANTED", ">FREE IN"]);
    for lease in &all {
        let rate = |bps: u64| show(bps as f64, Unit::Rate);
        let free_in = format!("{}s", lease.free_in_ms.div_ceil(1_000));
        rows.add(vec![
            lease.lease.to_string(),
            lease.path.join(" "),
            rate(lease.asked_bps),
            rate(lease.granted_bps),
            free_in,
        ]);
    }
    rows.print();
    Ok(())
}

fn show_resources(resources: &[ResourceNow]) {
    let mut rows = table(&["RESOURCE", ">CAPACITY", ">TAKEN", ">FREE"]);
    for r in resources {
        let rate = |bps: u64| show(bps as f64, Unit::Rate);
        let free = r.capacity_bps.saturating_sub(r.taken_bps);
        rows.add(vec![r.resource.to_string(), rate(r.capacity_bps), rate(r.taken_bps), rate(free)]);
    }
    rows.print();
}

fn resources(asked: &Asked) -> Done {
    let now: ResourcesNow = get(&asked.socket, "/v1/resources")?;
    if asked.json {
        return print_json(&now);
    }
    show_resources(&now.resources);
    Ok(())
}

fn set(resource: &str, capacity: &str, asked: &Asked) -> Done {
    let capacity = BitRate::parse(capacity).map_err(|e| Failure::usage(format!("{capacity}: {e}")))?;
    let (target, body) = (Target::Unix(asked.socket.clone()), Capacity { capacity_bps: capacity.as_bps() });
    let now: ResourceNow = http::put(&target, None, &format!("/v1/resources/{resource}"), &body)
        .map_err(|e| not_answered(&e))?;
    if asked.json {
        return print_json(&now);
    }
    show_resources(&[now]);
    Ok(())
}

fn audit(verify: bool, from: u64, store: Option<&Path>, socket: &Path) -> Done {
    const PART: usize = 1_000;
    let stopped = store.map(Redb::open).transpose().map_err(Failure::failed)?;
    let (mut chain, mut next, mut first, mut end) = (Chain::default(), from, None, None);
    loop {
        let part = match &stopped {
            Some(store) => store.audit(next, PART).map_err(Failure::failed)?,
            None => {
                let part: AuditLines = get(socket, &format!("/v1/audit?from={next}"))?;
                end = Some(Chain { line: part.last, digest: part.chain });
                part.lines
            }
        };
        if part.is_empty() {
            break;
        }
        for line in &part {
            if verify {
                // A part that begins later is trusted to begin rightly; a whole audit begins with line 1.
                chain.follow(line).map_err(Failure::failed)?;
                first.get_or_insert(chain.line);
            } else {
                out!("{line}");
                chain = Chain::after(line).map_err(Failure::failed)?;
            }
        }
        next = chain.line + 1;
    }
    if !verify {
        return Ok(());
    }
    if let Some(end) = end.filter(|end| end.line < next && *end != chain && first.is_some()) {
        return Err(Failure::failed(format!(
            "the audit ends with line {}, and the broker says {}",
            chain.line, end.line
        )));
    }
    match first {
        None => out!("no line is there"),
        Some(first) => {
            out!("lines {first} to {}: nothing was changed; the chain is {}", chain.line, chain.digest)
        }
    }
    Ok(())
}

fn token(name: &str, role: Allowed, owner: Option<&str>, expires: Option<&str>) -> Done {
    let (token, sha256) = new_token().map_err(Failure::failed)?;
    let role = match role {
        Allowed::Read => Role::Read,
        Allowed::Operate => Role::Operate,
        Allowed::Admin => Role::Admin,
    };
    let mut lines =
        format!("[[token]]\nname = {name:?}\nrole = \"{}\"\nsha256 = \"{sha256}\"\n", role.word());
    for (key, value) in [("owner", owner), ("expires", expires)] {
        if let Some(value) = value {
            lines += &format!("{key} = {value:?}\n");
        }
    }
    let whole = format!("domain = \"d\"\nstore = \"s\"\n{lines}");
    Config::read(&whole, Path::new("")).map_err(Failure::usage)?;
    eprintln!(
        "weir: the token, which is kept nowhere, is on standard output; into the file of the broker goes:\n\n{lines}"
    );
    out!("{token}");
    Ok(())
}

fn measure(folder: &Path, span: Duration, json: bool) -> Done {
    let figures = bench::measure(folder, span).map_err(Failure::failed)?;
    if json {
        print_json(&figures)?;
    } else {
        let mut rows = table(&["WHAT", ">DECISIONS/S", ">P50 MS", ">P99 MS"]);
        for row in &figures.rows {
            let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
            rows.add(vec![
                row.what.into(),
                format!("{:.0}", row.decisions_per_second),
                ms(row.p50_ns),
                ms(row.p99_ns),
            ]);
        }
        rows.print();
        print_wrapped(
            "The rows of the disk write groups of 64 decisions of 80 bytes: their times are those of a group.",
        );
        if !figures.rows.iter().any(|row| row.what == bench::ON_ETCD) {
            print_wrapped(
                "Rows of etcd are left out: this weir was built without `--features etcd`, or etcd is not installed.",
            );
        }
        let mut rows = table(&["PROMISE", ">LIMIT", ">MEASURED", "KEPT"]);
        for check in &figures.checks {
            let kept = if check.pass { "yes" } else { "no" };
            rows.add(vec![
                check.what.clone(),
                format!("{:.2}", check.limit),
                format!("{:.2}", check.measured),
                kept.into(),
            ]);
        }
        rows.print();
    }
    let missed: Vec<&str> = figures.checks.iter().filter(|c| !c.pass).map(|c| &*c.what).collect();
    if missed.is_empty() { Ok(()) } else { Err(Failure::failed(format!("not kept: {}", missed.join("; ")))) }
}
