//! An array that runs, on the command line of a verb that takes nothing else.
//! Owns: [`OneArray`]. Not here: finding it (`uraid_control::client`).

use clap::Args;
use std::path::PathBuf;

/// A running array: by its name, by a member or by its control socket.
#[derive(Args, Debug)]
pub(crate) struct OneArray {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// The array's name, or one of its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Option<String>,
}
