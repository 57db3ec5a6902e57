//! Tests of the requests that reach an array's members on the real machine: how many, how large, in which order.
//! Owns: tests of engine and host together, over members with a cost per request. Not here: which plan has the fewest
//! requests (`layout`), what may be merged (`host`), how much that gains (`uraid bench --scenario raid0-order`).

use crate::member::ArrayMember;
use crate::world::{ArrayIndex, HostArray, HostWorld, Message};
use std::cell::Cell;
use std::rc::Rc;
use uraid_block::local::join_all;
use uraid_block::{Device, Fua, Sector, Sectors};
use uraid_engine::{Array, AssembleOptions, Candidate, Config, StartPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_format::{SetName, Version};
use uraid_host::{Access, ArenaBlocks, Claimed, Options, Shard, Trace, Traced, run};
use uraid_layout::{Level, default_layout};

/// 256 KiB.
const CHUNK: Sectors = Sectors(512);
const MEMBERS: u16 = 2;

fn options(merging: bool) -> Options {
    let large = ArenaBlocks { small: 64, large: 1024 };
    Options { merging, trace: true, arenas: [large; 5], ..Options::default() }
}

fn raid0(member_size: Sectors) -> StartPlan {
    let options = CreateOptions {
        version: Version::V1_2,
        level: Level::Raid0,
        layout: default_layout(Level::Raid0),
        chunk: CHUNK,
        raid_disks: MEMBERS,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::new("", "trial").expect("the name is short"),
        now_seconds: 1,
        assume_clean: true,
        force: false,
    };
    let devices: Vec<NewMember> =
        (0..MEMBERS).map(|n| NewMember::Device { size: member_size, uuid: [n as u8 + 1; 16] }).collect();
    let superblocks = create(&options, &devices).expect("the options are right").superblocks;
    let candidates: Vec<Candidate> = superblocks
        .into_iter()
        .flatten()
        .map(|superblock| Candidate { superblock, device_size: member_size })
        .collect();
    assemble(&candidates, &AssembleOptions::default()).expect("a new array assembles")
}

/// A running raid0 and the traces of its members, empty.
struct Rig {
    shard: Shard<Message>,
    array: Rc<HostArray>,
    /// Of the array's members.
    traces: Vec<Rc<Trace>>,
}

impl Rig {
    async fn new(shard: Shard<Message>, claimed: &[Claimed], options: &Options) -> Rig {
        let world = HostWorld::new(&shard, ArrayIndex(0), options);
        let members: Vec<_> = claimed.iter().map(|member| member.on_shard(&shard)).collect();
        let traces: Vec<_> = members.iter().filter_map(|member| member.trace()).collect();
        let members = members.into_iter().map(ArrayMember::Host).collect();
        let array = Array::new(world, &raid0(claimed[0].size()), members, Config::default());
        let mailed = array.clone();
        shard.on_mail(move |message| mailed.deliver(message.unserved().1));
        array.start(|_| {}).await.expect("a new array starts");
        traces.iter().for_each(|trace| trace.clear());
        Rig { shard, array, traces }
    }

    async fn read(&self, at: u64, length: Sectors) {
        let into = self.shard.arena(4).take(length.len_bytes()).expect("room");
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

fn with_raid0<T: Send>(member: &str, options: &Options, work: impl AsyncFn(Rig) -> T + Send + Sync) -> T {
    let claimed: Vec<Claimed> =
        (0..MEMBERS).map(|_| Claimed::open(member, Access::ReadWrite).expect("claimed")).collect();
    let mut values = run(1, options, |shard: Shard<Message>| {
        let (claimed, work) = (&claimed, &work);
        async move { work(Rig::new(shard, claimed, options).await).await }
    });
    values.remove(0)
}

#[test]
fn a_request_from_mid_chunk_over_six_chunks_is_one_ascending_request_per_member() {
    // Also without merging: the plan alone must do it.
    for merging in [true, false] {
        with_raid0("mem:16M,request=1us", &options(merging), async |rig: Rig| {
            let length = Sectors(6 * CHUNK.0);
            let from = rig.shard.arena(4).take(length.len_bytes()).expect("room");
            rig.array.write(Sector(100), from.freeze(), Fua::No).await.expect("writable");
            rig.read(100, length).await;
            for trace in &rig.traces {
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
            let of_members = with_raid0("null:256M,request=20us", &options(merging), async |rig: Rig| {
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
