//! The rules of the packet filter that a box has: laid before its queues are opened, taken away when an interface
//! leaves the box, and all that are new when it does not come up.

use crate::commands::Failure;
use std::process::Command;
use weir_conf::Plan;
use weir_engine::guard::Guard;
use weir_engine::up::lay_queue;

/// The hidden command of the process that sees to the rules of the packet filter.
pub const GUARD: &str = "nfqueue-guard";

/// Who lays rules, and whose are laid.
pub struct Rules {
    /// The process that does so for a confined box; `None` where the first configuration asked for no rule.
    guard: Option<Guard>,
    laid: Vec<String>,
    /// Of those, what is taken away again if what they are for does not come up.
    new: Vec<String>,
}

/// Why an interface's packets cannot be handed over.
fn unlaid(e: std::io::Error) -> Failure {
    Failure::failed(format!("{e}: a confined `weir up` starts no iptables; start it anew with this file"))
}

impl Rules {
    /// Lays the rules of a plan. To be called before the cage, in which no program can be started.
    pub fn for_(plan: &Plan) -> Result<Rules, Failure> {
        let mut rules = Rules { guard: None, laid: Vec::new(), new: Vec::new() };
        if plan.queues().next().is_some() {
            let mut command = Command::new(std::env::current_exe().map_err(Failure::failed)?);
            command.arg(GUARD);
            rules.guard = Some(Guard::start(command).map_err(Failure::failed)?);
        }
        for interface in plan.queues() {
            if let Err(failure) = rules.lay(interface) {
                rules.undo();
                return Err(failure);
            }
        }
        Ok(rules)
    }

    /// Lays the rule for an interface, unless it is.
    pub fn lay(&mut self, interface: &str) -> Result<(), Failure> {
        if self.laid.iter().any(|known| known == interface) {
            return Ok(());
        }
        match &mut self.guard {
            Some(guard) => {
                if guard.lay(interface).map_err(Failure::failed)? {
                    self.new.push(interface.to_owned());
                }
            }
            None => lay_queue(interface).map_err(unlaid)?,
        }
        self.laid.push(interface.to_owned());
        Ok(())
    }

    /// What was laid stays.
    pub fn keep(&mut self) {
        self.new.clear();
    }

    /// Takes away what was laid since the last [`Rules::keep`].
    pub fn undo(&mut self) {
        for interface in std::mem::take(&mut self.new) {
            self.take(&interface);
        }
    }

    /// Takes the rule for an interface away. One that cannot be taken away lets packets pass, because nobody has its
    /// queue; that is said.
    pub fn take(&mut self, interface: &str) {
        self.laid.retain(|known| known != interface);
        let taken = self.guard.as_mut().map(|guard| guard.take(interface));
        if let Some(Err(e)) = taken {
            weir_sys::say(&format!("interface {interface}: its rule stays, and lets packets pass: {e}"));
        }
    }
}
