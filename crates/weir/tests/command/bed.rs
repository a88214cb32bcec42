//! Live boxes for tests: hosts in namespaces on both sides, and the box in a namespace between
//! them. The namespaces live as long as the process that holds each, a bounded time in any case.

use crate::support::{Folder, Run, WEIR, weir};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that ends with the test, whatever becomes of the test.
pub struct Held(pub Child);

impl Held {
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that dies with the test's thread, also when the test is killed.
pub fn mortal(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// A network namespace, held by a process that sleeps.
pub fn namespace() -> Held {
    let child = mortal("unshare").args(["--net", "sleep", "120"]).stdin(Stdio::null()).spawn().unwrap();
    let held = Held(child);
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    wait("a namespace", || {
        std::fs::read_link(format!("/proc/{}/ns/net", held.pid())).is_ok_and(|theirs| theirs != ours)
    });
    held
}

pub fn wait(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn inside(namespace: &Held, script: &str) {
    let run: Run = Command::new("nsenter")
        .args(["-t", &namespace.pid(), "-n", "bash", "-ec", script])
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.code, 0, "{script}: {run:?}");
}

/// Datagrams that reached a host and that nobody there waited for.
pub fn arrived(host: &Held) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/net/snmp", host.pid())).unwrap();
    let mut udp = text.lines().filter(|l| l.starts_with("Udp:"));
    let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
    let at = names.split(' ').position(|n| n == "NoPorts").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// True if namespaces can be made here; else says that `what` is left out.
pub fn possible(what: &str) -> bool {
    let root =
        mortal("unshare").args(["--net", "true"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    let possible = root && Command::new("ip").arg("-V").output().is_ok_and(|o| o.status.success());
    if !possible {
        // Past the harness, which keeps what a test that passes prints by `eprintln!`.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} needs root, iproute2 and util-linux");
    }
    possible
}

/// Two hosts of a bridge: the one at the left is 10.N.0.1, the one at the right 10.N.0.2.
pub struct Hosts {
    pub left: Held,
    pub right: Held,
}

/// Connects a host by an interface of the box. Its addresses, also that of layer 2, are always the
/// same for the same bridge and side.
pub fn connect(host: &Held, boxed: &Held, interface: &str, bridge: usize, address: u8) {
    connect_knowing(host, boxed, interface, bridge, address, "true");
}

/// The same; the host does `first` before it has an address, and so before it can send anything.
pub fn connect_knowing(host: &Held, boxed: &Held, interface: &str, bridge: usize, address: u8, first: &str) {
    let peer = format!("peer name {interface} netns {}", boxed.pid());
    inside(
        host,
        &format!(
            "ip link add eth0 address 02:00:00:00:{bridge:02x}:{address:02x} type veth {peer}; \
             ip link set eth0 up; {first}; ip addr add 10.{bridge}.0.{address}/24 dev eth0"
        ),
    );
    inside(boxed, &format!("ip link set {interface} up"));
}

/// A box with hosts around it. The box's interfaces are `left0` and `right0`, `left1` and so on.
pub struct Bed {
    pub boxed: Held,
    pub hosts: Vec<Hosts>,
    pub folder: Folder,
}

impl Bed {
    pub fn new(bridges: usize) -> Bed {
        let mut bed = Bed { boxed: namespace(), hosts: Vec::new(), folder: Folder::new() };
        for n in 0..bridges {
            let hosts = Hosts { left: namespace(), right: namespace() };
            for (host, side, address) in [(&hosts.left, "left", 1), (&hosts.right, "right", 2)] {
                inside(host, "ip link set lo up");
                connect(host, &bed.boxed, &format!("{side}{n}"), n, address);
            }
            bed.hosts.push(hosts);
        }
        bed
    }

    /// Has the box route between the hosts of its first bridge, which need not know.
    pub fn route(&self) {
        let route = "cd /proc/sys/net/ipv4; echo 1 > ip_forward; \
             for i in left0 right0; do echo 1 > conf/$i/proxy_arp; echo 0 > neigh/$i/proxy_delay; \
             ip addr add 10.9.0.1/32 dev $i; done; \
             ip route add 10.0.0.1/32 dev left0; ip route add 10.0.0.200/32 dev left0; ip route add 10.0.0.2/32 dev right0";
        inside(&self.boxed, route);
    }

    /// The path of the box's socket.
    pub fn socket(&self) -> String {
        self.folder.path("weir.sock")
    }

    fn command(&self, by: &[&str], arguments: &[&str]) -> Command {
        let mut command = mortal("nsenter");
        command.args(["-t", &self.boxed.pid(), "-n"]).args(by).args(["up", "--socket", &self.socket()]);
        command.args(["--state", &self.folder.path("state.altq")]).args(arguments).stdin(Stdio::null());
        command
    }

    /// Starts `weir up` in the box, and waits until it answers.
    pub fn up(&self, arguments: &[&str]) -> Held {
        self.up_by(&[WEIR], arguments)
    }

    /// The same by a command that stands before `up`.
    pub fn up_by(&self, command: &[&str], arguments: &[&str]) -> Held {
        let held = self.begin_by(command, arguments);
        wait("the socket", || self.ask(&["stats"]).code == 0);
        held
    }

    /// Starts `weir up` in the box, and waits for nothing.
    pub fn begin(&self, arguments: &[&str]) -> Held {
        self.begin_by(&[WEIR], arguments)
    }

    fn begin_by(&self, command: &[&str], arguments: &[&str]) -> Held {
        let mut command = self.command(command, arguments);
        Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Runs `weir` in the box's namespace.
    pub fn ask_inside(&self, arguments: &[&str]) -> Run {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.boxed.pid(), "-n", WEIR]).args(arguments);
        command.stdin(Stdio::null()).output().unwrap().into()
    }

    /// Starts a `weir up` that ends by itself.
    pub fn try_up(&self, arguments: &[&str]) -> Run {
        self.command(&[WEIR], arguments).output().unwrap().into()
    }

    /// Runs `weir` with a command for the box.
    pub fn ask(&self, arguments: &[&str]) -> Run {
        weir(&[arguments, &["--socket", &self.socket()]].concat())
    }

    /// Its first bridge, as `weir stats -j` shows it.
    pub fn bridge(&self) -> Value {
        self.ask(&["stats", "-j"]).ok().json()["bridges"][0].clone()
    }

    /// Its egress of that name.
    pub fn egress(&self, name: &str) -> Value {
        let stats = self.ask(&["stats", "-j"]).ok().json();
        let bridges = stats["bridges"].as_array().unwrap();
        let mut all = bridges.iter().flat_map(|bridge| bridge["egresses"].as_array().unwrap());
        all.find(|egress| egress["interface"] == name)
            .unwrap_or_else(|| panic!("no {name} in {stats}"))
            .clone()
    }
}

/// Has a process end in order; what it left.
pub fn terminate(held: Held) -> Run {
    let kill = Command::new("kill").args(["-TERM", &held.pid()]).status().unwrap();
    assert!(kill.success());
    ended(held)
}

/// What a process left that ends by itself.
pub fn ended(mut held: Held) -> Run {
    let mut status = None;
    wait("the end of a process", || {
        status = held.0.try_wait().unwrap();
        status.is_some()
    });
    let (mut out, mut err) = (String::new(), String::new());
    held.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    held.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    Run { code: status.unwrap().code().unwrap_or(-1), out, err }
}

/// Sends so many datagrams from the left host of a bridge to a port of the right one.
pub fn send(bed: &Bed, bridge: usize, port: u16, count: u32) {
    let script = format!("for i in $(seq {count}); do echo $i > /dev/udp/10.{bridge}.0.2/{port}; done");
    inside(&bed.hosts[bridge].left, &script);
}
