//! `uraid list`: the arrays that run now.
//! Owns: the table. Not here: how they are found (`client`). Invariant: stale sockets are as if they were not there.

use crate::client::{self, ClientError, Running};
use crate::report::Report;
use crate::{names, print, sizes};
use uraid_block::Sectors;

/// Prints the running arrays: a line each, or one JSON array. Returns whether these are all.
pub fn run(is_json: bool) -> Result<bool, ClientError> {
    let Running { reports, is_denied } = client::running()?;
    if is_json {
        print(&format!("{}\n", serde_json::json!(reports)));
    } else {
        print(&table(&reports));
    }
    Ok(!is_denied)
}

fn table(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let size = sizes::binary(Sectors(report.array_sectors));
        let (name, level, picture, state) = (&report.name, &report.level, report.picture(), report.state_text());
        let server = report.server.as_ref();
        let uri = server.and_then(|server| server.uris.first()).map_or("", String::as_str);
        let notes = format!("{}{}", report.deleted_text(), report.silent_text());
        out.push_str(&format!("{name:<16} {level:<7} {size:>12}  {picture}  {state}{notes}  {uri}\n"));
    }
    names::printable_lines(&out)
}
