//! System calls, made safe. The only crate with `unsafe` code.
//!
//! - Time: [`now`], [`thread_cpu`], [`sleep_until`], [`wait`], [`wait_for`], [`wait_for_either`].
//! - This process and others: [`pin_to`], [`enter_new_network`], [`take_priority`], [`kill`], [`random_seed`].
//! - [`rights`]: capabilities; [`confine`]: files and system calls that stay open.
//! - Lines for an operator that block nobody: [`say`].
//! - Interfaces: [`interface`], [`interface_index`], [`receive_queues`], [`set_offload`], [`set_offloads`].
//! - [`netlink`]: all interfaces with their addresses, and news of them.
//! - [`netdev`]: what drivers offer to XDP.
//! - [`packet`]: raw frames of an interface, in batches (AF_PACKET); [`capture`]: when frames pass one.
//! - [`xdp`]: the same before the kernel has made packets of them (AF_XDP).
//! - [`nfqueue`]: packets that the kernel's packet filter hands over for a verdict.
//! - [`bpf`]: small programs for the kernel, and a heartbeat that they read; [`tc`]: filters of an interface.
//! - [`passing`]: descriptors that pass to another process.
//! - [`socket`]: TCP and UDP with the options that test traffic needs.
//! - [`icmp`]: echo requests.
//! - [`allocations`]: an allocator that counts.
//!
//! It knows of no frame store, discipline or scenario: bytes and numbers go in and come out.
//! Every `unsafe` block says why it is sound, and a test walks over it.

pub mod allocations;
pub mod bpf;
pub mod capture;
mod clock;
pub mod confine;
pub mod icmp;
mod interface;
mod log;
pub mod netdev;
pub mod netlink;
pub mod nfqueue;
pub mod packet;
pub mod passing;
mod priority;
mod process;
pub mod rights;
pub mod socket;
pub mod tc;
pub mod xdp;

use std::io;

pub use clock::{now, since_boot, sleep_precisely, sleep_until, thread_cpu, wait, wait_for, wait_for_either};
pub use interface::{
    Interface, Offload, driver, has_offload, interface, interface_index, keep_vlan_tags, receive_queues,
    set_offload, set_offloads,
};
pub use log::say;
pub use priority::{Granted, Priority, be_idle, take_priority};
pub use process::{
    die_with_parent, enter_network_of, enter_new_network, is_root, kill, lock_any_amount, move_to, pin_to,
    processor, processors, random_seed,
};

/// Turns a system call's answer into a result.
fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
