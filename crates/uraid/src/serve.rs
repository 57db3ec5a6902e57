//! `uraid serve`: from names on the command line to a running array, and back to the shell.
//! Owns: claiming members, reading superblocks, the sockets' places, what is said at start and at the end.
//! Not here: which members make up the array (`engine::assemble`), what happens while it runs (`session`).
//! Invariant: a member that another process has, or that was named twice, ends it before anything is changed.

use crate::assembly;
use crate::cli::{ServeArgs, usage_error};
use crate::metadata::{self, ClaimError, MetadataError};
use crate::names::{self, NoRuntimeDirectory};
use crate::session::{self, SessionError};
use crate::{complain, warn};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, ReadOnlyReason, StartPlan};
use uraid_export_nbd::Spread;
use uraid_host::{
    Access, ArenaBlocks, CLIENT_ARENA, Claimed, Listener, NetError, OpenError, Options, TooFewDescriptors,
    ensure_descriptors,
};

/// Threads by default, at most.
const SHARDS_DEFAULT_MAX: usize = 4;
/// How long a process that was killed may take to let go of members and sockets.
const LETTING_GO_TIME_MAX: Duration = Duration::from_secs(3);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Only the owner reaches the sockets.
const SOCKET_MODE: u32 = 0o600;
/// Which arenas the engine's rows and passes are in; each must hold one row of any array.
const ROW_ARENA: usize = 1;
const PASS_ARENA: usize = 3;

/// Why nothing is served, or no more.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A member must not be touched.
    #[error("the array is not started")]
    Claim(#[from] ClaimError),
    /// Not one member is left.
    #[error("none of the members can be used, see above")]
    NoMembers,
    /// They make up no array.
    #[error("cannot start the array")]
    Assemble(#[from] AssembleError),
    /// No place for sockets.
    #[error(transparent)]
    NoRuntimeDirectory(#[from] NoRuntimeDirectory),
    /// The runtime directory could not be made.
    #[error("cannot make {}", path.display())]
    Directory {
        /// It.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system allows too few open files.
    #[error("cannot serve {members} members")]
    Descriptors {
        /// How many.
        members: usize,
        /// What is missing.
        source: TooFewDescriptors,
    },
    /// A TCP address that others can reach.
    #[error("--nbd {found}: anybody who reaches it could read and write the array; give --insecure if that is meant")]
    Insecure {
        /// The address.
        found: SocketAddr,
    },
    /// The socket could not be had.
    #[error("cannot listen on {at}")]
    Listen {
        /// Where.
        at: String,
        /// Why.
        source: NetError,
    },
    /// It ran and failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Where a running array is reached.
pub struct Faces {
    /// NBD clients come here.
    pub nbd: Listener,
    /// What is told to them.
    pub uri: String,
    /// The name of the export.
    pub export: String,
    /// `detail`, `fail` and `stop` come here.
    pub control: Listener,
    /// How many clients each shard has.
    pub spread: Arc<Spread>,
}

/// Serves until told to stop.
pub fn run(args: &ServeArgs) -> Result<(), ServeError> {
    let nbd = args.nbd.as_deref().map(address);
    let shards = args.shards.unwrap_or_else(shards_default);
    let count = args.members.len();
    ensure_descriptors(count, shards).map_err(|source| ServeError::Descriptors { members: count, source })?;
    let patience = Patience::begin();
    let access = if args.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let (members, candidates) = open(&args.members, access, &patience)?;
    let names: Vec<String> = members.iter().map(|member| member.name().to_owned()).collect();
    let options = AssembleOptions { force: args.force, run: args.run, read_only: args.read_only };
    let plan = assembly::decide(&candidates, &names, &options)?;
    let name = names::short_name(&plan.template.set_name.as_str(), &plan.template.set_uuid);
    let faces = listen(args, nbd, &name, shards, &patience)?;
    announce(&name, &plan);
    let host_options = host_options(plan.layout.slots());
    let mut by_candidate: Vec<Option<Claimed>> = members.into_iter().map(Some).collect();
    let members = plan.members.iter().map(|m| by_candidate[m.candidate].take().expect("a candidate is one member"));
    let members = members.collect();
    // Members that were left out are let go: another array may want them.
    drop(by_candidate);
    session::run(session::Setup { name, plan, members, faces, force: args.force, shards, host_options })?;
    Ok(())
}

/// Until when something that is in use may still be let go: after kill -9 the kernel holds a process's files and sockets
/// until its last I/O is done, while the next start is on its way already.
pub struct Patience(Instant);

impl Patience {
    /// From now on.
    pub fn begin() -> Patience {
        Patience(Instant::now() + LETTING_GO_TIME_MAX)
    }

    /// Asks again while the answer is "in use".
    fn ask<T, E>(&self, is_in_use: impl Fn(&E) -> bool, ask: impl Fn() -> Result<T, E>) -> Result<T, E> {
        loop {
            match ask() {
                Err(error) if is_in_use(&error) && Instant::now() < self.0 => std::thread::sleep(ASK_AGAIN_AFTER),
                outcome => return outcome,
            }
        }
    }

    fn claim(&self, name: &str, access: Access) -> Result<Claimed, ClaimError> {
        self.ask(|error| matches!(error, ClaimError::Open(OpenError::InUse { .. })), || metadata::claim(name, access))
    }

    fn listen(&self, path: &Path) -> Result<Listener, ServeError> {
        let listener = self.ask(|error| matches!(error, NetError::InUse { .. }), || Listener::unix(path, SOCKET_MODE));
        listener.map_err(|source| ServeError::Listen { at: path.display().to_string(), source })
    }
}

/// Claims the members and reads their superblocks. What cannot be used is said and left out: whether the rest is
/// enough is the assembly's to say. What is in use, named twice or forbidden is an error at once.
pub fn open(
    names: &[String],
    access: Access,
    patience: &Patience,
) -> Result<(Vec<Claimed>, Vec<Candidate>), ServeError> {
    let mut members = Vec::new();
    let mut candidates = Vec::new();
    for name in names {
        let member = match patience.claim(name, access) {
            Ok(member) => member,
            Err(error) if error.is_absent() => {
                complain(&error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match metadata::read(&member) {
            Ok(superblock) => {
                candidates.push(Candidate { superblock, device_size: member.size() });
                members.push(member);
            }
            Err(
                error @ (MetadataError::Io { .. } | MetadataError::Superblock { .. } | MetadataError::Short { .. }),
            ) => {
                complain(&error);
            }
        }
    }
    if members.is_empty() { Err(ServeError::NoMembers) } else { Ok((members, candidates)) }
}

fn announce(name: &str, plan: &StartPlan) {
    let slots = plan.layout.slots();
    let level = plan.layout.level().name();
    if !plan.missing.is_empty() {
        let missing: Vec<String> = plan.missing.iter().map(|slot| slot.0.to_string()).collect();
        let present = usize::from(slots) - missing.len();
        warn(&format!("{name}: {level} starts degraded, {present} of {slots} slots, without {}", missing.join(", ")));
    }
    match plan.read_only {
        None | Some(ReadOnlyReason::Requested) => (),
        Some(reason) => warn(&format!("{name}: opened read-only: {reason}")),
    }
    if plan.is_dirty && plan.read_only.is_none() {
        let how_far = if plan.forced.is_dirty_degraded { ", as far as the members that are left allow," } else { "" };
        let what = "was not stopped cleanly or is new: it is made consistent";
        warn(&format!("{name}: {what}{how_far} before it takes requests"));
    }
}

fn listen(
    args: &ServeArgs,
    nbd: Option<Address>,
    name: &str,
    shards: u16,
    patience: &Patience,
) -> Result<Faces, ServeError> {
    let export = args.export_name.clone().unwrap_or_else(|| name.to_owned());
    let (nbd, uri) = match nbd {
        None => listen_unix(&default_socket(name, "nbd")?, &export, patience)?,
        Some(Address::Unix(path)) => listen_unix(&path, &export, patience)?,
        Some(Address::Tcp(address)) => {
            if !address.ip().is_loopback() && !args.insecure {
                return Err(ServeError::Insecure { found: address });
            }
            let failed = |source| ServeError::Listen { at: address.to_string(), source };
            let listener = Listener::tcp(address).map_err(failed)?;
            let chosen = listener.tcp_address().unwrap_or(address);
            (listener, names::tcp_uri(&export, chosen))
        }
    };
    let control = match &args.control {
        Some(path) => path.clone(),
        None => default_socket(name, "ctl")?,
    };
    let control = patience.listen(&control)?;
    Ok(Faces { nbd, uri, export, control, spread: Spread::new(shards) })
}

fn listen_unix(path: &Path, export: &str, patience: &Patience) -> Result<(Listener, String), ServeError> {
    let listener = patience.listen(path)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok((listener, names::unix_uri(export, &absolute)))
}

fn default_socket(name: &str, extension: &str) -> Result<PathBuf, ServeError> {
    let directory = names::runtime_directory()?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|source| ServeError::Directory { path: directory.clone(), source })?;
    Ok(directory.join(format!("{}.{extension}", names::file_name(name))))
}

enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// What `--nbd` says, or the end as a wrong command line.
fn address(text: &str) -> Address {
    parse_address(text).unwrap_or_else(|| usage_error(&format!("--nbd {text:?}: expected unix:PATH or tcp:HOST:PORT")))
}

fn parse_address(text: &str) -> Option<Address> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Some(Address::Unix(path.into()));
    }
    let mut addresses = text.strip_prefix("tcp:")?.to_socket_addrs().ok()?;
    addresses.next().map(Address::Tcp)
}

fn shards_default() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(SHARDS_DEFAULT_MAX) as u16
}

/// Arenas that hold rows of so many slots.
pub fn host_options(slots: u16) -> Options {
    let mut options = Options::default();
    for arena in [ROW_ARENA, PASS_ARENA] {
        let blocks: &mut ArenaBlocks = &mut options.arenas[arena];
        blocks.large = blocks.large.max(4 * (u32::from(slots) + 2));
    }
    // A client may send 32 MiB at once; half of the arena is the most that one request gets.
    options.arenas[CLIENT_ARENA] = ArenaBlocks { small: 4096, large: 1280 };
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unix_paths_or_tcp_ports() {
        assert!(
            matches!(parse_address("unix:/tmp/a:b.nbd"), Some(Address::Unix(path)) if path == Path::new("/tmp/a:b.nbd"))
        );
        assert!(matches!(parse_address("tcp:127.0.0.1:10809"), Some(Address::Tcp(at)) if at.port() == 10809));
        assert!(matches!(parse_address("tcp:[::1]:1"), Some(Address::Tcp(at)) if at.is_ipv6()));
        for text in ["", "unix:", "tcp:", "tcp:10809", "/tmp/a.nbd", "tcp:127.0.0.1:99999"] {
            assert!(parse_address(text).is_none(), "{text}");
        }
    }
}
