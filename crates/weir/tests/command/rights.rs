//! `weir up` asks for capabilities, not for root, and gives up all else.

use crate::bed::{Bed, arrived, connect, inside, possible, send, terminate, wait};
use crate::support::{Run, WEIR};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const CONF: &str = "interface right0 bandwidth 10M fifoq attach bridge left0\n";
/// Somebody without any rights of root's.
const NOBODY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// What runs in a `/run` of its own: with the folder of the claims for that user, or without.
const RUN: [&str; 4] = ["unshare", "-m", "sh", "-c"];
const MADE: [&str; 2] =
    ["mount -t tmpfs weir /run && install -d -m 700 -o 65534 /run/weir && exec \"$@\"", "sh"];
const NOT_MADE: [&str; 2] = ["mount -t tmpfs -o mode=755 weir /run && exec \"$@\"", "sh"];

/// The fields of that name in the status of each thread.
fn status(pid: &str, field: &str, thread: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let texts = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap());
    let named = texts.filter(|text| text.starts_with(&format!("Name:\t{thread}")));
    let line = |text: String| text.lines().find_map(|line| Some(line.strip_prefix(field)?.trim().to_owned()));
    named.map(|text| line(text).unwrap()).collect()
}

/// A box whose folder anybody may write.
fn bed() -> (Bed, String) {
    let bed = Bed::new(1);
    let conf = bed.folder.write("a.altq", CONF);
    std::fs::set_permissions(bed.folder.path(""), Permissions::from_mode(0o777)).unwrap();
    (bed, conf)
}

// Claim L21.
#[test]
fn an_ordinary_user_with_capabilities_runs_a_box() {
    if !possible("the test of an ordinary user") {
        return;
    }
    let (bed, conf) = bed();
    let rights = "-all,+net_raw,+net_admin,+sys_nice,+bpf";
    let as_user =
        [&RUN[..], &MADE, &NOBODY, &["--inh-caps", rights, "--ambient-caps", rights, WEIR]].concat();
    let up = bed.up_by(&as_user, &[&conf]);
    let right = &bed.hosts[0].right;
    let traffic = || {
        let before = arrived(right);
        send(&bed, 0, 5001, 20);
        wait("the traffic", || arrived(right) - before >= 20);
    };
    traffic();
    // What an interface needs that is back stays; the worker has nothing, and nobody more.
    let pid = up.pid();
    assert_eq!(status(&pid, "Uid:", "weir")[0].split_whitespace().next(), Some("65534"));
    let four = 1u64 << 12 | 1 << 13 | 1 << 23 | 1 << 39;
    let effective = |thread: &str| status(&pid, "CapEff:", thread);
    assert_eq!(effective("weir\n"), [format!("{four:016x}")]);
    assert_eq!(effective("weir-worker"), ["0".repeat(16)]);
    assert!(status(&pid, "NoNewPrivs:", "weir").iter().all(|flag| flag == "1"));
    connect_again(&bed);
    wait("the interface", || bed.ask(&["stats"]).ok().out.contains("back 1"));
    traffic();
    let ended = terminate(up).ok();
    assert!(ended.err.contains("keeps CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_SYS_NICE"), "{ended:?}");
    assert!(ended.err.contains("SCHED_FIFO 10; fails open"), "{ended:?}");
}

fn connect_again(bed: &Bed) {
    inside(&bed.boxed, "ip link del right0");
    connect(&bed.hosts[0].right, &bed.boxed, "right0", 0, 2);
}

// Claim L22.
#[test]
fn what_is_lacking_is_named_and_the_command_gives_it() {
    if !possible("the test of lacking rights") {
        return;
    }
    let (bed, conf) = bed();
    let copy = bed.folder.path("weir");
    std::fs::copy(WEIR, &copy).unwrap();
    let command: Vec<&str> = [&NOBODY[..], &[&copy]].concat();
    let refused: Run = Command::new("nsenter")
        .args(["-t", &bed.boxed.pid(), "-n"])
        .args(&command)
        .args(["up", &conf, "--socket", &bed.socket()])
        .output()
        .unwrap()
        .into();
    let lacking = "lacks CAP_NET_RAW and CAP_NET_ADMIN";
    let setcap = refused.err.split('`').find(|text| text.starts_with("setcap ")).unwrap().to_owned();
    assert!(setcap.ends_with(&copy) && refused.err.contains("AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN"));
    refused.fails(3, &[lacking]);
    if !Command::new("sh").args(["-c", &setcap]).status().unwrap().success() {
        eprintln!("SKIPPED: no file here can have capabilities");
        return;
    }
    let without: Run = Command::new("nsenter")
        .args(["-t", &bed.boxed.pid(), "-n"])
        .args([&RUN[..], &NOT_MADE, &command].concat())
        .args(["up", &conf, "--socket", &bed.socket()])
        .output()
        .unwrap()
        .into();
    assert!(
        without.code != 0 && without.err.contains("`install -d -m 700 -o USER /run/weir`"),
        "{without:?}"
    );
    terminate(bed.up_by(&[&RUN[..], &MADE, &command].concat(), &[&conf])).ok();
}

/// As root: no file of others, and no right but the four.
// Claim L23.
#[test]
fn root_gives_up_what_it_does_not_need() {
    if !possible("the test of a confined root") {
        return;
    }
    let (bed, conf) = bed();
    for confined in [true, false] {
        let arguments: &[&str] = if confined { &[&conf] } else { &[&conf, "--unconfined"] };
        let up = bed.up(arguments);
        let rights = status(&up.pid(), "CapEff:", "weir\n")[0].clone();
        assert_eq!(rights == "0000008000803000", confined, "{rights}");
        let filters = status(&up.pid(), "Seccomp:", "weir");
        let said = terminate(up).ok().err;
        assert_eq!(said.contains("confined by no new privileges"), confined, "{said}");
        // A kernel without it says so by leaving it out.
        let expected = if confined && said.contains("seccomp") { "2" } else { "0" };
        assert!(filters.iter().all(|mode| mode == expected), "{filters:?} {said}");
    }
}
