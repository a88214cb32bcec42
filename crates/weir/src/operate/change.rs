//! From what runs to what another plan says: everything is built before anything changes.

use super::edges;
use super::ports::{self, Ready, Side, bridges};
use super::remote::AllCarried;
use super::{Failure, Operator, refused, sides};
use weir_conf::Plan;
use weir_engine::up::{NFQUEUE, is_up};
use weir_engine::{Change, Changed, Control};

/// One side of a bridge that stays, and what is to become of it.
struct SideChange<'p> {
    control: Control,
    direction: usize,
    side: Side<'p>,
    /// The port changes.
    port: bool,
    /// If nothing else changes, these values do.
    params: Option<Vec<(String, weir_core::queue::Params)>>,
    /// The edge changes.
    edge: bool,
    /// Leaves move to another worker.
    moves: bool,
    ready: Option<Ready>,
}

impl Operator<'_> {
    /// Changes what runs from the present plan to `new`: how many ports in place, and how many
    /// anew. Everything is built, and every interface looked at, before anything changes.
    pub(super) fn change_to(&mut self, new: &Plan) -> Result<(usize, usize), Failure> {
        let old = self.running.plan.clone();
        let wanted = bridges(new)?;
        let closed = |pair: &[&str; 2]| [old.fails_closed(pair), new.fails_closed(pair)];
        let is = |a: &[String; 2], b: &[&str; 2]| {
            let names = (a[0] == b[0] && a[1] == b[1]) || (a[0] == b[1] && a[1] == b[0]);
            // A bridge whose packets are to come in another way is another bridge. So is one by AF_XDP
            // that is to fail in another way: its program is another one.
            let same_way = old.xdp(b) == new.xdp(b) && (new.xdp(b).is_none() || closed(b)[0] == closed(b)[1]);
            // Nor can a direction move to another thread.
            names && same_way && old.workers(b) == new.workers(b)
        };
        let running: Vec<([String; 2], Control)> =
            self.up.bridges().map(|(interfaces, control)| (interfaces.clone(), control)).collect();
        let (kept, gone): (Vec<_>, Vec<_>) =
            running.iter().partition(|(names, _)| wanted.iter().any(|pair| is(names, pair)));
        let added: Vec<[&str; 2]> =
            wanted.iter().filter(|pair| !running.iter().any(|(names, _)| is(names, pair))).copied().collect();
        let sick = self.sick();
        let mut changes = Vec::new();
        for (names, control) in &kept {
            let pair = [&*names[0], &*names[1]];
            for ((direction, now), (_, before)) in sides(new, pair).into_iter().zip(sides(&old, pair)) {
                let is_sick = sick.contains(&names[1 - direction]);
                let (port, edge) = (is_sick || !now.is_as(&before), is_sick || !now.has_edge_as(&before));
                if port || edge {
                    let params = now.params_since(&before, self.registry).filter(|_| !is_sick);
                    let (control, ready) = (control.clone(), self.ready(now)?);
                    let several = ready.as_ref().filter(|_| control.parts(direction) > 1);
                    let moves =
                        several.is_some_and(|ready| now.moves_leaves(&before, self.registry, ready.link));
                    changes.push(SideChange {
                        control,
                        direction,
                        side: now,
                        port,
                        params,
                        edge,
                        moves,
                        ready,
                    });
                }
            }
        }
        for pair in &added {
            if pair[0] == NFQUEUE {
                self.rules.lay(pair[1])?;
            }
            for (_, side) in sides(new, *pair) {
                if side.name == NFQUEUE {
                    continue;
                }
                is_up(side.name).map_err(Failure::usage)?;
                self.ready(side)?;
            }
            if !self.workers.force && pair[0] != NFQUEUE {
                let going: Vec<&[String; 2]> = gone.iter().map(|(names, _)| names).collect();
                self.up.possible(&pair.map(str::to_string), &going).map_err(refused)?;
            }
        }
        let others = self.remotes.read(new)?;
        // From here on things change, and what holds rates at brokers still does. Interfaces may move from a bridge that goes to one that comes.
        let others = self.remotes.add(others);
        self.desk.declare(edges::brokers([&old, new], &self.remotes));
        self.remotes.begin(AllCarried::new());
        gone.iter().for_each(|(names, _)| _ = self.up.remove(names));
        for (index, pair) in added.iter().enumerate() {
            if let Err(failure) = self.add(new, *pair) {
                for [left, right] in &added[..index] {
                    self.up.remove(&[(*left).to_string(), (*right).to_string()]);
                }
                for (names, _) in &gone {
                    if let Err(worse) = self.add(&old, [&*names[0], &*names[1]]) {
                        weir_sys::say(&format!(
                            "{} and {} are bridged no more: {}",
                            names[0], names[1], worse.message
                        ));
                    }
                }
                self.remotes.retain(&old);
                self.desk.declare(edges::brokers([&old], &self.remotes));
                return Err(failure);
            }
        }
        for (names, _) in gone.iter().filter(|(names, _)| names[0] == NFQUEUE) {
            self.rules.take(&names[1]);
        }
        for (names, _) in kept {
            let pair = [&*names[0], &*names[1]];
            let closed = new.fails_closed(&pair);
            if closed != old.fails_closed(&pair)
                && let Err(e) = self.up.fail(names, closed)
            {
                weir_sys::say(&format!("bridge {} {}: `fail` stays as it was: {e}", names[0], names[1]));
            }
        }
        let (mut in_place, mut exchanged) = (0, 0);
        for change in changes {
            let name = change.side.name;
            match self.change(change) {
                Ok(Changed::InPlace(_)) => in_place += 1,
                Ok(Changed::Edge(_, None)) => {}
                Ok(Changed::Edge(_, Some(port))) if matches!(*port, Changed::InPlace(_)) => in_place += 1,
                Ok(_) => exchanged += 1,
                // What was asked of it stands in its channel: it does so when it goes on.
                Err(failure) => weir_sys::say(&format!("{name}: {}", failure.message)),
            }
        }
        self.remotes.exchange(others);
        self.remotes.retain(new);
        self.desk.declare(edges::brokers([new], &self.remotes));
        Ok((in_place, exchanged))
    }

    /// Changes one side of a bridge that stays.
    fn change(&mut self, change: SideChange<'_>) -> Result<Changed, Failure> {
        if change.control.parts(change.direction) > 1 {
            return self.change_parts(change);
        }
        let SideChange { control, direction, side, port, params, edge, ready, .. } = change;
        let before = control.state().ok().and_then(|state| state.egresses.into_iter().nth(direction));
        let plans = ready.map(|ready| (Box::new(ready.plan), ready.link, ready.edge));
        let (to, live) = match (plans, params) {
            (None, _) => (Change::Port(None), None),
            (Some((plan, link, edge)), params) => {
                let seed = before.as_ref().and_then(edges::seed_of).map_or_else(ports::seed, Ok)?;
                let live = edge.map(|e| edges::edge(e, side.name, &link, seed, &self.desk, before.as_ref()));
                let to = match params {
                    Some(params) => Change::Params { params, otherwise: plan },
                    None => Change::Plan(plan),
                };
                (to, live)
            }
        };
        let change = match (edge, port) {
            (false, _) => to,
            (true, true) => Change::Edge(live, Some(Box::new(to))),
            (true, false) => Change::Edge(live, None),
        };
        let changed = control.change(direction, change).map_err(Failure::failed)?;
        // A direction that was forwarded plainly has no port yet, or none any more.
        let is_none = |changed: &Changed| matches!(changed, Changed::NoPort);
        let none = match &changed {
            Changed::Edge(_, Some(port)) => is_none(port),
            other => is_none(other),
        };
        let Some(ready) = self.ready(side)?.filter(|_| none) else { return Ok(changed) };
        let (port, edge) = self.built(side, ready, before.as_ref())?;
        let change = Change::Edge(edge, Some(Box::new(Change::Port(port))));
        control.change(direction, change).map_err(Failure::failed)
    }

    /// The same where several workers run the port, each a part. Where a leaf moves from one to another, or there is no
    /// port yet, the parts are made anew: what waits leaves first.
    fn change_parts(&mut self, change: SideChange<'_>) -> Result<Changed, Failure> {
        let SideChange { control, direction, side, moves, ready, .. } = change;
        let Some(mut ready) = ready else {
            return control.change_each(direction, || Change::Port(None)).map_err(Failure::failed);
        };
        if !moves {
            let mut changed = control.change_all(direction, ready.changes()).map_err(Failure::failed)?;
            let whole = !changed.iter().any(|one| matches!(one, Changed::NoPort));
            if let Some(last) = changed.pop().filter(|_| whole) {
                return Ok(last);
            }
            let Some(again) = self.ready(side)? else { return Ok(Changed::NoPort) };
            ready = again;
        }
        let before = control.state().ok().and_then(|state| state.egresses.into_iter().nth(direction));
        let seed = before.as_ref().and_then(edges::seed_of).map_or_else(ports::seed, Ok)?;
        let mut changed = control.change_all(direction, ready.ports(seed)).map_err(Failure::failed)?;
        Ok(changed.pop().unwrap_or(Changed::NoPort))
    }

    /// The interfaces whose egress does not run what its plan says: a discipline broke, or the
    /// worker gave up its ports.
    fn sick(&self) -> Vec<String> {
        let bridges = self.up.snapshot().bridges;
        let egresses = bridges.into_iter().flat_map(|bridge| {
            let failed = bridge.failed.is_some();
            bridge.egresses.into_iter().map(move |egress| (failed, egress))
        });
        let sick = egresses
            .filter(|(failed, egress)| *failed || egress.port.as_ref().is_some_and(|p| p.broken.is_some()));
        sick.map(|(_, egress)| egress.interface).collect()
    }
}
