//! Lines that begin with a device, a file or a member, and say nothing of what is to be done.
//! Owns: the answer. Not here: lines of mdadm, which may begin so (`crate::mdadm`).
//! Invariant: a line whose first word is a verb of uraid does not come here.

use std::time::Duration;
use uraid_control::asking;
use uraid_control::member_name;

/// How long the first word may take to be found to be a file.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);

/// The answer to a line that begins with a device, a file or a member, and names no operation that uraid has.
pub(super) fn instead_of_device(first: &str) -> Option<String> {
    let number = first.strip_prefix("md").unwrap_or_default();
    let is_kernels = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let own = first.to_owned();
    let exists = || asking::ask(first, Some(LOOK_TIME_MAX), move || member_name::exists(&own)).unwrap_or(false);
    if first.starts_with('-') || !(is_kernels || first.contains('/') || exists()) {
        return None;
    }
    let verbs = "`uraid detail ARRAY` shows an array, `uraid serve MEMBER...` starts one";
    Some(format!("{first}: is where the verb is expected: {verbs}"))
}
