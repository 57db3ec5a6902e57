//! Words that stand where members do, and are running arrays.
//! Owns: saying so after a command has failed. Not here: words that come in another order (`running::words`).
//! Invariant: it is asked only after a failure, and changes nothing.

use super::Command;
use uraid_control::asking;
use uraid_control::client;
use uraid_control::log::warn;
use uraid_control::member_name;
use uraid_control::report::Report;

/// Says which words of a failed command are no files, but names of running arrays, and what to do.
pub(crate) fn explain(command: &Command) {
    let (words, needs_stop) = match command {
        // The server says it.
        Command::Serve(args) if args.background && !args.detached => return,
        Command::Serve(args) => (args.groups().concat(), true),
        Command::Copy(args) => (args.groups().concat(), true),
        Command::Update(args) => (args.members.clone(), true),
        Command::ZeroSuperblock(args) => (args.members.clone(), true),
        Command::Examine(args) => (args.members.iter().map(|path| path.display().to_string()).collect(), false),
        // They take arrays, or make members.
        Command::Create(_)
        | Command::Detail(_)
        | Command::Doctor(_)
        | Command::Change(_)
        | Command::Look(_)
        | Command::Operate(_)
        | Command::Assemble(_)
        | Command::Incremental(_)
        | Command::Mdadm(_)
        | Command::Mount(_)
        | Command::Umount(_)
        | Command::Bench(_) => return,
    };
    let is_absent = |word: &&String| {
        let own = (*word).clone();
        asking::ask(word, Some(asking::TIME_MAX), move || !member_name::exists(&own)).unwrap_or(false)
    };
    let absent: Vec<&String> = words.iter().filter(is_absent).collect();
    if absent.is_empty() {
        return;
    }
    let Ok(running) = client::running() else { return };
    for word in absent {
        if let Some(report) = running.reports.iter().find(|report| report.is_called(word)) {
            warn(&text(word, report, needs_stop));
        }
    }
}

fn text(word: &str, report: &Report, needs_stop: bool) -> String {
    let members = report.members.iter().filter_map(|member| member.path.as_deref());
    let members: Vec<&str> = members.collect();
    let when = if needs_stop { format!(", once it is stopped: `uraid stop {word}`") } else { String::new() };
    format!(
        "{word}: is no file or device, but a running array is called that: `uraid detail {word}` shows it; this command takes \
         its members, {}{when}",
        members.join(" ")
    )
}
