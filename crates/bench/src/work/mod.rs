//! The work of a bench: fio's options, and the list of requests that they mean.
//! Owns: [`Pattern`], [`Work`], [`Request`], parsing sizes, refusing impossible works. Not here: running it
//! (`measure`), the member I/Os that it needs (`program`).
//! Invariant: a request lies in the array and begins at a multiple of the block from the offset. Lists are the same in
//! every run, so that two runs can be compared.

pub(crate) mod program;

use std::time::Duration;
use uraid_arrays::SPIN;
use uraid_block::sizes::{chunk, counted};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};

/// The most requests in the lists of a shard, all its jobs together; a list then repeats.
const LIST_MAX: u64 = 1 << 18;
/// The most bytes of one list's requests: their member I/Os are computed before the run.
const LIST_BYTES_MAX: u64 = 4 << 30;
/// A shorter list would repeat the same few requests.
const LIST_MIN: u64 = 64;
/// A random list has this many requests per block.
const PASSES: u64 = 4;

/// fio's `rw`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Sequential reads and writes.
    Rw,
    /// Random reads and writes.
    Randrw,
}

impl Pattern {
    /// fio's word.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Read => "read",
            Pattern::Write => "write",
            Pattern::Randread => "randread",
            Pattern::Randwrite => "randwrite",
            Pattern::Rw => "rw",
            Pattern::Randrw => "randrw",
        }
    }

    /// Whether requests are at random addresses.
    pub fn is_random(self) -> bool {
        match self {
            Pattern::Randread | Pattern::Randwrite | Pattern::Randrw => true,
            Pattern::Read | Pattern::Write | Pattern::Rw => false,
        }
    }

    /// Whether the pattern writes.
    pub fn writes(self) -> bool {
        match self {
            Pattern::Read | Pattern::Randread => false,
            Pattern::Write | Pattern::Randwrite | Pattern::Rw | Pattern::Randrw => true,
        }
    }

    /// Percent of its requests that are reads.
    fn reads_percent(self, mix: u8) -> u8 {
        match self {
            Pattern::Read | Pattern::Randread => 100,
            Pattern::Write | Pattern::Randwrite => 0,
            Pattern::Rw | Pattern::Randrw => mix,
        }
    }
}

/// Why a work cannot be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkError {
    /// A size or a place that no device can read or write.
    #[error("{option} is {found} bytes, expected a multiple of 512{}", if *.is_least { ", and at least that" } else { "" })]
    Sectors {
        /// Which option.
        option: &'static str,
        /// What it says.
        found: u64,
        /// Whether zero is wrong too.
        is_least: bool,
    },
    /// A request larger than an array takes.
    #[error("--bs is {found} bytes, expected at most {expected}, the largest request of an array")]
    BlockTooLarge {
        /// The size given.
        found: u64,
        /// The largest possible.
        expected: u64,
    },
    /// No request would be in flight.
    #[error("{option} is 0, expected at least 1")]
    Zero {
        /// Which option.
        option: &'static str,
    },
    /// More requests at once than there is reserved memory for.
    #[error("{found} requests of a shard would be in flight (--iodepth times --jobs), expected at most {expected}")]
    TooDeep {
        /// Depth times jobs.
        found: u64,
        /// The most.
        expected: u64,
    },
    /// The buffers of the requests would not fit.
    #[error("the requests in flight need buffers of {found} bytes on each shard, expected at most {expected}")]
    TooMuchMemory {
        /// Depth times jobs times block.
        found: u64,
        /// The most.
        expected: u64,
    },
    /// The work does not lie in the array.
    #[error("--offset {offset} and --size {size} end at byte {}, the array has {expected}", offset.saturating_add(*size))]
    OutOfArray {
        /// Where it begins.
        offset: u64,
        /// How many bytes the work covers.
        size: u64,
        /// The size of the array.
        expected: u64,
    },
    /// The jobs have less than one request each.
    #[error("{found} bytes for {jobs} jobs, expected at least one request of {block} bytes for each")]
    TooSmall {
        /// Bytes that the work covers.
        found: u64,
        /// Jobs of all shards.
        jobs: u64,
        /// Bytes of a request.
        block: u64,
    },
}

/// The largest request of an array: the engine's `io_max`.
const BLOCK_BYTES_MAX: u64 = 32 << 20;
const DEPTH_MAX: u64 = 1 << 16;
const BUFFER_BYTES_MAX: u64 = 8 << 30;

/// What to do with an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Work {
    /// In which order, reads or writes.
    pub pattern: Pattern,
    /// Length of a request.
    pub block: Sectors,
    /// Requests in flight of one job.
    pub depth: u32,
    /// Jobs of one shard.
    pub jobs: u32,
    /// Threads.
    pub shards: u16,
    /// The processor that each shard is pinned to; empty: not pinned.
    pub processors: Vec<u16>,
    /// How long a shard busy-polls for messages before it sleeps.
    pub spin: Duration,
    /// Percent of reads where there are both.
    pub mix_reads: u8,
    /// Where it begins in the array.
    pub offset: Sectors,
    /// How much of the array it touches; `None`: all behind the offset.
    pub size: Option<Sectors>,
}

impl Default for Work {
    fn default() -> Work {
        let block = Sectors(8);
        let (shards, spin, mix_reads, offset) = (1, SPIN, 50, Sectors::ZERO);
        Work {
            pattern: Pattern::Randread,
            block,
            depth: 32,
            jobs: 1,
            shards,
            processors: Vec::new(),
            spin,
            mix_reads,
            offset,
            size: None,
        }
    }
}

/// One request of a list; its length is the work's block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its first sector.
    pub at: Sector,
    /// A write, or a read.
    pub is_write: bool,
}

impl Work {
    /// Checks what can be checked without an array.
    pub fn check(&self) -> Result<(), WorkError> {
        let block = self.block.bytes();
        if block > BLOCK_BYTES_MAX {
            return Err(WorkError::BlockTooLarge { found: block, expected: BLOCK_BYTES_MAX });
        }
        for (option, value) in [("--iodepth", self.depth), ("--jobs", self.jobs), ("--shards", self.shards.into())] {
            if value == 0 {
                return Err(WorkError::Zero { option });
            }
        }
        let found = u64::from(self.depth) * u64::from(self.jobs);
        if found > DEPTH_MAX {
            return Err(WorkError::TooDeep { found, expected: DEPTH_MAX });
        }
        if found * block > BUFFER_BYTES_MAX {
            return Err(WorkError::TooMuchMemory { found: found * block, expected: BUFFER_BYTES_MAX });
        }
        Ok(())
    }

    /// Checks that the work lies in an array of this size. Returns how much of the array each job has.
    pub fn share(&self, array: Sectors) -> Result<Sectors, WorkError> {
        let size = self.size.unwrap_or_else(|| Sectors(array.0.saturating_sub(self.offset.0)));
        if self.offset.0.checked_add(size.0).is_none_or(|end| end > array.0) {
            let (offset, size) = (self.offset.bytes(), size.bytes());
            return Err(WorkError::OutOfArray { offset, size, expected: array.bytes() });
        }
        let jobs = self.jobs_in_all();
        let blocks = size.0 / self.block.0 / jobs;
        if blocks == 0 {
            return Err(WorkError::TooSmall { found: size.bytes(), jobs, block: self.block.bytes() });
        }
        Ok(Sectors(self.block.0 * blocks))
    }

    /// Jobs of all shards.
    pub fn jobs_in_all(&self) -> u64 {
        u64::from(self.jobs) * u64::from(self.shards)
    }

    /// The list of requests of a job, which the job repeats; `job` counts the jobs of all shards. `share` is the result
    /// of [`Work::share`]. Random requests are anywhere in the region, sequential ones in the job's own part.
    pub fn requests(&self, job: u64, share: Sectors) -> Vec<Request> {
        let blocks = share.0 / self.block.0;
        let jobs = self.jobs_in_all();
        let per_shard = (LIST_BYTES_MAX / self.block.bytes()).min(LIST_MAX);
        let enough = (per_shard / u64::from(self.jobs)).max(LIST_MIN);
        // A sequential list is at most as long as the job's part; a random one need not contain each block many times.
        let count = if self.pattern.is_random() { enough.min(PASSES * blocks) } else { enough.min(blocks) };
        let reads = u64::from(self.pattern.reads_percent(self.mix_reads));
        let mut random = Random::new(job);
        let list = (0..count).map(|n| {
            let block = match self.pattern.is_random() {
                true => random.below(blocks * jobs),
                false => job * blocks + n,
            };
            let at = Sector(self.offset.0 + block * self.block.0);
            Request { at, is_write: random.below(100) >= reads }
        });
        list.collect()
    }

    /// `randread 4K, 1 job x depth 32, 1 shard`, and `, from 64K on` if the work does not begin at the array's start.
    pub fn describe(&self) -> String {
        let spin = if self.spin == SPIN { String::new() } else { format!(", spin {:?}", self.spin) };
        let from = match self.offset {
            Sectors::ZERO => String::new(),
            offset => format!(", from {} on", chunk(offset)),
        };
        format!(
            "{} {}, {} x depth {}, {}{spin}{from}",
            self.pattern.name(),
            chunk(self.block),
            counted(self.jobs.into(), "job", "jobs"),
            self.depth,
            counted(self.shards.into(), "shard", "shards")
        )
    }
}

/// Pseudo-random numbers that are the same in every run.
pub(crate) struct Random(u64);

impl Random {
    /// A different sequence for each seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number (splitmix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next one from 0 up to below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Bytes in fio's spelling: `4096`, `4K`, `1M`; suffixes are powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits_end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("{text:?} is no size, expected bytes, or a number with K, M, G, T (powers of 1024)")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size, expected a number like 4096 or 4K"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is above the largest size, 2^64 bytes"))
}

/// A number of bytes as sectors, for option `option`.
pub fn whole_sectors(option: &'static str, found: u64, is_least: bool) -> Result<Sectors, WorkError> {
    if !found.is_multiple_of(SECTOR_BYTES as u64) || (found == 0 && is_least) {
        return Err(WorkError::Sectors { option, found, is_least });
    }
    Ok(Sectors(found / SECTOR_BYTES as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_fio_reads_them() {
        assert_eq!((parse_bytes("4096"), parse_bytes("4k"), parse_bytes("1M")), (Ok(4096), Ok(4096), Ok(1 << 20)));
        for text in ["", "K", "4X", "-1", "99999999999999999999", "18446744073709551615K"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sequential_jobs_share_the_region_and_go_through_their_part_in_order() {
        let work = Work { pattern: Pattern::Read, jobs: 2, offset: Sectors(3), ..Work::default() };
        let share = work.share(Sectors(3 + 8 * 11)).expect("it fits");
        assert_eq!(share, Sectors(8 * 5), "eleven blocks are five for each of two jobs");
        let starts = |job| work.requests(job, share).iter().map(|request| request.at.0).collect::<Vec<_>>();
        assert_eq!(starts(0), [3, 11, 19, 27, 35], "the list is its part once");
        assert_eq!(starts(1), [43, 51, 59, 67, 75]);
    }

    #[test]
    fn random_requests_reach_all_of_the_region_and_nothing_else() {
        let work = Work { pattern: Pattern::Randrw, mix_reads: 70, offset: Sectors(1), ..Work::default() };
        let share = work.share(Sectors(1 + 8 * 4096 + 7)).expect("it fits");
        let list = work.requests(0, share);
        assert!(list.iter().all(|request| (request.at.0 - 1).is_multiple_of(8) && request.at.0 < 1 + 8 * 4096));
        let parts: std::collections::BTreeSet<u64> = list.iter().map(|request| request.at.0 / 2048).collect();
        assert_eq!(parts.len(), 16, "all over the region");
        let writes = list.iter().filter(|request| request.is_write).count();
        assert!((0.28..0.32).contains(&(writes as f64 / list.len() as f64)), "{writes} of {} are writes", list.len());
        assert_eq!(list, work.requests(0, share), "the same in every run");
        assert_ne!(list, work.requests(1, share), "each job has its own");
    }

    #[test]
    fn a_work_that_cannot_be_says_what_was_found_and_what_was_expected() {
        let refused = |work: Work| work.check().expect_err("refused").to_string();
        assert_eq!(refused(Work { depth: 0, ..Work::default() }), "--iodepth is 0, expected at least 1");
        assert!(refused(Work { depth: 1 << 10, jobs: 1 << 10, ..Work::default() }).contains("1048576 requests"));
        assert!(refused(Work { block: Sectors(1 << 20), ..Work::default() }).contains("at most 33554432"));
        let text = Work { offset: Sectors(8), ..Work::default() }.share(Sectors(8)).expect_err("empty").to_string();
        assert!(text.contains("0 bytes for 1 jobs"), "{text}");
        let text = Work { size: Some(Sectors(9)), ..Work::default() }.share(Sectors(8)).expect_err("long").to_string();
        assert_eq!(text, "--offset 0 and --size 4608 end at byte 4608, the array has 4096");
        let text = whole_sectors("--bs", 1000, true).expect_err("odd").to_string();
        assert_eq!(text, "--bs is 1000 bytes, expected a multiple of 512, and at least that");
    }
}
