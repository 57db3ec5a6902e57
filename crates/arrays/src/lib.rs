//! Arrays of the engine on the shards of the host.
//! Owns: the engine's world, members, building the arrays of a process on each of its shards, running a task with them
//! from their start to their stop. Not here: which members make up an array (`uraid_engine::assemble`), what a served
//! array answers, any text for a user.
//! Invariant: no shard ends while an array is in use on another one, because all shards carry the arrays' mail.
//!
//! ```text
//!   run     build on every shard -> start on shard 0 -> task on every shard -> stop on shard 0 -> end of all shards
//!   build   the first step alone, for a caller that starts arrays in an order of its own
//! ```

mod array;
mod barrier;
mod build;
mod recorded_array;
mod recorder;
mod run;
mod world;

pub use array::{ArrayMember, HostArray, HostWorld, InnerArray};
pub use build::{ArraySetup, Members, SPIN, build, install, options_for};
pub use recorded_array::RecordedArray;
pub use recorder::{MemberRequest, Recorder};
pub use run::{OnShard, Setup, Stop, run, start_and_wait, wait};
pub use world::{ArrayIndex, ArrayMail, ShardWorld};
