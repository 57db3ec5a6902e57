//! `cargo xtask demo`, what `make demo` runs.
//! Owns: nothing yet. Not here: the array's work (`uraid`).

/// Says that it is not there, and fails.
pub(crate) fn run() -> bool {
    eprintln!("the demo is not there yet");
    false
}
