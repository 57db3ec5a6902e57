//! The space of members that are files: what gives it back, and what keeps it.
//! Owns: punches and zeroes of the file of `--fuse`, trims and zeroes of NBD, on every level. Not here: that they are
//! exact (`fuse`, `fuse_loop`, the simulator).

use crate::common::{Clear, MIB, pattern};
use crate::fuse::Mounted;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs;
use std::os::unix::fs::MetadataExt;

const LEVELS: [(&str, usize); 7] =
    [("linear", 2), ("raid0", 2), ("raid1", 2), ("raid10", 4), ("raid4", 3), ("raid5", 3), ("raid6", 4)];

/// Bytes that a member may keep: its superblock, and parts of rows at the array's end.
const REST_MAX: u64 = 2 * MIB;

#[derive(Clone, Copy, Debug)]
enum Way {
    Fuse(FallocateFlags),
    Nbd(Clear),
}

/// The bytes that each member has.
fn space(mounted: &Mounted) -> Vec<u64> {
    let of = |member| fs::metadata(member).expect("a member").blocks() * 512;
    mounted.members.iter().map(of).collect()
}

#[test]
fn punches_and_trims_of_every_level_give_space_back_and_zero_ranges_keep_it() {
    let keep = FallocateFlags::KEEP_SIZE;
    let ways = [
        (Way::Fuse(FallocateFlags::PUNCH_HOLE | keep), false),
        (Way::Fuse(FallocateFlags::ZERO_RANGE | keep), true),
        (Way::Nbd(Clear::Trim), false),
        (Way::Nbd(Clear::Zeroes), false),
        (Way::Nbd(Clear::ZeroesWithoutHole), true),
    ];
    for (level, slots) in LEVELS {
        let mounted = Mounted::new(level, slots, &["--shards", "2"]);
        let mut client = mounted.served().client();
        let size = client.size;
        for (way, keeps) in ways {
            let case = format!("{level}, {way:?}");
            mounted.served().write_all(0, &pattern(9, size as usize));
            assert_eq!(client.flush().expect("connected"), 0, "{case}");
            let before = space(&mounted);
            assert!(before.iter().all(|bytes| *bytes > 12 * MIB), "{case}: {before:?}");
            match way {
                Way::Fuse(flags) => fallocate(mounted.open(), flags, 0, size).expect("taken"),
                Way::Nbd(command) => {
                    assert_eq!(client.clear(command, 0, size as u32).expect("connected"), 0, "{case}");
                }
            }
            assert_eq!(client.flush().expect("connected"), 0, "{case}");
            let after = space(&mounted);
            let is_as_expected =
                |(before, after): (&u64, &u64)| if keeps { after >= before } else { *after <= REST_MAX };
            assert!(before.iter().zip(&after).all(is_as_expected), "{case}: {before:?}, then {after:?}");
            let found = mounted.served().first_difference(&vec![0; size as usize]);
            assert_eq!(found, None, "{case}");
        }
        drop(client);
        mounted.scratch.stop_when_left("home");
    }
}
