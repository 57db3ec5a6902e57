//! `uraid-day`: a day in the life of an array.
//! Owns: its options. Not here: the day (`uraid_blackbox::day`).
//! Invariant: exit code 0 only if everything held.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uraid_blackbox::day;
use uraid_blackbox::filesystem::mount;
use uraid_blackbox::programs::foreign;

const USAGE: &str = "\
usage: uraid-day [--seed N] [--kills N] [--keep FOLDER]
Each step runs once to its end, and is killed N times in the middle, by default once. Needs root, FUSE and loop devices.
--keep copies the members to FOLDER at the end. The binary under test is the `uraid` of the same build; URAID_BIN names
another.";

struct Wanted {
    seed: u64,
    kills: u64,
    keep: Option<PathBuf>,
}

fn parse() -> Option<Wanted> {
    let mut wanted = Wanted { seed: 1, kills: 1, keep: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => wanted.seed = arguments.next()?.parse().ok()?,
            "--kills" => wanted.kills = arguments.next()?.parse().ok()?,
            "--keep" => wanted.keep = Some(arguments.next()?.into()),
            _ => return None,
        }
    }
    Some(wanted)
}

fn copy_to(folder: &Path, members: &[PathBuf]) -> Result<(), String> {
    for member in members {
        let name = member.file_name().ok_or("a member has a name")?;
        std::fs::copy(member, folder.join(name)).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(Wanted { seed, kills, keep }) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let missing: Vec<_> = day::PROGRAMS.into_iter().filter(|program| foreign::find(program).is_none()).collect();
    let obstacle = mount::obstacle().map(str::to_owned);
    if let Some(why) =
        obstacle.or_else(|| (!missing.is_empty()).then(|| format!("not installed: {}", missing.join(", "))))
    {
        eprintln!("uraid-day: {why}");
        return ExitCode::from(2);
    }
    match day::live(seed, kills, |members| keep.map_or(Ok(()), |folder| copy_to(&folder, members))) {
        Ok(figures) => {
            println!(
                "{} steps to their end, {} killed, {} files: all equal",
                figures.steps, figures.kills, figures.files
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("uraid-day: {why}");
            ExitCode::FAILURE
        }
    }
}
