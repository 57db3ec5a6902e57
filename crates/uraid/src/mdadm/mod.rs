//! `uraid mdadm`, also called as `mdadm`: mdadm's own command line.
//! Owns: reading its lines, translating them to those of uraid, carrying these out one after the other, mdadm's exit codes,
//! arrays of the kernel's. Not here: what the verbs do (their rooms), why options of mdadm are missing (`cli`).
//! Invariant: nothing of a line is done before all of it is understood. A line that is not uraid's business is done by the
//! system's mdadm, or refused by the array's name.
//! Spec: mdadm(8); docs/operating/from-mdadm.md.

mod kernel;
mod line;
mod options;
mod start;
mod steps;
mod translate;

use clap::Args;
use line::{Line, Refusal};
pub(crate) use line::{has_mode, is_option};
use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use translate::Plan;
use uraid_control::log::{raw, warn};

pub(crate) const MDADM: &str = "\
Take a line of mdadm as it is: its modes, its options, long or short, cut short or bundled, in any order,
and do the same with uraid. The binary does this, too, when it is called mdadm: as a link of that name.

`--create` makes the array and returns when it is served in the background. Where members carry something
it asks whether to go on, as mdadm does. An array is /dev/mdN, /dev/md/NAME or NAME.

What uraid cannot do is refused by its name, before anything is done. Arrays that the kernel's md runs are
the system's mdadm's: the line is given to it, if it is installed.";

pub(crate) const MDADM_AFTER: &str = "\
EXAMPLES
  uraid mdadm --create /dev/md0 --level=1 --raid-devices=2 /dev/sdb /dev/sdc
  uraid mdadm --detail /dev/md0
  uraid mdadm /dev/md0 --fail /dev/sdb --remove /dev/sdb --add /dev/sdd
  uraid mdadm --wait /dev/md0
  uraid mdadm --stop /dev/md0
  uraid mdadm --assemble /dev/md0 /dev/sdc /dev/sdd
  ln -s $(which uraid) ~/bin/mdadm

EXIT CODES
  those of mdadm in each mode: 0 done, 1 refused or failed, 2 the line is wrong; --detail --test 0 to 4, --wait 1
  where nothing was to be waited for, --manage --test 2 where nothing was changed";

/// Options of `uraid mdadm`.
#[derive(Args, Debug)]
pub(crate) struct MdadmArgs {
    /// The words behind mdadm
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
}

/// What carries a line of uraid out: with the words behind the program's name.
pub(crate) type Runner<'a> = &'a dyn Fn(&[String]) -> Result<ExitCode, Box<dyn Error>>;

/// The words of a line of uraid mean nothing to it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongWords(pub String);

/// Carries out a line of mdadm. `why_not`: why uraid has no such option, behind its name.
pub(crate) fn run(args: &MdadmArgs, runner: Runner, why_not: fn(&str) -> Option<String>) -> ExitCode {
    let plan = texts(&args.words).and_then(|words| translate::plan(&Line::parse(&words)?, why_not));
    let plan = match plan {
        Ok(plan) => plan,
        Err(Refusal::Missing(text)) => {
            warn(&text);
            return ExitCode::FAILURE;
        }
        Err(Refusal::Wrong(text)) => {
            warn(&text);
            return ExitCode::from(2);
        }
    };
    let arrays: &[String] = match &plan {
        Plan::Version => &[],
        Plan::Create(new) => std::slice::from_ref(&new.array),
        Plan::Steps(steps) => &steps.arrays,
    };
    if let Some(array) = arrays.iter().find(|array| kernel::has(array)) {
        return kernel::hand_over(&args.words, array);
    }
    match plan {
        Plan::Version => {
            // Programs look for the number behind `mdadm - v`.
            raw(format!("mdadm - v4.6 - by uraid {}\n", env!("URAID_VERSION")));
            ExitCode::SUCCESS
        }
        Plan::Create(new) => start::run(&new, runner),
        Plan::Steps(steps) => steps::run(&steps, runner),
    }
}

fn texts(words: &[OsString]) -> Result<Vec<String>, Refusal> {
    let text = |word: &OsString| {
        let lossy = word.to_string_lossy();
        word.to_str().map(str::to_owned).ok_or_else(|| Refusal::Wrong(format!("{lossy}: is not text in UTF-8")))
    };
    words.iter().map(text).collect()
}
