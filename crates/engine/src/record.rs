//! The metadata writer: superblocks, in rounds.
//! Owns: what each superblock says, the order in which they are written. Not here: their bytes (`uraid_format`), when a
//! round is needed (`steward`).
//! Invariant: when a round is done, every member that the array still trusts says the same, durably. Events never step
//! back. A failed member ends at least two events behind, and the first of these rounds does not name it. The writer
//! takes no row, claim or epoch and has its own buffers, so it cannot deadlock with a request that waits for it.
//!
//! ```text
//!   round n:  member 0 |==FUA==|                 one first: should power tear every write in flight,
//!             member 1          |==FUA==|        a whole superblock of this round, or of the one before,
//!             member 2          |==FUA==|        is still on each member that was not being written
//! ```

use crate::array::Array;
use crate::buffers;
use crate::failure::Failure;
use crate::mark::{self, Mark};
use crate::sabotage::{self, Sabotage};
use crate::steward::{Master, MemberState};
use crate::verdict::Operation;
use crate::view::Gate;
use crate::{Pool, World};
use uraid_block::local::join_all;
use uraid_block::{Device, ErrorKind, Fua, IoError, SECTOR_BYTES, Sectors};
use uraid_format::{Features, Role, Superblock};

impl<W: World> Array<W> {
    /// Writes superblocks until they show at least `version`. Rounds repeat until one meets no new failure.
    pub(crate) async fn record_up_to(&self, version: u64) -> Result<(), IoError> {
        let steward = self.steward();
        if self.config.read_only {
            // Nothing is written, so no answer depends on a record. Reads avoid the lost member.
            return Ok(());
        }
        let _one = steward.recording.acquire(1).await;
        let mut is_first = true;
        loop {
            {
                let master = steward.master.borrow();
                if let Some(error) = master.frozen_error() {
                    mark::hit(Mark::RecordFrozen);
                    return Err(error);
                }
                if master.is_recorded(version) {
                    if is_first {
                        mark::hit(Mark::RecordShared);
                    }
                    return Ok(());
                }
                if master.view.gate == Gate::Stopped {
                    return Err(ErrorKind::Stopping.into());
                }
            }
            is_first = false;
            self.record_round().await;
        }
    }

    /// Brings members that missed the last round before a crash up to the freshest superblock, byte for byte, before
    /// any round increments the events: a crash in that round would leave one member two events ahead, and all others
    /// stale.
    pub(crate) async fn catch_up(&self) -> Result<(), IoError> {
        let steward = self.steward();
        let _one = steward.recording.acquire(1).await;
        let images = self.freshest_images(|master, member| master.lagging.contains(&member));
        if !images.is_empty() {
            mark::hit(Mark::CaughtUp);
        }
        let mut failed = self.write_superblocks(images.iter()).await;
        steward.master.borrow_mut().lagging.clear();
        while !failed.is_empty() {
            mark::hit(Mark::CatchUpFailed);
            self.judge_record(&failed).await;
            if steward.master.borrow().frozen_error().is_some() {
                break;
            }
            // Write the others again, byte for byte, before a round increments the events: see `record_round`.
            let images =
                self.freshest_images(|master, member| matches!(master.members[member], MemberState::Active(_)));
            failed = self.write_round(&images).await;
        }
        steward.master.borrow().frozen_error().map_or(Ok(()), Err)
    }

    /// The freshest superblock, for some of the members.
    fn freshest_images(&self, is_wanted: impl Fn(&Master, usize) -> bool) -> Vec<(usize, Superblock)> {
        let master = self.steward().master.borrow();
        let of_member = |member: usize| {
            let mut superblock = master.superblocks[member].clone();
            superblock.events = master.template.events;
            superblock.updated = master.template.updated;
            superblock.resync_offset = master.template.resync_offset;
            superblock.roles.clone_from(&master.template.roles);
            (member, superblock)
        };
        (0..master.members.len()).filter(|member| is_wanted(&master, *member)).map(of_member).collect()
    }

    /// One round: repeated unchanged, without the members that fail, until all others have taken it. So members that
    /// failed during it are at most one event behind if the next failure freezes the array.
    async fn record_round(&self) {
        let steward = self.steward();
        let (showing, names_all, mut images) = {
            let mut master = steward.master.borrow_mut();
            master.events = if sabotage::is(Sabotage::EventsStepBack) {
                master.events.saturating_sub(1)
            } else {
                master.events + 1
            };
            // Assembly refuses to write long before this count, which could not be read back.
            assert!(master.events < Superblock::EVENTS_END);
            master.updated = self.world.unix_seconds();
            (master.version, master.unnamed.is_empty(), self.images(&master))
        };
        let proven = loop {
            let proven = steward.master.borrow().unnamed.clone();
            let failed = self.write_round(&images).await;
            steward.master.borrow_mut().records += 1;
            if failed.is_empty() {
                break proven;
            }
            mark::hit(Mark::RecordRepeated);
            self.judge_record(&failed).await;
            let master = steward.master.borrow();
            let before = images.len();
            images.retain(|(member, _)| master.members[*member].is_trusted());
            if master.frozen_error().is_some() || images.len() == before {
                return;
            }
        };
        let changed = {
            let mut master = steward.master.borrow_mut();
            master.events_recorded = master.events;
            if names_all {
                master.recorded = showing;
            }
            master.unnamed.retain(|member| !proven.contains(member));
            let is_recorded = master.is_recorded(master.version);
            let changed = is_recorded && !master.view.is_recorded;
            master.view.is_recorded |= is_recorded;
            changed
        };
        if changed {
            self.publish(|_| {}).await;
        }
    }

    /// Returns the members whose superblock failed, with the error.
    async fn write_round(&self, images: &[(usize, Superblock)]) -> Vec<(usize, IoError)> {
        let mut failed: Vec<(usize, IoError)> = Vec::new();
        // Write one member at a time until one succeeds. The others follow in the same round even if an earlier one
        // failed: a member that is left two rounds behind would look stale after a crash, though nothing was answered
        // without it.
        let mut waiting = images.iter();
        let alone = if sabotage::is(Sabotage::RecordTogether) { 0 } else { images.len() };
        for image in waiting.by_ref().take(alone) {
            match self.write_superblock(image).await {
                Ok(()) => break,
                Err(error) => {
                    mark::hit(Mark::RecordFirstFailed);
                    failed.push((image.0, error));
                }
            }
        }
        failed.extend(self.write_superblocks(waiting).await);
        failed
    }

    /// The sabotaged stop: leaves one member two rounds ahead of all others.
    pub(crate) async fn record_apart(&self) {
        let image = {
            let mut master = self.steward().master.borrow_mut();
            master.events += 2;
            self.images(&master).into_iter().next()
        };
        if let Some(image) = image {
            let _ = self.write_superblock(&image).await;
        }
    }

    async fn judge_record(&self, failed: &[(usize, IoError)]) {
        let mut failures: Vec<Failure> = Vec::new();
        for (member, error) in failed {
            let mut master = self.steward().master.borrow_mut();
            match master.members[*member] {
                MemberState::Active(slot) => failures.push(Failure::new(slot, Operation::Superblock, *error)),
                MemberState::Spare => {
                    mark::hit(Mark::SpareFailed);
                    master.members[*member] = MemberState::Faulty {
                        slot: None,
                        operation: Operation::Superblock,
                        error: *error,
                        at: self.world.now(),
                    };
                    master.version += 1;
                }
                MemberState::Faulty { .. } => {}
            }
        }
        self.judge_together(&failures).await;
    }

    /// The next superblock of each trusted member.
    fn images(&self, master: &Master) -> Vec<(usize, Superblock)> {
        let roles = roles(master);
        let trusted = master.members.iter().enumerate().filter(|(_, member)| member.is_trusted());
        trusted
            .map(|(index, _)| {
                let mut superblock = master.superblocks[index].clone();
                superblock.events = master.events;
                superblock.updated = master.updated;
                // A failed member that this round still lists was flushed: the flush before the array goes clean waits until
                // the failures of those that it left out are recorded.
                superblock.resync_offset = if master.is_dirty { 0 } else { Superblock::CLEAN };
                superblock.features = superblock.features.without(Features::RECOVERY_OFFSET);
                superblock.recovery_offset = 0;
                superblock.roles.clone_from(&roles);
                (index, superblock)
            })
            .collect()
    }

    /// Writes all at once. Returns the members whose superblock failed, with the error.
    async fn write_superblocks(&self, images: impl Iterator<Item = &(usize, Superblock)>) -> Vec<(usize, IoError)> {
        let outcomes = join_all(images.map(async |image| (image.0, self.write_superblock(image).await))).await;
        outcomes.into_iter().filter_map(|(member, outcome)| Some((member, outcome.err()?))).collect()
    }

    async fn write_superblock(&self, (member, superblock): &(usize, Superblock)) -> Result<(), IoError> {
        let bytes = superblock.encode();
        let length = Sectors(superblock.written_bytes().div_ceil(SECTOR_BYTES) as u64);
        let mut pieces = buffers::take(&self.world, Pool::Metadata, length).await;
        pieces.copy_from(&bytes[..length.len_bytes()]);
        self.members[*member].write(superblock.super_offset, pieces.freeze(), Fua::Yes).await
    }
}

/// The role table: the slot of each permanent device number. A slot's member that is missing or failed is listed as
/// faulty, so that it is stale when it returns, whatever its own superblock says. A member that has just failed keeps
/// its slot for one round, see [`Master::fail_member`].
fn roles(master: &Master) -> Vec<Role> {
    let mut roles = master.template.roles.clone();
    for role in &mut roles {
        *role = match *role {
            Role::Slot(_) | Role::Faulty => Role::Faulty,
            Role::Spare => Role::Spare,
            Role::Journal => Role::Journal,
            Role::Reserved(raw) => Role::Reserved(raw),
        };
    }
    for (member, (state, superblock)) in master.members.iter().zip(&master.superblocks).enumerate() {
        let number = superblock.dev_number as usize;
        assert!(number < roles.len(), "assembly checks device numbers");
        roles[number] = match state {
            MemberState::Active(slot) => Role::Slot(*slot),
            MemberState::Spare => Role::Spare,
            MemberState::Faulty { slot: Some(slot), .. } if master.unnamed.contains(&member) => Role::Slot(*slot),
            MemberState::Faulty { .. } => Role::Faulty,
        };
    }
    roles
}
