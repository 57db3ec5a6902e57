//! `uraid examine`: the superblock of each member, as text and for scripts.
//! Owns: the choice of the form, how members without a superblock are reported. Not here: the forms (`text` is mdadm's,
//! `machine` is for scripts, `areas` shows what lies beside a superblock), the fields' meaning for assembly (`engine`).
//! Invariant: every superblock that parses gives a text, however strange its values. A superblock with a wrong checksum
//! is shown, too, and counts as bad. Spec: docs/md/behaviour.md#mdadms-reports.

mod areas;
pub(crate) mod args;
mod machine;
mod member;
mod old;
mod text;
mod words;

use crate::shared::block_devices::block_devices;
use crate::shared::probe::ProbeError;
use args::ExamineArgs;
use member::{Examined, examine};
use serde_json::json;
use std::path::PathBuf;
use uraid_control::asking;
use uraid_control::log::{complain, print, warn, with_causes};
use uraid_control::names;

/// Prints every member; returns whether all have a good superblock. In a search, whether the system says where to look.
pub(crate) fn run(args: &ExamineArgs) -> bool {
    let time_max = args.member_timeout.limit();
    let look = |path: &PathBuf| -> Result<Examined, ProbeError> {
        let own = path.clone();
        asking::ask(&path.to_string_lossy(), time_max, move || examine(&own))?
    };
    let is_search = args.members.is_empty();
    let members = if is_search { block_devices() } else { Ok(args.members.clone()) };
    let is_listed = members.as_ref().map_err(|error| complain(error)).is_ok();
    let members = members.unwrap_or_default();
    let mut looked: Vec<_> = members.iter().map(|path| (path, look(path))).collect();
    if is_search {
        // Most devices are no members, and some cannot be read: a CD drive without a disc.
        looked.retain(|(_, found)| found.is_ok());
    }
    for error in looked.iter().filter_map(|(_, found)| found.as_ref().err()) {
        complain(error);
    }
    let good: Vec<&Examined> = looked.iter().filter_map(|(_, found)| found.as_ref().ok()).collect();
    if args.json {
        let entries = looked.iter().map(|(path, found)| match found {
            Ok(found) => machine::facts(found),
            Err(error) => json!({ "path": path.display().to_string(), "error": with_causes(error) }),
        });
        let entries: Vec<_> = entries.collect();
        print(&format!("{}\n", json!(entries)));
    } else if args.brief || args.scan {
        print(&machine::brief(&good, args.verbose));
    } else {
        for found in &good {
            print(&if args.export { machine::export(found) } else { names::printable_lines(&text::text(found)) });
        }
    }
    // A superblock with a wrong checksum is shown, but still refused: the reason goes to stderr, as for any other.
    for found in &good {
        if let Some(refusal) = &found.refusal {
            warn(&format!("{}: {refusal}", found.path.display()));
        }
    }
    is_listed && good.len() == looked.len() && good.iter().all(|found| found.refusal.is_none())
}
