//! Models of what threads share, with loom: every order of events that the memory model allows, up to 3 preemptions.
//! Owns: running the models (`mailbox`, `arena`), and that each of them fails when the code is spoilt.
//! Not here: anything else. Shards share no more than this with each other: mail, doors, and blocks of an arena that travel
//! in mail. `block::local` is of one thread. Helper threads of the ring without io_uring (`ring::pool`) are not modelled
//! here (shuttle has them, `crates/sim/tests/shuttle`): they meet the shard in one mutex and at its door. Nor is the table of doors, a lock around numbers.
//! Where two threads knock and one of them twice, stores are swaps: of plain ones loom allows an order that the language
//! forbids, in which the shard overlooks a knock after both fences (`sync` says which).
//!
//! `cargo test --release -p uraid-host --features loom --test loom`. The files under `src` are compiled here as they are;
//! `sync` and `bell` are replaced: loom's atomics and locks, a bell whose waiters loom can see. loom takes
//! accesses for acquire and release at most, whatever they say, so what needs more has a fence in the code.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "the modules under test are compiled as they are")]

mod arena;
mod bell;
#[path = "../../../block/src/buffer.rs"]
mod buffer;
#[path = "../../src/door.rs"]
mod door;
#[path = "../../src/mail.rs"]
mod mail;
mod mailbox;
#[path = "../../../block/src/pieces.rs"]
mod pieces;
mod sync;

use pieces::ReadPieces;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use sync::{Spoilt, spoil};
use uraid_block::{SECTOR_BYTES, Sectors};

/// A model, and what each way to spoil the code under it must be noticed.
struct Model {
    name: &'static str,
    run: fn(),
    canaries: &'static [Spoilt],
}

const MODELS: &[Model] = &[
    Model {
        name: "a message wakes a shard that falls asleep",
        run: mailbox::one_message,
        canaries: &[Spoilt::NoFence],
    },
    Model { name: "two batches, once and in order", run: mailbox::batches, canaries: &[Spoilt::NoFence] },
    Model {
        name: "messages of two shards, once and in order",
        run: mailbox::two_senders,
        canaries: &[Spoilt::NoFence],
    },
    Model { name: "three knocks of two shards", run: mailbox::three_knocks, canaries: &[Spoilt::NoFence] },
    Model { name: "a question is answered", run: mailbox::question, canaries: &[Spoilt::NoFence] },
    Model { name: "wakes of two threads are not lost", run: mailbox::wakes, canaries: &[Spoilt::NoFence] },
    Model { name: "a block has one owner", run: arena::one_owner, canaries: &[Spoilt::AllRelaxed] },
    Model {
        name: "a block is not reused before its last reader has gone",
        run: arena::last_reader,
        canaries: &[Spoilt::AllRelaxed, Spoilt::NoBit],
    },
    Model { name: "a block that came back is free at once", run: arena::back_and_forth, canaries: &[Spoilt::NoBit] },
];

/// Runs a model in a thread of its own, spoilt or not: how many orders there were, or what failed.
fn explore(run: fn(), spoilt: Spoilt) -> Result<u64, String> {
    let orders = Arc::new(AtomicU64::new(0));
    let count = orders.clone();
    let thread = std::thread::spawn(move || {
        spoil(spoilt);
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            run();
        });
    });
    match thread.join() {
        Ok(()) => Ok(orders.load(Ordering::Relaxed)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string())
        }
    }
}

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    // What canaries say while they fail is no news.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut failed, mut passed) = (0, 0);
    for model in MODELS.iter().filter(|model| model.name.contains(&wanted)) {
        let started = Instant::now();
        let outcome = explore(model.run, Spoilt::Not);
        let seconds = started.elapsed().as_secs_f64();
        match &outcome {
            Ok(orders) => println!("{}: {orders} orders, {seconds:.1} s", model.name),
            Err(why) => println!("FAILED {}: {why}", model.name),
        }
        let mut holds = outcome.is_ok();
        for &spoilt in model.canaries {
            match explore(model.run, spoilt) {
                Ok(orders) => {
                    println!("FAILED {}: {spoilt:?} is not noticed in {orders} orders", model.name);
                    holds = false;
                }
                Err(why) => println!("  canary {spoilt:?}: {}", why.lines().next().unwrap_or_default()),
            }
        }
        if holds { passed += 1 } else { failed += 1 }
    }
    println!("test result: {passed} passed; {failed} failed; 0 ignored");
    if failed > 0 || passed == 0 {
        std::process::exit(1);
    }
}
