//! What a service manager and a service tell each other: systemd, or whoever speaks its protocol.
//! Owns: the socket that a service's state is told on, the time of its watchdog, the directories that it was given.
//! Not here: what a service says (`serve`, `operate`), the log's priorities (`log`).
//! Invariant: no thread waits for the service manager: what its socket does not take at once is not told.
//! Spec: sd_notify(3), sd_watchdog_enabled(3), systemd.exec(5) on RUNTIME_DIRECTORY and STATE_DIRECTORY.

use crate::log::{self, warn};
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A watchdog of systemd kills a service that is silent for longer; this often within that time the service is heard.
const BEATS_PER_TIME: u32 = 3;

/// The service manager that has started this process and wants to be told about it.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    /// How often it must hear [`ServiceManager::is_alive`].
    pub beat: Option<Duration>,
}

impl ServiceManager {
    /// `None`: nobody wants to be told. A socket that cannot be reached is named in the log.
    pub fn of_environment() -> Option<ServiceManager> {
        let place = std::env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty())?;
        let watchdog = beat(text("WATCHDOG_USEC"), text("WATCHDOG_PID"), std::process::id());
        match connect(&place) {
            Ok(socket) => Some(ServiceManager { socket, beat: watchdog }),
            Err(error) => {
                let reason = log::with_causes(&error);
                warn(&format!(
                    "the service manager is not told that arrays are served: {}: {reason} (NOTIFY_SOCKET)",
                    Path::new(&place).display()
                ));
                None
            }
        }
    }

    /// The service does its work; how, in one line. Telling it again is allowed, and changes the line.
    pub fn is_ready(&self, status: &str) -> bool {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)))
    }

    /// The service begins to end.
    pub fn is_stopping(&self, status: &str) -> bool {
        self.tell(&format!("STOPPING=1\nSTATUS={}", one_line(status)))
    }

    /// What [`ServiceManager::beat`] asks for.
    pub fn is_alive(&self) -> bool {
        self.tell("WATCHDOG=1")
    }

    /// Returns whether it was told.
    fn tell(&self, lines: &str) -> bool {
        self.socket.send(lines.as_bytes()).is_ok()
    }
}

/// The directory for sockets that the service manager has made for this service.
pub(super) fn runtime_directory() -> Option<PathBuf> {
    directory("RUNTIME_DIRECTORY")
}

/// The directory for state that the service manager has made for this service.
pub fn state_directory() -> Option<PathBuf> {
    directory("STATE_DIRECTORY")
}

fn directory(variable: &str) -> Option<PathBuf> {
    own_of(&std::env::var_os(variable)?)
}

/// Of a list such as `/run/uraid:/run/arrays` the one that is called as this program is: a service may have others for
/// what else it does.
fn own_of(list: &OsString) -> Option<PathBuf> {
    let paths =
        list.as_bytes().split(|byte| *byte == b':').map(|path| PathBuf::from(OsString::from_vec(path.to_vec())));
    paths.filter(|path| path.is_absolute()).find(|path| path.file_name().is_some_and(|name| name == "uraid"))
}

fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// How often a watchdog of `usec` must hear process `own`, if it is the one that is watched.
fn beat(usec: Option<String>, watched: Option<String>, own: u32) -> Option<Duration> {
    let time = usec?.parse().ok().filter(|usec| *usec > 0).map(Duration::from_micros)?;
    let is_watched = watched.is_none_or(|watched| watched.parse() == Ok(own));
    is_watched.then_some(time / BEATS_PER_TIME)
}

fn connect(place: &OsString) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(Path::new(place))?,
    };
    socket.connect_addr(&address)?;
    Ok(socket)
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_heard_three_times_in_its_time_and_only_by_the_process_that_it_watches() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(beat(text("3000000"), None, 7), Some(Duration::from_secs(1)));
        assert_eq!(beat(text("3000000"), text("7"), 7), Some(Duration::from_secs(1)));
        assert_eq!(beat(text("3000000"), text("8"), 7), None);
        for wrong in ["", "0", "-1", "soon"] {
            assert_eq!(beat(text(wrong), None, 7), None, "{wrong:?}");
        }
        assert_eq!(beat(None, text("7"), 7), None);
    }

    #[test]
    fn of_the_directories_of_a_service_its_own_is_taken() {
        let own = |list: &str| own_of(&OsString::from(list));
        assert_eq!(own("/run/arrays:/run/uraid"), Some(PathBuf::from("/run/uraid")));
        assert_eq!(own("/run/arrays"), None);
        assert_eq!(own("uraid"), None, "it is no absolute path");
        assert_eq!(own(""), None);
    }

    #[test]
    fn what_is_told_arrives_line_by_line() {
        let name = format!("@uraid-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name[1..]).expect("short");
        let heard = UnixDatagram::bind_addr(&address).expect("nobody else has this name");
        let manager = ServiceManager { socket: connect(&OsString::from(&name)).expect("bound"), beat: None };
        assert!(manager.is_ready("home: served\nsrv: served") && manager.is_alive());
        let mut bytes = [0; 256];
        for expected in ["READY=1\nSTATUS=home: served srv: served", "WATCHDOG=1"] {
            let count = heard.recv(&mut bytes).expect("it was told");
            assert_eq!(std::str::from_utf8(&bytes[..count]), Ok(expected));
        }
        drop(heard);
        assert!(!manager.is_alive());
    }
}
