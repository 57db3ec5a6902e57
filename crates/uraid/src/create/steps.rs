//! The writes that make an array, in order, and running them.
//! Owns: the order of wipes, first writes and syncs over all members. Not here: which old signatures are wiped (the
//! parent), bytes (`uraid_format::create`).
//! Invariant: no new superblock is written before every old one is durably gone, so a crash in between leaves members
//! without an array, never two arrays. A superblock is written only after everything that it points to is durable.

use uraid_block::{IoError, Range, SECTOR_BYTES, Sector};
use uraid_format::Superblock;
use uraid_format::bitmap::BitmapImage;
use uraid_format::create::writes;
use uraid_host::Claimed;

/// What is done to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Zeroes over an old signature.
    Wipe(Range),
    /// A part of the new metadata.
    Write(Sector, Vec<u8>),
    /// Makes everything written so far durable.
    Sync,
}

/// One step of making an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Its index among the members that are there.
    pub member: usize,
    /// What is done to it.
    pub what: What,
    /// Whether it belongs to the first round, which wipes the old signatures.
    pub is_wipe: bool,
}

impl Step {
    /// For messages.
    pub(crate) fn action(&self) -> &'static str {
        if self.is_wipe { "wiping the old metadata" } else { "writing the superblock" }
    }
}

/// A member's new content: the old signatures to wipe, the superblock to write.
pub(crate) struct NewContent<'a> {
    /// The places of the old marks.
    pub marks: Vec<Range>,
    /// Its new superblock.
    pub superblock: &'a Superblock,
    /// The array's bitmap, if it has one.
    pub bitmap: Option<&'a BitmapImage>,
}

/// All steps, in order.
pub(crate) fn steps(members: &[NewContent<'_>]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (member, content) in members.iter().enumerate() {
        let wipes = content.marks.iter().map(|mark| What::Wipe(*mark)).chain([What::Sync]);
        steps.extend(wipes.map(|what| Step { member, what, is_wipe: true }));
    }
    for (member, content) in members.iter().enumerate() {
        let parts = writes(content.superblock, content.bitmap).into_iter();
        let parts = parts.flat_map(|(at, bytes)| [What::Write(at, bytes), What::Sync]);
        steps.extend(parts.map(|what| Step { member, what, is_wipe: false }));
    }
    steps
}

/// A member to write metadata to.
pub(crate) trait Disk {
    /// Writes bytes from byte `at` on.
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), IoError>;
    /// Makes durable what was written.
    fn sync(&self) -> Result<(), IoError>;
}

impl Disk for &Claimed {
    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        Claimed::write_at(self, at, bytes)
    }

    fn sync(&self) -> Result<(), IoError> {
        Claimed::sync(self)
    }
}

/// Runs all steps, up to the first that fails; returns its index and error.
pub(crate) fn carry_out(steps: &[Step], disks: &[impl Disk]) -> Result<(), (usize, IoError)> {
    for (at, step) in steps.iter().enumerate() {
        let disk = &disks[step.member];
        let outcome = match &step.what {
            What::Wipe(range) => disk.write_at(byte(range.start), &vec![0; range.length.len_bytes()]),
            What::Write(start, bytes) => disk.write_at(byte(*start), bytes),
            What::Sync => disk.sync(),
        };
        outcome.map_err(|error| (at, error))?;
    }
    Ok(())
}

fn byte(at: Sector) -> u64 {
    at.0 * SECTOR_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use uraid_block::{ErrorKind, Sectors};
    use uraid_engine::{AssembleOptions, Candidate, assemble};
    use uraid_format::create::{CreateOptions, Creation, NewMember, NewPolicy, create};
    use uraid_format::signature::{WINDOW_BYTES, detect_all};
    use uraid_format::{SetName, Version, find};
    use uraid_layout::{Level, default_layout};

    const DEVICE: Sectors = Sectors(8192);
    const OLD: [u8; 16] = [1; 16];
    const OLDER: [u8; 16] = [2; 16];
    const NEW: [u8; 16] = [3; 16];

    fn creation(version: Version, level: Level, set_uuid: [u8; 16]) -> Creation {
        let options = CreateOptions {
            version,
            level,
            layout: default_layout(level),
            chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
            raid_disks: 3,
            spare_devices: 0,
            size: None,
            data_offset: None,
            set_uuid,
            set_name: SetName::new("", "test").expect("a short name"),
            // Of two superblocks on a member, the later one is in force.
            now_seconds: 1_700_000_000 + u64::from(set_uuid[0]),
            assume_clean: false,
            force: false,
            policy: NewPolicy::Resync,
        };
        let device = |n: u8| NewMember::Device { size: DEVICE, uuid: [set_uuid[0] << 4 | n; 16] };
        create(&options, &[0, 1, 2].map(device)).expect("an array")
    }

    /// A member's superblock, and the arrays of all superblocks on it. `None`: none.
    type Carried = Option<(Candidate, Vec<[u8; 16]>)>;

    /// A member in memory: its durable bytes, and the writes that are not durable yet.
    #[derive(Default)]
    struct Fake {
        durable: RefCell<Vec<u8>>,
        pending: RefCell<Vec<(usize, Vec<u8>)>>,
    }

    /// A member that fails the n-th of all operations.
    struct Failing<'a> {
        fake: &'a Fake,
        left: &'a Cell<usize>,
    }

    impl Failing<'_> {
        fn count(&self) -> Result<(), IoError> {
            let left = self.left.get().checked_sub(1).ok_or(IoError::from(ErrorKind::Media))?;
            self.left.set(left);
            Ok(())
        }
    }

    impl Disk for Failing<'_> {
        fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
            self.count()?;
            self.fake.pending.borrow_mut().push((at as usize, bytes.to_vec()));
            Ok(())
        }

        fn sync(&self) -> Result<(), IoError> {
            self.count()?;
            let mut durable = self.fake.durable.borrow_mut();
            for (at, bytes) in self.fake.pending.borrow_mut().drain(..) {
                durable[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            Ok(())
        }
    }

    /// Members of an array with superblocks at the end, over those of an older array at other places.
    fn occupied() -> Vec<Fake> {
        let members: Vec<Fake> = (0..3).map(|_| Fake::default()).collect();
        for (version, set_uuid) in [(Version::V1_1, OLDER), (Version::V1_0, OLD)] {
            let creation = creation(version, Level::Raid5, set_uuid);
            for (member, superblock) in members.iter().zip(creation.superblocks.iter().flatten()) {
                let mut bytes = member.durable.borrow_mut();
                bytes.resize(DEVICE.len_bytes(), 0);
                for (at, part) in writes(superblock, None) {
                    bytes[byte(at) as usize..][..part.len()].copy_from_slice(&part);
                }
            }
        }
        members
    }

    fn plan(members: &[Fake], creation: &Creation) -> Vec<Step> {
        let marks = |member: &Fake| {
            let bytes = member.durable.borrow();
            let found = detect_all(&bytes[..WINDOW_BYTES], &bytes[bytes.len() - WINDOW_BYTES..], DEVICE);
            assert_eq!(found.len(), 2, "both old superblocks");
            found.into_iter().map(|mark| mark.extent(DEVICE)).collect()
        };
        let content = members.iter().zip(creation.superblocks.iter().flatten());
        let content = content.map(|(member, superblock)| NewContent { marks: marks(member), superblock, bitmap: None });
        steps(&content.collect::<Vec<_>>())
    }

    /// The arrays on the members after a crash; `kept` tells which unsynced writes survived.
    fn carried(members: &[Fake], kept: impl Fn(usize) -> bool) -> Vec<Carried> {
        let look = |member: &Fake| {
            let mut bytes = member.durable.borrow().clone();
            for (nth, (at, part)) in member.pending.borrow().iter().enumerate() {
                if kept(nth) {
                    bytes[*at..*at + part.len()].copy_from_slice(part);
                }
            }
            let found = find(DEVICE, |at, block| {
                *block = *bytes[byte(at) as usize..].first_chunk().expect("a place on the device");
                Ok::<(), ()>(())
            });
            let found = found.ok()?;
            let superblock = |version: Version| {
                let at = version.location(DEVICE)?;
                let block = bytes[byte(at) as usize..].first_chunk()?;
                Superblock::parse(block, at, DEVICE).ok().map(|superblock| superblock.set_uuid)
            };
            let all = Version::ALL.into_iter().filter_map(superblock).collect();
            Some((Candidate::new(found.superblock, DEVICE), all))
        };
        members.iter().map(look).collect()
    }

    #[test]
    fn whichever_operation_fails_the_members_never_carry_two_arrays_or_half_of_one_that_starts() {
        for level in [Level::Raid0, Level::Raid1, Level::Raid5, Level::Linear] {
            let creation = creation(Version::V1_2, level, NEW);
            let count = plan(&occupied(), &creation).len();
            assert!(count > 3 * (2 + 1 + 4) - 1, "{count} steps");
            for fail_at in 0..=count {
                let members = occupied();
                let steps = plan(&members, &creation);
                let left = Cell::new(fail_at);
                let disks: Vec<Failing<'_>> = members.iter().map(|fake| Failing { fake, left: &left }).collect();
                let outcome = carry_out(&steps, &disks).map_err(|(at, _)| at);
                assert_eq!(outcome, if fail_at < count { Err(fail_at) } else { Ok(()) }, "{level}");
                // A power cut right then: none of the unsynced writes survives, all of them do, or one of the first two
                // does.
                let kept: [&dyn Fn(usize) -> bool; 4] = [&|_| false, &|_| true, &|nth| nth == 0, &|nth| nth == 1];
                for (case, kept) in kept.into_iter().enumerate() {
                    judge(&carried(&members, kept), fail_at == count, &format!("{level} {fail_at} of {count}, {case}"));
                }
            }
        }
    }

    fn judge(carried: &[Carried], is_whole: bool, what: &str) {
        let everywhere: Vec<&[u8; 16]> = carried.iter().flatten().flat_map(|(_, all)| all).collect();
        let (is_old, is_new) = (everywhere.iter().any(|id| **id != NEW), everywhere.iter().any(|id| **id == NEW));
        assert!(!(is_old && is_new), "{what}: old superblocks beside new ones");
        let candidates: Vec<Candidate> = carried.iter().flatten().map(|(candidate, _)| candidate.clone()).collect();
        let started = assemble(&candidates, &AssembleOptions::default()).map(|plan| plan.template.set_uuid);
        match started {
            Ok(id) => assert!(candidates.len() == 3 && (id == NEW) == is_new, "{what}"),
            Err(_) => assert!(!is_whole, "{what}: the new array does not start"),
        }
        assert!(!is_whole || is_new, "{what}");
    }

    #[test]
    fn the_first_new_byte_comes_after_the_last_old_superblock_is_durably_gone() {
        let members = occupied();
        let steps = plan(&members, &creation(Version::V1_2, Level::Raid5, NEW));
        let first_write = steps.iter().position(|step| matches!(step.what, What::Write(..))).expect("writes");
        let (wipes, rest) = steps.split_at(first_write);
        for member in 0..3 {
            let of_member = wipes.iter().filter(|step| step.member == member);
            let kinds: Vec<bool> = of_member.map(|step| step.what == What::Sync).collect();
            assert_eq!(kinds, [false, false, true], "two wipes, then a sync");
            let of_member = rest.iter().filter(|step| step.member == member).map(|step| &step.what);
            let [What::Write(list, _), What::Sync, What::Write(own, _), What::Sync] =
                &of_member.collect::<Vec<_>>()[..]
            else {
                panic!("a list, a superblock, a sync behind each")
            };
            assert_eq!((list.0, own.0), (24, 8));
        }
        assert!(wipes.iter().all(|step| step.is_wipe) && !rest.iter().any(|step| step.is_wipe));
    }
}
