//! `weir top`: what a running `weir up` does now, again every second, and how its edges ask for bandwidth.

use super::{Done, Failure};
use crate::operate::request::{Report, Request, ask};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Axis, Block, Cell, Chart, Dataset, GraphType, Row, Table};
use std::collections::{BTreeMap, VecDeque};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_engine::state::{PacketCounts, Snapshot};
use weir_text::{Unit, show};

/// Points of a curve, one for each look.
const POINTS: usize = 300;
/// The least time between two looks.
const LEAST: Duration = Duration::from_millis(100);

/// `weir top`.
pub fn run(socket: &Path, every: Duration) -> Done {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::impossible("standard output is no terminal: `weir stats` prints once"));
    }
    if every < LEAST {
        return Err(Failure::usage(format!("--every {every:?} is too often: write 100ms or more")));
    }
    let look = || -> Result<(Snapshot, Report), Failure> {
        Ok((ask(socket, &Request::Stats)?, ask(socket, &Request::Status)?))
    };
    // Who does not run at all is told before the screen changes.
    let first = look()?;
    let mut terminal = ratatui::try_init().map_err(Failure::failed)?;
    let done = watch(&mut terminal, first, look, every);
    ratatui::restore();
    done.map_err(Failure::failed)
}

/// Looks and draws until a key ends it.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    first: (Snapshot, Report),
    look: impl Fn() -> Result<(Snapshot, Report), Failure>,
    every: Duration,
) -> std::io::Result<()> {
    let begun = Instant::now();
    let mut top = Top::default();
    top.take(Duration::ZERO, Ok(first));
    let mut next = begun + every;
    loop {
        terminal.draw(|frame| top.draw(frame))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                match (key.code, key.modifiers) {
                    (KeyCode::Char('q') | KeyCode::Esc, _) => return Ok(()),
                    (KeyCode::Char('c'), KeyModifiers::CONTROL) => return Ok(()),
                    (KeyCode::Tab, _) => top.next_curve(),
                    (KeyCode::Down, _) => top.scroll(1),
                    (KeyCode::Up, _) => top.scroll(-1),
                    (KeyCode::PageDown, _) => top.scroll(10),
                    (KeyCode::PageUp, _) => top.scroll(-10),
                    _ => {}
                }
            }
            continue;
        }
        top.take(begun.elapsed(), look().map_err(|failure| failure.message));
        // A look that took long does not make the next ones come at once.
        next = (next + every).max(Instant::now());
    }
}

/// An interface and a class of it; an empty name is the interface itself.
type Place = (String, String);

/// What is shown of a place.
#[derive(Default)]
struct Shown {
    place: Place,
    state: String,
    /// Bits per second, packets per second, and packets dropped per second since the last look.
    rates: Option<[f64; 3]>,
    waiting: u64,
}

/// What was counted at a place.
#[derive(Clone, Copy)]
struct Counted {
    bytes: u64,
    packets: u64,
    dropped: u64,
}

impl Counted {
    fn of(counts: &PacketCounts) -> Counted {
        let dropped = counts.dropped_packets.values().sum();
        Counted { bytes: counts.sent_bytes, packets: counts.sent_packets, dropped }
    }
    /// Per second since an earlier look; none where a counter began anew.
    fn since(self, before: Counted, seconds: f64) -> Option<[f64; 3]> {
        let per_second = |now: u64, then: u64| Some(now.checked_sub(then)? as f64 / seconds);
        let bits = per_second(self.bytes, before.bytes)? * 8.0;
        Some([bits, per_second(self.packets, before.packets)?, per_second(self.dropped, before.dropped)?])
    }
}

/// How a class of an edge uses and asks: seconds and bit/s.
#[derive(Default)]
struct Curve {
    measured: VecDeque<(f64, f64)>,
    allocated: VecDeque<(f64, f64)>,
}

/// What is on the screen.
struct Top {
    rows: Vec<Shown>,
    before: BTreeMap<Place, Counted>,
    seen_at: Option<Duration>,
    curves: BTreeMap<Place, Curve>,
    /// Which curve is shown, and which row is the first.
    curve: usize,
    first: usize,
    /// What `weir status` says in a word, or why nobody answers.
    word: Result<bool, String>,
}

impl Default for Top {
    fn default() -> Self {
        Top {
            rows: Vec::new(),
            before: BTreeMap::new(),
            seen_at: None,
            curves: BTreeMap::new(),
            curve: 0,
            first: 0,
            word: Ok(true),
        }
    }
}

impl Top {
    fn next_curve(&mut self) {
        self.curve = (self.curve + 1) % self.curves.len().max(1);
    }

    fn scroll(&mut self, by: isize) {
        self.first = self.first.saturating_add_signed(by).min(self.rows.len().saturating_sub(1));
    }

    /// What was seen so long after the beginning.
    fn take(&mut self, at: Duration, seen: Result<(Snapshot, Report), String>) {
        let (snapshot, report) = match seen {
            Ok(seen) => seen,
            Err(why) => {
                (self.word, self.seen_at) = (Err(why), None);
                return;
            }
        };
        self.word = Ok(report.as_configured);
        let seconds = self.seen_at.replace(at).map(|before| (at - before).as_secs_f64());
        let place = |interface: &str, class: &str| (interface.to_owned(), class.to_owned());
        let states: BTreeMap<(&str, &str), String> = report
            .findings
            .iter()
            .map(|f| ((f.interface.as_str(), f.class.as_deref().unwrap_or_default()), f.state.to_string()))
            .collect();
        let state =
            |place: &Place| states.get(&(place.0.as_str(), place.1.as_str())).cloned().unwrap_or_default();
        let before = std::mem::take(&mut self.before);
        self.rows.clear();
        let mut row = |place: Place, counted: Counted, waiting| {
            let rates = before.get(&place).zip(seconds).and_then(|(then, s)| counted.since(*then, s));
            self.before.insert(place.clone(), counted);
            self.rows.push(Shown { state: state(&place), place, rates, waiting });
        };
        for egress in snapshot.bridges.iter().flat_map(|bridge| &bridge.egresses) {
            let lost = egress.overrun_packets
                + egress.nobuf_packets
                + egress.unhanded_packets
                + egress.refused_packets;
            let all = Counted { bytes: egress.sent_bytes, packets: egress.sent_packets, dropped: lost };
            let waiting =
                egress.port.as_ref().map_or(0, |port| port.backlog_packets) + egress.leaving_packets;
            row(place(&egress.interface, ""), all, waiting);
            let classes = egress.port.iter().flat_map(|port| &port.classes);
            for (class, counts) in classes.filter_map(|class| Some((class, class.counts.as_ref()?))) {
                row(place(&egress.interface, &class.name), Counted::of(counts), counts.inside_packets);
            }
        }
        let edges = snapshot.bridges.iter().flat_map(|bridge| &bridge.egresses);
        for (egress, edge) in edges.filter_map(|egress| Some((egress, egress.edge.as_ref()?))) {
            for (class, asks) in edge.classes.iter().filter_map(|c| Some((c, c.allocator.as_ref()?))) {
                let curve = self.curves.entry(place(&egress.interface, &class.name)).or_default();
                let now = at.as_secs_f64();
                for (points, bps) in
                    [(&mut curve.measured, asks.estimate_bps), (&mut curve.allocated, asks.allocated_bps)]
                {
                    if points.len() == POINTS {
                        points.pop_front();
                    }
                    points.push_back((now, bps as f64));
                }
            }
        }
        self.first = self.first.min(self.rows.len().saturating_sub(1));
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let curve = self.curves.iter().nth(self.curve);
        let chart = if curve.is_some() { frame.area().height / 2 } else { 0 };
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(chart),
            Constraint::Length(1),
        ]);
        let [head, table, chart, foot] = parts.areas(frame.area());
        let word = match &self.word {
            Ok(true) => Line::styled("as configured", Style::new().fg(Color::Green)),
            Ok(false) => Line::styled("NOT AS CONFIGURED: see `weir status`", Style::new().fg(Color::Red)),
            Err(why) => Line::styled(why.clone(), Style::new().fg(Color::Red)),
        };
        frame.render_widget(word, head);
        frame.render_widget(self.table(table.height), table);
        if let Some((place, curve)) = curve {
            let points =
                [&curve.measured, &curve.allocated].map(|points| points.iter().copied().collect::<Vec<_>>());
            frame.render_widget(curves(place, [&points[0], &points[1]]), chart);
        }
        let hidden = self.rows.len().saturating_sub(usize::from(table.height.saturating_sub(1)));
        let mut keys = "q ends".to_owned();
        if hidden > 0 {
            keys += ", arrows and page keys scroll";
        }
        if self.curves.len() > 1 {
            keys += ", tab shows the next class";
        }
        frame.render_widget(Line::styled(keys, Style::new().add_modifier(Modifier::DIM)), foot);
    }

    fn table(&self, height: u16) -> Table<'_> {
        let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
        let titles = ["RATE", "PKT/S", "DROPS/S", "WAITING"].map(|title| right(title.to_owned()));
        let words = ["INTERFACE", "CLASS", "STATE"].map(Cell::from);
        let head = Row::new(words.into_iter().chain(titles)).style(Style::new().add_modifier(Modifier::BOLD));
        let row = |shown: &Shown| {
            let (interface, class) = shown.place.clone();
            let name = if class.is_empty() { interface } else { String::new() };
            let [rate, packets, drops] = match shown.rates {
                Some([bps, packets, drops]) => {
                    [show(bps, Unit::Rate), format!("{packets:.0}"), format!("{drops:.0}")]
                }
                None => Default::default(),
            };
            let bad = !matches!(shown.state.as_str(), "" | "ACTIVE" | "IDLE");
            let style = if bad { Style::new().fg(Color::Red) } else { Style::new() };
            let words = [name, class, shown.state.clone()].map(Cell::from);
            let numbers = [rate, packets, drops, shown.waiting.to_string()].map(right);
            Row::new(words.into_iter().chain(numbers)).style(style)
        };
        let rows = self.rows.iter().skip(self.first).take(usize::from(height)).map(row);
        let widths = [16, 16, 13, 13, 9, 8, 8].map(Constraint::Max);
        Table::new(rows, widths).header(head).column_spacing(1)
    }
}

/// B_m and B_d of a class over time, as figures 40 and 48 of *multiservice* have them.
fn curves<'a>(place: &'a Place, points: [&'a [(f64, f64)]; 2]) -> Chart<'a> {
    let all = || points.iter().flat_map(|points| points.iter());
    let most = all().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let (from, to) = all().fold((f64::MAX, 0.0_f64), |(from, to), (at, _)| (from.min(*at), to.max(*at)));
    let colours = [Color::Cyan, Color::Yellow];
    let line = |points, colour| {
        let style = Style::new().fg(colour);
        Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).style(style).data(points)
    };
    let sets = points.into_iter().zip(colours).map(|(points, colour)| line(points, colour)).collect();
    let [used, granted] = points.map(|points| show(points.last().map_or(0.0, |point| point.1), Unit::Rate));
    let title = Line::from_iter([
        Span::raw(format!("{} {}: ", place.0, place.1)),
        Span::styled(format!("used {used}"), Style::new().fg(colours[0])),
        Span::raw(", "),
        Span::styled(format!("granted {granted}"), Style::new().fg(colours[1])),
    ]);
    let rates = ["0".to_owned(), show(most / 2.0, Unit::Rate), show(most, Unit::Rate)];
    let times = [format!("{:.0} s ago", to - from), "now".to_owned()];
    Chart::new(sets)
        .block(Block::new().title(title))
        .legend_position(None)
        .x_axis(Axis::default().bounds([from, to.max(from + 1.0)]).labels(times))
        .y_axis(Axis::default().bounds([0.0, most]).labels(rates))
}

#[cfg(test)]
mod tests {
    use super::{Report, Snapshot, Top};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    /// What is seen when `sent` packets of 1,250 bytes have left, and `used` bit/s are used of 512 kbit/s.
    fn seen(sent: u64, used: u64) -> (Snapshot, Report) {
        let counts = |sent: u64| {
            serde_json::json!({
                "offered_packets": sent, "offered_bytes": 0, "sent_packets": sent, "sent_bytes": sent * 1_250,
                "inside_packets": 7, "dropped_bytes": 0, "dropped_packets": {"tail": sent / 100}
            })
        };
        let mut rt = counts(sent);
        rt["name"] = "rt".into();
        let mut egress = serde_json::to_value(weir_engine::state::Egress::default()).unwrap();
        let mut port = serde_json::to_value(weir_engine::state::PortState::default()).unwrap();
        let mut class = serde_json::to_value(weir_engine::edge_state::EdgeClassState::default()).unwrap();
        let asks = weir_engine::edge_state::AllocatorState {
            estimate_bps: used,
            allocated_bps: 512_000,
            ..Default::default()
        };
        port["classes"] = [rt].into_iter().collect();
        (class["name"], class["allocator"]) = ("rt".into(), serde_json::to_value(asks).unwrap());
        (egress["interface"], egress["port"]) = ("eth1".into(), port);
        egress["edge"] = serde_json::json!({"classes": [class], "dropped_packets": 0, "unshaped": 0});
        let bridge = weir_engine::state::BridgeState {
            egresses: vec![serde_json::from_value(egress).unwrap()],
            ..Default::default()
        };
        let report = serde_json::json!({"as_configured": true, "findings": [
            {"interface": "eth1", "class": "rt", "state": "active", "for_ns": 0}
        ]});
        (Snapshot { bridges: vec![bridge], brokers: vec![] }, serde_json::from_value(report).unwrap())
    }

    fn screen(top: &Top) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| top.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        cells
            .chunks(80)
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect()
    }

    #[test]
    fn rates_are_what_was_counted_between_two_looks() {
        let mut top = Top::default();
        top.take(Duration::ZERO, Ok(seen(1_000, 100_000)));
        let first = screen(&top);
        assert!(
            first.contains("as configured") && first.contains("ACTIVE") && !first.contains("Mbit/s"),
            "{first}"
        );
        top.take(Duration::from_secs(2), Ok(seen(3_000, 400_000)));
        let second = screen(&top);
        // 2,000 packets of 10,000 bits in 2 s, 20 of them dropped beside.
        let row = second.lines().find(|line| line.contains("ACTIVE")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["rt", "ACTIVE", "10", "Mbit/s", "1000", "10", "7"], "{second}");
        for word in
            ["eth1 rt: used 400 kbit/s, granted 512 kbit/s", "563.2 kbit/s", "2 s ago", "now", "q ends"]
        {
            assert!(second.contains(word), "no {word} in {second}");
        }
        // Nobody answers, then one who began anew does: no rate is made up.
        top.take(Duration::from_secs(3), Err("gone".to_owned()));
        assert!(screen(&top).starts_with("gone"));
        top.take(Duration::from_secs(4), Ok(seen(4_000, 0)));
        assert!(!screen(&top).contains("Mbit/s"));
        top.take(Duration::from_secs(5), Ok(seen(10, 0)));
        assert!(!screen(&top).contains("Mbit/s"));
        top.take(Duration::from_secs(6), Ok(seen(10, 0)));
        assert!(screen(&top).contains("0 bit/s"));
    }

    #[test]
    fn a_small_screen_and_no_classes_are_drawn() {
        let mut top = Top::default();
        top.take(Duration::ZERO, Ok((Snapshot::default(), seen(0, 0).1)));
        top.next_curve();
        top.scroll(5);
        top.scroll(-9);
        for (width, height) in [(0, 0), (40, 0), (1, 1), (5, 3), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| top.draw(frame)).unwrap();
            top.take(Duration::from_secs(1), Ok(seen(5, 5)));
        }
    }
}
