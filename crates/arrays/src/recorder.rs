//! A member that only records the requests to it.
//! Owns: [`Recorder`], [`MemberRequest`]. Not here: an array over such members (`recorded_array`).
//! Invariant: no device is accessed.

use std::cell::RefCell;
use std::rc::Rc;
use uraid_block::{Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, WritePieces};
use uraid_engine::RequestKind;

/// A request to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberRequest {
    /// Which member, in the order of the plan.
    pub member: u16,
    /// Zeroes that keep their space are writes, others are discards.
    pub kind: RequestKind,
    /// The first sector, on the device.
    pub at: Sector,
    /// The length.
    pub length: Sectors,
}

pub(crate) type Log = Rc<RefCell<Vec<MemberRequest>>>;

/// A member that records reads, writes and discards, and answers everything with success.
pub struct Recorder {
    number: u16,
    geometry: Geometry,
    log: Log,
}

impl Recorder {
    pub(crate) fn new(number: u16, geometry: Geometry, log: Log) -> Recorder {
        Recorder { number, geometry, log }
    }

    fn note(&self, kind: RequestKind, at: Sector, length: Sectors) {
        self.log.borrow_mut().push(MemberRequest { member: self.number, kind, at, length });
    }
}

impl Device for Recorder {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.note(RequestKind::Read, at, into.length());
        Ok(into)
    }

    async fn write(&self, at: Sector, from: WritePieces, _fua: Fua) -> Result<(), IoError> {
        self.note(RequestKind::Write, at, from.length());
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        self.note(RequestKind::Discard, range.start, range.length);
        Ok(())
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.note(RequestKind::Write, range.start, range.length);
        Ok(())
    }

    async fn punch_hole(&self, range: Range) -> Result<(), IoError> {
        self.note(RequestKind::Discard, range.start, range.length);
        Ok(())
    }
}
