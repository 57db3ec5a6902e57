//! The memory of a server, and its division.
//! Owns: `--memory-limit`, the sizes of all buffers of a server, the refusal if they cannot be had. Not here: the
//! buffers themselves (`host`, `export-nbd`), other subcommands.
//! Invariant: the memory is counted as if all buffers were full. Every arena has at least the minimum that the engine
//! and the server need.

use crate::stack::{CLIENT_BLOCKS, Stack};
use uraid_block::buffer::{LARGE_BLOCK_BYTES, SMALL_BLOCK_BYTES};
use uraid_export_fuse::{ARENA_BLOCKS, ARENA_BLOCKS_MIN};
use uraid_export_nbd::Limits;
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
/// The number of sizes between the minimum and the full size.
const STEPS: u64 = 256;
/// The fewest connections per thread for which a server is useful.
const CONNECTIONS_MIN: usize = 32;

/// The sizes of a server's buffers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The arenas of each thread and array; the clients' arena of each thread.
    pub arenas: [ArenaBlocks; ARENAS],
    /// How many clients.
    pub limits: Limits,
    /// The buffers of each thread for the files of `--fuse`; none without it.
    pub file_blocks: ArenaBlocks,
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
#[derive(Clone, Copy)]
struct Shape {
    arrays: u64,
    shards: u16,
}

impl Shape {
    /// All buffers of the process, in bytes.
    fn buffers(self, plan: &Plan) -> u64 {
        let of_array: u64 = plan.arenas[..CLIENT_ARENA].iter().map(bytes).sum();
        let (small, large) = plan.limits.own_blocks();
        let own = bytes(&ArenaBlocks { small, large });
        u64::from(self.shards)
            * (self.arrays * of_array + bytes(&plan.arenas[CLIENT_ARENA]) + own + bytes(&plan.file_blocks))
    }

    /// The whole process.
    fn total(self, plan: &Plan) -> u64 {
        let connections = plan.limits.connection_bytes() * plan.limits.connections_max as u64;
        let of_shard = SHARD_BYTES + self.arrays * CLEARS_BYTES + connections;
        PROCESS_BYTES + u64::from(self.shards) * of_shard + self.buffers(plan)
    }
}

fn bytes(blocks: &ArenaBlocks) -> u64 {
    u64::from(blocks.small) * SMALL_BLOCK_BYTES as u64 + u64::from(blocks.large) * LARGE_BLOCK_BYTES as u64
}

/// The minimum: each arena of rows holds two of the widest array, and a client's request has at most 1.5 MiB.
fn least(full: &Plan, slots: u32) -> Plan {
    let mut arenas = [ArenaBlocks { small: 64, large: 2 * (slots + 2) }; ARENAS];
    let served = full.arenas[CLIENT_ARENA].small / CLIENT_BLOCKS.small;
    arenas[CLIENT_ARENA] = ArenaBlocks { small: 256 * served, large: 32 * served };
    let file_blocks = if bytes(&full.file_blocks) == 0 { full.file_blocks } else { ARENA_BLOCKS_MIN };
    Plan { arenas, limits: limits(&full.limits, CONNECTIONS_MIN), file_blocks }
}

fn limits(full: &Limits, connections_max: usize) -> Limits {
    let part = |of: usize| (of * connections_max / full.connections_max).max(1);
    Limits {
        connections_max,
        peer_connections_max: part(full.peer_connections_max),
        handshakes_max: part(full.handshakes_max).max(CONNECTIONS_MIN / 2),
        ..full.clone()
    }
}

/// Interpolates between the minimum, at step 0, and the full size, at [`STEPS`].
fn between(least: &Plan, full: &Plan, step: u64) -> Plan {
    let count = |least: u64, full: u64| least + full.saturating_sub(least) * step / STEPS;
    let blocks = |least: u32, full: u32| count(least.into(), full.into()) as u32;
    let arena = |least: ArenaBlocks, full: ArenaBlocks| ArenaBlocks {
        small: blocks(least.small, full.small),
        large: blocks(least.large, full.large),
    };
    let arenas = std::array::from_fn(|n| arena(least.arenas[n], full.arenas[n]));
    let file_blocks = arena(least.file_blocks, full.file_blocks);
    let connections = count(least.limits.connections_max as u64, full.limits.connections_max as u64);
    Plan { arenas, limits: limits(&full.limits, connections as usize), file_blocks }
}

/// The buffers of a server whose process stays below `limit` bytes, if there is a limit; else the full size.
fn sized(shape: Shape, slots: u32, full: &Plan, limit: Option<u64>) -> Result<Plan, MemoryError> {
    let Some(limit) = limit.filter(|&limit| limit < shape.total(full)) else { return Ok(full.clone()) };
    let least = least(full, slots);
    let expected = shape.total(&least);
    if limit < expected {
        let one_shard = Shape { shards: 1, ..shape }.total(&least);
        return Err(MemoryError::Limit { found: limit, expected, shards: shape.shards, one_shard });
    }
    let fitting = (0..STEPS).rev().map(|step| between(&least, full, step)).find(|plan| shape.total(plan) <= limit);
    Ok(fitting.expect("the least fits"))
}

/// The buffers of a server of these arrays, also as files if `has_files`. Fails if the system does not have the memory.
pub fn plan(stack: &Stack, shards: u16, has_files: bool, limit: Option<u64>) -> Result<Plan, MemoryError> {
    let file_blocks = if has_files { ARENA_BLOCKS } else { ArenaBlocks { small: 0, large: 0 } };
    let full = Plan { arenas: stack.host_options().arenas, limits: Limits::default(), file_blocks };
    let shape = Shape { arrays: stack.arrays.len() as u64, shards };
    let slots = stack.slots_max().into();
    let plan = sized(shape, slots, &full, limit)?;
    let wanted = shape.buffers(&plan);
    let threads = u64::from(shards) + OTHER_THREADS;
    ensure_memory(wanted + PROCESS_BYTES, threads * THREAD_ADDRESS_BYTES).map_err(|why| MemoryError::System {
        shards,
        least: shape.total(&least(&full, slots)),
        why,
    })?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_arrays::options_for;

    fn full(slots: u16, file_blocks: ArenaBlocks) -> Plan {
        let mut arenas = options_for(slots).arenas;
        arenas[CLIENT_ARENA] = CLIENT_BLOCKS;
        Plan { arenas, limits: Limits::default(), file_blocks }
    }

    #[test]
    fn any_limit_is_kept_or_refused_with_the_least_that_is() {
        for (slots, arrays, shards) in [(2, 1, 1), (4, 1, 4), (8, 3, 2), (250, 1, 2), (27, 1, 64)] {
            let file_blocks = if shards == 2 { ARENA_BLOCKS } else { ArenaBlocks { small: 0, large: 0 } };
            let (shape, full) = (Shape { arrays, shards }, full(slots, file_blocks));
            let least = shape.total(&least(&full, slots.into()));
            for limit in [1, 31 * MIB, least - 1, least, least + 1, 2 * least, 400 * MIB, u64::MAX] {
                match sized(shape, slots.into(), &full, Some(limit)) {
                    Ok(plan) => {
                        assert!(limit >= least && shape.total(&plan) <= limit);
                        let rows = u32::from(slots) + 2;
                        assert!(
                            plan.arenas.iter().zip(&full.arenas).all(|(got, full)| got.small <= full.small.max(64))
                        );
                        assert!(plan.file_blocks.large >= 64.min(file_blocks.large));
                        assert!(plan.arenas[1].large >= rows && plan.arenas[3].large >= rows);
                    }
                    Err(error) => {
                        assert!(limit < least, "{error}");
                        assert!(matches!(error, MemoryError::Limit { expected, .. } if expected == least));
                    }
                }
            }
            let most = shape.total(&full);
            let all = sized(shape, slots.into(), &full, Some(most)).expect("all of it");
            assert_eq!(shape.total(&all), most);
        }
    }
}
