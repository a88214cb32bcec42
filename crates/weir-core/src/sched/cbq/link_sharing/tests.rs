//! Link sharing against its rules, looked at anew before every choice.

use super::*;
use crate::Random;

/// [CBQ95 section III.C] After a packet that was borrowed, Top-Level stays at the lender's level only
/// while the borrower has more to send, and the lender is not overlimit.
#[test]
fn top_level_falls_to_the_lender_only_with_demand_and_room() {
    let position = |parent| {
        let borrows = parent != NONE;
        Position { parent, borrows, priority: 1, quantum: 1_500, wake: Instant::ZERO }
    };
    let now = Instant::from_millis(5);
    for (queued, wake, stays) in [
        (true, now, true),
        (true, Instant::from_millis(6), false),
        (false, now, false),
        (false, Instant::from_millis(6), false),
    ] {
        let tree = [position(NONE), position(0), position(1), position(1)];
        let mut sharing = LinkSharing::new(&tree, [(); 4], Rule::TopLevel, false, false);
        (sharing.members[2].queued, sharing.members[1].wake) = (queued, wake);
        sharing.departed(Pick { class: 2, lender: 1 }, now);
        let expected = if stays { sharing.members[1].level } else { u8::MAX };
        assert_eq!(sharing.top_level, expected, "queued {queued}, lender underlimit from {wake:?}");
    }
}

/// What the rules say, from nothing but the tree, the queues and the times.
struct Plain {
    parents: Vec<u32>,
    borrows: Vec<bool>,
    priorities: Vec<u8>,
    levels: Vec<usize>,
    queued: Vec<bool>,
    wakes: Vec<u64>,
    now: u64,
}

impl Plain {
    fn draw(random: &mut Random) -> Plain {
        let count = 2 + random.below(9) as usize;
        let parents: Vec<u32> =
            (0..count).map(|c| if c == 0 { NONE } else { random.below(c as u64) as u32 }).collect();
        let mut draw = |of: u64| (0..count).map(|_| random.below(of)).collect::<Vec<_>>();
        Plain {
            borrows: draw(3).iter().zip(&parents).map(|(&n, &parent)| n > 0 && parent != NONE).collect(),
            priorities: draw(3).iter().map(|&n| n as u8).collect(),
            levels: levels(&parents),
            queued: vec![false; count],
            wakes: vec![0; count],
            parents,
            now: 0,
        }
    }
    /// The class itself and those that may lend to it, the nearest first.
    fn chain(&self, class: usize) -> Vec<usize> {
        let mut chain = vec![class];
        while self.borrows[chain[chain.len() - 1]] {
            chain.push(self.parents[chain[chain.len() - 1]] as usize);
        }
        chain
    }
    fn is_under(&self, class: usize) -> bool {
        self.wakes[class] <= self.now
    }
    fn backlogged(&self) -> impl Iterator<Item = usize> {
        (0..self.queued.len()).filter(|&class| self.queued[class])
    }
    /// The lowest level with an unsatisfied class: one that is underlimit, with backlog that leads to it.
    fn lowest(&self) -> Option<usize> {
        let wanted = self.backlogged().flat_map(|class| self.chain(class));
        wanted.filter(|&class| self.is_under(class)).map(|class| self.levels[class]).min()
    }
    /// Who may send where ancestors up to that level lend, and who lends.
    fn may_send(&self, ceiling: usize) -> Vec<Pick> {
        let how = |class: usize| {
            let chain = self.chain(class);
            let lends = |&above: &usize| above == class || self.levels[above] <= ceiling;
            let from = chain.into_iter().take_while(lends).find(|&above| self.is_under(above))?;
            Some(Pick { class: class as u32, lender: if from == class { NONE } else { from as u32 } })
        };
        self.backlogged().filter_map(how).collect()
    }
    /// Those of them whose turn it may be: of the highest priority.
    fn first_of(&self, ceiling: usize) -> Vec<Pick> {
        let all = self.may_send(ceiling);
        let priority = |pick: &Pick| self.priorities[pick.class as usize];
        let highest = all.iter().map(priority).max();
        all.into_iter().filter(|pick| Some(priority(pick)) == highest).collect()
    }
}

/// Trees, queues and times at random: whoever is chosen may send by the rule, and somebody is chosen
/// whenever somebody may. Reversed: under the rule of `formal`, choices of the others are wrong at times.
#[test]
fn a22_who_is_chosen_may_send_by_the_rule() {
    let mut wrong = 0;
    for rule in [Rule::Formal, Rule::TopLevel, Rule::AncestorOnly] {
        for seed in weir_seed::seeds(300) {
            let mut random = Random::new(seed);
            let mut plain = Plain::draw(&mut random);
            let position = |class: usize| Position {
                parent: plain.parents[class],
                borrows: plain.borrows[class],
                priority: plain.priorities[class],
                quantum: 1_500,
                wake: Instant::ZERO,
            };
            let positions: Vec<Position> = (0..plain.parents.len()).map(position).collect();
            let mut sharing = LinkSharing::new(&positions, core::iter::repeat(()), rule, false, false);
            let mut top_level = u8::MAX;
            for step in 0..300 {
                let told = alloc::format!("{rule:?}, seed {seed}, step {step}");
                let class = random.below(positions.len() as u64) as usize;
                let now = Instant::from_nanos(plain.now);
                match random.below(5) {
                    0 | 1 if plain.queued[class] => {
                        sharing.leave(class);
                        plain.queued[class] = false;
                    }
                    0..=2 => {
                        if !plain.queued[class] {
                            sharing.enter(class, now, now);
                            plain.queued[class] = true;
                        }
                        // An arrival: the lowest of those on the way that is not overlimit.
                        let under = plain.chain(class).into_iter().find(|&above| plain.is_under(above));
                        let level = under.map_or(u8::MAX, |above| plain.levels[above] as u8);
                        top_level = if rule == Rule::TopLevel { top_level.min(level) } else { top_level };
                        sharing.arrived(class, now);
                    }
                    3 => {
                        plain.wakes[class] = plain.now.saturating_sub(10) + random.below(40);
                        let wake = Instant::from_nanos(plain.wakes[class]);
                        sharing.books.set_wake(class, &mut sharing.members[class], wake, now);
                    }
                    _ => {
                        plain.now += random.below(20);
                        sharing.advance(Instant::from_nanos(plain.now));
                    }
                }
                let now = Instant::from_nanos(plain.now);
                assert_eq!(sharing.check(now), Ok(()), "{told}");
                assert_eq!(sharing.top_level, top_level, "{told}");
                let wanted = plain.backlogged().flat_map(|class| plain.chain(class));
                let asleep = wanted.filter(|&class| !plain.is_under(class)).map(|class| plain.wakes[class]);
                let next = asleep.min().map_or(Instant::NEVER, Instant::from_nanos);
                assert_eq!(sharing.next_wake(), next, "{told}");
                let of_chain = plain.chain(class).into_iter().map(|above| plain.wakes[above]).min();
                assert_eq!(Some(sharing.wake_of_chain(class).as_nanos()), of_chain, "{told}");
                // Who may go first by the rule.
                let lowest = plain.lowest();
                let root = plain.levels[0];
                let formal = lowest.map_or(Vec::new(), |level| plain.first_of(level));
                let lawful = match (lowest, rule) {
                    (None, _) => Vec::new(),
                    (Some(_), Rule::Formal) => formal.clone(),
                    (Some(1), Rule::TopLevel) => plain.first_of(0),
                    (Some(level), Rule::TopLevel) => {
                        top_level = top_level.max(level as u8);
                        plain.first_of(top_level.into())
                    }
                    // A root that is at its limit lends only what nobody else may use.
                    (Some(_), Rule::AncestorOnly) => {
                        let lends = plain.wakes[0] + 1 < plain.now;
                        let first = plain.first_of(if lends { root } else { root - 1 });
                        if first.is_empty() { plain.first_of(root) } else { first }
                    }
                };
                let picked = sharing.pick(now);
                match picked {
                    Some(pick) => assert!(lawful.contains(&pick), "{told}: {pick:?}, not one of {lawful:?}"),
                    None => assert!(lowest.is_none(), "{told}: nobody, not one of {lawful:?}"),
                }
                let Some(pick) = picked else { continue };
                wrong += u32::from(!formal.contains(&pick));
                let bytes = 40 + random.below(1_461);
                sharing.books.sent(&sharing.members[pick.class as usize], bytes);
                // Who goes by right, ahead of a borrower of a higher priority, says nothing about Top-Level.
                let sends = pick.class as usize;
                let borrows_before = |other: &Pick| {
                    other.lender != NONE && plain.priorities[other.class as usize] > plain.priorities[sends]
                };
                let ahead = lowest == Some(1) && plain.may_send(top_level.into()).iter().any(borrows_before);
                let used = if pick.lender == NONE { sends } else { pick.lender as usize };
                let level = plain.levels[used] as u8;
                if rule == Rule::TopLevel && !ahead && top_level >= level {
                    top_level = if plain.is_under(used) { level } else { u8::MAX };
                }
                sharing.departed(pick, now);
                assert_eq!(sharing.top_level, top_level, "{told}");
            }
        }
    }
    assert!(wrong > 100, "{wrong} choices are not those of formal link sharing");
}
