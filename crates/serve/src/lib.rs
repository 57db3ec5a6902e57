//! Arrays that serve: from the names of members to running arrays with clients, and what is said of them meanwhile.
//! Owns: members as users name them, sessions, what a running array answers, its frontends and its control socket, their
//! reports, the log; arrays that run for one task of an offline command. Not here: the command line, what is printed for
//! it (`uraid`), any decision about arrays (`engine`), any byte on disk (`format`), a protocol (`export-nbd`,
//! `export-fuse`).
//! Invariant: what uses a running array is compiled here. A caller gets futures in boxes, and never owns an array.

pub mod assembly;
pub mod background;
pub mod cautions;
mod clients;
mod control;
pub mod copy_reader;
pub mod files;
pub mod frontends;
mod frozen;
mod member_errors;
pub mod memory;
mod message;
pub mod metadata;
pub mod nested;
pub mod one_shot;
pub mod opening;
mod overseer;
pub mod pace;
mod paths;
pub mod progress;
pub mod roster;
pub mod session;
mod silence;
mod spare_groups;
pub mod stack;
mod watch;
