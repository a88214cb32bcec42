//! Nodes of etcd on the loopback, which go with their test.

use super::super::super::{Cluster, Node};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_text::Time;

pub(super) struct Nodes {
    folder: PathBuf,
    program: PathBuf,
    /// The port for clients and the port for other nodes.
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
}

/// `ETCD`, or what Debian installs. None if there is none.
fn program() -> Option<PathBuf> {
    let program = std::env::var_os("ETCD").map_or_else(|| PathBuf::from("etcd"), PathBuf::from);
    let known = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
    known.is_ok_and(|status| status.success()).then_some(program)
}

impl Nodes {
    /// So many that know each other. None, which is said, where etcd is not installed.
    pub fn start(name: &str, count: usize) -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("SKIPPED: etcd is not here: apt-get install etcd-server, or ETCD=/path/to/etcd");
            return None;
        };
        // What is killed here is processes. On a disk that others use, etcd would mostly measure that.
        let memory = std::path::Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = place.join(format!("weir-etcd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
        // All are held until each is known, so that no two are the same.
        let free = || TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let held: Vec<_> = (0..count).map(|_| (free(), free())).collect();
        let port = |at: &TcpListener| at.local_addr().expect("it has one").port();
        let ports = held.iter().map(|(a, b)| (port(a), port(b))).collect();
        drop(held);
        let mut nodes = Nodes { folder, program, ports, running: (0..count).map(|_| None).collect() };
        (0..count).for_each(|node| nodes.wake(node));
        Some(nodes)
    }

    pub fn count(&self) -> usize {
        self.ports.len()
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    pub fn url(&self, node: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[node].0)
    }

    pub fn urls(&self) -> Vec<String> {
        (0..self.count()).map(|node| self.url(node)).collect()
    }

    /// As a broker's file names them.
    pub fn cluster(&self) -> Cluster {
        let etcd = self.urls().into_iter().map(Node).collect();
        Cluster { etcd, ca: None, cert: None, key: None, silence: Time::from_secs(2) }
    }

    /// Starts a node that does not run.
    pub fn wake(&mut self, node: usize) {
        let own = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> =
            self.ports.iter().enumerate().map(|(n, &(_, peer))| format!("n{n}={}", own(peer))).collect();
        let (client, peer) = (own(self.ports[node].0), own(self.ports[node].1));
        let mut command = Command::new(&self.program);
        command.args(["--name", &format!("n{node}"), "--initial-cluster-state", "new", "--logger", "zap"]);
        command.arg("--data-dir").arg(self.folder.join(format!("n{node}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(",")]).stdout(Stdio::null()).stderr(Stdio::null());
        self.running[node] = Some(command.spawn().expect("it ran before"));
    }

    /// SIGKILL.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.running[node].take() {
            child.kill().expect("it is a child");
            child.wait().expect("it was killed");
        }
    }

    /// The node that leads the others. Waits until there is one.
    pub async fn leader(&self) -> usize {
        loop {
            for node in (0..self.count()).filter(|&node| self.running[node].is_some()) {
                if let Ok((own, leader)) = status(&self.url(node)).await
                    && own == leader
                {
                    return node;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until each node that runs has a leader.
    pub async fn settled(&self) {
        for node in (0..self.count()).filter(|&node| self.running[node].is_some()) {
            while !status(&self.url(node)).await.is_ok_and(|(_, leader)| leader != 0) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Of a node, and of its leader.
async fn status(url: &str) -> Result<(u64, u64), etcd_client::Error> {
    let options = etcd_client::ConnectOptions::new().with_timeout(Duration::from_secs(1));
    let mut client = etcd_client::Client::connect([url], Some(options)).await?;
    let status = client.status().await?;
    Ok((status.header().map_or(0, etcd_client::ResponseHeader::member_id), status.leader()))
}

impl Drop for Nodes {
    fn drop(&mut self) {
        (0..self.count()).for_each(|node| self.kill(node));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
