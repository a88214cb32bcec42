//! What each benchmark configures: the tree, and which packets wait in it.

use weir_core::queue::{Params, Scope, Value};
use weir_core::sched::{ClassConfig, Classes, Node, Registry};
use weir_core::units::{Duration, Fixed, Fraction, Rate};

/// A tree with packets.
pub struct Scene {
    /// The tree.
    pub node: Node,
    /// Packets are of so many flows in turn.
    pub flows: u32,
    /// Packets that wait.
    pub backlog: u32,
}

/// Packets that wait where there are fewer flows and leaves.
const BACKLOG: u32 = 64;
/// The link of every scene.
pub const LINK: Rate = Rate::from_mbps(100);
const LIMIT: (&str, Value) = ("qlimit", Value::Count(1_000));

/// The scene of that name; `None` for a benchmark of something else.
pub fn of(name: &str) -> Option<Scene> {
    // RED in every queue; JoBS without the part that runs once per sample.
    if let Some(plain) = name.strip_suffix("-red") {
        let mut scene = of(plain)?;
        for class in &mut scene.node.classes {
            match &mut class.queue {
                Some(inner) => {
                    inner.classes.iter_mut().for_each(|class| class.params.set("red", Value::Flag))
                }
                None => class.params.set("red", Value::Flag),
            }
        }
        return Some(scene);
    }
    if let Some(sampled) = name.strip_suffix("-unsampled") {
        let mut scene = of(sampled)?;
        scene.node.params.set("sample", Value::Count(1_000_000));
        return Some(scene);
    }
    let (word, size) = match name.rsplit_once('-') {
        Some((word, size)) => (word, size.parse().unwrap_or(0)),
        None => (name, 0),
    };
    let scene = match (word, size) {
        ("fifo", _) => classless("fifoq", &[LIMIT], 1),
        ("red", _) => classless("red", &[LIMIT, th("thmin", 50), th("thmax", 200)], 1),
        ("rio", _) => classless("rio", &rio(), 1),
        ("blue", _) => classless("blue", &[LIMIT], 1),
        ("codel", _) => classless("codel", &[LIMIT], 1),
        ("pie", _) => classless("pie", &[LIMIT], 1),
        ("wfq", n) => classless("wfq", &flow_queues(n), n),
        ("drr", n) => classless("drr", &flow_queues(n), n),
        ("fq_codel", n) => classless("fqcodel", &[], n),
        ("qfq", n) if has_classes("qfq") => shares("qfq", n, &[]),
        ("qfq", n) => classless("qfq", &flow_queues(n), n),
        ("priq", n) => flat("priq", n, |i| vec![("priority", Value::Count(u64::from(i)))]),
        ("cbq", n) => cbq(n),
        ("hfsc", n) => {
            let rate = Rate::from_bps(LINK.as_bps() * 75 / 100 / u64::from(n));
            shares("hfsc", n, &[("bandwidth", Value::Rate(rate))])
        }
        ("hfsc-ls", n) => link_shares(n),
        ("jobs", _) => jobs(name)?,
        ("tree", _) => tree(),
        ("subscribers", n) if n > 0 => subscribers(n),
        _ => return None,
    };
    Some(scene)
}

/// The scene of a discipline or AQM that Weir does not bring: `NAME`, with 4 classes where it has
/// classes, or `NAME-N`. `None` for a name that is not registered.
pub fn own(registry: &Registry, name: &str) -> Option<Scene> {
    let sized = || Some((name.rsplit_once('-')?.0, name.rsplit_once('-')?.1.parse().ok()?));
    let (word, size): (&str, u32) = match registry.find(name) {
        Some(_) => (name, 4),
        None => sized().filter(|(_, size)| (1..=65_536).contains(size))?,
    };
    let entry = registry.find(word)?;
    if entry.classes == Classes::None {
        return Some(classless(entry.name, &[], size));
    }
    let has = |name| entry.param(Scope::Class, name).is_some();
    let mut scene = flat(entry.name, size, |i| {
        if has("priority") { vec![("priority", Value::Count(u64::from(i)))] } else { Vec::new() }
    });
    if !has("default") {
        scene.node.classes[0].params = Params::new();
    }
    if entry.classes == Classes::RootedTree {
        scene.node.classes.insert(0, ClassConfig { name: "root".into(), ..ClassConfig::default() });
        scene.node.classes.iter_mut().skip(1).for_each(|class| class.parent = Some(0));
    }
    Some(scene)
}

fn th(name: &'static str, packets: u64) -> (&'static str, Value) {
    (name, Value::Count(packets))
}

/// The backlog of 64 lies between the thresholds of every precedence.
fn rio() -> Vec<(&'static str, Value)> {
    let mut params = vec![LIMIT];
    for (min, max) in [("lo_thmin", "lo_thmax"), ("med_thmin", "med_thmax"), ("hi_thmin", "hi_thmax")] {
        params.extend([th(min, 50), th(max, 200)]);
    }
    params
}

/// Four queues a flow, so that few flows share one; room for all.
fn flow_queues(flows: u32) -> Vec<(&'static str, Value)> {
    vec![
        ("nqueues", Value::Count(u64::from(flows * 4).clamp(256, 65_536))),
        ("qsize", Value::Bytes(1 << 20)),
        ("hash", Value::Word("full")),
    ]
}

fn params(list: &[(&'static str, Value)]) -> Params {
    list.iter().fold(Params::new(), |params, (name, value)| params.with(name, value.clone()))
}

fn classless(discipline: &str, list: &[(&'static str, Value)], flows: u32) -> Scene {
    let node = Node { discipline: discipline.into(), params: params(list), classes: Vec::new() };
    Scene { node, flows, backlog: BACKLOG.max(flows) }
}

fn flat(discipline: &str, classes: u32, list: impl Fn(u32) -> Vec<(&'static str, Value)>) -> Scene {
    let class = |i: u32| {
        let mut params = params(&list(i));
        if i == 0 {
            params.set("default", Value::Flag);
        }
        ClassConfig { name: format!("c{i}"), parent: None, params, queue: None }
    };
    let classes = (0..classes).map(class).collect::<Vec<_>>();
    let backlog = BACKLOG.max(classes.len() as u32);
    let node = Node { discipline: discipline.into(), params: Params::new(), classes };
    Scene { node, flows: 1, backlog }
}

fn shares(discipline: &str, classes: u32, list: &[(&'static str, Value)]) -> Scene {
    flat(discipline, classes, |_| list.to_vec())
}

/// HFSC by link-share curves alone, equal ones.
fn link_shares(classes: u32) -> Scene {
    let share = Fraction::ratio(95, 100 * u64::from(classes));
    shares("hfsc", classes, &[("pshare", Value::Fraction(share))])
}

fn has_classes(discipline: &str) -> bool {
    Registry::builtin().find(discipline).is_some_and(|e| e.classes != Classes::None && e.build.is_some())
}

/// Leaves below the root share 95 % equally, and all borrow.
pub(crate) fn cbq(leaves: u32) -> Scene {
    let whole = Value::Fraction(Fraction::ONE);
    let root = ClassConfig {
        name: "root".into(),
        params: params(&[("pbandwidth", whole)]),
        ..ClassConfig::default()
    };
    let share = Value::Fraction(Fraction::ratio(95, 100 * u64::from(leaves)));
    let mut classes = vec![root];
    for i in 0..leaves {
        let mut params = params(&[("pbandwidth", share.clone()), ("borrow", Value::Flag), LIMIT]);
        if i == 0 {
            params.set("default", Value::Flag);
        }
        classes.push(ClassConfig { name: format!("c{i}"), parent: Some(0), params, queue: None });
    }
    Scene {
        node: Node { discipline: "cbq".into(), params: Params::new(), classes },
        flows: 1,
        backlog: BACKLOG.max(leaves),
    }
}

/// The sets of the QoSbox's tables 3 to 5: set 1 is its table 1; set 2 without the absolute
/// bounds, set 3 without the proportional ones, set 4 without any; `jobs-qN` is set 1 with N
/// classes. Two classes leave no room for proportions.
fn jobs(name: &str) -> Option<Scene> {
    let (classes, absolute, proportional) = match name {
        "jobs-set1" | "jobs-q4" => (4, true, true),
        "jobs-set2" => (4, false, true),
        "jobs-set3" => (4, true, false),
        "jobs-set4" => (4, false, false),
        "jobs-q2" => (2, true, false),
        "jobs-q6" => (6, true, true),
        "jobs-q8" => (8, true, true),
        _ => return None,
    };
    let two = Value::Real(Fixed::from_int(2));
    let mut scene = flat("jobs", classes, |i| {
        let mut list = vec![("priority", Value::Count(u64::from(i)))];
        if absolute && i == 0 {
            list.push(("adc", Value::Time(Duration::from_millis(8))));
            list.push(("alc", Value::Fraction(Fraction::ratio(1, 100))));
        }
        if absolute && i == 1 {
            list.push(("arc", Value::Rate(Rate::from_mbps(35))));
        }
        if proportional && i > 0 && i + 1 < classes {
            list.push(("rdc", two.clone()));
            list.push(("rlc", two.clone()));
        }
        list
    });
    scene.node.params = params(&[("qlimit", Value::Count(200))]);
    Some(scene)
}

/// So many subscribers below access nodes of 100, ten nodes at a site: HFSC in three levels, shares alike, and
/// each subscriber's flows in 64 queues of FQ-CoDel. A packet waits for each.
fn subscribers(count: u32) -> Scene {
    let class = |name: String, parent: Option<usize>, below: u32| ClassConfig {
        name,
        parent,
        params: params(&[(
            "pshare",
            Value::Fraction(Fraction::ratio(95 * u64::from(below), 100 * u64::from(count))),
        )]),
        queue: None,
    };
    let fq_codel = || Node {
        discipline: "fqcodel".into(),
        params: params(&[("flows", Value::Count(64))]),
        classes: Vec::new(),
    };
    let (mut classes, mut site, mut access) = (Vec::new(), None, None);
    for n in 0..count {
        if n % 1_000 == 0 {
            site = Some(classes.len());
            classes.push(class(format!("site{}", n / 1_000), None, 1_000.min(count - n)));
        }
        if n % 100 == 0 {
            access = Some(classes.len());
            classes.push(class(format!("access{}", n / 100), site, 100.min(count - n)));
        }
        classes.push(ClassConfig { queue: Some(fq_codel()), ..class(format!("subscriber{n}"), access, 1) });
    }
    classes[2].params.set("default", Value::Flag);
    Scene {
        node: Node { discipline: "hfsc".into(), params: Params::new(), classes },
        flows: 1 << 16,
        backlog: BACKLOG.max(count),
    }
}

/// 4,096 classes of equal weight (QFQ where it has classes, else HFSC), each PRIQ over four FIFOs, a packet in every leaf.
fn tree() -> Scene {
    const CLASSES: u32 = 4_096;
    let mut scene = if has_classes("qfq") { shares("qfq", CLASSES, &[]) } else { link_shares(CLASSES) };
    for (index, class) in scene.node.classes.iter_mut().enumerate() {
        let mut inner = flat("priq", 4, |i| vec![("priority", Value::Count(u64::from(i)))]).node;
        for below in &mut inner.classes {
            below.name = format!("c{index}-{}", below.name);
        }
        class.queue = Some(inner);
    }
    scene.backlog = 4 * CLASSES;
    scene
}
