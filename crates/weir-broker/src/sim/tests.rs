use super::*;

/// T66
#[test]
fn the_invariants_hold() {
    let mut counts = Counts::default();
    for seed in weir_seed::seeds(2_000) {
        match history(seed, Without::default()) {
            Ok(more) => counts = counts.plus(more),
            Err(what) => panic!("{what}"),
        }
    }
    println!("{counts:?}");
    let Counts { requests, grants, refusals, crashes, takeovers, lost } = counts;
    assert!([requests, grants, refusals, crashes, takeovers, lost].iter().all(|&n| n > 2_000), "{counts:?}");
}

fn breaks(without: Without) -> bool {
    weir_seed::seeds(300).any(|seed| history(seed, without).is_err())
}

#[test]
fn without_fencing_they_break() {
    assert!(breaks(Without { fencing: true, ..Without::default() }));
}

#[test]
fn without_shaping_down_first_they_break() {
    assert!(breaks(Without { shaping_down_first: true, ..Without::default() }));
}

#[test]
fn without_writing_before_answering_they_break() {
    assert!(breaks(Without { commit_before_answer: true, ..Without::default() }));
}
