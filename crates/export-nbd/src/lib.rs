//! Serves one [`Device`](uraid_block::Device) over NBD, on the shards of [`uraid_host`].
//! Owns: connections, the handshake's policy, request checks, batching of replies, limits, shutdown.
//! Not here: the wire's bytes (`uraid_nbd`), levels and members (a frontend sees a `Device`, never an array).
//! Invariant: a request that reached the device runs to its end, even if its client leaves. A payload that did not
//! arrive completely never reaches the device. The memory that a client can hold is bounded.
//!
//! ```text
//!   socket -> Inbox -> check -> jobs -> worker -> Device
//!                        |                 |
//!                        +---- refusal ----+-> Outbox -> one vectored send per batch -> socket
//! ```

mod clears;
mod connection;
#[cfg(test)]
#[path = "../../block/tests/every_order/mod.rs"]
mod every_order;
mod export;
mod handshake;
mod inbox;
mod limits;
mod machine;
mod news;
mod outbox;
mod pieces;
mod places;
mod receiving;
mod request;
mod server;
mod shares;
mod spread;
mod statistics;
mod status;
mod watchdog;
mod workers;

pub use export::Export;
pub use limits::Limits;
pub use machine::{Machine, Transport};
pub use news::News;
pub use server::Server;
pub use spread::Spread;
pub use statistics::Statistics;
