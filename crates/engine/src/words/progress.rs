//! What a pass does and is told, how far it has come, and what it met: in a window, on a shard, in the array.
//! Owns: [`PassKind`], [`PassOrder`], [`SpeedLimits`], [`Share`], [`Steering`], [`Progress`], [`PassReport`], [`PassCounts`], what
//! there is to go through, the longest window. Not here: the pass (`shard_pass`, `schedule`), keeping to limits (`pace`).

use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use std::time::Duration;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::{MemberSector, SECTOR_BYTES, Sectors, SlotSet};
use uraid_layout::Layout;

/// The longest stretch that a pass reads of a member at once.
pub(crate) const WINDOW: u64 = (LARGE_BLOCK_BYTES / SECTOR_BYTES) as u64;

/// What a pass does.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PassKind {
    /// Makes copies equal, and parity right, after a crash or in a new array.
    #[default]
    Resync,
    /// Gives a member that has taken a slot what it does not hold yet.
    Recovery,
    /// Copies a member to the one that is to take its slot.
    Replace,
    /// Compares all copies, or parity with data, and counts what disagrees.
    Check,
    /// The same, and makes it agree.
    Repair,
}

/// The order of a pass: what each shard does with the part of the array that it owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PassOrder {
    /// Each order has a new number. A shard that gets the same number again goes on where it had stopped.
    pub(crate) number: u64,
    pub(crate) kind: PassKind,
    /// The slots whose member does not hold everything yet. On mirrors, a recovery is of one slot. Of a copy to another
    /// member, the one slot that both have.
    pub(crate) recovering: SlotSet,
    /// Of a copy to another member: the index of that one. The slot may get another before the pass has ended.
    pub(crate) second: Option<usize>,
    /// How far the pass had come, as the superblocks record it. A recovery begins there; in a resync, each shard knows
    /// more.
    pub(crate) from: Sectors,
    /// Below this, the pass also writes the members in `recovering`. In a resync, that keeps right what they hold
    /// already; a later recovery gives them the rest.
    pub(crate) written_below: Sectors,
    /// Of a correction: the slots whose member is known not to give its block.
    pub(crate) unreadable: SlotSet,
    /// A recovery of members that lack only what a bitmap names: [`Call::BitsToRecover`](crate::shard::mail::Call) came before.
    pub(crate) by_bits: bool,
    /// It gives the members in `recovering` what they do not hold, and superblocks say how far. On mirrors it goes over the
    /// sectors of the member.
    pub(crate) fills: bool,
}

impl PassOrder {
    /// The slots without reads that a window at this sector of a member writes.
    pub(crate) fn writes(&self, at: MemberSector) -> SlotSet {
        if at.0 < self.written_below.0 { self.recovering } else { SlotSet::EMPTY }
    }
}

/// How far a pass has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// What the pass does.
    pub kind: PassKind,
    /// Sectors passed. Of a resync of mirrors, sectors of the array; else of each member.
    pub done: Sectors,
    /// Sectors to pass.
    pub total: Sectors,
    /// Sectors that disagreed and were written again.
    pub corrected: Sectors,
    /// Sectors of a member at which a check or repair found a disagreement (md: mismatch_cnt).
    pub mismatched: Sectors,
    /// Sectors that a member could not read, and that a check or repair wrote again from the others.
    pub healed: Sectors,
    /// Sectors that a member could not read, and that a check or repair could not write to it again: others have them, and
    /// it lacks them.
    pub lacking: Sectors,
    /// Sectors without redundancy left to check, because members are lost.
    pub skipped: Sectors,
    /// Sectors that more members could not read than can be computed. If there are any, the array stays marked dirty.
    pub unreadable: Sectors,
    /// Those of them that could be computed, from rows that a crash left not in sync: what they were is unknown.
    pub unknown: Sectors,
    /// Sectors that no member could give to a member that is recovered or copied to: its bad-block log lists them.
    pub listed: Sectors,
}

/// Sectors that a pass met, by what it did with them; as in [`Progress`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PassCounts {
    pub(crate) corrected: u64,
    pub(crate) mismatched: u64,
    pub(crate) healed: u64,
    pub(crate) lacking: u64,
    pub(crate) skipped: u64,
    pub(crate) unreadable: u64,
    pub(crate) listed: u64,
    /// Writes that failed: in smaller pieces, some of them may succeed.
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
}

impl PassCounts {
    /// Whether smaller pieces of the window could end better. What a check or repair has found and written it does not
    /// find again: its failed writes are listed, and corrected in smaller pieces.
    pub(crate) fn is_mixed(&self, is_by_command: bool) -> bool {
        self.unreadable > 0 || self.failed > 0 && !is_by_command
    }

    /// What a member could not read was written again, and `failed` of it failed.
    pub(crate) fn note_healed(&mut self, length: Sectors, failed: &[Failure]) {
        if failed.is_empty() {
            mark::hit(Mark::CheckHealed);
            self.healed += length.0;
        } else {
            mark::hit(Mark::CheckLacking);
            self.lacking += length.0;
        }
    }

    pub(crate) fn add(&mut self, other: PassCounts) {
        self.corrected += other.corrected;
        self.mismatched += other.mismatched;
        self.healed += other.healed;
        self.lacking += other.lacking;
        self.skipped += other.skipped;
        self.unreadable += other.unreadable;
        self.listed += other.listed;
        self.failed += other.failed;
        self.unknown += other.unknown;
    }
}

/// How far a shard has come in its part of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PassReport {
    /// Of which order the next two are.
    pub(crate) number: u64,
    /// What the shard owns below this is done.
    pub(crate) below: Sectors,
    /// The same, and all of it could be read or computed.
    pub(crate) readable_below: Sectors,
    /// What the shard owns below this is consistent, among the members that are read.
    pub(crate) in_sync_below: Sectors,
    /// The sum of its windows.
    pub(crate) counts: PassCounts,
    /// Clients are active on the shard.
    pub(crate) has_clients: bool,
    /// The bytes that requests of clients have moved on all members.
    pub(crate) client_bytes: u64,
}

/// How fast a pass is at least and at most, in KiB a second of each member (md: sync_speed_min, sync_speed_max), and
/// what it takes between them while clients are active.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpeedLimits {
    /// A pass that is slower than this does not wait for clients. `None`: [`SpeedLimits::MIN_KIB`].
    pub min: Option<u64>,
    /// Never faster. `None`: as fast as the members are.
    pub max: Option<u64>,
    /// `None`: what its kind takes, [`Share::DEFAULT`] or [`Share::WITHOUT_REDUNDANCY`].
    pub share: Option<Share>,
}

impl SpeedLimits {
    /// The minimum where none is set: md's.
    pub const MIN_KIB: u64 = 1000;
}

/// The part of its members that a pass takes while clients are active, in percent: of the time, or of the bytes that
/// the members move, whichever lets it go on earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(u8);

impl Share {
    /// The largest, in percent: clients go on, whatever a pass does.
    pub const MAX: u8 = 90;
    /// Where none is set.
    pub const DEFAULT: Share = Share(15);
    /// Of a recovery, where none is set and the array would not survive the loss of one more member.
    pub const WITHOUT_REDUNDANCY: Share = Share(30);

    /// `None`: not from 1 to [`Share::MAX`].
    pub fn of_percent(percent: u8) -> Option<Share> {
        (1..=Share::MAX).contains(&percent).then_some(Share(percent))
    }

    /// From 1 to [`Share::MAX`].
    pub fn percent(self) -> u8 {
        self.0
    }

    /// How long a shard rests after a window that took this long, so that the windows of all shards take their share
    /// of the time: of 15 %, one shard rests 85/15 of it, each of two 185/15.
    pub(crate) fn rest_after(self, took: Duration, shards: u16) -> Duration {
        let share = u128::from(self.0);
        let nanos = took.as_nanos() * (100 * u128::from(shards) - share) / share;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How fast a pass has its share of the bytes, in KiB a second of each member, where clients move this much: of
    /// 15 %, 75 MB/s beside 425.
    pub(crate) fn speed_beside(self, clients_kib: u64) -> u64 {
        let share = u64::from(self.0);
        clients_kib.saturating_mul(share) / (100 - share)
    }
}

impl Default for Share {
    fn default() -> Share {
        Share::DEFAULT
    }
}

/// What every shard is told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Steering {
    /// Orders up to this number end where they are.
    pub(crate) ended: u64,
    pub(crate) is_paused: bool,
    pub(crate) limits: SpeedLimits,
    /// The one that is set, or that of the pass which runs.
    pub(crate) share: Share,
    /// Clients are active on some shard, of several.
    pub(crate) has_clients: bool,
    /// What clients of all shards move, in KiB a second of each member.
    pub(crate) clients_kib: u64,
}

impl Steering {
    /// The speed below which a pass does not wait for clients, in KiB a second of each member.
    pub(crate) fn kept_speed(&self) -> u64 {
        self.limits.min.unwrap_or(SpeedLimits::MIN_KIB).max(self.share.speed_beside(self.clients_kib))
    }
}

/// What a resync goes through: sectors of each member on parity levels, of the array on mirrors.
pub(crate) fn total(layout: &Layout) -> Sectors {
    match layout {
        Layout::Parity(layout) => Sectors(layout.rows_count() * layout.chunk().0),
        Layout::Copies(_) => layout.array_size(),
    }
}
