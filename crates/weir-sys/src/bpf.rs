//! Small programs for the kernel by bpf(2): an assembler, a heartbeat that they read, and where
//! they are attached. No compiler and no library is needed.
//!
//! A program is a few instructions, written with [`Assembler`]. The kernel checks it when it is
//! loaded, so no program can harm memory. Needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.8.
#![allow(unsafe_code, reason = "bpf(2) and shared memory have no safe wrapper")]

use crate::check;
use crate::passing::raised;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::units::{Duration, Instant};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_SOCKETS: u32 = 17;
const F_MMAPABLE: u32 = 1 << 10;
const XDP: u32 = 37;
const TCX_INGRESS: u32 = 46;
/// Says that a 64-bit constant is a map.
const PSEUDO_MAP: u8 = 1;
/// Says that a 64-bit constant is the address of a map's value.
const PSEUDO_MAP_VALUE: u8 = 2;
/// Descriptors of attachments are at least this high: see [`attach`].
const HIGH_DESCRIPTOR: RawFd = 512;

/// Helper: nanoseconds of CLOCK_MONOTONIC, the clock of [`crate::now`].
pub const KTIME_GET_NS: i32 = 5;
/// Helper: the number of the processor that the program runs on.
const PROCESSOR: i32 = 8;
/// Helper: sends a copy of the frame, whose context is in register 1, out of the interface whose
/// index is in register 2; flags in register 3.
pub const CLONE_REDIRECT: i32 = 13;
/// Where the context of a frame, which a program finds in register 1, says whom the frame is for: 32
/// bits, [`TO_THIS_HOST`] to [`TO_ANOTHER_HOST`].
pub const FRAME_IS_FOR: i16 = 4;
/// The frame is for the interface's own address. 1 is a broadcast, 2 a multicast.
pub const TO_THIS_HOST: i32 = 0;
/// The frame is for somebody else.
pub const TO_ANOTHER_HOST: i32 = 3;
/// Helper: sends the frame out of the interface whose index is in register 1; flags in register 2.
pub const REDIRECT: i32 = 23;
/// Helper: hands the frame to the socket that stands in the map in register 1 at the place in register 2.
/// Where none stands, it answers what is in register 3.
pub const REDIRECT_TO_SOCKET: i32 = 51;
/// Where the context of a [`Kind::Xdp`] says by which of the device's queues the frame came: 32 bits.
pub const RECEIVE_QUEUE: i16 = 16;
/// What a [`Kind::Xdp`] answers: the kernel takes the frame.
pub const XDP_PASS: i32 = 2;

/// What a program is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Decides how many bytes of a frame a socket gets (`SO_ATTACH_BPF`).
    SocketFilter = 1,
    /// Decides what becomes of a frame where it enters an interface (TCX, `cls_bpf`).
    Classifier = 3,
    /// Decides what becomes of a frame before the kernel has done anything with it.
    Xdp = 6,
}

/// Calls bpf(2) with an attribute of plain numbers.
fn bpf<T>(command: libc::c_int, attribute: &T) -> io::Result<libc::c_int> {
    // SAFETY: `attribute` is a structure of numbers as this command reads them, of the size given.
    // Addresses in it point to memory of the caller's that outlives the call. It is only read.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), size_of::<T>() as libc::c_uint)
    };
    check(answer as libc::c_int)
}

/// Calls bpf(2) for a command that answers a new descriptor.
fn bpf_open<T>(command: libc::c_int, attribute: &T) -> io::Result<OwnedFd> {
    let raw = bpf(command, attribute)?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A name as the kernel shows it: up to 15 letters, digits, points and underscores.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// A new map of `places` values of `value_bytes` bytes each.
fn new_map(kind: u32, value_bytes: usize, places: u32, flags: u32, name: &str) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attribute {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
        inner_map: u32,
        numa_node: u32,
        name: [u8; 16],
    }
    let attribute = Attribute {
        map_type: kind,
        key_size: 4,
        value_size: value_bytes as u32,
        max_entries: places,
        flags,
        inner_map: 0,
        numa_node: 0,
        name: object_name(name),
    };
    bpf_open(MAP_CREATE, &attribute)
}

/// The sockets (AF_XDP) that a program may hand frames to, by number.
pub struct Sockets(OwnedFd);

impl Sockets {
    /// Room for `places` sockets.
    ///
    /// # Errors
    /// No privilege, or a kernel without AF_XDP.
    pub fn new(places: u32) -> io::Result<Self> {
        new_map(MAP_TYPE_SOCKETS, 4, places, 0, "weir_sockets").map(Sockets)
    }

    /// Puts a socket, which is bound, at a place.
    ///
    /// # Errors
    /// There is no such place, or it is no such socket.
    pub fn put(&self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        #[repr(C)]
        struct Attribute {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd() as u32;
        let attribute = Attribute {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const place).expose_provenance() as u64,
            value: (&raw const value).expose_provenance() as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE, &attribute).map(|_| ())
    }
}

/// What the programs read and write, in the order of the words that they find it in.
#[repr(C)]
struct Words {
    beat: AtomicU64,
    limit: AtomicU64,
    /// One more than the number of the processor on which a frame came last; 0 if none has come since it was asked for.
    processor: AtomicU64,
}

/// The time at which a worker was last seen alive, and how long it counts as alive after it.
///
/// It lies in memory that this process and the kernel's programs share, so a beat is one store.
pub struct Heartbeat {
    map: OwnedFd,
    words: NonNull<Words>,
}

// SAFETY: the words are atomic, and the mapping belongs to no thread.
unsafe impl Send for Heartbeat {}
// SAFETY: the words are atomic, so several threads may store and read them at once.
unsafe impl Sync for Heartbeat {}

/// No beat: earlier than any limit reaches. The time 0 is not, while the machine has just started. The programs compare
/// signed numbers, so that their clock less this is at least 2^62.
const SILENT: u64 = (i64::MIN / 2).cast_unsigned();

/// Bytes of the mapping: the kernel rounds the map up to a page, the smallest of which is this.
const MAPPED: usize = 4096;

impl Heartbeat {
    /// A heart that does not beat yet.
    ///
    /// # Errors
    /// No privilege, or a kernel without mappable maps (before 5.5).
    pub fn new() -> io::Result<Self> {
        let map = new_map(MAP_TYPE_ARRAY, size_of::<Words>(), 1, F_MMAPABLE, "weir_heartbeat")?;
        let heartbeat = Self::over(map)?;
        heartbeat.stop();
        Ok(heartbeat)
    }

    /// The heart in a map that [`Heartbeat::new`] made, here or in another process, and goes on beating.
    ///
    /// # Errors
    /// It is no such map.
    pub fn over(map: OwnedFd) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses touches no memory of ours.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), MAPPED, access, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mmap answered null"))?;
        Ok(Heartbeat { map, words })
    }

    fn words(&self) -> &Words {
        // SAFETY: the mapping is page-aligned, larger than `Words`, zero at first, and lives as long
        // as `self`. Others change it only by whole words, which are atomic here.
        unsafe { self.words.as_ref() }
    }
    /// The worker was alive at `now`.
    pub fn beat(&self, now: Instant) {
        self.words().beat.store(now.as_nanos(), Ordering::Relaxed);
    }
    /// Counts as dead from now on, until the next beat.
    pub fn stop(&self) {
        self.words().beat.store(SILENT, Ordering::Relaxed);
    }
    /// The processor on which the last frame came to a program that notes it ([`Assembler::note_processor`]), if one came
    /// since this was asked last.
    pub fn take_processor(&self) -> Option<usize> {
        usize::try_from(self.words().processor.swap(0, Ordering::Relaxed)).ok()?.checked_sub(1)
    }
    /// Counts as alive until `limit` after a beat.
    pub fn set_limit(&self, limit: Duration) {
        self.words().limit.store(limit.as_nanos(), Ordering::Relaxed);
    }
}

impl AsFd for Heartbeat {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `over` made, and nothing refers into it any more.
        let _ = unsafe { libc::munmap(self.words.as_ptr().cast(), MAPPED) };
    }
}

/// Writes the instructions of a program. Registers are 0 to 9. 0 holds what a helper or the
/// program answers, 1 the context at the beginning, and a helper forgets 1 to 5.
#[derive(Default)]
pub struct Assembler {
    code: Vec<[u8; 8]>,
}

impl Assembler {
    fn put(mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) -> Self {
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        self.code.push(bytes);
        self
    }
    /// `to` = `value`, its sign kept in 64 bits.
    pub fn set(self, to: u8, value: i32) -> Self {
        self.put(0xb7, to, 0, 0, value)
    }
    /// `to` = `from`.
    pub fn copy(self, to: u8, from: u8) -> Self {
        self.put(0xbf, to, from, 0, 0)
    }
    /// `to` -= `from`.
    pub fn subtract(self, to: u8, from: u8) -> Self {
        self.put(0x1f, to, from, 0, 0)
    }
    /// `to` = the 64 bits at `offset` from the address in `from`.
    pub fn load(self, to: u8, from: u8, offset: i16) -> Self {
        self.put(0x79, to, from, offset, 0)
    }
    /// `to` = the 32 bits at `offset` from the address in `from`.
    pub fn load_half(self, to: u8, from: u8, offset: i16) -> Self {
        self.put(0x61, to, from, offset, 0)
    }
    /// Passes over the next `count` instructions if `left` is `value`.
    pub fn skip_if(self, left: u8, value: i32, count: i16) -> Self {
        self.put(0x15, left, 0, count, value)
    }
    /// Passes over the next `count` instructions unless `left` is `value`.
    pub fn skip_unless(self, left: u8, value: i32, count: i16) -> Self {
        self.put(0x55, left, 0, count, value)
    }
    /// Passes over the next `count` instructions if `left` >= `right`, both signed.
    pub fn skip_if_at_least(self, left: u8, right: u8, count: i16) -> Self {
        self.put(0x7d, left, right, count, 0)
    }
    /// Register 0 = what the helper answers.
    pub fn call(self, helper: i32) -> Self {
        self.put(0x85, 0, 0, 0, helper)
    }
    /// Ends the program with register 0.
    pub fn exit(self) -> Self {
        self.put(0x95, 0, 0, 0, 0)
    }
    /// `to` = the map of `sockets`.
    pub fn set_to_sockets(self, to: u8, sockets: &Sockets) -> Self {
        let map = sockets.0.as_raw_fd();
        self.put(0x18, to, PSEUDO_MAP, 0, map).put(0, 0, 0, 0, 0)
    }
    /// `to` = the words of `heartbeat`.
    fn set_to_words(self, to: u8, heartbeat: &Heartbeat) -> Self {
        self.put(0x18, to, PSEUDO_MAP_VALUE, 0, heartbeat.map.as_raw_fd()).put(0, 0, 0, 0, 0)
    }
    /// Notes at `heartbeat` that a frame has come on this processor. Uses registers 0 to 5.
    pub fn note_processor(self, heartbeat: &Heartbeat) -> Self {
        self.call(PROCESSOR).put(0x07, 0, 0, 0, 1).set_to_words(1, heartbeat).put(
            0x7b,
            1,
            0,
            std::mem::offset_of!(Words, processor) as i16,
            0,
        )
    }
    /// Passes over the next `count` instructions unless `heartbeat` counts as alive. Uses registers
    /// 0 to 5. A beat that is later than now counts as alive.
    pub fn skip_if_dead(self, heartbeat: &Heartbeat, count: i16) -> Self {
        self.skip_if_dead_within(Duration::ZERO, heartbeat, count)
    }
    /// The same unless `heartbeat` counts as alive for the next `time` (at most 2 s), without another beat.
    pub fn skip_if_dead_within(self, time: Duration, heartbeat: &Heartbeat, count: i16) -> Self {
        self.call(KTIME_GET_NS)
            .set_to_words(1, heartbeat)
            .load(2, 1, std::mem::offset_of!(Words, beat) as i16)
            .load(3, 1, std::mem::offset_of!(Words, limit) as i16)
            .subtract(0, 2)
            .put(0x07, 0, 0, 0, i32::try_from(time.as_nanos()).unwrap_or(i32::MAX))
            .skip_if_at_least(0, 3, count)
    }

    /// Has the kernel check and take the program, under a name of up to 15 letters.
    ///
    /// # Errors
    /// No privilege, or what the kernel's checker says of the program.
    pub fn into_program(self, kind: Kind, name: &str) -> io::Result<Program> {
        let mut log = Vec::new();
        self.offer(kind, name, &mut log).map_err(|e| {
            log.resize(1 << 16, 0);
            // Once more, for its reasons. They fit.
            let _ = self.offer(kind, name, &mut log);
            let said = String::from_utf8_lossy(&log).trim_matches(['\0', '\n']).replace('\n', "; ");
            let what = format!("program {name}: {e}{}{said}", if said.is_empty() { "" } else { ": " });
            io::Error::new(e.kind(), what)
        })
    }

    fn offer(&self, kind: Kind, name: &str, log: &mut Vec<u8>) -> io::Result<Program> {
        #[repr(C)]
        struct Attribute {
            kind: u32,
            instruction_count: u32,
            instructions: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log: u64,
            kernel_version: u32,
            flags: u32,
            name: [u8; 16],
        }
        let log_at = if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 };
        let attribute = Attribute {
            kind: kind as u32,
            instruction_count: self.code.len() as u32,
            instructions: self.code.as_ptr().expose_provenance() as u64,
            license: c"BSD".as_ptr().expose_provenance() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: log_at,
            kernel_version: 0,
            flags: 0,
            name: object_name(name),
        };
        bpf_open(PROG_LOAD, &attribute).map(Program)
    }
}

/// A program that the kernel has taken. It stays as long as this, or as long as it is attached.
pub struct Program(OwnedFd);

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Attaches a [`Kind::Classifier`] to what enters by the interface `index` of this network
/// namespace, behind the programs that are attached there (TCX). It lasts as long as what is
/// answered: also `kill -9` takes it away, at once.
///
/// # Errors
/// No such interface, or a kernel without TCX (before 6.6).
pub fn attach_to_ingress(program: &Program, index: u32) -> io::Result<OwnedFd> {
    attach(program, index, TCX_INGRESS, 0)
}

/// Attaches a [`Kind::Xdp`] to an interface, for as long as what is answered lasts: in the driver, or
/// else (not `native`) in the kernel behind any driver.
///
/// # Errors
/// `ResourceBusy` if a program is attached there; what the driver refuses, for instance a program
/// beside so large an MTU (`ERANGE`); no such interface.
pub fn attach_to_device(program: &Program, index: u32, native: bool) -> io::Result<OwnedFd> {
    const IN_THE_KERNEL: u32 = 1 << 1;
    const IN_THE_DRIVER: u32 = 1 << 2;
    attach(program, index, XDP, if native { IN_THE_DRIVER } else { IN_THE_KERNEL })
}

/// A process that ends closes its highest descriptors first. An attachment's is above those of
/// sockets, each of which takes the kernel milliseconds to close.
fn attach(program: &Program, index: u32, place: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attribute {
        program: u32,
        interface: u32,
        place: u32,
        flags: u32,
        relative: u32,
        padding: u32,
        revision: u64,
    }
    let program = program.0.as_raw_fd() as u32;
    let attribute =
        Attribute { program, interface: index, place, flags, relative: 0, padding: 0, revision: 0 };
    bpf_open(LINK_CREATE, &attribute).map(above_sockets)
}

/// An attachment under a number above those of sockets, as [`attach_to_ingress`] gives it. One that
/// came from another process needs that again.
pub fn above_sockets(link: OwnedFd) -> OwnedFd {
    raised(link, HIGH_DESCRIPTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program answers for a frame of 60 bytes.
    fn run(program: &Program) -> u32 {
        const TEST_RUN: libc::c_int = 10;
        #[repr(C)]
        struct Attribute {
            program: u32,
            answer: u32,
            data_size: u32,
            out_size: u32,
            data: u64,
            out: u64,
            repeat: u32,
            duration: u32,
            rest: [u64; 5],
        }
        let frame = [0u8; 60];
        let mut attribute = Attribute {
            program: program.0.as_raw_fd() as u32,
            answer: 0,
            data_size: 60,
            out_size: 0,
            data: frame.as_ptr().expose_provenance() as u64,
            out: 0,
            repeat: 1,
            duration: 0,
            rest: [0; 5],
        };
        // SAFETY: the attribute is as this command reads and writes it, and `frame` outlives the call.
        let answer = unsafe {
            libc::syscall(libc::SYS_bpf, TEST_RUN, &raw mut attribute, size_of::<Attribute>() as libc::c_uint)
        };
        check(answer as libc::c_int).unwrap();
        attribute.answer
    }

    /// A heartbeat, if this process may make one.
    fn heartbeat() -> Option<Heartbeat> {
        match Heartbeat::new() {
            Ok(heartbeat) => Some(heartbeat),
            Err(e) => {
                eprintln!("SKIPPED: needs bpf(2): {e}");
                assert!(!crate::is_root() || e.kind() != io::ErrorKind::InvalidInput, "{e}");
                None
            }
        }
    }

    #[test]
    fn a_program_notes_its_processor_until_it_is_asked_for() {
        let Some(heartbeat) = heartbeat() else { return };
        let code = Assembler::default().note_processor(&heartbeat).set(0, 7).exit();
        let program = code.into_program(Kind::SocketFilter, "weir_test").unwrap();
        assert_eq!(heartbeat.take_processor(), None);
        for cpu in crate::processors().unwrap() {
            crate::pin_to(cpu).unwrap();
            assert_eq!(run(&program), 7);
            assert_eq!((heartbeat.take_processor(), heartbeat.take_processor()), (Some(cpu), None));
        }
    }

    #[test]
    fn a_program_sees_the_heart_beat_and_stop() {
        let Some(heartbeat) = heartbeat() else { return };
        for kind in [Kind::SocketFilter, Kind::Classifier] {
            let code = Assembler::default().skip_if_dead(&heartbeat, 2).set(0, 7).exit().set(0, -1).exit();
            let program = code.into_program(kind, "weir_test").unwrap();
            heartbeat.stop();
            heartbeat.set_limit(Duration::from_millis(50));
            assert_eq!(run(&program), u32::MAX, "no beat yet");
            heartbeat.beat(crate::now() + Duration::from_millis(1));
            assert_eq!(run(&program), 7, "a beat of another processor's clock");
            let before = crate::now();
            heartbeat.beat(before);
            let answer = run(&program);
            assert!(answer == 7 || crate::now().since(before) > Duration::from_millis(50));
            crate::sleep_until(before + Duration::from_millis(51));
            assert_eq!(run(&program), u32::MAX, "the limit has passed");
            heartbeat.set_limit(Duration::from_secs(100));
            assert_eq!(run(&program), 7);
            // Alive, but not for the next 2 s.
            let early = |time| Assembler::default().skip_if_dead_within(time, &heartbeat, 2).set(0, 7).exit();
            let early = |time| early(time).set(0, -1).exit().into_program(kind, "weir_test").unwrap();
            heartbeat.set_limit(Duration::from_secs(1));
            heartbeat.beat(crate::now());
            assert_eq!(run(&early(Duration::from_secs(2))), u32::MAX);
            heartbeat.set_limit(Duration::from_secs(100));
            assert_eq!(run(&early(Duration::from_secs(2))), 7);
            // However long the limit, and however short the time since the machine was started.
            heartbeat.set_limit(Duration::from_secs(1_000_000_000));
            assert_eq!(run(&program), 7);
            heartbeat.stop();
            assert_eq!(run(&program), u32::MAX);
            heartbeat.set_limit(Duration::from_secs(100));
        }
    }

    /// As in another process that has got the map: the program reads what is beaten there.
    #[test]
    fn a_heart_goes_on_beating_over_the_same_map() {
        let Some(first) = heartbeat() else { return };
        let code = Assembler::default().skip_if_dead(&first, 2).set(0, 7).exit().set(0, -1).exit();
        let program = code.into_program(Kind::SocketFilter, "weir_test").unwrap();
        first.set_limit(Duration::from_secs(1000));
        let second = Heartbeat::over(first.as_fd().try_clone_to_owned().unwrap()).unwrap();
        drop(first);
        second.beat(crate::now() + Duration::from_millis(1));
        assert_eq!(run(&program), 7);
        second.stop();
        assert_eq!(run(&program), u32::MAX);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Heartbeat::over(file.into()).is_err(), "no map");
    }

    #[test]
    fn a_program_that_the_kernel_refuses_is_explained() {
        if heartbeat().is_none() {
            return;
        }
        // It would read what is at address 0.
        let code = Assembler::default().set(1, 0).load(0, 1, 0).exit();
        let error = code.into_program(Kind::Classifier, "weir_test").err().unwrap().to_string();
        assert!(error.contains("program weir_test: ") && error.contains("R1 invalid mem access"), "{error}");
    }

    #[test]
    fn an_interface_that_is_missing_cannot_be_attached_to() {
        if heartbeat().is_none() {
            return;
        }
        let program = Assembler::default().set(0, -1).exit();
        let program = program.into_program(Kind::Classifier, "weir_test").unwrap();
        assert!(attach_to_ingress(&program, u32::MAX >> 1).is_err());
    }
}
