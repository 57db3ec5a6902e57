//! Serves [`Device`](uraid_block::Device)s as files of a FUSE mount, on the shards of [`uraid_host`].
//! Owns: the folder and its files, the order of requests, whole and ragged I/O, limits, shutdown.
//! Not here: the messages' bytes (`uraid_fuse`), mounting and the device file (`host::fuse`), levels and members (a
//! frontend sees a `Device`, never an array).
//! Invariant: a request that reached the device runs to its end and is answered once, by the shard that received it. The
//! memory of all requests is bounded. Bytes that a write does not name stay what they are.
//!
//! ```text
//!   /dev/fuse -> a worker: has the turn, receives one request, gives the turn to the next worker
//!                   |
//!                   +-- runs it: folder (names, attributes) or file (Device) -- one writev --> /dev/fuse
//! ```
//!
//! A file imports only files that stand above it here:
//!
//! ```text
//!   turns, memory, folder, errors
//!   common         what the servers of all shards share
//!   transfer       reads, writes and zeroes of one file
//!   inbox          one request from the device
//!   server
//! ```

mod common;
mod errors;
mod folder;
mod inbox;
mod memory;
mod server;
mod transfer;
mod turns;

pub use common::Common;
pub use folder::Export;
pub use inbox::PAYLOAD_BYTES_MAX;
pub use memory::{ARENA_BLOCKS, ARENA_BLOCKS_MIN};
pub use server::Server;
