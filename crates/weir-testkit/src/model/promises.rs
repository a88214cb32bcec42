//! JoBS's absolute promises (Christin and Liebeherr, Computer Networks 50, 2006, section 2.4): the
//! least share of the link with which each class keeps its delay bound and its rate, and who may
//! lose a packet.

use super::Ratio;

/// A class as it stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromisedClass {
    /// What waits, in bits.
    pub backlog_bits: u64,
    /// How long its oldest packet has waited.
    pub oldest_ns: u64,
    /// Bound of the delay.
    pub delay_ns: Option<u64>,
    /// Least rate while there is backlog.
    pub rate_bps: u64,
    /// Bits that came and bits that were dropped, in this busy period.
    pub arrived_bits: u64,
    /// As above.
    pub lost_bits: u64,
    /// Bound of the loss, in parts of 2^32.
    pub loss: Option<u64>,
}

/// max(B / (d - D), f) / C for each class: the whole link, if its oldest packet is overdue.
pub fn least_shares(classes: &[PromisedClass], link_bps: u64) -> Vec<Ratio> {
    let link = Ratio::new(i128::from(link_bps), 1_000_000_000);
    let least = |class: &PromisedClass| {
        if class.backlog_bits == 0 {
            return Ratio::ZERO;
        }
        let rate = Ratio::new(i128::from(class.rate_bps), i128::from(link_bps));
        match class.delay_ns {
            Some(bound) if bound <= class.oldest_ns => Ratio::whole(1),
            Some(bound) => {
                let left = Ratio::whole(bound - class.oldest_ns);
                rate.max(Ratio::whole(class.backlog_bits) / (left * link))
            }
            None => rate,
        }
    };
    classes.iter().map(least).collect()
}

/// Whether a loss of `bits` more keeps the class within its bound.
pub fn may_lose(class: &PromisedClass, bits: u64) -> bool {
    class.loss.is_none_or(|bound| {
        let lost = i128::from(class.lost_bits + bits) << 32;
        lost <= i128::from(bound) * i128::from(class.arrived_bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_become_shares() {
        let class = PromisedClass { backlog_bits: 8_000, ..PromisedClass::default() };
        let classes = [
            class,
            PromisedClass { rate_bps: 250_000, ..class },
            // 8,000 bits within 10 ms less the 2 ms that passed are 1 Mbit/s.
            PromisedClass { delay_ns: Some(10_000_000), oldest_ns: 2_000_000, rate_bps: 250_000, ..class },
            PromisedClass { delay_ns: Some(10_000_000), oldest_ns: 10_000_000, ..class },
            PromisedClass { rate_bps: 250_000, ..PromisedClass::default() },
        ];
        let shares = least_shares(&classes, 2_000_000);
        assert_eq!(shares, [(0, 1), (1, 8), (1, 2), (1, 1), (0, 1)].map(|(n, d)| Ratio::new(n, d)));
    }

    #[test]
    fn a_bound_counts_to_the_last_bit() {
        let class = PromisedClass { arrived_bits: 1_000, loss: Some(1 << 30), ..PromisedClass::default() };
        assert!(may_lose(&class, 250) && !may_lose(&class, 251));
        assert!(may_lose(&PromisedClass { loss: None, ..class }, 1_000));
    }
}
