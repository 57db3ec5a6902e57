//! What is wrong where copies, or parity and data, disagree: decided for one sector.
//! Owns: [`RowFault`], [`CopyFault`], and the two decisions. Not here: reading and writing (`resync`), the arithmetic
//! that finds the wrong block of a raid6 row (`uraid_parity::locate`).
//! Invariant: a block is called wrong only where more than half of what could be compared contradicts it. Elsewhere
//! md's choice of the block to keep is followed, and no block is called wrong.
//!
//! ```text
//!   copies    two                       they differ                 unknown, the canonical one counts
//!             three or more             more than half are equal    the others are wrong
//!   rows      one parity compared       it differs                  unknown, the data counts
//!             P and Q compared          one of them differs         that one is wrong: the other agrees with all data
//!                                       both, by one data block     that block is wrong
//!                                       both, otherwise             unknown, the data counts
//! ```

use uraid_block::SlotSet;
use uraid_parity::locate;

/// What is wrong in one sector of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowFault {
    Nothing,
    /// P.
    Parity,
    /// Q.
    Syndrome,
    /// This data block.
    Data(usize),
    /// It cannot be known which block is wrong. The fields: whether P, and whether Q, differs from what the data gives.
    Unknown {
        p: bool,
        q: bool,
    },
}

/// How P and Q as they were read differ from what the data gives; `None`: not compared.
#[derive(Clone, Copy)]
pub(crate) struct RowDifferences<'a> {
    pub(crate) p: Option<&'a [u8]>,
    pub(crate) q: Option<&'a [u8]>,
}

/// `exponents` are those of the data blocks in Q.
pub(crate) fn row_fault(differences: RowDifferences<'_>, exponents: &[u8]) -> RowFault {
    let differs = |of: Option<&[u8]>| of.is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
    let (p, q) = (differs(differences.p), differs(differences.q));
    match (differences.p, differences.q) {
        _ if !p && !q => RowFault::Nothing,
        (Some(_), Some(_)) if !q => RowFault::Parity,
        (Some(_), Some(_)) if !p => RowFault::Syndrome,
        (Some(of_p), Some(of_q)) => match locate(of_p, of_q, exponents) {
            Some(block) => RowFault::Data(block),
            None => RowFault::Unknown { p, q },
        },
        (Some(_), None) | (None, Some(_)) | (None, None) => RowFault::Unknown { p, q },
    }
}

/// Which of the copies of a sector counts, by its index, and which differ from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyFault {
    pub(crate) kept: usize,
    /// Indexes of copies, not slots.
    pub(crate) differing: SlotSet,
    /// Whether the differing ones are known to be wrong.
    pub(crate) is_known: bool,
}

/// Decides for one sector. `copies` are those that could be read, the canonical one first.
pub(crate) fn copy_fault(copies: &[&[u8]]) -> CopyFault {
    assert!(!copies.is_empty(), "a copy counts");
    let agreeing = |copy: &[u8]| copies.iter().filter(|other| **other == copy).count();
    let majority = copies.iter().position(|copy| agreeing(copy) * 2 > copies.len());
    let kept = majority.unwrap_or(0);
    let differs = |index: &usize| copies[*index] != copies[kept];
    let differing: SlotSet = (0..copies.len()).filter(differs).map(|index| uraid_block::Slot(index as u16)).collect();
    CopyFault { kept, differing, is_known: majority.is_some() && !differing.is_empty() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Slot;

    #[test]
    fn copies_are_judged_by_the_majority_and_else_by_the_first() {
        for (copies, kept, differing, is_known) in [
            ("a", 0, "", false),
            ("aa", 0, "", false),
            ("ab", 0, "1", false),
            ("aaa", 0, "", false),
            ("aab", 0, "2", true),
            ("baa", 1, "0", true),
            ("abc", 0, "12", false),
            ("abab", 0, "13", false),
            ("baaa", 1, "0", true),
            ("bacaa", 1, "02", true),
        ] {
            let bytes: Vec<&[u8]> = copies.as_bytes().chunks(1).collect();
            let differing = differing.bytes().map(|digit| Slot(u16::from(digit - b'0'))).collect();
            assert_eq!(copy_fault(&bytes), CopyFault { kept, differing, is_known }, "{copies}");
        }
    }

    #[test]
    fn rows_are_judged_by_both_parities() {
        let none: Option<&[u8]> = None;
        let (zero, one): (Option<&[u8]>, Option<&[u8]>) = (Some(&[0, 0]), Some(&[0, 1]));
        let unknown = |p, q| RowFault::Unknown { p, q };
        let (doubled, mixed): (Option<&[u8]>, Option<&[u8]>) = (Some(&[0, 2]), Some(&[9, 2]));
        for (p, q, expected) in [
            (none, none, RowFault::Nothing),
            (zero, none, RowFault::Nothing),
            (none, zero, RowFault::Nothing),
            (zero, zero, RowFault::Nothing),
            (one, none, unknown(true, false)),
            (none, one, unknown(false, true)),
            (one, zero, RowFault::Parity),
            (zero, one, RowFault::Syndrome),
            (one, one, RowFault::Data(0)),
            (one, doubled, RowFault::Data(1)),
            (one, mixed, unknown(true, true)),
        ] {
            assert_eq!(row_fault(RowDifferences { p, q }, &[0, 1, 2]), expected, "{p:?} {q:?}");
        }
    }
}
