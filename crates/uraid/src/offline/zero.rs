//! `uraid zero-superblock`: wipes superblocks, so that nothing assembles the members any more.
//! Owns: its options and help texts, the order of checks and writes. Not here: where superblocks are (`uraid_format`).
//! Invariant: every member is claimed and checked before any is changed.

use clap::Args;
use uraid_block::IoError;
use uraid_control::log::{print, warn};
use uraid_format::signature::{Kind, Signature};
use uraid_host::{Access, Claimed};
use uraid_serve::metadata::{self, ClaimError, MetadataError};

pub(crate) const ZERO: &str = "\
Wipe the superblock of members, so that nothing assembles them any more. The data behind it is
left alone. Members in use are refused, and all are checked before any is changed.";

pub(crate) const ZERO_AFTER: &str = "\
EXAMPLES
  uraid zero-superblock disk0 disk1
  uraid zero-superblock --force broken-disk";

/// Options of `uraid zero-superblock`.
#[derive(Args, Debug)]
pub(crate) struct ZeroArgs {
    /// Wipe damaged superblocks too
    #[arg(short, long)]
    pub force: bool,
    /// The members to wipe
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
}

/// Why nothing was wiped, or only a part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ZeroError {
    /// A member could not be claimed.
    #[error("nothing was wiped")]
    Claim(#[source] ClaimError),
    /// A member could not be read.
    #[error("{member}: cannot be read")]
    Read { member: String, source: IoError },
    /// Members without a superblock, or with a wrong one.
    #[error(
        "{count} of the members have no good superblock, see above; nothing was wiped; --force wipes what is there"
    )]
    NoSuperblock { count: usize },
    /// The only member of the command has no superblock.
    #[error("not wiped")]
    NoneThere(#[source] MetadataError),
    /// The only member of the command has a wrong one.
    #[error("not wiped without --force")]
    Damaged(#[source] MetadataError),
    /// The only member of the command could not be claimed.
    #[error("not wiped")]
    ClaimOne(#[source] ClaimError),
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] MetadataError),
}

/// The words for one member alone say nothing of others: a line of mdadm wipes them one by one.
fn claim_all(members: &[String]) -> Result<Vec<Claimed>, ZeroError> {
    let open = |name: &String| metadata::claim(name, Access::ReadWrite);
    let claimed: Result<Vec<Claimed>, ClaimError> = members.iter().map(open).collect();
    claimed.map_err(|error| if members.len() == 1 { ZeroError::ClaimOne(error) } else { ZeroError::Claim(error) })
}

/// Wipes the superblocks.
pub(crate) fn run(args: &ZeroArgs) -> Result<(), ZeroError> {
    let members = claim_all(&args.members)?;
    let mut marks = Vec::new();
    let mut count = 0;
    for member in &members {
        let found = md_marks(member)?;
        let is_good_v12 = metadata::read(member);
        let has_other = found.iter().any(|mark| mark.kind != Kind::Md12);
        match is_good_v12 {
            Ok(_) => (),
            Err(_) if has_other => (),
            Err(error) if members.len() == 1 && !args.force => {
                return Err(if found.is_empty() { ZeroError::NoneThere(error) } else { ZeroError::Damaged(error) });
            }
            Err(error) => {
                count += 1;
                uraid_control::log::complain(&error);
            }
        }
        marks.push(found);
    }
    if count > 0 && !args.force {
        return Err(ZeroError::NoSuperblock { count });
    }
    for (member, marks) in members.iter().zip(&marks) {
        if marks.is_empty() {
            warn(&format!("{}: nothing to wipe", member.name()));
            continue;
        }
        metadata::wipe(member, marks)?;
        print(&format!("{}: superblock wiped\n", member.name()));
    }
    Ok(())
}

fn md_marks(member: &Claimed) -> Result<Vec<Signature>, ZeroError> {
    let unreadable = |source| ZeroError::Read { member: member.name().to_owned(), source };
    let mut marks = metadata::signatures(member).map_err(unreadable)?;
    marks.retain(|mark| mark.kind.is_md());
    Ok(marks)
}
