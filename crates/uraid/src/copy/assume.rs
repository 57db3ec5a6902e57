//! An array whose superblocks are lost, by a geometry that the user knows.
//! Owns: the superblocks that `create` would write for it, in memory only. Not here: offsets and sizes
//! (`uraid_format::create`), running it (`one_shot`), finding an unknown order (`uraid_doctor`).
//! Invariant: the members' content is neither examined nor changed.

use uraid_arrays::Members;
use uraid_block::Sectors;
use uraid_block::sizes;
use uraid_engine::{AssembleOptions, Candidate, assemble};
use uraid_format::create::{CreateError, CreateOptions, Creation, NewMember, NewPolicy, create};
use uraid_format::{SetName, Version};
use uraid_host::{Access, Claimed};
use uraid_layout::{Level, layout_name};
use uraid_serve::assembly::NamedError;
use uraid_serve::metadata::{self, ClaimError};
use uraid_serve::stack::{Assembled, AssembledStack};

/// The options that the array was made with; `None` for `create`'s default.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    /// The level.
    pub level: Level,
    /// md's number of the layout.
    pub layout: u32,
    /// The chunk; zero where the level has none.
    pub chunk: Sectors,
    /// The version of the lost superblocks: it determines where data starts.
    pub version: Version,
    /// Where data starts on each member.
    pub data_offset: Option<Sectors>,
    /// How much of each member is used.
    pub size: Option<Sectors>,
}

/// Why there is no such array.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssumeError {
    /// A member could not be claimed.
    #[error("nothing was copied")]
    Claim(#[from] ClaimError),
    /// The number of slots is not that of the members.
    #[error("{found} members are listed, expected {expected}: one for each slot, or the word missing")]
    Count {
        /// Members and `missing`s.
        found: usize,
        expected: u16,
    },
    /// Such an array is impossible.
    #[error("no array can have this geometry on these members")]
    Geometry(#[source] CreateError),
    /// Such an array is impossible because of one member.
    #[error("no array can have this geometry on these members: {member}")]
    Member {
        member: String,
        /// What is wrong with it.
        source: CreateError,
    },
    /// The array that these members make up cannot be started.
    #[error("cannot start the array")]
    Assemble(#[from] NamedError),
}

/// Claims members for reading; `None` for `missing`.
pub(super) fn claim(names: &[String]) -> Result<Vec<Option<Claimed>>, AssumeError> {
    let open = |name: &String| match name.as_str() {
        "missing" => Ok(None),
        name => Ok(metadata::claim(name, Access::ReadOnly).map(Some)?),
    };
    names.iter().map(open).collect()
}

/// The array of these members, in the order of their slots, and one line that identifies it.
pub(super) fn open(geometry: &Geometry, members: &[Option<Claimed>]) -> Result<(AssembledStack, String), AssumeError> {
    let creation = creation(geometry, members)?;
    let mut claimed = Vec::new();
    let mut candidates = Vec::new();
    for (member, superblock) in members.iter().zip(creation.superblocks) {
        if let (Some(member), Some(superblock)) = (member, superblock) {
            candidates.push(Candidate::new(superblock, member.size()));
            claimed.push(member.clone());
        }
    }
    let options = AssembleOptions { force: false, run: true, read_only: true };
    let of_candidates: Vec<String> = claimed.iter().map(|member: &Claimed| member.name().to_owned()).collect();
    let plan = assemble(&candidates, &options).map_err(|error| NamedError::new(error, &of_candidates))?;
    let members_of_plan = plan.members.iter().map(|member| claimed[member.candidate].clone()).collect();
    let names: Vec<&str> = members.iter().map(|member| member.as_ref().map_or("missing", Claimed::name)).collect();
    let text = format!(
        "assumed {} from sector {} of {}, {} bytes",
        shape(geometry),
        creation.geometry.data_offset.0,
        names.join(" ").replace(char::is_control, "?"),
        plan.layout.array_size().bytes()
    );
    let array = Assembled {
        name: "assumed".to_owned(),
        plan,
        members: Members::Claimed(members_of_plan),
        left_out: Vec::new(),
        spare_group: None,
    };
    Ok((AssembledStack::new(vec![array], false), text))
}

/// `raid5, left-symmetric, chunk 64K`.
pub(super) fn shape(geometry: &Geometry) -> String {
    let mut parts = vec![geometry.level.name().to_owned(), layout_name(geometry.level, geometry.layout)];
    if !geometry.chunk.is_zero() {
        parts.push(format!("chunk {}", sizes::chunk(geometry.chunk)));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// What `create` would make of these members.
pub(super) fn creation(geometry: &Geometry, members: &[Option<Claimed>]) -> Result<Creation, AssumeError> {
    let slots = u16::try_from(members.len()).unwrap_or(u16::MAX);
    let options = CreateOptions {
        version: geometry.version,
        level: geometry.level,
        layout: geometry.layout,
        chunk: geometry.chunk,
        raid_disks: slots,
        spare_devices: 0,
        size: geometry.size,
        data_offset: geometry.data_offset,
        // Any value will do: it is the same for all of these members, and is not written to them.
        set_uuid: [0x5a; 16],
        set_name: SetName::new("", "assumed").expect("a short name"),
        now_seconds: uraid_control::dates::now(),
        assume_clean: true,
        force: true,
        policy: NewPolicy::Resync,
    };
    let device = |(slot, member): (usize, &Option<Claimed>)| match member {
        None => NewMember::Missing,
        Some(member) => {
            let mut uuid = [0; 16];
            uuid[..8].copy_from_slice(&(slot as u64 + 1).to_le_bytes());
            NewMember::Device { size: member.size(), uuid }
        }
    };
    let listed: Vec<NewMember> = members.iter().enumerate().map(device).collect();
    create(&options, &listed).map_err(|source| {
        let member = source.member().and_then(|at| members.get(at));
        match member {
            Some(member) => {
                let member = member.as_ref().map_or("missing", Claimed::name).to_owned();
                AssumeError::Member { member, source }
            }
            None => AssumeError::Geometry(source),
        }
    })
}
