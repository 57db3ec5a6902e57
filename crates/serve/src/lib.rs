//! Arrays that serve: from the names of members to running arrays with clients, and what is said of them meanwhile.
//! Owns: members as users name them, sessions, what a running array answers, its frontends and its control socket, their
//! reports, the log; arrays that run for one task of an offline command. Not here: the command line, what is printed for
//! it (`uraid`), any decision about arrays (`engine`), any byte on disk (`format`), a protocol (`export-nbd`,
//! `export-fuse`).
//! Invariant: what uses a running array is compiled here. A caller gets futures in boxes, and never owns an array.

pub mod asking;
pub mod assembly;
pub mod background;
pub mod cautions;
pub mod client;
mod clients;
mod control;
pub mod copy_reader;
pub mod dates;
pub mod device_name;
pub mod files;
pub mod frontends;
mod frozen;
pub mod log;
mod member_errors;
pub mod member_name;
pub mod memory;
mod message;
pub mod metadata;
pub mod names;
pub mod nested;
pub mod one_shot;
pub mod opening;
mod overseer;
pub mod pace;
pub mod pass_calls;
mod paths;
pub mod progress;
pub mod report;
pub mod roster;
pub mod rpc;
pub mod runtime;
pub mod session;
mod silence;
mod spare_groups;
pub mod stack;
mod strict_json;
mod watch;
