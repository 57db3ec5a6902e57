//! The brain: array state, request paths, epochs, rows, the metadata writer, assembly.
//! Owns: how far each member is trusted, and in which order things become durable. Not here: how a device does I/O.
//! Invariant: no write is answered before the superblocks say truthfully which members hold it.

mod allocation;
mod array;
pub mod assemble;
mod bad_block_log;
mod bad_blocks;
mod balance;
mod behind;
mod bitmap;
mod blame;
mod buffers;
mod by_command;
mod calls;
mod change_bitmap;
mod clean;
mod config;
mod correct;
mod current_bitmap;
mod epochs;
mod failing;
mod failure;
mod findings;
mod flush;
mod gather;
mod health;
mod intent;
mod join_error;
mod late;
mod lifecycle;
mod log_order;
mod mail;
pub mod mark;
mod master;
mod member_counts;
mod member_io;
mod membership;
mod mirror;
mod pass;
mod pass_control;
mod passes;
mod permit;
mod pieces;
mod places;
mod ppl;
mod progress;
mod range_lock;
mod range_set;
mod read;
mod read_errors;
mod read_only;
mod record;
mod recorded;
mod resync;
mod row;
mod row_io;
mod row_parity;
mod row_plan;
mod row_table;
mod row_zeroes;
pub mod sabotage;
mod shared;
mod slices;
mod steward;
mod stream_ends;
mod torn;
mod torn_resync;
mod unsynced;
pub mod verdict;
pub mod view;
pub mod world;
mod write_cost;

/// Helpers that unit tests share with the tests in `tests/` name the crate as those do.
#[cfg(test)]
extern crate self as uraid_engine;

pub use array::Array;
pub use assemble::{
    AssembleError, AssembleOptions, BitmapPlan, Candidate, ExamineError, Examined, HalfReshaped, MemberPlan,
    PartlyRecovered, Place, PplPlan, PplReplay, ReadOnlyReason, Refusal, Refused, StartPlan, assemble,
    assemble_examined, assemble_half_reshaped, examine,
};
pub use bad_blocks::BadBlockList;
pub use bitmap::BitmapStatus;
pub use by_command::{FailError, StaysFrozen};
pub use change_bitmap::ChangeBitmapError;
pub use config::Config;
pub use failure::RequestKind;
pub use findings::{CheckEnd, Checked, Mismatch};
pub use health::{ErrorCount, MemberErrors};
pub use join_error::{AddError, ReAddError};
pub use lifecycle::{StartError, Status, StopError};
pub use mail::Mail;
pub use master::MemberState;
pub use member_counts::{MemberCounts, RequestCounts, Slowest};
pub use membership::{FlagError, FormerMember, RemoveError, Vacancy};
pub use passes::{CheckError, PassError, ReplaceError};
pub use places::MEMBERS_MAX;
pub use progress::SpeedLimits;
pub use progress::{PassKind, Progress};
pub use read_only::AccessError;
pub use shared::Counters;
pub use world::{Pool, World};
pub use write_cost::{WriteCost, write_cost};
