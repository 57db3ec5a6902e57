//! The members' sectors: durable contents, and the alternatives that a crash may leave.
//! Owns: [`CrashMedium`], versions of a cell, which of them a flush covers. Not here: when an operation ends (`machine`),
//! which choice of versions makes an image (`explore`).
//! Invariant: a cell is written whole or not at all. After a crash it holds its durable content or that of one write
//! that no flush has covered yet.
//!
//! ```text
//!   cell      0           1    2    3   ..         a cell is one sector
//!   sector    8           16   17   18  ..   0     of the device: the superblock, the data, and the bitmap, if there is one,
//!                                                  or instead the partial parity log, whose sectors follow one another
//! ```

use super::content::Content;

/// The sector of the device that holds the whole superblock.
pub const SUPER_AT: u64 = crate::image::areas::SUPER_AT;
/// The first sector of data on every member.
pub const DATA_AT: u64 = 16;
/// The sector of the bitmap, which all of its bits fit.
pub const BITMAP_AT: u64 = 0;

/// What a member has in its last cells, besides its superblock and data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Beside {
    /// Nothing.
    #[default]
    Nothing,
    /// A bitmap of one sector.
    Bitmap,
    /// A partial parity log.
    Log {
        /// The sector of the device at which its area begins.
        at: u64,
        /// Sectors of its area.
        sectors: u64,
    },
}

impl Beside {
    /// How many cells it takes.
    pub fn cells(self) -> usize {
        match self {
            Beside::Nothing => 0,
            Beside::Bitmap => 1,
            Beside::Log { sectors, .. } => sectors as usize,
        }
    }

    /// The number of a sector of the device among these cells.
    fn index(self, sector: u64) -> Option<usize> {
        match self {
            Beside::Bitmap if sector == BITMAP_AT => Some(0),
            Beside::Log { at, sectors } if (at..at + sectors).contains(&sector) => Some((sector - at) as usize),
            Beside::Nothing | Beside::Bitmap | Beside::Log { .. } => None,
        }
    }
}

/// One write of a cell that a power cut may keep or lose.
#[derive(Clone, Copy, Debug)]
pub struct CellVersion {
    /// The content that it writes.
    pub content: Content,
    write: u64,
    // When it was answered; `None` while it is in flight.
    completed: Option<u64>,
}

/// The sectors of one member.
#[derive(Clone, Default)]
pub struct CrashMedium {
    /// What a read returns, per cell.
    pub current: Vec<Content>,
    /// What certainly survives a power cut, per cell.
    pub durable: Vec<Content>,
    /// What may survive instead, per cell, oldest first.
    pub uncertain: Vec<Vec<CellVersion>>,
    /// Data writes that it still performs before it is gone; `None`: it stays.
    pub writes_left: Option<u64>,
    /// Whether it fails every operation.
    pub is_gone: bool,
    /// What its last cells are.
    pub beside: Beside,
    clock: u64,
    write_next: u64,
}

/// A moment for a flush: it covers what was answered before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl CrashMedium {
    /// Replaces the contents; all are durable, and the member works.
    pub fn load(&mut self, cells: &[Content]) {
        self.current.clear();
        self.current.extend_from_slice(cells);
        self.durable.clear();
        self.durable.extend_from_slice(cells);
        self.uncertain.iter_mut().for_each(Vec::clear);
        self.uncertain.resize(cells.len(), Vec::new());
        self.writes_left = None;
        self.is_gone = false;
    }

    /// The cell of a sector of the device.
    pub fn cell(&self, sector: u64) -> Option<usize> {
        if sector == SUPER_AT {
            return Some(0);
        }
        if let Some(index) = self.beside.index(sector) {
            return Some(self.data_end() + index);
        }
        let cell = sector.checked_sub(DATA_AT)? as usize + 1;
        self.is_data(cell).then_some(cell)
    }

    /// Whether a cell holds data.
    pub fn is_data(&self, cell: usize) -> bool {
        cell > 0 && cell < self.data_end()
    }

    fn data_end(&self) -> usize {
        self.current.len() - self.beside.cells()
    }

    /// Starts a write, which a crash may keep or lose. Returns its number.
    pub fn submit(&mut self, first: usize, contents: &[Content]) -> u64 {
        self.write_next += 1;
        for (cell, &content) in (first..).zip(contents) {
            self.uncertain[cell].push(CellVersion { content, write: self.write_next, completed: None });
        }
        self.write_next
    }

    /// Answers a write: reads see it, later flushes cover it, and with FUA it is durable.
    pub fn complete(&mut self, first: usize, contents: &[Content], number: u64, is_fua: bool) {
        self.clock += 1;
        for (cell, &content) in (first..).zip(contents) {
            self.current[cell] = content;
            let Some(at) = self.uncertain[cell].iter().position(|version| version.write == number) else { continue };
            self.uncertain[cell][at].completed = Some(self.clock);
            if is_fua {
                self.durable[cell] = content;
                self.uncertain[cell].drain(..=at);
            }
        }
    }

    /// The moment for a flush that is submitted now.
    pub fn mark(&self) -> Mark {
        Mark(self.clock)
    }

    /// Makes durable what the flush covers.
    pub fn flush(&mut self, mark: Mark) {
        for (cell, versions) in self.uncertain.iter_mut().enumerate() {
            let is_covered = |version: &CellVersion| version.completed.is_some_and(|moment| moment <= mark.0);
            if let Some(last) = versions.iter().rposition(is_covered) {
                self.durable[cell] = versions[last].content;
                versions.drain(..=last);
            }
        }
    }

    /// What a power cut may leave in a cell: the durable content first, then each other one once.
    pub fn options(&self, cell: usize, into: &mut Vec<Content>) {
        into.clear();
        into.push(self.durable[cell]);
        for version in &self.uncertain[cell] {
            if !into.contains(&version.content) {
                into.push(version.content);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(medium: &CrashMedium, cell: usize) -> Vec<u32> {
        let mut list = Vec::new();
        medium.options(cell, &mut list);
        list.iter().map(|content| content.0).collect()
    }

    #[test]
    fn a_flush_covers_exactly_what_was_answered_before_it() {
        let mut medium = CrashMedium::default();
        medium.load(&[Content(0); 3]);
        let first = medium.submit(1, &[Content(1)]);
        assert_eq!(options(&medium, 1), [0, 1]);
        medium.complete(1, &[Content(1)], first, false);
        let mark = medium.mark();
        let second = medium.submit(1, &[Content(2), Content(3)]);
        assert_eq!(options(&medium, 1), [0, 1, 2]);
        medium.complete(1, &[Content(2), Content(3)], second, false);
        medium.flush(mark);
        assert_eq!((options(&medium, 1), options(&medium, 2)), (vec![1, 2], vec![0, 3]));
    }

    #[test]
    fn an_answered_fua_is_durable() {
        let mut medium = CrashMedium::default();
        medium.load(&[Content(0); 2]);
        let number = medium.submit(0, &[Content(9)]);
        medium.complete(0, &[Content(9)], number, true);
        assert_eq!((options(&medium, 0), medium.current[0]), (vec![9], Content(9)));
    }
}
