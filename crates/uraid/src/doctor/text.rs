//! What `uraid doctor` prints.
//! Owns: words, tables, drawings and JSON of findings and of a file's extents. Not here: the findings themselves
//! (`uraid_doctor`).

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use uraid_block::sizes::counted;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_control::names::printable_lines;
use uraid_control::report::Report;
use uraid_doctor::{
    Content, Extent, ExtentFlags, Facts, Finding, Prediction, Severity, Volume, cost_text, healthy_cost, size_text,
};
use uraid_engine::WriteCost;
use uraid_layout::Layout;

/// The most extents and stripes that are printed; the sums are of all.
const LINES_MAX: usize = 64;
/// The columns of text.
const WIDTH: usize = 100;

const fn severity_text(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
    }
}

/// `raid6 of 12, chunk 64 KiB, stripe 640 KiB`
pub(crate) fn shape_text(layout: &Layout) -> String {
    let mut text = format!("{} of {}", layout.level(), layout.slots());
    if !layout.stripe().is_zero() {
        let _ = write!(text, ", chunk {}, stripe {}", size_text(layout.chunk()), size_text(layout.stripe()));
    }
    text
}

/// Writes whose cost tells an array from others: of 4 KiB, and of a stripe.
fn sample_costs(facts: &Facts) -> Vec<(Sectors, WriteCost)> {
    let stripe = facts.layout.stripe();
    let sizes = [Sectors(8), stripe].into_iter().filter(|size| !size.is_zero());
    sizes.filter_map(|size| Some((size, healthy_cost(&facts.layout, Sector(0), size)?))).collect()
}

fn content_text(content: &Content) -> String {
    match content {
        Content::FileSystem(found) => {
            let stripes = found.stripes.map_or("no stripes".to_owned(), |told| {
                let of = |bytes: u64| size_text(Sectors(bytes / 512));
                format!("stripes of {} x {}", of(told.unit), told.units())
            });
            format!("{}, {stripes}", found.kind)
        }
        Content::Other(text) => (*text).to_owned(),
        Content::Unknown => "nothing that is known".to_owned(),
        Content::Unreadable(_) | Content::BadTable(_) => "unreadable".to_owned(),
    }
}

fn place_text(start: Sector, length: Sectors) -> String {
    // A damaged table may name more sectors than bytes can be counted of.
    let length = Sectors(length.0.min(u64::MAX / SECTOR_BYTES as u64));
    format!("sector {}, {}", start.0, size_text(length))
}

/// The findings for a person.
pub(super) fn text(report: &Report, facts: &Facts, volumes: &[Volume], findings: &[Finding]) -> String {
    let mut out = format!("{}: {}\n", report.name, shape_text(&facts.layout));
    for (size, cost) in sample_costs(facts) {
        line(&mut out, &format!("  a write of {}: {}", size_text(size), cost_text(&cost)), "    ");
    }
    for volume in volumes {
        let place = place_text(volume.start, volume.length);
        line(&mut out, &format!("  {}: {place}: {}", volume.name, content_text(&volume.content)), "    ");
    }
    for finding in findings {
        out.push('\n');
        let severity = severity_text(finding.severity);
        line(&mut out, &format!("{severity}: {}: {}", finding.about, finding.what), "    ");
        for (word, text) in [("cost", &finding.cost), ("do", &finding.advice)] {
            if let Some(text) = text {
                line(&mut out, &format!("  {word:<5}{text}"), "       ");
            }
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    let (warnings, notes) = (count(Severity::Warning), count(Severity::Note));
    let sum = [counted(warnings, "warning", "warnings"), counted(notes, "note", "notes")].join(", ");
    let _ = write!(out, "\n{sum}\n");
    printable_lines(&out)
}

/// Adds a line, broken between words.
fn line(out: &mut String, text: &str, indent: &str) {
    let mut length = 0;
    let lead = text.len() - text.trim_start().len();
    out.push_str(&text[..lead]);
    length += lead;
    for (nth, word) in text[lead..].split(' ').enumerate() {
        if nth > 0 && length + 1 + word.chars().count() > WIDTH {
            out.push('\n');
            out.push_str(indent);
            length = indent.len();
        } else if nth > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += word.chars().count();
    }
    out.push('\n');
}

fn cost_json(cost: &WriteCost) -> Value {
    json!({
        "member_reads": cost.device_reads,
        "member_writes": cost.device_writes,
        "rows_full": cost.rows_full,
        "rows_modified": cost.rows_modified,
        "rows_reconstructed": cost.rows_reconstructed,
    })
}

/// The same for scripts. Lengths and places are in sectors of 512 bytes.
pub(super) fn json(report: &Report, facts: &Facts, volumes: &[Volume], findings: &[Finding]) -> Value {
    let volume = |volume: &Volume| {
        let (kind, stripes) = match &volume.content {
            Content::FileSystem(found) => (Some(found.kind.to_string()), found.stripes),
            Content::Other(_) | Content::Unknown | Content::Unreadable(_) | Content::BadTable(_) => (None, None),
        };
        json!({
            "name": volume.name,
            "start_sector": volume.start.0,
            "sectors": volume.length.0,
            "content": content_text(&volume.content),
            "file_system": kind,
            "stripe_unit_bytes": stripes.map(|told| told.unit),
            "stripe_width_bytes": stripes.map(|told| told.width),
        })
    };
    let finding = |finding: &Finding| {
        json!({
            "severity": severity_text(finding.severity),
            "id": finding.id,
            "about": finding.about,
            "what": finding.what,
            "cost": finding.cost,
            "advice": finding.advice,
        })
    };
    let costs: Vec<Value> =
        sample_costs(facts).iter().map(|(size, cost)| json!({ "sectors": size.0, "cost": cost_json(cost) })).collect();
    json!({
        "name": report.name,
        "level": facts.layout.level().name(),
        "raid_devices": facts.layout.slots(),
        "chunk_sectors": facts.layout.chunk().0,
        "stripe_sectors": facts.layout.stripe().0,
        "writes": costs,
        "volumes": volumes.iter().map(volume).collect::<Vec<Value>>(),
        "findings": findings.iter().map(finding).collect::<Vec<Value>>(),
    })
}

/// A file on an array.
pub(super) struct OfFile<'a> {
    pub path: &'a Path,
    pub bytes: u64,
    pub array: &'a str,
    /// Where the file system begins.
    pub base: Sector,
    pub layout: &'a Layout,
    pub extents: &'a [Extent],
    pub write: Sectors,
    pub prediction: Prediction,
}

impl OfFile<'_> {
    fn flags(&self, extent: &Extent) -> ExtentFlags {
        extent.flags(self.layout.chunk(), self.layout.stripe())
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{}: {} bytes in {} on {}, {}\n",
            self.path.display(),
            self.bytes,
            counted(self.extents.len() as u64, "extent", "extents"),
            self.array,
            shape_text(self.layout)
        );
        let _ = writeln!(out, "  the file system begins at sector {} of the array", self.base.0);
        self.table(&mut out);
        self.legend(&mut out);
        self.cost(&mut out);
        printable_lines(&out)
    }

    /// Ranges with both ends, as xfs_bmap prints them.
    fn table(&self, out: &mut String) {
        let _ = writeln!(out, " EXT: {:<25} {:<29} {:>10} FLAGS", "FILE-OFFSET", "ARRAY-SECTORS", "TOTAL");
        for (nth, extent) in self.extents.iter().enumerate().take(LINES_MAX) {
            let range = |from: Sector| format!("[{}..{}]", from.0, from.0 + extent.length.0.saturating_sub(1));
            let (file, array) = (format!("{}:", range(extent.file)), range(extent.at));
            let flags = self.flags(extent).0;
            let _ = writeln!(out, "{nth:>4}: {file:<25} {array:<29} {:>10} {flags:06o}", extent.length.0);
        }
        if self.extents.len() > LINES_MAX {
            let _ = writeln!(out, "  ... {} more; --json has all", self.extents.len() - LINES_MAX);
        }
    }

    /// The flags that the table has.
    fn legend(&self, out: &mut String) {
        for (flag, meaning) in ExtentFlags::LEGEND {
            if self.extents.iter().any(|extent| self.flags(extent).has(flag)) {
                let _ = writeln!(out, "  {flag:06o} {meaning}");
            }
        }
    }

    fn cost(&self, out: &mut String) {
        let Prediction { writes, holes, cost, ideal } = self.prediction;
        if writes == 0 {
            out.push_str("It has no data on the array.\n");
            return;
        }
        if !holes.is_zero() {
            let _ = writeln!(out, "Holes of {} are left out.", size_text(holes));
        }
        let each = |ios: u64| ios as f64 / writes as f64;
        let _ = writeln!(
            out,
            "Written in order, in {} of {}: {:.1} member I/Os each, {:.1} if it lay in one piece from the start of a stripe",
            counted(writes, "write", "writes"),
            size_text(self.write),
            each(cost.ios()),
            each(ideal.ios())
        );
        if cost.rows() > 0 {
            let share = |rows: u64| 100.0 * rows as f64 / cost.rows() as f64;
            let _ = writeln!(
                out,
                "Parts of rows: {:.1} % written whole, {:.1} % by read-modify-write, {:.1} % after reading their rest ({} in \
                 all; a row of long chunks is written in several)",
                share(cost.rows_full),
                share(cost.rows_modified),
                share(cost.rows_reconstructed),
                cost.rows()
            );
        }
    }

    pub(super) fn json(&self) -> Value {
        let extent = |extent: &Extent| {
            json!({
                "file_sector": extent.file.0,
                "array_sector": extent.at.0,
                "sectors": extent.length.0,
                "flags": format!("{:06o}", self.flags(extent).0),
            })
        };
        json!({
            "file": self.path.to_string_lossy(),
            "bytes": self.bytes,
            "array": self.array,
            "file_system_sector": self.base.0,
            "chunk_sectors": self.layout.chunk().0,
            "stripe_sectors": self.layout.stripe().0,
            "write_sectors": self.write.0,
            "writes": self.prediction.writes,
            "hole_sectors": self.prediction.holes.0,
            "cost": cost_json(&self.prediction.cost),
            "cost_aligned": cost_json(&self.prediction.ideal),
            "extents": self.extents.iter().map(extent).collect::<Vec<Value>>(),
        })
    }
}

/// The extents over the stripes: a line is a stripe, a column a chunk of its data.
///
/// ```text
///   STRIPE  SECTOR  CHUNKS
///        3    3840  ..####+...    #: whole   +: a part   .: none
/// ```
pub(super) fn plot(layout: &Layout, extents: &[Extent]) -> String {
    let (chunk, stripe) = (layout.chunk().0, layout.stripe().0);
    if stripe == 0 {
        return "The level has no stripes to draw.\n".to_owned();
    }
    let mut out =
        format!("\n{:>10} {:>14}  CHUNKS   #: all of it is the file's  +: a part  .: none\n", "STRIPE", "SECTOR");
    let mut drawn = 0;
    let mut next = 0;
    let mut by_place = extents.to_vec();
    by_place.sort_by_key(|extent| extent.at);
    for first in &by_place {
        let stripes = (first.at.0 / stripe).max(next)..first.end().0.div_ceil(stripe);
        for nth in stripes {
            next = nth + 1;
            if drawn == LINES_MAX {
                out.push_str("       ... the rest is not drawn\n");
                return out;
            }
            drawn += 1;
            let cell = |data: u64| {
                let from = nth * stripe + data * chunk;
                match covered(&by_place, from, from + chunk) {
                    0 => '.',
                    all if all == chunk => '#',
                    _ => '+',
                }
            };
            let cells: String = (0..stripe / chunk).map(cell).collect();
            let _ = writeln!(out, "{nth:>10} {:>14}  {cells}", nth * stripe);
        }
    }
    out
}

/// How many sectors of a range the extents cover.
fn covered(extents: &[Extent], from: u64, to: u64) -> u64 {
    let of = |extent: &Extent| extent.end().0.min(to).saturating_sub(extent.at.0.max(from));
    extents.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_a_damaged_table_is_no_panic() {
        assert!(place_text(Sector(2048), Sectors(1 << 63)).starts_with("sector 2048, "));
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let mut out = String::new();
        line(&mut out, &format!("  do   {}", "word ".repeat(40).trim_end()), "       ");
        assert!(out.lines().all(|line| line.len() <= WIDTH), "{out}");
        assert_eq!(out.lines().count(), 3, "{out}");
        assert!(out.lines().skip(1).all(|line| line.starts_with("       word")), "{out}");
    }
}
