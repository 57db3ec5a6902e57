//! New arrays for the tests of this crate.
//! Owns: claiming their members, the plan to start them by. Not here: running them.

use uraid_block::Sectors;
use uraid_engine::{AssembleOptions, Candidate, StartPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_host::{Access, Claimed};
use uraid_layout::Level;

/// `count` members like `member`, which is `mem:SIZE` or `null:SIZE`.
pub(crate) fn claimed(member: &str, count: u16) -> Vec<Claimed> {
    (0..count).map(|_| Claimed::open(member, Access::ReadWrite).expect("claimed")).collect()
}

/// A new array over `count` members of this size.
pub(crate) fn plan(level: Level, chunk: Sectors, count: u16, member_size: Sectors) -> StartPlan {
    let options = CreateOptions { chunk, assume_clean: true, ..CreateOptions::new(level, count, [7; 16]) };
    let devices: Vec<NewMember> =
        (0..count).map(|n| NewMember::Device { size: member_size, uuid: [n as u8 + 1; 16] }).collect();
    let superblocks = create(&options, &devices).expect("the options are right").superblocks;
    let candidates: Vec<Candidate> =
        superblocks.into_iter().flatten().map(|superblock| Candidate::new(superblock, member_size)).collect();
    assemble(&candidates, &AssembleOptions::default()).expect("a new array assembles")
}
