//! The word that a person probably meant.

use crate::visible::on_one_line;

/// The candidate nearest to `word`, if it is near enough to be a slip of the fingers: at most a third
/// of its letters inserted, left out, changed or swapped with a neighbour, in either case.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    let word = word.to_lowercase();
    candidates
        .into_iter()
        // Lengths that differ by more are farther: a long word costs nothing.
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= 4 * allowed)
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "did you mean `x`?", or nothing.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, candidates).map(|candidate| on_one_line(&format!("did you mean `{candidate}`?")))
}

/// "did you mean `x`?", or else `there are a, b, c`.
pub fn suggest_or_list(word: &str, candidates: &[&str]) -> String {
    let suggestion = suggest(word, candidates.iter().copied());
    suggestion.unwrap_or_else(|| format!("there are {}", candidates.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        assert_eq!(nearest("pbandwith", ["priority", "pbandwidth"]), Some("pbandwidth"));
        assert_eq!(nearest("me0", ["em0", "em1"]), Some("em0"));
        assert_eq!(nearest("DURATOIN", ["duration"]), Some("duration"));
        assert_eq!(nearest("xyz", ["em0", "em1"]), None);
        assert_eq!(suggest_or_list("DDR", &["drr", "wfq"]), "did you mean `drr`?");
        assert_eq!(suggest_or_list("nonsense", &["drr", "wfq"]), "there are drr, wfq");
        assert_eq!(suggest("sed", ["seed", "name"]).as_deref(), Some("did you mean `seed`?"));
    }
}
