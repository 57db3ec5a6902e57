//! Events in the system's log.
//! Owns: the line of syslog, its priority. Not here: where the log goes from there.
//! Invariant: a line is one datagram, and no name ends it.
//! Spec: RFC 3164, as syslog(3) writes it; mdadm's lines begin with `mdadm: `, which filters of distributions expect.

use super::{Channel, Job, NotTold, Told};
use crate::monitor::event::{Event, Severity};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use uraid_control::dates;

/// LOG_DAEMON of syslog(3).
const DAEMON: u8 = 3 << 3;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The system's log.
pub(crate) struct SystemLog {
    /// Its socket.
    pub socket: PathBuf,
}

impl SystemLog {
    /// Where syslog(3) finds it.
    pub(crate) fn new() -> SystemLog {
        SystemLog { socket: PathBuf::from("/dev/log") }
    }
}

impl Channel for SystemLog {
    fn name(&self) -> &'static str {
        "syslog"
    }

    fn tell(&mut self, job: &Job) -> Result<Told, NotTold> {
        let send = || {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to(line(&job.event).as_bytes(), &self.socket)
        };
        let failed = |error: std::io::Error| {
            NotTold::new(format!(
                "no line in the system's log: {}: {}",
                self.socket.display(),
                uraid_host::io_text(&error)
            ))
        };
        send().map(|_| Told::Done).map_err(failed)
    }
}

fn line(event: &Event) -> String {
    let level = match event.kind.severity() {
        Severity::Critical => 2,
        Severity::Warning => 4,
        Severity::Info => 6,
    };
    // `2023-11-14T22:13:20Z` has its parts at fixed places from the end.
    let stamp = dates::stamp(event.time);
    let parts: Vec<&str> = stamp.trim_end_matches('Z').split(['-', 'T']).collect();
    let month = parts.get(1).and_then(|month| month.parse::<usize>().ok()).and_then(|month| MONTHS.get(month - 1));
    let day = parts.get(2).map_or(" 1".to_owned(), |day| format!("{:>2}", day.trim_start_matches('0')));
    let (month, time) = (month.copied().unwrap_or("Jan"), parts.get(3).copied().unwrap_or("00:00:00"));
    format!("<{}>{month} {day} {time} mdadm: {event}", DAEMON | level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::event::EventKind;
    use crate::monitor::event::tests::event;

    #[test]
    fn a_line_is_one_datagram_with_mdadm_s_words() {
        let path = std::env::temp_dir().join(format!("uraid-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let job = |kind| Job { event: event(kind, None), is_again: false, mdstat: String::new() };
        let mut log = SystemLog { socket: path.clone() };
        assert!(log.tell(&job(EventKind::Fail)).is_err_and(|error| error.text.contains("uraid-syslog-")));
        let socket = UnixDatagram::bind(&path).expect("the temporary folder is writable");
        let mut sent = |kind| {
            log.tell(&job(kind)).expect("it is there");
            let mut buffer = [0; 512];
            let length = socket.recv(&mut buffer).expect("it was sent");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let expected = "<26>Nov 14 22:13:20 mdadm: Fail event detected on md device /dev/md/home";
        assert_eq!(sent(EventKind::Fail), expected);
        assert!(sent(EventKind::RebuildStarted).starts_with("<28>Nov 14 22:13:20 mdadm: RebuildStarted event"));
        assert!(sent(EventKind::NewArray).starts_with("<30>"));
        std::fs::remove_file(&path).expect("ours");
    }
}
