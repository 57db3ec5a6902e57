//! Windows of one file as members, and members with bad sectors: where their bytes are, and what may be claimed beside
//! them.

use crate::common::StartLock;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use uraid_block::{Allocation, Device, ErrorKind, Fua, IoError, Range, Sector, Sectors, WritePieces};
use uraid_host::{Access, Claimed, Member, OpenError, Options, RingChoice, Shard, Target, Window, run};

const RINGS: [RingChoice; 2] = [RingChoice::IoUring, RingChoice::Threads];
const MIB: u64 = 1 << 20;

fn options(ring: RingChoice) -> Options {
    Options { ring, ..Options::default() }
}

/// A file, deleted with the test, filled with bytes that depend on their position.
struct Image(PathBuf, #[expect(dead_code, reason = "it is held")] StartLock);

impl Image {
    fn new(name: &str, bytes: u64) -> Image {
        Image::of(name, bytes, StartLock::shared())
    }

    /// For a test that starts processes.
    fn alone(name: &str, bytes: u64) -> Image {
        Image::of(name, bytes, StartLock::exclusive())
    }

    fn of(name: &str, bytes: u64, start_lock: StartLock) -> Image {
        let path = std::env::temp_dir().join(format!("uraid-windows-{}-{name}", std::process::id()));
        std::fs::write(&path, ground(0, bytes)).expect("room");
        Image(path, start_lock)
    }

    fn target(&self, offset: u64, length: Option<u64>) -> Target {
        Target { window: Some(Window { offset, length }), ..Target::whole(&self.0).expect("a path") }
    }

    fn claim(&self, offset: u64, length: Option<u64>) -> Result<Claimed, OpenError> {
        Claimed::open_target(&self.target(offset, length), Access::ReadWrite)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).expect("readable")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn ground(at: u64, bytes: u64) -> Vec<u8> {
    (at..at + bytes).map(|byte| (byte.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn range(start: u64, length: u64) -> Range {
    Range::new(Sector(start), Sectors(length))
}

fn filled(shard: &Shard<()>, byte: u8, bytes: usize) -> WritePieces {
    let mut pieces = shard.arena(0).take(bytes).expect("room");
    pieces.copy_from(&vec![byte; bytes]);
    pieces.freeze()
}

async fn read(shard: &Shard<()>, member: &Member, at: u64, sectors: u64) -> Result<Vec<u8>, IoError> {
    let into = shard.arena(1).take(Sectors(sectors).len_bytes()).expect("room");
    member.read(Sector(at), into).await.map(|pieces| pieces.to_vec())
}

/// Runs every operation on a window of 2048 sectors; `model` is what the window contains.
async fn everything_lands_in_the_window(shard: Shard<()>, claimed: &Claimed, mut model: Vec<u8>) -> Vec<u8> {
    let member = claimed.on_shard(&shard);
    assert_eq!(member.geometry().size, Sectors(2048));
    assert_eq!(read(&shard, &member, 0, 256).await.expect("readable"), model[..256 * 512]);
    assert_eq!(read(&shard, &member, 2047, 1).await.expect("readable"), model[2047 * 512..]);
    for (at, byte, fua) in [(0, 1, Fua::Yes), (1000, 2, Fua::No), (2047, 3, Fua::Yes)] {
        member.write(Sector(at), filled(&shard, byte, 512), fua).await.expect("writable");
        model[at as usize * 512..][..512].fill(byte);
    }
    member.flush().await.expect("flushed");
    member.write_zeroes(range(100, 50)).await.expect("zeroed");
    model[100 * 512..150 * 512].fill(0);
    member.punch_hole(range(201, 33)).await.expect("zeroed");
    model[201 * 512..234 * 512].fill(0);
    if member.geometry().fast_holes {
        member.punch_hole(range(1500, 300)).await.expect("zeroed");
        model[1500 * 512..1800 * 512].fill(0);
    }
    // A file tells which of its sectors are holes, a block device does not.
    if member.geometry().fast_zeroes {
        let told = member.allocation(range(1600, 448)).await.expect("told");
        assert!(told.is_zero && (100..=200).contains(&told.length.0), "{told:?}");
        assert!(!member.allocation(range(1400, 648)).await.expect("told").is_zero);
    }
    claimed.write_at(5 * 512 + 7, b"metadata").expect("writable");
    model[5 * 512 + 7..][..8].copy_from_slice(b"metadata");
    claimed.sync().expect("synced");
    let mut found = vec![0; model.len()];
    claimed.read_at(0, &mut found).expect("readable");
    assert!(found == model, "blocking");
    for at in (0..2048).step_by(256) {
        let found = read(&shard, &member, at, 256).await.expect("readable");
        assert!(found == model[at as usize * 512..][..256 * 512], "at {at}");
    }
    let beyond = member.write(Sector(2048), filled(&shard, 9, 512), Fua::No).await;
    assert_eq!(beyond.expect_err("beyond").kind, ErrorKind::OutOfRange);
    assert_eq!(claimed.write_at(MIB, &[9]).expect_err("beyond").kind, ErrorKind::OutOfRange);
    model
}

#[test]
fn every_operation_stays_in_its_window() {
    for ring in RINGS {
        // Page-aligned, sector-aligned, and unaligned.
        for offset in [MIB, 63 * 512, 1001] {
            let image = Image::new("inside", 3 * MIB);
            let claimed = image.claim(offset, Some(MIB)).expect("claimed");
            if offset != MIB {
                assert!(!claimed.is_direct(), "it shares pages with its neighbours");
            }
            let window = ground(offset, MIB);
            let model = run(1, &options(ring), |shard| everything_lands_in_the_window(shard, &claimed, window.clone()));
            drop(claimed);
            let (all, start, end) = (image.bytes(), offset as usize, (offset + MIB) as usize);
            assert!(all[start..end] == model[0], "inside, offset {offset}");
            assert!(
                all[..start] == ground(0, offset) && all[end..] == ground(offset + MIB, 2 * MIB - offset),
                "outside"
            );
        }
    }
}

/// A loop device over a file, detached with the test.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// `None`, with a message, where that is not allowed.
    fn new(file: &Path, test: &str) -> Option<LoopDevice> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            eprintln!("SKIPPED: {test}: may not make a loop device here");
            return None;
        };
        Some(LoopDevice(String::from_utf8(output.stdout).expect("a path").trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn windows_of_block_devices_work_like_windows_of_files() {
    for ring in RINGS {
        let image = Image::alone("device", 4 * MIB);
        let Some(device) = LoopDevice::new(&image.0, "windows_of_block_devices_work_like_windows_of_files") else {
            return;
        };
        let whole = Target::whole(&device.0).expect("a path");
        let claim = |offset| {
            let window = Some(Window { offset, length: Some(MIB) });
            Claimed::open_target(&Target { window, ..whole.clone() }, Access::ReadWrite)
        };
        let neighbour = claim(0).expect("claimed");
        assert!(neighbour.is_direct(), "it owns its pages");
        for (offset, is_direct) in [(MIB, true), (2 * MIB + 512, false)] {
            let claimed = claim(offset).expect("beside the other");
            assert_eq!(claimed.is_direct(), is_direct);
            let window = ground(offset, MIB);
            let model = run(1, &options(ring), |shard| everything_lands_in_the_window(shard, &claimed, window.clone()));
            drop(claimed);
            let (all, start, end) = (image.bytes(), offset as usize, (offset + MIB) as usize);
            assert!(all[start..end] == model[0], "inside, offset {offset}");
            assert!(all[..MIB as usize] == ground(0, MIB) && all[end..] == ground(offset + MIB, 3 * MIB - offset));
        }
        assert!(matches!(claim(3 * MIB + 512), Err(OpenError::Window { found, .. }) if found == 4 * MIB));
        let error = Claimed::open_target(&whole, Access::ReadOnly).err();
        assert!(matches!(error, Some(OpenError::ClaimedTwice { .. })), "{error:?}");
    }
}

#[test]
fn a_window_without_a_length_goes_to_the_end() {
    let image = Image::new("end", MIB + 700);
    let claimed = image.claim(MIB - 512, None).expect("claimed");
    assert_eq!(claimed.size(), Sectors(2), "a rest below a sector is cut off");
    let mut found = vec![0; 1024];
    claimed.read_at(0, &mut found).expect("readable");
    assert_eq!(found, ground(MIB - 512, 1024));
}

/// As that of a partition up to the last sector.
#[test]
fn a_window_with_a_length_may_end_where_its_file_does() {
    let image = Image::new("last", MIB);
    for (offset, length) in [(MIB - 512, 512), (0, MIB)] {
        let claimed = image.claim(offset, Some(length)).expect("claimed");
        assert_eq!(claimed.size().bytes(), length);
        let mut found = vec![0; 512];
        claimed.read_at(length - 512, &mut found).expect("readable");
        assert_eq!(found, ground(MIB - 512, 512));
    }
}

#[test]
fn a_window_outside_the_file_is_refused_with_both_ends() {
    let image = Image::new("outside", MIB);
    let outside = [
        (0, Some(MIB + 1)),
        (MIB - 511, None),
        (MIB, None),
        (u64::MAX, None),
        (u64::MAX, Some(u64::MAX)),
        (5, Some(0)),
    ];
    for (offset, length) in outside {
        let Err(OpenError::Window { start, found, .. }) = image.claim(offset, length) else {
            panic!("{offset}, {length:?}")
        };
        assert_eq!((start, found), (offset, MIB));
    }
    let memory = Target {
        window: Some(Window { offset: 0, length: None }),
        ..Target::whole(Path::new("mem:1M")).expect("a name")
    };
    assert!(matches!(Claimed::open_target(&memory, Access::ReadOnly), Err(OpenError::NotStorage { .. })));
}

#[test]
fn windows_of_one_file_coexist_unless_they_overlap() {
    let image = Image::new("beside", 4 * MIB);
    let first = image.claim(MIB, Some(MIB)).expect("claimed");
    let _second = image.claim(2 * MIB, Some(MIB)).expect("beside the first");
    let _third = image.claim(0, Some(MIB)).expect("before the first");
    for (offset, length) in
        [(MIB, Some(MIB)), (0, None), (2 * MIB - 1, Some(512)), (3 * MIB - 1, Some(4096)), (0, Some(512))]
    {
        let error = image.claim(offset, length).err();
        assert!(matches!(error, Some(OpenError::ClaimedTwice { .. })), "{offset}, {length:?}: {error:?}");
    }
    for access in [Access::ReadWrite, Access::ReadOnly] {
        assert!(matches!(Claimed::open(&image.0, access), Err(OpenError::ClaimedTwice { .. })));
    }
    drop(first);
    let _again = image.claim(MIB + 512, Some(512)).expect("free again");
    let _rest = image.claim(3 * MIB, None).expect("to the end");
}

/// Not a test by itself: the test below runs it in another process.
#[test]
#[ignore = "a part of another test"]
fn other_process_tries_to_claim_windows() {
    let path = std::env::var("URAID_TEST_MEMBER").expect("set by the test that starts this");
    let can = std::env::var("URAID_TEST_CAN").expect("set as well");
    let whole = Target::whole(Path::new(&path)).expect("a path");
    let window = |offset| Target { window: Some(Window { offset, length: Some(MIB) }), ..whole.clone() };
    for (what, target) in [("whole", whole.clone()), ("same", window(MIB)), ("next", window(2 * MIB))] {
        for (how, access) in [("write", Access::ReadWrite), ("read", Access::ReadOnly)] {
            let word = format!("{what}-{how}");
            match Claimed::open_target(&target, access) {
                Ok(_) => assert!(can.split(' ').any(|can| can == word), "{word} of {can:?}"),
                Err(OpenError::InUse { .. }) => assert!(!can.split(' ').any(|can| can == word), "{word} of {can:?}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn windows_and_whole_files_exclude_each_other_across_processes() {
    let image = Image::alone("process", 4 * MIB);
    let other = |can: &str| {
        let output = Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", "windows::other_process_tries_to_claim_windows", "--ignored"])
            .env("URAID_TEST_MEMBER", &image.0)
            .env("URAID_TEST_CAN", can)
            .output()
            .expect("started");
        assert!(output.status.success(), "{can}: {}", String::from_utf8_lossy(&output.stdout));
    };
    let claimed = image.claim(MIB, Some(MIB)).expect("claimed");
    other("next-write next-read");
    drop(claimed);
    let claimed = Claimed::open_target(&image.target(MIB, Some(MIB)), Access::ReadOnly).expect("claimed");
    other("same-read next-write next-read whole-read");
    drop(claimed);
    let claimed = Claimed::open(&image.0, Access::ReadOnly).expect("claimed");
    other("same-read next-read whole-read");
    drop(claimed);
    let claimed = Claimed::open(&image.0, Access::ReadWrite).expect("claimed");
    other("");
    drop(claimed);
    other("same-write same-read next-write next-read whole-write whole-read");
}

#[test]
fn a_window_is_gone_only_if_the_file_is_cut_inside_it() {
    for ring in RINGS {
        let image = Image::new("cut", 4 * MIB);
        let claimed = image.claim(MIB, Some(MIB)).expect("claimed");
        let file = OpenOptions::new().write(true).open(&image.0).expect("there");
        run(1, &options(ring), |shard: Shard<()>| {
            let (claimed, file) = (claimed.clone(), &file);
            async move {
                let member = claimed.on_shard(&shard);
                file.set_len(2 * MIB).expect("cut behind");
                member.write(Sector(2047), filled(&shard, 1, 512), Fua::No).await.expect("all of it is there");
                member.discard(range(0, 8)).await.expect("all of it is there");
                file.set_len(2 * MIB - 512).expect("cut inside");
                let gone = member.write(Sector(0), filled(&shard, 1, 512), Fua::No).await;
                assert_eq!(gone.expect_err("gone").kind, ErrorKind::Gone);
                assert_eq!(member.allocation(range(0, 8)).await.expect_err("gone").kind, ErrorKind::Gone);
                assert_eq!(claimed.read_at(0, &mut [0; 512]).expect_err("gone").kind, ErrorKind::Gone);
            }
        });
        assert_eq!(image.bytes().len() as u64, 2 * MIB - 512, "never made longer again");
    }
}

#[test]
fn bad_sectors_fail_and_the_others_do_not() {
    let image = Image::new("bad", MIB);
    let path = image.0.to_str().expect("utf-8");
    for ring in RINGS {
        for name in [format!("bad:10,100+8:{path}"), "bad:10,100+8:mem:1M".to_owned()] {
            let claimed = Claimed::open(&name, Access::ReadWrite).expect("claimed");
            assert_eq!(claimed.name(), name);
            run(1, &options(ring), |shard: Shard<()>| {
                let claimed = claimed.clone();
                async move {
                    let member = claimed.on_shard(&shard);
                    for (at, sectors, is_bad) in
                        [(0, 10, false), (11, 89, false), (108, 8, false), (10, 1, true), (0, 11, true), (107, 9, true)]
                    {
                        let kind = is_bad.then_some(ErrorKind::Media);
                        assert_eq!(read(&shard, &member, at, sectors).await.err().map(|error| error.kind), kind);
                        let from = filled(&shard, 7, sectors as usize * 512);
                        let written = member.write(Sector(at), from, Fua::No).await;
                        assert_eq!(written.err().map(|error| error.kind), kind);
                        let zeroed = member.write_zeroes(range(at, sectors)).await;
                        assert_eq!(zeroed.err().map(|error| error.kind), kind);
                        let mut bytes = vec![0; sectors as usize * 512];
                        let found = claimed.read_at(at * 512, &mut bytes);
                        assert_eq!(found.err().map(|error| error.kind), kind);
                        let written = claimed.write_at(at * 512, &bytes);
                        assert_eq!(written.err().map(|error| error.kind), kind);
                    }
                    let told = member.allocation(range(102, 900)).await.expect("told");
                    assert_eq!(told, Allocation { length: Sectors(6), is_zero: false });
                    assert!(member.allocation(range(50, 900)).await.expect("told").length <= Sectors(50));
                }
            });
        }
    }
    for wrong in ["bad:", "bad:5", "bad:x:a", "bad:5+0:a", "bad::a"] {
        assert!(matches!(Claimed::open(wrong, Access::ReadOnly), Err(OpenError::BadList { .. })), "{wrong}");
    }
}

#[test]
fn a_hole_ends_where_the_window_does() {
    let path = std::env::temp_dir().join(format!("uraid-windows-{}-hole", std::process::id()));
    let file = File::create(&path).expect("a file");
    file.set_len(4 * MIB).expect("sparse");
    file.write_all_at(&[1], 3 * MIB).expect("room");
    let image = Image(path, StartLock::shared());
    let claimed = image.claim(MIB + 512, Some(MIB)).expect("claimed");
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| {
        let claimed = claimed.clone();
        async move {
            let told = claimed.on_shard(&shard).allocation(range(3, 2045)).await.expect("told");
            assert_eq!(told, Allocation { length: Sectors(2045), is_zero: true });
        }
    });
}
