//! The deterministic simulator: runs the unchanged engine on simulated members.
//! Owns: the executor, the members, the oracle, the scenarios. Not here: any code of the engine.
//! Invariant: a seed is a whole run; the same seed gives the same trace hash, in every build.
//! Spec: docs/reliability.md.

mod access_changes;
pub mod areas;
mod bitmap_changes;
pub mod bits;
pub mod bits_check;
pub mod checking;
mod checks;
mod claims;
pub mod client;
pub mod crash;
pub mod disk;
pub mod event;
pub mod executor;
pub mod exhaust;
pub mod fault_kind;
pub mod faults;
mod flag_changes;
pub mod fleet;
pub mod judge;
pub mod kinds;
pub mod legal_errors;
pub mod logs;
pub mod member;
pub mod mix;
pub mod model;
pub mod museum;
pub mod oracle;
mod pass_watch;
pub mod ppl;
pub mod prove;
pub mod rebuild;
pub mod resynced;
pub mod rig;
pub mod rng;
pub mod scenario;
#[cfg(all(feature = "sabotage", feature = "marks"))]
pub mod self_check;
pub mod setup;
pub mod shrink;
pub mod tally;
pub mod tape;
pub mod trace;
pub mod watch;
pub mod world;
