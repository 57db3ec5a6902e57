//! This process, as the system sees it: its limits, rights, signals and processors, and its end after a panic.
//! Owns: what is set once for the process or a thread. Not here: what a shard does (`shard`), system calls (`sys`). Called by
//! all rooms above; it calls `sys` alone.

pub(crate) mod descriptors;
pub(crate) mod heap;
pub(crate) mod memory;
pub(crate) mod panic_hook;
pub(crate) mod privileges;
pub(crate) mod processors;
pub(crate) mod reclaim;
pub(crate) mod signals;
pub(crate) mod stack;
