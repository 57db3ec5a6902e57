//! The arrays of a process, built on one of its shards.
//! Owns: [`ArraySetup`], [`build`], the sizes of the host's arenas for the engine's rows. Not here: starting and stopping
//! (`run`). Invariant: nothing is read or written.

use crate::array::{ArrayMember, HostArray, HostWorld, InnerArray};
use crate::world::{ArrayIndex, ArrayMail};
use std::rc::Rc;
use std::time::Duration;
use uraid_engine::{Config, StartPlan};
use uraid_host::{ArenaBlocks, Claimed, Local, Options, Shard, Trace};

/// The arenas of the engine's rows and passes; each must hold one row of any array.
const ROW_ARENA: usize = 1;
const PASS_ARENA: usize = 3;

/// How long a shard busy-polls for messages before it sleeps, if that pays. It is longer than a processor needs to wake
/// up, so that a shard which polls gets the answer of one that slept (decision 0005).
pub const SPIN: Duration = Duration::from_micros(50);

/// The host's options for arrays with this many slots: each arena for rows holds a few rows.
pub fn options_for(slots: u16) -> Options {
    let mut options = Options { spin: SPIN, ..Options::default() };
    for arena in [ROW_ARENA, PASS_ARENA] {
        let blocks: &mut ArenaBlocks = &mut options.arenas[arena];
        blocks.large = blocks.large.max(4 * (u32::from(slots) + 2));
    }
    options
}

/// The members of an array, in the order of its plan.
#[derive(Clone)]
pub enum Members {
    /// Devices of the host.
    Claimed(Vec<Claimed>),
    /// Arrays that come before it in the list.
    Arrays(Vec<ArrayIndex>),
}

/// An array to build.
pub struct ArraySetup<'a> {
    /// The slot of each member.
    pub plan: &'a StartPlan,
    /// The members.
    pub members: Members,
    /// The engine's settings.
    pub config: Config,
}

impl<'a> ArraySetup<'a> {
    /// An array of devices.
    pub fn of_claimed(plan: &'a StartPlan, members: &[Claimed], config: Config) -> ArraySetup<'a> {
        ArraySetup { plan, members: Members::Claimed(members.to_vec()), config }
    }
}

/// An array on one shard.
pub(crate) struct Built {
    pub(crate) array: Rc<HostArray>,
    /// The traces of those members that are devices, in their order, if [`Options::trace`] is set.
    pub(crate) traces: Vec<Rc<Trace>>,
}

/// The arrays on one shard, in order; `options` are those that the shard runs with. The caller delivers their mail
/// ([`HostArray::deliver`]) and starts them.
pub fn build<M>(shard: &Shard<M>, arrays: &[ArraySetup<'_>], options: &Options) -> Vec<Rc<HostArray>>
where
    M: From<ArrayMail> + Send + 'static,
{
    build_traced(shard, arrays, options).into_iter().map(|built| built.array).collect()
}

pub(crate) fn build_traced<M>(shard: &Shard<M>, arrays: &[ArraySetup<'_>], options: &Options) -> Vec<Built>
where
    M: From<ArrayMail> + Send + 'static,
{
    let mut worlds: Vec<HostWorld> = Vec::new();
    let mut all: Vec<Built> = Vec::new();
    for (index, setup) in arrays.iter().enumerate() {
        let world = HostWorld::new(shard, ArrayIndex(index), options);
        let members: Vec<ArrayMember> = match &setup.members {
            Members::Claimed(members) => {
                members.iter().map(|member| ArrayMember::Host(member.on_shard(shard))).collect()
            }
            Members::Arrays(members) => {
                let inner =
                    |of: &ArrayIndex| InnerArray { array: all[of.0].array.clone(), world: worlds[of.0].clone() };
                members.iter().map(|of| ArrayMember::Array(inner(of))).collect()
            }
        };
        let traces = members.iter().filter_map(ArrayMember::trace).collect();
        let array = Rc::new(HostArray::new(world.clone(), setup.plan, members, setup.config.clone()));
        worlds.push(world);
        all.push(Built { array, traces });
    }
    all
}

/// Gives an array of this shard the device of a member that joins it while it runs: see `Array::install`.
pub fn install(array: &HostArray, shard: &Local, index: usize, member: &Claimed) {
    array.install(index, ArrayMember::Host(member.on_shard(shard)));
}
