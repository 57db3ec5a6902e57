//! The deterministic simulator: runs the unchanged engine on simulated members.
//! Owns: the machine, the members, what they may hold, the scenarios, the judgement. Not here: any code of the engine.
//! Invariant: a seed is a whole run; the same seed gives the same trace hash, in every build.
//! Spec: docs/reliability.md.

pub mod crash;
pub mod image;
pub mod judge;
pub mod machine;
pub mod proof;
pub mod random;
pub mod reference;
pub mod rig;
pub mod scenario;
pub mod setup;
