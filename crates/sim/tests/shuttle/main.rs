//! The engine on the host's shards, with shuttle choosing which thread runs: stops and failing members against requests
//! in flight. loom checks every order of a few events of the door and the mailbox; here a whole array starts, works and
//! stops, in schedules that are drawn.
//! Owns: the list of scenarios, and what each must detect. Not here: a scenario's run (`life`), its checks (`judge`).
//!
//! Compiled unchanged: the host's shard, executor, timers, door, mail, operations and helper threads. Replaced: threads,
//! locks and atomics (`sync`), the bell (`bell`), clock and poll (`sys`). Not covered: io_uring, sockets, real files;
//! memory orders weaker than sequential consistency; two accesses to the same bytes at the very same time.
//! shuttle prints the failures of canaries to standard error, which cannot be silenced.
//!
//! `cargo xtask canaries shuttle [WORDS OF A SCENARIO]`
//! `URAID_SHUTTLE_SCHEDULES`: how many per scenario. `URAID_SHUTTLE_SEED`: other schedules. `URAID_SHUTTLE_REPLAY`: a
//! file with a schedule as printed, for the one scenario that the words choose.

#![allow(unsafe_code, reason = "the host's sources are compiled into it")]
#![allow(dead_code, unreachable_pub, unused_imports, reason = "the host's files are compiled as they are")]

mod bell;
mod disk;
#[path = "../../../host/src/executor/mod.rs"]
mod executor;
mod explore;
mod judge;
mod life;
#[path = "../../../host/src/mail"]
mod mail {
    pub(crate) use crate::bell;
    pub(crate) mod door;
    pub(crate) mod inbox;
}
#[path = "../../../host/src/options.rs"]
mod options;
mod process;
#[path = "../../../host/src/ring/mod.rs"]
mod ring;
#[path = "../../../host/src/shard.rs"]
mod shard;
mod sync;
mod sys;
mod world;

use explore::{Mistake, Schedules, explore, install_hooks};
use life::{Scenario, Trouble};
use options::{Options, RingChoice};
use std::time::Instant;
use sync::MachineSabotage;
use uraid_sim::reference::model::Shape;

/// Schedules per scenario, unless the environment says otherwise: 20 seconds of one core for all.
const SCHEDULES: usize = 1000;

/// A mistake gets up to this many times the schedules: most need only a few, and the search ends at the first finding.
const MISTAKE_FACTOR: usize = 10;

/// An array and the shards that drive it.
struct Machine {
    name: &'static str,
    level: i32,
    layout: u32,
    chunk: u64,
    slots: u16,
    size: u64,
    shards: u16,
}

const fn machine(
    name: &'static str,
    level: i32,
    layout: u32,
    chunk: u64,
    slots: u16,
    size: u64,
    shards: u16,
) -> Machine {
    Machine { name, level, layout, chunk, slots, size, shards }
}

const MACHINES: [Machine; 7] = [
    machine("raid1 of 2 on 2 shards", 1, 0, 0, 2, 16, 2),
    machine("raid1 of 3 on 3 shards", 1, 0, 0, 3, 16, 3),
    machine("raid10 of 4 on 2 shards", 10, 0x102, 2, 4, 8, 2),
    machine("raid10 of 3 on 3 shards", 10, 0x102, 2, 3, 8, 3),
    machine("raid5 of 3 on 2 shards", 5, 2, 2, 3, 12, 2),
    machine("raid5 of 4 on 3 shards", 5, 2, 2, 4, 12, 3),
    machine("raid6 of 4 on 2 shards", 6, 2, 2, 4, 12, 2),
];

/// The scenario's events, and the mistakes that it must find.
const TROUBLES: [(&str, Trouble, &[Mistake]); 7] = [
    (
        "stop",
        Trouble::None,
        &[
            Mistake::Machine(MachineSabotage::SilentBell),
            Mistake::Machine(MachineSabotage::LostNotify),
            Mistake::Engine("SkipDirtyMark"),
            Mistake::Engine("SkipFlush"),
            Mistake::Engine("SkipCleanFlush"),
            Mistake::Engine("SkipFua"),
            Mistake::Engine("Leak"),
        ],
    ),
    (
        "a member is taken out",
        Trouble::FailByHand,
        &[Mistake::Engine("SkipRecord"), Mistake::Engine("StaleRead"), Mistake::Engine("EventsStepBack")],
    ),
    ("a member fails", Trouble::MemberFails, &[Mistake::Engine("SkipRecord")]),
    ("a flush fails", Trouble::FlushFails, &[Mistake::Engine("FlushTogether")]),
    ("one is taken out and one fails", Trouble::TwoFail, &[Mistake::Engine("SkipRecord")]),
    ("too many fail", Trouble::TooManyFail, &[]),
    ("left dirty", Trouble::StartsDirty, &[Mistake::Engine("SkipResync"), Mistake::Engine("StopSplits")]),
];

/// Mistakes that levels with copies can make, and (below) levels with parity; detected only with requests and a stop.
const OF_COPIES: &[Mistake] =
    &[Mistake::Engine("SkipHold"), Mistake::Engine("AnswerEarly"), Mistake::Engine("NeverAnswer")];
const OF_PARITY: &[Mistake] = &[Mistake::Engine("SkipParity")];

impl Machine {
    fn has_parity(&self) -> bool {
        self.level >= 4 && self.level <= 6
    }

    /// Whether it survives the loss of any two members.
    fn survives_two(&self) -> bool {
        self.level == 6 || (self.level == 1 && self.slots > 2)
    }

    fn scenario(&self, trouble: Trouble) -> Scenario {
        let (level, layout, chunk, slots, size) = (self.level, self.layout, self.chunk, self.slots, self.size);
        let shape = Shape { level, layout, chunk, slots, size, member_sizes: Vec::new() };
        Scenario { shape, shards: self.shards, trouble }
    }
}

/// Explores a scenario, then checks that it finds each mistake. Returns whether all succeeded.
fn run(name: &str, scenario: &Scenario, schedules: &Schedules, mistakes: &[Mistake]) -> bool {
    let started = Instant::now();
    let outcome = explore(scenario, schedules, Mistake::None);
    let seconds = started.elapsed().as_secs_f64();
    match &outcome {
        Ok(count) => println!("{name}: {count} schedules, {seconds:.1} s"),
        Err(why) => println!("FAILED {name}: {why}\n  the schedule is on standard error"),
    }
    let mut holds = outcome.is_ok();
    for &mistake in mistakes {
        match explore(scenario, &schedules.times(MISTAKE_FACTOR), mistake) {
            Ok(count) => {
                println!("FAILED {name}: {mistake:?} is not noticed in {count} schedules");
                holds = false;
            }
            Err(why) => {
                let line = why.lines().next().unwrap_or_default();
                println!("  canary {mistake:?}: {}", line.chars().take(100).collect::<String>());
            }
        }
    }
    holds
}

/// A number from the environment. Panics if it is invalid.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number in the environment"))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = words.join(" ");
    let (count, seed) = (number("URAID_SHUTTLE_SCHEDULES", SCHEDULES), number("URAID_SHUTTLE_SEED", 1) as u64);
    let again = std::env::var_os("URAID_SHUTTLE_REPLAY").map(|path| {
        let text = std::fs::read_to_string(path).expect("the file of URAID_SHUTTLE_REPLAY can be read");
        Schedules::Again(text.chars().filter(char::is_ascii_hexdigit).collect())
    });
    install_hooks();
    let (started, mut passed, mut failed) = (Instant::now(), 0, 0);
    for machine in &MACHINES {
        for (what, trouble, mistakes) in TROUBLES {
            let name = format!("{}: {what}", machine.name);
            if (trouble == Trouble::TwoFail && !machine.survives_two()) || !name.contains(&wanted) {
                continue;
            }
            let own = if machine.has_parity() { OF_PARITY } else { OF_COPIES };
            let own = if trouble == Trouble::None { own } else { &[] };
            let scenario = machine.scenario(trouble);
            let holds = match &again {
                Some(schedule) => run(&name, &scenario, schedule, &[]),
                None => run(&name, &scenario, &Schedules::Drawn { count, seed }, &[mistakes, own].concat()),
            };
            if holds { passed += 1 } else { failed += 1 }
        }
    }
    println!("{} scenarios, {:.0} s", passed + failed, started.elapsed().as_secs_f64());
    println!("test result: {passed} passed; {failed} failed; 0 ignored");
    if failed > 0 || passed == 0 {
        std::process::exit(1);
    }
}
