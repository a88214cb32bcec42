//! What becomes of the traffic of a bridge without its worker, changed while it runs.

use super::{Running, SharedKernel, Up, lock};
use crate::control::Control;
use crate::fail_open::{self, FailOpen};
use std::io;

impl Up {
    /// Says from now on what becomes of the traffic of a bridge without its worker. Nothing is lost by the
    /// change. Where the kernel has not the means, it fails closed, and [`Up::snapshot`] says why. It holds for a
    /// worker that hangs, too: one that is to fail open is carried by the kernel from now on.
    ///
    /// # Errors
    /// The worker has ended, or a path cannot be taken away.
    pub fn fail(&mut self, interfaces: &[String; 2], closed: bool) -> io::Result<()> {
        let running = self.bridges.iter_mut().find(|running| running.interfaces == *interfaces);
        let Some(Running { worker, kernel, laid, .. }) = running else { return Ok(()) };
        let control = worker.control();
        if closed {
            return close(interfaces, &control, kernel, fail_open::CLOSED.to_owned());
        }
        if lock(kernel).is_some() {
            return Ok(());
        }
        let open = match FailOpen::of_running(interfaces) {
            Ok(open) => open,
            Err(e) => return control.fail(Err(e.to_string())),
        };
        let new = open.kernel();
        unless_silent(interfaces, control.fail(Ok(open)), "the kernel carries its traffic from now on")?;
        if let Err(e) = control.while_still(|| new.attach_below_worker()) {
            return close(interfaces, &control, kernel, e.to_string());
        }
        (*lock(kernel), *laid) = (Some(new), true);
        Ok(())
    }
}

fn close(interfaces: &[String; 2], control: &Control, kernel: &SharedKernel, why: String) -> io::Result<()> {
    // The path before what hides it.
    control.while_still(|| fail_open::remove_between(interfaces))?;
    // Whatever the worker answers, there is no path any more.
    *lock(kernel) = None;
    unless_silent(interfaces, control.fail(Err(why)), "nothing carries its traffic until it goes on")
}

/// A worker that hangs is told, and does it when it goes on. What the kernel does, it does now.
fn unless_silent(interfaces: &[String; 2], done: io::Result<()>, meanwhile: &str) -> io::Result<()> {
    match done {
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            let [left, right] = interfaces;
            weir_sys::say(&format!("bridge {left} {right}: {e}: {meanwhile}"));
            Ok(())
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direction::{Delay, Observe};
    use crate::fail_open::tests::{on_a_box, passes_for};
    use crate::up::{Pair, Side, up};
    use std::sync::{Arc, Mutex};
    use weir_core::packet::Key;
    use weir_core::port::{Event, Port, PortConfig, PortPlan, WireConfig};
    use weir_core::queue::Link;
    use weir_core::units::Rate;

    /// Lets the worker hang while somebody has the lock.
    struct Hangs(Arc<Mutex<()>>);

    impl Observe for Hangs {
        fn arrived(&mut self, _: usize, _: weir_core::units::Instant, _: &Key, _: u32, _: u32) {
            drop(self.0.lock());
        }
        fn told(&mut self, _: usize, _: &Event<'_>) {}
    }

    /// A bridge fails closed and its worker hangs: told to fail open, the kernel carries from then on, and what it
    /// carries does not leave a second time when the worker goes on. Told to fail closed again, nobody does.
    #[test]
    fn a_worker_that_hangs_is_no_reason_to_do_nothing() {
        on_a_box(|names, mut left, mut right| {
            let link = Link::new(Rate::from_mbps(100), 24, 1_514);
            let port = Port::new(PortConfig::new(link, WireConfig::Open), PortPlan::fifo(50));
            let [one, other] =
                names.clone().map(|interface| Side { interface, port: None, delay: Delay::default() });
            let hang = Arc::new(Mutex::new(()));
            let observers: [Option<Box<dyn Observe>>; 2] = [Some(Box::new(Hangs(hang.clone()))), None];
            let right_side = Side { port: Some(port), ..other };
            let pair = Pair { fails_closed: true, observers, ..Pair::new(one, right_side) };
            let mut up = up(vec![pair]).unwrap();
            // The kernel needs a while to see that a link is up.
            let start = weir_sys::now();
            while !passes_for(2, &mut left, &mut right) {
                assert!(weir_sys::now().since(start).as_nanos() < 10_000_000_000, "no frame passes");
            }
            let held = hang.lock().unwrap();
            // The first one is in the hands of the worker, which hangs with it.
            assert!(!passes_for(2, &mut left, &mut right), "nobody carries it");
            up.fail(&names, false).unwrap();
            if let Err(e) = FailOpen::of_running(&names) {
                return eprintln!("SKIPPED: {e}");
            }
            assert!((0..5).all(|_| passes_for(2, &mut left, &mut right)), "the kernel carries it");
            drop(held);
            assert!(up.snapshot().bridges[0].without.open);
            // What it hung with still leaves, and nothing else.
            let late = std::iter::from_fn(|| crate::fail_open::tests::receives(&mut right).then_some(()));
            assert_eq!(late.count(), 1);
            assert!(passes_for(2, &mut left, &mut right));
            let held = hang.lock().unwrap();
            assert!(!passes_for(2, &mut left, &mut right), "the heart beats still");
            up.fail(&names, true).unwrap();
            assert!(!passes_for(2, &mut left, &mut right), "nobody is to carry it");
            drop(held);
            assert!(!up.stop().bridges[0].without.open);
        });
    }
}
