//! An array over members that only record: which member requests the engine makes of a request.
//! Owns: [`RecordedArray`], [`MemberRequest`], the members. Not here: what is done with the list (`bench`).
//! Invariant: no device is accessed.

use crate::array::HostArray;
use crate::member::{ArrayMember, HostWorld};
use crate::world::{ArrayIndex, ArrayMail};
use std::cell::RefCell;
use std::rc::Rc;
use uraid_block::{Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, WritePieces};
use uraid_engine::{Config, RequestKind, StartPlan};
use uraid_host::{Options, Shard};

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

type Log = Rc<RefCell<Vec<MemberRequest>>>;

/// A member that records reads, writes and discards, and answers everything with success.
pub struct Recorder {
    number: u16,
    geometry: Geometry,
    log: Log,
}

/// An array whose members only record. It is alone on its shard, the only one of its run.
pub struct RecordedArray {
    /// The array.
    pub array: Rc<HostArray>,
    log: Log,
}

impl RecordedArray {
    /// The array of `plan` on this shard, which then carries its mail; `geometries[i]` belongs to `plan.members[i]`.
    /// The caller starts it. Panics if there is another shard, or a plan that does not fit: both are mistakes of the
    /// caller.
    pub fn new(
        shard: &Shard<ArrayMail>,
        plan: &StartPlan,
        geometries: &[Geometry],
        config: Config,
        options: &Options,
    ) -> RecordedArray {
        assert_eq!(shard.count(), 1, "each recorded array has a run of its own");
        let log = Log::default();
        let recorder = |(number, geometry): (u16, &Geometry)| {
            ArrayMember::Recorder(Recorder { number, geometry: geometry.clone(), log: log.clone() })
        };
        let members = (0..).zip(geometries).map(recorder).collect();
        let array = Rc::new(HostArray::new(HostWorld::new(shard, ArrayIndex(0), options), plan, members, config));
        let of = array.clone();
        shard.on_mail(move |ArrayMail { mail, .. }| of.deliver(mail));
        RecordedArray { array, log }
    }

    /// What was recorded since the last call.
    pub fn take(&self) -> Vec<MemberRequest> {
        self.log.take()
    }
}

impl Recorder {
    fn note(&self, kind: RequestKind, at: Sector, length: Sectors) {
        self.log.borrow_mut().push(MemberRequest { member: self.number, kind, at, length });
    }
}

impl Device for Recorder {
    fn geometry(&self) -> &Geometry {
        &self.geometry
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
