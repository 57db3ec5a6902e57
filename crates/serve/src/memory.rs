//! The memory of a server, and its division.
//! Owns: `--memory-limit`, the sizes of all buffers of a server, the refusal if they cannot be had. Not here: what a
//! frontend takes ([`TakesMemory`]), the buffers themselves (`host`), other subcommands.
//! Invariant: the memory is counted as if all buffers were full. Every arena has at least the minimum that the engine
//! and the server need.

use crate::stack::{AssembledStack, CLIENT_BLOCKS};
use uraid_block::buffer::{LARGE_BLOCK_BYTES, SMALL_BLOCK_BYTES};
use uraid_host::{ARENAS, ArenaBlocks, CLIENT_ARENA, NoMemory, ensure_memory};

const MIB: u64 = 1 << 20;
/// What the process takes besides its threads: the program, its tables, the log.
const PROCESS_BYTES: u64 = 24 * MIB;
/// What a thread takes besides its buffers: rings, tables of blocks, tasks.
const SHARD_BYTES: u64 = 4 * MIB;
/// The tasks that run the trims and write-zeroes of one array's clients on one thread: 40 of 4.3 KiB.
const CLEARS_BYTES: u64 = 172 << 10;
/// Address space of a thread without memory: its stack, and what the allocator reserves for it.
const THREAD_ADDRESS_BYTES: u64 = 68 * MIB;
/// Threads that do not serve: two for the log, and a few helpers.
const OTHER_THREADS: u64 = 6;
/// What all arrays of a process have together on each thread, where no limit is given; or the least that works, if that
/// is more. Up to five mirrors have their full size; of many, each has a fair share.
const UNLIMITED_BYTES: u64 = 1 << 30;
/// The number of sizes between the minimum and the full size.
const STEPS: u64 = 256;
/// How much of its full size a server has: from the least that works up to all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(u64);

impl Share {
    /// The least that works.
    pub const LEAST: Share = Share(0);
    /// The full size.
    pub const FULL: Share = Share(STEPS);

    /// Of something that has this much at the least, and at its full size.
    pub fn of(self, least: u64, full: u64) -> u64 {
        least + full.saturating_sub(least) * self.0 / STEPS
    }
}

/// What takes memory beside the arrays: a frontend.
pub trait TakesMemory {
    /// Bytes of its buffers on each thread.
    fn buffer_bytes(&self, share: Share) -> u64;
    /// Bytes of everything else that it has on each thread.
    fn other_bytes(&self, share: Share) -> u64;
}

/// The sizes of a server's buffers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The arenas of each thread and array; the clients' arena of each thread.
    pub arenas: [ArenaBlocks; ARENAS],
    /// The share of its full size that each frontend has.
    pub share: Share,
}

/// There is not enough memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// `--memory-limit` is too small.
    #[error(
        "--memory-limit {} is too small for {}: expected at least {} MiB{} (a bare number is in KiB)",
        size(*found), threads(*shards), expected.div_ceil(MIB), with_fewer(*shards, *one_shard)
    )]
    Limit {
        /// What was asked for, in bytes.
        found: u64,
        /// The least.
        expected: u64,
        /// Threads.
        shards: u16,
        /// The least of one thread.
        one_shard: u64,
    },
    /// The system does not have this much.
    #[error(
        "cannot start {}: {why}; raise the limit, or start with --memory-limit SIZE (at least {}M){}",
        threads(*shards), least.div_ceil(MIB), if *shards == 1 { "" } else { " or fewer --shards" }
    )]
    System {
        /// Threads.
        shards: u16,
        /// The least that --memory-limit takes.
        least: u64,
        /// What is needed, and what there is.
        why: NoMemory,
    },
}

/// In MiB if that is a whole number, else in KiB.
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{} MiB", bytes / MIB) } else { format!("{} KiB", bytes.div_ceil(1024)) }
}

fn threads(shards: u16) -> String {
    if shards == 1 { "1 thread".to_owned() } else { format!("{shards} threads") }
}

fn with_fewer(shards: u16, one_shard: u64) -> String {
    if shards == 1 { String::new() } else { format!(", or {} MiB with --shards 1", one_shard.div_ceil(MIB)) }
}

/// What determines the sizes of a server's buffers.
struct Shape<'a> {
    arrays: u64,
    shards: u16,
    /// The slots of the widest array.
    slots: u32,
    /// The arenas at their full size.
    full: [ArenaBlocks; ARENAS],
    frontends: &'a [&'a dyn TakesMemory],
}

impl Shape<'_> {
    /// Each arena of rows holds at least two of the widest array, and a client's request has at most 1.5 MiB.
    fn arenas(&self, share: Share) -> [ArenaBlocks; ARENAS] {
        // Some are smaller than the least of others, which have blocks of another size in their place.
        if share == Share::FULL {
            return self.full;
        }
        let mut least = [ArenaBlocks { small: 64, large: 2 * (self.slots + 2) }; ARENAS];
        let served = self.full[CLIENT_ARENA].small / CLIENT_BLOCKS.small;
        least[CLIENT_ARENA] = ArenaBlocks { small: 256 * served, large: 32 * served };
        let blocks = |least: u32, full: u32| share.of(least.into(), full.into()) as u32;
        std::array::from_fn(|n| ArenaBlocks {
            small: blocks(least[n].small, self.full[n].small),
            large: blocks(least[n].large, self.full[n].large),
        })
    }

    /// All buffers of the process, in bytes.
    fn buffers(&self, share: Share) -> u64 {
        let arenas = self.arenas(share);
        let of_array: u64 = arenas[..CLIENT_ARENA].iter().map(block_bytes).sum();
        let of_frontends: u64 = self.frontends.iter().map(|frontend| frontend.buffer_bytes(share)).sum();
        u64::from(self.shards) * (self.arrays * of_array + block_bytes(&arenas[CLIENT_ARENA]) + of_frontends)
    }

    /// The whole process.
    fn total(&self, share: Share) -> u64 {
        let of_frontends: u64 = self.frontends.iter().map(|frontend| frontend.other_bytes(share)).sum();
        let of_shard = SHARD_BYTES + self.arrays * CLEARS_BYTES + of_frontends;
        PROCESS_BYTES + u64::from(self.shards) * of_shard + self.buffers(share)
    }

    /// The largest share with which the process stays below `limit` bytes. Without a limit, a single array has its full
    /// size.
    fn share(&self, limit: Option<u64>) -> Result<Share, MemoryError> {
        let of_many = || (UNLIMITED_BYTES * u64::from(self.shards)).max(self.total(Share::LEAST));
        let limit = limit.or_else(|| (self.arrays > 1).then(of_many));
        let Some(limit) = limit.filter(|&limit| limit < self.total(Share::FULL)) else { return Ok(Share::FULL) };
        let expected = self.total(Share::LEAST);
        if limit < expected {
            let one_shard = Shape { shards: 1, ..*self }.total(Share::LEAST);
            return Err(MemoryError::Limit { found: limit, expected, shards: self.shards, one_shard });
        }
        let fitting = (0..STEPS).rev().map(Share).find(|share| self.total(*share) <= limit);
        Ok(fitting.expect("the least fits"))
    }
}

/// The bytes of these blocks.
pub(crate) fn block_bytes(blocks: &ArenaBlocks) -> u64 {
    u64::from(blocks.small) * SMALL_BLOCK_BYTES as u64 + u64::from(blocks.large) * LARGE_BLOCK_BYTES as u64
}

/// The buffers of a server of these arrays with these frontends. Fails if the system does not have the memory.
pub fn plan(
    stack: &AssembledStack,
    shards: u16,
    frontends: &[&dyn TakesMemory],
    limit: Option<u64>,
) -> Result<Plan, MemoryError> {
    let (arrays, full) = (stack.arrays.len() as u64, stack.host_options().arenas);
    let shape = Shape { arrays, shards, slots: stack.slots_max().into(), full, frontends };
    let share = shape.share(limit)?;
    let wanted = shape.buffers(share);
    let threads = u64::from(shards) + OTHER_THREADS;
    ensure_memory(wanted + PROCESS_BYTES, threads * THREAD_ADDRESS_BYTES).map_err(|why| MemoryError::System {
        shards,
        least: shape.total(Share::LEAST),
        why,
    })?;
    Ok(Plan { arenas: shape.arenas(share), share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_arrays::options_for;

    /// A frontend with so many bytes of buffers, and as many of other memory.
    struct Part(u64, u64);

    impl TakesMemory for Part {
        fn buffer_bytes(&self, share: Share) -> u64 {
            share.of(self.0, self.1)
        }

        fn other_bytes(&self, share: Share) -> u64 {
            share.of(self.0, self.1)
        }
    }

    #[test]
    fn any_limit_is_kept_or_refused_with_the_least_that_is() {
        for (slots, arrays, shards) in [(2, 1, 1), (4, 1, 4), (8, 3, 2), (250, 1, 2), (27, 1, 64)] {
            let (nbd, fuse) = (Part(4 * MIB, 100 * MIB), Part(MIB, 20 * MIB));
            let frontends: Vec<&dyn TakesMemory> = if shards == 2 { vec![&nbd, &fuse] } else { vec![&nbd] };
            let mut full = options_for(slots).arenas;
            full[CLIENT_ARENA] = CLIENT_BLOCKS;
            let shape = Shape { arrays, shards, slots: slots.into(), full, frontends: &frontends };
            let least = shape.total(Share::LEAST);
            for limit in [1, 31 * MIB, least - 1, least, least + 1, 2 * least, 400 * MIB, u64::MAX] {
                match shape.share(Some(limit)) {
                    Ok(share) => {
                        assert!(limit >= least && shape.total(share) <= limit);
                        assert!(share == Share::FULL || shape.total(Share(share.0 + 1)) > limit, "no larger one fits");
                        let (arenas, rows) = (shape.arenas(share), u32::from(slots) + 2);
                        assert!(arenas.iter().zip(&full).all(|(got, full)| got.small <= full.small.max(64)));
                        assert!(arenas[1].large >= rows && arenas[3].large >= rows);
                    }
                    Err(error) => {
                        assert!(limit < least, "{error}");
                        assert!(matches!(error, MemoryError::Limit { expected, .. } if expected == least));
                    }
                }
            }
            assert_eq!(shape.share(Some(shape.total(Share::FULL))).expect("all of it"), Share::FULL);
            assert_eq!(shape.share(None).expect("without a limit"), Share::FULL);
            assert_eq!(shape.arenas(Share::FULL), full);
        }
    }

    #[test]
    fn many_arrays_share_what_some_have() {
        let mut full = options_for(2).arenas;
        full[CLIENT_ARENA] = CLIENT_BLOCKS;
        let total = |arrays, shards| {
            let shape = Shape { arrays, shards, slots: 2, full, frontends: &[] };
            let share = shape.share(None).expect("no limit, no error");
            (share, shape.total(share), shape.total(Share::LEAST))
        };
        assert_eq!(total(1, 2).0, Share::FULL);
        for arrays in [32, 128, 300] {
            let (share, bytes, least) = total(arrays, 2);
            assert!(share != Share::FULL && bytes <= least.max(2 * UNLIMITED_BYTES), "{arrays}: {share:?}, {bytes}");
        }
    }
}
