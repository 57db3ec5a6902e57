//! `uraid create`: a new array on members that hold nothing of value.
//! Owns: the order of checks and writes, the messages about them. Not here: offsets, sizes, first state, bytes
//! (`uraid_format::create`), reading and writing arrays as members (`create_over`).
//! Invariant: every member is claimed and checked before any is changed. What was changed is durable before it is
//! reported. Spec: docs/md/formats.md#what-mdadm-creates.

pub(crate) mod steps;

use crate::cli::{CreateArgs, chunk_size, layout_number};
use crate::create_over;
use crate::metadata::{self, ClaimError, MetadataError};
use crate::names;
use crate::serve::ServeError;
use crate::stack::StackError;
use crate::{print, warn};
use steps::{NewContent, Step, carry_out, steps};
use uraid_block::sizes::{self, MemberSize};
use uraid_block::{IoError, Range, Sectors};
use uraid_format::create::{CreateError, CreateOptions, Creation, NewMember, create};
use uraid_format::signature::Signature;
use uraid_format::{NameTooLong, SetName, Superblock, uuid};
use uraid_host::{Access, Claimed};
use uraid_layout::{Level, layout_name};

/// Why no array was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// A member could not be claimed.
    #[error("no array was made")]
    Claim(#[from] ClaimError),
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
    Fleeting { member: String },
    /// A member could not be read.
    #[error("{member}: cannot be read")]
    Read { member: String, source: IoError },
    /// Members hold something already.
    #[error(
        "{count} of the members carry something already, see above; nothing was changed; --run goes on and overwrites them"
    )]
    Occupied { count: usize },
    /// Such an array is impossible.
    #[error(transparent)]
    Geometry(CreateError),
    /// Such an array is impossible because of one member.
    #[error("{member}")]
    Member {
        member: String,
        /// What is wrong with it.
        source: CreateError,
    },
    /// The name is too long.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    /// Writing failed in the middle.
    #[error(
        "no complete array was made: members that may have been changed: {}; make the same command with --run when the \
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

/// Makes the array and prints its properties.
pub(crate) fn run(args: &CreateArgs) -> Result<(), Refusal> {
    let set_uuid = args.uuid.unwrap_or_else(|| *::uuid::Uuid::new_v4().as_bytes());
    let options = options(args, set_uuid)?;
    if !args.arrays.0.is_empty() {
        let creation = create_over::run(args, &options)?;
        print(&names::printable_lines(&summary(args, &options, &creation)));
        return Ok(());
    }
    let members = claim(&args.members)?;
    // Report an impossible geometry before asking whether existing data may be overwritten.
    let listed: Vec<NewMember> = members.iter().map(new_member).collect();
    let creation = create(&options, &listed).map_err(|error| with_name(error, &args.members))?;
    let marks = marks_of(&members)?;
    check_unoccupied(&args.members, &marks, args.may_overwrite())?;
    write(&members, &marks, &creation)?;
    print(&names::printable_lines(&summary(args, &options, &creation)));
    Ok(())
}

fn options(args: &CreateArgs, set_uuid: [u8; 16]) -> Result<CreateOptions, Refusal> {
    let level = args.level;
    let layout = layout_number(level, args.layout.as_deref());
    let chunk = chunk_size(level, args.chunk);
    if level == Level::Raid1 && args.chunk.is_some() {
        warn("raid1 has no chunks: --chunk is ignored");
    }
    if args.spare_devices > 0 {
        warn("spares are written into the superblocks; there is no recovery onto them yet");
    }
    let name = args.name.clone().unwrap_or_else(|| uuid::text(&set_uuid)[..8].to_owned());
    let host = names::homehost(args.homehost.as_deref());
    let size = match args.size {
        None | Some(MemberSize::Max) => None,
        Some(MemberSize::Exactly(size)) => Some(size),
    };
    Ok(CreateOptions {
        version: args.metadata,
        level,
        layout,
        chunk,
        raid_disks: args.raid_devices,
        spare_devices: args.spare_devices,
        size,
        data_offset: args.data_offset,
        set_uuid,
        set_name: SetName::new(&host, &name)?,
        now_seconds: crate::dates::now(),
        assume_clean: args.assume_clean,
        force: args.force,
    })
}

/// A slot without a member, in a list of members, as in mdadm.
pub(crate) const MISSING: &str = "missing";

/// `None` for [`MISSING`].
fn claim(names: &[String]) -> Result<Vec<Option<Claimed>>, Refusal> {
    let open = |name: &String| match name.as_str() {
        MISSING => Ok(None),
        name if is_fleeting(name) => Err(Refusal::Fleeting { member: name.to_owned() }),
        name => Ok(metadata::claim(name, Access::ReadWrite).map(Some)?),
    };
    names.iter().map(open).collect()
}

/// Whether it is a memory or null member, also behind a bad list: `bad:8:mem:64M`.
pub(crate) fn is_fleeting(name: &str) -> bool {
    let inner = without_bad_list(name);
    inner.starts_with("mem:") || inner.starts_with("null:")
}

/// The name of a member without its `bad:LIST:`.
pub(crate) fn without_bad_list(name: &str) -> &str {
    name.strip_prefix("bad:").and_then(|rest| rest.split_once(':')).map_or(name, |(_, inner)| inner)
}

/// The signatures on each member, in the order of the list.
fn marks_of(members: &[Option<Claimed>]) -> Result<Vec<Vec<Signature>>, Refusal> {
    let marks = |member: &Option<Claimed>| match member {
        None => Ok(Vec::new()),
        Some(member) => {
            metadata::signatures(member).map_err(|source| Refusal::Read { member: member.name().to_owned(), source })
        }
    };
    members.iter().map(marks).collect()
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

fn new_member(member: &Option<Claimed>) -> NewMember {
    match member {
        None => NewMember::Missing,
        Some(member) => NewMember::Device { size: member.size(), uuid: *::uuid::Uuid::new_v4().as_bytes() },
    }
}

/// Changes the members; they hold nothing of value, or it may be overwritten.
fn write(members: &[Option<Claimed>], marks: &[Vec<Signature>], creation: &Creation) -> Result<(), Refusal> {
    let list = members.iter().zip(&creation.superblocks).zip(marks);
    let list = list.filter_map(|((member, superblock), marks)| Some((member.as_ref()?, superblock.as_ref()?, marks)));
    let (present, content): (Vec<&Claimed>, Vec<NewContent<'_>>) = list
        .map(|(member, superblock, marks)| (member, new_content(superblock, marks, member.size(), creation)))
        .unzip();
    let steps = steps(&content);
    carry_out(&steps, &present).map_err(|(at, source)| {
        let names: Vec<&str> = present.iter().map(|member| member.name()).collect();
        write_failed(&steps, at, &names, source)
    })
}

/// The new content of a member.
pub(crate) fn new_content<'a>(
    superblock: &'a Superblock,
    marks: &[Signature],
    device_size: Sectors,
    creation: &Creation,
) -> NewContent<'a> {
    let marks = marks.iter().filter(|mark| may_wipe(mark, superblock, creation));
    NewContent { marks: marks.map(|mark| mark.extent(device_size)).collect(), superblock }
}

/// The error of a failed step: every member up to there may have changed.
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

/// A signature inside the data of an array that is declared consistent may belong to the array's content: the end of a
/// mirror's member looks like the end of the partitioned disk that it mirrors. md's own superblocks are always wiped,
/// as in mdadm.
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

fn summary(args: &CreateArgs, options: &CreateOptions, creation: &Creation) -> String {
    let layout = &creation.layout;
    let level = layout.level();
    let mut shape = vec![level.name().to_owned()];
    let layout_text = layout_name(level, options.layout);
    if !layout_text.is_empty() {
        shape.push(layout_text);
    }
    if !options.chunk.is_zero() {
        shape.push(format!("chunk {}", sizes::chunk(options.chunk)));
    }
    let data_offset = creation.geometry.data_offset;
    let used = creation.geometry.size;
    let each = if used.is_zero() { "all".to_owned() } else { sizes::exact(used) };
    let groups = args.arrays.0.iter().map(|members| format!("--array {}", members.join(" ")));
    let listed: Vec<String> = args.members.iter().cloned().chain(groups).collect();
    let present: Vec<&str> =
        listed.iter().map(String::as_str).filter(|name| !matches!(*name, "missing" | "--array missing")).collect();
    let missing = listed.len() - present.len();
    let absent = if missing > 0 { format!(", {missing} missing") } else { String::new() };
    let first = match (creation.is_clean, level) {
        (_, Level::Linear | Level::Raid0) => "there is no redundancy to make consistent".to_owned(),
        (true, _) => "it is clean and takes requests at once".to_owned(),
        (false, _) => format!("it takes requests at once, and a resync of {each} per member runs beside them"),
    };
    format!(
        "array {}, uuid {}\n  {}; {} slots, {} spares{absent}\n  size {}; {each} of each member, data from {}\n  \
         when served: {first}\n  next: uraid serve {}\n",
        options.set_name.as_str(),
        uuid::text(&options.set_uuid),
        shape.join(", "),
        options.raid_disks,
        options.spare_devices,
        sizes::exact(layout.array_size()),
        sizes::exact(data_offset),
        present.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Sector;
    use uraid_format::Version;
    use uraid_format::signature::Kind;

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
