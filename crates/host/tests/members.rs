//! Members: every operation on every kind, under both rings; claims.

use crate::common::StartLock;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use uraid_block::local::join_all;
use uraid_block::{Allocation, Device, ErrorKind, Fua, Range, ReadPieces, Sector, Sectors, WritePieces};
use uraid_host::{Access, ArenaBlocks, Claimed, Medium, OpenError, Options, RingChoice, Shard, run};

const RINGS: [RingChoice; 2] = [RingChoice::IoUring, RingChoice::Threads];
const MIB: u64 = 1 << 20;

fn options(ring: RingChoice) -> Options {
    Options { ring, arenas: [ArenaBlocks { small: 2048, large: 80 }; 5], ..Options::default() }
}

/// A directory, deleted with the test.
struct Directory(PathBuf, #[expect(dead_code, reason = "it is held")] StartLock);

impl Directory {
    fn new(name: &str) -> Directory {
        Directory::of(name, StartLock::shared())
    }

    /// For a test that starts processes.
    fn alone(name: &str) -> Directory {
        Directory::of(name, StartLock::exclusive())
    }

    fn of(name: &str, start_lock: StartLock) -> Directory {
        let path = std::env::temp_dir().join(format!("uraid-host-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Directory(path, start_lock)
    }

    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        File::create(&path).expect("a file").set_len(bytes).expect("room");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

fn filled(shard: &Shard<()>, bytes: &[u8]) -> WritePieces {
    let mut pieces = shard.arena(0).take(bytes.len()).expect("room");
    pieces.copy_from(bytes);
    pieces.freeze()
}

async fn read(shard: &Shard<()>, member: &impl Device, at: u64, sectors: u64) -> Vec<u8> {
    let into = shard.arena(1).take(Sectors(sectors).len_bytes()).expect("room");
    member.read(Sector(at), into).await.expect("readable").to_vec()
}

fn range(start: u64, length: u64) -> Range {
    Range::new(Sector(start), Sectors(length))
}

async fn everything_works(shard: Shard<()>, claimed: &Claimed) {
    let member = claimed.on_shard(&shard);
    assert_eq!(member.geometry().size, Sectors(4 * MIB / 512));
    let mut model = vec![0; 4 * MIB as usize];
    // Writes of all sizes, at once.
    let writes = [(0, 1), (8, 8), (100, 300), (1000, 2048), (8191, 1)];
    join_all(writes.iter().map(|&(at, sectors)| {
        let bytes = pattern(at, sectors * 512);
        model[at as usize * 512..][..bytes.len()].copy_from_slice(&bytes);
        let from = filled(&shard, &bytes);
        let member = &member;
        let fua = if at % 2 == 0 { Fua::Yes } else { Fua::No };
        async move { member.write(Sector(at), from, fua).await.expect("writable") }
    }))
    .await;
    member.flush().await.expect("flushed");
    // Many pieces with odd lengths in memory: more than one system call takes, and not aligned for direct I/O.
    let mut pieces = ReadPieces::new();
    for _ in 0..1500 {
        let mut page = shard.arena(2).take(700).expect("room");
        drop(page.split_to(100));
        pieces.append(page);
    }
    drop(pieces.split_to(900_000 % 512));
    let bytes = pattern(3, pieces.bytes());
    assert!(pieces.count() > 1024);
    pieces.copy_from(&bytes);
    member.write(Sector(3100), pieces.freeze(), Fua::No).await.expect("writable");
    model[3100 * 512..][..bytes.len()].copy_from_slice(&bytes);
    for (at, sectors) in [(0, 2048), (2048, 2048), (4096, 2048), (6144, 2048)] {
        let found = read(&shard, &member, at, sectors).await;
        assert!(found == model[at as usize * 512..][..found.len()], "at {at}");
    }
    let mut into = shard.arena(1).take(512 + 7).expect("room");
    drop(into.split_to(7));
    let found = member.read(Sector(8), into).await.expect("readable").to_vec();
    assert_eq!(found, model[8 * 512..][..512], "into unaligned memory");

    member.write_zeroes(range(101, 1000)).await.expect("zeroed");
    model[101 * 512..][..512_000].fill(0);
    let found = read(&shard, &member, 90, 1100).await;
    assert!(found == model[90 * 512..][..found.len()]);
    member.punch_hole(range(2103, 1001)).await.expect("zeroed");
    model[2103 * 512..][..1001 * 512].fill(0);
    let found = read(&shard, &member, 2000, 1200).await;
    assert!(found == model[2000 * 512..][..found.len()], "a hole is exact");
    assert!(member.geometry().discard_granularity > Sectors::ZERO);
    // Advice to a block device; files and memory have zeroes then.
    member.discard(range(1200, 4000)).await.expect("discarded");
    if member.geometry().fast_zeroes {
        model[1200 * 512..][..4000 * 512].fill(0);
        let found = read(&shard, &member, 1200, 2000).await;
        assert!(found == model[1200 * 512..][..found.len()]);
    }
    member.discard(range(0, 8192)).await.expect("all discarded");

    let beyond = shard.arena(1).take(1024).expect("room");
    assert_eq!(member.read(Sector(8191), beyond).await.expect_err("beyond").kind, ErrorKind::OutOfRange);
    let result = member.write(Sector(u64::MAX), filled(&shard, &[0; 512]), Fua::No).await;
    assert_eq!(result.expect_err("beyond").kind, ErrorKind::OutOfRange);
    assert_eq!(member.discard(range(8192, 1)).await.expect_err("beyond").kind, ErrorKind::OutOfRange);
}

#[test]
fn every_operation_works_on_files_and_memory_under_both_rings() {
    let directory = Directory::new("everything");
    for ring in RINGS {
        let path = directory.file("member", 4 * MIB + 100);
        for name in [path.to_str().expect("utf-8"), "mem:4M", "mem:4M,request=1us,bandwidth=100G"] {
            let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
            run(1, &options(ring), |shard| everything_works(shard, &claimed));
        }
    }
}

#[test]
fn holes_are_found_without_reading() {
    let directory = Directory::new("holes");
    let path = directory.file("member", 4 * MIB);
    let file = OpenOptions::new().write(true).open(&path).expect("there");
    file.write_all_at(&pattern(1, 300_000), MIB).expect("room");
    for ring in RINGS {
        let trials = ["mem:4M,request=1us", "null:4M,request=1us"];
        for name in [path.to_str().expect("utf-8"), "mem:4M", "null:4M"].into_iter().chain(trials) {
            let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
            if name.starts_with("mem:") {
                claimed.write_at(MIB, &pattern(1, 300_000)).expect("writable");
            }
            run(1, &options(ring), |shard: Shard<()>| {
                let claimed = claimed.clone();
                async move {
                    let member = claimed.on_shard(&shard);
                    let all = member.allocation(range(1, 8191)).await.expect("told");
                    if claimed.name().starts_with("null:") {
                        assert_eq!(all, Allocation { length: Sectors(8191), is_zero: false });
                        return;
                    }
                    // File systems allocate in blocks of their own size: the hole ends at the data or slightly before.
                    assert!(all.is_zero && (1900..=2047).contains(&all.length.0), "{}: {all:?}", claimed.name());
                    let data = member.allocation(range(2048, 6144)).await.expect("told");
                    assert!(!data.is_zero && (586..=800).contains(&data.length.0), "{data:?}");
                    let rest = member.allocation(range(4096, 4096)).await.expect("told");
                    assert_eq!(rest, Allocation { length: Sectors(4096), is_zero: true });
                    let beyond = member.allocation(range(8191, 2)).await.expect_err("beyond");
                    assert_eq!(beyond.kind, ErrorKind::OutOfRange);
                }
            });
        }
    }
}

/// A loop device over a file, detached with the test.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// `None`, with a message, where that is not allowed.
    fn new(file: &Path, test: &str) -> Option<LoopDevice> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(LoopDevice(String::from_utf8(output.stdout).expect("a path").trim().into()))
            }
            _ => {
                eprintln!("SKIPPED: {test}: may not make a loop device here");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn every_operation_works_on_block_devices_which_are_claimed_exclusively() {
    let directory = Directory::alone("block");
    let path = directory.file("member", 4 * MIB);
    let Some(device) = LoopDevice::new(&path, "every_operation_works_on_block_devices_which_are_claimed_exclusively")
    else {
        return;
    };
    for ring in RINGS {
        let claimed = Claimed::open(&device.0, Access::ReadWrite).expect("claimed");
        assert!(claimed.is_direct());
        assert!(claimed.geometry().volatile_cache);
        let twice = Claimed::open(&device.0, Access::ReadOnly).err();
        assert!(matches!(twice, Some(OpenError::ClaimedTwice { .. })), "{twice:?}");
        // An exclusive open, as mount does it, must fail too.
        use std::os::unix::fs::OpenOptionsExt;
        let exclusive = OpenOptions::new().read(true).custom_flags(0x80).open(&device.0);
        assert_eq!(exclusive.err().and_then(|error| error.raw_os_error()), Some(16), "EBUSY");
        run(1, &options(ring), |shard| everything_works(shard, &claimed));
    }
    let held = {
        use std::os::unix::fs::OpenOptionsExt;
        OpenOptions::new().read(true).custom_flags(0x80).open(&device.0).expect("free again")
    };
    let error = Claimed::open(&device.0, Access::ReadWrite).err();
    assert!(matches!(error, Some(OpenError::InUse { .. })), "{error:?}");
    drop(held);
}

#[test]
fn an_operation_fits_a_small_task() {
    let claimed = Claimed::open("mem:1M", Access::ReadWrite).expect("claimed");
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| {
        let claimed = claimed.clone();
        async move {
            let member = claimed.on_shard(&shard);
            let read = member.read(Sector(0), shard.arena(0).take(512).expect("room"));
            let write = member.write(Sector(0), filled(&shard, &[0; 512]), Fua::No);
            let sizes = (size_of_val(&read), size_of_val(&write));
            println!("read {} bytes, write {} bytes", sizes.0, sizes.1);
            assert!(sizes.0 <= 400 && sizes.1 <= 400, "{sizes:?}");
        }
    });
}

#[test]
fn blocking_reads_and_writes_take_any_alignment() {
    let directory = Directory::new("blocking");
    let path = directory.file("member", 3 * MIB + 1024);
    let mem = PathBuf::from("mem:3146752");
    for path in [path, mem] {
        let claimed = Claimed::open(&path, Access::ReadWrite).expect("claimed");
        let mut model = vec![0; 3 * MIB as usize + 1024];
        for (at, length) in [(0, 4096), (4096, 512), (1, 1), (511, 2), (5000, 2_500_000), (3 * MIB as usize + 1000, 24)]
        {
            let bytes = pattern(at as u64, length);
            claimed.write_at(at as u64, &bytes).expect("writable");
            model[at..at + length].copy_from_slice(&bytes);
            let mut found = vec![0; length];
            claimed.read_at(at as u64, &mut found).expect("readable");
            assert!(found == bytes);
        }
        claimed.sync().expect("synced");
        let mut found = vec![0; model.len()];
        claimed.read_at(0, &mut found).expect("readable");
        assert!(found == model);
        assert_eq!(claimed.read_at(1, &mut found).expect_err("beyond").kind, ErrorKind::OutOfRange);
    }
}

#[test]
fn all_shards_see_the_same_memory() {
    let claimed = Claimed::open("mem:1M", Access::ReadWrite).expect("claimed");
    let values = run(2, &options(RingChoice::Auto), |shard: Shard<()>| {
        let claimed = claimed.clone();
        async move {
            let member = claimed.on_shard(&shard);
            let me = u64::from(shard.index().0);
            member.write(Sector(me), filled(&shard, &[me as u8 + 1; 512]), Fua::No).await.expect("writable");
            loop {
                let found = read(&shard, &member, 0, 2).await;
                if found[0] != 0 && found[512] != 0 {
                    return (found[0], found[512]);
                }
            }
        }
    });
    assert_eq!(values, [(1, 2), (1, 2)]);
}

#[test]
fn named_memory_keeps_its_bytes_between_claims() {
    let claimed = Claimed::open("mem:1M:kept", Access::ReadWrite).expect("claimed");
    let again = Claimed::open("mem:1M:kept", Access::ReadWrite).err();
    assert!(matches!(again, Some(OpenError::ClaimedTwice { .. })), "{again:?}");
    claimed.write_at(10, b"here").expect("writable");
    drop(claimed);
    let claimed = Claimed::open("mem:1M:kept", Access::ReadOnly).expect("claimed");
    let mut found = [0; 4];
    claimed.read_at(10, &mut found).expect("readable");
    assert_eq!(&found, b"here");
    drop(claimed);
    assert!(matches!(Claimed::open("mem:2M:kept", Access::ReadOnly), Err(OpenError::BadSize { .. })));
}

#[test]
fn null_members_answer_everything_and_yield_to_other_tasks() {
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| async move {
        let member = Claimed::open("null:1T", Access::ReadWrite).expect("claimed").on_shard(&shard);
        assert_eq!(member.geometry().size, Sectors(1 << 31));
        let ran = std::rc::Rc::new(std::cell::Cell::new(false));
        shard.spawn({
            let ran = ran.clone();
            async move { ran.set(true) }
        });
        let mut operations = 0;
        while !ran.get() {
            assert_eq!(read(&shard, &member, 12345, 8).await.len(), 4096);
            member.write(Sector(0), filled(&shard, &[1; 4096]), Fua::Yes).await.expect("taken");
            operations += 1;
            assert!(operations < 1000, "a task that never waits must not keep others from running");
        }
        member.discard(range(0, 1 << 31)).await.expect("taken");
        member.write_zeroes(range(0, 1 << 31)).await.expect("taken");
    });
}

#[test]
fn an_inode_is_claimed_once_under_all_its_names() {
    let directory = Directory::new("twice");
    let path = directory.file("member", MIB);
    let (hard, soft) = (directory.0.join("hard"), directory.0.join("soft"));
    std::fs::hard_link(&path, &hard).expect("linked");
    std::os::unix::fs::symlink(&path, &soft).expect("linked");
    let claimed = Claimed::open(&path, Access::ReadWrite).expect("claimed");
    for name in [&path, &hard, &soft] {
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let error = Claimed::open(name, access).err();
            let Some(OpenError::ClaimedTwice { claimed_as, .. }) = &error else { panic!("{error:?}") };
            assert_eq!(Path::new(claimed_as), path);
        }
    }
    let handle = claimed.clone();
    drop(claimed);
    assert!(Claimed::open(&hard, Access::ReadOnly).is_err(), "a handle is left");
    drop(handle);
    Claimed::open(&hard, Access::ReadOnly).expect("free again");
}

/// Not a test by itself: the test below runs it in another process.
#[test]
#[ignore = "a part of another test"]
fn other_process_tries_to_claim() {
    let path = std::env::var("URAID_TEST_MEMBER").expect("set by the test that starts this");
    for (access, wanted) in [(Access::ReadWrite, "write"), (Access::ReadOnly, "read")] {
        let expected = std::env::var("URAID_TEST_CAN").expect("set as well").contains(wanted);
        match Claimed::open(&path, access) {
            Ok(_) => assert!(expected, "{wanted}"),
            Err(OpenError::InUse { .. }) => assert!(!expected, "{wanted}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn another_process_cannot_claim_a_claimed_member() {
    let directory = Directory::alone("process");
    let path = directory.file("member", MIB);
    let other = |can: &str| {
        let output = Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", "members::other_process_tries_to_claim", "--ignored"])
            .env("URAID_TEST_MEMBER", &path)
            .env("URAID_TEST_CAN", can)
            .output()
            .expect("started");
        assert!(output.status.success(), "{can}: {}", String::from_utf8_lossy(&output.stdout));
    };
    let claimed = Claimed::open(&path, Access::ReadWrite).expect("claimed");
    other("nothing");
    drop(claimed);
    let claimed = Claimed::open(&path, Access::ReadOnly).expect("claimed");
    other("read");
    drop(claimed);
    other("read write");
}

#[test]
fn invalid_members_are_refused_with_the_reason() {
    let directory = Directory::new("refused");
    let open = |name: &Path| Claimed::open(name, Access::ReadWrite).err();
    assert!(matches!(open(&directory.0), Some(OpenError::IsDirectory { .. })));
    assert!(matches!(open(&directory.0.join("none")), Some(OpenError::NotFound { .. })));
    assert!(matches!(open(&directory.file("empty", 511)), Some(OpenError::Empty { .. })));
    assert!(matches!(open(Path::new("/dev/null")), Some(OpenError::NotStorage { .. })));
    assert!(matches!(open(Path::new("mem:12Q")), Some(OpenError::BadSize { .. })));
    assert!(matches!(open(Path::new("null:0")), Some(OpenError::Empty { .. })));
    assert!(matches!(open(Path::new("mem:64Q,request=1us")), Some(OpenError::BadSize { .. })));
    for wrong in ["mem:1M,", "null:1M,request=20", "mem:1M,requests=20us:name", "mem:1M,1us"] {
        let error = open(Path::new(wrong)).expect("refused");
        assert!(matches!(error, OpenError::BadCompletion { .. }), "{error}");
    }
    let error = open(Path::new("mem:1M,request=20")).expect("refused").to_string();
    let expected = "found \"request=20\" where request=20us, bandwidth=500M or completion=deferred was expected";
    assert_eq!(error, format!("mem:1M,request=20: {expected}"));
    let error = open(&directory.0.join("none")).expect("refused").to_string();
    assert!(error.ends_with("none: not found"), "{error}");
}

#[test]
fn a_member_claimed_for_reading_is_not_written() {
    let directory = Directory::new("readonly");
    let path = directory.file("member", MIB);
    let claimed = Claimed::open(&path, Access::ReadOnly).expect("claimed");
    assert_eq!(claimed.write_at(0, &[0; 512]).expect_err("read-only").kind, ErrorKind::ReadOnly);
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| {
        let claimed = claimed.clone();
        async move {
            let member = claimed.on_shard(&shard);
            let write = member.write(Sector(0), filled(&shard, &[0; 512]), Fua::No).await;
            assert_eq!(write.expect_err("read-only").kind, ErrorKind::ReadOnly);
            assert_eq!(member.discard(range(0, 8)).await.expect_err("read-only").kind, ErrorKind::ReadOnly);
            assert_eq!(read(&shard, &member, 0, 8).await, [0; 4096]);
        }
    });
}

#[test]
fn a_file_that_shrinks_under_load_is_gone() {
    let directory = Directory::new("shrinks");
    for ring in RINGS {
        let path = directory.file("member", 8 * MIB);
        let claimed = Claimed::open(&path, Access::ReadWrite).expect("claimed");
        run(1, &options(ring), |shard: Shard<()>| {
            let (claimed, path) = (claimed.clone(), path.clone());
            async move {
                let member = claimed.on_shard(&shard);
                let readers = (0..16u64).map(|n| {
                    let (shard, member) = (&shard, &member);
                    async move {
                        for round in 0..100_000u64 {
                            let at = (n * 977 + round * 131) % (15 * 1024);
                            let into = shard.arena(1).take(8192).expect("room");
                            if let Err(error) = member.read(Sector(at), into).await {
                                return Some(error.kind);
                            }
                        }
                        None
                    }
                });
                let shrink = async {
                    shard.sleep(std::time::Duration::from_millis(5)).await;
                    let file = OpenOptions::new().write(true).open(&path).expect("there");
                    file.set_len(MIB + 700).expect("shrunk");
                    Some(ErrorKind::Gone)
                };
                let futures: Vec<std::pin::Pin<Box<dyn Future<Output = Option<ErrorKind>>>>> = {
                    let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = Option<ErrorKind>>>>> = Vec::new();
                    for reader in readers {
                        all.push(Box::pin(reader));
                    }
                    all.push(Box::pin(shrink));
                    all
                };
                for kind in join_all(futures).await {
                    assert_eq!(kind, Some(ErrorKind::Gone));
                }
                let into = shard.arena(1).take(512).expect("room");
                assert_eq!(member.read(Sector(0), into).await.expect_err("gone").kind, ErrorKind::Gone, "all of it");
            }
        });
    }
}

#[test]
fn buffers_of_dropped_reads_come_back_when_the_kernel_is_done() {
    let directory = Directory::new("dropped");
    for ring in RINGS {
        let path = directory.file("member", 8 * MIB);
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.write_all_at(&pattern(1, 8 * MIB as usize), 0).expect("room");
        drop(file);
        let claimed = Claimed::open(&path, Access::ReadWrite).expect("claimed");
        run(1, &options(ring), |shard: Shard<()>| {
            let claimed = claimed.clone();
            async move {
                let member = std::rc::Rc::new(claimed.on_shard(&shard));
                for n in 0..200u64 {
                    let into = shard.arena(3).take(16_384).expect("room");
                    let mut read = Box::pin(member.read(Sector(n * 64), into));
                    let poll =
                        std::future::poll_fn(|context| std::task::Poll::Ready(read.as_mut().poll(context))).await;
                    drop(read);
                    drop(poll);
                }
                for _ in 0..1000 {
                    if shard.arena(3).blocks_in_use() == 0 {
                        break;
                    }
                    shard.sleep(std::time::Duration::from_millis(1)).await;
                }
                assert_eq!(shard.arena(3).blocks_in_use(), 0);
                // Some are still in flight when the shard ends.
                for n in 0..50u64 {
                    let into = shard.arena(3).take(16_384).expect("room");
                    let member = member.clone();
                    shard.spawn(async move { drop(member.read(Sector(n * 64), into).await) });
                }
            }
        });
        drop(claimed);
        Claimed::open(&path, Access::ReadWrite).expect("the operations have released the claim");
    }
}

#[test]
fn a_full_file_system_is_no_space() {
    let directory = Directory::alone("full");
    let mount = directory.0.join("small");
    std::fs::create_dir_all(&mount).expect("a directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&mount).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: a_full_file_system_is_no_space: may not mount a tmpfs here");
        return;
    }
    let path = mount.join("member");
    File::create(&path).expect("a file").set_len(4 * MIB).expect("sparse");
    for ring in RINGS {
        let claimed = Claimed::open(&path, Access::ReadWrite).expect("claimed");
        run(1, &options(ring), |shard: Shard<()>| {
            let claimed = claimed.clone();
            async move {
                let member = claimed.on_shard(&shard);
                let result = member.write(Sector(0), filled(&shard, &vec![1; 2 * MIB as usize]), Fua::No).await;
                assert_eq!(result.expect_err("full").kind, ErrorKind::NoSpace);
                member.discard(range(0, 8192)).await.expect("room again");
                member.write(Sector(0), filled(&shard, &[1; 4096]), Fua::Yes).await.expect("room");
            }
        });
    }
    let unmounted = Command::new("umount").arg(&mount).output().expect("umount runs");
    assert!(unmounted.status.success());
}

#[test]
fn a_claim_tells_what_holds_the_bytes_of_its_member() {
    let directory = Directory::new("medium");
    let file = directory.file("m", MIB);
    let of = |name: &str| Claimed::open(name, Access::ReadWrite).expect("claimed").medium();
    assert_eq!(of(file.to_str().expect("a plain path")), Medium::File);
    assert_eq!((of("mem:1M"), of("null:1M,request=1us")), (Medium::Memory, Medium::Null));
}
