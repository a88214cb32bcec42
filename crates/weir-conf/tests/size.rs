//! Large files: reading, judging and building take time in proportion to the file.
//!
//! Each file here takes a second or two without optimisation. Where each line looked through all lines
//! before it, the same file took minutes.

use std::fmt::Write;
use std::time::{Duration, Instant};
use weir_core::sched::Registry;

const LINES: usize = 30_000;
/// Generous: for a machine on which much else runs.
const MOST: Duration = Duration::from_secs(40);

/// Everything that `weir check` does with a file. Answers how many leaves were built.
fn check(text: &str) -> usize {
    let start = Instant::now();
    let registry = Registry::builtin();
    let plan = weir_conf::read("large.conf", text, &registry).into_result();
    let plan = plan.unwrap_or_else(|all| panic!("{}", all[0]));
    let said = weir_conf::judge(&plan, &registry);
    assert!(said.iter().all(|d| !d.is_error()), "{}", said[0]);
    let mut leaves = 0;
    for view in plan.views() {
        let built = view.build(&registry, view.link(1514)).unwrap_or_else(|e| panic!("{e}"));
        leaves += built.tree.leaves.len();
    }
    assert!(start.elapsed() < MOST, "{:?} for {} bytes", start.elapsed(), text.len());
    leaves
}

fn lines(head: &str, mut line: impl FnMut(&mut String, usize)) -> String {
    let mut text = format!("{head}\n");
    for n in 0..LINES {
        line(&mut text, n);
        text.push('\n');
    }
    text
}

/// The address of that number.
fn address(n: usize) -> String {
    format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)
}

#[test]
fn many_interfaces() {
    let text = lines("", |text, n| write!(text, "interface em{n} bandwidth 10M fifoq").unwrap());
    assert_eq!(check(&text), LINES);
    let text = lines("", |text, n| {
        write!(text, "interface em{n} bandwidth 10M fifoq attach bridge em{}", n ^ 1).unwrap();
    });
    assert_eq!(check(&text), LINES);
}

#[test]
fn many_classes_side_by_side() {
    let text = lines("interface em0 bandwidth 10G hfsc", |text, n| {
        let default = if n == 0 { "default" } else { "" };
        write!(text, "class hfsc em0 c{n} root [rt 20K {n}us 10K] pshare 0.001 {default}").unwrap();
    });
    assert_eq!(check(&text), LINES);
    let head = "interface em0 bandwidth 10G cbq\nclass cbq em0 top NULL pbandwidth 100\n\
                class cbq em0 rest top pbandwidth 10 default";
    let text = lines(head, |text, n| write!(text, "class cbq em0 c{n} top borrow pbandwidth 0.001").unwrap());
    assert_eq!(check(&text), LINES + 3);
}

#[test]
fn a_long_chain_of_classes() {
    let text = lines("interface em0 bandwidth 10G hfsc", |text, n| {
        let parent = if n == 0 { "root".to_string() } else { format!("c{}", n - 1) };
        let default = if n + 1 == LINES { "default" } else { "" };
        write!(text, "class hfsc em0 c{n} {parent} pshare 1 {default}").unwrap();
    });
    assert_eq!(check(&text), 1);
}

#[test]
fn many_disciplines_inside_classes() {
    let text = lines("interface em0 bandwidth 10G hfsc", |text, n| {
        let default = if n == 0 { "default" } else { "" };
        write!(text, "class hfsc em0 c{n} root pshare 0.001 {default} fq_codel flows 1").unwrap();
    });
    assert_eq!(check(&text), LINES);
}

#[test]
fn many_filters() {
    let head = "interface em0 bandwidth 10G hfsc\nclass hfsc em0 a root pshare 1 default\n\
                class hfsc em0 b root pshare 1\nclass hfsc em0 c root pshare 1 hfsc\n\
                class hfsc em0 d c pshare 1";
    let text = lines(head, |text, n| {
        let class = ["a", "b", "c"][n % 3];
        match n % 2 {
            0 => write!(text, "filter em0 {class} ruleno {n} {} 80 0 0 17", address(n)).unwrap(),
            _ => write!(text, "filter em0 {class} ruleno {n} 0 0 {} 0 6", address(n)).unwrap(),
        }
    });
    assert_eq!(check(&text), 3);
}

#[test]
fn many_conditioners_with_filters() {
    let text = lines("interface em0 bandwidth 10M", |text, n| {
        let other = if n == 0 { "<pass>".to_string() } else { format!("<conditioner c{}>", n / 2) };
        writeln!(text, "conditioner em0 c{n} <tbmeter 1M 64K {other}<drop>>").unwrap();
        write!(text, "filter em0 c{n} {} 0 0 0 0", address(n)).unwrap();
    })
    .replace("<conditioner c0>", "<pass>");
    assert_eq!(check(&text), 1);
}
