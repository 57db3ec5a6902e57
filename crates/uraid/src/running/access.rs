//! `uraid readonly` and `uraid readwrite`.
//! Owns: their help texts, what they print. Not here: what the server does (`overseer::access`).

use crate::arguments::OneArray;
use serde_json::Value;
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::Method;

pub(crate) const READONLY: &str = "\
Let a running array take no more writes: new writes, trims and write-zeroes of clients are refused, as by
a read-only export (EPERM), and reads are served. Returns when the writes under way have ended, all is
flushed, and the superblocks say clean. From then on no byte of any member is written until `uraid
readwrite`, or the next start.

A resync or recovery waits meanwhile; the superblocks say how far it has come, and it continues
there. A check or repair ends. A member that fails meanwhile is not read any more; the superblocks
say so after `uraid readwrite`, before the first write. Commands that change members or the bitmap
are refused.

Clients keep their connections. A client that connects meanwhile is told that the export is
read-only, and must connect again to write. A file system that is mounted for writing gets errors:
remount it read-only first.";

pub(crate) const READONLY_AFTER: &str = "\
EXAMPLES
  uraid readonly home
  uraid readonly --control /tmp/home.ctl
  uraid readonly home && cp disk0 disk1 disk2 /backup && uraid readwrite home

This is `mdadm --readonly`. An array that is read-only already stays so: exit code 0. The next start
of the array takes writes, unless it is `uraid serve --read-only`.";

pub(crate) const READWRITE: &str = "\
Let an array take writes again after `uraid readonly`. Members that failed meanwhile are recorded in
the superblocks of the others first; a resync or recovery continues, and spares take slots.

An array that `uraid serve --read-only` has started, or that uraid can only read, stays read-only:
stop it, and serve it again. One whose state is `frozen` in `uraid detail` takes no more writes because
of an error: see `uraid fail --help`.";

pub(crate) const READWRITE_AFTER: &str = "\
EXAMPLES
  uraid readwrite home
  uraid readwrite --control /tmp/home.ctl

This is `mdadm --readwrite`. An array that takes writes already goes on: exit code 0.";

/// Lets a running array take no more writes, or take them again.
pub(crate) fn run(args: &OneArray, is_read_only: bool) -> Result<(), ClientError> {
    let method = if is_read_only { Method::ReadOnly {} } else { Method::ReadWrite {} };
    let answer = client::find(args.array.as_deref(), args.control.as_deref())?.call(&method)?;
    let name = answer.get("array").and_then(Value::as_str).unwrap_or("?");
    let is_changed = answer.get("changed").and_then(Value::as_bool).unwrap_or(true);
    let text = match (is_read_only, is_changed) {
        (true, true) => "read-only",
        (true, false) => "is read-only already",
        (false, true) => "takes writes again",
        (false, false) => "takes writes already",
    };
    print(&format!("{name}: {text}\n"));
    Ok(())
}
