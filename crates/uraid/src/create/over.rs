//! `uraid create --array`: a new array whose members are arrays.
//! Owns: the arrays as members: their sizes, the marks in them, the writes through them. Not here: the checks and
//! messages for members of any kind (`create`), offsets, sizes, bytes (`uraid_format::create`).
//! Invariant: nothing is written before all is checked; each array is stopped again, as clean as it was.

use super::args::CreateArgs;
use crate::create::refusal::{self, Refusal};
use crate::create::steps::{Step, What, steps};
use uraid_arrays::ArrayIndex;
use uraid_block::{IoError, SECTOR_BYTES, Sector, Sectors};
use uraid_engine::AssembleOptions;
use uraid_format::Superblock;
use uraid_format::create::{CreateOptions, Creation, NewMember};
use uraid_format::signature::{self, Signature};
use uraid_serve::one_shot::{self, Arrays};
use uraid_serve::opening::{self, Timeouts};
use uraid_serve::stack::AssembledStack;

/// Makes the array; returns its geometry and superblocks.
pub(crate) fn run(args: &CreateArgs, options: &CreateOptions) -> Result<Creation, Refusal> {
    let is_missing = |members: &[String]| matches!(members, [only] if only == "missing");
    let present: Vec<Vec<String>> = args.arrays.0.iter().filter(|members| !is_missing(members)).cloned().collect();
    let permission = AssembleOptions::default();
    let arrays = opening::assemble_all(&present, &permission, &Timeouts::begin()).map_err(Box::new)?;
    let mut stack = AssembledStack::new(arrays, false);
    stack.tell_apart().map_err(|uuid| Box::new(opening::ServeError::SameArray { uuid }))?;
    let mut arrays = stack.arrays.iter();
    let mut listed = Vec::new();
    let mut names = Vec::new();
    for members in &args.arrays.0 {
        let (name, member) = match (!is_missing(members)).then(|| arrays.next()).flatten() {
            None => ("missing", NewMember::Missing),
            Some(array) => {
                let uuid = *::uuid::Uuid::new_v4().as_bytes();
                (array.name.as_str(), NewMember::Device { size: array.plan.layout.array_size(), uuid })
            }
        };
        names.push(name.to_owned());
        listed.push(member);
    }
    let creation = uraid_format::create::create(options, &listed);
    let mut creation = creation.map_err(|error| refusal::with_name(error, &names))?;
    creation.give_flags(&args.flags.0).map_err(Refusal::Geometry)?;
    let names: Vec<String> = stack.arrays.iter().map(|array| array.name.clone()).collect();
    let marks = marks_of(&stack, &names)?;
    refusal::check_unoccupied(&names, &marks, args.may_overwrite())?;
    let superblocks: Vec<&Superblock> = creation.superblocks.iter().flatten().collect();
    let sizes = stack.arrays.iter().map(|array| array.plan.layout.array_size());
    let content = superblocks.iter().zip(&marks).zip(sizes);
    let content: Vec<_> = content.map(|((it, marks), size)| refusal::new_content(it, marks, size, &creation)).collect();
    let steps = steps(&content);
    one_shot::run(&stack, false, async |arrays| carry_out(arrays, &steps).await)?.map_err(|(at, source)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        refusal::write_failed(&steps, at, &names, source)
    })?;
    Ok(creation)
}

/// The signatures in each array. The search changes nothing.
fn marks_of(stack: &AssembledStack, names: &[String]) -> Result<Vec<Vec<Signature>>, Refusal> {
    let look = async |arrays: &Arrays| {
        let mut marks = Vec::new();
        for index in arrays.indexes() {
            marks.push(marks_in(arrays, index).await);
        }
        marks
    };
    let found = one_shot::run(stack, true, look)?;
    let named = found.into_iter().zip(names);
    named.map(|(marks, name)| marks.map_err(|source| Refusal::Read { member: name.clone(), source })).collect()
}

async fn marks_in(arrays: &Arrays, index: ArrayIndex) -> Result<Vec<Signature>, IoError> {
    let size = arrays.geometry(index).size;
    let part = Sectors(size.0.min((signature::WINDOW_BYTES / SECTOR_BYTES) as u64));
    let head = arrays.read(index, Sector(0), part.len_bytes()).await?;
    let tail = arrays.read(index, Sector(size.0 - part.0), part.len_bytes()).await?;
    Ok(signature::detect_all(&head, &tail, size))
}

/// Runs all steps; returns the first that failed, and why.
async fn carry_out(arrays: &Arrays, steps: &[Step]) -> Result<(), (usize, IoError)> {
    for (nth, step) in steps.iter().enumerate() {
        let index = ArrayIndex(step.member);
        let outcome = match &step.what {
            What::Wipe(range) => arrays.write(index, range.start, &vec![0; range.length.len_bytes()]).await,
            What::Write(at, bytes) => arrays.write(index, *at, bytes).await,
            What::Sync => arrays.flush(index).await,
        };
        outcome.map_err(|error| (nth, error))?;
    }
    Ok(())
}
