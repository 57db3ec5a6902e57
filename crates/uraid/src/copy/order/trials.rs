//! Which geometries to try if only the members are known.
//! Owns: layouts, chunks and data offsets worth trying, the likeliest first. Not here: trying them (`uraid_doctor`),
//! the array of a geometry (`assume`).
//! Invariant: given options are not searched for. Each geometry comes once.

use super::super::assume::{self, AssumeError, Geometry};
use uraid_block::{Sector, Sectors};
use uraid_doctor::Trial;
use uraid_format::Version;
use uraid_host::Claimed;
use uraid_layout::{Level, default_chunk, parse_layout};

/// What the command line left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unknown {
    /// `--layout`
    pub layout: bool,
    /// `--chunk`
    pub chunk: bool,
    /// `--data-offset`
    pub data_offset: bool,
}

/// The chunks to try after the default of 512, in KiB. The defaults of mdadm and of other tools come first.
const CHUNKS: [u64; 8] = [64, 128, 256, 32, 1024, 16, 8, 4];

/// Default data offsets of versions 1.1 and 1.2, in sectors, besides the one that `create` computes from the members'
/// sizes. mdadm has 1 MiB from 3.1.2 on. From 3.2.5 on it has 128 MiB (and 1 MiB more with room for a bitmap), and 2
/// MiB for chunks of 512 KiB on small members. Older versions put the data directly after superblock and bitmap.
const OFFSETS: [u64; 7] = [2048, 262_144, 264_192, 4096, 272, 264, 16];

/// A geometry and its addresses.
pub(super) struct Asked {
    pub geometry: Geometry,
    pub trial: Trial,
}

/// The geometries of these members, the likeliest first.
pub(super) fn trials(
    given: &Geometry,
    unknown: Unknown,
    members: &[Option<Claimed>],
) -> Result<Vec<Asked>, AssumeError> {
    let members = spread(given.level, members);
    let mut all: Vec<Asked> = Vec::new();
    let mut refused = None;
    for geometry in geometries(given, unknown) {
        // Skip geometries that do not fit: the members are too small for many of them.
        let asked = match asked(&geometry, &members) {
            Ok(asked) => asked,
            Err(error) => {
                refused.get_or_insert(error);
                continue;
            }
        };
        let key = |asked: &Asked| (asked.trial.layout.spec().clone(), asked.trial.data_offset);
        if all.iter().all(|other| key(other) != key(&asked)) {
            all.push(asked);
        }
    }
    match refused {
        Some(error) if all.is_empty() => Err(error),
        Some(_) | None => Ok(all),
    }
}

fn geometries(given: &Geometry, unknown: Unknown) -> Vec<Geometry> {
    let level = given.level;
    let layouts = if unknown.layout { layouts(given) } else { vec![given.layout] };
    let chunks = if unknown.chunk { chunks(given) } else { vec![given.chunk] };
    let places: Vec<(Version, Option<Sectors>)> = match given.version {
        Version::V1_0 => vec![(Version::V1_0, given.data_offset)],
        Version::V0_90 | Version::V1_1 | Version::V1_2 if !unknown.data_offset => {
            vec![(given.version, given.data_offset)]
        }
        Version::V0_90 | Version::V1_1 | Version::V1_2 => {
            let others = OFFSETS.iter().map(|at| (given.version, Some(Sectors(*at))));
            let defaults = [(given.version, None)].into_iter().chain(others);
            // Old metadata, 0.90 and 1.0, is at the end.
            defaults.chain([(Version::V1_0, None)]).collect()
        }
    };
    let mut all = Vec::new();
    for (version, data_offset) in places {
        for &chunk in &chunks {
            all.extend(layouts.iter().map(|&layout| Geometry {
                level,
                layout,
                chunk,
                version,
                data_offset,
                size: given.size,
            }));
        }
    }
    all
}

/// The layouts that `create` and mdadm make, unless a rare one is given.
fn layouts(given: &Geometry) -> Vec<u32> {
    let names: &[&str] = match given.level {
        Level::Raid5 | Level::Raid6 => &["ls", "la", "rs", "ra"],
        Level::Raid10 => &["n2", "f2", "o2"],
        Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 => return vec![given.layout],
    };
    names.iter().filter_map(|name| parse_layout(given.level, name)).collect()
}

fn chunks(given: &Geometry) -> Vec<Sectors> {
    match given.level {
        Level::Linear | Level::Raid1 => vec![given.chunk],
        Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            let others = CHUNKS.iter().map(|kib| Sectors(kib * 2));
            [default_chunk(given.level)].into_iter().chain(others).collect()
        }
    }
}

fn asked(geometry: &Geometry, members: &[Option<Claimed>]) -> Result<Asked, AssumeError> {
    let creation = assume::creation(geometry, members)?;
    let data_offset = creation.geometry.data_offset;
    let trial = Trial {
        layout: creation.layout,
        data_offset: Sector(data_offset.0),
        member_sizes: creation.superblocks.iter().flatten().map(|superblock| superblock.data_size).collect(),
    };
    // `create` uses the first member's size, and another order has another first member.
    let data_offset = if geometry.version == Version::V1_0 { None } else { Some(data_offset) };
    Ok(Asked { geometry: Geometry { data_offset, ..geometry.clone() }, trial })
}

/// Spreads the missing members between the others. In the named order, a raid10 might lack both copies of a chunk.
fn spread(level: Level, members: &[Option<Claimed>]) -> Vec<Option<Claimed>> {
    if level != Level::Raid10 {
        return members.to_vec();
    }
    let mut missing = members.iter().filter(|member| member.is_none()).count();
    let mut spread = Vec::with_capacity(members.len());
    for member in members.iter().flatten() {
        spread.push(Some(member.clone()));
        if missing > 0 {
            spread.push(None);
            missing -= 1;
        }
    }
    spread.extend(std::iter::repeat_n(None, missing));
    spread
}
