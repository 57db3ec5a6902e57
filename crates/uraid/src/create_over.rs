//! `uraid create --array`: a new array whose members are arrays.
//! Owns: the arrays as members: their sizes, the marks in them, the writes through them. Not here: what is checked and
//! said for members of any kind (`create`), offsets, sizes, bytes (`uraid_format::create`).
//! Invariant: nothing is written before all is checked; each array is stopped again, as clean as it was.

use crate::cli::CreateArgs;
use crate::create::{self, Refusal};
use crate::errand;
use crate::metadata::MetadataError;
use crate::nested::read;
use crate::serve::{self, Patience};
use crate::stack::Stack;
use crate::world::HostArray;
use std::rc::Rc;
use uraid_block::{Device, Fua, IoError, Range, SECTOR_BYTES, Sector, Sectors};
use uraid_engine::AssembleOptions;
use uraid_format::Superblock;
use uraid_format::create::{CreateOptions, Creation, NewMember, writes};
use uraid_format::signature::{self, Signature};
use uraid_host::{CLIENT_ARENA, Local};

/// Makes the array; gives what it is like.
pub fn run(args: &CreateArgs, options: &CreateOptions) -> Result<Creation, Refusal> {
    let is_missing = |members: &[String]| matches!(members, [only] if only == "missing");
    let present: Vec<Vec<String>> = args.arrays.0.iter().filter(|members| !is_missing(members)).cloned().collect();
    let permission = AssembleOptions::default();
    let arrays = serve::assemble_all(&present, &permission, &Patience::begin()).map_err(Box::new)?;
    let mut stack = Stack { arrays, force: false };
    stack.tell_apart().map_err(|uuid| Box::new(serve::ServeError::SameArray { uuid }))?;
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
    let creation = uraid_format::create::create(options, &listed).map_err(|error| create::with_name(error, &names))?;
    let names: Vec<String> = stack.arrays.iter().map(|array| array.name.clone()).collect();
    let marks = marks_of(&stack, &names)?;
    create::check_unoccupied(&names, &marks, args.may_overwrite())?;
    let superblocks: Vec<&Superblock> = creation.superblocks.iter().flatten().collect();
    let sizes = stack.arrays.iter().map(|array| array.plan.layout.array_size());
    let plan = superblocks.iter().zip(&marks).zip(sizes);
    let plan: Vec<Writes> = plan.map(|((it, marks), size)| Writes::new(it, marks, size, &creation)).collect();
    let write = |arrays: Vec<Rc<HostArray>>, local: Local| {
        let (plan, names) = (&plan, &names);
        async move { write_all(&arrays, &local, plan, names).await }
    };
    errand::run(&stack, false, write)??;
    Ok(creation)
}

/// The marks in each array, which are looked for without changing anything.
fn marks_of(stack: &Stack, names: &[String]) -> Result<Vec<Vec<Signature>>, Refusal> {
    let look = |arrays: Vec<Rc<HostArray>>, local: Local| async move {
        let mut marks = Vec::new();
        for array in &arrays {
            marks.push(marks_in(array, &local).await);
        }
        marks
    };
    let found = errand::run(stack, true, look)?;
    let named = found.into_iter().zip(names);
    named.map(|(marks, name)| marks.map_err(|source| Refusal::Read { member: name.clone(), source })).collect()
}

async fn marks_in(array: &HostArray, local: &Local) -> Result<Vec<Signature>, IoError> {
    let size = array.geometry().size;
    let part = Sectors(size.0.min((signature::WINDOW_BYTES / SECTOR_BYTES) as u64));
    let head = read(array, local, Sector(0), part.len_bytes()).await?;
    let tail = read(array, local, Sector(size.0 - part.0), part.len_bytes()).await?;
    Ok(signature::detect_all(&head, &tail, size))
}

/// What is written to one member: the old metadata goes first, everywhere, the superblock comes last.
struct Writes {
    zeroes: Vec<Range>,
    made: Vec<(Sector, Vec<u8>)>,
}

impl Writes {
    fn new(superblock: &Superblock, marks: &[Signature], device_size: Sectors, creation: &Creation) -> Writes {
        let marks = marks.iter().filter(|mark| create::may_wipe(mark, superblock, creation));
        Writes { zeroes: marks.map(|mark| mark.extent(device_size)).collect(), made: writes(superblock) }
    }
}

async fn write_all(arrays: &[Rc<HostArray>], local: &Local, plan: &[Writes], names: &[String]) -> Result<(), Refusal> {
    let mut changed: Vec<String> = Vec::new();
    for is_first_round in [true, false] {
        for ((array, writes), name) in arrays.iter().zip(plan).zip(names) {
            if is_first_round {
                changed.push(name.clone());
            }
            let (action, outcome) = match is_first_round {
                true => ("wiping the old metadata", wipe(array, local, writes).await),
                false => ("writing the superblock", write_new(array, local, writes).await),
            };
            outcome.map_err(|source| Refusal::Write {
                changed: changed.clone(),
                source: MetadataError::Io { member: name.clone(), action, source },
            })?;
        }
    }
    Ok(())
}

async fn wipe(array: &HostArray, local: &Local, writes: &Writes) -> Result<(), IoError> {
    for zeroes in &writes.zeroes {
        write(array, local, zeroes.start, &vec![0; zeroes.length.len_bytes()]).await?;
    }
    array.flush().await
}

async fn write_new(array: &HostArray, local: &Local, writes: &Writes) -> Result<(), IoError> {
    for (at, bytes) in &writes.made {
        write(array, local, *at, bytes).await?;
        array.flush().await?;
    }
    Ok(())
}

async fn write(array: &HostArray, local: &Local, at: Sector, bytes: &[u8]) -> Result<(), IoError> {
    let mut buffers = local.arena(CLIENT_ARENA).take(bytes.len()).expect("nobody else has buffers of this shard");
    buffers.copy_from(bytes);
    array.write(at, buffers.freeze(), Fua::No).await
}
