//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what needs root for mounts (`filesystems`), or raises a limit of its process
//! (`idle_clients`).
//! Invariant: a file beside this one is a program, or a module of one: `cargo xtask tidy` checks it.

mod cves;
mod documented_commands;
mod foreign_clients;
mod kill_storm;
mod lost_order;
mod mirrors;
mod own_client;
mod rude_clients;
mod ten_tasks;
