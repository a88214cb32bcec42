//! What a configuration of JoBS must satisfy.

use crate::sched::hooks::{Finding, Setting, one_class_of_each_priority};
use crate::sched::node::Node;
use crate::units::Rate;
use alloc::format;
use alloc::vec::Vec;

/// One class of each priority; least rates that the link has.
pub(super) fn check(node: &Node, setting: &Setting) -> Vec<Finding> {
    let mut found = one_class_of_each_priority(node, true);
    let (mut sum, mut last) = (0u64, None);
    for (index, class) in node.classes.iter().enumerate() {
        if let Some(rate) = class.params.rate("arc") {
            sum = sum.saturating_add(rate.as_bps());
            last = Some(index);
        }
    }
    if let Some(last) = last
        && setting.outermost
        && sum > setting.rate.as_bps()
    {
        let message = format!(
            "the rates promised come to {} bit/s, and the link has {}",
            Rate::from_bps(sum),
            setting.rate
        );
        let help = "they cannot all be kept: some give way when all are busy";
        found.push(Finding::warning(Some(last), "arc", message, help));
    }
    found
}
