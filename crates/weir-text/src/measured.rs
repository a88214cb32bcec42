//! Measured values for people, rounded and with a unit.
//!
//! `quantity` prints what reads back as the same value. This prints what is looked at.

/// The unit of a measured value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second.
    Rate,
    /// Nanoseconds.
    Time,
    /// Parts of one.
    Share,
    /// A plain number.
    #[default]
    Number,
}

impl Unit {
    /// As it stands behind a number in a report.
    pub const fn suffix(self) -> &'static str {
        match self {
            Unit::Rate => ", bit/s",
            Unit::Time => ", ns",
            Unit::Share | Unit::Number => "",
        }
    }
}

/// A value for people: `9.98 Mbit/s`, `7.2 ms`, `58.1 %`, `43`.
pub fn show(value: f64, unit: Unit) -> String {
    show_digits(value, unit, 4)
}

/// The same with so many significant digits.
pub fn show_digits(value: f64, unit: Unit, significant: i32) -> String {
    let digits = |value| digits_of(value, significant);
    let scaled = |steps: &[(f64, &str)], smallest: &str| {
        let step = steps.iter().find(|(scale, _)| value.abs() >= *scale);
        step.map_or_else(
            || format!("{} {smallest}", digits(value)),
            |(scale, name)| format!("{} {name}", digits(value / scale)),
        )
    };
    match unit {
        Unit::Rate => scaled(&[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")], "bit/s"),
        Unit::Time => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "µs")], "ns"),
        Unit::Share => format!("{} %", digits(value * 100.0)),
        Unit::Number => digits(value),
    }
}

/// Four significant digits, without trailing zeros.
pub fn digits(value: f64) -> String {
    digits_of(value, 4)
}

fn digits_of(value: f64, significant: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let places = (significant - 1 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.places$}");
    if places == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_unit_that_fits_its_size() {
        for (value, unit, shown) in [
            (9_980_000.0, Unit::Rate, "9.98 Mbit/s"),
            (999.0, Unit::Rate, "999 bit/s"),
            (1e3, Unit::Rate, "1 kbit/s"),
            (-2.5e9, Unit::Rate, "-2.5 Gbit/s"),
            (2_315_004.0, Unit::Time, "2.315 ms"),
            (1e9, Unit::Time, "1 s"),
            (999.0, Unit::Time, "999 ns"),
            (0.581, Unit::Share, "58.1 %"),
            (43.0, Unit::Number, "43"),
            (123_456.0, Unit::Number, "123456"),
            (0.0, Unit::Rate, "0 bit/s"),
        ] {
            assert_eq!(show(value, unit), shown);
        }
        assert_eq!(show_digits(2_315_004.0, Unit::Time, 2), "2.3 ms");
    }
}
