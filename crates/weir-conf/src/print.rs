//! From plan to text: an altq.conf that reads back as the same plan.

use crate::names;
use crate::plan::{
    Action, Attach, Class, Conditioner, Fail, Filter, Interface, Meter, Options, Plan, Queue, Tunnels, Xdp,
};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_core::packet::{Dscp, Family};
use weir_core::port::Segment;

/// The plan as altq.conf.
pub fn print(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some(d) = &plan.red {
        line(&mut text, format!("red {} {} {}", d.thmin, d.thmax, d.invpmax));
    }
    if let Some(all) = &plan.rio {
        let words: Vec<String> =
            all.iter().map(|d| format!("{} {} {}", d.thmin, d.thmax, d.invpmax)).collect();
        line(&mut text, format!("rio {}", words.join("  ")));
    }
    for broker in &plan.brokers {
        line(&mut text, crate::broker::print(broker));
    }
    for interface in &plan.interfaces {
        if !text.is_empty() {
            text.push('\n');
        }
        print_interface(&mut text, interface);
    }
    text
}

/// What says one thing of an interface, as altq.conf says it, without its line end.
pub(crate) enum Line<'a> {
    /// Its own line.
    Interface,
    /// A class.
    Class(&'a Class),
    /// A filter.
    Filter(&'a Filter),
    /// A conditioner.
    Conditioner(&'a Conditioner),
}

/// One line of an interface.
pub(crate) fn print_line(interface: &Interface, line: &Line<'_>) -> String {
    let mut text = String::new();
    match line {
        Line::Interface => interface_line(&mut text, interface),
        Line::Class(class) => print_class(&mut text, interface, class),
        Line::Filter(filter) => print_filter(&mut text, interface, filter),
        Line::Conditioner(conditioner) => print_conditioner(&mut text, interface, conditioner),
    }
    text.trim().to_string()
}

fn line(text: &mut String, line: String) {
    text.push_str(&line);
    text.push('\n');
}

fn options(text: &mut String, options: &Options) {
    for given in options.iter() {
        text.push(' ');
        text.push_str(&given.text());
    }
}

/// A discipline and its options, behind a blank.
pub(crate) fn queue(text: &mut String, queue: &Queue) {
    text.push(' ');
    text.push_str(&queue.name);
    options(text, &queue.options);
}

/// Writes to a `String` cannot fail.
macro_rules! put {
    ($text:expr, $($arg:tt)*) => {
        let _ = write!($text, $($arg)*);
    };
}

fn print_interface(text: &mut String, interface: &Interface) {
    interface_line(text, interface);
    for conditioner in &interface.conditioners {
        print_conditioner(text, interface, conditioner);
    }
    // Filters stand where they stood between the classes.
    let mut filters = interface.filters.iter().peekable();
    for (index, class) in interface.classes.iter().enumerate() {
        while let Some(filter) = filters.next_if(|f| f.after_classes <= index) {
            print_filter(text, interface, filter);
        }
        print_class(text, interface, class);
    }
    for filter in filters {
        print_filter(text, interface, filter);
    }
    crate::edge::print(interface).into_iter().for_each(|edge| line(text, edge));
}

fn print_conditioner(text: &mut String, interface: &Interface, conditioner: &Conditioner) {
    put!(text, "conditioner {} {} ", interface.name, conditioner.name);
    action(text, &conditioner.action);
    text.push('\n');
}

fn interface_line(text: &mut String, interface: &Interface) {
    put!(text, "interface {}", interface.name);
    if let Some(rate) = interface.bandwidth {
        put!(text, " bandwidth {rate}");
    }
    if let Some(bytes) = interface.tbrsize {
        put!(text, " tbrsize {bytes}");
    }
    if let Some(packets) = interface.capacity {
        put!(text, " capacity {packets}");
    }
    if let Some(bytes) = interface.overhead {
        put!(text, " overhead {bytes}");
    }
    match interface.tunnels {
        None => {}
        Some(Tunnels::Inner) => text.push_str(" tunnels inner"),
        Some(Tunnels::Outer) => text.push_str(" tunnels outer"),
    }
    if let Some(protection) = interface.protect {
        put!(text, " protect {protection}");
    }
    match interface.segment {
        None => {}
        Some(Segment::Always) => text.push_str(" segment always"),
        Some(Segment::Never) => text.push_str(" segment never"),
        Some(Segment::Beyond(time)) => {
            put!(text, " segment {time}");
        }
    }
    match &interface.attach {
        Attach::Unsaid => {}
        Attach::Nfqueue => text.push_str(" attach nfqueue"),
        Attach::Bridge(peer) => {
            put!(text, " attach bridge {peer}");
        }
    }
    match interface.xdp {
        None => {}
        Some(Xdp::Wait) => text.push_str(" xdp"),
        Some(Xdp::BusyPoll) => text.push_str(" xdp busy-poll"),
    }
    match interface.fail {
        None => {}
        Some(Fail::Open) => text.push_str(" fail open"),
        Some(Fail::Closed) => text.push_str(" fail closed"),
    }
    if let Some(workers) = interface.workers {
        put!(text, " workers {workers}");
    }
    if let Some(discipline) = &interface.discipline {
        queue(text, discipline);
    }
    text.push('\n');
}

fn print_class(text: &mut String, interface: &Interface, class: &Class) {
    let parent = class.parent.as_deref().unwrap_or("NULL");
    put!(text, "class {} {} {} {parent}", class.discipline, interface.name, class.name);
    options(text, &class.options);
    if let Some(inner) = &class.queue {
        queue(text, inner);
    }
    text.push('\n');
}

fn print_filter(text: &mut String, interface: &Interface, filter: &Filter) {
    let six = filter.family == Family::V6;
    put!(text, "\tfilter{} {} {}", if six { "6" } else { "" }, interface.name, filter.class);
    if let Some(name) = &filter.name {
        put!(text, " name {name}");
    }
    if filter.ruleno != 0 {
        put!(text, " ruleno {}", filter.ruleno);
    }
    for ((value, mask), port) in [(filter.dst, filter.dst_port), (filter.src, filter.src_port)] {
        text.push(' ');
        if six {
            address_6(text, value, mask)
        } else {
            address_4(text, value as u32, mask as u32)
        }
        put!(text, " {port}");
    }
    match names::protocols().find(|n| names::protocol(n) == Some(filter.protocol)) {
        Some(name) => {
            put!(text, " {name}");
        }
        None => {
            put!(text, " {}", filter.protocol);
        }
    }
    if filter.spi != 0 {
        put!(text, " gpi {:#x}", filter.spi);
    }
    if filter.flow_label != 0 {
        put!(text, " flowlabel {:#x}", filter.flow_label);
    }
    match filter.tos {
        None => {}
        Some((value, 0xfc)) => {
            let name = Dscp::new(value >> 2).map_or(String::new(), |d| d.to_string());
            put!(text, " dscp {name}");
        }
        Some((value, mask)) => {
            let word = if six { "tclass" } else { "tos" };
            put!(text, " {word} {value:#x}");
            if mask != 0xff {
                put!(text, " {word}mask {mask:#x}");
            }
        }
    }
    if filter.dontwarn {
        text.push_str(" dontwarn");
    }
    text.push('\n');
}

fn address_4(text: &mut String, value: u32, mask: u32) {
    if mask == 0 {
        text.push('0');
        return;
    }
    put!(text, "{}", Ipv4Addr::from(value));
    if mask != u32::MAX {
        put!(text, " netmask {}", Ipv4Addr::from(mask));
    }
}

fn address_6(text: &mut String, value: u128, mask: u128) {
    if mask == 0 {
        text.push('0');
        return;
    }
    put!(text, "{}", Ipv6Addr::from(value));
    if mask != u128::MAX {
        put!(text, "/{}", mask.leading_ones());
    }
}

fn action(text: &mut String, what: &Action) {
    match what {
        Action::Pass => text.push_str("<pass>"),
        Action::Drop => text.push_str("<drop>"),
        Action::Mark(byte) => {
            put!(text, "<mark {byte:#04x}>");
        }
        Action::Conditioner(name) => {
            put!(text, "<conditioner {name}>");
        }
        Action::Meter { meter, actions } => {
            let mut is_aware = false;
            match meter {
                Meter::TokenBucket { rate, depth } => {
                    put!(text, "<tbmeter {rate} {depth} ");
                }
                Meter::SingleRate { rate, burst, excess, aware } => {
                    is_aware = *aware;
                    put!(text, "<srtcm {rate} {burst} {excess} ");
                }
                Meter::TwoRate { rate, burst, peak, peak_burst, aware, rfc4115 } => {
                    is_aware = *aware;
                    let word = if *rfc4115 { "trtcm4115" } else { "trtcm" };
                    put!(text, "<{word} {rate} {burst} {peak} {peak_burst} ");
                }
                Meter::TimeWindow { rate, peak, window } => {
                    put!(text, "<tswtcm {rate} {peak} {window} ");
                }
            }
            for one in actions {
                action(text, one);
            }
            if is_aware {
                text.push_str(" coloraware");
            }
            text.push('>');
        }
    }
}
