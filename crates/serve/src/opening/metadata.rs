//! Metadata on claimed members that are not, or no longer, part of a running array.
//! Owns: reading and writing superblocks and signatures through a claim. Not here: bytes and places (`uraid_format`).
//! Invariant: what a function here wrote is durable when it returns.

use super::held::{Held, held};
use std::time::Duration;
use uraid_block::{IoError, SECTOR_BYTES, Sector};
use uraid_control::asking::{self, NoAnswer};
use uraid_control::log::warn;
use uraid_control::member_name::{self, NameError};
use uraid_format::bad_blocks::{self, BadBlockLog, BadBlocksError};
use uraid_format::bitmap::{BitmapImage, BitmapUnusable};
use uraid_format::ppl::PplLog;
use uraid_format::signature::{self, Signature};
use uraid_format::{Features, FindError, Found, Superblock, SuperblockError, find};
use uraid_host::{Access, Claimed, OpenError};

/// Why a member was not claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The command line names one thing twice.
    #[error("{second} is the same as {first}: a member is named twice")]
    Twice {
        /// The name that came first.
        first: String,
        /// The other name.
        second: String,
    },
    /// Its name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The host's reason.
    #[error(transparent)]
    Open(OpenError),
    /// Another process has it.
    #[error(transparent)]
    Held(#[from] Held),
    /// Its file server or drive hangs.
    #[error(transparent)]
    Silent(#[from] NoAnswer),
}

impl ClaimError {
    /// Whether the member counts as missing, so that an array may start without it. A member that is in use, forbidden
    /// or named by mistake is an error that must be solved first.
    pub(crate) fn is_absent(&self) -> bool {
        match self {
            ClaimError::Twice { .. } | ClaimError::Held(_) => false,
            ClaimError::Name(error) => error.is_absent(),
            ClaimError::Silent(_) => true,
            ClaimError::Open(error) => match error {
                OpenError::NotFound { .. } | OpenError::Empty { .. } | OpenError::Os { .. } => true,
                OpenError::Permission { .. }
                | OpenError::ReadOnlyDevice { .. }
                | OpenError::InUse { .. }
                | OpenError::ClaimedTwice { .. }
                | OpenError::IsDirectory { .. }
                | OpenError::NotStorage { .. }
                | OpenError::SizeLimit { .. }
                | OpenError::UsedBySystem { .. }
                | OpenError::BadSize { .. }
                | OpenError::NoMemory { .. }
                | OpenError::BadCompletion { .. }
                | OpenError::BadList { .. }
                | OpenError::Window { .. } => false,
            },
        }
    }

    /// The same error; of a member in use, with the process that has it and its array, if they can be found.
    pub(crate) fn with_holder(self, name: &str) -> ClaimError {
        if !matches!(self, ClaimError::Open(OpenError::InUse { .. })) {
            return self;
        }
        let own = name.to_owned();
        let found = asking::ask(name, Some(asking::TIME_MAX), move || held(&own));
        found.ok().flatten().map_or(self, ClaimError::Held)
    }
}

/// Claims a member by its name on the command line; gives up if it does not answer.
pub fn claim(name: &str, access: Access) -> Result<Claimed, ClaimError> {
    claim_within(name, access, Some(asking::TIME_MAX)).map_err(|error| error.with_holder(name))
}

/// The same, with a time limit.
pub(crate) fn claim_within(name: &str, access: Access, time_max: Option<Duration>) -> Result<Claimed, ClaimError> {
    let own = name.to_owned();
    asking::ask(name, time_max, move || claim_now(&own, access))?
}

/// The same. Blocks the thread until the path answers.
pub(crate) fn claim_now(name: &str, access: Access) -> Result<Claimed, ClaimError> {
    Claimed::open_target(&member_name::resolve(name)?, access).map_err(|error| {
        if let OpenError::ClaimedTwice { claimed_as, .. } = error {
            return ClaimError::Twice { first: claimed_as, second: name.to_owned() };
        }
        ClaimError::Open(error)
    })
}

/// Why metadata could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The member failed.
    #[error("{member}: {action} failed")]
    Io {
        /// Its name.
        member: String,
        /// Reading, writing.
        action: &'static str,
        /// Why.
        source: IoError,
    },
    /// There is no good superblock.
    #[error("{member}")]
    Superblock {
        /// The member's name.
        member: String,
        /// What is there instead.
        source: SuperblockError,
    },
    /// There is no superblock, but the partition table of a disk.
    #[error("{member}: no md superblock, but a partition table: its partitions are {partitions}")]
    Partitioned {
        /// The disk's name.
        member: String,
        /// The names of the partitions as members.
        partitions: String,
    },
    /// Its list of bad blocks is broken.
    #[error("{member}")]
    BadBlocks {
        /// The member's name.
        member: String,
        /// What is wrong with the list.
        source: BadBlocksError,
    },
    /// It ends before a superblock would.
    #[error("{member}: is too short for a superblock: {found} bytes, expected at least 12288")]
    Short {
        /// The member's name.
        member: String,
        /// Its size in bytes.
        found: u64,
    },
}

/// The error of an action that failed.
pub fn failed(member: &Claimed, action: &'static str) -> impl Fn(IoError) -> MetadataError {
    let member = member.name().to_owned();
    move |source| MetadataError::Io { member: member.clone(), action, source }
}

/// Reads the superblock of a claimed member, from any place, and warns if there are several.
pub fn read(member: &Claimed) -> Result<Superblock, MetadataError> {
    let name = || member.name().to_owned();
    let found = find(member.size(), |at, block| member.read_at(byte(at), block));
    let found = found.map_err(|error| match error {
        FindError::DeviceTooSmall { .. } => MetadataError::Short { member: name(), found: member.size().bytes() },
        FindError::Read { source, .. } => {
            MetadataError::Io { member: name(), action: "reading the superblock", source }
        }
        FindError::Superblock { source: source @ SuperblockError::Magic { .. }, .. } => {
            match member_name::partitions(member.name(), member.size().bytes(), |at, into| member.read_at(at, into)) {
                Some(partitions) => MetadataError::Partitioned { member: name(), partitions },
                None => MetadataError::Superblock { member: name(), source },
            }
        }
        FindError::Superblock { source, .. } => MetadataError::Superblock { member: name(), source },
    })?;
    warn_of_rivals(member.name(), &found);
    Ok(found.superblock)
}

/// The bad sectors of a claimed member, by the list beside its superblock.
pub(crate) fn bad_blocks(member: &Claimed, superblock: &Superblock) -> Result<BadBlockLog, MetadataError> {
    let broken = |source| MetadataError::BadBlocks { member: member.name().to_owned(), source };
    let Some(list) = bad_blocks::counting_extent(superblock).map_err(broken)? else {
        return Ok(BadBlockLog::default());
    };
    let mut bytes = vec![0; list.length.len_bytes()];
    member.read_at(byte(list.start), &mut bytes).map_err(failed(member, "reading the bad-block list"))?;
    BadBlockLog::parse(&bytes, superblock.bad_blocks.shift).map_err(broken)
}

/// The bitmap of a claimed member, if its superblock says that there is one.
pub(crate) fn bitmap(member: &Claimed, superblock: &Superblock) -> Option<Result<BitmapImage, BitmapUnusable>> {
    let read = |at: u64, into: &mut [u8]| member.read_at(at, into).is_ok();
    superblock.features.contains(Features::BITMAP_OFFSET).then(|| BitmapImage::read_beside(superblock, read))
}

/// The partial parity log of a claimed member, if its superblock says that there is one.
pub(crate) fn ppl(member: &Claimed, superblock: &Superblock) -> Option<PplLog> {
    PplLog::read_beside(superblock, |at, into| member.read_at(at, into).is_ok())
}

/// Warns if a member has superblocks of several arrays, and says how one was chosen.
pub fn warn_of_rivals(member: &str, found: &Found) {
    two_arrays(found).iter().for_each(|text| warn(&format!("{member}: {text}")));
}

/// What to say of a device with superblocks of several arrays, without its name.
pub(crate) fn two_arrays(found: &Found) -> Vec<String> {
    let used = format!(
        "carries superblocks of two arrays: the one of version {} (sector {}) is used",
        found.superblock.version, found.superblock.super_offset.0
    );
    let doubtful = found.doubtful_contents().map(|later| {
        format!(
            "{used}, because the one of version {} (sector {}), which was made later, lies in its data, as that of an array in \
             this array. If the older array is gone, and the later one is today's, do not start this: writes would destroy it",
            later.version, later.at.0
        )
    });
    let rivals = found.rivals().map(|rival| {
        format!("{used}, because it is not older than the one of version {} (sector {})", rival.version, rival.at.0)
    });
    doubtful.chain(rivals).collect()
}

/// Other programs' signatures on the member, the most important first.
pub fn signatures(member: &Claimed) -> Result<Vec<Signature>, IoError> {
    let bytes = member.size().bytes();
    let part = bytes.min(signature::WINDOW_BYTES as u64);
    let (mut head, mut tail) = (vec![0; part as usize], vec![0; part as usize]);
    member.read_at(0, &mut head)?;
    member.read_at(bytes - part, &mut tail)?;
    Ok(signature::detect_all(&head, &tail, member.size()))
}

/// Overwrites signatures with zeroes.
pub fn wipe(member: &Claimed, marks: &[Signature]) -> Result<(), MetadataError> {
    let writing = failed(member, "wiping the old metadata");
    for mark in marks {
        let extent = mark.extent(member.size());
        member.write_at(byte(extent.start), &vec![0; extent.length.len_bytes()]).map_err(&writing)?;
    }
    member.sync().map_err(&writing)
}

fn byte(at: Sector) -> u64 {
    at.0 * SECTOR_BYTES as u64
}
