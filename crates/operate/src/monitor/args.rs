//! `uraid monitor` on the command line.
//! Owns: its options and help texts. Not here: what they mean together (`settings`).
//! Invariant: options that mdadm also has are spelled as there.
//! Spec: mdadm(8), MONITOR MODE.

use super::channel::Webhook;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use uraid_option_values::number;

/// Of `uraid monitor`.
pub const MONITOR: &str = "\
Watch arrays, and tell what happens to them: by mail, by a program, in the system's log, to a web
server, by a folder of reactions, or on stdout. Options, events, mails and the arguments of programs are
mdadm's.

What was told is kept in the state directory: a monitor that is started again tells what happened
meanwhile, once. An event counts as told when its mail, program or web server has accepted it; until
then it is tried again. With --oneshot, one look is all, as for cron.";

/// Of `uraid monitor`.
pub const MONITOR_AFTER: &str = "\
EXAMPLES
  uraid monitor --scan --mail root
  uraid monitor --scan --program /usr/local/sbin/md-event --syslog
  uraid monitor --scan --mail root --test --oneshot       does mail arrive?
  uraid monitor --scan --webhook http://127.0.0.1:9099/md
  uraid monitor --scan --reactions /etc/uraid/reactions
  uraid monitor home --json                               one array, events on stdout
  uraid monitor --acknowledge home                        no more daily reminders

EVENTS
  mailed      TestMessage DegradedArray SparesMissing Fail FailSpare; not of mdadm: ArrayFrozen
              NotAnswering ReadErrors BadBlocks HungMember WriteHole MismatchesFound CheckOverdue
  not mailed  DeviceDisappeared NewArray RebuildStarted RebuildNN RebuildFinished SpareActive
              MoveSpare; not of mdadm: RebuildAborted RebuildPaused SectorsCorrected SlowMember

PROGRAMS
  A program is run as `PROGRAM EVENT DEVICE [COMPONENT]`, without a shell, with the event in its
  environment: URAID_EVENT, _DEVICE, _COMPONENT, _DESCRIPTION, _ARRAY, _UUID, _SEVERITY, _TIME,
  _PLACES, _MESSAGE; URAID_REPEAT=1 for a reminder; URAID_MAINTENANCE=1 during `uraid maintenance`;
  URAID_EVENT_ID, which an event that is told again after a crash has again, with URAID_AGAIN=1.
  If its exit code is 75, it is told again later. A folder of reactions has one executable for each
  kind of event, called as the event (RebuildNN for all percentages). Programs must belong to root or
  to this user, and nobody else may be able to write to them.";

/// Options of `uraid monitor`.
#[derive(Args, Debug)]
pub struct MonitorArgs {
    /// Arrays to watch: names, UUIDs or devices; with --scan all
    #[arg(value_name = "ARRAY")]
    pub arrays: Vec<String>,
    /// All arrays of this user that run, now or later
    #[arg(short, long)]
    pub scan: bool,
    /// Where to send mails [default: MAILADDR of the configuration]
    #[arg(short, long, value_name = "ADDRESS")]
    pub mail: Option<String>,
    /// A program to run for every event [default: PROGRAM of the configuration]
    #[arg(short, long, visible_alias = "alert", value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
    /// A line in the system's log for every event
    #[arg(short = 'y', long)]
    pub syslog: bool,
    /// Seconds between two looks; histories are read as they grow [default: MONITORDELAY, or 60]
    #[arg(short, long, value_name = "SECONDS", value_parser = number::<u64>(1..=86_400))]
    pub delay: Option<u64>,
    /// RebuildNN is told at multiples of this percentage
    #[arg(short = 'r', long, value_name = "PERCENT", default_value_t = 20, value_parser = number::<u8>(1..=99))]
    pub increment: u8,
    /// Go on in the background; prints the number of the process, if --pid-file does not keep it
    #[arg(short = 'f', long, visible_alias = "daemonize")]
    pub daemonise: bool,
    /// Where the number of the process is kept
    #[arg(short = 'i', long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Look once, tell what is new, and end
    #[arg(short = '1', long)]
    pub oneshot: bool,
    /// First, a TestMessage for each array
    #[arg(short, long)]
    pub test: bool,
    /// Do not move spares between arrays of a spare group
    #[arg(long)]
    pub no_sharing: bool,
    /// The configuration: a file, a folder, `none` [default: mdadm.conf, as mdadm finds it]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<OsString>,
    /// What is run as `sendmail -t` [default: /usr/sbin/sendmail or /usr/lib/sendmail]
    #[arg(long, value_name = "PROGRAM")]
    pub sendmail: Option<PathBuf>,
    /// A web server that gets every event as JSON: http://HOST[:PORT]/PATH
    #[arg(long, value_name = "URL")]
    pub webhook: Option<Webhook>,
    /// A folder with one executable for each kind of event
    #[arg(long, value_name = "DIR")]
    pub reactions: Option<PathBuf>,
    /// How often a minute each of them is run at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::<usize>(1..=1000))]
    pub reactions_a_minute: usize,
    /// Only events that mdadm has: a pass that was aborted or paused is RebuildFinished
    #[arg(long)]
    pub mdadm_events: bool,
    /// Events on stdout, one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// End the daily reminders that this array is degraded; the monitor that runs takes it up
    #[arg(long, value_name = "ARRAY", exclusive = true)]
    pub acknowledge: Option<String>,
    /// In the background already
    #[arg(long, hide = true)]
    pub detached: bool,
}

impl MonitorArgs {
    /// The words of the same monitor in the background, without its verb.
    pub(super) fn detached_words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--detached".into()];
        let flags = [
            (self.scan, "--scan"),
            (self.syslog, "--syslog"),
            (self.oneshot, "--oneshot"),
            (self.test, "--test"),
            (self.no_sharing, "--no-sharing"),
            (self.mdadm_events, "--mdadm-events"),
            (self.json, "--json"),
        ];
        words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| OsString::from(word)));
        let mut put = |name: &str, value: Option<OsString>| {
            let value = value.map(|value| {
                let mut word = OsString::from(format!("--{name}="));
                word.push(value);
                word
            });
            words.extend(value);
        };
        put("mail", self.mail.clone().map(OsString::from));
        put("program", self.program.clone().map(OsString::from));
        put("delay", self.delay.map(|delay| delay.to_string().into()));
        put("increment", Some(self.increment.to_string().into()));
        put("pid-file", self.pid_file.clone().map(OsString::from));
        put("config", self.config.clone());
        put("sendmail", self.sendmail.clone().map(OsString::from));
        put("webhook", self.webhook.as_ref().map(|webhook| webhook.to_string().into()));
        put("reactions", self.reactions.clone().map(OsString::from));
        put("reactions-a-minute", Some(self.reactions_a_minute.to_string().into()));
        words.push("--".into());
        words.extend(self.arrays.iter().map(OsString::from));
        words
    }
}
