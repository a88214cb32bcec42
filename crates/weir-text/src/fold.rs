//! Many messages of one kind: the first of them, and how many more there are.

use std::collections::HashMap;
use std::hash::Hash;

/// Messages of one kind that are shown in full.
const IN_FULL: usize = 3;

/// The first three of each kind, in their order. With the last of a kind that is left stands how many more there were.
///
/// ```
/// let folded = weir_text::fold(["a1", "a2", "b1", "a3", "a4", "a5"], |text| text.chars().next());
/// assert_eq!(folded, [("a1", 0), ("a2", 0), ("b1", 0), ("a3", 2)]);
/// ```
pub fn fold<T, K: Eq + Hash>(all: impl IntoIterator<Item = T>, kind: impl Fn(&T) -> K) -> Vec<(T, usize)> {
    let mut kept: Vec<(T, usize)> = Vec::new();
    // How many of each kind, and where the last of them is that was kept.
    let mut kinds: HashMap<K, (usize, usize)> = HashMap::new();
    for one in all {
        let (count, last) = kinds.entry(kind(&one)).or_default();
        *count += 1;
        if *count <= IN_FULL {
            *last = kept.len();
            kept.push((one, 0));
        } else {
            kept[*last].1 += 1;
        }
    }
    kept
}

/// What messages of one kind have in common: the text without what stands in backticks, and without numbers.
pub(crate) fn common(text: &str) -> String {
    let outside = text.split('`').step_by(2);
    outside.flat_map(str::chars).filter(|c| !c.is_ascii_digit()).collect()
}
