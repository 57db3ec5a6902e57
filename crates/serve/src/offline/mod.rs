//! Arrays that run for one task of an offline command, without clients.
//! Owns: their start and stop around the task, the reading half of a copy. Not here: arrays that are served (`life`).
//! Called by `opening` and by the command line.

pub mod copy_reader;
pub mod one_shot;
