//! A target's array on the shards of a run, and its members beside it.
//! Owns: [`on_shards`], [`members_on`]. Not here: the order of start, task and stop (`uraid_arrays::run`), what is done
//! with the array (`measure`, `cycles`, `passes`, ...).
//! Invariant: the array writes no superblock by itself while its members are used without it.

use crate::target::Target;
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::{ArrayMember, ArraySetup, HostArray, OnShard, Setup, Stop};
use uraid_engine::{Config, StartError, StopError};
use uraid_host::{Local, Options};

/// A time that never passes: the array must not change its state while another side runs.
pub(crate) const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Starts the array on shard 0 by `start`, then runs `task` on every shard; stops the array as `stop` says.
pub(crate) fn on_shards<T, E>(
    target: &Target,
    shards: u16,
    options: &Options,
    stop: Stop,
    start: impl AsyncFn(&Rc<HostArray>) -> Result<(), StartError> + Send + Sync,
    task: impl AsyncFn(&OnShard) -> Result<T, E> + Send + Sync,
) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<StartError> + From<StopError> + Send,
{
    let config = Config { clean_after: NEVER, ..Config::default() };
    let arrays = vec![ArraySetup::of_claimed(&target.plan, &target.members, config)];
    uraid_arrays::run(
        &Setup { arrays, shards, options: options.clone(), stop },
        async |on, index| Ok(start(&on.arrays[index.0]).await?),
        task,
        async |on, index| Ok(on.arrays[index.0].stop().await?),
    )
}

/// Starts an array that is clean.
pub(crate) async fn start(array: &Rc<HostArray>) -> Result<(), StartError> {
    uraid_arrays::start_and_wait(array, |_| ()).await
}

/// The target's members on one shard, for use without the array.
pub(crate) fn members_on(shard: &Local, target: &Target) -> Vec<ArrayMember> {
    target.members.iter().map(|member| ArrayMember::Host(member.on_shard(shard))).collect()
}
