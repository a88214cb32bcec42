//! Whether the device behind a socket can send.

use std::io;
use weir_core::queue::DropReason;
use weir_core::units::{Duration, Instant};
use weir_sys::Interface;

/// How long it is believed that an interface can send.
const BELIEVED: Duration = Duration::from_millis(1);

/// What an interface said when it was last asked.
#[derive(Clone, Copy, Default)]
pub(crate) struct Device {
    trouble: Option<DropReason>,
    ask_at: Option<Instant>,
    /// Its longest packet then, without layer-2 header.
    pub(crate) mtu: u32,
}

impl Device {
    /// Why the interface cannot send: it is gone, down or without a carrier. Without a carrier the
    /// kernel takes each frame, drops it, and answers that all is well.
    pub(crate) fn trouble(&mut self, ask: impl FnOnce() -> io::Result<Interface>) -> Option<DropReason> {
        let now = weir_sys::now();
        if self.trouble.is_some() || self.ask_at.is_none_or(|at| now >= at) {
            self.ask_at = Some(now + BELIEVED);
            self.trouble = match ask() {
                Ok(interface) if interface.running => {
                    self.mtu = interface.mtu;
                    None
                }
                Ok(_) => Some(DropReason::Portdown),
                // It is getting another name: nothing can be said of it now.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.trouble,
                Err(_) => Some(DropReason::Gone),
            };
        }
        self.trouble
    }
}
