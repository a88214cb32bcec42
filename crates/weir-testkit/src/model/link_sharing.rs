//! Formal link sharing in the fluid limit (Floyd and Jacobson, IEEE/ACM Transactions on
//! Networking 3(4), 1995, section III), for classes of equal priority.
//!
//! An ancestor lends only while no class below it is unsatisfied: so every class, inner ones
//! included, gets what it wants of its own share. Beyond that the general scheduler decides:
//! weighted round robin among the leaves, by their own shares. Hence the leaves are filled to a
//! common level of rate / share, except below a class that would get less than its share in that
//! way: it gets its share, and its leaves have a level of their own.

/// A class of the tree; parents stand before their children.
#[derive(Clone, Copy, Debug)]
pub struct ShareClass {
    /// Index of the parent; `None` for the root.
    pub parent: Option<usize>,
    /// Its share, bit/s; the root's is the link.
    pub share_bps: f64,
    /// What its own traffic offers, bit/s; counts for leaves.
    pub offered_bps: f64,
    /// Whether it may use more than its share.
    pub borrows: bool,
}

/// The rate of every class when the link is shared formally.
pub fn fluid_shares(classes: &[ShareClass]) -> Vec<f64> {
    let tree = Tree::new(classes);
    let mut given = vec![0.0; classes.len()];
    for (index, class) in classes.iter().enumerate() {
        if class.parent.is_none() {
            given[index] = f64::min(tree.wanted[index], class.share_bps);
        }
        let level = tree.level(&tree.children[index], given[index]);
        for &child in &tree.children[index] {
            given[child] = tree.taken(child, level);
        }
    }
    given
}

struct Tree<'a> {
    classes: &'a [ShareClass],
    children: Vec<Vec<usize>>,
    /// What the traffic below each class would take of an empty link.
    wanted: Vec<f64>,
}

impl<'a> Tree<'a> {
    fn new(classes: &'a [ShareClass]) -> Self {
        let below = |index| (0..classes.len()).filter(move |&c| classes[c].parent == Some(index)).collect();
        let children: Vec<Vec<usize>> = (0..classes.len()).map(below).collect();
        let mut wanted = vec![0.0; classes.len()];
        for (index, class) in classes.iter().enumerate().rev() {
            wanted[index] = match &children[index][..] {
                [] => class.offered_bps,
                below => below.iter().map(|&c| wanted[c]).sum(),
            };
            if !class.borrows {
                wanted[index] = f64::min(wanted[index], class.share_bps);
            }
        }
        Tree { classes, children, wanted }
    }
    /// What a class takes if the leaves around it are filled to `level`.
    fn taken(&self, index: usize, level: f64) -> f64 {
        let share = self.classes[index].share_bps;
        let filled = match &self.children[index][..] {
            [] => share * level,
            below => below.iter().map(|&c| self.taken(c, level)).sum(),
        };
        f64::max(filled, share).min(self.wanted[index])
    }
    /// The level at which `children` take `amount` together, by bisection; high if they want less.
    fn level(&self, children: &[usize], amount: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            let sum: f64 = children.iter().map(|&c| self.taken(c, middle)).sum();
            if sum < amount { low = middle } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(parent: usize, share: f64, offered: f64) -> ShareClass {
        ShareClass { parent: Some(parent), share_bps: share, offered_bps: offered, borrows: true }
    }

    /// Two agencies at 70 and 30: a silent class's share goes to its sibling, not to the others.
    #[test]
    fn what_a_sibling_leaves_stays_in_the_agency() {
        let shares = |offered: [f64; 4]| {
            let root = ShareClass { parent: None, share_bps: 100.0, offered_bps: 0.0, borrows: false };
            let tree = [
                root,
                class(0, 70.0, 0.0),
                class(0, 30.0, 0.0),
                class(1, 30.0, offered[0]),
                class(1, 40.0, offered[1]),
                class(2, 10.0, offered[2]),
                class(2, 20.0, offered[3]),
            ];
            fluid_shares(&tree)[3..].iter().map(|bps| bps.round()).collect::<Vec<_>>()
        };
        let all = 1_000.0;
        assert_eq!(shares([all; 4]), [30.0, 40.0, 10.0, 20.0]);
        assert_eq!(shares([all, all, 0.0, all]), [30.0, 40.0, 0.0, 30.0]);
        assert_eq!(shares([0.0, all, all, all]), [0.0, 70.0, 10.0, 20.0]);
        assert_eq!(shares([0.0, all, 0.0, all]), [0.0, 70.0, 0.0, 30.0]);
        // A whole agency is silent but for 10: the other gets 90, divided as 30 to 40.
        assert_eq!(shares([all, all, 10.0, 0.0]), [39.0, 51.0, 10.0, 0.0]);
        // Of an agency without its data, video alone takes the agency's share, not less.
        assert_eq!(shares([all, 0.0, all, all]), [70.0, 0.0, 10.0, 20.0]);
    }

    #[test]
    fn who_may_not_borrow_stays_below_its_share() {
        let root = ShareClass { parent: None, share_bps: 100.0, offered_bps: 0.0, borrows: false };
        let kept = ShareClass { borrows: false, ..class(0, 10.0, 1_000.0) };
        assert_eq!(fluid_shares(&[root, kept, class(0, 80.0, 50.0)])[1..], [10.0, 50.0]);
    }
}
