//! Who has a member that could not be claimed.
//! Owns: [`Held`], its text, finding the process by its lock and its arrays by asking the running servers. Not here:
//! claims (`metadata`), locks (`uraid_host::holder`).
//! Invariant: it is asked only after a claim has failed; a server that hangs delays it by a second at most.

use std::time::Duration;
use uraid_control::client::{self, AllAsked};
use uraid_control::member_name;
use uraid_control::names;
use uraid_control::report::Report;
use uraid_host::{Holder, holder};

/// How long the running servers have to say whether a member is theirs.
const ASK_TIME_MAX: Duration = Duration::from_secs(1);

/// A member that another process has claimed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{member}: in use by process {pid}{}", text(array.as_deref()))]
pub struct Held {
    /// The name given.
    pub member: String,
    /// The process.
    pub pid: u32,
    /// The array of which it is a member there, if that process is a server that answers.
    pub array: Option<String>,
}

fn text(array: Option<&str>) -> String {
    array.map_or(String::new(), |array| {
        format!(", which serves the array {array} with it: stop that first (`uraid stop {array}`)")
    })
}

/// Who has this member now. `None`: the kernel, nobody any more, or a process that the system does not name. Blocks the
/// thread while the member's path does not answer.
pub(super) fn held(member: &str) -> Option<Held> {
    let target = member_name::resolve(member).ok()?;
    let by_lock = match holder(&target).ok()?? {
        Holder::Process(pid) => Some(pid),
        Holder::Unknown => None,
    };
    let AllAsked { reports, .. } = client::ask_all(ASK_TIME_MAX).unwrap_or_default();
    let path = member_name::absolute(member);
    let pid_of = |report: &Report| report.server.as_ref().map(|server| server.pid);
    let has = |report: &&Report| report.has_member(&path) && (by_lock.is_none() || pid_of(report) == by_lock);
    // The member may have another name there.
    let only_of_process = || {
        let mut of_process = reports.iter().filter(|report| by_lock.is_some() && pid_of(report) == by_lock);
        of_process.next().filter(|_| of_process.next().is_none())
    };
    let server = reports.iter().find(has).or_else(only_of_process);
    let pid = by_lock.or_else(|| server.and_then(pid_of))?;
    let array = server.map(|report| names::printable(&report.name));
    Some(Held { member: member.to_owned(), pid, array })
}
