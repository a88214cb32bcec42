//! Which flow of a class goes when one must.

/// Which flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Evict {
    /// Any, by a seeded draw.
    #[default]
    Random,
    /// The one that sent most in the last window.
    Largest,
    /// The one that sent least.
    Smallest,
    /// The one admitted first.
    Oldest,
    /// The one admitted last.
    Newest,
}

impl Evict {
    /// All policies, by number.
    pub const ALL: [Evict; 5] =
        [Evict::Random, Evict::Largest, Evict::Smallest, Evict::Oldest, Evict::Newest];
    /// What they are called in a configuration, in the same order.
    pub const WORDS: [&'static str; 5] = ["random", "largest", "smallest", "oldest", "newest"];

    /// What it is called.
    pub fn word(self) -> &'static str {
        Evict::WORDS[self as usize]
    }
    /// The policy that is called so.
    pub fn of_word(word: &str) -> Option<Evict> {
        Evict::ALL.into_iter().find(|policy| policy.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers are written into estates, and words into configurations: each is its own policy's.
    #[test]
    fn a_policy_is_found_by_its_number_and_by_its_word() {
        for (number, policy) in Evict::ALL.into_iter().enumerate() {
            assert_eq!(policy as usize, number);
            assert_eq!(policy.word(), std::format!("{policy:?}").to_lowercase());
            assert_eq!(Evict::of_word(policy.word()), Some(policy));
        }
        assert_eq!(Evict::of_word("tallest"), None);
    }
}
