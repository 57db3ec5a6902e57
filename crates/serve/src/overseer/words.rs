//! mdadm's words that stand for members: `failed`, `detached` and `missing`.
//! Owns: which members each of them means now. Not here: what is done with these (`membership`, `fail`), paths (`paths`).
//!
//! ```text
//!   uraid fail home detached       works, and its device is gone or another has its path
//!   uraid remove home failed       faulty
//!   uraid remove home detached     a spare or faulty, and its device is gone
//!   uraid re-add home missing      was a member, is none now, and its device is there
//! ```

use super::Overseer;
use crate::overseer::paths;
use std::io;
use uraid_block::{ErrorKind, SlotSet};
use uraid_control::asking;
use uraid_control::report::LeftOut;
use uraid_engine::MemberState;
use uraid_engine::verdict::Operation;
use uraid_host::PathState;

impl Overseer {
    pub(super) fn failed(&self) -> Vec<usize> {
        self.members_that(|_, state| matches!(state, MemberState::Faulty { .. }))
    }

    /// Spares and failed members whose device is gone.
    pub(super) async fn detached(&self) -> Vec<usize> {
        let mut found = Vec::new();
        for (index, state) in self.array.status().members.into_iter().enumerate() {
            let is_detached = match state {
                // The array does not look at the path of a member that it does not use.
                MemberState::Faulty { operation: Operation::Command | Operation::Replaced, .. } => {
                    self.has_no_file(index).await
                }
                MemberState::Spare => self.is_gone(index),
                MemberState::Faulty { error, .. } => error.kind == ErrorKind::Gone,
                MemberState::Active(_)
                | MemberState::Recovering { .. }
                | MemberState::Replacing { .. }
                | MemberState::Removed => false,
            };
            found.extend(is_detached.then_some(index));
        }
        found
    }

    /// Whether nothing has the path of a member. One that does not answer has something.
    async fn has_no_file(&self, index: usize) -> bool {
        let path = self.member_paths(index).path.clone();
        let name = path.clone();
        let is_missing = move || std::fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        asking::ask_beside(&self.session.local(), &name, paths::WAITS_MAX, is_missing).await.unwrap_or(false)
    }

    /// The slots of working members whose device is gone.
    pub(super) async fn detached_slots(&self) -> SlotSet {
        self.paths.look(paths::WAITS_MAX).await;
        let states = self.array.status().members;
        let gone = states.iter().enumerate().filter(|(index, _)| self.is_gone(*index));
        gone.filter_map(|(_, state)| match *state {
            MemberState::Active(slot) | MemberState::Recovering { slot, .. } => Some(slot),
            MemberState::Replacing { .. } | MemberState::Spare | MemberState::Removed | MemberState::Faulty { .. } => {
                None
            }
        })
        .collect::<SlotSet>()
    }

    /// The paths of devices that were members: removed since the start, or left out at the start.
    pub(super) fn missing(&self) -> Vec<String> {
        let removed = self.members_that(|_, state| *state == MemberState::Removed);
        let removed = removed.into_iter().map(|index| self.member_paths(index).path.clone());
        let left_out = self.running().left_out.iter().map(|LeftOut { path, .. }| path.clone());
        let mut paths: Vec<String> = removed.chain(left_out).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    fn members_that(&self, is_meant: impl Fn(usize, &MemberState) -> bool) -> Vec<usize> {
        let members = self.array.status().members;
        (0..members.len()).filter(|&index| is_meant(index, &members[index])).collect()
    }

    fn is_gone(&self, index: usize) -> bool {
        self.paths.state(index) != PathState::Same
    }
}
