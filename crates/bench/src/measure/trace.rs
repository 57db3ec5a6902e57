//! An array's member I/Os for a request: the engine itself runs over members that only record.
//! Owns: [`on_tracers`], [`Tracer`]. Not here: the members that record (`uraid_arrays`), the resulting list (`program`).
//! Invariant: no device is accessed. The array is that of the plan, healthy or degraded, and has at most one request in
//! flight.

use crate::measure::on_shards::NEVER;
use crate::work::Request;
use crate::work::program::{MemberIo, Program, RowKernel, Verb};
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;
use uraid_arrays::{ArrayMail, MemberRequest, RecordedArray};
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::{Arena, Device, Fua, Geometry, IoError, Range, Sector, Sectors, ShardIndex, Slot};
use uraid_engine::{Config, Place, RequestKind, StartPlan};
use uraid_host::{ArenaBlocks, CLIENT_ARENA, Options, Shard};
use uraid_layout::{Layout, ParityLayout, Row};

/// An array that only reports what it would do.
pub(crate) struct Tracer {
    recorded: RecordedArray,
    arena: Arena,
    /// By member of the plan: its first sector of data, and its slot.
    members: Vec<(Sector, Option<Slot>)>,
}

/// Calls `work` with a traced array of `plan` on each of the threads; returns the results in their order.
/// `geometries[i]` belongs to `plan.members[i]`; the largest request has `block` sectors.
pub(crate) fn on_tracers<T: Send>(
    threads: u16,
    plan: &StartPlan,
    geometries: &[Geometry],
    block: Sectors,
    work: impl AsyncFn(ShardIndex, &Tracer) -> T + Send + Sync,
) -> Vec<T> {
    let mut options = uraid_arrays::options_for(plan.layout.slots());
    let large = u32::try_from(2 * block.len_bytes().div_ceil(LARGE_BLOCK_BYTES)).expect("a request has at most 32 MiB");
    options.arenas[CLIENT_ARENA] = ArenaBlocks { small: 64, large };
    let (work, options) = (&work, &options);
    let one = |index: u16| {
        let mut values = uraid_host::run(1, options, |shard: Shard<ArrayMail>| async move {
            let tracer = Tracer::new(&shard, plan, geometries, options);
            tracer.recorded.array.start().await.expect("members that only record do not fail");
            work(ShardIndex(index), &tracer).await
        });
        values.pop().expect("one shard gives one value")
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || one(index))).collect();
        let join = |thread: ScopedJoinHandle<'_, T>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    })
}

impl Tracer {
    fn new(shard: &Shard<ArrayMail>, plan: &StartPlan, geometries: &[Geometry], options: &Options) -> Tracer {
        let config = Config { clean_after: NEVER, ..Config::default() };
        let places = plan.members.iter().map(|member| {
            let slot = match member.place {
                Place::Slot(slot) | Place::Recovering { slot, .. } | Place::Replacing { slot, .. } => Some(slot),
                Place::Spare => None,
            };
            (member.superblock.data_offset, slot)
        });
        let places = places.collect();
        // Ignore the array's state: there is no data to protect, and a resync would only add its own I/Os to the
        // record.
        let plan = StartPlan { is_dirty: false, read_only: None, ..plan.clone() };
        let recorded = RecordedArray::new(shard, &plan, geometries, config, options);
        Tracer { recorded, arena: shard.arena(CLIENT_ARENA).clone(), members: places }
    }

    /// The member I/Os of each request of `list`; the array has one request at a time.
    pub(crate) async fn program(&self, list: &[Request], block: Sectors) -> Result<Program, IoError> {
        let bytes = block.len_bytes();
        let mut buffer = self.arena.take(bytes).expect("the arena was made for it");
        let data = self.arena.take_zeroed(bytes).expect("the arena was made for it").freeze();
        if list.iter().any(|request| request.is_write) {
            // The first write marks the array dirty; those superblock writes do not belong to the request.
            self.recorded.array.write(list[0].at, data.clone(), Fua::No).await?;
        }
        let mut program = Program::default();
        let mut is_whole = true;
        for request in list {
            self.recorded.take();
            if request.is_write {
                self.recorded.array.write(request.at, data.clone(), Fua::No).await?;
            } else {
                buffer = self.recorded.array.read(request.at, buffer).await?;
            }
            let mut ios = self.taken();
            self.mark_parity(&mut ios);
            is_whole &= request.is_write && ios.iter().all(|io| io.verb != Verb::Read);
            program.push(&ios);
        }
        let layout = self.recorded.array.layout();
        if let Layout::Parity(layout) = &*layout
            && is_whole
            && block.0.is_multiple_of(layout.stripe().0)
        {
            program.kernel = Some(kernel(layout));
        }
        Ok(program)
    }

    /// The member requests of one discard.
    pub(crate) async fn discard(&self, range: Range) -> Result<Vec<MemberIo>, IoError> {
        // The first discard marks the array dirty.
        self.recorded.array.discard(Range::new(range.start, Sectors(1))).await?;
        self.recorded.take();
        self.recorded.array.discard(range).await?;
        Ok(self.taken())
    }

    /// What was recorded since the last call.
    fn taken(&self) -> Vec<MemberIo> {
        let requests = self.recorded.take().into_iter();
        let ios = requests.map(|MemberRequest { member, kind, at, length }| {
            let verb = match kind {
                RequestKind::Read => Verb::Read,
                RequestKind::Write => Verb::Write,
                RequestKind::Discard => Verb::Discard,
                RequestKind::Flush | RequestKind::Zeroes => unreachable!("they are not recorded as such"),
            };
            MemberIo { member, verb, at, length }
        });
        ios.collect()
    }

    /// Tells writes of parity from those of data by their places. Those of a partial parity log are in no row: the log is
    /// in front of the data, or behind it.
    fn mark_parity(&self, ios: &mut [MemberIo]) {
        let layout = self.recorded.array.layout();
        let Layout::Parity(layout) = &*layout else { return };
        for io in ios.iter_mut().filter(|io| io.verb == Verb::Write) {
            let (data_start, slot) = self.members[usize::from(io.member)];
            let row = io.at.0.checked_sub(data_start.0).map(|at| at / layout.chunk().0);
            let Some(row) = row.filter(|row| *row < layout.rows_count()) else { continue };
            let map = layout.row(Row(row));
            let is_parity = |of: Slot| Some(of) == slot;
            if is_parity(map.parity) || map.syndrome.is_some_and(is_parity) {
                io.verb = Verb::WriteParity;
            }
        }
    }
}

fn kernel(layout: &ParityLayout) -> RowKernel {
    let map = layout.row(Row(0));
    RowKernel {
        chunk_bytes: layout.chunk().len_bytes(),
        exponents: map.exponents.to_vec(),
        has_syndrome: map.syndrome.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Target, Trial};
    use uraid_format::create::NewPolicy;
    use uraid_host::{Access, Claimed};
    use uraid_layout::Level;

    /// The member I/Os of one request for each of the first `count` chunks of a raid5 of five whose slot 0 has no
    /// member, as (kind, member, chunk of the member).
    fn of_degraded_raid5(count: u64, is_write: bool) -> Vec<Vec<(Verb, u16, u64)>> {
        let (level, chunk) = (Level::Raid5, Sectors(128));
        let trial = Trial::new(level, 5, chunk);
        let open = |slot| (slot > 0).then(|| Claimed::open("null:1G", Access::ReadWrite).expect("a null member"));
        let target = Target::trial(&trial, &(0..5).map(open).collect::<Vec<_>>()).expect("a trial array");
        let geometries: Vec<_> = target.members.iter().map(|member| member.geometry()).collect();
        let list: Vec<Request> = (0..count).map(|n| Request { at: Sector(n * chunk.0), is_write }).collect();
        let data_start = target.plan.members[0].superblock.data_offset;
        let programs = on_tracers(1, &target.plan, &geometries, Sectors(8), async |_, tracer| {
            let program = tracer.program(&list, Sectors(8)).await.expect("members that record do not fail");
            let ios = |n| {
                let steps = program.steps(n);
                let one = |io: &MemberIo| (io.verb, io.member, (io.at.0 - data_start.0) / chunk.0);
                steps.reads.iter().chain(steps.writes).map(one).collect()
            };
            (0..program.len()).map(ios).collect()
        });
        programs.into_iter().next().expect("one thread")
    }

    #[test]
    fn a_read_of_a_missing_member_is_replayed_as_one_read_of_each_other() {
        // Left-symmetric: row 0 is D0 D1 D2 D3 P, row 1 is D1 D2 D3 P D0.
        let mut found = of_degraded_raid5(8, false);
        found.iter_mut().for_each(|ios| ios.sort_by_key(|(_, member, _)| *member));
        let read = |member, row| (Verb::Read, member, row);
        let all = |row| (0..4).map(|member| read(member, row)).collect::<Vec<_>>();
        // Member n of the plan is in slot n + 1.
        let expected = [
            all(0),
            vec![read(0, 0)],
            vec![read(1, 0)],
            vec![read(2, 0)],
            vec![read(3, 1)],
            all(1),
            vec![read(0, 1)],
            vec![read(1, 1)],
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_logged_write_is_replayed_with_the_write_of_its_log() {
        let chunk = Sectors(128);
        let trial = Trial { policy: NewPolicy::Ppl, ..Trial::new(Level::Raid5, 5, chunk) };
        let member = || Some(Claimed::open("null:1G", Access::ReadWrite).expect("a null member"));
        let target = Target::trial(&trial, &[(); 5].map(|()| member())).expect("a trial array");
        let geometries: Vec<_> = target.members.iter().map(|member| member.geometry()).collect();
        let data_start = target.plan.members[0].superblock.data_offset;
        let list = [Request { at: Sector(chunk.0), is_write: true }];
        let programs = on_tracers(1, &target.plan, &geometries, Sectors(8), async |_, tracer| {
            tracer.program(&list, Sectors(8)).await.expect("members that record do not fail")
        });
        let steps = programs[0].steps(0);
        let found = |ios: &[MemberIo]| -> Vec<(Verb, u16, bool, u64)> {
            ios.iter().map(|io| (io.verb, io.member, io.at < data_start, io.length.0)).collect()
        };
        // Row 0 is D0 D1 D2 D3 P: the log is on member 4, a header and as much partial parity as data.
        assert_eq!(found(steps.reads), [(Verb::Read, 1, false, 8), (Verb::Read, 4, false, 8)]);
        let log = (Verb::Write, 4, true, 16);
        assert_eq!(found(steps.writes), [log, (Verb::Write, 1, false, 8), (Verb::WriteParity, 4, false, 8)]);
    }

    #[test]
    fn a_write_of_a_missing_member_is_replayed_as_reads_of_its_row_and_a_write_of_parity() {
        let found = of_degraded_raid5(1, true).remove(0);
        let (reads, writes): (Vec<_>, Vec<_>) = found.into_iter().partition(|(verb, ..)| *verb == Verb::Read);
        assert_eq!(reads.iter().map(|(_, member, _)| *member).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(writes, [(Verb::WriteParity, 3, 0)]);
    }
}
