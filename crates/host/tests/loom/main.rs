//! Models of what threads share, with loom: every order of events that the memory model allows, up to 3 preemptions.
//! Owns: running the models (`mailbox`, `arena`), and checking that each of them fails when the code is sabotaged.
//!
//! Shards share nothing else with each other than mail, doors, and blocks of an arena that travel in mail. Not modelled
//! here: `block::local`, which is single-threaded; the helper threads of the ring without io_uring (`ring::pool`), which
//! meet the shard in one mutex and at its door (shuttle covers them, `crates/sim/tests/shuttle`); the table of doors, a
//! lock around numbers.
//! Where two threads knock and one of them twice, stores are replaced by swaps: for plain stores loom allows an order that
//! the language forbids, in which the shard misses a knock after both fences (`sync` explains it).
//!
//! `cargo test --release -p uraid-host --features loom --test loom`. The files under `src` are compiled here unchanged,
//! except that `sync` and `bell` are replaced: by loom's atomics and locks, and by a bell whose waiters loom can see. loom
//! treats accesses as acquire and release at most, so code that needs more has a fence.

#![allow(unsafe_code, reason = "the sources of the block crate are compiled into it")]
#![allow(dead_code, unreachable_pub, unused_imports, reason = "the modules under test are compiled as they are")]

mod arena;
mod bell;
#[path = "../../../block/src/buffer.rs"]
mod buffer;
#[path = "../../src/mail"]
mod mail {
    pub(crate) use crate::bell;
    pub(crate) mod door;
    pub(crate) mod inbox;
}
mod mailbox;
#[path = "../../../block/src/pieces.rs"]
mod pieces;
mod sync;

use pieces::ReadPieces;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use sync::{Sabotage, set_sabotage};
use uraid_block::{SECTOR_BYTES, Sectors};

/// A model, and the deliberate mistakes that it must detect.
struct Model {
    name: &'static str,
    run: fn(),
    canaries: &'static [Sabotage],
}

const MODELS: &[Model] = &[
    Model {
        name: "a message wakes a shard that falls asleep",
        run: mailbox::one_message,
        canaries: &[Sabotage::NoFence],
    },
    Model { name: "two batches, once and in order", run: mailbox::batches, canaries: &[Sabotage::NoFence] },
    Model {
        name: "messages of two shards, once and in order",
        run: mailbox::two_senders,
        canaries: &[Sabotage::NoFence],
    },
    Model { name: "three knocks of two shards", run: mailbox::three_knocks, canaries: &[Sabotage::NoFence] },
    Model { name: "a question is answered", run: mailbox::question, canaries: &[Sabotage::NoFence] },
    Model { name: "wakes of two threads are not lost", run: mailbox::wakes, canaries: &[Sabotage::NoFence] },
    Model { name: "a block has one owner", run: arena::one_owner, canaries: &[Sabotage::AllRelaxed] },
    Model {
        name: "a block is not reused before its last reader has gone",
        run: arena::last_reader,
        canaries: &[Sabotage::AllRelaxed, Sabotage::NoBit],
    },
    Model { name: "a block that came back is free at once", run: arena::back_and_forth, canaries: &[Sabotage::NoBit] },
];

/// Runs a model in its own thread, sabotaged or not. Returns the number of orders, or the failure.
fn explore(run: fn(), sabotage: Sabotage) -> Result<u64, String> {
    let orders = Arc::new(AtomicU64::new(0));
    let count = orders.clone();
    let thread = std::thread::spawn(move || {
        set_sabotage(sabotage);
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
    // Panic messages of canaries are expected: suppress them.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut failed, mut passed) = (0, 0);
    for model in MODELS.iter().filter(|model| model.name.contains(&wanted)) {
        let started = Instant::now();
        let outcome = explore(model.run, Sabotage::Not);
        let seconds = started.elapsed().as_secs_f64();
        match &outcome {
            Ok(orders) => println!("{}: {orders} orders, {seconds:.1} s", model.name),
            Err(why) => println!("FAILED {}: {why}", model.name),
        }
        let mut holds = outcome.is_ok();
        for &sabotage in model.canaries {
            match explore(model.run, sabotage) {
                Ok(orders) => {
                    println!("FAILED {}: {sabotage:?} is not detected in {orders} orders", model.name);
                    holds = false;
                }
                Err(why) => println!("  canary {sabotage:?}: {}", why.lines().next().unwrap_or_default()),
            }
        }
        if holds { passed += 1 } else { failed += 1 }
    }
    println!("test result: {passed} passed; {failed} failed; 0 ignored");
    if failed > 0 || passed == 0 {
        std::process::exit(1);
    }
}
