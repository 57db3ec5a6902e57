//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what counts allocations (`no_allocation`).
//! Invariant: a file beside this one is a program, or a module of one: `cargo xtask tidy` checks it.

mod assemble;
mod assemble_bitmap;
mod assemble_ends;
mod assemble_force;
mod assemble_history;
mod assemble_ppl;
mod assemble_read_only;
mod assemble_reshape;
mod assemble_rounds;
mod assemble_total;
mod candidates;
mod foreign_memory;
mod machine;
mod requests;
mod set_shape;
