//! The tests of members that hang, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: tests that compute more than they wait (`suite`).
//! Nearly all of their time they wait for a timeout, so many of them run at a time.

mod common;
mod hung;
mod hung_commands;
mod hung_paths;
mod hung_start;
