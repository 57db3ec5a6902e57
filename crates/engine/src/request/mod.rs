//! Requests to the array that are no rows: reads of every level, writes of mirrors and stripes without parity.
//! Owns: their order, and what is tried when a member fails. Not here: writes with parity (`row`), what a request takes
//! before it touches a member (`shard`). Called by `pass` and `array`.

pub(crate) mod allocation;
pub(crate) mod mirror;
pub(crate) mod read_watch;
pub(crate) mod reader;
