//! `uraid stop`: ends a running array, or all of them.
//! Owns: the call, the lines about it, which arrays `--scan` means. Not here: what the server does (`session::stopping`).

use crate::cli::StopArgs;
use uraid_control::client::{self, ClientError};
use uraid_control::log::{print, warn, with_causes};

/// Stops a running array, or all of them.
pub(crate) fn run(args: &StopArgs) -> Result<(), ClientError> {
    if !args.scan {
        return stop_one(args);
    }
    let reports = client::running()?.reports;
    if reports.is_empty() {
        warn("no array runs, so none is stopped");
    }
    let mut outcome = Ok(());
    for report in reports {
        let name = &report.name;
        let of_one = StopArgs { array: vec![report.own_word()], scan: false, control: None, ..*args };
        match stop_one(&of_one) {
            // Arrays in an array stop with it.
            Ok(()) | Err(ClientError::NotRunning { .. }) => {}
            Err(error) => {
                warn(&format!("{name}: is not stopped: {}", with_causes(&error)));
                outcome = Err(ClientError::Words { text: "not all arrays are stopped, see above".to_owned() });
            }
        }
    }
    outcome
}

fn stop_one(args: &StopArgs) -> Result<(), ClientError> {
    let mut client = client::find(args.array.first().map(String::as_str), args.control.as_deref())?;
    let report = client.status()?;
    client::check_words(&report, &args.array)?;
    client.stop(args.all, args.force)?;
    print(&format!("{}: stopped\n", report.name));
    let deleted =
        report.members.iter().filter(|member| member.is_deleted()).filter_map(|member| member.path.as_deref());
    let deleted: Vec<&str> = deleted.collect();
    if !deleted.is_empty() {
        warn(&format!("{}: was clean on files that vanished with it: {}", report.name, deleted.join(", ")));
    }
    Ok(())
}
