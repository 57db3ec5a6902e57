//! Figures as a table and as JSON.
//! Owns: [`Row`], the table, the JSON. Not here: how they were measured (`measure`).
//! Invariant: both show the same figures. A ratio is computed within a round, its interval over all rounds.

use crate::figures::{Interval, median};
use crate::measure::drive::Side;
use crate::measure::{Counted, Outcome, Sample};
use crate::work::Work;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write;

/// The latencies of a work, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Latency {
    /// The median.
    pub(crate) p50: u64,
    /// The 99th percentile.
    pub(crate) p99: u64,
    /// The 99.9th percentile.
    pub(crate) p99_9: u64,
    /// The maximum.
    pub(crate) max: u64,
}

impl Latency {
    /// `None` if nothing was recorded.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Latency> {
        let at = |quantile| histogram.value_at_quantile(quantile);
        let max = histogram.max();
        (!histogram.is_empty()).then(|| Latency { p50: at(0.5), p99: at(0.99), p99_9: at(0.999), max })
    }
}

/// One stream's requests to one member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct StreamTrace {
    /// Which stream.
    pub stream: usize,
    /// Which member.
    pub member: usize,
    /// Requests to the member.
    pub ios: u64,
    /// Bytes of them all.
    pub bytes: u64,
    /// How many requests begin before the end of the request before them.
    pub descending: u64,
}

impl StreamTrace {
    pub(crate) fn mean(self) -> u64 {
        self.bytes.checked_div(self.ios).unwrap_or(0)
    }
}

/// A figure of the array and the raw figure that it is compared with: one object of the JSON.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Which scenario, or `own` for a work of the command line.
    pub(crate) scenario: String,
    /// The work, and the array.
    pub(crate) work: String,
    /// The array's figure: the median of the rounds.
    pub(crate) array: f64,
    /// The raw figure: the median of the rounds. `None` if there is nothing to compare with.
    pub(crate) raw: Option<f64>,
    /// The source of the raw figure: `replay`, `ideal`, or a word of the scenario.
    pub(crate) against: &'static str,
    /// The unit of `array` and `raw`.
    pub(crate) unit: &'static str,
    /// The median of the rounds' ratios.
    pub(crate) ratio: Option<f64>,
    /// Its interval's lower end.
    pub(crate) ratio_low: Option<f64>,
    /// Its interval's upper end.
    pub(crate) ratio_high: Option<f64>,
    /// The median of the rounds' ratios of requests per second of processor time. `ratio` would have this value if only
    /// the shards' own work took time and no other process used the processors.
    pub(crate) cpu_ratio: Option<f64>,
    /// Its interval's lower end.
    pub(crate) cpu_ratio_low: Option<f64>,
    /// Its interval's upper end.
    pub(crate) cpu_ratio_high: Option<f64>,
    /// The confidence of the intervals, 0 to 1.
    pub(crate) confidence: Option<f64>,
    /// The array's time on a processor for a request: the median of the rounds.
    pub(crate) cpu_ns_per_io: Option<f64>,
    /// The raw time on a processor for a request.
    pub(crate) raw_cpu_ns_per_io: Option<f64>,
    /// How much more a request costs than raw: the median of the rounds' differences.
    pub(crate) cpu_ns_more: Option<f64>,
    /// Bytes of a request.
    pub(crate) block_bytes: Option<u64>,
    /// The array's latencies.
    pub(crate) latency_ns: Option<Latency>,
    /// Requests of the array that were counted here.
    pub(crate) requests: Option<u64>,
    /// What the engine has counted meanwhile.
    pub(crate) counted: Option<Counted>,
    /// For drains: how many requests were in flight at the beginning, the median.
    pub(crate) in_flight: Option<f64>,
    /// The member I/Os of the array's streams.
    pub(crate) member_ios: Option<Vec<StreamTrace>>,
    /// For kernels: whether arrays use this one.
    pub(crate) is_chosen: Option<bool>,
}

impl Row {
    /// A figure without a raw figure.
    pub fn bare(scenario: &str, work: &str, array: f64, unit: &'static str) -> Row {
        Row {
            scenario: scenario.to_owned(),
            work: work.to_owned(),
            array,
            raw: None,
            against: "nothing",
            unit,
            ratio: None,
            ratio_low: None,
            ratio_high: None,
            cpu_ratio: None,
            cpu_ratio_low: None,
            cpu_ratio_high: None,
            confidence: None,
            cpu_ns_per_io: None,
            raw_cpu_ns_per_io: None,
            cpu_ns_more: None,
            block_bytes: None,
            latency_ns: None,
            requests: None,
            counted: None,
            in_flight: None,
            member_ios: None,
            is_chosen: None,
        }
    }

    /// The same beside another figure of the same unit, which is that of `against`.
    pub fn and(self, raw: f64, against: &'static str) -> Row {
        Row { raw: Some(raw), against, ..self }
    }

    /// `819 writes of 1280 KiB: 33.3 %, 33.3 as the file lies`: the figure without the array.
    pub fn line(&self) -> String {
        let what = self.work.split(';').next().unwrap_or_default();
        let digits = usize::from(self.unit != "requests");
        let raw = self.raw.map_or_else(String::new, |raw| format!(", {raw:.digits$} {}", self.against));
        format!("{what}: {:.digits$} {}{raw}", self.array, self.unit)
    }

    /// The same with a ratio.
    pub(crate) fn with_ratio(self, ratio: Option<Interval>) -> Row {
        Row {
            ratio: ratio.map(|ratio| ratio.median),
            ratio_low: ratio.map(|ratio| ratio.low),
            ratio_high: ratio.map(|ratio| ratio.high),
            confidence: ratio.map(|ratio| ratio.confidence),
            ..self
        }
    }

    /// The same with a ratio by time on processors.
    pub(crate) fn with_cpu_ratio(self, ratio: Option<Interval>) -> Row {
        Row {
            cpu_ratio: ratio.map(|ratio| ratio.median),
            cpu_ratio_low: ratio.map(|ratio| ratio.low),
            cpu_ratio_high: ratio.map(|ratio| ratio.high),
            ..self
        }
    }

    /// The array of a case compared with a raw side. The raw side is of the same case, or of one measured in turn with
    /// it.
    pub(crate) fn beside(
        scenario: &str,
        work: &Work,
        on: &str,
        outcome: &Outcome,
        raw: (&Outcome, Side),
        against: &'static str,
    ) -> Row {
        type Figure = fn(&Sample) -> f64;
        let of_array = |what: Figure| outcome.each(Side::Array, what);
        let of_raw = |what: Figure| raw.0.each(raw.1, what);
        let pair = |what: Figure, both: fn(f64, f64) -> f64| {
            of_array(what).into_iter().zip(of_raw(what)).map(|(a, b)| both(a, b)).collect::<Vec<f64>>()
        };
        let ratio = Interval::of(&pair(|sample| sample.rate, |array, raw| array / raw));
        let cpu = Interval::of(&pair(|sample| sample.cpu_ns, |array, raw| raw / array));
        let array = Side::Array as usize;
        let rate = median(&of_array(|sample| sample.rate));
        Row {
            raw: Some(median(&of_raw(|sample| sample.rate))),
            against,
            cpu_ns_per_io: Some(median(&of_array(|sample| sample.cpu_ns))),
            raw_cpu_ns_per_io: Some(median(&of_raw(|sample| sample.cpu_ns))),
            cpu_ns_more: Some(median(&pair(|sample| sample.cpu_ns, |array, raw| array - raw))),
            block_bytes: Some(work.block.bytes()),
            latency_ns: Latency::of(&outcome.latencies[array]),
            requests: Some(outcome.rounds.iter().map(|sides| sides[array].requests).sum()),
            counted: Some(outcome.counted),
            ..Row::bare(scenario, &format!("{}; {on}", work.describe()), rate, "IOPS")
        }
        .with_ratio(Some(ratio))
        .with_cpu_ratio(Some(cpu))
    }

    /// The array of a case beside both raw sides.
    pub(crate) fn of_case(scenario: &str, work: &Work, on: &str, outcome: &Outcome) -> Vec<Row> {
        [Side::Replay, Side::Ideal]
            .map(|raw| Row::beside(scenario, work, on, outcome, (outcome, raw), raw.name()))
            .to_vec()
    }
}

/// The table of one case.
pub(crate) fn case_table(work: &Work, on: &str, outcome: &Outcome, rows: &[Row]) -> String {
    let mut out = String::new();
    let ring = outcome.ring;
    let rounds = outcome.rounds.len();
    writeln!(out, "{on}\n{}; {rounds} rounds, ring {ring}\n", work.describe()).expect("a string takes all");
    let head = ["", "IOPS", "MB/s", "CPU/IO", "p50", "p99", "p99.9", "max"];
    let mut cells = vec![head.map(str::to_owned)];
    for side in Side::ALL {
        let rate = median(&outcome.each(side, |sample| sample.rate));
        let cpu = median(&outcome.each(side, |sample| sample.cpu_ns));
        let [p50, p99, p99_9, max] = latency_cells(Latency::of(&outcome.latencies[side as usize]));
        let megabytes = megabytes(rate, work);
        cells.push([side.name().to_owned(), count(rate), megabytes, nanos(cpu), p50, p99, p99_9, max]);
    }
    align(&mut out, &cells);
    out.push('\n');
    for row in rows {
        ratio_line(&mut out, row);
    }
    if let Some(counted) = rows.first().and_then(|row| row.counted) {
        rows_line(&mut out, &counted);
    }
    out
}

/// `array / replay  0.971 (0.965..0.978), by CPU 0.968 (0.961..0.974), 96.9 %; +31 ns of CPU for each`.
fn ratio_line(out: &mut String, row: &Row) {
    let (Some(time), Some(cpu), Some(confidence), Some(more)) = (
        ratio_text(row.ratio, row.ratio_low, row.ratio_high),
        ratio_text(row.cpu_ratio, row.cpu_ratio_low, row.cpu_ratio_high),
        row.confidence,
        row.cpu_ns_more,
    ) else {
        return;
    };
    let (against, sure) = (row.against, confidence * 100.0);
    let more = format!("{}{}", if more < 0.0 { '-' } else { '+' }, nanos(more.abs()));
    writeln!(out, "  array / {against:<7} {time}, by CPU {cpu}, {sure:.1} %; {more} of CPU for each")
        .expect("a string takes all");
}

/// `0.971 (0.965..0.978)`.
pub(crate) fn ratio_text(ratio: Option<f64>, low: Option<f64>, high: Option<f64>) -> Option<String> {
    Some(format!("{:.3} ({:.3}..{:.3})", ratio?, low?, high?))
}

fn rows_line(out: &mut String, counted: &Counted) {
    let Counted {
        rows_full: full, rows_modified: modified, rows_reconstructed: rest, writes_absorbed: absorbed, ..
    } = counted;
    if full + modified + rest > 0 {
        writeln!(
            out,
            "  rows: {full} whole, {modified} read-modify-write, {rest} reconstruct-write; {absorbed} writes taken along"
        )
        .expect("a string takes all");
    }
}

/// p50, p99, p99.9, max; a dash where there is none.
pub(crate) fn latency_cells(latency: Option<Latency>) -> [String; 4] {
    let times = latency.map(|Latency { p50, p99, p99_9, max }| [p50, p99, p99_9, max]);
    times.map_or(["-"; 4].map(str::to_owned), |times| times.map(|time| nanos(time as f64)))
}

/// MB/s at this rate of requests.
pub(crate) fn megabytes(rate: f64, work: &Work) -> String {
    format!("{:.0}", rate * work.block.bytes() as f64 / 1e6)
}

/// Columns of one width, the first to the left, numbers to the right.
pub(crate) fn align(out: &mut String, cells: &[impl AsRef<[String]>]) {
    let width = |column: usize| cells.iter().map(|line| line.as_ref()[column].chars().count()).max().unwrap_or(0);
    for line in cells.iter().map(AsRef::as_ref) {
        let mut text = format!("  {:<1$}", line[0], width(0));
        for (column, cell) in line.iter().enumerate().skip(1) {
            write!(text, "  {cell:>0$}", width(column)).expect("a string takes all");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

/// `9.53M`, `87.2k`, `950`: three digits.
pub(crate) fn count(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e4 => (value / 1e3, "k"),
        value => return format!("{value:.0}"),
    };
    format!("{}{unit}", three_digits(scaled))
}

/// `105 ns`, `3.21 us`, `1.50 ms`, `2.00 s`.
pub(crate) fn nanos(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= 1e9 => (value / 1e9, "s"),
        value if value >= 1e6 => (value / 1e6, "ms"),
        value if value >= 1e3 => (value / 1e3, "us"),
        value => return format!("{value:.0} ns"),
    };
    format!("{} {unit}", three_digits(scaled))
}

fn three_digits(value: f64) -> String {
    let digits = if value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    format!("{value:.digits$}")
}

/// All rows as one JSON array.
pub fn json(rows: &[Row]) -> String {
    let mut text = serde_json::to_string_pretty(rows).expect("plain data");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(["950", "87.2k", "9.53M", "123M"], [950.0, 87_210.0, 9_531_000.0, 123e6].map(count));
        assert_eq!(["105 ns", "3.21 us", "15.0 ms", "2.00 s"], [105.2, 3_210.0, 15e6, 2e9].map(nanos));
    }

    #[test]
    fn columns_line_up() {
        let mut out = String::new();
        let cells = [["", "a"], ["long", "1"], ["x", "22"]].map(|line| line.map(str::to_owned));
        align(&mut out, &cells);
        assert_eq!(out, "         a\n  long   1\n  x     22\n");
    }
}
