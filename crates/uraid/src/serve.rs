//! `uraid serve`: from names on the command line to running arrays, until the process ends.
//! Owns: claiming members, reading superblocks, what is said at start and at the end. Not here: which members make up
//! an array (`engine::assemble`), arrays of arrays (`nested`), the sockets (`frontends`), what happens while arrays run
//! (`session`).
//! Invariant: a member that another process has claimed, or that is named twice, is an error before anything is
//! changed.

use crate::asking::{self, NoAnswer};
use crate::assembly::{self, NamedError};
use crate::blank;
use crate::cli::{Processors, ServeArgs};
use crate::frontends;
use crate::memory::{self, MemoryError};
use crate::metadata::{self, ClaimError, MetadataError};
use crate::names::{self, NoRuntimeDirectory};
use crate::nested::{self, NestedError};
use crate::report::LeftOut;
use crate::session;
use crate::stack::{Assembled, Stack, StackError};
use crate::{client, complain, log, warn, with_causes};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uraid_arrays::Members;
use uraid_engine::{AssembleOptions, Candidate, ReadOnlyReason, StartPlan};
use uraid_format::Superblock;
use uraid_host::{Access, BadSectors, Claimed, Listener, NetError, OpenError, Options, TooFewDescriptors};
use uraid_host::{drop_privileges, ensure_descriptors, keep_locked_memory};

/// Threads by default, at most.
const SHARDS_DEFAULT_MAX: usize = 4;
/// How long a killed process may take to release members and sockets.
const LETTING_GO_TIME_MAX: Duration = Duration::from_secs(3);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Why nothing is served, or no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// A member could not be claimed.
    #[error("the array is not started")]
    Claim(#[from] ClaimError),
    /// No member is left.
    #[error("none of the members can be used, see above")]
    NoMembers,
    /// The members make up no array.
    #[error("cannot start the array")]
    Assemble(#[from] NamedError),
    /// There is too little memory for the buffers.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No place for sockets.
    #[error(transparent)]
    NoRuntimeDirectory(#[from] NoRuntimeDirectory),
    /// The runtime directory could not be made.
    #[error("cannot make {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// The system allows too few open files.
    #[error("cannot serve {members} members")]
    Descriptors { members: usize, source: TooFewDescriptors },
    /// A TCP address, which other users can reach.
    #[error(
        "--nbd tcp:{found}: {} could read and write the array: there is no TLS yet; \
         expected unix:PATH, or --insecure if that is meant",
        if found.ip().is_loopback() { "every user of this machine" } else { "everyone who reaches that address" }
    )]
    Insecure { found: SocketAddr },
    /// `--export-mode` with TCP, which has no mode.
    #[error(
        "--export-mode is the mode of a unix socket, and --nbd tcp:{address} has none: leave it out, or serve on unix:PATH"
    )]
    ModeOfTcp { address: SocketAddr },
    /// The socket could not be opened.
    #[error("cannot listen on {at}")]
    Listen {
        /// Where.
        at: String,
        source: NetError,
    },
    /// One name for several arrays.
    #[error("--control and --export-name are for one array, and {count} are served")]
    OneName { count: usize },
    /// Two of the arrays have the same UUID.
    #[error(
        "two of the arrays have the UUID {uuid}: they are copies of one array; serve them in processes of their own"
    )]
    SameArray {
        /// Their UUID.
        uuid: String,
    },
    /// The arrays make up no array.
    #[error(transparent)]
    Nested(#[from] NestedError),
    /// It ran and failed.
    #[error(transparent)]
    Run(#[from] StackError),
}

/// Serves until told to stop.
pub(crate) fn run(args: &ServeArgs) -> Result<(), ServeError> {
    log::begin();
    let nbd = args.nbd.as_deref().map(frontends::address);
    let processors = args.cpus.as_ref().map_or(&[][..], Processors::list).to_vec();
    let shards = args.cpus.as_ref().map(Processors::count).or(args.shards).unwrap_or_else(shards_default);
    let groups = args.groups();
    let count = groups.iter().map(Vec::len).sum();
    ensure_descriptors(count, shards).map_err(|source| ServeError::Descriptors { members: count, source })?;
    let member_timeout = (!args.member_timeout.is_zero()).then_some(args.member_timeout);
    let timeouts = Timeouts::begin().with_members(member_timeout);
    let options = AssembleOptions { force: args.force, run: args.run, read_only: args.read_only };
    let mut stack = stack(&groups, args.has_member_arrays(), &options, &timeouts)?;
    stack.read_errors_max = args.max_read_errors;
    stack.on_full = args.on_full.into();
    stack.tell_apart().map_err(|uuid| ServeError::SameArray { uuid })?;
    stack.blank = blank::of_stack(&stack);
    let memory = memory::plan(&stack, shards, args.memory_limit.map(|limit| limit.bytes()))?;
    let frontends = frontends::listen(args, nbd, &stack, shards, &timeouts)?;
    log::add_time();
    for (index, array) in stack.indexes().zip(&stack.arrays) {
        announce(&array.name, &array.plan, stack.read_only_text(index));
    }
    let paths = stack.member_paths();
    give_up_privileges(&stack, shards);
    let options = Options {
        ring: args.ring.into(),
        arenas: memory.arenas,
        spin: args.spin,
        processors,
        member_timeout,
        ..stack.host_options()
    };
    session::run(session::Setup { stack, frontends, shards, options, limits: memory.limits, paths })?;
    Ok(())
}

/// Drops the privileges before any serving thread is started, so that all threads lack them. Opens first what may need
/// privileges.
fn give_up_privileges(stack: &Stack, shards: u16) {
    let members = stack.arrays.iter().flat_map(|array| match &array.members {
        Members::Claimed(members) => members.as_slice(),
        Members::Arrays(_) => &[],
    });
    members.for_each(|member| member.open_for(shards));
    keep_locked_memory();
    if let Err(error) = drop_privileges() {
        complain(&error);
    }
}

/// The array of each group of members, and the array above them if they may be its members.
pub(crate) fn stack(
    groups: &[Vec<String>],
    may_be_members: bool,
    options: &AssembleOptions,
    timeouts: &Timeouts,
) -> Result<Stack, ServeError> {
    let stack = Stack::new(assemble_all(groups, options, timeouts)?, options.force);
    if may_be_members { Ok(nested::raise(stack, options)?) } else { Ok(stack) }
}

/// The array of each group of members.
pub(crate) fn assemble_all(
    groups: &[Vec<String>],
    options: &AssembleOptions,
    timeouts: &Timeouts,
) -> Result<Vec<Assembled>, ServeError> {
    let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
    groups.iter().map(|members| Ok(open(members, access, timeouts)?.assemble(options)?)).collect()
}

/// What is read of a member before its array is assembled.
type ReadMember = (Superblock, BadSectors);

/// The members with a superblock, and the others that may be left out.
#[derive(Default)]
pub(crate) struct Opened {
    /// With a superblock, by candidate.
    pub members: Vec<Claimed>,
    /// What they carry.
    pub candidates: Vec<Candidate>,
    /// Those whose superblock cannot be read.
    pub unreadable: Vec<Claimed>,
    left_out: Vec<LeftOut>,
}

impl Opened {
    /// The array that they make up. Members without a place in it are released: another array may need them.
    pub(crate) fn assemble(self, options: &AssembleOptions) -> Result<Assembled, NamedError> {
        let plan = assembly::decide(&self.candidates, &self.names(), options)?;
        Ok(self.assembled(plan))
    }

    /// By candidate.
    pub(crate) fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name().to_owned()).collect()
    }

    /// The array of a plan over these candidates.
    pub(crate) fn assembled(&self, plan: StartPlan) -> Assembled {
        let members = plan.members.iter().map(|member| self.members[member.candidate].clone()).collect();
        let refused = plan.refused.iter().map(|refused| {
            let name = self.members[refused.candidate].name();
            LeftOut { path: client::member_path(name), reason: refused.reason.to_string() }
        });
        let left_out = self.left_out.iter().cloned().chain(refused).collect();
        let name = names::short_name(&plan.template.set_name.as_str(), &plan.template.set_uuid);
        Assembled { name, plan, members: Members::Claimed(members), bad: BadSectors::default(), left_out }
    }
}

/// How long a start waits for files and sockets in use, and for each member's answer. After kill -9 the kernel holds a
/// process's files and sockets until its last I/O is done, while the next start may already be running.
pub(crate) struct Timeouts {
    in_use_until: Instant,
    member_time_max: Option<Duration>,
}

impl Timeouts {
    /// Both time limits count from now.
    pub(crate) fn begin() -> Timeouts {
        Timeouts { in_use_until: Instant::now() + LETTING_GO_TIME_MAX, member_time_max: Some(asking::TIME_MAX) }
    }

    /// The same, with another limit for members; `None`: for ever.
    pub(crate) fn with_members(self, member_time_max: Option<Duration>) -> Timeouts {
        Timeouts { member_time_max, ..self }
    }

    /// Retries while the answer is "in use".
    fn ask<T, E>(&self, is_in_use: impl Fn(&E) -> bool, ask: impl Fn() -> Result<T, E>) -> Result<T, E> {
        loop {
            match ask() {
                Err(error) if is_in_use(&error) && Instant::now() < self.in_use_until => {
                    std::thread::sleep(ASK_AGAIN_AFTER)
                }
                outcome => return outcome,
            }
        }
    }

    fn claim(&self, name: &str, access: Access) -> Result<Claimed, ClaimError> {
        let claim = || metadata::claim_within(name, access, self.member_time_max);
        self.ask(|error| matches!(error, ClaimError::Open(OpenError::InUse { .. })), claim)
    }

    /// Reads a claimed member's superblock and list of bad blocks.
    fn read(&self, member: Claimed) -> Result<(Claimed, Result<ReadMember, MetadataError>), NoAnswer> {
        let name = member.name().to_owned();
        asking::ask(&name, self.member_time_max, move || {
            let read = metadata::read(&member).and_then(|superblock| {
                let bad = metadata::bad_blocks(&member, &superblock)?;
                Ok((superblock, bad))
            });
            (member, read)
        })
    }

    /// Listens on a unix socket whose file gets this mode.
    pub(crate) fn listen(&self, path: &Path, mode: u32) -> Result<Listener, ServeError> {
        let listener = self.ask(|error| matches!(error, NetError::InUse { .. }), || Listener::unix(path, mode));
        listener.map_err(|source| ServeError::Listen { at: path.display().to_string(), source })
    }
}

/// Claims the members and reads their superblocks and lists of bad blocks. Unusable members are reported and left out:
/// assembly decides whether the rest is enough. A member that is in use, named twice or forbidden is an error at once.
pub(crate) fn open(names: &[String], access: Access, timeouts: &Timeouts) -> Result<Opened, ServeError> {
    let Opened { mut members, mut candidates, mut unreadable, mut left_out } = Opened::default();
    for name in names {
        let mut leave_out = |error: &dyn Error| {
            complain(error);
            let (path, text) = (client::member_path(name), with_causes(error));
            let reason = text.strip_prefix(&format!("{name}: ")).map(str::to_owned).unwrap_or(text);
            left_out.push(LeftOut { path, reason });
        };
        let claimed = timeouts.claim(name, access);
        let (mut member, read) = match claimed.and_then(|member| Ok(timeouts.read(member)?)) {
            Ok(read) => read,
            Err(error) if error.is_absent() => {
                leave_out(&error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match read {
            Ok((superblock, bad)) => {
                member.add_bad(bad);
                candidates.push(Candidate { superblock, device_size: member.size() });
                members.push(member);
            }
            Err(error @ MetadataError::Io { .. }) => {
                leave_out(&error);
                unreadable.push(member);
            }
            Err(
                error @ (MetadataError::Superblock { .. }
                | MetadataError::Partitioned { .. }
                | MetadataError::BadBlocks { .. }
                | MetadataError::Short { .. }),
            ) => leave_out(&error),
        }
    }
    if members.is_empty() {
        Err(ServeError::NoMembers)
    } else {
        Ok(Opened { members, candidates, unreadable, left_out })
    }
}

fn announce(name: &str, plan: &StartPlan, read_only: Option<String>) {
    let slots = plan.layout.slots();
    let level = plan.layout.level().name();
    if !plan.missing.is_empty() {
        let missing: Vec<String> = plan.missing.iter().map(|slot| slot.to_string()).collect();
        let present = usize::from(slots) - missing.len();
        warn(&format!("{name}: {level} starts degraded, {present} of {slots} slots, without {}", missing.join(", ")));
    }
    if let Some(reason) = read_only.filter(|_| plan.read_only != Some(ReadOnlyReason::Requested)) {
        warn(&format!("{name}: opened read-only: {reason}"));
    }
    if plan.is_dirty && plan.read_only.is_none() {
        let how_far = if plan.forced.is_dirty_degraded { ", as far as the members that are left allow," } else { "" };
        let what = "was not stopped cleanly or is new: it is made consistent";
        warn(&format!("{name}: {what}{how_far} while it takes requests"));
    }
}

fn shards_default() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(SHARDS_DEFAULT_MAX) as u16
}
