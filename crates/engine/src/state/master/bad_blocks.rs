//! The bad-block log of each member, in the state of an array.
//! Owns: the lists, what of them is on the members, the bytes of a log. Not here: which sectors are listed and when
//! (`bad_block_log`), writing a log (`recorder`).
//! Invariant: a member's superblock says that its log counts exactly if its list is not empty.

use super::Master;
use crate::words::bad_blocks::{self, BadBlockList};
use crate::words::log_order::{self, ENTRY_BYTES};
use crate::{MemberPlan, StartPlan};
use std::collections::BTreeMap;
use uraid_block::{Range, Sector};
use uraid_format::Features;
use uraid_format::bad_blocks::BadBlockLog;

/// The log of one member.
#[derive(Clone, Default)]
pub(super) struct MemberLog {
    list: BadBlockList,
    /// What is on the member.
    written: BadBlockLog,
    /// The superblock on the member says that it counts.
    counts: bool,
}

impl MemberLog {
    /// What a start would find.
    fn on_member(&self) -> BadBlockList {
        if self.counts { BadBlockList::from(&self.written) } else { BadBlockList::default() }
    }
}

/// A change of the lists.
pub(crate) enum BadBlocks<'a> {
    /// Members lack these ranges of their devices.
    List(&'a [(usize, Range)]),
    /// A member holds this range again, and it is durable there.
    Clear(usize, Range),
    /// This page of a log is on a member.
    Written(usize, &'a [u8]),
    /// The superblock on a member says whether its log counts.
    Counts(usize, bool),
    /// Each list is what is on its member: the array has frozen.
    AsWritten,
}

/// A log that is to be written to its member.
pub(crate) struct LogPages {
    /// Where it belongs on the device.
    pub(crate) place: Range,
    /// To be written there one after the other, each as long as the place. The last one is the log.
    pub(crate) pages: Vec<Vec<u8>>,
}

pub(super) fn logs(plan: &StartPlan) -> Vec<MemberLog> {
    let log = |member: &MemberPlan| MemberLog {
        list: BadBlockList::from(&member.bad_blocks),
        written: member.bad_blocks.clone(),
        counts: member.superblock.features.contains(Features::BAD_BLOCKS),
    };
    plan.members.iter().map(log).collect()
}

impl Master {
    /// Where the data of a member begins on its device.
    pub(crate) fn data_offset(&self, member: usize) -> Sector {
        self.superblocks[member].data_offset
    }

    /// The sectors of its device that a member lacks.
    pub(crate) fn bad_blocks(&self, member: usize) -> &BadBlockList {
        &self.logs[member].list
    }

    /// Whether the logs of members have room for all of these ranges.
    pub(crate) fn has_room_to_list(&self, ranges: &[(usize, Range)]) -> bool {
        let mut lists: BTreeMap<usize, BadBlockList> = BTreeMap::new();
        for (member, range) in ranges {
            lists.entry(*member).or_insert_with(|| self.logs[*member].list.clone()).add(*range);
        }
        lists.iter().all(|(member, list)| self.has_room_for(*member, list))
    }

    /// Whether the log of a member has room for what is left without this range: the middle of an entry makes two.
    pub(crate) fn has_room_without(&self, member: usize, range: Range) -> bool {
        let mut list = self.logs[member].list.clone();
        list.remove(range);
        self.has_room_for(member, &list)
    }

    fn has_room_for(&self, member: usize, list: &BadBlockList) -> bool {
        let room = bad_blocks::room_to_write(&self.superblocks[member]);
        room.is_some_and(|room| list.entries() <= room.length.len_bytes() / ENTRY_BYTES)
    }

    /// Whether a member in use, other than this one, lacks sectors.
    pub(crate) fn others_list(&self, member: usize) -> bool {
        let lists = |other: usize| !self.logs[other].list.is_empty() && self.members[other].is_trusted();
        (0..self.logs.len()).any(|other| other != member && lists(other))
    }

    /// A member's log, if the one on the member does not show its list.
    pub(crate) fn log_to_write(&self, member: usize) -> Option<LogPages> {
        let MemberLog { list, written, .. } = &self.logs[member];
        if BadBlockList::from(written) == *list {
            return None;
        }
        let place = bad_blocks::room_to_write(&self.superblocks[member]).expect("a list that changes has room");
        let log = list.log();
        assert_eq!(log.ranges.len(), list.entries(), "the room was counted in entries");
        let pages = log_order::pages(written, &log, place.length);
        Some(LogPages { place, pages })
    }

    /// Whether a list is not what a start would find.
    pub(crate) fn has_unwritten_lists(&self) -> bool {
        self.with_unwritten_lists().next().is_some()
    }

    fn with_unwritten_lists(&self) -> impl Iterator<Item = usize> + '_ {
        let differs = |member: &usize| self.logs[*member].list != self.logs[*member].on_member();
        (0..self.logs.len()).filter(|member| self.members[*member].is_trusted()).filter(differs)
    }

    /// The lists of all members that lack sectors.
    pub(super) fn bad_lists(&self) -> Vec<(usize, BadBlockList)> {
        let lists = self.logs.iter().enumerate().filter(|(_, log)| !log.list.is_empty());
        lists.map(|(member, log)| (member, log.list.clone())).collect()
    }

    pub(super) fn change_bad_blocks(&mut self, change: BadBlocks<'_>) {
        match change {
            BadBlocks::List(ranges) => {
                ranges.iter().for_each(|(member, range)| self.change_list(*member, |list| list.add(*range)));
            }
            BadBlocks::Clear(member, range) => self.change_list(member, |list| list.remove(range)),
            BadBlocks::Written(member, page) => {
                self.logs[member].written = BadBlockLog::parse(page, 0).expect("it was encoded");
            }
            BadBlocks::Counts(member, counts) => self.logs[member].counts = counts,
            BadBlocks::AsWritten => {
                for member in self.with_unwritten_lists().collect::<Vec<_>>() {
                    let on_member = self.logs[member].on_member();
                    self.change_list(member, |list| *list = on_member);
                }
                assert!(!self.has_unwritten_lists());
            }
        }
    }

    fn change_list(&mut self, member: usize, change: impl FnOnce(&mut BadBlockList)) {
        let log = &mut self.logs[member];
        change(&mut log.list);
        let is_empty = log.list.is_empty();
        let features = &mut self.superblocks[member].features;
        *features = features.without(Features::BAD_BLOCKS);
        if !is_empty {
            *features = features.with(Features::BAD_BLOCKS);
        }
        self.version += 1;
    }
}
