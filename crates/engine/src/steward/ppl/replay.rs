//! Making good what the partial parity logs name, before the gate of a start opens.
//! Owns: the new parity of each stretch. Not here: which stretches (`assemble::ppl`), the logs (`super`).
//! Invariant: only parity is written, and only from data that was read. A second crash repeats it with the same result.

use super::Ppl;
use crate::assemble::PplReplay;
use crate::shard::buffers;
use crate::shard::member_io::MemberRun;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::{Pool, World};
use uraid_block::{Device, ErrorKind, IoError, Sectors, Slot};
use uraid_parity::xor_into;

/// What came of a piece of a stretch.
enum Piece {
    /// Its parity was written, or need not be: a member that it needs is not there, or that of the parity. These failed.
    Done(Vec<Failure>),
    /// A member that is there cannot give some of it.
    Unreadable,
}

impl<W: World> Ppl<W> {
    /// Computes the parity of every stretch that a log names, and flushes the members. Returns whether all could be read.
    pub(super) async fn replay(&self) -> Result<bool, IoError> {
        if self.plan.replays.is_empty() {
            return Ok(true);
        }
        let (mut failures, mut is_whole) = (Vec::new(), true);
        for replay in &self.plan.replays {
            // In pieces that a buffer of the passes holds.
            let longest = crate::words::progress::WINDOW.min(replay.length.0);
            for from in (0..replay.length.0).step_by(longest as usize) {
                let length = Sectors(longest.min(replay.length.0 - from));
                match self.replay_piece(replay, Sectors(from), length).await {
                    Piece::Done(failed) => failures.extend(failed),
                    // One block that cannot be read keeps no other one from being made good.
                    Piece::Unreadable => {
                        for at in (from..from + length.0).step_by(self.block_of(replay) as usize) {
                            let length = Sectors(self.block_of(replay).min(from + length.0 - at));
                            match self.replay_piece(replay, Sectors(at), length).await {
                                Piece::Done(failed) => failures.extend(failed),
                                Piece::Unreadable => is_whole = false,
                            }
                        }
                    }
                }
            }
        }
        // Members that fail are judged. That is recorded before the logs are begun anew.
        self.judge.judge_together(&failures).await;
        if let Some(error) = self.steward.master().frozen_error() {
            return Err(error);
        }
        let writable = self.steward.shared.view().writable();
        let failures = self.flusher.flush_slots(writable).await;
        self.judge.judge_together(&failures).await;
        self.steward.master().frozen_error().map_or(Ok(is_whole), Err)
    }

    /// The least that can be written of the members, in sectors.
    fn block_of(&self, replay: &PplReplay) -> u64 {
        let shared = &self.steward.shared;
        let slots = replay.written.iter().chain([&replay.parity_slot]);
        let slots = slots.filter(|slot| shared.view().has_member(**slot));
        slots.map(|slot| shared.member(*slot).geometry().logical_block.0).max().unwrap_or(1).max(1)
    }

    async fn replay_piece(&self, replay: &PplReplay, from: Sectors, length: Sectors) -> Piece {
        let shared = &self.steward.shared;
        let at = replay.at + from;
        let mut parity = match replay.parity.is_empty() {
            true => vec![0; length.len_bytes()],
            false => replay.parity[from.len_bytes()..][..length.len_bytes()].to_vec(),
        };
        let is_there = |slot: &Slot| self.steward.master().holds(*slot, Sectors(at.0 + length.0));
        if !replay.written.iter().all(is_there) || !self.steward.master().writable().contains(replay.parity_slot) {
            // The parity stays as the crash left it. Only what was being written depends on that.
            mark::hit(Mark::LogSkipped);
            return Piece::Done(Vec::new());
        }
        let lists = |slot: &Slot| shared.lists_some(*slot, at, length);
        if length.0 <= self.block_of(replay) && replay.written.iter().any(lists) {
            // What is listed is computed from the others and the parity: this is what tells it.
            mark::hit(Mark::LogSkipped);
            return Piece::Done(Vec::new());
        }
        for slot in &replay.written {
            let run = shared.with_view(|view| MemberRun::by(view, *slot, at, length));
            let into = buffers::one_piece(buffers::take_contiguous(&shared.world, Pool::Pass, length).await);
            match shared.read_run(&run, into).await {
                Ok(block) => xor_into(&mut parity, &block),
                // It is failed, and then it is as if it were missing.
                Err(failed) if failed.error.kind == ErrorKind::Gone => return Piece::Done(vec![failed.failure()]),
                Err(_) => {
                    mark::hit(Mark::LogUnreadable);
                    return Piece::Unreadable;
                }
            }
        }
        mark::hit(Mark::LogReplayed);
        Piece::Done(shared.write_block(replay.parity_slot, at, &parity).await)
    }
}
