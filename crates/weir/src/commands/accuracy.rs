//! `weir bench accuracy`: rates, bursts and delay of `weir up` beside htb.

use super::tables::{print_wrapped, say, table};
use super::{Done, Failure, print_json};
use weir_lab::accuracy::{AccuracyReport, Asked, RATES, What, accuracy, scenes};
use weir_lab::bench::{Figure, Target};

/// Rounds unless told otherwise.
const ROUNDS: usize = 4;

/// Measures at `rates`, at the usual ones if there is none.
pub fn run(rates: &[String], rounds: Option<usize>, json: bool) -> Done {
    let rates = match rates {
        [] => RATES.to_vec(),
        rates => rates.iter().map(|text| rate(text)).collect::<Result<_, _>>()?,
    };
    let program = weir_lab::Program::this().map_err(Failure::failed)?;
    let (rounds, scenes, weir) = (rounds.unwrap_or(ROUNDS), scenes(&rates), program.path.clone());
    let asked = Asked { rounds, scenes, weir, program };
    let report = accuracy(&asked, &mut |what| say(what)).map_err(super::run::lab_failure)?;
    if json {
        return print_json(&report);
    }
    print(&report);
    Ok(())
}

fn rate(text: &str) -> Result<u64, Failure> {
    let least_and_most = 16_000..=10_000_000_000;
    match weir_text::BitRate::parse(text).map(|rate| rate.as_bps()) {
        Ok(bps) if least_and_most.contains(&bps) => Ok(bps),
        Ok(_) => Err(Failure::usage(format!("the rate {text}: write one from 16K to 10G"))),
        Err(e) => Err(Failure::usage(format!("the rate {text}: {e}"))),
    }
}

/// The median, and below it half of what lies between the quartiles, where there is a spread. So narrow, a
/// table fits.
fn show(figure: Figure, digits: usize) -> String {
    let Figure { median, low, high } = figure;
    let spread = if high > low { format!("\n±{:.digits$}", (high - low) / 2.0) } else { String::new() };
    format!("{median:.digits$}{spread}")
}

fn print(report: &AccuracyReport) {
    let cells = |what: What, digits: &[usize], rows: &mut super::tables::Rows| {
        for row in report.rows.iter().filter(|row| row.scene.what == what) {
            let mut cells = vec![
                row.verdict.name().to_string(),
                row.scene.stands_name().to_string(),
                weir_text::BitRate::from_bps(row.scene.rate_bps).to_string(),
                if row.scene.offloads { "on" } else { "off" }.to_string(),
            ];
            let figures = row.targets.iter().map(|Target { measured, .. }| *measured);
            let told = row.told.iter().map(|told| told.measured);
            cells.extend(figures.chain(told).zip(digits).map(|(figure, &digits)| show(figure, digits)));
            if let Some(bound) = row.targets.iter().find(|t| t.what.starts_with(BOUND[what as usize])) {
                cells.push(bound.asked.trim_start_matches("at most ").to_string());
            }
            rows.add(cells);
        }
    };
    let head = ["", "IN THE BOX", ">RATE", ">OFF-|LOADS"];
    let shares =
        [">STREAM|% off", ">PACED|% off", ">IN 1 ms|bytes over", ">IN 10 ms|bytes over", ">ASKED|bytes"];
    let mut rows = table(&[&head[..], &shares[..]].concat());
    cells(What::Shares, &[2, 2, 0, 0], &mut rows);
    rows.print();
    if report.rows.iter().any(|row| row.scene.what == What::Premium) {
        out!("");
        let premium =
            [">PREMIUM p99|ms", ">LOST", ">IN 1 ms|bytes over", ">p50|ms", ">LONGEST|ms", ">ASKED|ms"];
        let mut rows = table(&[&head[..], &premium[..]].concat());
        cells(What::Premium, &[3, 0, 0, 3, 3], &mut rows);
        rows.print();
    }
    out!("");
    print_wrapped(&format!(
        "Medians of {} rounds, and half of what lies between the quartiles. Streams: {}. A class may be 1 % off in its worst second, and \
         one packet. `unclear`: the rounds spread over the bound, or say nothing.",
        report.rounds, report.congestion
    ));
    print_wrapped(&report.weir);
    for row in &report.rows {
        row.notes.iter().for_each(|note| print_wrapped(&format!("{}: {note}", row.scene)));
    }
}

/// How the figure begins whose bound the table shows.
const BOUND: [&str; 2] = ["bytes over", "premium: p99"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_shows_its_spread_where_it_has_one() {
        assert_eq!(show(Figure { median: 11_724.0, low: 10_210.0, high: 11_724.0 }, 0), "11724\n±757");
        assert_eq!(show(Figure { median: 0.25, low: 0.25, high: 0.25 }, 2), "0.25");
    }
}
