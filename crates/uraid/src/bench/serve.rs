//! `uraid bench --serve SOCKET`: a trial array that NBD clients drive in place of this program.
//! Owns: its socket and export. Not here: making the array (`target`) and serving it (`session`), as any other array.
//! Invariant: the array is gone with the process, which ends as `uraid serve` does.

use crate::frontends::{ArrayExport, Frontends};
use crate::names;
use crate::opening::{ServeError, Timeouts};
use crate::roster::Roster;
use crate::session::{Setup, life};
use crate::stack::{Assembled, Stack, StackError};
use std::path::Path;
use uraid_arrays::{ArrayIndex, Members};
use uraid_bench::{Target, Work};
use uraid_export_nbd::{Limits, Spread};
use uraid_host::{Listener, Options};

/// The name of the export.
const NAME: &str = "trial";

/// Only the owner reaches the socket.
const SOCKET_MODE: u32 = 0o600;

/// Why serving a trial array failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeTrialError {
    /// No client could have reached the array.
    #[error(transparent)]
    Listen(#[from] Box<ServeError>),
    /// Starting, running or stopping the array failed.
    #[error(transparent)]
    Run(#[from] StackError),
}

/// Listens on the socket; clients that connect before the array is ready wait.
pub(super) fn listen(socket: &Path) -> Result<Listener, ServeTrialError> {
    Ok(Timeouts::begin().listen(socket, SOCKET_MODE).map_err(Box::new)?)
}

/// Serves on `nbd`, which listens on `socket`, until stopped.
pub(super) fn serve(target: &Target, nbd: Listener, socket: &Path, work: &Work) -> Result<(), ServeTrialError> {
    let uri = names::unix_uri(NAME, &std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned()));
    let exports = vec![ArrayExport {
        array: ArrayIndex(0),
        name: NAME.to_owned(),
        read_only: false,
        mode: Some(SOCKET_MODE),
        uri,
        file: None,
    }];
    let frontends = Frontends { nbd, exports, controls: Vec::new(), files: None, spread: Spread::new(work.shards) };
    let members = Members::Claimed(target.members.clone());
    let arrays = vec![Assembled {
        name: NAME.to_owned(),
        plan: target.plan.clone(),
        members,
        roster: Roster::default(),
        left_out: Vec::new(),
        spare_group: None,
    }];
    let mut stack = Stack::new(arrays, false);
    stack.seat_members();
    let (shards, limits) = (work.shards, Limits::default());
    let options = Options { spin: work.spin, processors: work.processors.clone(), ..stack.host_options() };
    Ok(life::run(Setup { stack, frontends, shards, options, limits })?)
}
