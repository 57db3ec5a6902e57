//! Tests of the requests that reach an array's members on the real machine: how many, how large, in which order.
//! Owns: tests of engine and host together, over members with a cost per request. Not here: which plan has the fewest
//! requests (`layout`), what may be merged (`host`), how much that gains (`uraid bench --scenario raid0-order`).

use crate::common;
use std::cell::Cell;
use std::rc::Rc;
use uraid_arrays::{ArraySetup, HostArray, Setup, Stop};
use uraid_block::local::join_all;
use uraid_block::{Device, Fua, Sector, Sectors};
use uraid_engine::{Config, StartError, StartPlan};
use uraid_host::{ArenaBlocks, Claimed, Local, Options, Trace, Traced};
use uraid_layout::Level;

/// 256 KiB.
const CHUNK: Sectors = Sectors(512);
const MEMBERS: u16 = 2;

fn options(merging: bool) -> Options {
    let large = ArenaBlocks { small: 64, large: 1024 };
    Options { merging, trace: true, arenas: [large; 5], ..Options::default() }
}

fn raid0(member_size: Sectors) -> StartPlan {
    common::plan(Level::Raid0, CHUNK, MEMBERS, member_size)
}

/// A running raid0 and the traces of its members, empty.
struct Rig<'a> {
    local: &'a Local,
    array: &'a HostArray,
    /// Of the array's members.
    traces: &'a [Rc<Trace>],
}

impl Rig<'_> {
    async fn read(&self, at: u64, length: Sectors) {
        let into = self.local.arena(4).take(length.len_bytes()).expect("room");
        self.array.read(Sector(at), into).await.expect("readable");
    }

    /// Reads `count` times `length` sectors from `first` on, `depth` of them at once, like a read-ahead.
    async fn read_stream(&self, first: u64, length: Sectors, count: u64, depth: u64) {
        let next = Cell::new(0);
        join_all((0..depth).map(|_| async {
            while next.get() < count {
                let n = next.replace(next.get() + 1);
                self.read(first + n * length.0, length).await;
            }
        }))
        .await;
    }
}

fn with_raid0<T: Send>(member: &str, options: &Options, work: impl AsyncFn(Rig<'_>) -> T + Send + Sync) -> T {
    let claimed: Vec<Claimed> = common::claimed(member, MEMBERS);
    let plan = raid0(claimed[0].size());
    let arrays = vec![ArraySetup::of_claimed(&plan, &claimed, Config::default())];
    let setup = Setup { arrays, shards: 1, options: options.clone(), stop: Stop::Never };
    let values = uraid_arrays::run::<T, StartError>(
        &setup,
        async |on, _| on.arrays[0].start().await,
        async |on| {
            on.traces[0].iter().for_each(|trace| trace.clear());
            Ok(work(Rig { local: &on.local, array: &on.arrays[0], traces: &on.traces[0] }).await)
        },
        async |_, _| Ok(()),
    );
    values.expect("a new array starts").remove(0)
}

#[test]
fn a_request_from_mid_chunk_over_six_chunks_is_one_ascending_request_per_member() {
    // Also without merging: the plan alone must do it.
    for merging in [true, false] {
        with_raid0("mem:16M,request=1us", &options(merging), async |rig: Rig<'_>| {
            let length = Sectors(6 * CHUNK.0);
            let from = rig.local.arena(4).take(length.len_bytes()).expect("room");
            rig.array.write(Sector(100), from.freeze(), Fua::No).await.expect("writable");
            rig.read(100, length).await;
            for trace in rig.traces {
                let counts = trace.counts();
                assert_eq!(counts.requests[..2], [1, 1], "one read, one write");
                assert_eq!(counts.sectors, 2 * 3 * CHUNK.0);
            }
        });
    }
}

/// For each stream, by its address range: descending pairs, requests, sectors.
fn by_stream(log: &[Traced], stream_length: u64) -> Vec<(u64, u64, u64)> {
    let data_offset = raid0(Sectors(512 << 10)).members[0].superblock.data_offset.0;
    let mut streams = vec![(None::<Traced>, (0, 0, 0)); 4];
    for traced in log {
        let stream = (traced.range.start.0 - data_offset) / stream_length;
        let (last, (descending, requests, sectors)) = &mut streams[stream as usize];
        *descending += u64::from(last.is_some_and(|last| traced.is_behind(&last)));
        *requests += 1;
        *sectors += traced.range.length.0;
        *last = Some(*traced);
    }
    streams.into_iter().map(|(_, sums)| sums).collect()
}

#[test]
fn streams_reach_members_ascending_and_not_in_smaller_requests_than_they_asked_for() {
    // Enough requests per stream that the members get out of step: a request that crosses the end of a chunk waits for
    // both of its members.
    const COUNT: u64 = 144;
    // Whole parts of a chunk; more than half a chunk, from mid-chunk on; more than a chunk.
    for (length, shift) in [(256, 0), (384, 128), (640, 64)] {
        for merging in [true, false] {
            let of_members = with_raid0("null:256M,request=20us", &options(merging), async |rig: Rig<'_>| {
                let quarter = rig.array.geometry().size.0 / 4 / (2 * CHUNK.0) * 2 * CHUNK.0;
                let rig = &rig;
                let stream = |n| rig.read_stream(n * quarter + shift, Sectors(length), COUNT, 8);
                join_all((0..4).map(stream)).await;
                rig.traces.iter().map(|trace| by_stream(&trace.log(), quarter / 2)).collect::<Vec<_>>()
            });
            for (descending, requests, sectors) in of_members.into_iter().flatten() {
                assert_eq!(descending, 0, "{length} {merging}");
                assert_eq!(sectors, COUNT * length / 2);
                // Without merging, a request stays cut at the end of a chunk: this shows that the test can fail.
                let is_whole = sectors >= requests * length;
                assert_eq!(is_whole, merging || length == 256, "{length} {merging}: {requests} of {sectors} sectors");
            }
        }
    }
}
