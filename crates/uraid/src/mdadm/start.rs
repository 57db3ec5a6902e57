//! A new array of `mdadm --create`: made, then served in the background.
//! Owns: the question whether members that carry something are overwritten, the number that the line gives the array.
//! Not here: making it (`create`), serving it (`serve`).
//! Invariant: without a yes, what members carry stays.

use super::Runner;
use super::steps::code_of;
use super::translate::{NO_OVERWRITE, NewArray};
use crate::create::refusal::Refusal;
use std::error::Error;
use std::io::{BufRead, stdin};
use std::process::ExitCode;
use uraid_control::client;
use uraid_control::device_name::{DeviceName, Named};
use uraid_control::log::{complain, raw, warn};
use uraid_control::names::parse_uuid;
use uraid_serve::background;

/// As mdadm asks.
const QUESTION: &str = "Continue creating array [y/N]? ";

/// Makes and serves it.
pub(super) fn run(new: &NewArray, runner: Runner) -> ExitCode {
    if client::find(Some(&new.array), None).is_ok() {
        warn(&format!("{}: is a running array already; `uraid detail {}` shows it", new.array, new.array));
        return ExitCode::FAILURE;
    }
    let uuid = new.uuid.clone().unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
    let mut words = new.words.clone();
    words.insert(1, format!("--uuid={uuid}"));
    let mut made = runner(&words);
    if let Err(error) = &made
        && is_occupied(&**error)
    {
        complain(&**error);
        if !is_confirmed() {
            warn(&format!("{}: no array was made", new.array));
            return ExitCode::FAILURE;
        }
        words.retain(|word| word != NO_OVERWRITE);
        words.insert(1, "--run".to_owned());
        made = runner(&words);
    }
    match made {
        Ok(code) if code != ExitCode::SUCCESS => return code,
        Ok(_) => {}
        Err(error) => {
            let code = code_of(&*error);
            say_which_are_arrays(new);
            return code;
        }
    }
    record_number(new, &uuid);
    let code = serve(&new.served);
    if code == ExitCode::SUCCESS {
        // The line that scripts wait for.
        raw(format!("mdadm: array {} started.\n", new.array));
    }
    code
}

/// mdadm makes arrays of arrays by their devices; those of uraid are none.
fn say_which_are_arrays(new: &NewArray) {
    let members = new.served.iter().filter(|word| word.starts_with("/dev/md") || !word.contains(['/', '-']));
    for array in members.filter(|word| client::find(Some(word), None).is_ok()) {
        warn(&format!(
            "{array}: is a running array, not a device: `uraid create --array MEMBER... --array MEMBER...` makes an array \
             of arrays"
        ));
    }
}

fn is_occupied(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref::<Refusal>(), Some(Refusal::Occupied { .. }))
}

/// `uraid serve --background WORDS`.
fn serve(words: &[String]) -> ExitCode {
    let words = ["--background"].into_iter().chain(words.iter().map(String::as_str)).map(Into::into);
    background::serve(words).unwrap_or_else(|error| {
        warn("the array is made, and not started");
        complain(&error);
        ExitCode::FAILURE
    })
}

/// Whether the answer on stdin begins with y. Without an answer it is no.
fn is_confirmed() -> bool {
    raw(QUESTION.to_owned());
    let mut answer = String::new();
    let is_read = stdin().lock().read_line(&mut answer).is_ok_and(|length| length > 0);
    if !is_read {
        raw("\n".to_owned());
    }
    is_read && answer.trim_start().starts_with(['y', 'Y'])
}

/// `/dev/md5`, where the array's name does not say 5.
fn record_number(new: &NewArray, uuid: &str) {
    let device = new.array.strip_prefix("/dev/").unwrap_or(&new.array);
    let Ok(uuid) = parse_uuid(uuid) else { return };
    let named = Named { name: &new.name, metadata: "1.2", uuid };
    if let Err(error) = DeviceName::record(&named, device) {
        warn(&format!("{}: the array may get another number: {}", new.array, uraid_host::io_text(&error)));
    }
}
