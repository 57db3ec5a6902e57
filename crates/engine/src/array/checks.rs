//! An array's calls for checks and repairs, for what every pass is told, and for who watches what changes.
//! Owns: these calls of [`Array`]. Not here: what they do (`schedule::asked`).

use super::Array;
use crate::World;
use crate::pass::schedule::CheckError;
use crate::words::findings::Checked;
use crate::words::progress::{PassKind, Share, SpeedLimits};
use uraid_block::Sectors;

impl<W: World> Array<W> {
    /// Begins a check: compares all copies, or parity with data, beside requests, and changes nothing but sectors that a
    /// member could not read and the others give. [`Array::wait`] waits for it, [`Array::checked`] has its result.
    /// Shard 0 only.
    pub fn begin_check(&self) -> Result<(), CheckError> {
        self.begin_check_at(Sectors::ZERO)
    }

    /// The same from a place on that an earlier check has reached: sectors of each member on parity levels, of the array on
    /// mirrors, as [`Progress::done`](crate::Progress) counts them. Shard 0 only.
    pub fn begin_check_at(&self, from: Sectors) -> Result<(), CheckError> {
        self.lifecycle().passes.ask(PassKind::Check, from)
    }

    /// Begins a repair: a check that writes what disagrees: what is known to be wrong, or else all but the canonical copy,
    /// or parity. Shard 0 only.
    pub fn begin_repair(&self) -> Result<(), CheckError> {
        self.lifecycle().passes.ask(PassKind::Repair, Sectors::ZERO)
    }

    /// Ends a check or repair where it is, and returns whether there was one (md: `idle`). Passes that the array needs go
    /// on. Shard 0 only.
    pub async fn end_check(&self) -> bool {
        self.lifecycle().passes.end_asked().await
    }

    /// Pauses every pass and lets none begin (md: `frozen`); or lets passes go on. Shard 0 only.
    pub async fn pause_passes(&self, is_paused: bool) {
        self.lifecycle().passes.pause(is_paused).await;
    }

    /// Whether passes are paused. Shard 0 only.
    pub fn are_passes_paused(&self) -> bool {
        self.lifecycle().passes.steering().is_paused
    }

    /// Sets the speed of every pass, from the next window on. Shard 0 only.
    pub async fn set_speed(&self, limits: SpeedLimits) {
        self.lifecycle().passes.set_limits(limits).await;
    }

    /// The limits of the speed of passes. Shard 0 only.
    pub fn speed(&self) -> SpeedLimits {
        self.lifecycle().passes.steering().limits
    }

    /// What a pass takes of the members while clients are active: what is set, or what the pass that runs takes.
    /// Shard 0 only.
    pub fn pass_share(&self) -> Share {
        self.lifecycle().passes.steering().share
    }

    /// Lets no spare take a slot, or lets them again. A recovery that has begun goes on. Shard 0 only.
    pub fn hold_spares(&self, are_held: bool) {
        self.lifecycle().passes.hold_spares(are_held);
    }

    /// The result of the last check or repair; `None` if none has ended, or the next one has begun. Shard 0 only.
    pub fn checked(&self) -> Option<Checked> {
        self.lifecycle().passes.checked()
    }

    /// Returns when something of the array's state changes after this call. Errors and progress alone need not end it.
    pub async fn next_change(&self) {
        let mut is_first = true;
        self.shared.view_changed.wait_for(|| (!std::mem::replace(&mut is_first, false)).then_some(())).await;
    }
}
