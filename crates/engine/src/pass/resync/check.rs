//! Compares one window of copies, or of rows, for a check; for a repair, also writes where they disagree.
//! Owns: comparing, what a repair writes, rewriting sectors that a member could not read. Not here: which block is wrong
//! (`blame`), which windows, their locks (`shard_pass`).
//! Invariant: a check writes only where a member could not read, and only what all others agree on.
//!
//! Nothing here needs the dirty mark. After a crash, each sector that was being written either is as before or is
//! right, and each is written by itself: so the row or the copies then disagree as before, or less. The dirty mark
//! would do harm: the resync after a crash would make parity fit data that is wrong, or copy the wrong copy
//! (docs/decisions/0013-check-and-repair.md).
//!
//! ```text
//!   raid6, D1 wrong     crash before the write: D1 is named again        after it: the row agrees
//!   raid6, P and Q      crash between them: P agrees, Q is named
//!   copies 0 1 2        crash between 1 and 2: more than half still agree
//! ```

use super::{Found, Resync, RowStretch, is_to_repeat};
use crate::World;
use crate::row::io::RowIo;
use crate::row::parity::parity_of;
use crate::shard::mail::Window;
use crate::words::blame::{self, CopyFault, RowDifferences, RowFault};
use crate::words::failure::Failure;
use crate::words::findings::Mismatch;
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassCounts, PassOrder};
use std::borrow::Cow;
use std::ops::Range;
use uraid_block::{ArraySector, IoError, MemberSector, SECTOR_BYTES, Sectors, Slot, SlotSet};
use uraid_layout::{Row, RowMap};
use uraid_parity::{Lost, generate_p, recover, xor_into};

/// The blocks of a row's stretch, as far as they could be read, and what the data gives.
struct RowBlocks<'a> {
    /// All data blocks; those in `computed` were computed.
    data: Vec<&'a [u8]>,
    /// P and Q as they were read, where they were not needed to compute data.
    compared: RowDifferences<'a>,
    /// P and Q, computed from the data.
    right: (Vec<u8>, Vec<u8>),
    /// Indexes of data blocks that were computed.
    computed: Vec<usize>,
}

impl<W: World> Resync<W> {
    /// `repairs`: writes what disagrees. `None`: something could not be read, and the piece is more than one sector.
    pub(in crate::pass) async fn check_copies(
        &self,
        order: &PassOrder,
        piece: Window,
        repairs: bool,
    ) -> Result<Option<PassCounts>, IoError> {
        let Window { sector, length, .. } = piece;
        let usable = self.shared.with_view(|view| view.readable());
        let copies = self.shared.with_view(|view| view.in_order(view.shape.layout().copies(sector)));
        let places = copies.iter().copied().filter(|(slot, _)| usable.contains(*slot));
        let found = self.read_window_but(order.unreadable, places, length).await?;
        if length.0 > 1 && is_to_repeat(order, &found) {
            return Ok(None);
        }
        let (known, unread): (Vec<&Found>, Vec<&Found>) = found.iter().partition(|copy| copy.bytes.is_some());
        let bytes: Vec<&[u8]> = known.iter().filter_map(|copy| copy.bytes.as_deref()).collect();
        if bytes.is_empty() {
            return Ok(Some(PassCounts { unreadable: length.0, ..PassCounts::default() }));
        }
        let mut window = PassCounts::default();
        let mut failures: Vec<Failure> = Vec::new();
        if bytes.len() == 1 && unread.is_empty() {
            window.skipped = length.0;
            return Ok(Some(window));
        }
        let of_sector =
            |sector: usize| blame::copy_fault(&bytes.iter().map(|copy| of(copy, sector)).collect::<Vec<_>>());
        // Nearly always all is equal.
        let agree = bytes.iter().all(|copy| *copy == bytes[0]);
        let judged = if agree { Vec::new() } else { runs(length, of_sector) };
        let content = judged_content(&bytes, &judged);
        for (run, fault) in judged {
            if fault.differing.is_empty() {
                continue;
            }
            let (start, count) = (Sectors(run.start as u64), run.len() as u64);
            let differing: Vec<&Found> = fault.differing.iter().map(|index| known[index.index()]).collect();
            window.mismatched += count;
            let failed_before = failures.len();
            for copy in differing.iter().filter(|_| repairs) {
                let right = &bytes[fault.kept][bytes_of(&run)];
                let failed = self.shared.write_block(copy.slot, copy.at + start, right).await;
                window.corrected += if failed.is_empty() { count } else { 0 };
                failures.extend(failed);
            }
            let is_corrected = repairs && failures.len() == failed_before;
            self.note_copies(&fault, &differing, sector + start, Sectors(count), is_corrected, start);
        }
        if repairs || window.mismatched == 0 {
            for copy in &unread {
                let failed = self.shared.write_block(copy.slot, copy.at, &content).await;
                window.note_healed(length, &failed);
                failures.extend(failed);
            }
        } else {
            window.lacking += length.0 * unread.len() as u64;
        }
        window.failed += self.settle_pass(&failures).await?;
        Ok(Some(window))
    }

    fn note_copies(
        &self,
        fault: &CopyFault,
        differing: &[&Found],
        sector: ArraySector,
        count: Sectors,
        is_corrected: bool,
        start: Sectors,
    ) {
        mark::hit(if fault.is_known { Mark::CheckNamed } else { Mark::CheckFound });
        let (slots, at) = (differing.iter().map(|copy| copy.slot).collect(), differing[0].at + start);
        self.findings.borrow_mut().add(Mismatch {
            sector,
            length: count,
            at,
            count,
            slots,
            is_known: fault.is_known,
            is_corrected,
        });
    }

    /// `repairs`: writes what disagrees. `None`: something could not be read, and the piece is more than one sector.
    pub(in crate::pass) async fn check_rows(
        &self,
        order: &PassOrder,
        rows: &RowIo<W>,
        piece: Window,
        repairs: bool,
    ) -> Result<Option<PassCounts>, IoError> {
        let (at, length) = (MemberSector(piece.at), piece.length);
        let usable = self.shared.with_view(|view| view.readable());
        let found = self.read_window_but(order.unreadable, usable.iter().map(|slot| (slot, at)), length).await?;
        if length.0 > 1 && is_to_repeat(order, &found) {
            return Ok(None);
        }
        let chunk = self.shared.layout().chunk().0;
        let mut window = PassCounts::default();
        let mut start = 0;
        while start < length.0 {
            let member = at.0 + start;
            let cut = Sectors((chunk - member % chunk).min(length.0 - start));
            assert!(!cut.is_zero() && start + cut.0 <= length.0, "a step goes on, inside the window");
            let map = rows.layout().row(Row(member / chunk));
            let stretch = RowStretch { at, start: Sectors(start), length: cut };
            window.add(self.check_row(repairs, &map, &found, &stretch).await?);
            start += cut.0;
        }
        Ok(Some(window))
    }

    /// The part of a window that lies in one row.
    async fn check_row(
        &self,
        repairs: bool,
        map: &RowMap,
        found: &[Found],
        stretch: &RowStretch,
    ) -> Result<PassCounts, IoError> {
        let length = stretch.length;
        let unread: SlotSet = found.iter().filter(|block| block.bytes.is_none()).map(|block| block.slot).collect();
        let mut computed = Vec::new();
        let Some(blocks) = row_blocks(map, found, stretch, &mut computed) else {
            // More is lost than parity can compute.
            let lost = if unread.is_empty() { 0 } else { length.0 };
            return Ok(PassCounts { unreadable: lost, skipped: length.0 - lost, ..PassCounts::default() });
        };
        let at = stretch.at + stretch.start;
        if !unread.is_empty() && self.shared.unsynced.touches(at, length) {
            // What parity gives for them need not be what they were.
            return Ok(PassCounts { unreadable: length.0, ..PassCounts::default() });
        }
        let mut window = PassCounts::default();
        if blocks.compared.p.is_none() && blocks.compared.q.is_none() && unread.is_empty() {
            window.skipped = length.0;
            return Ok(window);
        }
        let mut failures = Vec::new();
        // Nearly always all agrees: then nothing is copied.
        if !blocks.agree() {
            let differences = blocks.differences();
            let of_sector = |sector: usize| blame::row_fault(differences.of(sector), &map.exponents);
            for (run, fault) in runs(length, of_sector).into_iter().filter(|(_, fault)| *fault != RowFault::Nothing) {
                window.mismatched += run.len() as u64;
                let right = if repairs { blocks.repaired(map, &differences, fault, &run) } else { Vec::new() };
                let failed_before = failures.len();
                for (slot, right) in &right {
                    let failed = self.shared.write_block(*slot, at + Sectors(run.start as u64), right).await;
                    window.corrected += if failed.is_empty() { run.len() as u64 } else { 0 };
                    failures.extend(failed);
                }
                self.note_row(map, fault, at, &run, !right.is_empty() && failures.len() == failed_before);
            }
        }
        if !unread.is_empty() && (repairs || window.mismatched == 0) {
            for (slot, right) in blocks.unread(map, unread) {
                let failed = self.shared.write_block(slot, at, right).await;
                window.note_healed(length, &failed);
                failures.extend(failed);
            }
        } else {
            window.lacking += length.0 * unread.count() as u64;
        }
        window.failed += self.settle_pass(&failures).await?;
        Ok(window)
    }

    fn note_row(&self, map: &RowMap, fault: RowFault, at: MemberSector, run: &Range<usize>, is_corrected: bool) {
        let (chunk, across) = (self.shared.layout().chunk().0, map.data.len() as u64);
        let (at, count) = (at + Sectors(run.start as u64), Sectors(run.len() as u64));
        let (row, offset) = (at.0 / chunk, at.0 % chunk);
        let all = (ArraySector(row * across * chunk), Sectors(across * chunk));
        let q = |is: bool| map.syndrome.filter(|_| is);
        let ((sector, length), slots, is_known): (_, SlotSet, bool) = match fault {
            RowFault::Nothing => return,
            RowFault::Parity => (all, SlotSet::from_iter([map.parity]), true),
            RowFault::Syndrome => (all, map.syndrome.into_iter().collect(), true),
            RowFault::Data(block) => {
                let own = (ArraySector((row * across + block as u64) * chunk + offset), count);
                (own, SlotSet::from_iter([map.data[block]]), true)
            }
            RowFault::Unknown { p, q: syndrome } => {
                (all, Some(map.parity).filter(|_| p).into_iter().chain(q(syndrome)).collect(), false)
            }
        };
        mark::hit(if is_known { Mark::CheckNamed } else { Mark::CheckFound });
        self.findings.borrow_mut().add(Mismatch { sector, length, at, count, slots, is_known, is_corrected });
    }
}

/// The stretch's blocks, with those that are lost computed from P and Q into `computed`. `None`: too many are lost.
fn row_blocks<'a>(
    map: &RowMap,
    found: &'a [Found],
    stretch: &RowStretch,
    computed: &'a mut Vec<Vec<u8>>,
) -> Option<RowBlocks<'a>> {
    let range = stretch.start.len_bytes()..(stretch.start + stretch.length).len_bytes();
    let bytes_in = |slot: Slot| -> Option<&'a [u8]> {
        let bytes = found.iter().find(|block| block.slot == slot).and_then(|block| block.bytes.as_ref())?;
        Some(&bytes[range.clone()])
    };
    let data: Vec<Option<&[u8]>> = map.data.iter().map(|slot| bytes_in(*slot)).collect();
    let (p, q) = (bytes_in(map.parity), map.syndrome.and_then(bytes_in));
    let lost: Vec<usize> = (0..data.len()).filter(|index| data[*index].is_none()).collect();
    if lost.len() > usize::from(p.is_some()) + usize::from(q.is_some()) {
        return None;
    }
    let mut compared = RowDifferences { p, q };
    match (lost.as_slice(), p) {
        ([], _) => {}
        ([_], Some(p)) => {
            let mut one = vec![0; range.len()];
            let others: Vec<&[u8]> = data.iter().flatten().copied().chain([p]).collect();
            generate_p(&mut one, &others);
            computed.push(one);
            compared.p = None;
        }
        (_, p) => {
            *computed = recovered(map, &data, &lost, (p, q));
            compared = RowDifferences { p: None, q: None };
        }
    }
    let mut others = computed.iter();
    let data: Vec<&[u8]> = data
        .into_iter()
        .map(|block| block.or_else(|| others.next().map(Vec::as_slice)).expect("each lost block was computed"))
        .collect();
    let right = parity_of(map, &data);
    Some(RowBlocks { data, compared, right, computed: lost })
}

/// The lost data blocks, computed from Q, or from P and Q.
fn recovered(
    map: &RowMap,
    data: &[Option<&[u8]>],
    lost: &[usize],
    (p, q): (Option<&[u8]>, Option<&[u8]>),
) -> Vec<Vec<u8>> {
    let length = p.or(q).expect("a parity is left").len();
    let mut all: Vec<Vec<u8>> =
        data.iter().map(|block| block.map_or_else(|| vec![0; length], <[u8]>::to_vec)).collect();
    let (mut p, mut q) = (p.map(<[u8]>::to_vec), q.map(<[u8]>::to_vec));
    {
        let mut blocks: Vec<&mut [u8]> = all.iter_mut().map(|block| &mut block[..]).collect();
        let row = uraid_parity::Row {
            data: &mut blocks,
            exponents: &map.exponents,
            p: p.as_deref_mut(),
            q: q.as_deref_mut(),
        };
        recover(row, &Lost { data: lost, p: false, q: false }).expect("what is lost was counted");
    }
    all.into_iter().enumerate().filter(|(index, _)| lost.contains(index)).map(|(_, block)| block).collect()
}

/// The differences of a whole stretch.
struct Differences {
    p: Option<Vec<u8>>,
    q: Option<Vec<u8>>,
}

impl Differences {
    fn of(&self, sector: usize) -> RowDifferences<'_> {
        let part = |bytes: &'_ Option<Vec<u8>>| -> Option<Range<usize>> {
            bytes.as_ref().map(|_| sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES)
        };
        RowDifferences {
            p: part(&self.p).and_then(|range| self.p.as_ref().map(|bytes| &bytes[range])),
            q: part(&self.q).and_then(|range| self.q.as_ref().map(|bytes| &bytes[range])),
        }
    }
}

impl RowBlocks<'_> {
    fn agree(&self) -> bool {
        let is_right = |found: Option<&[u8]>, right: &[u8]| found.is_none_or(|found| found == right);
        is_right(self.compared.p, &self.right.0) && is_right(self.compared.q, &self.right.1)
    }

    fn differences(&self) -> Differences {
        let difference = |found: Option<&[u8]>, right: &[u8]| {
            found.map(|found| {
                let mut difference = found.to_vec();
                xor_into(&mut difference, right);
                difference
            })
        };
        Differences { p: difference(self.compared.p, &self.right.0), q: difference(self.compared.q, &self.right.1) }
    }

    /// What a repair writes in a run of sectors with the same fault.
    fn repaired(
        &self,
        map: &RowMap,
        differences: &Differences,
        fault: RowFault,
        run: &Range<usize>,
    ) -> Vec<(Slot, Vec<u8>)> {
        let range = bytes_of(run);
        let p = || (map.parity, self.right.0[range.clone()].to_vec());
        let q = || (map.syndrome.expect("Q was compared"), self.right.1[range.clone()].to_vec());
        match fault {
            RowFault::Nothing => Vec::new(),
            RowFault::Parity => vec![p()],
            RowFault::Syndrome => vec![q()],
            RowFault::Data(block) => {
                let mut right = self.data[block][range.clone()].to_vec();
                xor_into(&mut right, &differences.p.as_ref().expect("both were compared")[range.clone()]);
                vec![(map.data[block], right)]
            }
            RowFault::Unknown { p: of_p, q: of_q } => of_p.then(p).into_iter().chain(of_q.then(q)).collect(),
        }
    }

    /// The blocks of this row that a member could not read, with their content as computed from the others.
    fn unread(&self, map: &RowMap, unread: SlotSet) -> impl Iterator<Item = (Slot, &[u8])> {
        let data = self.computed.iter().map(|index| (map.data[*index], self.data[*index]));
        let p = std::iter::once((map.parity, self.right.0.as_slice()));
        let q = map.syndrome.into_iter().map(|slot| (slot, self.right.1.as_slice()));
        data.chain(p).chain(q).filter(move |(slot, _)| unread.contains(*slot))
    }
}

/// What a copy that could not be read gets: in each run of sectors the copy that was judged right there.
///
/// ```text
///   sector          0   1   2   3   4   5   6 ...        slot 0 is wrong in sector 5 only: sectors 0 to 4
///   slot 0          a   b   c   d   e   X   g            are those of any, 5 is that of slots 1 and 2
///   slots 1, 2      a   b   c   d   e   f   g
///   slot 3 gets     a   b   c   d   e   f   g
/// ```
fn judged_content<'a>(copies: &[&'a [u8]], judged: &[(Range<usize>, CopyFault)]) -> Cow<'a, [u8]> {
    // Without runs all copies are equal.
    let mut content = Cow::Borrowed(copies[0]);
    for (run, fault) in judged.iter().filter(|(_, fault)| fault.kept != 0) {
        content.to_mut()[bytes_of(run)].copy_from_slice(&copies[fault.kept][bytes_of(run)]);
    }
    content
}

fn of(bytes: &[u8], sector: usize) -> &[u8] {
    &bytes[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES]
}

fn bytes_of(run: &Range<usize>) -> Range<usize> {
    run.start * SECTOR_BYTES..run.end * SECTOR_BYTES
}

/// Splits `length` sectors into runs for which `of_sector` gives the same answer.
fn runs<T: Copy + PartialEq>(length: Sectors, of_sector: impl Fn(usize) -> T) -> Vec<(Range<usize>, T)> {
    let mut runs: Vec<(Range<usize>, T)> = Vec::new();
    for sector in 0..length.0 as usize {
        let answer = of_sector(sector);
        match runs.last_mut() {
            Some((run, last)) if *last == answer => run.end = sector + 1,
            Some(_) | None => runs.push((sector..sector + 1, answer)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way in which up to four copies can differ in a window of four sectors, each of which holds one of two
    /// contents, or in the first copy of three: whoever could not be read gets, sector by sector, what the copies that were read are made to hold.
    #[test]
    fn a_copy_that_was_not_read_gets_what_was_judged_for_each_of_its_sectors() {
        const SECTORS: usize = 4;
        let sectors = Sectors(SECTORS as u64);
        let contents = |copy: usize| if copy == 0 { 3 } else { 2usize };
        let mut windows = 0;
        for count in 1..=4 {
            let kinds: usize = (0..count).map(|copy| contents(copy).pow(SECTORS as u32)).product();
            for kind in 0..kinds {
                let mut rest = kind;
                let mut take = |of: usize| {
                    let digit = rest % of;
                    rest /= of;
                    digit as u8
                };
                let copies: Vec<Vec<u8>> = (0..count)
                    .map(|copy| (0..SECTORS).flat_map(|_| [take(contents(copy)); SECTOR_BYTES]).collect())
                    .collect();
                let copies: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
                let fault_of =
                    |sector| blame::copy_fault(&copies.iter().map(|copy| of(copy, sector)).collect::<Vec<_>>());
                let content = judged_content(&copies, &runs(sectors, fault_of));
                for sector in 0..SECTORS {
                    let right = of(copies[fault_of(sector).kept], sector);
                    assert!(of(&content, sector) == right, "sector {sector} of {copies:?}");
                }
                windows += 1;
            }
        }
        assert_eq!(windows, 81 * (1 + 16 + 256 + 4096));
    }
}
