//! Why no array was made, and the checks that members of any kind must pass.
//! Owns: [`Refusal`], what is written over, the names in an error. Not here: reading and writing members (`create`,
//! `create::over`).

use super::steps::{NewContent, Step};
use uraid_block::{IoError, Range, Sectors};
use uraid_control::log::warn;
use uraid_format::create::{CreateError, Creation};
use uraid_format::signature::Signature;
use uraid_format::{NameTooLong, Superblock};
use uraid_serve::metadata::{ClaimError, MetadataError};
use uraid_serve::opening::ServeError;
use uraid_serve::stack::StackError;

/// Why no array was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The configuration asks for what new arrays do not have.
    #[error("no array was made: CREATE metadata={word} in mdadm.conf: {reason}; give --metadata")]
    Configured {
        /// The value there.
        word: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A member could not be claimed.
    #[error("no array was made")]
    Claim(#[from] ClaimError),
    /// The first member does not exist, and may be meant as the array's name: mdadm's comes first.
    #[error(
        "no array was made: {member}: not found; if it is to be the array's name, give it as --name {}",
        member.rsplit('/').next().unwrap_or(member)
    )]
    NameFirst {
        /// Its name.
        member: String,
    },
    /// The arrays that should be its members could not be opened.
    #[error(transparent)]
    Arrays(#[from] Box<ServeError>),
    /// The arrays that should be its members were not started.
    #[error("no array was made")]
    Start(#[source] StackError),
    /// One of the arrays that should be its members did not stop cleanly.
    #[error("the array cannot be relied on")]
    Stop(#[source] StackError),
    /// A member that is gone with this process.
    #[error("{member}: is gone when create ends, and the array with it; give files or block devices")]
    Fleeting {
        /// Its name.
        member: String,
    },
    /// A member could not be read.
    #[error("{member}: cannot be read")]
    Read {
        /// Its name.
        member: String,
        /// Why.
        source: IoError,
    },
    /// Members hold something already.
    #[error(
        "{count} of the members carry something already, see above; nothing was changed; --run goes on and overwrites them"
    )]
    Occupied {
        /// How many.
        count: usize,
    },
    /// Such an array is impossible.
    #[error(transparent)]
    Geometry(CreateError),
    /// Such an array is impossible because of one member.
    #[error("{member}")]
    Member {
        /// Its name.
        member: String,
        /// What is wrong with it.
        source: CreateError,
    },
    /// The name is too long.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    /// Writing failed in the middle.
    #[error(
        "no complete array was made: members that may have been changed: {}; repeat the command with --run when the \
         cause is gone, or `uraid zero-superblock` them",
        changed.join(", ")
    )]
    Write {
        /// The members up to the one that failed.
        changed: Vec<String>,
        /// What went wrong.
        source: MetadataError,
    },
}

impl From<StackError> for Refusal {
    fn from(error: StackError) -> Refusal {
        match error {
            StackError::Start { .. } | StackError::Interrupted { .. } => Refusal::Start(error),
            StackError::Stop { .. } | StackError::NotAnswering { .. } => Refusal::Stop(error),
        }
    }
}

/// Reports what each member holds, and fails if that must not be lost.
pub(crate) fn check_unoccupied(names: &[String], marks: &[Vec<Signature>], may_overwrite: bool) -> Result<(), Refusal> {
    let mut count = 0;
    for (name, marks) in names.iter().zip(marks) {
        if let Some(first) = marks.first() {
            count += 1;
            let fate = if may_overwrite { ", which is overwritten" } else { "" };
            warn(&format!("{name}: carries {first}{fate}"));
        }
    }
    if count > 0 && !may_overwrite { Err(Refusal::Occupied { count }) } else { Ok(()) }
}

/// The new content of a member.
pub(crate) fn new_content<'a>(
    superblock: &'a Superblock,
    marks: &[Signature],
    device_size: Sectors,
    creation: &'a Creation,
) -> NewContent<'a> {
    let marks = marks.iter().filter(|mark| may_wipe(mark, superblock, creation));
    NewContent {
        marks: marks.map(|mark| mark.extent(device_size)).collect(),
        superblock,
        bitmap: creation.bitmap.as_ref(),
    }
}

/// The error of a failed step. Every member of a step up to `at` may have changed.
pub(crate) fn write_failed(steps: &[Step], at: usize, names: &[&str], source: IoError) -> Refusal {
    let mut changed: Vec<String> = Vec::new();
    for step in &steps[..=at] {
        let name = names[step.member];
        if changed.iter().all(|changed| changed != name) {
            changed.push(name.to_owned());
        }
    }
    let member = names[steps[at].member].to_owned();
    Refusal::Write { changed, source: MetadataError::Io { member, action: steps[at].action(), source } }
}

/// Whether a signature may be wiped. If the array is declared consistent, a signature inside its data may belong to the
/// array's content: the end of a mirror's member looks like the end of the partitioned disk that it mirrors. md's own
/// superblocks are always wiped, as in mdadm.
fn may_wipe(mark: &Signature, superblock: &Superblock, creation: &Creation) -> bool {
    let data = Range::new(superblock.data_offset, superblock.data_size);
    let is_in_data = (data.start.0..data.end().0).contains(&(mark.at / uraid_block::SECTOR_BYTES as u64));
    mark.kind.is_md() || !is_in_data || !creation.is_clean
}

/// An error about one member of the list, with its name.
pub(crate) fn with_name(error: CreateError, names: &[String]) -> Refusal {
    match error.member().and_then(|at| names.get(at)) {
        Some(name) => Refusal::Member { member: name.clone(), source: error },
        None => Refusal::Geometry(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps;
    use super::*;
    use uraid_block::Sector;
    use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
    use uraid_format::signature::Kind;
    use uraid_format::{SetName, Version};
    use uraid_layout::Level;

    #[test]
    fn a_step_that_fails_names_its_member_and_those_before_it_once() {
        let step = |member, what, is_wipe| steps::Step { member, what, is_wipe };
        let steps = [
            step(0, steps::What::Sync, true),
            step(1, steps::What::Sync, true),
            step(0, steps::What::Write(Sector(8), vec![0; 512]), false),
            step(2, steps::What::Sync, false),
        ];
        let source = IoError::from(uraid_block::ErrorKind::Media);
        for (at, expected) in [(0, &["a"][..]), (1, &["a", "b"]), (2, &["a", "b"]), (3, &["a", "b", "c"])] {
            let Refusal::Write { changed, source } = write_failed(&steps, at, &["a", "b", "c"], source) else {
                panic!("a write failed")
            };
            assert_eq!(changed, expected, "step {at}");
            assert!(source.to_string().starts_with(["a", "b", "a", "c"][at]), "{source}");
        }
    }

    #[test]
    fn marks_inside_the_data_stay_only_where_the_array_is_declared_consistent() {
        let device = Sectors(8192);
        let made = |assume_clean| {
            let options = CreateOptions {
                version: Version::V1_1,
                level: Level::Raid1,
                layout: 0,
                chunk: Sectors::ZERO,
                raid_disks: 2,
                spare_devices: 0,
                size: None,
                data_offset: Some(Sectors(2048)),
                set_uuid: [7; 16],
                set_name: SetName::new("", "marks").expect("a short name"),
                now_seconds: 1,
                assume_clean,
                force: false,
                policy: NewPolicy::Resync,
            };
            create(&options, &[1, 2].map(|n| NewMember::Device { size: device, uuid: [n; 16] })).expect("an array")
        };
        for (kind, sector, is_clean, is_wiped) in [
            (Kind::Gpt, 0, true, true),
            (Kind::Gpt, 2047, true, true),
            (Kind::Gpt, 2048, true, false),
            (Kind::Gpt, 8191, true, false),
            (Kind::Gpt, 2048, false, true),
            (Kind::Gpt, 8191, false, true),
            (Kind::Ext, 5000, true, false),
            (Kind::Ext, 5000, false, true),
            (Kind::Md10, 8176, true, true),
            (Kind::Md090, 8064, true, true),
            (Kind::Md12, 8, true, true),
        ] {
            let creation = made(is_clean);
            assert_eq!(creation.is_clean, is_clean);
            let superblock = creation.superblocks[0].as_ref().expect("a device");
            assert_eq!((superblock.data_offset, superblock.data_size), (Sector(2048), Sectors(6144)));
            let mark = Signature { kind, at: sector * 512 + 40 };
            let content = new_content(superblock, &[mark], device, &creation);
            assert_eq!(!content.marks.is_empty(), is_wiped, "{kind:?} {sector} {is_clean}");
        }
        // If the data ends before the device does, what follows is not data.
        let creation = made(true);
        let shorter = Superblock { data_size: Sectors(6000), ..creation.superblocks[0].clone().expect("a device") };
        let wiped = |sector: u64| may_wipe(&Signature { kind: Kind::Gpt, at: sector * 512 }, &shorter, &creation);
        assert_eq!((wiped(2048 + 5999), wiped(2048 + 6000)), (false, true));
    }
}
