//! Historical bugs of other systems that lost data, reintroduced one by one: the simulator must find each.
//! Owns: [`ENTRIES`]: the bug, the canary that reintroduces it, the check that must find it; `hunt`. Not here: the canaries
//! themselves (`tests/canaries/engine.txt`), past mistakes of this engine (`tests/own_mistakes.rs`).
//! Invariant: such a canary is written from the bug's description, without regard to the checkers.
//! Spec: docs/reliability.md#historical-bugs, whose numbers these are.

use crate::proof::fleet::run_seeds;
use crate::scenario::Options;

/// One bug.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its number in docs/reliability.md.
    pub id: &'static str,
    /// The system, and what went wrong.
    pub description: &'static str,
    /// The canary that reintroduces it.
    pub canary: &'static str,
    /// Texts that identify the checkers that may find it first.
    pub finders: &'static [&'static str],
}

/// The first finding of a bug.
#[derive(Clone, Debug)]
pub struct Find {
    /// The first seed that found it.
    pub seed: u64,
    /// The text of the finding.
    pub found: String,
}

/// The bugs.
pub const ENTRIES: [Entry; 14] = [
    Entry {
        id: "R1",
        description: "md raid10 of December 2020 discarded the second near copy from the start of its chunk: up to a \
                      chunk before the range was lost on it (md: d30588b2731f; Launchpad 1907262)",
        canary: "DiscardFromChunk",
        finders: &["I8", "I1"],
    },
    Entry {
        id: "R2",
        description: "md raid0 from 3.14 on computed all zones but the first by another layout than before: members of \
                      different sizes were read in the wrong order after an upgrade (md: b1ae671c)",
        canary: "Raid0OtherZones",
        finders: &["I8", "I1", "crash", "M2", "after"],
    },
    Entry {
        id: "R2, discard",
        description: "md raid0 discards went by the 'alternate' layout whatever the array had: discarding freed the \
                      wrong chunks of other zones (md: e836007089ba, 2023)",
        canary: "Raid0DiscardOtherZones",
        finders: &["I8", "I1"],
    },
    Entry {
        id: "R3",
        description: "md and mdadm take a member whose events are one behind. A RAID6 member that had been faulty for \
                      20 minutes came back that way, and a resync wrote parity from its stale data (linux-raid, 58c1e75d)",
        canary: "EventsSlack",
        finders: &["M2", "crash", "I1", "I6", "M6"],
    },
    Entry {
        id: "R4",
        description: "raid1 answered a write that one leg missed although no superblock could record it; after a \
                      restart the old leg was copied over the new one (md: e0185f09; ublkpp 0.32.12)",
        canary: "SkipRecord",
        finders: &["M2", "crash", "I1", "after", "M6"],
    },
    Entry {
        id: "R6",
        description: "degraded raid4/5/6 returned zeroes: a completion overwrote an error with success (md: 033d5ac6)",
        canary: "ZeroesForError",
        finders: &["I1", "I7"],
    },
    Entry {
        id: "R11",
        description: "md rounded a write of its bitmap up to the optimal I/O size of the disk, past the bitmap's end \
                      and the memory that held it (md: 4274abe8)",
        canary: "BitmapPastEnd",
        finders: &["I9", "I8"],
    },
    Entry {
        id: "R17",
        description: "the client changes its buffer during an O_DIRECT write: mirrors that each read the buffer for \
                      themselves differ from then on (kernel bugzilla 99171, open since 2015)",
        canary: "BufferChanges",
        finders: &["I1", "M2", "crash", "after", "I6"],
    },
    Entry {
        id: "R18",
        description: "raid10's new far layout could put both copies of a chunk on one disk (md: 8bce6d35b308)",
        canary: "CopiesTogether",
        finders: &["I8", "I9", "M2", "crash", "I1", "after"],
    },
    Entry {
        id: "R23, determinism",
        description: "after a crash two reads of one sector took turns between legs that differed (ublkpp 290)",
        canary: "NonCanonicalRead",
        finders: &["I1"],
    },
    Entry {
        id: "R23, stop in resync",
        description: "an array that was stopped during its resync could not be assembled again (ublkpp 300)",
        canary: "StopSplits",
        finders: &["D1", "cannot be assembled", "crash", "M2"],
    },
    Entry {
        id: "R23, capacity",
        description: "the device was larger than what its members hold: the last sectors could not be read (ublkpp)",
        canary: "SizePastEnd",
        finders: &["C14"],
    },
    Entry {
        id: "R27",
        description: "a raid5 or raid6 that is dirty and degraded must be refused: what its missing member held would \
                      be computed from parity that the crash left half written (Documentation/admin-guide/md.rst)",
        canary: "StartDirtyDegraded",
        finders: &["I4", "M2", "crash"],
    },
    Entry {
        id: "A8",
        description: "a member that fails one flush says yes to the next although its writes are gone; a flush of \
                      another client was answered over the failure (PostgreSQL's fsync surprise, 2018)",
        canary: "FlushTogether",
        finders: &["M2", "crash", "I1"],
    },
];

/// The number of seeds within which each bug must be found. The rarest occurs once in 2,000 seeds, which take ten
/// seconds in release on two cores.
pub const SEEDS_MAX: u64 = 6_000;

/// The first finding among [`SEEDS_MAX`] seeds, on two threads.
pub fn hunt(entry: &Entry) -> Option<Find> {
    const STEP: u64 = 20;
    let choose = || uraid_engine::canary::set(Some(entry.canary));
    (0..SEEDS_MAX).step_by(STEP as usize).find_map(|start| {
        // Use the faults under which the bugs were found. With hangs, the seeds would find a hang instead.
        let options = Options { never_hangs: true, ..Options::default() };
        let sum = run_seeds(start..(start + STEP).min(SEEDS_MAX), 2, options, choose);
        let (seed, found) = sum.failures.into_iter().next()?;
        let found = found.split_once(") ").map_or(found.as_str(), |(_, found)| found);
        Some(Find { seed, found: found.lines().next().unwrap_or_default().to_string() })
    })
}
