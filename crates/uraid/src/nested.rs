//! Arrays over arrays: one that is made of other arrays of this process.
//! Owns: finding the superblocks that arrays carry, assembling the array that they make up. Not here: how it is
//! driven (`member`, `stack`). Invariant: looking changes nothing on any member.

use crate::errand;
use crate::stack::{Assembled, Members, Stack, StackError};
use crate::world::{ArrayIndex, HostArray};
use crate::{assembly, names, warn};
use std::rc::Rc;
use uraid_block::{Device, IoError, SECTOR_BYTES, Sector, Sectors};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, ReadOnlyReason};
use uraid_format::{FindError, SUPERBLOCK_BYTES, Superblock, SuperblockError, Version, find};
use uraid_host::{CLIENT_ARENA, Local};

/// Why arrays make up no array.
#[derive(Debug, thiserror::Error)]
pub enum NestedError {
    /// They could not be looked at.
    #[error("cannot look what the arrays carry")]
    Run(#[from] StackError),
    /// They carry superblocks that do not fit together.
    #[error("cannot start the array that the arrays make up")]
    Assemble(#[from] AssembleError),
}

/// The array that the arrays of `stack` make up, above them; or the same stack, where they carry none. An array that
/// is no member of it is left out, which is said.
pub fn raise(stack: Stack, options: &AssembleOptions) -> Result<Stack, NestedError> {
    let found = errand::run(&stack, true, |arrays, local| async move { look(&arrays, &local).await })?;
    let mut carriers = Vec::new();
    let mut candidates = Vec::new();
    for (index, places) in found.into_iter().enumerate() {
        match superblock_in(&places) {
            Ok(superblock) => {
                carriers.push(index);
                candidates.push(Candidate { superblock, device_size: places.size });
            }
            Err(error) if is_telling(&error) => {
                crate::complain(&CarriedError { array: stack.arrays[index].name.clone(), source: error });
            }
            Err(_) => {}
        }
    }
    if candidates.is_empty() {
        return Ok(stack);
    }
    let names: Vec<String> = carriers.iter().map(|&carrier| stack.arrays[carrier].name.clone()).collect();
    let mut plan = assembly::decide(&candidates, &names, options)?;
    let is_read_only = |at: usize| stack.arrays[carriers[at]].plan.read_only.is_some();
    if plan.read_only.is_none() && plan.members.iter().any(|member| is_read_only(member.candidate)) {
        // Its first write would fail, and the others' superblocks would say that it is faulty.
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
    let members = Members::Arrays((0..arrays.len()).map(ArrayIndex).collect());
    arrays.push(Assembled { name, plan, members });
    Ok(Stack { arrays, force: stack.force })
}

/// What an array carries cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{array}: carries a superblock that cannot be used")]
struct CarriedError {
    array: String,
    source: FindError<IoError>,
}

/// An array that carries anything but a superblock is the common case.
fn is_telling(error: &FindError<IoError>) -> bool {
    match error {
        FindError::DeviceTooSmall { .. } => false,
        FindError::Read { .. } => true,
        FindError::Superblock { source, .. } => !matches!(source, SuperblockError::Magic { .. }),
    }
}

/// What an array holds where superblocks may be.
struct Places {
    size: Sectors,
    blocks: Vec<(Sector, Result<Vec<u8>, IoError>)>,
}

async fn look(arrays: &[Rc<HostArray>], local: &Local) -> Vec<Places> {
    let mut found = Vec::new();
    for array in arrays {
        let size = array.geometry().size;
        let mut blocks = Vec::new();
        for at in Version::ALL.into_iter().filter_map(|version| version.location(size)) {
            blocks.push((at, read(array, local, at, SUPERBLOCK_BYTES).await));
        }
        found.push(Places { size, blocks });
    }
    found
}

fn superblock_in(places: &Places) -> Result<Superblock, FindError<IoError>> {
    let read = |at: Sector, into: &mut [u8; SUPERBLOCK_BYTES]| {
        let (_, block) = places.blocks.iter().find(|(place, _)| *place == at).expect("every place was read");
        into.copy_from_slice(block.as_ref().map_err(|error| *error)?);
        Ok(())
    };
    find(places.size, read).map(|found| found.superblock)
}

/// Bytes of an array, a whole number of sectors.
pub async fn read(array: &HostArray, local: &Local, at: Sector, bytes: usize) -> Result<Vec<u8>, IoError> {
    assert!(bytes.is_multiple_of(SECTOR_BYTES));
    let buffers = local.arena(CLIENT_ARENA).take(bytes).expect("nobody else has buffers of this shard");
    Ok(array.read(at, buffers).await?.to_vec())
}
