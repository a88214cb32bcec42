//! Nodes of etcd on the loopback, which go with whoever started them: for tests and benches.

use super::super::{Cluster, Node};
use etcd_client::TlsOptions;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::sleep;
use weir_text::Time;

/// How often it is looked whether they are there.
const LOOK: Duration = Duration::from_millis(50);
/// How long a node may take to say how it is.
const STATUS: Duration = Duration::from_secs(1);

/// Nodes that know each other.
#[derive(Debug)]
pub struct Nodes {
    folder: PathBuf,
    program: PathBuf,
    /// The port for clients and the port for other nodes.
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
    /// What clients are told, where they have to come by TLS: options of etcd.
    tls: Vec<String>,
    /// By what they are asked how they are, where they have to be asked by TLS.
    client: Option<TlsOptions>,
}

/// `ETCD`, or what Debian installs. None if there is none.
fn program() -> Option<PathBuf> {
    let program = std::env::var_os("ETCD").map_or_else(|| PathBuf::from("etcd"), PathBuf::from);
    let known = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
    known.is_ok_and(|status| status.success()).then_some(program)
}

fn own(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Nodes {
    /// Starts so many, with their files in `folder`. None where etcd is not installed.
    ///
    /// # Errors
    /// No port is free, the folder cannot be made, or etcd does not start.
    pub fn start(folder: &Path, count: usize) -> std::io::Result<Option<Self>> {
        Self::start_with(folder, count, Vec::new(), None)
    }

    /// The same, with options by which clients come over TLS, if there are any, and by what they are asked then.
    pub(super) fn start_with(
        folder: &Path,
        count: usize,
        tls: Vec<String>,
        client: Option<TlsOptions>,
    ) -> std::io::Result<Option<Self>> {
        let Some(program) = program() else { return Ok(None) };
        std::fs::create_dir_all(folder)?;
        // All are held until each is known, so that no two are the same.
        let free = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
        let ports = free.iter().map(|at| Ok(at.local_addr()?.port())).collect::<std::io::Result<Vec<_>>>()?;
        drop(free);
        let ports = ports.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let running = (0..count).map(|_| None).collect();
        let mut nodes = Nodes { folder: folder.to_owned(), program, ports, running, tls, client };
        (0..count).try_for_each(|node| nodes.wake(node))?;
        Ok(Some(nodes))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ports.len()
    }

    /// Where their files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn client(&self, port: u16) -> String {
        if self.tls.is_empty() { own(port) } else { format!("https://127.0.0.1:{port}") }
    }

    /// As the file of a broker names them.
    pub fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|&(client, _)| self.client(client)).collect()
    }

    /// The same, with how long a broker may be silent.
    pub fn cluster(&self, silence: Time) -> Cluster {
        let etcd = self.urls().into_iter().map(Node).collect();
        Cluster { etcd, ca: None, cert: None, key: None, silence }
    }

    /// Starts a node that does not run.
    ///
    /// # Errors
    /// It does not start.
    pub fn wake(&mut self, node: usize) -> std::io::Result<()> {
        let peers = self.ports.iter().enumerate().map(|(n, &(_, peer))| format!("n{n}={}", own(peer)));
        let peers: Vec<String> = peers.collect();
        let (client, peer) = (self.client(self.ports[node].0), own(self.ports[node].1));
        let mut command = Command::new(&self.program);
        command.args(["--name", &format!("n{node}"), "--initial-cluster-state", "new", "--logger", "zap"]);
        command.arg("--data-dir").arg(self.folder.join(format!("n{node}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(&self.tls);
        command.args(["--initial-cluster", &peers.join(",")]).stdout(Stdio::null()).stderr(Stdio::null());
        self.running[node] = Some(command.spawn()?);
        Ok(())
    }

    /// Whether a node runs.
    #[cfg(test)]
    pub(super) fn runs(&self, node: usize) -> bool {
        self.running[node].is_some()
    }

    /// SIGKILL.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.running[node].take() {
            // It may have gone by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Those that run.
    fn urls_that_run(&self) -> Vec<(usize, String)> {
        let runs = |(node, _): &(usize, String)| self.running[*node].is_some();
        self.urls().into_iter().enumerate().filter(runs).collect()
    }

    /// The node that leads the others. Waits until there is one.
    pub async fn leader(&self) -> usize {
        loop {
            for (node, url) in self.urls_that_run() {
                if let Ok((own, leader)) = self.status(&url).await
                    && own == leader
                {
                    return node;
                }
            }
            sleep(LOOK).await;
        }
    }

    /// The number of a node, and of its leader.
    async fn status(&self, url: &str) -> Result<(u64, u64), etcd_client::Error> {
        let mut options = etcd_client::ConnectOptions::new().with_timeout(STATUS);
        if let Some(tls) = &self.client {
            options = options.with_tls(tls.clone());
        }
        let mut client = etcd_client::Client::connect([url], Some(options)).await?;
        let status = client.status().await?;
        Ok((status.header().map_or(0, etcd_client::ResponseHeader::member_id), status.leader()))
    }

    /// Waits until each node that runs has a leader.
    pub async fn settled(&self) {
        for (_, url) in self.urls_that_run() {
            while !self.status(&url).await.is_ok_and(|(_, leader)| leader != 0) {
                sleep(LOOK).await;
            }
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        (0..self.count()).for_each(|node| self.kill(node));
        // What stays is in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
