//! Figures as a picture: `--plot FILE.svg`.
//! Owns: the SVG: ratios with their intervals, latencies, whatever else was measured. Not here: figures (`table`).
//! Invariant: every row is shown with its work and its number. The text is well-formed XML for any member names, and
//! refers to nothing outside of itself.
//! No crate for SVG: the file writes four shapes, and most of its code decides where they go. `svg` would save the code
//! of the shapes but not of the escaping (characters that XML forbids); `plotters` needs 50 crates and has no such
//! chart.
//!
//! ```text
//!   raid6-read
//!   randread 4K, ...        replay  |────●──|        0.95 (0.93..0.97)
//!   raid6, 8 members, ...   ideal     |──●────|      0.94 (0.93..1.00)
//! ```

use crate::report::table::{self, Latency, Row};
use std::fmt::Write;

/// The first bytes of every picture.
pub const BEGIN: &str = "<svg xmlns=";
const WIDTH: f64 = 1180.0;
const MARGIN: f64 = 24.0;
/// Where the charts are, from left to right.
const CHART: [f64; 2] = [500.0, 930.0];
const LINE: f64 = 19.0;
const LABEL_LINE: f64 = 15.0;
/// The gap between two works.
const GAP: f64 = 9.0;
/// The most characters of a label in one line; longer labels are broken into lines.
const LABEL_CHARS: usize = 72;

/// Shapes and colours for a light background. Some renderers do not support CSS variables.
const STYLE: &str = "\
text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#1f2328}.ground{fill:#ffffff}\
.head{font-size:18px;font-weight:600}.group{font-size:14px;font-weight:600}.dim{font-size:11px;fill:#656d76}\
.grid{stroke:#dfe3e8}.one{stroke:#8c959f;stroke-dasharray:4 3}.whisker{stroke-width:2}\
.replay{stroke:#0969da;fill:#0969da}.ideal{stroke:#bc4c00;fill:#bc4c00}\
.other{stroke:#8250df;fill:#8250df}.array{stroke:#1a7f37;fill:#1a7f37}\
.tick{text-anchor:middle}.hollow{fill:#ffffff;stroke-width:1.5}.label{stroke:none;font-size:11px}";

/// The same for a dark background, if the reader's screen is dark.
const DARK: &str = "\
text{fill:#e6edf3}.ground{fill:#0d1117}.dim{fill:#8d96a0}.grid{stroke:#262c34}.one{stroke:#6e7681}\
.replay{stroke:#58a6ff;fill:#58a6ff}.ideal{stroke:#f0883e;fill:#f0883e}\
.other{stroke:#bc8cff;fill:#bc8cff}.array{stroke:#3fb950;fill:#3fb950}.hollow{fill:#0d1117}.label{stroke:none}";

/// A logarithmic scale.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// A scale that covers `values` and the two given bounds.
    fn of(values: impl Iterator<Item = f64>, [low, high]: [f64; 2]) -> Scale {
        let ends = values
            .filter(|value| *value > 0.0 && value.is_finite())
            .fold((low, high), |(low, high), value| (value.min(low), value.max(high)));
        Scale { low: ends.0 / 1.05, high: ends.1 * 1.05 }
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        CHART[0] + share * (CHART[1] - CHART[0])
    }

    /// Powers of ten, times 1, 2 and 5; more values in between if the scale is short.
    fn ticks(&self) -> Vec<f64> {
        let is_short = self.high / self.low < 20.0;
        let of_ten: &[f64] = match is_short {
            true => &[1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            false if self.high / self.low < 5e3 => &[1.0, 2.0, 5.0],
            false => &[1.0],
        };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = (first..=last).flat_map(|power| of_ten.iter().map(move |part| part * 10f64.powi(power)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

/// The picture, as far as it is drawn.
struct Canvas {
    body: String,
    y: f64,
}

impl Canvas {
    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("a string takes all");
    }

    fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = escaped(text);
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>"));
    }

    fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], class: &str) {
        self.put(format_args!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"));
    }

    fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str) {
        self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"/>"));
    }

    fn heading(&mut self, text: &str, about: &str) {
        self.y += 2.0 * LINE;
        self.text((MARGIN, self.y), "head", text);
        self.y += LINE;
        self.text((MARGIN, self.y), "dim", about);
    }

    /// A scenario's name, beside the numbers of its scale.
    fn group(&mut self, scenario: &str, scale: Option<&Scale>, name: fn(f64) -> String) {
        self.y += GAP + LINE;
        self.text((MARGIN, self.y), "group", scenario);
        for tick in scale.map_or(Vec::new(), Scale::ticks) {
            let x = scale.map_or(0.0, |scale| scale.x(tick));
            self.text((x, self.y), "dim tick", &name(tick));
        }
        self.y += GAP;
    }

    /// Draws the label in as many lines as needed; returns how far down they reach.
    fn label(&mut self, work: &str) -> f64 {
        for (n, line) in lines(work).iter().enumerate() {
            let class = if n == 0 { "work" } else { "dim" };
            self.text((MARGIN, self.y + LABEL_LINE * (n as f64 + 1.0) - 1.0), class, line);
        }
        self.y + label_height(work)
    }

    /// The grid behind the rows between two heights. It is drawn first.
    fn grid(&mut self, scale: &Scale, down_to: f64) {
        let from = self.y;
        for tick in scale.ticks() {
            let class = if (tick - 1.0).abs() < 1e-9 { "one" } else { "grid" };
            self.line([scale.x(tick), from, scale.x(tick), down_to], class);
        }
    }
}

/// The figures as an SVG.
pub fn svg(rows: &[Row]) -> String {
    let mut canvas = Canvas { body: String::new(), y: MARGIN };
    canvas.text((MARGIN, MARGIN + 8.0), "head", "uraid bench");
    ratios(&mut canvas, rows);
    latencies(&mut canvas, rows);
    others(&mut canvas, rows);
    let height = canvas.y + MARGIN;
    format!(
        "{BEGIN}\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"uraid bench\">\n<style>{STYLE}@media(prefers-color-scheme:dark){{{DARK}}}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{}</svg>\n",
        canvas.body
    )
}

fn label_height(work: &str) -> f64 {
    LABEL_LINE * lines(work).len() as f64
}

/// Rows that belong together, one after the other.
fn groups<'r>(rows: &[&'r Row], are_one: fn(&Row, &Row) -> bool) -> Vec<Vec<&'r Row>> {
    rows.chunk_by(|one, next| are_one(one, next)).map(<[&Row]>::to_vec).collect()
}

fn by_scenario<'r>(rows: &[&'r Row]) -> Vec<Vec<&'r Row>> {
    groups(rows, |one, next| one.scenario == next.scenario)
}

fn by_work<'r>(rows: &[&'r Row]) -> Vec<Vec<&'r Row>> {
    groups(rows, |one, next| one.work == next.work)
}

fn ratios(canvas: &mut Canvas, rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    if rows.is_empty() {
        return;
    }
    canvas.heading(
        "Ratios",
        "array / raw, the median of all rounds and its interval; hollow: by CPU; of a time less is better",
    );
    for group in by_scenario(&rows) {
        let ends = group.iter().flat_map(|row| [row.ratio_low, row.ratio_high, row.ratio, row.cpu_ratio]).flatten();
        let scale = Scale::of(ends, [0.8, 1.1]);
        canvas.group(&group[0].scenario, Some(&scale), |tick| ((tick * 1000.0).round() / 1000.0).to_string());
        for work in by_work(&group) {
            let bottom = canvas.y + label_height(&work[0].work).max(work.len() as f64 * LINE);
            canvas.grid(&scale, bottom + GAP);
            canvas.label(&work[0].work);
            for (n, row) in work.iter().enumerate() {
                let y = canvas.y + (n as f64 + 0.5) * LINE;
                ratio(canvas, &scale, row, y);
            }
            canvas.y = bottom + GAP;
        }
    }
}

fn ratio(canvas: &mut Canvas, scale: &Scale, row: &Row, y: f64) {
    let class = class(row.against);
    let (Some(ratio), Some(low), Some(high)) = (row.ratio, row.ratio_low, row.ratio_high) else { return };
    let (from, to) = (scale.x(low), scale.x(high));
    canvas.line([from, y, to, y], &format!("{class} whisker"));
    for end in [from, to] {
        canvas.line([end, y - 4.0, end, y + 4.0], &format!("{class} whisker"));
    }
    if let Some(cpu) = row.cpu_ratio {
        canvas.dot((scale.x(cpu), y), 3.5, &format!("{class} hollow"));
    }
    canvas.dot((scale.x(ratio), y), 4.5, class);
    let text = format!("{ratio:.3} ({low:.3}..{high:.3}) of {}", row.against);
    canvas.text((CHART[1] + 14.0, y + 4.0), &format!("{class} label"), &text);
}

fn latencies(canvas: &mut Canvas, rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.latency_ns.is_some()).collect();
    if rows.is_empty() {
        return;
    }
    canvas.heading("Latencies", "of the array: p50, p99, p99.9, max; the first is filled");
    for group in by_scenario(&rows) {
        let scale = Scale::of(group.iter().filter_map(|row| row.latency_ns).flat_map(places), [1e4, 1e5]);
        canvas.group(&group[0].scenario, Some(&scale), table::nanos);
        for work in by_work(&group) {
            let bottom = canvas.y + label_height(&work[0].work);
            canvas.grid(&scale, bottom + GAP);
            canvas.label(&work[0].work);
            let y = canvas.y + 0.5 * LINE;
            work[0].latency_ns.into_iter().for_each(|latency| percentiles(canvas, &scale, latency, y));
            canvas.y = bottom + GAP;
        }
    }
}

fn places(latency: Latency) -> [f64; 4] {
    [latency.p50, latency.p99, latency.p99_9, latency.max].map(|nanos| nanos.max(1) as f64)
}

fn percentiles(canvas: &mut Canvas, scale: &Scale, latency: Latency, y: f64) {
    let [first, rest @ ..] = places(latency).map(|nanos| scale.x(nanos));
    canvas.line([first, y, rest[2], y], "array");
    for x in rest {
        canvas.dot((x, y), 3.5, "array hollow");
    }
    canvas.dot((first, y), 4.5, "array");
    let [p50, _, p99_9, _] = places(latency).map(table::nanos);
    canvas.text((CHART[1] + 14.0, y + 4.0), "array label", &format!("p50 {p50}, p99.9 {p99_9}"));
}

/// Rows with neither a ratio nor latencies: only the number.
fn others(canvas: &mut Canvas, rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.ratio.is_none() && row.latency_ns.is_none()).collect();
    if rows.is_empty() {
        return;
    }
    canvas.heading("Other figures", "what was measured beside nothing");
    for group in by_scenario(&rows) {
        canvas.group(&group[0].scenario, None, table::nanos);
        for row in group {
            let is_time = row.unit == "ns";
            let number = if is_time { table::nanos(row.array) } else { format!("{:.0} {}", row.array, row.unit) };
            canvas.text((CHART[0], canvas.y + LABEL_LINE - 1.0), "number", &number);
            canvas.y = canvas.label(&row.work) + GAP;
        }
    }
}

fn class(against: &str) -> &'static str {
    match against {
        "replay" => "replay",
        "ideal" => "ideal",
        _ => "other",
    }
}

/// A label in lines that fit: what was done, then on what.
fn lines(work: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for part in work.split("; ") {
        let mut line = String::new();
        for word in part.split(' ') {
            if !line.is_empty() && line.chars().count() + word.chars().count() >= LABEL_CHARS {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

/// The text escaped for XML: an operator may have given members any names.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts between tags, if `xml` is well-formed as far as it goes: no comments, no declarations.
    fn texts(xml: &str) -> Result<Vec<String>, String> {
        let (mut open, mut texts, mut rest) = (Vec::<&str>::new(), Vec::new(), xml);
        while let Some(at) = rest.find('<') {
            texts.push(unescaped(&rest[..at])?);
            let (tag, behind) = rest[at + 1..].split_once('>').ok_or("a tag has no end")?;
            rest = behind;
            if let Some(name) = tag.strip_prefix('/') {
                let opened = open.pop().ok_or(format!("nothing is open for </{name}>"))?;
                assert_eq!(opened, name);
            } else {
                let is_empty = tag.ends_with('/');
                let (name, attributes) = tag.trim_end_matches('/').split_once(' ').unwrap_or((tag, ""));
                check_attributes(attributes)?;
                open.extend((!is_empty).then_some(name));
            }
        }
        if !open.is_empty() || !rest.trim().is_empty() {
            return Err(format!("{open:?} open, {rest:?} left"));
        }
        Ok(texts)
    }

    fn check_attributes(mut text: &str) -> Result<(), String> {
        let mut names = std::collections::BTreeSet::new();
        while !text.is_empty() {
            let (name, behind) = text.split_once("=\"").ok_or(format!("no value in {text:?}"))?;
            let (value, behind) = behind.split_once('"').ok_or(format!("no end in {behind:?}"))?;
            if !names.insert(name) || name.contains(' ') || value.contains('<') {
                return Err(format!("{name}={value}"));
            }
            unescaped(value)?;
            text = behind.strip_prefix(' ').unwrap_or(behind);
        }
        Ok(())
    }

    fn unescaped(text: &str) -> Result<String, String> {
        let plain = text.replace("&lt;", "<").replace("&gt;", ">");
        if plain.replace("&amp;", "").contains('&')
            || text.contains(|letter: char| letter.is_control() && letter != '\n')
        {
            return Err(format!("{text:?} is no text"));
        }
        Ok(plain.replace("&amp;", "&"))
    }

    fn some_rows() -> Vec<Row> {
        let latency = Latency { p50: 900, p99: 5_000, p99_9: 40_000, max: 9_000_000 };
        let ratio = |median, low, high| crate::figures::Interval { median, low, high, confidence: 0.96 };
        let bare = |work: &str| Row::bare("raid6-read", work, 1234.0, "IOPS");
        let paired = |work: &str, against| Row {
            against,
            cpu_ratio: Some(0.97),
            latency_ns: Some(latency),
            ..bare(work).with_ratio(Some(ratio(0.95, 0.01, 40.0)))
        };
        vec![
            paired("randread 4K; raid6, <m&m> \"x\" \u{1}\u{ffff}", "replay"),
            paired("randread 4K; raid6, <m&m> \"x\" \u{1}\u{ffff}", "ideal"),
            Row { latency_ns: Some(latency), ..bare("read 64K; one server") },
            bare(
                "time to drain; of a work with so long a name that it takes more than one line of the picture to tell it",
            ),
        ]
    }

    #[test]
    fn the_picture_is_well_formed_and_has_every_row() {
        let rows = some_rows();
        let texts = texts(&svg(&rows)).expect("well-formed");
        let all = texts.join(" ");
        for row in &rows {
            for line in lines(&row.work) {
                let line = line.replace(['\u{1}', '\u{ffff}'], "\u{fffd}");
                assert!(texts.contains(&line), "{line} is not in {all}");
            }
        }
        for text in ["0.950 (0.010..40.000) of replay", "of ideal", "p50 900 ns, p99.9 40.0 us", "1234 IOPS"] {
            assert!(all.contains(text), "{text} is not in {all}");
        }
    }

    #[test]
    fn the_judge_of_these_tests_finds_what_is_not_well_formed() {
        for wrong in ["<a>", "<a></b>", "<a", "<a>&</a>", "<a b></a>", "<a b=\"1\" b=\"2\"/>", "<a/>b", "<a>\u{1}</a>"]
        {
            assert!(std::panic::catch_unwind(|| texts(wrong)).map_or(true, |found| found.is_err()), "{wrong}");
        }
        assert_eq!(texts("<a b=\"1\">x<c/>&amp;</a>").map(|texts| texts.concat()), Ok("x&".to_owned()));
    }

    #[test]
    fn everything_lies_in_the_picture_and_in_order() {
        let scale = Scale::of([0.5, 2.0].into_iter(), [1.0, 1.0]);
        let places = [0.5, 1.0, 2.0].map(|value| scale.x(value));
        assert!(places.is_sorted() && CHART[0] <= places[0] && places[2] <= CHART[1]);
        assert!((places[1] - f64::midpoint(places[0], places[2])).abs() < 1e-6, "steps are factors");
        assert!(scale.ticks().contains(&1.0) && scale.ticks().len() > 3);
        let wide = Scale::of([100.0, 1e9].into_iter(), [1e5, 1e5]);
        assert_eq!(wide.ticks().len(), 8);
    }
}
