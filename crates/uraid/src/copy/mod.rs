//! `uraid copy`: the bytes of an array, to a file, a block device or a pipe.
//! Owns: messages, how a copy is resumed, how it ends. Not here: assembling the array (`opening`), reading (`copy_reader`),
//! writing (`writer`, `output`), the state of each sector (`map`).
//! Invariant: nothing is written to a member. Exit code 0 means that every sector was copied.
//! It never imports `doctor`, nor `doctor` it: here the order of members is searched for (`order`), there it is known.

pub(crate) mod args;
mod assume;
mod incomplete;
mod map;
mod occupied;
mod order;
mod output;
mod output_error;
mod reshaped;
mod writer;

use args::CopyArgs;
use assume::{AssumeError, Geometry};
use map::{Map, MapError, State};
use occupied::Earlier;
use order::{OrderError, Search, Unknown};
use output::{Before, Output};
use output_error::OutputError;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uraid_arrays::{ArrayIndex, Members};
use uraid_block::local::{Either, race};
use uraid_block::sizes;
use uraid_block::{IoError, Range, Sector, Sectors, Slot, SlotSet};
use uraid_control::log::warn;
use uraid_control::member_name;
use uraid_engine::{AssembleOptions, Place, StartPlan, assemble_half_reshaped};
use uraid_format::uuid;
use uraid_host::Access;
use uraid_layout::Level;
use uraid_option_values::{chunk_size, layout_number};
use uraid_serve::assembly::NamedError;
use uraid_serve::copy_reader::gone::Gone;
use uraid_serve::copy_reader::queue::Queue;
use uraid_serve::copy_reader::{self, Outcome};
use uraid_serve::nested;
use uraid_serve::one_shot::{self, Arrays};
use uraid_serve::opening::{self, ServeError, Timeouts};
use uraid_serve::progress::ProgressLine;
use uraid_serve::stack::{Assembled, AssembledStack, StackError};
use writer::{WriteError, Writer, Written};

/// How long the output may take to finish its writes in flight when the copy is told to stop.
const LAST_WRITES_TIME_MAX: Duration = Duration::from_secs(5);
/// How often to check whether the output has finished.
const WRITER_LOOK: Duration = Duration::from_millis(5);
/// The most stretches listed on stderr if there is no map.
const LISTED_MAX: usize = 20;

/// Why not all was copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// There is no array.
    #[error(transparent)]
    Open(#[from] ServeError),
    /// No array can have that geometry.
    #[error(transparent)]
    Assume(#[from] AssumeError),
    /// No order was chosen.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The members are of several arrays.
    #[error("{arrays}: they carry no superblocks of an outer array: copy each by itself, without --array")]
    Several { arrays: String },
    /// `--size` without a meaning.
    #[error(
        "--size has no effect here, and nothing was copied: with --assume it says how much of each member was used, and \
         otherwise how much data the missing members of a raid0 or linear array held"
    )]
    SizeUnused,
    /// The array did not start.
    #[error(transparent)]
    Run(#[from] StackError),
    /// OUT may not be written.
    #[error("nothing was copied")]
    Output(#[from] OutputError),
    /// The map of an earlier copy may not be followed.
    #[error("nothing was copied")]
    Map(#[from] MapError),
    /// The system has no more threads.
    #[error("cannot start the thread that writes")]
    Thread(#[source] io::Error),
    /// Writing OUT failed.
    #[error("{copied} are copied{again}")]
    Write { copied: String, again: &'static str, source: WriteError },
    /// The array can no longer be read.
    #[error("{copied} are copied; the array cannot be read from sector {at} on{again}", at = at.0)]
    Read {
        copied: String,
        again: &'static str,
        /// The first sector that was not read.
        at: Sector,
        source: IoError,
    },
    /// A signal interrupted the copy.
    #[error("interrupted: {copied} are copied{again}")]
    Interrupted { copied: String, again: &'static str },
    /// The copy ran to its end, but sectors are missing.
    #[error("{sectors} sectors could not be read and are zeroes in the copy, {listed}; all others are copied")]
    Lost {
        sectors: u64,
        /// Where they are listed.
        listed: String,
    },
}

/// Copies, and says what was copied.
pub(crate) fn run(args: &CopyArgs) -> Result<(), CopyError> {
    if args.order {
        return search(args);
    }
    let source = if args.assume {
        let members = assume::claim(&args.members)?;
        check_count(args, members.len())?;
        let (stack, identity) = assume::open(&geometry(args), &members)?;
        Source::of_one(stack, identity)
    } else {
        assemble(args)?
    };
    Copy::prepare(args, source)?.run()
}

/// What is copied.
struct Source {
    stack: AssembledStack,
    /// Tells this copy from others, in one line.
    identity: String,
    /// The ranges of the source and the array that each is read from; adjacent, from sector 0 on.
    parts: Vec<(Range, ArrayIndex)>,
}

impl Source {
    /// The source is all of the last array. All other arrays are members of it.
    fn of_one(stack: AssembledStack, identity: String) -> Source {
        let last = stack.indexes().next_back().expect("a stack has an array");
        let all = Range::new(Sector(0), stack.array(last).plan.layout.array_size());
        Source { stack, identity, parts: vec![(all, last)] }
    }

    fn size(&self) -> Sectors {
        Sectors(self.parts.iter().map(|(range, _)| range.length.0).sum())
    }
}

/// The array that the superblocks describe: a single one, or one whose members are all the others.
fn assemble(args: &CopyArgs) -> Result<Source, CopyError> {
    let options = AssembleOptions { force: args.force, run: args.run, read_only: true };
    let timeouts = Timeouts::begin();
    let mut arrays = Vec::new();
    for members in args.groups() {
        let mut opened = opening::open(&members, Access::ReadOnly, &timeouts)?;
        let takes_size = incomplete::complete(&mut opened, &options, args.size);
        if args.size.is_some() && !takes_size {
            return Err(CopyError::SizeUnused);
        }
        if !args.has_member_arrays()
            && let Some(outcome) = assemble_half_reshaped(&opened.candidates, &options)
        {
            let names = opened.names();
            let both = outcome.map_err(|error| {
                reshaped::announce_positions(&opened);
                ServeError::from(NamedError::new(error, &names))
            })?;
            return Ok(reshaped::source(&opened, both, options.force));
        }
        arrays.push(opened.assemble(&options).map_err(ServeError::from)?);
    }
    let stack = AssembledStack::new(arrays, options.force);
    let stack =
        if args.has_member_arrays() { nested::raise(stack, &options).map_err(ServeError::from)? } else { stack };
    let tops = stack.tops();
    if tops.len() > 1 {
        let names: Vec<&str> = tops.into_iter().map(|index| stack.array(index).name.as_str()).collect();
        return Err(CopyError::Several { arrays: names.join(", ") });
    }
    let identity = identity(&stack);
    Ok(Source::of_one(stack, identity))
}

fn check_count(args: &CopyArgs, found: usize) -> Result<(), AssumeError> {
    let expected = args.raid_devices.expect("clap requires it");
    if found == usize::from(expected) { Ok(()) } else { Err(AssumeError::Count { found, expected }) }
}

/// Prints the ranking of all orders, and copies by one of them if OUT is given.
fn search(args: &CopyArgs) -> Result<(), CopyError> {
    let slots = usize::from(args.raid_devices.expect("clap requires it"));
    let mut names = args.members.clone();
    // The last argument is OUT if there is one more than slots.
    let has_out = names.len() == slots;
    if !has_out {
        names.push(args.out.to_string_lossy().into_owned());
    }
    check_count(args, names.len())?;
    let members = assume::claim(&names)?;
    let unknown =
        Unknown { layout: args.layout.is_none(), chunk: args.chunk.is_none(), data_offset: args.data_offset.is_none() };
    let search = Search::run(&geometry(args), unknown, members)?;
    if !has_out {
        uraid_control::log::print(&search.text());
        return Ok(());
    }
    // The copy may go to standard output, so the ranking goes to stderr.
    search.text().lines().for_each(warn);
    let (geometry, members) = search.choose(args.candidate)?;
    let (stack, identity) = assume::open(&geometry, &members)?;
    Copy::prepare(args, Source::of_one(stack, identity))?.run()
}

/// The geometry of the command line, with `create`'s defaults.
fn geometry(args: &CopyArgs) -> Geometry {
    let level = args.level.expect("clap requires it");
    let layout = layout_number(level, args.layout.as_deref());
    let chunk = chunk_size(level, args.chunk);
    Geometry { level, layout, chunk, version: args.metadata, data_offset: args.data_offset, size: args.size }
}

/// A copy that is ready to start.
struct Copy {
    source: Source,
    output: Output,
    map: Map,
    save_to: Option<PathBuf>,
    out: PathBuf,
}

impl Copy {
    /// Checks what exists already at OUT and its map. If this fails, nothing of value has changed.
    fn prepare(args: &CopyArgs, source: Source) -> Result<Copy, CopyError> {
        let (size, identity) = (source.size(), &source.identity);
        let is_stream = output::is_stream(&args.out);
        let save_to = args.map.clone().or_else(|| (!is_stream).then(|| beside(&args.out)));
        let (old, earlier) = match save_to.as_ref().filter(|_| !is_stream).map(|path| Map::load(path, identity, size)) {
            // It begins anew, but what an earlier run wrote may be replaced.
            Some(found) if args.overwrite => (None, found.ok().flatten()),
            Some(found) => found.map(|map| (map.clone(), map))?,
            None => (None, None),
        };
        let earlier = earlier.map(|map| Earlier { map, is_beside: args.map.is_none() });
        let before = match (&old, args.overwrite) {
            (_, true) => Before::GivenUp,
            (Some(map), false) if map.count(State::Untried) == size => Before::Begun,
            (Some(_), false) => Before::Resumed,
            (None, false) => Before::Nothing,
        };
        let given = args.groups().concat();
        save_to.as_deref().map_or(Ok(()), Map::may_be_saved)?;
        let output = Output::open(&args.out, &given, size, before, earlier.as_ref())?;
        let map = old.unwrap_or_else(|| Map::new(identity, size));
        if let Some(path) = &save_to {
            for path in map::files(path) {
                output.refuse_map(&path, &given)?;
            }
            map.save(path)?;
        }
        output.begin()?;
        Ok(Copy { source, output, map, save_to, out: args.out.clone() })
    }

    fn run(self) -> Result<(), CopyError> {
        let began = Instant::now();
        let Copy { source: Source { stack, parts, .. }, output, map, save_to, out } = self;
        announce(&stack, &map, &out);
        // Untried sectors come first: a dying disk may fail while bad sectors are retried.
        let work: Vec<Range> = [State::Untried, State::Lost].into_iter().flat_map(|state| map.of(state)).collect();
        let done = map.count(State::Copied);
        let (writer, queue) = Writer::start(output, map, save_to.clone()).map_err(CopyError::Thread)?;
        let gone: Vec<Option<Arc<Gone>>> = stack.arrays.iter().map(|array| Gone::of(array).map(Arc::new)).collect();
        let allocated = allocated(&stack);
        // The only shard takes this. It is a mutex because the closure must be shareable between threads.
        let queue: Mutex<Option<Queue>> = Mutex::new(Some(queue));
        let task = async |arrays: &Arrays| {
            let queue = queue.lock().ok().and_then(|mut queue| queue.take()).expect("one shard takes it once");
            let mut line = ProgressLine::new("copy");
            let source = copy_reader::Source { parts: &parts, gone: &gone, allocated };
            let outcome = copy_reader::read_all(arrays, &source, &work, &queue, &mut line, done).await;
            line.clear();
            drop(queue);
            // Data may still wait for the output while a signal must be handled.
            let mut signal = pin!(arrays.local().terminated());
            while matches!(outcome, Outcome::Done) && !writer.is_finished() {
                if let Either::Left(_) = race(signal.as_mut(), arrays.local().sleep(WRITER_LOOK)).await {
                    return Outcome::Interrupted;
                }
            }
            outcome
        };
        let outcome = match one_shot::run(&stack, true, task) {
            Ok(outcome) => outcome,
            Err(error) => {
                drop(writer.end(Some(LAST_WRITES_TIME_MAX)));
                return Err(error.into());
            }
        };
        let time_max = matches!(outcome, Outcome::Interrupted).then_some(LAST_WRITES_TIME_MAX);
        finish(outcome, writer.end(time_max), save_to.as_deref(), &out, began.elapsed())
    }
}

/// The default name of the map.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".map");
    name.into()
}

/// Identifies this copy. A copy with another identity is not resumed: it is of another array, or the array has been
/// written since, or its members hold other data.
fn identity(stack: &AssembledStack) -> String {
    let Assembled { plan, members, .. } = stack.arrays.last().expect("a stack has an array");
    let size = plan.layout.array_size();
    let mut text = format!("{}, {} bytes, {} events", uuid::text(&plan.template.set_uuid), size.bytes(), plan.events);
    stack.arrays.iter().flat_map(|array| peculiarities(&array.plan)).for_each(|one| text.push_str(&one));
    // Without redundancy, the array's own event count does not change when clients write. So take what its members
    // record: the event counts of member arrays, or the modification times of files. All members are there.
    let over: Vec<String> = match (plan.layout.level(), members) {
        (Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10, _) => return text,
        (Level::Linear | Level::Raid0, Members::Arrays(members)) => {
            members.iter().map(|&member| stack.array(member).plan.events.to_string()).collect()
        }
        (Level::Linear | Level::Raid0, Members::Claimed(members)) => {
            members.iter().map(|member| written(member.name())).collect()
        }
    };
    format!("{text} over {}", over.join(", "))
}

/// What can make the bytes of these members differ from those of other members of the same array at the same event
/// count. Empty if all used members are current and none ran apart from the others.
fn peculiarities(plan: &StartPlan) -> Vec<String> {
    let of_table = plan.template.roles.iter().filter_map(|role| role.slot());
    let listed: SlotSet = of_table.filter(|slot| slot.0 < plan.layout.slots()).collect();
    // Each of two halves that ran apart lists the other one as failed.
    let failed = (0..plan.layout.slots()).map(Slot).filter(|slot| !listed.contains(*slot));
    let stale = plan.members.iter().filter(|member| plan.forced.raised.contains(&member.candidate));
    let stale = stale.filter_map(|member| match member.place {
        Place::Slot(slot) => Some(format!(", {slot} at {} events", member.superblock.events)),
        Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
    });
    let computed = plan.missing.iter().filter(|_| plan.forced.is_dirty_degraded);
    let computed = computed.map(|slot| format!(", {slot} computed though dirty"));
    failed.map(|slot| format!(", {slot} failed")).chain(stale).chain(computed).collect()
}

/// When a member was last written; unknown for a device.
fn written(member: &str) -> String {
    let status = member_name::resolve(member).ok().and_then(|target| std::fs::metadata(target.path).ok());
    let file = status.filter(|status| status.is_file());
    file.map_or_else(|| "?".to_owned(), |file| format!("{}.{:09}", file.mtime(), file.mtime_nsec()))
}

fn announce(stack: &AssembledStack, map: &Map, out: &Path) {
    for Assembled { name, plan, .. } in stack.arrays.iter().filter(|array| !array.plan.missing.is_empty()) {
        let (level, slots) = (plan.layout.level().name(), plan.layout.slots());
        let missing: Vec<String> = plan.missing.iter().map(|slot| slot.0.to_string()).collect();
        let present = usize::from(slots) - missing.len();
        let without = missing.join(", ");
        warn(&format!("{name}: {level} is copied degraded, {present} of {slots} slots, without {without}"));
    }
    let is_mirror = |level: Level| matches!(level, Level::Raid1 | Level::Raid10);
    let one_copy =
        |array: &&Assembled| array.plan.is_dirty && is_mirror(array.plan.layout.level()) && !stack.settings.force;
    for Assembled { name, .. } in stack.arrays.iter().filter(one_copy) {
        warn(&format!(
            "{name}: was not stopped cleanly: one copy of each sector is read; --force reads the others too"
        ));
    }
    let (copied, lost) = (map.count(State::Copied), map.count(State::Lost));
    if !copied.is_zero() || !lost.is_zero() {
        let copied = sizes::binary(copied);
        warn(&format!("{}: goes on: {copied} are copied, {} sectors were unreadable", out.display(), lost.0));
    }
}

/// Of how many bytes of the members space is taken, and how many they have. A block device has no holes.
fn allocated(stack: &AssembledStack) -> (u64, u64) {
    let members = stack.arrays.iter().flat_map(|array| match &array.members {
        Members::Claimed(members) => members.as_slice(),
        Members::Arrays(_) => &[],
    });
    members.fold((0, 0), |(taken, bytes), member| {
        let (of_member, size) = member.allocated().unwrap_or((member.size().bytes(), member.size().bytes()));
        (taken + of_member, bytes + size)
    })
}

fn finish(
    outcome: Outcome,
    written: Option<Written>,
    save_to: Option<&Path>,
    out: &Path,
    took: Duration,
) -> Result<(), CopyError> {
    let can_go_on = save_to.is_some() && !output::is_stream(out);
    let again = if can_go_on { "; the same command continues from there" } else { "" };
    let Some(written) = written else {
        return Err(CopyError::Interrupted { copied: "it is not known how many sectors".to_owned(), again: "" });
    };
    let copied = sizes::binary(written.map.count(State::Copied));
    written.outcome.map_err(|source| CopyError::Write { copied: copied.clone(), again, source })?;
    match outcome {
        Outcome::Failed { at, error } => return Err(CopyError::Read { copied, again, at, source: error }),
        Outcome::Interrupted => return Err(CopyError::Interrupted { copied, again }),
        Outcome::Done => (),
        Outcome::WriterEnded => unreachable!("a writer that ended early has said why"),
    }
    let seconds = took.as_secs_f64();
    warn(&format!("{}: copy done: {copied} in {seconds:.1} s", out.display()));
    let lost = written.map.of(State::Lost);
    if lost.is_empty() {
        return Ok(());
    }
    let listed = match save_to {
        Some(map) => format!("listed in {}", map.display()),
        None => {
            for range in lost.iter().take(LISTED_MAX) {
                warn(&format!("unreadable: {} sectors from sector {}", range.length.0, range.start.0));
            }
            let more = lost.len().saturating_sub(LISTED_MAX);
            if more == 0 { "listed above".to_owned() } else { format!("listed above but for {more} stretches") }
        }
    };
    Err(CopyError::Lost { sectors: written.map.count(State::Lost).0, listed })
}
