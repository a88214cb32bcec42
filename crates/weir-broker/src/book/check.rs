//! Whether the book agrees with itself.

use super::Book;
use crate::Nanos;

impl Book {
    /// Counts everything anew and compares. For tests, and for a broker that has loaded a book.
    ///
    /// # Errors
    /// The first sentence that does not hold.
    pub fn check(&self, now: Nanos) -> Result<(), String> {
        for (at, resource) in self.resources.iter().enumerate() {
            let at = at as u32;
            let (mut taken, mut asked) = (0, 0);
            for lease in self.leases.iter().flatten() {
                let Some(place) = lease.path.iter().position(|r| r == at) else { continue };
                taken += lease.base;
                match &lease.wait {
                    Some(wait) if wait.serials[place] > 0 => asked += lease.hold,
                    _ => taken += lease.hold,
                }
            }
            let (name, said) = (&resource.name, resource.taken);
            if taken != said {
                return Err(format!("{name}: {said} bit/s counted, the leases have {taken}"));
            }
            let said = resource.agreement.as_ref().map_or(0, |a| a.asked);
            if asked != said {
                return Err(format!("{name}: {said} bit/s asked for, the leases that wait need {asked}"));
            }
            let called_back = || {
                let on_it = |l: &&super::Lease| l.path.iter().any(|r| r == at);
                self.leases.iter().flatten().filter(on_it).any(|l| l.limit < l.base)
            };
            let ended = resource.agreement.as_ref().is_some_and(|a| a.until <= now);
            if taken > resource.capacity && !ended && !called_back() {
                return Err(format!(
                    "{name}: {taken} of {} bit/s, and nothing is called back",
                    resource.capacity
                ));
            }
        }
        for (at, lease) in self.leases.iter().enumerate() {
            let Some(lease) = lease else { continue };
            if self.lease_by_name.get(&lease.name) != Some(&(at as u32)) {
                return Err(format!("{}: not found by its name", lease.name));
            }
            if lease.wait.is_some() != self.waiting.contains(&(at as u32)) {
                return Err(format!("{}: waits and is not in the row, or the reverse", lease.name));
            }
        }
        if let Some(lease) = self.notes.keys().find(|lease| !self.lease_by_name.contains_key(*lease)) {
            return Err(format!("{lease}: a note of a lease that is not there"));
        }
        let (alive, ends) = (self.leases.iter().flatten().count(), self.ends.len());
        if alive != ends {
            return Err(format!("{alive} leases, {ends} ends"));
        }
        Ok(())
    }
}
