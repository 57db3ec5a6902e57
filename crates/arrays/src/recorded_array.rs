//! An array over members that only record: which member requests the engine makes of a request.
//! Owns: [`RecordedArray`]. Not here: the members (`recorder`), what is done with the list (`bench`).
//! Invariant: no device is accessed.

use crate::array::{ArrayMember, HostArray, HostWorld};
use crate::recorder::{Log, MemberRequest, Recorder};
use crate::world::{ArrayIndex, ArrayMail};
use std::rc::Rc;
use uraid_block::Geometry;
use uraid_engine::{Config, StartPlan};
use uraid_host::{Options, Shard};

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
        let recorder =
            |(number, geometry): (u16, &Geometry)| ArrayMember::Recorder(Recorder::new(number, *geometry, log.clone()));
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
