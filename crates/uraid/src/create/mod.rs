//! `uraid create`: a new array on members that hold nothing of value.
//! Owns: the order of checks and writes, the messages about them. Not here: offsets, sizes, first state, bytes
//! (`uraid_format::create`), reading and writing arrays as members (`over`).
//! Invariant: every member is claimed and checked before any is changed. What was changed is durable before it is
//! reported. Spec: docs/md/formats.md#what-mdadm-creates.

pub(crate) mod args;
mod configured;
mod over;
pub(crate) mod refusal;
pub(crate) mod steps;

use crate::arguments::BitmapPlace;
use args::CreateArgs;
use refusal::{Refusal, check_unoccupied, new_content, with_name, write_failed};
use steps::{NewContent, carry_out, steps};
use uraid_block::sizes::{self, MemberSize};
use uraid_control::log::{print, warn};
use uraid_control::member_name::is_fleeting;
use uraid_control::names;
use uraid_format::create::{CreateOptions, Creation, NewMember, NewPolicy, create};
use uraid_format::signature::Signature;
use uraid_format::{MemberFlag, SetName, Superblock, uuid};
use uraid_host::{Access, Claimed, OpenError};
use uraid_layout::{Level, layout_name};
use uraid_option_values::{MISSING, Policy, chunk_size, layout_number, usage_error};
use uraid_serve::metadata::{self, ClaimError};

/// Makes the array and prints its properties.
pub(crate) fn run(args: &CreateArgs) -> Result<(), Refusal> {
    let set_uuid = args.uuid.unwrap_or_else(|| *::uuid::Uuid::new_v4().as_bytes());
    let options = options(args, set_uuid)?;
    if !args.arrays.0.is_empty() {
        let creation = over::run(args, &options)?;
        print(&names::printable_lines(&summary(args, &options, &creation)));
        return Ok(());
    }
    let members = claim(&args.members).map_err(|error| with_name_hint(error, args))?;
    // Report an impossible geometry before asking whether existing data may be overwritten.
    let listed: Vec<NewMember> = members.iter().map(new_member).collect();
    let mut creation = create(&options, &listed).map_err(|error| with_name(error, &args.members))?;
    creation.give_flags(&args.flags.0).map_err(Refusal::Geometry)?;
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
    let name = args.name.clone().unwrap_or_else(|| uuid::text(&set_uuid)[..8].to_owned());
    let defaults = configured::Defaults::of(args)?;
    let host = names::homehost(defaults.homehost.as_deref());
    let size = match args.size {
        None | Some(MemberSize::Max) => None,
        Some(MemberSize::Exactly(size)) => Some(size),
    };
    Ok(CreateOptions {
        version: defaults.metadata,
        level,
        layout,
        chunk,
        raid_disks: args.raid_devices,
        spare_devices: args.spare_devices,
        size,
        data_offset: args.data_offset,
        set_uuid,
        set_name: SetName::new(&host, &name)?,
        now_seconds: uraid_control::dates::now(),
        assume_clean: args.assume_clean,
        force: args.force,
        policy: policy(args),
    })
}

/// What --consistency-policy and --bitmap say together; ends the process if they contradict each other.
fn policy(args: &CreateArgs) -> NewPolicy {
    if args.write_behind.is_some() {
        if args.level != Level::Raid1 {
            usage_error("--write-behind is for raid1, whose members can be write-mostly");
        }
        if args.bitmap != Some(BitmapPlace::Internal) && args.consistency_policy != Some(Policy::Bitmap) {
            usage_error(
                "--write-behind needs a bitmap, which knows what write-mostly members lack: add --bitmap=internal",
            );
        }
    }
    let bitmap = NewPolicy::Bitmap { chunk: args.bitmap_chunk, write_behind: args.write_behind.unwrap_or(0) };
    match (args.consistency_policy, args.bitmap) {
        (None, None) => NewPolicy::IfLarge,
        (None, Some(BitmapPlace::None)) | (Some(Policy::Resync), None | Some(BitmapPlace::None)) => NewPolicy::Resync,
        (None | Some(Policy::Bitmap), Some(BitmapPlace::Internal)) | (Some(Policy::Bitmap), None) => bitmap,
        (Some(Policy::Ppl), None | Some(BitmapPlace::None)) => NewPolicy::Ppl,
        (Some(policy), Some(place)) => usage_error(&format!(
            "--consistency-policy={policy} and --bitmap={place} contradict each other: give one of them"
        )),
    }
}

/// `None` for [`MISSING`].
fn claim(names: &[String]) -> Result<Vec<Option<Claimed>>, Refusal> {
    let open = |name: &String| match name.as_str() {
        MISSING => Ok(None),
        name if is_fleeting(name) => Err(Refusal::Fleeting { member: name.to_owned() }),
        name => Ok(metadata::claim(name, Access::ReadWrite).map(Some)?),
    };
    names.iter().map(open).collect()
}

/// `mdadm --create /dev/md0 ... MEMBER...`: the device's name stands before the members.
fn with_name_hint(error: Refusal, args: &CreateArgs) -> Refusal {
    let Some(first) = args.members.first() else { return error };
    let is_first = matches!(
        &error,
        Refusal::Claim(ClaimError::Open(OpenError::NotFound { path })) if path.as_os_str() == first.as_str()
    );
    let is_like_a_name = !first.contains('/') || first.starts_with("/dev/md");
    let is_hinted = is_first && is_like_a_name && args.name.is_none();
    if is_hinted { Refusal::NameFirst { member: first.clone() } } else { error }
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
    let flags = flags_text(&listed, creation);
    let bitmap = match (&creation.bitmap, level) {
        (_, Level::Linear | Level::Raid0) => String::new(),
        (Some(bitmap), _) => {
            let (chunks, chunk) = (bitmap.header().chunks(), sizes::exact(bitmap.header().chunk()));
            let behind = behind_text(bitmap.header().write_behind, creation);
            format!(
                "  bitmap: internal, {chunks} chunks of {chunk}; after a crash only dirty ones are resynced\n{behind}"
            )
        }
        (None, _) if options.policy == NewPolicy::Ppl => {
            "  consistency policy: ppl; after a crash nothing is resynced\n".to_owned()
        }
        (None, _) => "  bitmap: none; after a crash all of it is resynced\n".to_owned(),
    };
    format!(
        "array {}, uuid {}\n  {}; {} slots, {} spares{absent}\n{flags}  size {}; {each} of each member, data from {}\n{bitmap}  \
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

/// A line about write-behind, if the array has it.
fn behind_text(writes: u32, creation: &Creation) -> String {
    let is_slow = |own: &Superblock| own.has_flag(MemberFlag::WriteMostly);
    let has_any = creation.superblocks.iter().flatten().any(is_slow);
    match writes {
        0 => String::new(),
        _ if has_any => format!("  write-behind: at most {writes} writes, on write-mostly members\n"),
        _ => format!(
            "  write-behind: at most {writes} writes, on members that `uraid write-mostly` names: there are none yet\n"
        ),
    }
}

/// A line for each flag that members have: `  write-mostly: b.img`.
fn flags_text(listed: &[String], creation: &Creation) -> String {
    let with = |flag: MemberFlag| {
        let members = listed.iter().zip(&creation.superblocks);
        let members = members.filter(|(_, superblock)| superblock.as_ref().is_some_and(|own| own.has_flag(flag)));
        let names: Vec<&str> = members.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("  {}: {}\n", flag.name(), names.join(", ")))
    };
    MemberFlag::ALL.into_iter().filter_map(with).collect()
}
