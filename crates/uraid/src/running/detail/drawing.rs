//! `uraid detail --draw`: the first stripes of an array as a table of data, P, Q and copies.
//! Owns: which rows are drawn, the table, its JSON. Not here: where anything lies. `uraid_layout` is asked for each
//! cell, so the drawing shows the map that reads and writes use. Invariant: a cell has one content.
//!
//! ```text
//!   raid5, left-symmetric        Row  Sector    0    1    2  [3]      slot 3 is missing
//!                                  0       0   D0   D1   D2  [P]
//!                                  1     128   D4   D5    P  [D3]
//! ```

use super::args::ROWS_MAX;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use uraid_block::sizes;
use uraid_block::{ArraySector, Sectors, Slot};
use uraid_control::names::printable;
use uraid_layout::{Layout, Level, Row, layout_name};

/// The default number of rows of a part, unless the level rotates over more.
const ROWS: u64 = 8;
/// Columns of a terminal.
const WIDTH: usize = 80;
/// The longest name that stands above a column; longer ones are listed below.
const HEADING_MAX: usize = 12;

/// One slot of the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    /// The member in the slot.
    pub member: Option<Held>,
}

/// The member in a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// The member's name as it was given; `None` in the drawing of a described geometry.
    pub name: Option<String>,
    /// Where its data begins, in sectors of the device.
    pub data_offset: Option<u64>,
}

/// The content of one chunk of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    /// No data of the array.
    Nothing,
    /// The array's sectors from this one on.
    Data(u64),
    P,
    Q,
}

/// A row of the table: the same stretch of every member.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    /// Its first sector on the members, from their data offset.
    sector: u64,
    sectors: u64,
    /// The cells by slot.
    cells: Vec<Cell>,
}

/// Lines that follow each other on the members.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    /// The heading of the part; empty if there is only one part.
    title: String,
    lines: Vec<Line>,
    /// How many lines it has, drawn or not.
    total: u64,
}

/// The first stripes of an array.
pub(crate) struct Drawing {
    name: Option<String>,
    layout: Layout,
    columns: Vec<Column>,
    parts: Vec<Part>,
}

impl Drawing {
    /// Draws `rows` rows of each part, or as many as show how the level rotates. One column for each slot.
    pub(crate) fn new(name: Option<&str>, layout: &Layout, columns: Vec<Column>, rows: Option<u64>) -> Drawing {
        assert_eq!(columns.len(), usize::from(layout.slots()), "a column is a slot");
        let rows = rows.unwrap_or_else(|| ROWS.max(rotation(layout))).clamp(1, ROWS_MAX);
        let parts = match layout.level() {
            Level::Linear | Level::Raid1 => stretches(layout),
            Level::Raid0 => zones(layout, rows),
            Level::Raid10 => copies(layout, rows),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                let area =
                    Area { from: 0, to: layout.array_size().0, tops: vec![0], end: layout.member_used(Slot(0)).0 };
                area.parts(layout, rows)
            }
        };
        Drawing { name: name.map(str::to_owned), layout: layout.clone(), columns, parts }
    }

    /// `raid6`, `left-symmetric`, ...: the geometry in words.
    fn shape(&self) -> String {
        let (layout, level) = (&self.layout, self.layout.level());
        let mut words = vec![level.name().to_owned(), layout_name(level, layout.spec().layout)];
        words.push(format!("{} members", layout.slots()));
        if !layout.chunk().is_zero() {
            words.push(format!("chunk {}", sizes::chunk(layout.chunk())));
            words.push(format!("stripe {}", sizes::chunk(layout.stripe())));
        }
        words.push(format!("array {}", sizes::binary(layout.array_size())));
        words.retain(|word| !word.is_empty());
        words.join(", ")
    }

    /// The table.
    pub(crate) fn text(&self) -> String {
        let name = self.name.as_ref().map_or(String::new(), |name| format!("{}: ", printable(name)));
        let mut out = format!("{name}{}\n", self.shape());
        match self.layout.level() {
            Level::Linear | Level::Raid1 => self.write_stretches(&mut out),
            Level::Raid0 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                let has_headings = self.has_headings();
                for part in &self.parts {
                    self.write_part(&mut out, part, has_headings);
                }
                self.write_legend(&mut out, has_headings);
            }
        }
        out
    }

    /// One object; `rows` has the table, a row an object with one cell for each slot.
    pub(crate) fn json(&self) -> Value {
        let (layout, level) = (&self.layout, self.layout.level());
        let member = |(slot, column): (usize, &Column)| {
            let held = column.member.as_ref();
            json!({
                "slot": slot,
                "name": held.and_then(|held| held.name.as_deref()),
                "is_missing": held.is_none(),
                "data_offset": held.and_then(|held| held.data_offset),
            })
        };
        let rows = self.parts.iter().enumerate().flat_map(|(index, part)| {
            part.lines.iter().map(move |line| {
                let cells: Vec<Value> = line.cells.iter().map(|cell| self.cell_json(*cell)).collect();
                json!({ "part": index, "sector": line.sector, "sectors": line.sectors, "cells": cells })
            })
        });
        let parts = self.parts.iter().map(|part| json!({ "title": part.title, "rows": part.total }));
        json!({
            "name": self.name,
            "level": level.name(),
            "layout": Some(layout_name(level, layout.spec().layout)).filter(|name| !name.is_empty()),
            "chunk_sectors": layout.chunk().0,
            "stripe_sectors": layout.stripe().0,
            "array_sectors": layout.array_size().0,
            "members": self.columns.iter().enumerate().map(member).collect::<Vec<Value>>(),
            "parts": parts.collect::<Vec<Value>>(),
            "rows": rows.collect::<Vec<Value>>(),
        })
    }

    fn cell_json(&self, cell: Cell) -> Value {
        match cell {
            Cell::Nothing => Value::Null,
            Cell::Data(sector) => match sector.checked_div(self.layout.chunk().0) {
                Some(chunk) => json!({ "holds": "data", "chunk": chunk, "array_sector": sector }),
                None => json!({ "holds": "data", "array_sector": sector }),
            },
            Cell::P => json!({ "holds": "P" }),
            Cell::Q => json!({ "holds": "Q" }),
        }
    }

    /// `D7`; `7` if all cells are data; in brackets on a missing member.
    fn cell_text(&self, slot: usize, cell: Cell) -> String {
        let text = match cell {
            Cell::Nothing => return "-".to_owned(),
            Cell::Data(sector) => {
                let letter = if self.layout.level().is_parity() { "D" } else { "" };
                format!("{letter}{}", sector / self.layout.chunk().0)
            }
            Cell::P => "P".to_owned(),
            Cell::Q => "Q".to_owned(),
        };
        if self.columns[slot].member.is_some() { text } else { format!("[{text}]") }
    }

    fn slot_text(&self, slot: usize) -> String {
        if self.columns[slot].member.is_some() { slot.to_string() } else { format!("[{slot}]") }
    }

    /// The last part of a member's name; `None` for an empty slot and in a described geometry.
    fn short_name(&self, slot: usize) -> Option<String> {
        let name = self.columns[slot].member.as_ref()?.name.as_deref()?;
        let last = name.rsplit('/').find(|part| !part.is_empty()).unwrap_or(name);
        Some(printable(last))
    }

    /// Whether the members' names are shown above the columns: yes, if the table then still fits in one piece.
    fn has_headings(&self) -> bool {
        let names: Vec<String> = (0..self.columns.len()).filter_map(|slot| self.short_name(slot)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let fits = |part: &Part| {
            let width = self.cell_width(part).max(longest + 2);
            margin(part).0 + width * self.columns.len() <= WIDTH
        };
        !names.is_empty() && longest <= HEADING_MAX && self.parts.iter().all(fits)
    }

    /// The width of a cell and of the gap before it.
    fn cell_width(&self, part: &Part) -> usize {
        let cells = part.lines.iter().flat_map(|line| line.cells.iter().enumerate());
        let cells = cells.map(|(slot, &cell)| self.cell_text(slot, cell).len());
        let slots = (0..self.columns.len()).map(|slot| self.slot_text(slot).len());
        cells.chain(slots).max().unwrap_or(0).max(2) + 2
    }

    /// Writes a part. A table that is wider than a terminal is folded: all rows for the first members, then all rows
    /// for the next ones.
    fn write_part(&self, out: &mut String, part: &Part, has_headings: bool) {
        let (margin, row_width, sector_width) = margin(part);
        let slots: Vec<usize> = (0..self.columns.len()).collect();
        let name = |slot: usize| self.short_name(slot).unwrap_or_else(|| "-".to_owned());
        let mut width = self.cell_width(part);
        if has_headings {
            width = slots.iter().map(|&slot| name(slot).chars().count() + 2).fold(width, usize::max);
        }
        out.push('\n');
        if !part.title.is_empty() {
            writeln!(out, "{}:", part.title).expect("a string takes all");
        }
        for (index, group) in slots.chunks((WIDTH.saturating_sub(margin) / width).max(1)).enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let join = |text: &dyn Fn(usize) -> String| {
                group.iter().map(|&slot| format!("{:>width$}", text(slot))).collect::<String>()
            };
            let head = format!("{:>row_width$}{:>sector_width$}", "Row", "Sector");
            writeln!(out, "{head}{}", join(&|slot| self.slot_text(slot))).expect("a string takes all");
            if has_headings {
                writeln!(out, "{:margin$}{}", "", join(&name)).expect("a string takes all");
            }
            for line in &part.lines {
                let (row, sector) = (line.sector / line.sectors, line.sector);
                let cells = join(&|slot| self.cell_text(slot, line.cells[slot]));
                writeln!(out, "{row:>row_width$}{sector:>sector_width$}{cells}").expect("a string takes all");
            }
            let more = part.total - part.lines.len() as u64;
            if more > 0 {
                writeln!(out, "{:>row_width$}  and {more} more rows", "...").expect("a string takes all");
            }
        }
    }

    fn write_legend(&self, out: &mut String, has_headings: bool) {
        let layout = &self.layout;
        let chunk = sizes::chunk(layout.chunk());
        out.push('\n');
        let data = match layout.level() {
            Level::Raid4 | Level::Raid5 => format!("D0, D1, ...: the array's chunks of {chunk}; P: their parity"),
            Level::Raid6 => format!("D0, D1, ...: the array's chunks of {chunk}; P, Q: their two parities"),
            Level::Linear | Level::Raid0 | Level::Raid1 => format!("0, 1, ...: the array's chunks of {chunk}"),
            Level::Raid10 => {
                format!("0, 1, ...: the array's chunks of {chunk}, {} copies of each", layout.copies_count())
            }
        };
        writeln!(out, "  {data}").expect("a string takes all");
        out.push_str("  Sector: where the row begins on each member, in sectors of 512 bytes from its data offset\n");
        if self.columns.iter().any(|column| column.member.is_none()) {
            out.push_str("  [ ]: on a slot without a member\n");
        }
        self.write_members(out, has_headings);
    }

    /// Writes the members' data offsets, and their names unless these stand above the columns.
    fn write_members(&self, out: &mut String, has_headings: bool) {
        let held: Vec<(usize, &Held)> = self
            .columns
            .iter()
            .enumerate()
            .filter_map(|(slot, column)| Some((slot, column.member.as_ref()?)))
            .collect();
        let mut offsets: Vec<u64> = held.iter().filter_map(|(_, held)| held.data_offset).collect();
        offsets.dedup();
        if let [offset] = offsets[..] {
            writeln!(out, "  Data offset: sector {offset} of each member").expect("a string takes all");
        }
        if held.iter().all(|(_, held)| held.name.is_none()) || (has_headings && offsets.len() < 2) {
            return;
        }
        out.push_str("  Members:\n");
        for (slot, held) in held {
            let name = self.short_name(slot).unwrap_or_default();
            let offset = held.data_offset.filter(|_| offsets.len() > 1);
            let offset = offset.map_or(String::new(), |offset| format!(", data offset: sector {offset}"));
            writeln!(out, "  {slot:>6}  {name}{offset}").expect("a string takes all");
        }
    }

    /// For levels without chunks: which part of the array each member holds.
    fn write_stretches(&self, out: &mut String) {
        let rows: Vec<[String; 5]> = self
            .parts
            .iter()
            .flat_map(|part| &part.lines)
            .flat_map(|line| {
                let held = line.cells.iter().enumerate().filter_map(|(slot, cell)| match cell {
                    Cell::Data(from) => Some((slot, *from)),
                    Cell::Nothing | Cell::P | Cell::Q => None,
                });
                held.map(move |(slot, from)| {
                    let until = |start: u64| format!("{start} to {}", start + line.sectors - 1);
                    let name = match &self.columns[slot].member {
                        None => "missing".to_owned(),
                        Some(_) => self.short_name(slot).unwrap_or_default(),
                    };
                    [self.slot_text(slot), name, until(from), until(line.sector), sizes::binary(Sectors(line.sectors))]
                })
            })
            .collect();
        let head = ["Slot", "Member", "Array Sectors", "Member Sectors", "Size"].map(str::to_owned);
        let width =
            |column: usize| rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        out.push('\n');
        for [slot, name, array, member, size] in [&head].into_iter().chain(&rows) {
            let [slots, names, arrays, members, sizes] = widths[..] else { unreachable!("as many as headings") };
            writeln!(out, "  {slot:>slots$}  {name:<names$}  {array:>arrays$}  {member:>members$}  {size:>sizes$}")
                .expect("a string takes all");
        }
        out.push('\n');
        if self.layout.level() == Level::Raid1 {
            out.push_str("  One column of copies: every member holds the whole array\n");
        }
        out.push_str("  Member Sectors: of 512 bytes, from the member's data offset\n");
        self.write_members(out, true);
    }
}

/// The width of the first two columns of a part: together, and each.
fn margin(part: &Part) -> (usize, usize, usize) {
    let digits = |number: u64| number.to_string().len();
    let last = part.lines.last();
    let row = last.map_or(0, |line| digits(line.sector / line.sectors)).max(3) + 2;
    let sector = last.map_or(0, |line| digits(line.sector)).max(6) + 2;
    (row + sector, row, sector)
}

/// The number of rows after which a parity level repeats the roles of the slots; 1 for other levels.
fn rotation(layout: &Layout) -> u64 {
    let Layout::Parity(layout) = layout else { return 1 };
    let slots = |row| {
        let map = layout.row(Row(row));
        (map.data, map.parity, map.syndrome)
    };
    let rows = layout.rows_count().min(ROWS_MAX);
    (1..rows).find(|&row| slots(row) == slots(0)).unwrap_or(rows)
}

/// linear, raid1: every contiguous stretch of the array on its members.
fn stretches(layout: &Layout) -> Vec<Part> {
    let mut lines = Vec::new();
    let mut at = 0;
    while at < layout.array_size().0 {
        let copies = layout.copies(ArraySector(at));
        let sectors = layout.contiguous(ArraySector(at)).0;
        let mut cells = vec![Cell::Nothing; layout.slots().into()];
        for (slot, _) in &copies {
            cells[slot.index()] = Cell::Data(at);
        }
        lines.push(Line { sector: copies[0].1.0, sectors, cells });
        at += sectors;
    }
    let total = lines.len() as u64;
    vec![Part { title: String::new(), lines, total }]
}

/// A part of the array, and its rows on the members.
struct Area {
    /// Array sectors.
    from: u64,
    to: u64,
    /// Where drawn rows begin on the members; ascending.
    tops: Vec<u64>,
    /// Where the area ends on the members.
    end: u64,
}

impl Area {
    /// The first rows below each top. They are filled with the copies of every chunk whose first copy is in the rows
    /// below the first top. That fills all cells: a chunk's other copies are at least as far below their top as its
    /// first copy is.
    fn parts(&self, layout: &Layout, rows: u64) -> Vec<Part> {
        let chunk = layout.chunk().0;
        let mut table: BTreeMap<u64, Vec<Cell>> = BTreeMap::new();
        for top in &self.tops {
            let drawn = (0..rows).map(|row| top + row * chunk).take_while(|&sector| sector < self.end);
            table.extend(drawn.map(|sector| (sector, vec![Cell::Nothing; layout.slots().into()])));
        }
        let mut put = |sector: u64, slot: Slot, cell: Cell| {
            if let Some(cells) = table.get_mut(&sector) {
                let old = std::mem::replace(&mut cells[slot.index()], cell);
                assert_eq!(old, Cell::Nothing, "two contents of one place: sector {sector} of {slot}");
            }
        };
        let mut at = self.from;
        while at < self.to {
            let copies = layout.copies(ArraySector(at));
            if copies[0].1.0 >= self.tops[0] + rows * chunk {
                break;
            }
            copies.iter().for_each(|(slot, sector)| put(sector.0, *slot, Cell::Data(at)));
            at += chunk;
        }
        if let Layout::Parity(layout) = layout {
            for row in 0..rows.min(layout.rows_count()) {
                let map = layout.row(Row(row));
                put(map.start.0, map.parity, Cell::P);
                map.syndrome.into_iter().for_each(|slot| put(map.start.0, slot, Cell::Q));
            }
        }
        let lines = table.into_iter().map(|(sector, cells)| Line { sector, sectors: chunk, cells });
        let mut parts: Vec<Part> = Vec::new();
        for line in lines {
            match parts.last_mut() {
                Some(part) if part.lines.last().is_some_and(|last| last.sector + chunk == line.sector) => {
                    part.lines.push(line);
                }
                Some(_) | None => parts.push(Part { title: String::new(), lines: vec![line], total: 0 }),
            }
        }
        let tops: Vec<u64> = parts.iter().map(|part| part.lines[0].sector).chain([self.end]).collect();
        for (part, ends) in parts.iter_mut().zip(tops.windows(2)) {
            part.total = (ends[1] - ends[0]).div_ceil(chunk);
        }
        parts
    }
}

/// raid10. The copies of the array's first chunk are at the tops: one below the other in an offset layout, far apart in
/// a far one, all in one row in a near one.
fn copies(layout: &Layout, rows: u64) -> Vec<Part> {
    let mut tops: Vec<u64> = layout.copies(ArraySector(0)).iter().map(|(_, sector)| sector.0).collect();
    tops.sort_unstable();
    tops.dedup();
    let (depth, chunk) = (tops.len() as u64, layout.chunk().0);
    let is_one_below_the_other = tops.iter().zip(0..).all(|(&top, row)| top == row * chunk);
    // All copies of a row's chunks then lie in the rows below it, and the next chunks follow.
    let (tops, rows) = if is_one_below_the_other { (vec![0], rows.next_multiple_of(depth)) } else { (tops, rows) };
    let area = Area { from: 0, to: layout.array_size().0, tops, end: layout.member_used(Slot(0)).0 };
    let mut parts = area.parts(layout, rows);
    if parts.len() > 1 {
        for (index, part) in parts.iter_mut().enumerate() {
            let from = part.lines[0].sector;
            part.title = match index {
                0 => "First copies".to_owned(),
                _ => {
                    format!("Far copies {index}, from sector {from} of each member ({})", sizes::binary(Sectors(from)))
                }
            };
        }
    }
    parts
}

/// raid0: each zone by itself. A zone begins where a smaller member ends; ask the map where.
fn zones(layout: &Layout, rows: u64) -> Vec<Part> {
    let size = layout.array_size().0;
    let mut depths: Vec<u64> = (0..layout.slots()).map(|slot| layout.member_used(Slot(slot)).0).collect();
    depths.sort_unstable();
    depths.dedup();
    let tops: Vec<u64> = [0].into_iter().chain(depths.iter().copied()).collect();
    // Zones follow each other in the array and on the members, so a binary search finds the first sector below a top.
    let begins: Vec<u64> = tops
        .iter()
        .map(|&top| {
            let (mut low, mut high) = (0, size);
            while low < high {
                let middle = low + (high - low) / 2;
                if layout.copies(ArraySector(middle))[0].1.0 >= top { high = middle } else { low = middle + 1 }
            }
            low
        })
        .collect();
    let mut parts = Vec::new();
    let count = begins.windows(2).filter(|ends| ends[0] < ends[1]).count();
    for (ends, tops) in begins.windows(2).zip(tops.windows(2)).filter(|(ends, _)| ends[0] < ends[1]) {
        let area = Area { from: ends[0], to: ends[1], tops: vec![tops[0]], end: tops[1] };
        let index = parts.len();
        for mut part in area.parts(layout, rows) {
            if count > 1 {
                part.title = match ends[0] {
                    0 => format!("Zone {index}"),
                    from => {
                        format!("Zone {index}, from sector {from} of the array on ({})", sizes::binary(Sectors(from)))
                    }
                };
            }
            parts.push(part);
        }
    }
    parts
}
