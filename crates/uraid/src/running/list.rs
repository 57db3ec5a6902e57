//! `uraid list`: the arrays that run now.
//! Owns: its options and help texts, the table, and what it says of members. Not here: how arrays are found (`client`).
//! Invariant: stale sockets are ignored.

use clap::Args;
use uraid_block::Sectors;
use uraid_block::sizes;
use uraid_control::client::{self, ClientError, Running};
use uraid_control::log::print;
use uraid_control::names;
use uraid_control::report::{Member, MemberIo, Report};
use uraid_control::runtime;

pub(crate) const LIST_AFTER: &str = "\
EXAMPLES
  uraid list
  uraid list --json

An array of another user is named on stderr in place of its line, and the exit code is 1 then.";

/// Options of `uraid list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// As one JSON array
    #[arg(long)]
    pub json: bool,
}

/// Prints the running arrays: a line each, or one JSON array. Returns false if some of them are left out.
pub(crate) fn run(is_json: bool) -> Result<bool, ClientError> {
    let Running { reports, is_incomplete } = client::running()?;
    runtime::say_not_shown(&reports);
    if is_json {
        print(&format!("{}\n", serde_json::json!(reports)));
    } else {
        print(&table(&reports));
    }
    Ok(!is_incomplete)
}

fn table(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let size = sizes::binary(Sectors(report.array_sectors));
        let (name, level, picture, state) = (&report.name, &report.level, report.picture(), report.state_text());
        let server = report.server.as_ref();
        let uri = server.and_then(|server| server.uris.first()).map_or("", String::as_str);
        let notes = notes(&report.members);
        let name = names::one_line(name);
        let rest = names::one_line(&format!("{state}{notes}  {uri}"));
        out.push_str(&format!("{name:<16} {level:<7} {size:>12}  {picture}  {rest}\n"));
    }
    names::printable_lines(&out)
}

/// The problems of members, a few words for each kind of problem: one member by its path, several by their number.
fn notes(members: &[Member]) -> String {
    let paths = |is_wrong: &dyn Fn(&Member) -> bool| -> Vec<&str> {
        let wrong = members.iter().filter(|member| is_wrong(member));
        wrong.filter_map(|member| member.written.as_deref().or(member.path.as_deref())).collect()
    };
    let path_is = |state: &str| paths(&|member| member.path_state.as_deref() == Some(state));
    let is_silent = |member: &Member| member.io.as_ref().is_some_and(MemberIo::is_silent);
    // A member without a slot has been failed, so the array no longer needs it.
    let is_needed = |member: &Member| member.slot.is_some() && member.io.as_ref().is_some_and(|io| io.is_needed);
    let mut out = String::new();
    let mut note = |wrong: Vec<&str>, one: [&str; 2], more: [&str; 2]| match wrong[..] {
        [] => {}
        [path] => out.push_str(&format!(", {}{path} {}", one[0], one[1])),
        _ => out.push_str(&format!(", {}{} members {}", more[0], wrong.len(), more[1])),
    };
    note(paths(&is_silent), ["", "does not answer"], ["", "do not answer"]);
    note(paths(&is_needed), ["", "has too many read errors"], ["", "have too many read errors"]);
    note(path_is("deleted"), ["the file of ", "is deleted"], ["the files of ", "are deleted"]);
    note(path_is("replaced"), ["the path of ", "leads to another file"], ["the paths of ", "lead to other files"]);
    note(path_is("missing"), ["the path of ", "leads nowhere"], ["the paths of ", "lead nowhere"]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_is_named_and_more_are_counted() {
        let member = |path: &str, state: Option<&str>, io: MemberIo| Member {
            path: Some(path.to_owned()),
            path_state: state.map(str::to_owned),
            io: Some(io),
            ..Member::removed(0)
        };
        let (quiet, silent) = (MemberIo::default(), MemberIo { unanswered_ms: 2000, ..MemberIo::default() });
        let needed = MemberIo { is_needed: true, ..MemberIo::default() };
        assert_eq!(notes(&[member("a", None, quiet.clone()), Member::removed(1)]), "");
        let mut members = vec![
            member("a", Some("missing"), silent.clone()),
            member("b", Some("replaced"), needed.clone()),
            member("c", Some("deleted"), quiet),
        ];
        members[0].written = Some("link".to_owned());
        let of_one = ", link does not answer, b has too many read errors, the file of c is deleted, the path of b \
                      leads to another file, the path of link leads nowhere";
        assert_eq!(notes(&members), of_one);
        let again = members.clone();
        members.extend(again);
        let of_two = ", 2 members do not answer, 2 members have too many read errors, the files of 2 members are \
                      deleted, the paths of 2 members lead to other files, the paths of 2 members lead nowhere";
        assert_eq!(notes(&members), of_two);
    }
}
