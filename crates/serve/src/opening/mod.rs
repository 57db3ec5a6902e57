//! From names on the command line to assembled arrays.
//! Owns: claiming members, reading superblocks, how long a start waits for files in use, [`ServeError`]. Not here:
//! which members make up an array (`engine::assemble`), arrays of arrays (`nested`), members of a spare group (`sharing`),
//! starting them (`session`, `one_shot`).
//! Invariant: if another process has a member, or a member was named twice, the start ends before anything is changed.

pub mod cautions;
mod held;
mod log_overlay;
pub mod metadata;
pub mod nested;
mod sharing;
pub mod without_copy;

use crate::background::BackgroundError;
use crate::memory::MemoryError;
use crate::opening::metadata::{ClaimError, MetadataError};
use crate::opening::nested::NestedError;
use crate::stack::assembly::{self, NamedError};
use crate::stack::{Assembled, AssembledStack, StackError};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uraid_arrays::Members;
use uraid_control::asking::{self, NoAnswer};
use uraid_control::client;
use uraid_control::log::{complain, warn, with_causes};
use uraid_control::names;
use uraid_control::report::LeftOut;
use uraid_control::runtime::RuntimeError;
use uraid_engine::{AssembleOptions, Candidate, StartPlan};
use uraid_format::bitmap::{BitmapImage, BitmapUnusable};
use uraid_host::{Access, Claimed, Listener, NetError, OpenError, TooFewDescriptors};

/// How long a killed process may take to release members and sockets.
const LETTING_GO_TIME_MAX: Duration = Duration::from_secs(3);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How long it waits before it says so.
const SILENT_TIME_MAX: Duration = Duration::from_millis(500);

/// Why nothing is served, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A member could not be claimed.
    #[error("the array is not started")]
    Claim(#[from] ClaimError),
    /// None of its members was found.
    #[error("{0}")]
    Search(String),
    /// No member is left.
    #[error("none of the members can be used, see above")]
    NoMembers,
    /// The members make up no array.
    #[error("cannot start the array")]
    Assemble(#[from] NamedError),
    /// There is too little memory for the buffers.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There is no directory for sockets.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The server in the background.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// The system allows too few open files.
    #[error("cannot serve {members} members")]
    Descriptors {
        /// How many.
        members: usize,
        /// What is missing.
        source: TooFewDescriptors,
    },
    /// A running server has the socket: it serves an array of this name.
    #[error(
        "{}: a running server listens on it, so an array of that name runs already: `uraid list` shows it; stop that one, or \
         give this one other paths with --nbd and --control",
        path.display()
    )]
    NameInUse {
        /// The socket.
        path: PathBuf,
    },
    /// The socket could not be opened.
    #[error("cannot listen on {at}")]
    Listen {
        /// Where.
        at: String,
        /// Why.
        source: NetError,
    },
    /// A frontend cannot serve what was asked of it, for a reason of its own.
    #[error(transparent)]
    Frontend(Box<dyn Error + Send + Sync>),
    /// One name for several arrays.
    #[error("--control and --export-name are for one array, and {count} are served")]
    OneName {
        /// How many.
        count: usize,
    },
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
    /// Starting, running or stopping the arrays failed.
    #[error(transparent)]
    Run(#[from] StackError),
}

/// The array of each group of members, and the array above them if they may be its members. `spare_groups`: the one of
/// each group of members; empty if there are none.
pub fn stack(
    groups: &[Vec<String>],
    spare_groups: &[Option<String>],
    may_be_members: bool,
    options: &AssembleOptions,
    timeouts: &Timeouts,
) -> Result<AssembledStack, ServeError> {
    let mut arrays = if spare_groups.iter().any(Option::is_some) {
        let access = access(options);
        let opened = groups.iter().map(|members| open(members, access, timeouts));
        let mut opened = opened.collect::<Result<Vec<Opened>, ServeError>>()?;
        sharing::share(&mut opened, spare_groups);
        opened.into_iter().map(|one| one.assemble(options)).collect::<Result<Vec<Assembled>, NamedError>>()?
    } else {
        assemble_all(groups, options, timeouts)?
    };
    for (array, group) in arrays.iter_mut().zip(spare_groups) {
        array.spare_group.clone_from(group);
    }
    let stack = AssembledStack::new(arrays, options.force);
    if may_be_members { Ok(nested::raise(stack, options)?) } else { Ok(stack) }
}

/// The array of each group of members.
pub fn assemble_all(
    groups: &[Vec<String>],
    options: &AssembleOptions,
    timeouts: &Timeouts,
) -> Result<Vec<Assembled>, ServeError> {
    // One after the other: a member that the first array leaves out may be given to the second one, too.
    groups.iter().map(|members| Ok(open(members, access(options), timeouts)?.assemble(options)?)).collect()
}

fn access(options: &AssembleOptions) -> Access {
    if options.read_only { Access::ReadOnly } else { Access::ReadWrite }
}

/// What is read of a member before its array is assembled.
type ReadMember = (Candidate, Option<Bitmap>);

/// A bitmap as it was read.
type Bitmap = Result<BitmapImage, BitmapUnusable>;

/// The members with a superblock, and the others that may be left out.
#[derive(Default)]
pub struct Opened {
    /// With a superblock, by candidate.
    pub members: Vec<Claimed>,
    /// The superblocks of `members`, in the same order.
    pub candidates: Vec<Candidate>,
    /// Their bitmaps, in the same order.
    bitmaps: Vec<Option<Bitmap>>,
    /// The members whose superblock cannot be read.
    pub unreadable: Vec<Claimed>,
    left_out: Vec<LeftOut>,
}

impl Opened {
    /// The array that they make up. Members without a place in it are released: another array may need them.
    pub fn assemble(self, options: &AssembleOptions) -> Result<Assembled, NamedError> {
        let outcome = assembly::decide(&self.candidates, &self.names(), options);
        // Before an advice to use an option, or when one is used.
        if outcome.is_err() || options.run || options.force {
            let outcome = outcome.map_err(|error| error.cautioned(self.caution()));
            return outcome.map(|plan| self.assembled(plan));
        }
        Ok(self.assembled(outcome?))
    }

    /// Whether members were given whose superblock is missing or damaged.
    pub fn has_unknown(&self) -> bool {
        !self.left_out.is_empty()
    }

    /// Says what else lives on the members. Returns the names of those that carry something.
    pub fn caution(&self) -> Vec<String> {
        let mut cautioned = Vec::new();
        for (member, Candidate { superblock, .. }) in self.members.iter().zip(&self.candidates) {
            let read = |at: u64, into: &mut [u8]| member.read_at(at, into).is_ok();
            let found = cautions::of(member.name(), member.size(), superblock, read);
            cautioned.extend((!found.is_empty()).then(|| member.name().to_owned()));
            found.iter().for_each(|text| warn(&format!("{}: {text}", member.name())));
        }
        cautioned
    }

    /// The bitmap of a candidate that has one, or why it cannot be used.
    pub fn bitmap(&self, candidate: usize) -> Option<Result<BitmapImage, BitmapUnusable>> {
        // A stand-in for a missing member has none.
        self.bitmaps.get(candidate).cloned().flatten()
    }

    /// By candidate.
    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name().to_owned()).collect()
    }

    /// The array of a plan over these candidates.
    pub fn assembled(&self, mut plan: StartPlan) -> Assembled {
        plan.take_bitmaps(|candidate| self.bitmap(candidate).unwrap_or(Err(BitmapUnusable::NoRoom)));
        if let Some(bitmap) = plan.bitmap.as_ref().filter(|bitmap| bitmap.is_out_of_date && plan.is_dirty) {
            let chunks = bitmap.image.header().chunks();
            warn(&format!("the bitmap is out of date: all of its {chunks} chunks are resynced"));
        }
        log_overlay::lay_over(&mut plan, &self.members);
        let members = plan.members.iter().map(|member| self.members[member.candidate].clone()).collect();
        let refused = plan.refused.iter().map(|refused| {
            let name = self.members[refused.candidate].name();
            LeftOut { path: client::member_path(name), reason: refused.reason.to_string() }
        });
        let left_out = self.left_out.iter().cloned().chain(refused).collect();
        let name = names::short_name(&plan.template.set_name.as_str(), &plan.template.set_uuid);
        let members = Members::Claimed(members);
        Assembled { name, plan, members, left_out, spare_group: None }
    }
}

/// How long a start waits for files and sockets in use, and for each member's answer. After kill -9 the kernel holds a
/// process's files and sockets until its last I/O is done, while the next start may already be running.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    in_use_until: Instant,
    member_time_max: Option<Duration>,
}

impl Timeouts {
    /// The default limits, counted from now.
    pub fn begin() -> Timeouts {
        Timeouts { in_use_until: Instant::now() + LETTING_GO_TIME_MAX, member_time_max: Some(asking::TIME_MAX) }
    }

    /// These limits with another one for members; `None`: no limit.
    pub fn with_members(self, member_time_max: Option<Duration>) -> Timeouts {
        Timeouts { member_time_max, ..self }
    }

    /// Retries while the answer is "in use", and says that it waits.
    fn ask<T, E: Error>(&self, is_in_use: impl Fn(&E) -> bool, ask: impl Fn() -> Result<T, E>) -> Result<T, E> {
        let waits_without_a_word_until = Instant::now() + SILENT_TIME_MAX;
        let mut has_said = false;
        loop {
            let now = Instant::now();
            match ask() {
                Err(error) if is_in_use(&error) && now < self.in_use_until => {
                    if !has_said && now >= waits_without_a_word_until {
                        let left = (self.in_use_until - now).as_secs_f32().ceil();
                        warn(&format!("{}; waits {left} s for it to be released", with_causes(&error)));
                        has_said = true;
                    }
                    std::thread::sleep(ASK_AGAIN_AFTER)
                }
                outcome => return outcome,
            }
        }
    }

    fn claim(&self, name: &str, access: Access) -> Result<Claimed, ClaimError> {
        let claim = || metadata::claim_within(name, access, self.member_time_max);
        let claimed = self.ask(|error| matches!(error, ClaimError::Open(OpenError::InUse { .. })), claim);
        claimed.map_err(|error| error.with_holder(name))
    }

    /// What a claimed member's superblock, and all that lies beside it, say.
    fn read(&self, member: Claimed) -> Result<(Claimed, Result<ReadMember, MetadataError>), NoAnswer> {
        let name = member.name().to_owned();
        asking::ask(&name, self.member_time_max, move || {
            let read = metadata::read(&member).and_then(|superblock| {
                let bad = metadata::bad_blocks(&member, &superblock)?;
                let bitmap = metadata::bitmap(&member, &superblock);
                let ppl = metadata::ppl(&member, &superblock);
                let candidate = Candidate::new(superblock, member.size());
                let bad_blocks = Some(bad);
                Ok((Candidate { bad_blocks, ppl, ..candidate }, bitmap))
            });
            (member, read)
        })
    }

    /// Listens on a unix socket whose file gets this mode.
    pub fn listen(&self, path: &Path, mode: u32) -> Result<Listener, ServeError> {
        let listener = self.ask(|error| matches!(error, NetError::InUse { .. }), || Listener::unix(path, mode));
        listener.map_err(|source| match source {
            NetError::InUse { path } => ServeError::NameInUse { path },
            source @ (NetError::Closed
            | NetError::PathTooLong { .. }
            | NetError::NotASocket { .. }
            | NetError::NotMade { .. }
            | NetError::Os { .. }) => ServeError::Listen { at: path.display().to_string(), source },
        })
    }
}

/// Claims the members and reads their superblocks and lists of bad blocks. Unusable members are reported and left out:
/// assembly decides whether the rest is enough. A member that is in use, named twice or forbidden is an error at once.
pub fn open(names: &[String], access: Access, timeouts: &Timeouts) -> Result<Opened, ServeError> {
    let Opened { mut members, mut candidates, mut bitmaps, mut unreadable, mut left_out } = Opened::default();
    for name in names {
        let mut leave_out = |error: &dyn Error| {
            complain(error);
            let (path, text) = (client::member_path(name), with_causes(error));
            let reason = text.strip_prefix(&format!("{name}: ")).map(str::to_owned).unwrap_or(text);
            left_out.push(LeftOut { path, reason });
        };
        let claimed = timeouts.claim(name, access);
        let (member, read) = match claimed.and_then(|member| Ok(timeouts.read(member)?)) {
            Ok(read) => read,
            Err(error) if error.is_absent() => {
                leave_out(&error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match read {
            Ok((candidate, bitmap)) => {
                bitmaps.push(bitmap);
                candidates.push(candidate);
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
        Ok(Opened { members, candidates, bitmaps, unreadable, left_out })
    }
}
