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
//! Its rooms, from the top down (`cargo xtask floors` checks that imports do not go up):
//!
//! ```text
//!   server       accepting clients, serving each, stopping
//!   reader       one connection's requests, from its socket
//!   job          requests on the device
//!   clients      all connections of a server: admitted, counted, cut
//!   connection   one connection: state, answers, replies
//!   shared       what all connections of a server have: memory, limits, counters
//!   request      a request, checked; trims and write-zeroes that wait
//!   handshake    what is agreed, and what an export offers
//!   machine      sockets, clock, tasks
//! ```

mod clients;
mod connection;
#[cfg(test)]
#[path = "../../block/tests/every_order/mod.rs"]
mod every_order;
mod handshake;
mod job;
mod machine;
mod reader;
mod request;
mod server;
mod shared;

pub use handshake::export::Export;
pub use machine::{Machine, Transport};
pub use server::Server;
pub use server::spread::Spread;
pub use shared::limits::Limits;
pub use shared::news::News;
pub use shared::statistics::Statistics;
