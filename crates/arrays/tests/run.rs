//! Tests of the order of start, task, stop and end.
//! Owns: failures of each step on each shard. Not here: what the engine does in a start or a stop.

use crate::common;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use uraid_arrays::{ArrayIndex, ArraySetup, OnShard, Setup, Stop, options_for};
use uraid_block::{Device, Fua, Sector, Sectors};
use uraid_engine::Config;
use uraid_host::CLIENT_ARENA;
use uraid_layout::Level;

const SHARDS: u16 = 3;
const MEMBERS: u16 = 2;

/// Where a run fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    Start(usize),
    Task(u16),
    Stop(usize),
}

/// What was done, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Started(usize),
    Task,
    Stopped(usize),
}

/// Two mirrors on three shards; returns the outcome, and what was done on any shard.
fn run(stop: Stop, failure: Option<Failure>) -> (Result<Vec<u16>, Failure>, Vec<Step>) {
    let members: Vec<_> = (0..2).map(|_| common::claimed("mem:4M", MEMBERS)).collect();
    let plan = common::plan(Level::Raid1, Sectors::ZERO, MEMBERS, members[0][0].size());
    let arrays = members.iter().map(|claimed| ArraySetup::of_claimed(&plan, claimed, Config::default())).collect();
    let setup = Setup { arrays, shards: SHARDS, options: options_for(MEMBERS), stop };
    let steps = Mutex::new(Vec::new());
    let done = |step| steps.lock().expect("no test panics").push(step);
    let fails = |at: Failure| if failure == Some(at) { Err(at) } else { Ok(()) };
    let outcome = uraid_arrays::run(
        &setup,
        async |on, ArrayIndex(index)| {
            fails(Failure::Start(index))?;
            on.arrays[index].start().await.expect("a new array starts");
            done(Step::Started(index));
            Ok(())
        },
        async |on| {
            done(Step::Task);
            fails(Failure::Task(on.local.index().0))?;
            Ok(on.local.index().0)
        },
        async |on, ArrayIndex(index)| {
            on.arrays[index].stop().await.expect("an idle array stops");
            done(Step::Stopped(index));
            fails(Failure::Stop(index))
        },
    );
    (outcome, steps.into_inner().expect("no test panics"))
}

#[test]
fn arrays_start_in_order_and_stop_in_reverse_around_the_tasks_of_all_shards() {
    use Step::{Started, Stopped, Task};
    for stop in [Stop::Always, Stop::AfterSuccess] {
        let (outcome, steps) = run(stop, None);
        assert_eq!(outcome, Ok(vec![0, 1, 2]));
        assert_eq!(steps, [Started(0), Started(1), Task, Task, Task, Stopped(1), Stopped(0)]);
    }
    let (outcome, steps) = run(Stop::Never, None);
    assert_eq!((outcome, steps), (Ok(vec![0, 1, 2]), vec![Started(0), Started(1), Task, Task, Task]));
}

#[test]
fn a_failed_start_runs_no_task_and_stops_what_was_started() {
    let failure = Failure::Start(1);
    let (outcome, steps) = run(Stop::Always, Some(failure));
    assert_eq!((outcome, steps), (Err(failure), vec![Step::Started(0), Step::Stopped(0)]));
    let (outcome, steps) = run(Stop::AfterSuccess, Some(failure));
    assert_eq!((outcome, steps), (Err(failure), vec![Step::Started(0)]));
}

#[test]
fn a_failed_task_or_stop_of_any_shard_is_the_outcome() {
    for shard in 0..SHARDS {
        let failure = Failure::Task(shard);
        let (outcome, steps) = run(Stop::Always, Some(failure));
        assert_eq!(outcome, Err(failure));
        assert!(steps.ends_with(&[Step::Stopped(1), Step::Stopped(0)]), "{steps:?}");
        let (outcome, steps) = run(Stop::AfterSuccess, Some(failure));
        assert_eq!(outcome, Err(failure));
        assert!(!steps.contains(&Step::Stopped(1)) && !steps.contains(&Step::Stopped(0)), "{steps:?}");
    }
    for index in [0, 1] {
        let (outcome, steps) = run(Stop::Always, Some(Failure::Stop(index)));
        assert_eq!(outcome, Err(Failure::Stop(index)));
        assert!(steps.ends_with(&[Step::Stopped(1), Step::Stopped(0)]), "{steps:?}");
    }
}

#[test]
fn no_array_is_stopped_while_the_task_of_another_shard_uses_it() {
    let claimed = common::claimed("mem:4M", MEMBERS);
    let plan = common::plan(Level::Raid1, Sectors::ZERO, MEMBERS, claimed[0].size());
    let arrays = vec![ArraySetup::of_claimed(&plan, &claimed, Config::default())];
    let setup = Setup { arrays, shards: SHARDS, options: options_for(MEMBERS), stop: Stop::Always };
    let written = AtomicU16::new(0);
    let outcome = uraid_arrays::run::<(), &str>(
        &setup,
        async |on, _| on.arrays[0].start().await.map_err(|_| "start"),
        async |on: &OnShard| {
            // Shard 0 fails at once; the others write a while later.
            if on.is_first() {
                return Err("task");
            }
            on.local.sleep(Duration::from_millis(20)).await;
            let data = on.local.arena(CLIENT_ARENA).take_zeroed(4096).expect("room").freeze();
            on.arrays[0].write(Sector(8), data, Fua::No).await.map_err(|_| "write")?;
            written.fetch_add(1, Ordering::SeqCst);
            Ok(())
        },
        async |on, _| {
            assert_eq!(written.load(Ordering::SeqCst), SHARDS - 1);
            on.arrays[0].stop().await.map_err(|_| "stop")
        },
    );
    assert_eq!(outcome, Err("task"));
}
