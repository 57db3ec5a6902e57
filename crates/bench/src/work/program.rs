//! The member I/Os for each request of a list, computed before the run.
//! Owns: [`Program`], [`MemberIo`], the program of `ideal`. Not here: how an array's own I/Os are found (`trace`),
//! driving it (`drive`). Invariant: a request's reads come before its writes, and the writes start when all reads have
//! ended.

use crate::work::{Random, Request, Work};
use uraid_block::{Sector, Sectors};

/// The kind of a member I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// Read.
    Read,
    /// Write bytes of the client.
    Write,
    /// Write computed parity.
    WriteParity,
    /// Discard.
    Discard,
}

/// One I/O of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemberIo {
    /// Which member, in the order of the array's plan.
    pub member: u16,
    /// The kind of I/O.
    pub verb: Verb,
    /// The first sector, on the device.
    pub at: Sector,
    /// The length.
    pub length: Sectors,
}

/// The kernel that an array runs for a full-stripe write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RowKernel {
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// The power of the generator in Q for each data chunk.
    pub exponents: Vec<u8>,
    /// Whether there is a Q.
    pub has_syndrome: bool,
}

/// The member I/Os of each request of a list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Program {
    ios: Vec<MemberIo>,
    /// For each request, the indexes after its last read and after its last I/O in `ios`.
    ends: Vec<(u32, u32)>,
    width_max: usize,
    alone_bytes: usize,
    read_bytes_max: usize,
    write_bytes_max: usize,
    /// Set if every request writes whole rows.
    pub kernel: Option<RowKernel>,
}

/// The I/Os of one request. All I/Os of a list may be in flight at once; the second list starts after the first has
/// ended.
pub(crate) struct Steps<'a> {
    /// Reads.
    pub reads: &'a [MemberIo],
    /// Writes and discards.
    pub writes: &'a [MemberIo],
}

impl Program {
    /// Adds a request, with its I/Os in the array's order.
    pub(crate) fn push(&mut self, ios: &[MemberIo]) {
        let is_read = |io: &&MemberIo| io.verb == Verb::Read;
        self.ios.extend(ios.iter().filter(is_read));
        let reads_end = self.ios.len() as u32;
        self.ios.extend(ios.iter().filter(|io| !is_read(io)));
        self.ends.push((reads_end, self.ios.len() as u32));
        let Steps { reads, writes } = self.steps(self.len() - 1);
        let (width, read, write) = (reads.len().max(writes.len()), bytes(reads), bytes(writes));
        let is_alone = reads.len() == 1 && writes.is_empty();
        self.width_max = self.width_max.max(width);
        if is_alone && [0, read].contains(&self.alone_bytes) {
            self.alone_bytes = read;
        } else {
            self.read_bytes_max = self.read_bytes_max.max(read);
        }
        self.write_bytes_max = self.write_bytes_max.max(write);
    }

    /// How many requests the program has.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The I/Os of request `n`.
    pub(crate) fn steps(&self, n: usize) -> Steps<'_> {
        let start = if n == 0 { 0 } else { self.ends[n - 1].1 };
        let (reads_end, end) = self.ends[n];
        let (reads, writes) = self.ios[start as usize..end as usize].split_at((reads_end - start) as usize);
        Steps { reads, writes }
    }

    /// The most I/Os that a request has in flight at once.
    pub(crate) fn width_max(&self) -> usize {
        self.width_max
    }

    /// The length of the requests that are a single read, in bytes: that of the first one if they differ; 0 if there
    /// are none.
    pub(crate) fn alone_bytes(&self) -> usize {
        self.alone_bytes
    }

    /// The most bytes that any other request reads.
    pub(crate) fn read_bytes_max(&self) -> usize {
        self.read_bytes_max
    }

    /// The most bytes that a request writes.
    pub(crate) fn write_bytes_max(&self) -> usize {
        self.write_bytes_max
    }
}

fn bytes(ios: &[MemberIo]) -> usize {
    ios.iter().map(|io| io.length.len_bytes()).sum()
}

/// The data area of a member on its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// Its first sector.
    pub start: Sector,
    /// How much of it the work may touch.
    pub length: Sectors,
}

/// As many requests as those of an array, of the same size and pattern, but each to a single member, in turn. If the
/// pattern is sequential, each job has its own part of each member's data area; `job` counts the jobs of all shards.
pub(crate) fn ideal(work: &Work, job: u64, list: &[Request], rooms: &[Room]) -> Program {
    let (jobs, members) = (work.jobs_in_all(), rooms.len() as u64);
    let mut random = Random::new(!job);
    let mut program = Program::default();
    for (n, request) in (0..).zip(list) {
        // Jobs begin with different members.
        let member = (n + job) % members;
        let room = rooms[member as usize];
        let blocks = (room.length.0 / work.block.0).max(1);
        let block = match work.pattern.is_random() {
            true => random.below(blocks),
            false => {
                let own = (blocks / jobs).max(1);
                (job * own + n / members % own) % blocks
            }
        };
        let verb = if request.is_write { Verb::Write } else { Verb::Read };
        let at = Sector(room.start.0 + block * work.block.0);
        program.push(&[MemberIo { member: member as u16, verb, at, length: work.block }]);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Pattern;

    fn io(member: u16, verb: Verb, at: u64, length: u64) -> MemberIo {
        MemberIo { member, verb, at: Sector(at), length: Sectors(length) }
    }

    #[test]
    fn reads_of_a_request_stand_before_its_writes() {
        let mut program = Program::default();
        program.push(&[io(0, Verb::Read, 0, 8), io(1, Verb::WriteParity, 0, 8), io(2, Verb::Read, 0, 16)]);
        program.push(&[io(1, Verb::Write, 8, 8)]);
        let steps = program.steps(0);
        assert_eq!((steps.reads.len(), steps.writes), (2, &[io(1, Verb::WriteParity, 0, 8)][..]));
        let steps = program.steps(1);
        assert_eq!((steps.reads, steps.writes), (&[][..], &[io(1, Verb::Write, 8, 8)][..]));
        assert_eq!((program.len(), program.width_max()), (2, 2));
        assert_eq!((program.read_bytes_max(), program.write_bytes_max()), (24 * 512, 8 * 512));
        assert_eq!(program.alone_bytes(), 0);
    }

    #[test]
    fn requests_that_are_one_read_have_a_buffer_of_their_own() {
        let mut program = Program::default();
        for lengths in [&[8][..], &[8, 8, 8, 8], &[8], &[40]] {
            program.push(&lengths.iter().map(|length| io(0, Verb::Read, 0, *length)).collect::<Vec<_>>());
        }
        assert_eq!((program.alone_bytes(), program.read_bytes_max()), (8 * 512, 40 * 512));
    }

    #[test]
    fn ideal_goes_round_the_members_and_on_along_each_of_them() {
        let work = Work { pattern: Pattern::Read, block: Sectors(8), jobs: 2, ..Work::default() };
        let rooms = [Room { start: Sector(100), length: Sectors(64) }; 3];
        let list = vec![Request { at: Sector(0), is_write: false }; 7];
        let places = |job| {
            let program = ideal(&work, job, &list, &rooms);
            program.ios.iter().map(|io| (io.member, io.at.0)).collect::<Vec<_>>()
        };
        assert_eq!(places(0), [(0, 100), (1, 100), (2, 100), (0, 108), (1, 108), (2, 108), (0, 116)]);
        assert_eq!(places(1)[..3], [(1, 132), (2, 132), (0, 132)], "the second job has the second half");
    }
}
