//! Plots of one report, or of several on top of each other: rate per class over time, distribution of
//! queue delays, drops, and what an edge allocates. SVG, one file each.
//!
//! Drawn on a canvas of 1600 by 1000 units, so that whole units are finer than a pixel of any page.

use crate::report::{ClassReport, PortReport, Report};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

const SIZE: (u32, u32) = (1600, 1000);
/// Width of the column of the legend.
const LEGEND: u32 = 290;
const FONT: &str = "Helvetica, Arial, sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);
/// Width of a curve.
const WIDTH: u32 = 4;
/// The lines of the second run and those behind it: the length of a dash, and of the gap behind it. The
/// first run is a band.
const DASHES: [(u32, u32); 3] = [(12, 8), (3, 8), (32, 12)];

/// Colours that can be told apart with any eyes (Okabe and Ito 2008; then Tol's muted).
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(136, 34, 85),
    RGBColor(153, 153, 51),
    RGBColor(51, 34, 136),
    RGBColor(136, 136, 136),
    RGBColor(170, 68, 153),
];

/// What a plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// Rate of each class over time.
    Rate,
    /// Distribution of each class's queue delays.
    Delay,
    /// Drops of each class, summed up over time.
    Drops,
    /// Estimate B_m and allocation B_d of each class that an edge allocates to.
    Allocation,
}

impl Plot {
    /// All plots.
    pub const ALL: [Plot; 4] = [Plot::Rate, Plot::Delay, Plot::Drops, Plot::Allocation];

    /// The stem of its file's name.
    pub const fn name(self) -> &'static str {
        match self {
            Plot::Rate => "rate",
            Plot::Delay => "delay",
            Plot::Drops => "drops",
            Plot::Allocation => "allocation",
        }
    }
    const fn title(self) -> &'static str {
        match self {
            Plot::Rate => "rate of each class",
            Plot::Delay => "time in the queue",
            Plot::Drops => "packets dropped",
            Plot::Allocation => "bandwidth used (B_m) and granted (B_d)",
        }
    }
    const fn axes(self) -> (&'static str, &'static str) {
        match self {
            Plot::Rate => ("time, s", "rate, Mbit/s"),
            Plot::Delay => ("queue delay, ms", "packets not delayed longer, %"),
            Plot::Drops => ("time, s", "packets dropped since the start"),
            Plot::Allocation => ("time, s", "bandwidth, Mbit/s"),
        }
    }
}

/// Writes every plot of every managed port into a folder: `rate.svg`, `delay.svg`, `drops.svg`, with an
/// edge `allocation.svg`, or `rate-A-B.svg` … where there are several ports. Further reports are drawn dashed over the first;
/// those behind the fourth are left out.
pub fn write(folder: &Path, runs: &[&Report]) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let Some(first) = runs.first() else { return Ok(Vec::new()) };
    let mut written = Vec::new();
    for port in &first.ports {
        let allocates = port.classes.iter().any(|class| !class.series.allocated_bits.is_empty());
        for plot in Plot::ALL.into_iter().filter(|plot| *plot != Plot::Allocation || allocates) {
            let suffix = if first.ports.len() == 1 {
                String::new()
            } else {
                format!("-{}", port.name.replace('>', "-"))
            };
            let path = folder.join(format!("{}{suffix}.svg", plot.name()));
            crate::disk::write(&path, draw(plot, &port.name, runs)?)?;
            written.push(path);
        }
    }
    Ok(written)
}

/// One curve.
struct Curve {
    label: String,
    colour: RGBColor,
    /// Which of the runs it is of.
    run: usize,
    points: Vec<(f64, f64)>,
}

/// A plot of one managed port as SVG.
pub fn draw(plot: Plot, port: &str, all: &[&Report]) -> Result<String> {
    let Some(first) = all.first() else { return Err(Error::other("there is no run to plot")) };
    let has = |run: &&Report| run.port(Some(port)).is_some();
    let shown: Vec<&Report> = all.iter().copied().filter(has).take(1 + DASHES.len()).collect();
    let runs: Vec<(&Report, &PortReport)> =
        shown.iter().filter_map(|run| Some((*run, run.port(Some(port))?))).collect();
    let (mut curves, left_out) = curves(plot, &runs);
    let same = runs.iter().all(|(run, _)| run.meta.scenario == first.meta.scenario);
    let title = match first.meta.scenario.as_str() {
        name if name.is_empty() || !same => plot.title().to_string(),
        name => format!("{name}: {}", plot.title()),
    };
    let ports = if first.ports.len() > 1 { format!("{port}, ") } else { String::new() };
    let subtitle = match runs.as_slice() {
        [] => String::new(),
        [(run, _)] => format!("{ports}{}", run_name(run)),
        _ => format!("{ports}{} runs", runs.len()),
    };
    let names = if runs.len() > 1 { crate::compare::labels(&shown) } else { Vec::new() };
    let mut svg = String::new();
    let words = Words { title: &title, subtitle: &subtitle, names: &names, left_out };
    canvas(&mut svg, plot, &words, &mut curves, runs.first().map(|(_, port)| port.rate_bps))
        .map_err(|error| Error::other(format!("the plot {} cannot be drawn: {error}", plot.name())))?;
    Ok(svg)
}

fn run_name(run: &Report) -> String {
    let place = match run.meta.kind {
        crate::report::RunKind::Sim => "simulated",
        crate::report::RunKind::Lab => "live",
    };
    format!("{place}, seed {}", run.meta.seed)
}

/// The curves of all runs, and how many classes with traffic have none for want of colours.
fn curves(plot: Plot, runs: &[(&Report, &PortReport)]) -> (Vec<Curve>, usize) {
    let has = |class: &ClassReport| match plot {
        Plot::Allocation => !class.series.allocated_bits.is_empty(),
        _ => class.offered.packets > 0,
    };
    let mut names: Vec<&str> = Vec::new();
    for class in runs.iter().flat_map(|(_, port)| &port.classes) {
        if has(class) && !names.contains(&class.name.as_str()) {
            names.push(&class.name);
        }
    }
    // What is drawn of each class, and how its name goes on.
    let parts: &[&str] = if plot == Plot::Allocation { &[" B_m", " B_d"] } else { &[""] };
    let lines: Vec<(&str, &str)> =
        names.iter().flat_map(|name| parts.iter().map(|part| (*name, *part))).collect();
    let left_out = names.len().saturating_sub(COLOURS.len() / parts.len());
    let mut curves = Vec::new();
    for ((name, part), colour) in lines.iter().zip(COLOURS) {
        for (n, (run, port)) in runs.iter().enumerate() {
            let Some(class) = port.class(name) else { continue };
            let points = match (plot, *part) {
                (Plot::Rate, _) => rate(run, class),
                (Plot::Delay, _) => delay(class),
                (Plot::Drops, _) => drops(run, class),
                (Plot::Allocation, " B_d") => bandwidth(run, &class.series.allocated_bits),
                (Plot::Allocation, _) => bandwidth(run, &class.series.estimated_bits),
            };
            curves.push(Curve { label: format!("{name}{part}"), colour, run: n, points });
        }
    }
    (curves, left_out)
}

/// (seconds, Mbit/s) at the middle of each interval of the probe, of a list of bits.
fn bandwidth(run: &Report, bits: &[u64]) -> Vec<(f64, f64)> {
    let meta = &run.meta;
    let point = |n: u64| {
        let from = n * meta.probe_ns;
        let length = meta.probe_ns.min(meta.duration_ns - from) as f64;
        ((from as f64 + length / 2.0) / 1e9, run.interval_sum(bits, n) as f64 * 1e3 / length)
    };
    (0..run.intervals()).map(point).collect()
}

/// (seconds, Mbit/s) at the middle of each interval of the probe, or of each window that slides.
fn rate(run: &Report, class: &ClassReport) -> Vec<(f64, f64)> {
    let meta = &run.meta;
    if let Some(window) = meta.window_ns {
        let (step, cells) = (meta.probe_ns / meta.cell_ns, (window / meta.cell_ns) as usize);
        let windows = meta.duration_ns.saturating_sub(window) / meta.probe_ns + 1;
        let sent = &class.series.sent_bytes;
        let bytes_of = |n: u64| -> u64 { sent.iter().skip((n * step) as usize).take(cells).sum() };
        let middle = |n: u64| (n * meta.probe_ns + window / 2) as f64 / 1e9;
        return (0..windows).map(|n| (middle(n), bytes_of(n) as f64 * 8e3 / window as f64)).collect();
    }
    (0..run.intervals())
        .map(|n| {
            let from = n * meta.probe_ns;
            let length = meta.probe_ns.min(meta.duration_ns - from) as f64;
            let bytes = run.interval_sum(&class.series.sent_bytes, n);
            ((from as f64 + length / 2.0) / 1e9, bytes as f64 * 8e3 / length)
        })
        .collect()
}

/// The delay that one packet in a hundred of some class is below: what is shorter is too rare to
/// give the axis decades of its own, and is drawn at its edge.
fn common_delay(curves: &[Curve]) -> f64 {
    let first = |curve: &Curve| curve.points.iter().find(|(_, percent)| *percent >= 1.0).map(|(ms, _)| *ms);
    curves.iter().filter_map(first).fold(f64::INFINITY, f64::min)
}

/// (ms, per cent), from the shortest delay up.
fn delay(class: &ClassReport) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (ns, part) in class.delay.histogram.distribution() {
        // A logarithmic axis has no zero: a microsecond stands for less.
        let ms = (ns as f64 / 1e6).max(1e-3);
        if points.is_empty() {
            points.push((ms, 0.0));
        }
        points.push((ms, part * 100.0));
    }
    points
}

/// (seconds, packets) at the end of each interval of the probe.
fn drops(run: &Report, class: &ClassReport) -> Vec<(f64, f64)> {
    let meta = &run.meta;
    let mut sum = 0_u64;
    let ends = (0..run.intervals()).map(|n| {
        sum = sum.saturating_add(run.interval_sum(&class.series.dropped_packets, n));
        (((n + 1) * meta.probe_ns).min(meta.duration_ns) as f64 / 1e9, sum as f64)
    });
    std::iter::once((0.0, 0.0)).chain(ends).collect()
}

type Drawn = std::result::Result<(), DrawingAreaErrorKind<Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The words around a plot.
struct Words<'a> {
    title: &'a str,
    subtitle: &'a str,
    /// The labels of the runs, if there are several.
    names: &'a [String],
    left_out: usize,
}

fn canvas(
    svg: &mut String,
    plot: Plot,
    words: &Words<'_>,
    curves: &mut [Curve],
    link_bps: Option<u64>,
) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    text(&root, words.title, (130, 44), 42)?;
    text(&root, words.subtitle, (130, 94), 30)?;
    let (area, column) = root.margin(124, 16, 16, 0).split_horizontally(SIZE.0 - LEGEND - 16);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let right = points().map(|point| point.0).fold(1e-3, f64::max);
    let link = link_bps.map(|bps| bps as f64 / 1e6).filter(|_| plot == Plot::Rate);
    let mut builder = ChartBuilder::on(&area);
    builder.x_label_area_size(88).y_label_area_size(130).margin_right(30);
    match plot {
        Plot::Delay => {
            let (left, right) = log_range(common_delay(curves).min(right), right);
            for point in curves.iter_mut().flat_map(|curve| &mut curve.points) {
                point.0 = point.0.max(left);
            }
            let axis = (left..right).log_scale().with_key_points(log_ticks(left, right));
            body(&mut builder.build_cartesian_2d(axis, 0.0..100.0)?, plot, curves, None)?;
        }
        Plot::Rate | Plot::Drops | Plot::Allocation => {
            let top = points().map(|point| point.1).fold(link.unwrap_or(0.0), f64::max);
            body(
                &mut builder.build_cartesian_2d(0.0..right, 0.0..nice_top(top))?,
                plot,
                curves,
                link.map(|y| (right, y)),
            )?;
        }
    }
    legend(&column, curves, words, link_bps.filter(|_| link.is_some()))?;
    root.present()
}

/// Axes, grid, the line of the link's rate (whose right end is given), and the curves.
fn body<X>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
    plot: Plot,
    curves: &[Curve],
    link: Option<(f64, f64)>,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let axes = plot.axes();
    chart
        .configure_mesh()
        .x_desc(axes.0)
        .y_desc(axes.1)
        .x_label_formatter(&|x| decimal(*x))
        .y_label_formatter(&|y| decimal(*y))
        .label_style((FONT, 34, &INK))
        .axis_desc_style((FONT, 38, &INK))
        .bold_line_style(GRID.stroke_width(2))
        .light_line_style(TRANSPARENT)
        .axis_style(INK.stroke_width(2))
        .draw()?;
    if let Some((right, y)) = link {
        chart.draw_series(LineSeries::new([(0.0, y), (right, y)], INK.stroke_width(2)))?;
    }
    // Under further runs the first is a pale band, so that all show where they agree.
    let last = curves.iter().map(|curve| curve.run).max().unwrap_or(0);
    for run in 0..=last {
        for curve in curves.iter().filter(|curve| curve.run == run) {
            let points = curve.points.iter().copied();
            let style = line(curve.colour, run, last > 0);
            match dashes(run) {
                None => chart.draw_series(LineSeries::new(points, style))?,
                Some((dash, gap)) => chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?,
            };
        }
    }
    Ok(())
}

/// How the lines of a run are broken; none of the first are.
fn dashes(run: usize) -> Option<(u32, u32)> {
    DASHES.get(run.checked_sub(1)?).copied()
}

/// The stroke of a run's lines: a pale band for the first of several.
fn line(colour: RGBColor, run: usize, several: bool) -> ShapeStyle {
    if run == 0 && several { colour.mix(0.4).stroke_width(2 * WIDTH) } else { colour.stroke_width(WIDTH) }
}

/// One line per class, in the order of the configuration, then what else a reader must know.
fn legend(column: &Area<'_>, curves: &[Curve], words: &Words<'_>, link_bps: Option<u64>) -> Drawn {
    let mut y = 24;
    let sample = |y, style| column.draw(&PathElement::new(vec![(20, y), (84, y)], style));
    for (n, curve) in curves.iter().enumerate() {
        if curves[..n].iter().any(|other| other.label == curve.label) {
            continue;
        }
        sample(y, curve.colour.stroke_width(WIDTH + 2))?;
        text(column, &shorten(&curve.label), (100, y), 34)?;
        y += 52;
    }
    if let Some(bps) = link_bps {
        sample(y, INK.stroke_width(2))?;
        text(column, &format!("link {}", weir_text::show(bps as f64, weir_text::Unit::Rate)), (100, y), 30)?;
        y += 52;
    }
    if words.left_out > 0 {
        text(column, &format!("{} more not drawn", words.left_out), (20, y), 30)?;
        y += 52;
    }
    for (run, name) in words.names.iter().enumerate() {
        let style = line(INK, run, true);
        let points = [(20, y), (84, y)];
        match dashes(run) {
            None => column.draw(&PathElement::new(points.to_vec(), style))?,
            Some((dash, gap)) => column.draw(&DashedPathElement::new(points, dash, gap, style))?,
        }
        // A long label goes on below, so that it is whole.
        for part in in_lines(name, 13) {
            text(column, &part, (100, y), 30)?;
            y += 36;
        }
        y += 16;
    }
    if curves.is_empty() {
        text(column, "no packets", (20, y), 34)?;
    }
    Ok(())
}

/// Text from `at` to the right, vertically centred.
fn text(area: &Area<'_>, words: &str, at: (i32, i32), size: i32) -> Drawn {
    let style = TextStyle::from((FONT, size).into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(words.to_string(), at, style))
}

/// Words in lines of at most `width` characters; a word that is longer is cut.
fn in_lines(words: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        let word: String = word.chars().take(width).collect();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// A class's name as far as it fits the legend.
fn shorten(name: &str) -> String {
    if name.chars().count() <= 11 { name.to_string() } else { name.chars().take(10).chain(['…']).collect() }
}

/// A number on an axis: no more decimals than it needs.
fn decimal(x: f64) -> String {
    let text = format!("{x:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Somewhat above the highest value, so that no curve touches the frame.
fn nice_top(top: f64) -> f64 {
    if top > 0.0 { top * 1.06 } else { 1.0 }
}

/// Bounds for a logarithmic axis: from 1, 2 or 5 times a power of ten to another, at least a decade apart.
fn log_range(low: f64, high: f64) -> (f64, f64) {
    let steps = |x: f64| {
        let power = 10_f64.powf(x.log10().floor());
        [1.0, 2.0, 5.0, 10.0].map(|step| step * power)
    };
    let low = steps(low).into_iter().rev().find(|step| *step <= low).unwrap_or(low);
    let high = high.max(low * 10.0);
    (low, steps(high).into_iter().find(|step| *step >= high).unwrap_or(high))
}

/// 1, 2 and 5 times the powers of ten between two bounds; only the powers if there are many.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let ticks = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    ticks.filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001).collect()
}

#[cfg(test)]
mod tests;
