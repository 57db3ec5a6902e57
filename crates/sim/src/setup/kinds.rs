//! The kinds of faults that a seed uses.
//! Owns: [`Kinds`]. Not here: the faults of a round (`scenario::plan`).

use crate::machine::fault_kind::FaultKind;
use crate::random::rng::Rng;
use uraid_engine::verdict::OnFull;

/// The fault kinds that a seed uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kinds(pub(crate) u32);

impl Kinds {
    /// Draws each kind for half of all seeds, and for every seed at least one kind that all levels support.
    pub fn draw(rng: &mut Rng) -> Kinds {
        let drawn = FaultKind::NeverAnswers as usize;
        let bits = (0..drawn).filter(|_| rng.chance(1, 2)).fold(0, |bits, at| bits | 1 << at);
        // Only a quarter of the seeds have hangs, because one hang takes half a minute. The choice is derived from
        // drawn bits, so that the choices of existing seeds stay the same.
        let hangs = bits & (1 << FaultKind::Hang as u32) != 0 && bits & (1 << FaultKind::Vanish as u32) != 0;
        let is_on_bus =
            bits & (1 << FaultKind::SuperError as u32) != 0 && bits & (1 << FaultKind::WriteError as u32) != 0;
        let bits = bits | u32::from(hangs) << drawn | u32::from(is_on_bus) << FaultKind::Bus as u32;
        let sure = *rng.pick(&[FaultKind::ReadError, FaultKind::WriteError, FaultKind::Unreadable]);
        Kinds(bits | 1 << sure as u32)
    }

    /// These kinds except one.
    pub fn without(self, kind: FaultKind) -> Kinds {
        Kinds(self.0 & !(1 << kind as u32))
    }

    /// How the array treats full members; derived from drawn bits, as above.
    pub fn on_full(self) -> OnFull {
        if self.has(FaultKind::NoSpace) && self.has(FaultKind::Shrink) { OnFull::Fail } else { OnFull::Freeze }
    }

    /// Whether this kind is used.
    pub fn has(self, kind: FaultKind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }
}
