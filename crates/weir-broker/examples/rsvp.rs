//! What a daemon of RSVP does with its reservations: `rsvp [SOCKET OF THE BROKER]`. Without one a book in this process
//! decides, and what `weir` would be told is printed.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::Command;
use weir_broker::book::{self, Book};
use weir_broker::http::Target;
use weir_broker::rsvp::{AtBroker, DataPlane, Filter, Flowspec, Leases, REFRESH, Reservation};
use weir_broker::rsvp::{Reservations, TrafficControl};

/// The box that forwards: a class has what its reservations need together, and their flows are pinned.
struct Weir {
    runs: bool,
    rates: BTreeMap<Reservation, u64>,
}

impl Weir {
    fn tell(&self, words: &[&str]) {
        println!("weir {}", words.join(" "));
        if self.runs && !Command::new("weir").args(words).status().is_ok_and(|status| status.success()) {
            eprintln!("weir did not do that");
        }
    }
}

fn flow(filter: &Filter) -> String {
    let Filter { source: (from, from_port), destination: (to, to_port), .. } = filter;
    format!("udp {from}:{from_port} > {to}:{to_port}")
}

impl DataPlane for Weir {
    fn shape(&mut self, of: Reservation, interface: &str, rate: u64) {
        self.rates.insert(of, rate);
        let sum: u64 = self.rates.values().sum();
        self.tell(&["set", interface, "rt", "bandwidth", &sum.max(1).to_string()]);
    }
    fn pin(&mut self, _: Reservation, filter: &Filter) {
        self.tell(&["flow", "pin", &flow(filter)]);
    }
    fn unpin(&mut self, _: Reservation, filter: &Filter) {
        self.tell(&["flow", "unpin", &flow(filter)]);
    }
}

/// What messages of RSVP come to. Times are nanoseconds on the daemon's clock.
fn serve(leases: impl Leases, runs: bool) -> Result<(), Box<dyn Error>> {
    let mut control = Reservations::new("rsvpd", "rt", leases, Weir { runs, rates: BTreeMap::new() });
    // A Resv message: 64 kbit/s for the packets of one sender. An error becomes a ResvErr message.
    let needs = Flowspec { bucket_bps: 64_000, guaranteed_bps: 0 };
    let sender = Filter {
        protocol: 17,
        source: ("10.0.0.1".parse()?, 4_000),
        destination: ("192.0.2.1".parse()?, 5_004),
    };
    let call = control.add_flowspec(0, "wan0", needs)?;
    control.add_filter(call, sender)?;
    // It comes again every 30 s. What does not ends after 90 s, by `expire`.
    control.mod_flowspec(REFRESH, call, needs)?;
    // More than there is: refused, and what was there stays.
    let all = Flowspec { bucket_bps: 2_000_000, guaranteed_bps: 0 };
    println!(
        "{}",
        control.mod_flowspec(REFRESH, call, all).err().map_or("granted".into(), |e| e.to_string())
    );
    // A ResvTear message.
    control.del_flowspec(2 * REFRESH, call);
    println!("{} bit/s are free", control.advertise("wan0"));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(socket) => serve(AtBroker { target: Target::Unix(socket.into()), token: None }, true),
        None => {
            let mut book = Book::new("here");
            let capacity = book::Command::Provide { resource: "wan0:rt".into(), capacity: 1_000_000 };
            book.apply(0, &capacity, &mut Vec::new());
            serve(book, false)
        }
    }
}
