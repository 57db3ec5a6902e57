//! `uraid monitor`: watches arrays and tells people and programs what happens to them.
//! Owns: its options and help texts, refusals before it begins; the rest is in its files. Not here: what an array answers
//! (`uraid_control`), what its server records.
//! Invariant: each event arises once, also across restarts of the monitor; a channel that does not work delays no other.
//!
//! ```text
//!   wake, delay   ->  life: look  ->  sight, past  ->  changes  ->  outbox  ->  keep (fsync)  ->  channel
//! ```

mod args;
mod background;
mod changes;
mod channel;
mod event;
mod keep;
mod life;
mod memory;
mod moment;
mod outbox;
mod past;
mod settings;
mod sharing;
mod sight;
mod trusted;
mod wake;

pub use args::{MONITOR, MONITOR_AFTER, MonitorArgs};
pub use channel::Webhook;

use keep::{Keep, KeepError};
use life::Life;
use settings::Settings;
use std::error::Error;
use std::process::ExitCode;
use uraid_control::log::{print, warn};
use uraid_control::state;

/// Watches until it is told to stop; or looks once; or acknowledges.
pub fn run(args: &MonitorArgs) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(word) = &args.acknowledge {
        let name = keep::acknowledge(&state::make()?, word)?;
        print(&format!("{name}: acknowledged; it is told again when it is degraded anew\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::of(args)?;
    if args.daemonise && !args.detached {
        return Ok(background::start(args)?);
    }
    if args.detached {
        background::begin();
    }
    let opened = Keep::open(state::make()?);
    let (keep, state, said) = match opened {
        // What happens is told by the other one. A test is not of what happens.
        Err(error @ KeepError::Taken { .. }) if args.oneshot => {
            warn(&error.to_string());
            if args.test {
                life::test_only(settings)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        outcome => outcome?,
    };
    if let Some(said) = said {
        warn(&said);
    }
    let pid_file = args.pid_file.as_deref().map(background::PidFile::write).transpose()?;
    let mut life = Life::new(settings, keep, state);
    if args.detached {
        background::ready(pid_file.is_some());
    }
    life.run()?;
    Ok(ExitCode::SUCCESS)
}
