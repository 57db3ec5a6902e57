//! The table of members, and what is to be said of single ones.
//! Owns: mdadm's columns and words for it; the lines above it that mdadm has not. Not here: the members' requests
//! (`member_io`).
//! Invariant: behind the head of the table there are only members, because readers of mdadm's text take each line for one.
//! Spec: docs/md/behaviour.md#mdadms-reports.

use super::{LeftOut, Member, Report, field};
use crate::words::names::one_line;
use uraid_block::Sectors;

impl Report {
    /// What mdadm has no place for, as lines of its form: members with something to be said, and those left out.
    pub(super) fn notes(&self, out: &mut String) {
        for member in &self.members {
            let Some(path) = &member.path else { continue };
            let mut note = |name: &str, text: &str| field(out, name, &format!("{path}: {text}"));
            if let Some(reason) = &member.reason {
                note("Failed Device", reason);
            }
            if member.state == "stale" {
                note("Stale Device", "it missed changes, and only --force takes it");
            }
            if let Some(text) = member.path_note() {
                note("Device Path", text);
            }
            let Some(io) = &member.io else { continue };
            if io.is_silent() {
                note("Silent Device", &format!("it has not answered a request for {} s", io.unanswered_ms / 1000));
            }
            if let Some((first, _)) = io.bad_blocks.first() {
                let sectors = Sectors(io.bad_blocks.iter().map(|(_, length)| length).sum());
                note("Bad Blocks", &format!("it lacks {sectors}, the first at its sector {first}: its bad-block list"));
            }
            if io.is_needed {
                note(
                    "Kept Device",
                    "it has more read errors than --max-read-errors allows: the array cannot serve without it",
                );
            }
        }
        let not_given = self.members.iter().filter(|member| member.state == "not given");
        let not_given: Vec<String> = not_given.filter_map(|member| Some(member.slot?.to_string())).collect();
        if !not_given.is_empty() {
            field(out, "Not Given", &format!("slot {}: the superblocks list members there", not_given.join(", ")));
        }
        for LeftOut { path, reason } in &self.left_out {
            field(out, "Left Out", &format!("{path}: {reason}"));
        }
        if let Some(reason) = &self.refusal {
            field(out, "Would Not Start", reason);
        }
    }

    /// mdadm's table: members in slots, empty slots, and after an empty line those without a slot.
    ///
    /// ```text
    ///     Number   Major   Minor   RaidDevice State
    ///        0       8       16        0      active sync   /dev/sdb
    ///        -       0        0        1      removed
    ///
    ///        1       8       32        -      faulty   /dev/sdc
    /// ```
    pub(super) fn table(&self, out: &mut String) {
        out.push_str("    Number   Major   Minor   RaidDevice State\n");
        let (slots, others): (Vec<&Member>, Vec<&Member>) =
            self.members.iter().partition(|member| member.slot.is_some() && member.state != "stale");
        slots.iter().for_each(|member| out.push_str(&row(member)));
        if !others.is_empty() {
            out.push('\n');
        }
        others.iter().for_each(|member| out.push_str(&row(member)));
    }
}

fn row(member: &Member) -> String {
    let number = member.number.map_or("-".to_owned(), |number| number.to_string());
    let (major, minor) = member.path.as_deref().and_then(device_numbers).unwrap_or((0, 0));
    let slot = member.slot.filter(|_| member.state != "stale").map_or("-".to_owned(), |slot| slot.to_string());
    // mdadm has no word for a member that was not given, or is too old.
    let state = match member.state.as_str() {
        "not given" | "missing" => "removed",
        "stale" => "faulty",
        state => state,
    };
    let words: String =
        [state].into_iter().chain(member.flags.iter().map(String::as_str)).map(|it| format!(" {it}")).collect();
    let path = member.path.as_deref().map_or(String::new(), |path| format!("   {}", one_line(path)));
    format!("   {number:>5}   {major:>5}    {minor:>5}    {slot:>5}     {words}{path}\n")
}

/// The numbers of a device node; `None` for a file. sysfs knows them: nothing is asked of the device, which may hang.
fn device_numbers(path: &str) -> Option<(u32, u32)> {
    let name = path.strip_prefix("/dev/")?.replace('/', "!");
    let text = std::fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
