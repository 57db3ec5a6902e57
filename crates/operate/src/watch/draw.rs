//! The screen: where everything is, and its colours.
//! Owns: the panes and how much room each has. Not here: the lines in them (`lines`).
//! Invariant: it fits any size; what is chosen is always on the screen.

use super::lines;
use super::mode::Mode;
use super::model::View;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use uraid_control::dates;

const KEYS: &str = "q quit  Up/Down array  Tab member  f fail  a add  c check  p pause";

/// A part of the screen: a line of its title, and lines of which one may be chosen.
struct Pane {
    title: String,
    lines: Vec<String>,
    /// The first ones stay when the others are scrolled.
    heads: usize,
    chosen: Option<usize>,
}

impl Pane {
    /// With its title.
    fn height(&self) -> usize {
        self.lines.len() + 1
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        if area.height == 0 || self.title.is_empty() {
            return;
        }
        let room = usize::from(area.height) - 1;
        let (heads, rest) = self.lines.split_at(self.heads.min(self.lines.len()));
        let room_of_rest = room.saturating_sub(heads.len());
        // The chosen one is the last that is seen, if it is further down.
        let from = self.chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(room_of_rest));
        let width = usize::from(area.width);
        let rule = "\u{2500}".repeat(width.saturating_sub(self.title.chars().count() + 4));
        let title = Line::styled(format!("\u{2500} {} {rule}", self.title), Style::new().fg(Color::Cyan));
        let head = Style::new().add_modifier(Modifier::DIM);
        let mut shown = vec![title];
        shown.extend(heads.iter().map(|line| Line::styled(format!("  {line}"), head)));
        for (at, line) in rest.iter().enumerate().skip(from).take(room_of_rest) {
            let is_chosen = self.chosen == Some(at);
            let mark = if is_chosen { "> " } else { "  " };
            let style = if is_chosen { style_of(line).add_modifier(Modifier::BOLD) } else { style_of(line) };
            shown.push(Line::from(Span::styled(format!("{mark}{line}"), style)));
        }
        frame.render_widget(Paragraph::new(shown), area);
    }
}

/// By the words of a line: what is wrong is red, what moves is yellow.
fn style_of(line: &str) -> Style {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    match () {
        () if has(&["degraded", "FAILED", "frozen", "faulty", "removed", "no answer"]) => Style::new().fg(Color::Red),
        () if has(&["recover", "resync", "check", "repair", "rebuilding", "replacement"]) => {
            Style::new().fg(Color::Yellow)
        }
        () => Style::new(),
    }
}

/// Draws all of it.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let [head, foot] = [0, area.height.saturating_sub(1)].map(|y| Rect { y, height: 1.min(area.height), ..area });
    frame.render_widget(Paragraph::new(Line::styled(title(view), Style::new().add_modifier(Modifier::BOLD))), head);
    let panes = panes(view, width.saturating_sub(2));
    let heights = heights(&panes.each_ref().map(Pane::height), height.saturating_sub(2));
    let mut y = 1;
    for (pane, own) in panes.iter().zip(heights) {
        let own = u16::try_from(own).unwrap_or(u16::MAX);
        pane.draw(frame, Rect { y, height: own, ..area });
        y += own;
    }
    let (text, style) = last_line(view);
    frame.render_widget(Paragraph::new(Line::styled(text, style)), foot);
}

fn title(view: &View) -> String {
    if view.now == 0 {
        return "uraid  asking the arrays ...".to_owned();
    }
    let (running, silent) = (view.arrays.len(), view.silent.len());
    let silent = if silent == 0 { String::new() } else { format!(", {silent} without an answer") };
    let arrays = uraid_block::sizes::counted(running as u64, "array runs", "arrays run");
    format!("uraid  {arrays}{silent}  {}", dates::stamp(view.now))
}

/// Said of no array only after it was asked.
fn nothing(view: &View) -> Vec<String> {
    if view.now == 0 { Vec::new() } else { vec!["no array runs".to_owned()] }
}

/// From the top down: the arrays, what is known of the chosen one, its members, its history.
fn panes(view: &View, width: usize) -> [Pane; 4] {
    let pane = |title: String, lines: Vec<String>, heads, chosen| Pane { title, lines, heads, chosen };
    let arrays = match view.arrays.is_empty() && view.silent.is_empty() {
        true => pane("Arrays".to_owned(), nothing(view), 0, None),
        false => {
            pane("Arrays".to_owned(), lines::arrays(view), 1, Some(view.array).filter(|_| !view.arrays.is_empty()))
        }
    };
    let Some(shown) = view.chosen() else {
        let none = || pane(String::new(), Vec::new(), 0, None);
        return [arrays, none(), none(), none()];
    };
    let name = uraid_control::names::printable(&shown.report.name);
    let newest: Vec<String> = shown.events.iter().rev().map(|line| uraid_control::names::printable(line)).collect();
    [
        arrays,
        pane(name, lines::facts(shown, width), 0, None),
        pane("Members".to_owned(), lines::members(shown, width), 1, Some(view.member)),
        pane("Events, the newest first".to_owned(), newest, 0, None),
    ]
}

/// The room of each pane. If it is short, the events give first, then the members, then the arrays; none below its title,
/// its heads and one line, while there is room for that.
fn heights(wanted: &[usize; 4], room: usize) -> [usize; 4] {
    let least = [3, 0, 3, 0];
    let mut given = *wanted;
    given[3] = given[3].max(2).min(room);
    for at in [3, 2, 0, 1] {
        let over = given.iter().sum::<usize>().saturating_sub(room);
        given[at] -= over.min(given[at].saturating_sub(least[at]));
    }
    // A terminal of a few lines: the upper panes have them.
    let mut left = room;
    for own in &mut given {
        *own = (*own).min(left);
        left -= *own;
    }
    // What is left over is for the events.
    given[3] += left;
    given.map(|own| if own == 1 { 0 } else { own })
}

fn last_line(view: &View) -> (String, Style) {
    let ask = Style::new().fg(Color::Black).bg(Color::Yellow);
    match &view.mode {
        Mode::Watching if view.message.is_empty() => (KEYS.to_owned(), Style::new().add_modifier(Modifier::DIM)),
        Mode::Watching => (uraid_control::names::printable(&view.message), Style::new().fg(Color::Yellow)),
        Mode::Typing(path) => (format!("Device to add: {path}_   (Enter, or Esc)"), ask),
        Mode::Asking(action) => (format!("{}   y/n", uraid_control::names::printable(&action.question)), ask),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::model::Sample;
    use super::*;
    use crate::sample_reports;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;
    use uraid_control::report::Report;

    const NOW: u64 = 1_700_000_200;

    /// Two samples, a second apart, of this array: it has read 1 MiB of each member meanwhile.
    fn view(report: &Report) -> View {
        let event = |text: &str| format!("2023-11-14T22:15:00Z {text}");
        let events = BTreeMap::from([(report.uuid.clone(), vec![event("started"), event("command: check")])]);
        let sample = |seconds, report| Sample {
            at: Duration::from_secs(seconds),
            now: NOW,
            reports: vec![report],
            silent: vec![("away".to_owned(), "it did not answer in time".to_owned())],
            events: events.clone(),
        };
        let mut later = report.clone();
        for io in later.members.iter_mut().filter_map(|member| member.io.as_mut()) {
            io.reads.bytes += 1 << 20;
            io.reads.count += 256;
        }
        if let Some(counts) = &mut later.counts {
            counts.rows_modified += 40;
        }
        let mut view = View::default();
        view.update(sample(0, report.clone()));
        view.update(sample(1, later));
        view
    }

    fn screen(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
        terminal.draw(|frame| draw(view, frame)).expect("memory");
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(|y| line(y) + "\n").collect()
    }

    /// Compares with a file; URAID_SNAPSHOTS=write writes it.
    fn check(name: &str, found: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/watch/snapshots").join(format!("{name}.txt"));
        if std::env::var_os("URAID_SNAPSHOTS").is_some_and(|word| word == "write") {
            fs::write(&path, found).expect("the source is writable");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "{name}, found:\n{found}\nexpected:\n{expected}");
    }

    #[test]
    fn every_state_at_80_by_24() {
        for (state, report) in sample_reports::reports() {
            check(&format!("{}-80x24", state.replace(' ', "-")), &screen(&view(&report), 80, 24));
        }
    }

    #[test]
    fn every_state_at_200_by_60() {
        for (state, report) in sample_reports::reports() {
            check(&format!("{}-200x60", state.replace(' ', "-")), &screen(&view(&report), 200, 60));
        }
    }

    #[test]
    fn a_question_and_a_path_are_in_the_last_line() {
        let (_, report) = sample_reports::reports().remove(1);
        let mut view = view(&report);
        view.key(Key::Letter('f'));
        check("asking-80x24", &screen(&view, 80, 24));
        view.key(Key::Letter('n'));
        view.key(Key::Letter('a'));
        view.key(Key::Letter('/'));
        assert!(screen(&view, 80, 24).ends_with("Device to add: /_   (Enter, or Esc)\n"));
        let mut nothing = View::default();
        assert!(screen(&nothing, 80, 24).starts_with("uraid  asking the arrays ..."));
        nothing.update(Sample { now: NOW, ..Sample::default() });
        assert!(screen(&nothing, 80, 24).contains("no array runs"));
    }

    #[test]
    fn it_fits_any_size_and_shows_what_is_chosen() {
        let (_, mut report) = sample_reports::reports().remove(2);
        let member = report.members[0].clone();
        report.members.extend((10..60).map(|number| uraid_control::report::Member {
            number: Some(number),
            path: Some(format!("/dev/disk{number}")),
            ..member.clone()
        }));
        let mut view = view(&report);
        view.member = 40;
        let path = view.chosen_member().and_then(|member| member.path.clone()).expect("it is there");
        let shown = screen(&view, 80, 24);
        assert!(shown.lines().any(|line| line.starts_with("> ") && line.ends_with(&path)), "{shown}");
        for (width, height) in [(0, 0), (1, 1), (10, 2), (20, 3), (40, 7), (80, 10), (300, 100)] {
            let lines = screen(&view, width, height).lines().count();
            assert_eq!(lines, usize::from(height));
        }
    }
}
