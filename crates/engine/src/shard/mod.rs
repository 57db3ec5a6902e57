//! What one shard has: its world, its mail, its copy of the view, requests in flight, locks, buffers.
//! Owns: what the rooms above share on one thread, and how shards speak with each other. Not here: decisions. Called by
//! `array`, `command`, `pass`, `steward`, `request` and `row`.

pub(crate) mod balance;
pub(crate) mod behind;
pub(crate) mod behind_place;
pub(crate) mod buffers;
pub(crate) mod calls;
pub(crate) mod epochs;
pub(crate) mod intent;
pub(crate) mod limits;
pub(crate) mod mail;
pub(crate) mod member_counts;
pub(crate) mod member_io;
pub(crate) mod permit;
pub(crate) mod places;
pub(crate) mod range_lock;
pub(crate) mod request_times;
pub(crate) mod shared;
pub(crate) mod slices;
pub(crate) mod stream_ends;
pub(crate) mod torn;
pub(crate) mod unsynced;
pub(crate) mod without_source;
pub mod world;
