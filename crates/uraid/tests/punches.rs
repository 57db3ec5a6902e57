//! The space of members that are files: what gives it back, and what keeps it.
//! Owns: punches and zeroes of the file of `--fuse`, trims and zeroes of NBD, on every level; block devices as members;
//! arrays that refuse punches. Not here: that they are exact (`fuse`, `fuse_loop`, the simulator).

use crate::common::loop_device::{LoopDevice, RamFolder};
use crate::common::{Clear, MIB, Scratch, pattern};
use crate::fuse::Mounted;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

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
        let clean = if matches!(level, "linear" | "raid0") { "" } else { "--assume-clean" };
        let mounted = Mounted::create(Scratch::on_disk(), level, slots, clean, &["--shards", "2"]);
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

/// What mkfs.xfs does with a new array: holes one after the other, whose ends meet within rows. Members are not read, as
/// they know their holes, and written but for their superblocks.
///
/// ```text
///   raid5 of 4, chunks of 64 KiB: rows of 192 KiB, 16 rows in 3 MiB      holes of 1 MiB: 5 rows and 64 KiB, ...
/// ```
#[test]
fn holes_that_meet_within_rows_of_a_new_array_read_and_write_nothing() {
    for (level, slots) in [("raid4", 4), ("raid5", 4), ("raid6", 5)] {
        let options = ["--shards", "2"];
        let mounted = Mounted::create(Scratch::on_disk(), level, slots, "--assume-clean -c 64K", &options);
        let counted = || {
            let json = mounted.scratch.uraid(["detail", "home", "--json"]).expect_done().stdout;
            let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let members = report["members"].as_array().expect("a list").clone();
            let sum = |name: &str| members.iter().map(|member| member["io"][name]["count"].as_u64().expect(name)).sum();
            (sum("reads"), sum("zeroes"))
        };
        let size = mounted.served().client().size;
        let (before, holes): ((u64, u64), u64) = (counted(), size / MIB);
        for at in 0..holes {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(mounted.open(), flags, at * MIB, MIB).expect("taken");
        }
        let after = counted();
        assert_eq!(after.0, before.0, "{level}: members were read");
        // One for each member and hole, of its whole rows; as data, each end would make more.
        let zeroes = after.1 - before.1;
        assert!(zeroes <= holes * slots as u64, "{level}: {zeroes} requests for {holes} holes");
        mounted.scratch.stop_when_left("home");
    }
}

/// A raid5 of loop devices.
struct OfLoopDevices {
    mounted: Mounted,
    /// Under the devices.
    files: Vec<PathBuf>,
    _devices: Vec<LoopDevice>,
    _ram: Option<RamFolder>,
}

/// If loop devices are allowed. The last one may refuse discards.
fn of_loop_devices(refuses: bool) -> Option<OfLoopDevices> {
    let scratch = Scratch::on_disk();
    let mut files = scratch.members("m", 3, 16 * MIB);
    let Some(first) = LoopDevice::new(&files[0]) else {
        println!("not tested: loop devices need root");
        return None;
    };
    let ram = refuses.then(|| RamFolder::mount(scratch.path("ram")));
    if let Some(ram) = &ram {
        files[2] = ram.file("m2", 16 * MIB);
    }
    let others = files[1..].iter().map(|file| LoopDevice::new(file).expect("as the first"));
    let devices: Vec<LoopDevice> = std::iter::once(first).chain(others).collect();
    let paths: Vec<PathBuf> = devices.iter().map(|device| device.path().to_owned()).collect();
    scratch.create("home", "-l 5 -n 3 --assume-clean", &paths);
    Some(OfLoopDevices { mounted: Mounted::serve(scratch, paths, &[]), files, _devices: devices, _ram: ram })
}

#[test]
fn a_parity_level_over_block_devices_that_make_holes_gives_space_back() {
    let Some(array) = of_loop_devices(false) else { return };
    let (mounted, files) = (&array.mounted, &array.files);
    let space = || files.iter().map(|file| fs::metadata(file).expect("a file").blocks() * 512).collect::<Vec<u64>>();
    let mut client = mounted.served().client();
    let size = client.size;
    for way in [Way::Nbd(Clear::Trim), Way::Fuse(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)] {
        mounted.served().write_all(0, &pattern(9, size as usize));
        assert_eq!(client.flush().expect("connected"), 0);
        let before = space();
        assert!(before.iter().all(|bytes| *bytes > 12 * MIB), "{way:?}: {before:?}");
        match way {
            Way::Fuse(flags) => fallocate(mounted.open(), flags, 0, size).expect("taken"),
            Way::Nbd(command) => assert_eq!(client.clear(command, 0, size as u32).expect("connected"), 0),
        }
        assert_eq!(client.flush().expect("connected"), 0);
        let after = space();
        assert!(after.iter().all(|bytes| *bytes <= REST_MAX), "{way:?}: {before:?}, then {after:?}");
        assert_eq!(mounted.served().first_difference(&vec![0; size as usize]), None, "{way:?}");
    }
}

#[test]
fn holes_are_counted_apart_from_data() {
    let mounted = Mounted::new("raid10", 4, &[]);
    let count = |kind: &str| -> Vec<u64> {
        let shown = mounted.scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
        let report: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let members = report["members"].as_array().expect("a list");
        members.iter().map(|member| member["io"][kind]["bytes"].as_u64().expect("a count")).collect()
    };
    let (written, discarded) = (count("writes"), count("discards"));
    fallocate(mounted.open(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4 * MIB).expect("taken");
    assert_eq!(count("zeroes"), [2 * MIB; 4]);
    let more = |(before, after): (&u64, &u64)| after - before;
    let written: u64 = written.iter().zip(&count("writes")).map(more).sum();
    assert!(written < MIB, "superblocks at most: {written}");
    assert_eq!(count("discards"), discarded);
    let shown = mounted.scratch.uraid(["detail", "--verbose", "home"]).expect_done().stdout;
    assert!(shown.contains("Zeroes") && shown.contains("(2.00 MiB)"), "{shown}");
}

/// Punches are refused, also for a part of a block, and trims leave everything as it is. Other zeroes are as exact as ever.
fn refuses_punches(mounted: &Mounted) {
    let mut file = mounted.open();
    let mut model = pattern(9, mounted.served().client().size as usize);
    file.write_all(&model).expect("all of it");
    for (at, length) in [(0, model.len() as u64), (MIB, MIB), (5, 100)] {
        let outcome = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length);
        assert_eq!(outcome, Err(rustix::io::Errno::OPNOTSUPP), "{at} {length}");
    }
    let trimmed = mounted.served().client().clear(Clear::Trim, 0, model.len() as u32);
    assert_eq!(trimmed.expect("connected"), 0, "a trim is a hint");
    assert_eq!(mounted.served().first_difference(&model), None);
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 700, 5 * MIB).expect("zeroed");
    model[700..700 + 5 * MIB as usize].fill(0);
    assert_eq!(mounted.served().first_difference(&model), None);
}

#[test]
fn an_array_that_would_have_to_write_zeroes_for_a_punch_refuses_it() {
    refuses_punches(&Mounted::with_options("raid5", 3, "--consistency-policy=ppl", &[]));
    if let Some(array) = of_loop_devices(true) {
        refuses_punches(&array.mounted);
    }
}
