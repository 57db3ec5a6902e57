//! `uraid examine`: the superblock of each member, as text and for scripts.
//! Owns: the choice of the form, how members without a superblock are reported. Not here: the forms (`text` is mdadm's,
//! `machine` is for scripts, `areas` shows what lies beside a superblock), the fields' meaning for assembly (`engine`).
//! Invariant: every superblock that parses gives a text, however strange its values. A superblock with a wrong checksum
//! is shown, too, and counts as bad. Spec: docs/md/behaviour.md#mdadms-reports.

mod alone;
mod areas;
pub(crate) mod args;
mod machine;
mod member;
mod old;
mod text;
mod words;

use crate::shared::block_devices::{NotListed, block_devices};
use crate::shared::places;
use crate::shared::probe::ProbeError;
use args::ExamineArgs;
use member::{Examined, examine};
use serde_json::json;
use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;
use uraid_config::{Choice, PARTITIONS};
use uraid_control::asking;
use uraid_control::log::{complain, print, warn, with_causes};
use uraid_control::names;

/// What is looked at, and whether the user has named it so.
fn members(args: &ExamineArgs) -> Result<Vec<(PathBuf, bool)>, Box<dyn Error>> {
    let words: Vec<String> = if args.members.is_empty() {
        let config = uraid_config::read(&Choice::of(args.config.as_deref()));
        config.complaints.iter().for_each(|complaint| complain(complaint));
        config.device_places()
    } else {
        args.members.iter().map(|path| path.display().to_string()).collect()
    };
    let devices = || Ok::<_, NotListed>(block_devices()?.into_iter().map(|path| (path, false)));
    if words.is_empty() {
        return Ok(devices()?.collect());
    }
    let is_search = args.members.is_empty();
    let mut members = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if is_search && word == PARTITIONS {
            members.extend(devices()?);
            continue;
        }
        let own = word.clone();
        match asking::ask(word, args.member_timeout.limit(), move || places::expand(&own)) {
            // A name may have bytes that are no text.
            Ok(Ok(place)) if place.is_given && !is_search => members.push((args.members[at].clone(), true)),
            Ok(Ok(place)) => {
                place.notes.iter().for_each(|(_, note)| warn(note));
                members.extend(place.names.into_iter().map(|name| (PathBuf::from(name), false)));
            }
            Ok(Err(error)) => warn(&format!("{word}: {error}")),
            // What was given up once is not waited for again: the look at it says so.
            Err(_) if !is_search => members.push((args.members[at].clone(), true)),
            Err(silent) => complain(&silent),
        }
    }
    let mut known = BTreeSet::new();
    members.retain(|(path, is_given)| *is_given || known.insert(path.clone()));
    Ok(members)
}

/// Prints every member; returns whether all have a good superblock. In a search, whether the system says where to look.
pub(crate) fn run(args: &ExamineArgs) -> bool {
    let time_max = args.member_timeout.limit();
    let look = |path: &PathBuf| -> Result<Examined, ProbeError> {
        let own = path.clone();
        asking::ask(&path.to_string_lossy(), time_max, move || examine(&own))?
    };
    let members = members(args);
    let is_listed = members.as_ref().map_err(|error| complain(&**error)).is_ok();
    let members = members.unwrap_or_default();
    let mut looked: Vec<_> = members.iter().map(|(path, is_given)| (path, look(path), is_given)).collect();
    // Most devices are no members, and some cannot be read: a CD drive without a disc.
    looked.retain(|(_, found, is_given)| **is_given || found.is_ok());
    let looked: Vec<_> = looked.into_iter().map(|(path, found, _)| (path, found)).collect();
    for error in looked.iter().filter_map(|(_, found)| found.as_ref().err()) {
        complain(error);
    }
    let good: Vec<&Examined> = looked.iter().filter_map(|(_, found)| found.as_ref().ok()).collect();
    let mut are_shown = true;
    if args.bitmap || args.bad_blocks {
        let text = if args.bitmap { alone::bitmap } else { alone::bad_blocks };
        for found in &good {
            match text(&found.path, &found.areas) {
                Ok(text) => print(&names::printable_lines(&text)),
                Err(text) => {
                    warn(&text);
                    are_shown = false;
                }
            }
        }
    } else if args.json {
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
    is_listed && are_shown && good.len() == looked.len() && good.iter().all(|found| found.refusal.is_none())
}
