//! Nested arrays: one that is made of other arrays of this process.
//! Owns: finding the superblocks on arrays, assembling the array that they make up. Not here: driving it (`member`,
//! `stack`). Invariant: the search changes nothing on any member.

use crate::offline::one_shot::{self, Arrays};
use crate::stack::assembly::{self, NamedError};
use crate::stack::{Assembled, AssembledStack, StackError};
use uraid_arrays::{ArrayIndex, Members};
use uraid_block::{IoError, SECTOR_BYTES, Sector, Sectors};
use uraid_control::log::warn;
use uraid_control::names;
use uraid_control::report::LeftOut;
use uraid_engine::{AssembleOptions, Candidate, ReadOnlyReason};
use uraid_format::bad_blocks::{self, BadBlockLog, BadBlocksError};
use uraid_format::bitmap::{BitmapHeader, BitmapImage, BitmapUnusable};
use uraid_format::ppl::PplLog;
use uraid_format::{Features, FindError, SUPERBLOCK_BYTES, Superblock, SuperblockError, Version, find};

/// Why arrays make up no array.
#[derive(Debug, thiserror::Error)]
pub enum NestedError {
    /// They could not be read.
    #[error("cannot read what the arrays carry")]
    Run(#[from] StackError),
    /// They carry superblocks that do not fit together.
    #[error("cannot start the array that these arrays are members of")]
    Assemble(#[from] NamedError),
}

/// Adds the array that the arrays of `stack` make up, or returns the same stack if they have no superblocks. An array
/// that is not a member is left out, and this is reported.
pub fn raise(stack: AssembledStack, options: &AssembleOptions) -> Result<AssembledStack, NestedError> {
    let found = one_shot::run(&stack, true, look)?;
    let mut carriers = Vec::new();
    let mut bitmaps = Vec::new();
    let mut candidates = Vec::new();
    let mut left_out = Vec::new();
    for (index, found) in found.into_iter().enumerate() {
        let array = &stack.arrays[index];
        match found {
            Ok(carried) => {
                carriers.push(index);
                bitmaps.push(carried.bitmap);
                let device_size = array.plan.layout.array_size();
                let candidate = Candidate::new(carried.superblock, device_size);
                let bad_blocks = Some(carried.bad);
                candidates.push(Candidate { bad_blocks, ppl: carried.ppl, ..candidate });
            }
            Err(source) if is_telling(&source) => {
                let error = CarriedError { array: array.name.clone(), source };
                uraid_control::log::complain(&error);
                left_out
                    .push(LeftOut { path: array.name.clone(), reason: uraid_control::log::with_causes(&error.source) });
            }
            Err(_) => {}
        }
    }
    if candidates.is_empty() {
        return Ok(stack);
    }
    let carried_by: Vec<String> = carriers.iter().map(|&carrier| stack.arrays[carrier].name.clone()).collect();
    let mut plan = assembly::decide(&candidates, &carried_by, options)?;
    plan.take_bitmaps(|candidate| bitmaps[candidate].clone());
    let is_read_only = |at: usize| stack.arrays[carriers[at]].plan.read_only.is_some();
    if plan.read_only.is_none() && plan.members.iter().any(|member| is_read_only(member.candidate)) {
        // The first write to this member would fail, and the others' superblocks would record it as faulty.
        plan.read_only = Some(ReadOnlyReason::Member);
    }
    let mut by_index: Vec<Option<Assembled>> = stack.arrays.into_iter().map(Some).collect();
    let chosen = plan.members.iter().map(|member| carriers[member.candidate]);
    let mut arrays: Vec<Assembled> =
        chosen.map(|index| by_index[index].take().expect("a candidate is one member")).collect();
    let name = names::short_name(&plan.template.set_name.as_str(), &plan.template.set_uuid);
    for left in by_index.into_iter().enumerate().filter(|(index, _)| !carriers.contains(index)).filter_map(|it| it.1) {
        warn(&format!("{}: left out: the array carries no superblock of {name}", left.name));
    }
    let refused =
        plan.refused.iter().map(|refused| (carried_by[refused.candidate].clone(), refused.reason.to_string()));
    left_out.extend(refused.map(|(path, reason)| LeftOut { path, reason }));
    let members = Members::Arrays((0..arrays.len()).map(ArrayIndex).collect());
    arrays.push(Assembled { name, plan, members, left_out, spare_group: None });
    Ok(AssembledStack::new(arrays, stack.settings.force))
}

/// The superblock on an array is unusable.
#[derive(Debug, thiserror::Error)]
#[error("{array}: carries a superblock that cannot be used")]
struct CarriedError {
    array: String,
    source: LookError,
}

/// Why an array is not a member of another one.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Find(FindError<IoError>),
    #[error("reading the bad-block list failed")]
    ReadList(#[source] IoError),
    #[error(transparent)]
    List(#[from] BadBlocksError),
}

/// Whether to report the error. An array without a superblock is the normal case, and not reported.
fn is_telling(error: &LookError) -> bool {
    match error {
        LookError::Find(FindError::DeviceTooSmall { .. }) => false,
        LookError::Find(FindError::Superblock { source, .. }) => !matches!(source, SuperblockError::Magic { .. }),
        LookError::Find(FindError::Read { .. }) | LookError::ReadList(_) | LookError::List(_) => true,
    }
}

/// The superblock on an array.
struct Carried {
    superblock: Superblock,
    bad: BadBlockLog,
    bitmap: Result<BitmapImage, BitmapUnusable>,
    ppl: Option<PplLog>,
}

async fn look(arrays: &Arrays) -> Vec<Result<Carried, LookError>> {
    let mut found = Vec::new();
    for index in arrays.indexes() {
        found.push(look_at(arrays, index).await);
    }
    found
}

async fn look_at(arrays: &Arrays, index: ArrayIndex) -> Result<Carried, LookError> {
    let size = arrays.geometry(index).size;
    let mut blocks = Vec::new();
    for at in Version::ALL.into_iter().filter_map(|version| version.location(size)) {
        blocks.push((at, arrays.read(index, at, SUPERBLOCK_BYTES).await));
    }
    let superblock = superblock_in(size, &blocks).map_err(LookError::Find)?;
    let bad = match bad_blocks::counting_extent(&superblock)? {
        None => BadBlockLog::default(),
        Some(list) => {
            let bytes = arrays.read(index, list.start, list.length.len_bytes()).await.map_err(LookError::ReadList)?;
            BadBlockLog::parse(&bytes, superblock.bad_blocks.shift)?
        }
    };
    let bitmap = bitmap(arrays, index, &superblock).await;
    let ppl = ppl(arrays, index, &superblock).await;
    Ok(Carried { superblock, bad, bitmap, ppl })
}

/// The bitmap beside a superblock on an array.
async fn bitmap(arrays: &Arrays, index: ArrayIndex, superblock: &Superblock) -> Result<BitmapImage, BitmapUnusable> {
    /// Sectors that are read at once.
    const PIECE: u64 = 128;
    let has_bitmap = superblock.features.contains(Features::BITMAP_OFFSET);
    let place = superblock.bitmap_room(superblock.bitmap_offset).filter(|_| has_bitmap);
    let place = place.ok_or(BitmapUnusable::NoRoom)?;
    let first = arrays.read(index, place.start, SECTOR_BYTES).await.map_err(|_| BitmapUnusable::Unreadable)?;
    let header = BitmapHeader::parse(first.first_chunk().expect("a sector holds the header"))?;
    let used = header.used_sectors();
    BitmapImage::filled(header, place.length)?;
    let mut bytes = Vec::new();
    for at in (0..used.0).step_by(PIECE as usize) {
        let length = Sectors(PIECE.min(used.0 - at)).len_bytes();
        // Bits that cannot be read count as set.
        let piece = arrays.read(index, place.start + Sectors(at), length).await;
        bytes.extend(piece.unwrap_or_else(|_| vec![0xff; length]));
    }
    let start = place.start.0 * SECTOR_BYTES as u64;
    BitmapImage::read_beside(superblock, |at, into| {
        let from = (at - start) as usize;
        into.copy_from_slice(&bytes[from..from + into.len()]);
        true
    })
}

/// The partial parity log beside a superblock on an array. What cannot be read counts as zeroes, which are no log.
async fn ppl(arrays: &Arrays, index: ArrayIndex, superblock: &Superblock) -> Option<PplLog> {
    /// Sectors that are read at once.
    const PIECE: u64 = 128;
    let area = superblock.ppl_extent()?;
    let mut bytes = Vec::new();
    for at in (0..area.length.0).step_by(PIECE as usize) {
        let length = Sectors(PIECE.min(area.length.0 - at)).len_bytes();
        bytes.extend(arrays.read(index, area.start + Sectors(at), length).await.unwrap_or_else(|_| vec![0; length]));
    }
    let start = area.start.0 * SECTOR_BYTES as u64;
    PplLog::read_beside(superblock, |at, into| {
        let from = bytes.get((at - start) as usize..(at - start) as usize + into.len());
        from.inspect(|from| into.copy_from_slice(from)).is_some()
    })
}

/// The superblock in what an array of `size` holds where superblocks may be.
fn superblock_in(
    size: Sectors,
    blocks: &[(Sector, Result<Vec<u8>, IoError>)],
) -> Result<Superblock, FindError<IoError>> {
    let read = |at: Sector, into: &mut [u8; SUPERBLOCK_BYTES]| {
        let (_, block) = blocks.iter().find(|(place, _)| *place == at).expect("every place was read");
        into.copy_from_slice(block.as_ref().map_err(|error| *error)?);
        Ok(())
    };
    find(size, read).map(|found| found.superblock)
}
