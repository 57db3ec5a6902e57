//! Files and memory that are registered with the ring, and systems that refuse that, or io_uring as a whole.

#![allow(unsafe_code, reason = "system calls")]

use crate::common::StartLock;
use std::path::PathBuf;
use std::process::Command;
use uraid_block::{Device, Fua, ReadPieces, Sector};
use uraid_host::{Access, ArenaBlocks, Claimed, Options, RingChoice, Shard, run};

const BYTES: usize = 4 << 20;

/// A file, deleted with the test.
struct Image(PathBuf, #[expect(dead_code, reason = "it is held")] StartLock);

impl Image {
    fn new(name: &str) -> Image {
        let path = std::env::temp_dir().join(format!("uraid-registered-{}-{name}", std::process::id()));
        std::fs::write(&path, vec![0; BYTES]).expect("room");
        Image(path, StartLock::shared())
    }

    fn claim(&self) -> Claimed {
        Claimed::open(&self.0, Access::ReadWrite).expect("claimed")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An odd number of pages, so that some blocks of 64 KiB cross the boundary of two registered parts.
fn options(ring: RingChoice) -> Options {
    Options { ring, arenas: [ArenaBlocks { small: 255, large: 64 }; 5], ..Options::default() }
}

/// Writes and reads pieces of many sizes, and compares. Returns how much memory is registered.
async fn everything_is_right(shard: Shard<()>, claimed: Claimed) -> usize {
    let member = claimed.on_shard(&shard);
    let fill = |bytes: usize, seed: usize| {
        let bytes: Vec<u8> = (0..bytes).map(|at| (((at + seed) * 167) >> 7) as u8 ^ at as u8).collect();
        let mut pieces = shard.arena(3).take(bytes.len()).expect("room");
        pieces.copy_from(&bytes);
        (bytes, pieces)
    };
    // Use all blocks in turn, so that all memory is registered.
    let mut held: Vec<ReadPieces> = Vec::new();
    for (n, bytes) in [4096, 512, 64 << 10, 100 << 10, 1 << 20, 12 << 10].into_iter().cycle().take(30).enumerate() {
        let at = Sector((n as u64 * 37) % 4096);
        let fua = if n % 3 == 0 { Fua::Yes } else { Fua::No };
        let (expected, pieces) = fill(bytes, n);
        member.write(at, pieces.freeze(), fua).await.expect("written");
        let into = shard.arena(4).take(bytes).expect("room");
        let found = member.read(at, into).await.expect("read");
        assert!(found.to_vec() == expected, "{bytes} bytes at {at:?}");
        held.push(shard.arena(4).take(64 << 10).expect("room"));
    }
    // A piece that starts in the middle of a page.
    let (expected, mut pieces) = fill(8192, 7);
    let tail = {
        pieces.split_to(1536);
        pieces.split_to(4096)
    };
    member.write(Sector(9), tail.freeze(), Fua::No).await.expect("written");
    let found = member.read(Sector(9), shard.arena(4).take(4096).expect("room")).await.expect("read");
    assert!(found.to_vec() == expected[1536..1536 + 4096]);
    member.flush().await.expect("flushed");
    shard.registered_bytes()
}

#[test]
fn registered_files_and_memory_behave_like_unregistered_ones() {
    for ring in [RingChoice::IoUring, RingChoice::Threads] {
        let image = Image::new("right");
        let is_direct = image.claim().is_direct();
        let known = run(1, &options(ring), |shard: Shard<()>| everything_is_right(shard, image.claim()));
        println!("direct: {is_direct}, known: {known:?}");
        let is_expected = is_direct && ring == RingChoice::IoUring;
        assert_eq!(known[0] > 0, is_expected, "{ring:?}");
    }
}

#[test]
fn a_registered_file_is_closed_when_its_members_are_dropped() {
    let image = Image::new("free");
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| {
        let image = &image;
        async move {
            for _ in 0..3 {
                let claimed = image.claim();
                let (first, second) = (claimed.on_shard(&shard), claimed.on_shard(&shard));
                drop(claimed);
                for member in [first, second] {
                    let into = shard.arena(0).take(4096).expect("room");
                    member.read(Sector(0), into).await.expect("read");
                }
            }
        }
    });
}

/// Runs a part of a test that restricts its process.
fn in_a_process_of_its_own(part: &str) {
    let _start_lock = StartLock::exclusive();
    let mut command = Command::new(std::env::current_exe().expect("known"));
    let output = command.args(["--exact", part, "--ignored", "--nocapture"]).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "a part of another test"]
fn may_lock_no_memory() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads one rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const none) }, 0);
    // Version 3, this thread; then no effective, permitted or inheritable capabilities, because root has no limit.
    let header = [0x2008_0522u32, 0];
    let sets = [0u32; 6];
    // SAFETY: capset reads a header and two sets of three words.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }, 0);
    let image = Image::new("memlock");
    let known = run(1, &options(RingChoice::Auto), |shard: Shard<()>| everything_is_right(shard, image.claim()));
    assert_eq!(known, [0]);
}

#[test]
fn without_locked_memory_requests_use_unregistered_buffers() {
    in_a_process_of_its_own("registered::may_lock_no_memory");
}

#[test]
#[ignore = "a part of another test"]
fn may_not_use_io_uring() {
    let word = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let setup = u32::try_from(libc::SYS_io_uring_setup).expect("a small number");
    // Loads the call's number. For io_uring_setup: EPERM; otherwise: allow.
    let mut filter = [
        word(0x20, 0, 0, 0),
        word(0x15, 0, 1, setup),
        word(0x06, 0, 0, 0x0005_0000 | libc::EPERM.unsigned_abs()),
        word(0x06, 0, 0, 0x7fff_0000),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: no pointers; then a program that lives during the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(set);
    let image = Image::new("seccomp");
    let known = run(1, &options(RingChoice::Auto), |shard: Shard<()>| async {
        assert_eq!(shard.ring_name(), "threads");
        everything_is_right(shard, image.claim()).await
    });
    assert_eq!(known, [0]);
}

#[test]
fn threads_are_used_where_io_uring_is_refused() {
    in_a_process_of_its_own("registered::may_not_use_io_uring");
}
