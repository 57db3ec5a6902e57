//! The tests of this crate that measure, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: an array at work for minutes (`ten_minutes`), `uraid bench` (`bench`).
//! Each runs only when asked for, alone: `cargo test --release -p uraid --test figures -- --ignored --nocapture NAME`.

mod common;
mod disk_figures;
mod hung_figures;
mod stall_figures;
mod start_figures;
