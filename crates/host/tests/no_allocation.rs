//! A read of a member costs no allocation, alone or merged with adjacent reads: counted.

#[path = "../../block/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use std::cell::Cell;
use std::rc::Rc;
use uraid_block::local::Notify;
use uraid_block::{Device, Sector};
use uraid_host::{Access, ArenaBlocks, Claimed, Options, RingChoice, Shard, run};

const READS: u64 = 4000;

/// Reads page after page, `depth` at a time. Returns how often this thread has allocated in the second half.
async fn allocations_of_reads(shard: Shard<()>, claimed: Claimed, depth: u64) -> u64 {
    let member = Rc::new(claimed.on_shard(&shard));
    let (next, running, half) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(depth)), Rc::new(Cell::new(0)));
    let ended = Rc::new(Notify::new());
    for _ in 0..depth {
        let (member, next, running, half) = (member.clone(), next.clone(), running.clone(), half.clone());
        let mut buffers = shard.arena(0).take(4096).expect("room");
        let ended = ended.clone();
        shard.spawn(async move {
            while next.get() < READS {
                let n = next.replace(next.get() + 1);
                if n == READS / 2 {
                    half.set(allocations());
                }
                buffers = member.read(Sector(n % 256 * 8), buffers).await.expect("readable");
            }
            if running.replace(running.get() - 1) == 1 {
                half.set(allocations() - half.get());
                ended.notify_all();
            }
        });
    }
    ended.wait_for(|| (running.get() == 0).then_some(())).await;
    half.get()
}

#[test]
fn a_read_allocates_nothing_alone_or_merged() {
    let path = std::env::temp_dir().join(format!("uraid-no-allocation-{}", std::process::id()));
    std::fs::write(&path, vec![7; 1 << 20]).expect("room");
    for name in [path.to_str().expect("utf-8"), "mem:1M", "mem:1M,request=1us"] {
        for depth in [1, 16] {
            let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
            // Helper threads receive boxed jobs: the path without allocations is io_uring.
            let arenas = [ArenaBlocks { small: 16, large: 0 }; 5];
            let options = Options { arenas, ring: RingChoice::IoUring, ..Options::default() };
            let counted = run(1, &options, |shard| allocations_of_reads(shard, claimed.clone(), depth));
            // Reused lists grow when more requests are merged at once than ever before.
            let grown_max = if depth == 1 { 0 } else { 12 };
            assert!(counted[0] <= grown_max, "{name}, {depth} at once: {counted:?} in {} reads", READS / 2);
        }
    }
    std::fs::remove_file(&path).expect("removed");
}
