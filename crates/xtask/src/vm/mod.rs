//! The project's own lab: a real Linux kernel with the real md driver, in QEMU.
//! Owns: the commands. Not here: the kernel, the initramfs, the machine, the matrix (the modules below).

use crate::stage::Tally;
use std::process::ExitCode;

/// `vm run`.
pub(crate) fn run_command(_words: &[&str]) -> ExitCode {
    ExitCode::FAILURE
}

/// `vm matrix`, as a stage of a check run.
pub(crate) fn matrix() -> Tally {
    Tally::one(false)
}

/// `vm matrix`, by itself.
pub(crate) fn matrix_command() -> bool {
    false
}
