//! The brain: array state, request paths, epochs, rows, the metadata writer, assembly.
//! Owns: how far each member is trusted, and in which order things become durable. Not here: how a device does I/O.
//! Invariant: no write is answered before the superblocks say truthfully which members hold it.
//!
//! A raid6 over four `Vec<u8>`s, read after two of them are lost:
//! ```
//! use std::error::Error;
//! use uraid_block::{Arena, Device, Fua, MemoryDevice, Sector, Sectors};
//! use uraid_engine::local::{LocalArray, LocalWorld};
//! use uraid_engine::{AssembleOptions, Config, assemble_examined, examine};
//! use uraid_format::create::{CreateOptions, NewMember, create, writes};
//! use uraid_layout::Level;
//!
//! fn assembled(devices: &[MemoryDevice], options: &AssembleOptions) -> Result<LocalArray<MemoryDevice>, Box<dyn Error>> {
//!     let examined = |device: &MemoryDevice| examine(device.geometry().size, |at, into| device.read_at(at, into));
//!     let found = devices.iter().map(examined).collect::<Result<Vec<_>, _>>()?;
//!     let plan = assemble_examined(&found, options)?;
//!     let members = plan.members.iter().map(|member| devices[member.candidate].clone()).collect();
//!     let world = LocalWorld::new(&plan, 1_700_000_000);
//!     Ok(LocalArray::new(world, &plan, members, Config::default()))
//! }
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     let mut devices: Vec<MemoryDevice> = (0..4).map(|_| MemoryDevice::new(vec![0; 8 << 20])).collect();
//!     let members: Vec<_> = (1..5).map(|n| NewMember::Device { size: Sectors(8 << 11), uuid: [n; 16] }).collect();
//!     let created = create(&CreateOptions::new(Level::Raid6, 4, [42; 16]), &members)?;
//!     for (device, superblock) in devices.iter().zip(created.superblocks.iter().flatten()) {
//!         for (at, bytes) in writes(superblock, created.bitmap.as_ref()) {
//!             device.write_at(at.first_byte(), &bytes)?;
//!         }
//!     }
//!
//!     let (arena, text) = (Arena::new(0, 16), "what the array keeps ".repeat(512 << 4).into_bytes());
//!     let raid = assembled(&devices, &AssembleOptions::default())?;
//!     raid.run(raid.array().start())?;
//!     let mut buffer = arena.take(text.len())?;
//!     buffer.copy_from(&text);
//!     raid.run(raid.array().write(Sector(4096), buffer.freeze(), Fua::No))?;
//!     raid.run(raid.array().wait(|_resync| {}))?;
//!     raid.run(raid.array().stop())?;
//!
//!     devices.truncate(2);
//!     let raid = assembled(&devices, &AssembleOptions { run: true, ..AssembleOptions::default() })?;
//!     raid.run(raid.array().start())?;
//!     assert_eq!(raid.array().status().picture(), "[UU__]");
//!     let read = raid.run(raid.array().read(Sector(4096), arena.take(text.len())?))?;
//!     assert_eq!(read.to_vec(), text);
//!     Ok(())
//! }
//! ```

mod array;
pub mod assemble;
mod command;
mod pass;
mod request;
mod row;
mod shard;
mod state;
mod steward;
mod words;

/// Helpers that unit tests share with the tests in `tests/` name the crate as those do.
#[cfg(test)]
extern crate self as uraid_engine;

pub use array::Array;
pub use array::local;
pub use assemble::{
    AssembleError, AssembleOptions, BitmapPlan, Candidate, ExamineError, Examined, HalfReshaped, MemberPlan,
    PartlyRecovered, Place, PplPlan, PplReplay, ReadOnlyReason, Refusal, Refused, ReshapedPart, StartPlan, assemble,
    assemble_examined, assemble_half_reshaped, examine,
};
pub use command::bitmap_changer::ChangeBitmapError;
pub use command::fail::{FailError, StaysFrozen};
pub use command::lifecycle::{StartError, Status, StopError};
pub use command::membership::{FlagError, FormerMember, RemoveError, Vacancy};
pub use command::read_only::AccessError;
pub use command::reshaper::ShapeError;
pub use pass::kinds::{PassNames, ReplaceError, ReportedAs};
pub use pass::schedule::{CheckError, PassError};
pub use row::write_cost::{WriteCost, write_cost};
pub use shard::mail::Mail;
pub use shard::member_counts::{MemberCounts, RequestCounts, Slowest};
pub use shard::places::MEMBERS_MAX;
pub use shard::request_times::{RequestTimes, Times};
pub use shard::shared::Counters;
pub use shard::world::{self, Pool, World};
pub use state::master::MemberState;
pub use state::shape::NewShape;
pub use state::view;
pub use steward::bitmap::BitmapStatus;
pub use steward::health::{ErrorCount, MemberErrors};
pub use words::bad_blocks::BadBlockList;
pub use words::config::Config;
pub use words::failure::RequestKind;
pub use words::findings::{CheckEnd, Checked, Mismatch};
pub use words::join_error::{AddError, ReAddError};
pub use words::progress::{PassKind, Progress, Share, SpeedLimits};
pub use words::{mark, verdict};
