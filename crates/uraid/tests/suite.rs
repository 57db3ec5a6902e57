//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what hangs, measures or needs a quiet process (programs of their own, in `Cargo.toml`).
//! Invariant: a file beside this one is in one of the two lists, or it would never run; `cargo xtask tidy` checks it.

mod access;
mod arrays;
mod bad_blocks;
mod bitmap;
mod checks;
mod common;
mod control;
mod copy;
mod crafted;
mod detail;
mod detail_forms;
mod draw;
mod durable;
mod dying;
mod errors;
mod examine;
mod flags_by_position;
mod fuse;
mod fuse_loop;
mod joining;
mod life;
mod log;
mod md_cases;
mod mdadm_words;
mod members;
mod mounting;
mod passes;
mod ppl;
mod punches;
mod re_adding;
mod read_only;
mod rebuilding;
mod replacing;
mod rescue;
mod reshaped;
mod several;
mod spare_groups;
mod spares;
mod suggestions;
mod update;
mod waiting;
mod write_behind;
mod write_mostly;
