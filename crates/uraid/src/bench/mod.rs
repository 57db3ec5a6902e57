//! `uraid bench`, as far as it measures files of a mounted file system, which `doctor` finds on their array.
//! Owns: that, and the call of the rest. Not here: options and all other figures (`uraid_bench_command`).
//! Called by `main` alone.

mod on_file_system;

use std::error::Error;
use std::path::Path;
use uraid_bench::Screen;
use uraid_bench::scenario::ScenarioName;
use uraid_bench::table::Row;
use uraid_bench_command::BenchArgs;

/// Measures and prints.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Box<dyn Error>> {
    Ok(uraid_bench_command::run(args, on_file_system)?)
}

fn on_file_system(scenario: ScenarioName, folder: &Path, screen: &dyn Screen) -> Result<Vec<Row>, Box<dyn Error>> {
    Ok(on_file_system::measure(scenario, folder, screen)?)
}
