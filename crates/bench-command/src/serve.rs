//! `uraid bench --serve SOCKET`: a trial array that clients drive in place of this program.
//! Owns: its sockets, export and file. Not here: making the array (`target`) and serving it (`session`), as any other array.
//! Invariant: the array is gone with the process, which ends as `uraid serve` does.

use super::args::BenchArgs;
use std::path::Path;
use uraid_arrays::{ArrayIndex, Members};
use uraid_bench::{Target, Work};
use uraid_host::{Listener, Options};
use uraid_serve::background::Detachment;
use uraid_serve::frontend::{self, Address, ArrayExport, FrontendPlan, Frontends, FusePlan, NbdPlan};
use uraid_serve::life;
use uraid_serve::memory::{self, MemoryError};
use uraid_serve::opening::{ServeError, Timeouts};
use uraid_serve::session::Setup;
use uraid_serve::stack::{Assembled, AssembledStack, StackError};

/// The name of the export.
const NAME: &str = "trial";

/// Only the owner reaches the socket.
const SOCKET_MODE: u32 = 0o600;

/// Why serving a trial array failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeTrialError {
    /// No client could have reached the array.
    #[error(transparent)]
    Places(#[from] Box<ServeError>),
    /// There is too little memory for the buffers.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Starting, running or stopping the array failed.
    #[error(transparent)]
    Run(#[from] StackError),
}

/// Where clients reach the array.
pub(super) struct Places<'a> {
    /// Of `--serve`.
    pub nbd: (&'a Path, Listener),
    /// Of `--control`.
    pub control: Option<Listener>,
    /// Of `--fuse`.
    pub folder: Option<&'a Path>,
}

/// Listens on the sockets; clients that connect before the array is ready wait.
pub(super) fn listen(args: &BenchArgs) -> Result<Option<Places<'_>>, ServeTrialError> {
    let Some(nbd) = &args.serve else { return Ok(None) };
    let listen = |socket: &Path| Timeouts::begin().listen(socket, SOCKET_MODE).map_err(Box::new);
    let control = args.control.as_deref().map(listen).transpose()?;
    Ok(Some(Places { nbd: (nbd, listen(nbd)?), control, folder: args.fuse.as_deref() }))
}

/// Serves until stopped.
pub(super) fn serve(target: &Target, places: Places<'_>, work: &Work) -> Result<(), ServeTrialError> {
    let exports = vec![ArrayExport { array: ArrayIndex(0), name: NAME.to_owned(), read_only: false }];
    let (socket, nbd) = places.nbd;
    let address = Address::Unix(std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned()));
    let mut plans: Vec<Box<dyn FrontendPlan>> =
        vec![Box::new(NbdPlan::new(Some(SOCKET_MODE), move || Ok((nbd, address))))];
    if let Some(folder) = places.folder {
        plans.push(Box::new(FusePlan { folder: folder.to_owned() }));
    }
    let members = Members::Claimed(target.members.clone());
    let arrays = vec![Assembled {
        name: NAME.to_owned(),
        plan: target.plan.clone(),
        members,
        left_out: Vec::new(),
        spare_group: None,
    }];
    let stack = AssembledStack::new(arrays, false);
    let shards = work.shards;
    let memory = memory::plan(&stack, shards, &frontend::memory_of(&plans), None)?;
    let list = plans.into_iter().map(|plan| plan.open(&exports, shards, memory.share)).collect::<Result<_, _>>();
    let controls = places.control.into_iter().collect();
    let frontends = Frontends { exports, list: list.map_err(Box::new)?, controls, devices: Vec::new() };
    let (spin, processors) = (work.spin, work.processors.clone());
    let options = Options { arenas: memory.arenas, spin, processors, ..stack.host_options() };
    let stack = stack.into_running(Vec::new());
    Ok(life::run(Setup { stack, frontends, shards, options, detachment: Detachment::None })?)
}
