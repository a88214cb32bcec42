//! What an experiment's file says of its results, held against what was measured.

use super::Measurements;
use super::manifest::{Compare, Line, Run, Value};
use weir_report::report::Check;
use weir_text::{Unit, show};

impl Run {
    /// Judges the checks of a run that must fail: those that fail, as asked, pass and say so; if none
    /// does, or one of `fails` holds, a check fails that says which.
    pub fn must_fail(&self, checks: &mut Vec<Check>) {
        let said = |check: &Check, name: &String| check.what == *name || check.label() == name;
        let mut missing: Vec<String> = Vec::new();
        for name in &self.fails {
            match checks.iter().find(|check| said(check, name)) {
                None => {
                    let known: Vec<&str> = checks.iter().map(Check::label).collect();
                    missing.push(format!("there is no check `{name}`; there are: {}", known.join("; ")));
                }
                Some(check) if check.pass => missing.push(format!("`{name}` holds")),
                Some(_) => {}
            }
        }
        // A check of which nothing was measured shows nothing about its bound.
        let bites = |check: &Check| !check.pass && check.measured.is_some();
        let failed = checks.iter().filter(|check| bites(check)).count();
        if failed == 0 {
            missing.push("every expectation holds: the bound does not bite".into());
        }
        for check in checks.iter_mut() {
            if bites(check) {
                check.expected = format!("must fail: {}", check.expected);
                check.pass = true;
            }
        }
        checks.push(Check {
            what: "expectations that fail, as at least one must".into(),
            expected: format!("at least {}", self.fails.len().max(1)),
            measured: Some(failed as f64),
            unit: Unit::Number,
            pass: missing.is_empty(),
            note: (!missing.is_empty()).then(|| missing.join("; ")),
        });
    }
}

impl Line {
    /// The check.
    pub fn check(&self, measured: &Measurements) -> Check {
        let values: Option<Vec<f64>> =
            self.of.iter().map(|name| measured.get(&(String::new(), name.clone())).map(|of| of.0)).collect();
        let r2 = values.and_then(|ys| r_squared(&self.at, &ys));
        Check {
            what: self.what.clone(),
            expected: format!("R² ≥ {}", self.at_least),
            measured: r2,
            unit: Unit::Number,
            pass: r2.is_some_and(|r2| r2 >= self.at_least),
            note: r2.is_none().then(|| "the values and their places do not pair up".into()),
        }
    }
}

/// Of the least-squares line; `None` for lists that do not pair up, or fewer than three points.
fn r_squared(xs: &[f64], ys: &[f64]) -> Option<f64> {
    if xs.len() != ys.len() || xs.len() < 3 {
        return None;
    }
    let n = xs.len() as f64;
    let mean = |v: &[f64]| v.iter().sum::<f64>() / n;
    let (mx, my) = (mean(xs), mean(ys));
    let sxy: f64 = xs.iter().zip(ys).map(|(x, y)| (x - mx) * (y - my)).sum();
    let sxx: f64 = xs.iter().map(|x| (x - mx) * (x - mx)).sum();
    let syy: f64 = ys.iter().map(|y| (y - my) * (y - my)).sum();
    Some(if syy == 0.0 { 1.0 } else { sxy * sxy / (sxx * syy) })
}

impl Compare {
    /// The check. It fails if one of its values was not measured.
    pub fn check(&self, measured: &Measurements) -> Check {
        let find = |value: &Value| {
            measured
                .get(&(value.run.clone(), value.what.clone()))
                .map(|found| (found.0 - value.above, found.1))
        };
        let (left, right) = (find(&self.left), find(&self.right));
        let ((left, unit), right) = match (left, right) {
            (Some(left), Some(right)) => (left, right.0),
            (left, _) => {
                let missing = if left.is_none() { &self.left } else { &self.right };
                let mut known: Vec<String> =
                    measured.keys().map(|(run, what)| format!("{run}: {what}")).collect();
                known.sort();
                let note =
                    format!("no value `{}: {}`; there are: {}", missing.run, missing.what, known.join("; "));
                return Check {
                    what: self.what.clone(),
                    expected: "two measured values".into(),
                    measured: None,
                    unit: Unit::Number,
                    pass: false,
                    note: Some(note),
                };
            }
        };
        let mut bound = right * self.times;
        if let (Some(least), false) = (self.or_at_most, self.at_least) {
            bound = bound.max(least);
        }
        let pass = if self.at_least { left >= bound } else { left <= bound };
        let sign = if self.at_least { '≥' } else { '≤' };
        Check {
            what: self.what.clone(),
            expected: format!("{sign} {}", show(bound, unit)),
            measured: Some(left),
            unit,
            pass,
            note: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measurements {
        [("a", 10.0), ("b", 21.0), ("c", 30.0)]
            .map(|(k, v)| ((String::new(), k.to_string()), (v, Unit::Time)))
            .into()
    }
    fn value(what: &str) -> Value {
        Value { run: String::new(), what: what.into(), above: 0.0 }
    }

    #[test]
    fn comparisons_hold_and_fail() {
        let mut compare = Compare {
            what: "a is at most half of b".into(),
            left: value("a"),
            right: value("b"),
            times: 0.5,
            or_at_most: None,
            at_least: false,
            doubtful: false,
        };
        let held = compare.check(&measured());
        assert!(held.pass);
        assert_eq!((held.expected.as_str(), held.shown().as_str()), ("≤ 10.5 ns", "10 ns"));
        compare.at_least = true;
        assert!(!compare.check(&measured()).pass, "reversed");
        // A value that was not measured proves nothing, and two prove no more.
        for (left, right) in [("z", "b"), ("a", "z"), ("z", "z")] {
            (compare.left, compare.right) = (value(left), value(right));
            let missing = compare.check(&measured());
            assert!(!missing.pass && missing.note.unwrap().contains("no value `: z`"), "{left} {right}");
        }
    }

    fn checks() -> Vec<Check> {
        let check = |what: &str, value: Option<f64>, pass| Check {
            what: what.into(),
            expected: "at most 1".into(),
            measured: value,
            unit: Unit::Number,
            pass,
            note: None,
        };
        vec![check("a", Some(2.0), false), check("b", Some(0.5), true), check("c", None, false)]
    }

    #[test]
    fn a_run_that_must_fail_passes_when_a_bound_bites() {
        let run = |fails: &str| -> Run {
            toml::from_str(&format!("name = \"x\"\nmust_fail = true\nfails = [{fails}]")).unwrap()
        };
        let judged = |run: &Run, mut checks: Vec<Check>| {
            run.must_fail(&mut checks);
            checks
        };
        // One fails as it must; that of which nothing was measured shows nothing and stays a miss.
        let all = judged(&run(""), checks());
        assert_eq!(all.iter().map(|c| c.pass).collect::<Vec<_>>(), [true, true, false, true]);
        assert_eq!(all[0].expected, "must fail: at most 1");
        assert!(judged(&run("\"a\""), checks())[3].pass);
        // Reversed: all hold, another should have failed, one that is not there.
        let holds = judged(&run(""), checks().split_off(1));
        assert!(!holds[2].pass && holds[2].note.as_ref().unwrap().contains("does not bite"), "{holds:?}");
        for (name, why) in [("b", "`b` holds"), ("z", "there is no check `z`; there are: a; b; c")] {
            let wrong = judged(&run(&format!("\"{name}\"")), checks()).pop().unwrap();
            assert!(!wrong.pass && wrong.note.as_ref().unwrap().contains(why), "{wrong:?}");
        }
    }

    #[test]
    fn a_line_is_told_from_a_heap() {
        assert!(r_squared(&[1.0, 2.0, 3.0], &[10.0, 21.0, 30.0]).unwrap() > 0.99);
        assert!(r_squared(&[1.0, 2.0, 3.0, 4.0], &[1.0, 9.0, 2.0, 7.0]).unwrap() < 0.5);
        assert_eq!(r_squared(&[1.0], &[1.0]), None);
    }
}
