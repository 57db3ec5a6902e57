//! `uraid list`: the arrays that run now.
//! Owns: the table. Not here: how they are found (`client`). Invariant: stale sockets are as if they were not there.

use crate::report::Report;
use crate::{client, names, print, sizes};
use uraid_block::Sectors;

/// Prints the running arrays: a line each, or one JSON array.
pub fn run(is_json: bool) {
    let reports: Vec<Report> = client::running();
    if is_json {
        print(&format!("{}\n", serde_json::json!(reports)));
    } else {
        print(&table(&reports));
    }
}

fn table(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let size = sizes::binary(Sectors(report.array_sectors));
        let (name, level, picture, state) = (&report.name, &report.level, report.picture(), report.state_text());
        let server = report.server.as_ref();
        let uri = server.and_then(|server| server.uris.first()).map_or("", String::as_str);
        let deleted = report.deleted_text();
        out.push_str(&format!("{name:<16} {level:<7} {size:>12}  {picture}  {state}{deleted}  {uri}\n"));
    }
    names::printable_lines(&out)
}
