//! Servers whose sockets are not in the directories that are looked through: of other users, or of another
//! URAID_RUNTIME_DIR.
//! Owns: finding them in the system's list of sockets, the lines about them. Not here: asking them.
//! Invariant: nothing is connected to: a socket of another user may be anything.

use crate::log::warn;
use crate::report::Report;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the system lists its sockets.
const SOCKETS: &str = "/proc/net/unix";
/// How many lines, so that no user can fill another one's screen.
const LINES_MAX: usize = 16;

/// Says on stderr which servers of this user, and for root of all users, are not among these reports. With
/// URAID_RUNTIME_DIR the user has said where to look. Where the system does not list its sockets, as in a container
/// without /proc, says that such servers are not looked for.
pub fn say_not_shown(reports: &[Report]) {
    if std::env::var_os("URAID_RUNTIME_DIR").is_some_and(|directory| !directory.is_empty()) {
        return;
    }
    let own = geteuid().as_raw();
    let is_shown =
        |pid: u32| reports.iter().any(|report| report.server.as_ref().is_some_and(|server| server.pid == pid));
    let seen = super::looked_through().unwrap_or_default();
    let sockets = match fs::read_to_string(SOCKETS) {
        Ok(sockets) => sockets,
        Err(error) => {
            let why = uraid_host::io_text(&error);
            return warn(&format!("servers with sockets in other directories are not looked for: {SOCKETS}: {why}"));
        }
    };
    let servers = listening(&sockets);
    let hidden = servers.into_iter().filter(|(pid, directory)| !is_shown(*pid) && !seen.contains(directory));
    let lines = hidden.filter_map(|(pid, directory)| {
        let owner = owner_of(pid).filter(|owner| own == 0 || own == *owner)?;
        let directory = directory.display();
        let how = if owner == own {
            format!("URAID_RUNTIME_DIR={directory} uraid list")
        } else {
            format!("`uraid list` of user {owner}")
        };
        Some(format!("not shown: process {pid} of user {owner} has its sockets in {directory}: {how} shows its arrays"))
    });
    lines.take(LINES_MAX).for_each(|line| warn(&line));
}

/// The processes that listen on sockets of uraid, each with a directory of them. The system knows a socket by the name
/// that it had at first: `.uraid-PID-N` (`uraid_host::Listener::unix`).
fn listening(sockets: &str) -> BTreeMap<u32, PathBuf> {
    let server = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path
        let mut fields = line.split_whitespace();
        let path = Path::new(fields.nth(7)?);
        let name = path.file_name()?.to_str()?.strip_prefix(".uraid-")?;
        let pid = name.split_once('-')?.0.parse().ok()?;
        let directory = path.parent().filter(|directory| directory.is_absolute() && !directory.starts_with("/proc"))?;
        Some((pid, directory.to_owned()))
    };
    sockets.lines().filter_map(server).collect()
}

/// The user of a process; `None`: it has ended.
fn owner_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // Real, effective, saved, of files.
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_the_names_of_their_sockets() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 34501 /tmp/uraid-1000/.uraid-471-0\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 34502 /tmp/uraid-1000/.uraid-471-1\n\
                       0000000000000000: 00000003 00000000 00000000 0001 03 34503\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 34504 /run/dbus/.uraid-socket\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 34505 @abstract\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 34506 /proc/self/fd/9/.uraid-5-0\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 34507 /srv/.uraid-12-0\n";
        let expected = BTreeMap::from([(471, PathBuf::from("/tmp/uraid-1000")), (12, PathBuf::from("/srv"))]);
        assert_eq!(listening(sockets), expected);
        assert_eq!(owner_of(std::process::id()), Some(geteuid().as_raw()));
        assert_eq!(owner_of(u32::MAX), None);
    }
}
