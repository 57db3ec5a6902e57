//! A read changes no atomic in the shard's thread: another process single-steps it and checks each instruction. x86-64
//! marks atomic changes: by a lock prefix, or as an exchange with memory.
//!
//! Checked: buffers that are taken, cut, shared and returned; reads of null, of memory and of a file by io_uring, alone
//! and merged; and all that the shard's loop does meanwhile. The engine above has no atomics on these paths.

#![allow(unsafe_code, reason = "system calls")]
#![cfg(target_arch = "x86_64")]

use std::future::{Future, poll_fn};
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use uraid_block::{Device, Sector};
use uraid_host::{Access, ArenaBlocks, Claimed, Member, Options, RingChoice, Shard, run};

const CANARY: &str = "URAID_TEST_CANARY";
static CHANGED: AtomicU64 = AtomicU64::new(0);

/// Stops this process: the tracing process starts or ends its checks here.
fn mark() {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::raise(libc::SIGSTOP) }, 0);
}

/// A copy is single-stepped byte by byte here, so all sizes are small.
async fn reads(shard: &Shard<()>, members: &[Member]) {
    let take = |bytes| shard.arena(0).take(bytes).expect("room");
    for member in members {
        for _ in 0..2 {
            let mut pieces = take(20 << 10);
            let front = pieces.split_to(8 << 10).freeze();
            let again = front.clone();
            drop((pieces, front));
            assert_eq!(again.bytes(), 8 << 10);
            member.read(Sector(8), take(512)).await.expect("read");
        }
        // Both on the stack: a list of them would be allocated, and the allocator has a lock.
        let mut reads = [pin!(member.read(Sector(0), take(512))), pin!(member.read(Sector(1), take(512)))];
        let mut ended = [None; 2];
        poll_fn(|context| {
            for (read, end) in reads.iter_mut().zip(&mut ended).filter(|(_, end)| end.is_none()) {
                if let Poll::Ready(outcome) = read.as_mut().poll(context) {
                    *end = Some(outcome.is_ok());
                }
            }
            if ended.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(ended, [Some(true); 2]);
    }
}

#[test]
#[ignore = "a part of another test"]
fn reads_while_traced() {
    let path = std::env::temp_dir().join(format!("uraid-no-atomic-{}", std::process::id()));
    std::fs::write(&path, vec![7; 1 << 20]).expect("room");
    let names = ["null:1M", "mem:1M", path.to_str().expect("utf-8")];
    let claimed = names.map(|name| Claimed::open(name, Access::ReadWrite).expect("claimed"));
    std::fs::remove_file(&path).expect("removed");
    let arenas = [ArenaBlocks { small: 64, large: 4 }; 5];
    let options = Options { ring: RingChoice::IoUring, arenas, ..Options::default() };
    run(1, &options, |shard: Shard<()>| {
        let claimed = &claimed;
        async move {
            let members: Vec<Member> = claimed.iter().map(|member| member.on_shard(&shard)).collect();
            // Warm up: caches and lists are filled.
            for _ in 0..50 {
                reads(&shard, &members).await;
            }
            let has_canary = std::env::var_os(CANARY).is_some();
            // SAFETY: no pointers. The process that started this one traces this thread.
            assert_eq!(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) }, 0);
            mark();
            if has_canary {
                CHANGED.fetch_add(1, Ordering::Relaxed);
            } else {
                reads(&shard, &members).await;
            }
            mark();
        }
    });
}

/// Whether an instruction is atomic: it has the lock prefix, or it is an exchange with memory. Exempt is the fence of a
/// shard that falls asleep, which compilers emit as a locked OR of 0 to the thread's own stack.
fn is_locked(code: &[u8]) -> bool {
    if let [0xf0, 0x83, 0x4c, 0x24, _, 0, ..] = code {
        return false;
    }
    let is_prefix = |byte: &u8| matches!(byte, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65);
    let mut rest = code.iter().copied().skip_while(is_prefix);
    match rest.next() {
        Some(0xf0) => true,
        Some(0x40..=0x4f) => matches!((rest.next(), rest.next()), (Some(0x86 | 0x87), Some(0..=0xbf))),
        Some(0x86 | 0x87) => matches!(rest.next(), Some(0..=0xbf)),
        Some(_) | None => false,
    }
}

/// Waits until the thread stops; returns it and the signal that stopped it.
fn stopped(thread: i32) -> (i32, i32) {
    let mut status = 0;
    // SAFETY: writes one int.
    let thread = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert!(thread > 0 && libc::WIFSTOPPED(status), "{thread} has ended: {status:#x}");
    (thread, libc::WSTOPSIG(status))
}

/// The bytes of the next instruction.
fn next_instruction(thread: i32) -> [u8; 8] {
    // SAFETY: plain data; all zeroes is a value of it.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the thread is stopped; writes one set of registers.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0, &raw mut registers) }, 0);
    // SAFETY: the thread is stopped; reads a word of its memory.
    let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, thread, registers.rip, 0) };
    word.to_ne_bytes()
}

/// Single-steps the reads. Returns the number of instructions, and the locked ones.
fn look(canary: bool) -> (u64, Vec<[u8; 8]>) {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", "reads_while_traced", "--ignored", "--nocapture"]);
    if canary {
        command.env(CANARY, "1");
    }
    command.stdout(std::process::Stdio::null()).process_group(0);
    let mut child = command.spawn().expect("started");
    let (thread, first) = stopped(-1);
    assert_eq!(first, libc::SIGSTOP);
    let (mut count, mut locked) = (0, Vec::new());
    loop {
        let code = next_instruction(thread);
        count += 1;
        if is_locked(&code) {
            locked.push(code);
        }
        // SAFETY: the thread is stopped.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, 0, 0) }, 0);
        match stopped(thread).1 {
            libc::SIGTRAP => {}
            libc::SIGSTOP => break,
            other => panic!("signal {other}"),
        }
    }
    // SAFETY: the thread is stopped; it goes on by itself.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, 0, 0) }, 0);
    assert!(child.wait().expect("waited").success());
    (count, locked)
}

#[test]
fn a_read_changes_no_atomic() {
    let (count, locked) = look(false);
    println!("{count} instructions");
    assert!(locked.is_empty(), "{locked:02x?} in {count} instructions");
    let (_, locked) = look(true);
    assert_eq!(locked.len(), 1, "the canary: {locked:02x?}");
}
