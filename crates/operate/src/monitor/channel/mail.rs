//! A mail about an event, through sendmail.
//! Owns: its text, which is mdadm's, and its header; finding sendmail. Not here: which events are mailed (`event`).
//! Invariant: no name ends a line of the header. A mail that is sent again, because it is not known whether it left, has the
//! same Message-ID, by which mail servers drop the second one.

use super::{Channel, Filter, Job, NotTold, Told, ended, run};
use crate::monitor::trusted::{self, Kind};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use uraid_control::dates;
use uraid_control::names::{printable, printable_lines};

/// How long sendmail may take to accept a mail.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Where sendmail is.
const PLACES: [&str; 2] = ["/usr/sbin/sendmail", "/usr/lib/sendmail"];

/// Mails to one address.
pub(crate) struct Mail {
    /// Where they go.
    pub to: String,
    /// MAILFROM of the configuration.
    pub from: Option<String>,
    /// sendmail, or what stands for it.
    pub program: PathBuf,
    /// How long it may take; [`TIME_MAX`] but in trials.
    pub time_max: Duration,
}

/// sendmail: the one named, or the first of the usual places.
pub(crate) fn sendmail_of(named: Option<&Path>) -> PathBuf {
    let usual = || PLACES.iter().map(PathBuf::from).find(|path| path.exists());
    named.map(Path::to_owned).or_else(usual).unwrap_or_else(|| PathBuf::from(PLACES[0]))
}

impl Mail {
    /// To this address.
    pub(crate) fn new(to: String, from: Option<String>, program: PathBuf) -> Mail {
        Mail { to, from, program, time_max: TIME_MAX }
    }
}

impl Channel for Mail {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn filter(&self) -> Filter {
        Filter::Mailed
    }

    fn tell(&mut self, job: &Job) -> Result<Told, NotTold> {
        let shown = self.program.display();
        let program = trusted::trusted(&self.program, Kind::Program);
        let program = program.map_err(|error| NotTold::new(format!("no mail to {}: {error}", self.to)))?;
        let mut command = Command::new(program);
        command.arg("-t");
        if let Some(from) = &self.from {
            command.args(["-f", from]);
        }
        let text = text(job, &self.to, self.from.as_deref(), &host());
        match run(command, Some(&text), self.time_max) {
            Ok(status) if status.success() => Ok(Told::Done),
            Ok(status) => Err(NotTold::new(format!("no mail to {}: {shown} {}", self.to, ended(status)))),
            Err(error) => Err(NotTold::perhaps(format!("no mail to {}: {shown} {error}", self.to))),
        }
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    printable(name.trim())
}

fn text(job: &Job, to: &str, from: Option<&str>, host: &str) -> String {
    let Job { event, is_again, mdstat } = job;
    let from = from.map_or_else(|| "mdadm monitoring <root>".to_owned(), printable);
    let (name, device) = (event.kind.name(), printable(&event.device));
    let mut out = format!("From: {from}\nTo: {}\nSubject: {name} event on {device}:{host}\n", printable(to));
    let all = "a string takes all";
    writeln!(out, "Message-ID: <{}.uraid@{host}>", event.id).expect(all);
    writeln!(out, "Auto-Submitted: auto-generated\nX-Uraid-Event: {name} {}", event.id).expect(all);
    out.push_str("\nThis is an automatically generated mail message.\n");
    writeln!(out, "{event}").expect(all);
    writeln!(out, "Noticed: {}", dates::utc(event.time)).expect(all);
    if event.is_repeat {
        out.push_str("It was told before and still is so: `uraid monitor --acknowledge` ends these reminders.\n");
    }
    if *is_again {
        out.push_str("The monitor was interrupted while it told this, so it may have arrived before.\n");
    }
    for place in &event.places {
        let members = place.members.iter().map(|member| printable(member)).collect::<Vec<String>>().join(", ");
        writeln!(out, "Sectors {}+{} of the array: {members}", place.sector, place.sectors).expect(all);
    }
    out.push_str("The /proc/mdstat file currently contains the following:\n\n");
    out + &printable_lines(mdstat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::event::tests::event;
    use crate::monitor::event::{Event, EventKind};

    #[test]
    fn a_mail_is_mdadm_s_and_no_name_ends_a_line_of_its_header() {
        let fail = event(EventKind::Fail, Some("/dev/sdb"));
        let job = Job { event: fail.clone(), is_again: false, mdstat: "Personalities : [raid1]\n".to_owned() };
        let expected = "From: mdadm monitoring <root>\nTo: root\nSubject: Fail event on /dev/md/home:box\n\
                        Message-ID: <e-1.uraid@box>\nAuto-Submitted: auto-generated\nX-Uraid-Event: Fail e-1\n\n\
                        This is an automatically generated mail message.\n\
                        Fail event detected on md device /dev/md/home, component device /dev/sdb\n\
                        Noticed: Tue Nov 14 22:13:20 2023 UTC\n\
                        The /proc/mdstat file currently contains the following:\n\nPersonalities : [raid1]\n";
        assert_eq!(text(&job, "root", None, "box"), expected);
        let hostile = Event { device: "/dev/md/a\nBcc: x@y".to_owned(), ..fail };
        let text = text(&Job { event: hostile, is_again: true, ..job }, "a@b", Some("c <d@e>\nCc: z"), "box");
        assert!(text.starts_with("From: c <d@e>_Cc: z\nTo: a@b\nSubject: Fail event on /dev/md/a_Bcc: x@y:box\n"));
        assert!(text.contains("it may have arrived before"));
    }
}
