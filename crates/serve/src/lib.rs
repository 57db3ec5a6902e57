//! Arrays that serve: from the names of members to running arrays with clients, and what is said of them meanwhile.
//! Owns: members as users name them, sessions, what a running array answers, its frontends and its control socket, their
//! reports, the log; arrays that run for one task of an offline command. Not here: the command line, what is printed for
//! it (`uraid`), any decision about arrays (`engine`), any byte on disk (`format`), a protocol (`export-nbd`,
//! `export-fuse`).
//! Invariant: what uses a running array is compiled here. A caller gets futures in boxes, and never owns an array.

pub mod background;
pub mod frontend;
pub mod life;
mod lines;
pub mod memory;
mod offline;
pub mod opening;
mod overseer;
pub mod session;
pub mod stack;

pub use lines::progress;
pub use offline::{copy_reader, one_shot};
pub use opening::{cautions, metadata, nested};
pub use stack::assembly;
