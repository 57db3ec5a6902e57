//! Writes of memory of somebody else, to files and memory, under both rings.
//! Owns: aligned addresses and odd ones, one piece and several. Not here: levels with redundancy, which copy such memory first
//! (engine's `foreign_memory`).

#![allow(unsafe_code, reason = "memory of somebody else is passed by its address")]

use std::ptr::NonNull;
use uraid_block::{Changes, Device, ForeignMemory, Fua, SECTOR_BYTES, Sector, WritePieces};
use uraid_host::{Access, ArenaBlocks, Claimed, Options, RingChoice, Shard, run};

const MIB: usize = 1 << 20;

async fn write_and_read_back(shard: Shard<()>, claimed: Claimed) {
    let member = claimed.on_shard(&shard);
    let memory: Box<[u8]> = (0..3 * 64 * 1024_usize).map(|at| (at / 7 + at / 4096) as u8).collect();
    let start = NonNull::from(&memory[..]).cast();
    // SAFETY: `memory` lives until the end of this test, longer than the pieces, and nobody writes it.
    let foreign = unsafe { ForeignMemory::new(start, memory.len(), 8, Changes::AnyTime, ()) };
    let bytes = 8 * SECTOR_BYTES;
    // No direct file takes an odd address.
    for (at, offsets) in [(0, &[0][..]), (64, &[1][..]), (128, &[0, 70_001, 4096][..])] {
        let mut pieces = WritePieces::new();
        offsets.iter().for_each(|from| pieces.push(foreign.lend(*from, bytes).expect("inside")));
        member.write(Sector(at), pieces, Fua::Yes).await.expect("writable");
        let expected: Vec<u8> = offsets.iter().flat_map(|from| &memory[*from..from + bytes]).copied().collect();
        let into = shard.arena(1).take(expected.len()).expect("room");
        let found = member.read(Sector(at), into).await.expect("readable").to_vec();
        assert!(found == expected, "{offsets:?}");
    }
    assert_eq!(foreign.pieces_in_use(), 0);
}

#[test]
fn writes_take_foreign_memory_where_it_is() {
    let path = std::env::temp_dir().join(format!("uraid-host-{}-foreign", std::process::id()));
    for ring in [RingChoice::IoUring, RingChoice::Threads] {
        for name in [path.to_str().expect("UTF-8"), "mem:1M"] {
            std::fs::write(&path, vec![0; MIB]).expect("room");
            let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
            let options = Options { ring, arenas: [ArenaBlocks { small: 64, large: 8 }; 5], ..Options::default() };
            run(1, &options, |shard: Shard<()>| write_and_read_back(shard, claimed.clone()));
        }
    }
    std::fs::remove_file(&path).expect("it was made");
}
