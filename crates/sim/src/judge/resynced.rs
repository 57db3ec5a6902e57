//! Whether a resync could read or compute everything.
//! Owns: [`Resynced`]. Not here: how that is judged (`checks::unreadable_stays_dirty`).

/// The result of this start's resync.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Resynced {
    /// There was no resync, or it could read or compute every sector.
    #[default]
    Whole,
    /// Some accesses failed; whether a sector was lost is unknown.
    PerhapsNot,
    /// There is a sector that can neither be read nor computed.
    NotWhole,
}
