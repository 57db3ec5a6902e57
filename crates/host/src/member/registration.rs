//! The list of this process's claims.
//! Owns: [`Identity`], [`Registration`]. Not here: what excludes other processes (`locks`).
//! Invariant: each byte of an identity has at most one claim.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The inode or device that a member is or lies in. Two names of one file are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// The device that the file is on, or the block device itself.
    pub device: u64,
    /// The inode on it; 0 for a block device.
    pub inode: u64,
}

/// An entry in the list of claims, removed on drop.
pub(super) struct Registration {
    identity: Identity,
    start: u64,
}

/// From identity and first byte to the byte after the last one, and the claim's name.
type Claims = BTreeMap<(Identity, u64), (u64, String)>;

static CLAIMS: Mutex<Claims> = Mutex::new(BTreeMap::new());

impl Registration {
    /// Registers these bytes. Fails with the name of a claim that overlaps.
    pub(super) fn new(identity: Identity, bytes: std::ops::Range<u64>, name: &str) -> Result<Registration, String> {
        let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
        let same_file = claims.range((identity, 0)..=(identity, u64::MAX));
        for (&(_, start), (end, claimed_as)) in same_file {
            // Two claims with the same start conflict, even if one of them is empty.
            if start == bytes.start || (start < bytes.end && bytes.start < *end) {
                return Err(claimed_as.clone());
            }
        }
        claims.insert((identity, bytes.start), (bytes.end, name.to_owned()));
        Ok(Registration { identity, start: bytes.start })
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).remove(&(self.identity, self.start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All nonempty ranges within the bytes 0..5.
    fn ranges() -> Vec<std::ops::Range<u64>> {
        (0..5).flat_map(|start| (start + 1..=5).map(move |end| start..end)).collect()
    }

    #[test]
    fn overlapping_claims_of_one_identity_are_refused_for_every_pair_of_ranges() {
        let identity = |inode| Identity { device: u64::MAX - 7, inode };
        let overlap = |a: &std::ops::Range<u64>, b: &std::ops::Range<u64>| a.start < b.end && b.start < a.end;
        for first in ranges() {
            for second in ranges() {
                let one = Registration::new(identity(1), first.clone(), "one").expect("nothing is claimed");
                let two = Registration::new(identity(1), second.clone(), "two");
                assert_eq!(two.as_ref().err(), overlap(&first, &second).then(|| "one".to_owned()).as_ref());
                for third in ranges() {
                    let expected = overlap(&first, &third) || (two.is_ok() && overlap(&second, &third));
                    let three = Registration::new(identity(1), third.clone(), "three");
                    assert_eq!(three.is_err(), expected, "{first:?}, {second:?}, then {third:?}");
                    assert!(Registration::new(identity(2), third, "another file").is_ok());
                }
                drop(one);
                let again = Registration::new(identity(1), first.clone(), "again");
                assert_eq!(again.is_err(), two.is_ok() && overlap(&first, &second), "what was given up is free");
            }
        }
    }
}
