//! Serves one [`Device`](uraid_block::Device) over NBD, on the shards of [`uraid_host`].
//! Owns: connections, the handshake's policy, request checks, batching of replies, limits, shutdown.
//! Not here: the wire's bytes (`uraid_nbd`), levels and members (a frontend sees a `Device`, never an array).
//! Invariant: a request that reached the device runs to its end, even if its client leaves. A payload that did not
//! arrive completely never reaches the device. The memory that a client can hold is bounded.
//!
//! ```text
//!   socket -> Receiver -> Reader: check, permits -> JobQueue -> a worker: Job::run -> Device
//!                           |                                      |
//!                           +------------- refusal -------------- answer -> Outbox -> one vectored send -> socket
//! ```
//!
//! A file imports only files that stand above it here, or to the left of it:
//!
//! ```text
//!   machine, news, spread, inbox, shares, workers, progress, transfers, statistics, export
//!   handshake, request, clear_queue, limits, admission, outbox, status
//!   memory, shared       what all connections of a server have
//!   connection           one connection: state, answers, replies
//!   connections, receiving, pieces
//!   job, clears, watchdog
//!   reader               one connection's requests
//!   server
//! ```

mod admission;
mod clear_queue;
mod clears;
mod connection;
mod connections;
#[cfg(test)]
#[path = "../../block/tests/every_order/mod.rs"]
mod every_order;
mod export;
mod handshake;
mod inbox;
mod job;
mod limits;
mod machine;
mod memory;
mod news;
mod outbox;
mod pieces;
mod progress;
mod reader;
mod receiving;
mod request;
mod server;
mod shared;
mod shares;
mod spread;
mod statistics;
mod status;
mod transfers;
mod watchdog;
mod workers;

pub use export::Export;
pub use limits::Limits;
pub use machine::{Machine, Transport};
pub use news::News;
pub use server::Server;
pub use spread::Spread;
pub use statistics::Statistics;
