//! The members of an array of a running process: their names, and their claims.
//! Owns: [`Roster`], [`Seat`]: what was claimed for each member, until it is let go. Not here: a member's state (`engine`),
//! its device on each shard (`uraid_arrays`), when members come and go (`overseer::membership`).
//! Invariant: a seat is that of the member with the same index in the engine, for as long as the process runs. Its names
//! stay when its claim is gone.

use std::sync::{Mutex, OnceLock, PoisonError};
use uraid_block::Sector;
use uraid_engine::MEMBERS_MAX;
use uraid_format::Superblock;
use uraid_host::Claimed;

/// The names of a member in reports and calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MemberPath {
    /// Its path with links resolved, or the name of an array.
    pub path: String,
    /// The path as given, made absolute.
    pub written: String,
}

/// What the process knows of one member.
pub(crate) struct Seat {
    /// Its name on the command line, or the name of the array that it is.
    pub name: String,
    /// Its names in reports and calls.
    pub path: MemberPath,
    /// Its permanent number.
    pub number: u32,
    /// Its first data sector.
    pub data_offset: Sector,
    /// `None` of an array, and when it was let go.
    claim: Mutex<Option<Claimed>>,
}

impl Seat {
    /// The seat of a member with this superblock.
    pub(crate) fn new(name: &str, path: MemberPath, superblock: &Superblock, claim: Option<Claimed>) -> Seat {
        let (number, data_offset) = (superblock.dev_number, superblock.data_offset);
        Seat { name: name.to_owned(), path, number, data_offset, claim: Mutex::new(claim) }
    }

    /// A handle of its claim.
    pub(crate) fn claim(&self) -> Option<Claimed> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the claim go. It ends when no shard has the device any more.
    pub(crate) fn let_go(&self) {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The members of one array. All threads see it; shard 0 adds to it.
pub(crate) struct Roster(Vec<OnceLock<Box<Seat>>>);

impl Default for Roster {
    fn default() -> Roster {
        Roster((0..MEMBERS_MAX).map(|_| OnceLock::new()).collect())
    }
}

impl Roster {
    /// Gives the next member its seat.
    pub(crate) fn add(&self, index: usize, seat: Seat) {
        assert_eq!(index, self.seats().count(), "members come one after the other");
        assert!(self.0[index].set(Box::new(seat)).is_ok(), "a seat is given once");
    }

    /// All seats, by index.
    pub(crate) fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.0.iter().map_while(|seat| seat.get().map(|seat| &**seat))
    }

    /// One of them.
    pub(crate) fn seat(&self, index: usize) -> &Seat {
        self.0[index].get().expect("every member has a seat")
    }
}
