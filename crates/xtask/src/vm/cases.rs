//! The arrays of the matrix, in its short and its full form, and their distribution over boots.
//! Owns: which level, layout, size and metadata; what each can miss. Not here: what is done with them (`matrix`).
//! Invariant: no two arrays of one form have the same `id`; a batch has one kernel and fits one machine.

use super::kernel::Release;
use std::path::{Path, PathBuf};

/// A block of its second member is corrupted before it reaches the guest: if the kernel finds no mismatch there, its
/// check proves nothing.
pub(crate) const CANARY_ID: &str = "canary";

/// With more disks than this, the guest's boot slows down disproportionately.
const DISKS_MAX: usize = 80;

const MIB: u64 = 1 << 20;

/// The first MiB is for metadata; what remains is eight chunks of 64 KiB, more than a rotation of six members. The guest's
/// processor is emulated: every byte more costs time in every set of lost members.
const MEMBER_BYTES: u64 = 3 * MIB / 2;

/// One array of the matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    /// Names its disks in the guest: at most 12 characters.
    pub(crate) id: String,
    /// As `--level` takes it.
    pub(crate) level: &'static str,
    /// As `--layout` takes it; empty where the level has none.
    pub(crate) layout: &'static str,
    /// As `--metadata` takes it. 0.90 goes only from the kernel to us.
    pub(crate) metadata: &'static str,
    /// How many members it has.
    pub(crate) members: usize,
    /// It survives the loss of any set of this many members; 2 stands for 2 or more.
    pub(crate) tolerates: usize,
    /// The first member's size, bytes.
    pub(crate) bytes: u64,
    /// By how much each member is larger than the one before, bytes.
    pub(crate) step: u64,
}

impl Case {
    fn new(level: &'static str, layout: &'static str, metadata: &'static str, members: usize) -> Case {
        let tolerates = match level {
            "0" | "linear" => 0,
            "1" => members - 1,
            "6" => 2,
            "10" => copies(layout) as usize - 1,
            _ => 1,
        };
        let step = if level == "linear" || (level == "0" && !layout.is_empty()) { MIB } else { 0 };
        let id = format!("r{}{layout}-{metadata}", level.replace("linear", "L"));
        Case { id, level, layout, metadata, members, tolerates: tolerates.min(2), bytes: MEMBER_BYTES, step }
    }

    /// The array whose second member is corrupted.
    pub(crate) fn canary() -> Case {
        Case { id: CANARY_ID.to_string(), ..Case::new("5", "", "1.2", 3) }
    }

    /// Whether it is [`Case::canary`].
    pub(crate) fn is_canary(&self) -> bool {
        self.id == CANARY_ID
    }

    /// Whether uraid also creates this array, for the kernel.
    pub(crate) fn is_ours_too(&self) -> bool {
        self.metadata != "0.90"
    }

    /// The only one of our kernels with the linear level is 6.1; the others are run on `release`.
    pub(crate) fn kernel(&self, release: Release) -> Release {
        if self.level == "linear" { Release::Bookworm } else { release }
    }

    /// The row of the table in which it is counted.
    pub(crate) fn row(&self) -> String {
        let level = if self.level == "linear" { "linear".to_string() } else { format!("raid{}", self.level) };
        format!("{level} {}", self.layout).trim().to_string()
    }

    /// Its images: `maker` is `u` for those that uraid makes, `k` for the kernel's.
    pub(crate) fn images(&self, folder: &Path, maker: &str) -> Vec<PathBuf> {
        (0..self.members).map(|index| folder.join(format!("{maker}-{}-{index}", self.id))).collect()
    }

    /// The size of the image of a slot.
    pub(crate) fn image_bytes(&self, slot: usize) -> u64 {
        self.bytes + self.step * slot as u64
    }

    /// About half of the array's size.
    pub(crate) fn data_bytes(&self) -> u64 {
        let members = self.members as u64;
        let data_members = match self.level {
            "0" | "linear" => members,
            "1" => 1,
            "6" => members - 2,
            "10" => (members / copies(self.layout)).max(1),
            _ => members - 1,
        };
        ((self.bytes - MIB) / 2 / 512 * data_members + 77) * 512
    }

    /// Every single member, and every pair if the array survives the loss of one.
    pub(crate) fn losses(&self) -> Vec<Vec<usize>> {
        let singles = (0..self.members).map(|lost| vec![lost]);
        let pairs = (0..self.members).flat_map(|a| (a + 1..self.members).map(move |b| vec![a, b]));
        match self.tolerates {
            0 => Vec::new(),
            1 => singles.collect(),
            _ => singles.chain(pairs).collect(),
        }
    }

    fn disks(&self) -> usize {
        if self.is_ours_too() { 2 * self.members } else { self.members }
    }
}

/// How many copies a raid10 layout keeps, as its name says.
fn copies(layout: &str) -> u64 {
    layout.get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(1)
}

/// A few levels and metadata versions: what a guest reads within seconds.
pub(crate) fn few() -> Vec<Case> {
    [("1", "", "1.1", 2), ("10", "f2", "1.0", 3), ("5", "", "1.2", 3), ("6", "", "1.0", 4), ("5", "", "0.90", 3)]
        .into_iter()
        .map(|(level, layout, metadata, members)| Case::new(level, layout, metadata, members))
        .collect()
}

/// Every level, the metadata versions in turn.
pub(crate) fn short() -> Vec<Case> {
    [
        ("0", "", "1.0", 3),
        ("1", "", "1.1", 2),
        ("10", "n2", "1.2", 4),
        ("10", "f2", "1.0", 4),
        ("10", "o2", "1.1", 4),
        ("4", "", "1.2", 4),
        ("5", "", "1.0", 4),
        ("6", "", "1.1", 5),
        ("1", "", "0.90", 2),
        ("5", "", "0.90", 4),
        ("6", "", "0.90", 4),
        ("10", "n2", "0.90", 4),
        ("linear", "", "1.0", 3),
        ("linear", "", "1.1", 3),
        ("linear", "", "1.2", 3),
        ("linear", "", "0.90", 3),
    ]
    .into_iter()
    .map(|(level, layout, metadata, members)| Case::new(level, layout, metadata, members))
    .collect()
}

/// Every level and layout of md's that mdadm 4.2 creates by name; raid5's ddf names stand for three of these.
const LAYOUTS: &[(&str, &[&str])] = &[
    ("linear", &[""]),
    ("0", &["original", "alternate"]),
    ("1", &[""]),
    ("4", &[""]),
    ("5", &["left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric", "parity-first", "parity-last"]),
    ("10", &["n2", "n3", "n4", "f2", "f3", "f4", "o2", "o3", "o4"]),
    (
        "6",
        &[
            "left-asymmetric",
            "right-asymmetric",
            "left-symmetric",
            "right-symmetric",
            "parity-first",
            "parity-last",
            "ddf-zero-restart",
            "ddf-N-restart",
            "ddf-N-continue",
            "left-asymmetric-6",
            "right-asymmetric-6",
            "left-symmetric-6",
            "right-symmetric-6",
            "parity-first-6",
        ],
    ),
];

const METADATA: [&str; 3] = ["1.0", "1.1", "1.2"];

/// The full form: every level and layout, 4 to 6 members, metadata 1.0 to 1.2, and 0.90 with 4 members. Each round has
/// every layout once, so a run that ends early has still covered all of them.
pub(crate) fn full() -> Vec<Case> {
    let layouts: Vec<(&str, &str)> =
        LAYOUTS.iter().flat_map(|(level, layouts)| layouts.iter().map(move |layout| (*level, *layout))).collect();
    let mut cases = Vec::new();
    for round in 0..9 {
        for (at, (level, layout)) in layouts.iter().enumerate() {
            // Nine rounds pair every count with every version.
            let metadata = METADATA[(at / 3 + round / 3 + round) % METADATA.len()];
            cases.push(Case::new(level, layout, metadata, 4 + (at + round) % 3));
        }
        if round == 0 {
            // With 0.90, md runs a raid0 of unequal members only if an option of its module is set.
            let old = layouts.iter().filter(|(level, _)| *level != "0");
            cases.extend(old.map(|(level, layout)| Case::new(level, layout, "0.90", 4)));
        }
    }
    for (number, case) in cases.iter_mut().enumerate() {
        case.id = format!("a{number}");
    }
    cases
}

/// What one machine gets.
pub(crate) struct Batch {
    /// The kernel that it boots.
    pub(crate) release: Release,
    /// The arrays, at least one; with the canary they fit.
    pub(crate) cases: Vec<Case>,
}

/// Batches of one kernel each, in the order of their first array; `release` is that of all arrays but linear ones.
pub(crate) fn batches(cases: Vec<Case>, release: Release) -> Vec<Batch> {
    let room = DISKS_MAX - Case::canary().members;
    let mut batches: Vec<Batch> = Vec::new();
    for case in cases {
        let release = case.kernel(release);
        let last = batches.iter_mut().rev().find(|batch| batch.release == release);
        match last {
            Some(batch) if batch.cases.iter().map(Case::disks).sum::<usize>() + case.disks() <= room => {
                batch.cases.push(case);
            }
            _ => batches.push(Batch { release, cases: vec![case] }),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_raid6_of_five_can_lose_five_members_and_ten_pairs() {
        let losses = Case::new("6", "", "1.2", 5).losses();
        assert_eq!(losses.len(), 15);
        assert_eq!(losses[14], [3, 4]);
    }

    #[test]
    fn every_array_has_its_own_name_and_a_place_in_a_machine() {
        for cases in [few(), short(), full()] {
            let ids: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
            assert_eq!(ids.len(), cases.len());
            assert!(ids.iter().all(|id| id.len() <= 12));
            let count = cases.len();
            let batches = batches(cases, Release::Sid);
            assert_eq!(batches.iter().map(|batch| batch.cases.len()).sum::<usize>(), count);
            for Batch { release, cases } in batches {
                assert!(cases.iter().all(|case| case.level == "linear" || release == Release::Sid));
                assert!(cases.iter().all(|case| case.level != "linear" || release == Release::Bookworm));
                assert!(cases.iter().map(Case::disks).sum::<usize>() + 3 <= DISKS_MAX);
            }
        }
    }

    #[test]
    fn the_full_form_has_every_layout_in_every_count_and_version() {
        let layouts: usize = LAYOUTS.iter().map(|(_, layouts)| layouts.len()).sum();
        let cases = full();
        let news: BTreeSet<_> = cases
            .iter()
            .filter(|case| case.is_ours_too())
            .map(|case| (case.level, case.layout, case.members, case.metadata))
            .collect();
        assert_eq!(news.len(), layouts * 9);
        assert_eq!(cases.len(), layouts * 9 + layouts - 2);
    }
}
