//! How often each kind of request is made.
//! Owns: [`Mix`]. Not here: drawing one (`setup`), making the requests (`rig::client`).

/// The relative frequencies of requests; zero: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Writes with FUA.
    pub fua: u64,
    /// Flushes.
    pub flush: u64,
    /// Discards.
    pub discard: u64,
    /// Zeroes.
    pub zeroes: u64,
    /// Pauses that are long enough for the array to become clean.
    pub pause: u64,
    /// Largest request in sectors.
    pub length_max: u64,
    /// Whether several writes of one sector may be in flight.
    pub may_overlap: bool,
}
