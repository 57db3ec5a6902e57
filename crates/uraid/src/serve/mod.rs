//! `uraid serve`: from names on the command line to running arrays, and back to the shell.
//! Owns: the order of a start, what is said then. Not here: claiming members and assembling them (`opening`), the sockets
//! (`frontends`), what happens while arrays run (`session`).
//! Invariant: privileges are dropped before any serving thread is started.

pub(crate) mod args;
pub(crate) mod assemble;
mod configured;
pub(crate) mod incremental;
mod processor_time;
mod search;
mod spare_groups;

use crate::shared::blank;
use args::ServeArgs;
use search::{Search, SearchError};
use std::process::ExitCode;
use uraid_arrays::Members;
use uraid_control::history;
use uraid_control::log::{self, complain, warn};
use uraid_engine::{AssembleOptions, Place, ReadOnlyReason, StartPlan};
use uraid_host::{Options, drop_privileges, ensure_descriptors, keep_locked_memory};
use uraid_option_values::Processors;
use uraid_serve::background::{self, Detachment};
use uraid_serve::frontend;
use uraid_serve::memory;
use uraid_serve::opening::without_copy::without_copy_line;
use uraid_serve::opening::{ServeError, Timeouts, stack};
use uraid_serve::stack::AssembledStack;
use uraid_serve::{life, session};

/// Threads by default, at most.
const SHARDS_DEFAULT_MAX: usize = 4;

/// Serves until told to stop, or has a process in the background do so.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, ServeError> {
    if args.background && !args.detached {
        // As they were typed, behind the program's name and `serve`.
        return Ok(background::serve(std::env::args_os().skip(2))?);
    }
    let detachment = detachment(args);
    detachment.begin();
    log::begin();
    processor_time::prepare();
    history::begin();
    let configured = if args.scan { Some(configured::array_of(args)?) } else { None };
    let args = configured.as_ref().unwrap_or(args);
    let places = args.places();
    let processors = args.cpus.as_ref().map_or(&[][..], Processors::list).to_vec();
    let shards = args.cpus.as_ref().map(Processors::count).or(args.shards).unwrap_or_else(shards_default);
    let mut groups = args.groups();
    let mut options = AssembleOptions { force: args.force, run: args.run, read_only: args.read_only };
    let member_timeout = (!args.member_timeout.is_zero()).then_some(args.member_timeout);
    if let Some(search) = Search::of(args, member_timeout) {
        let found =
            search.run(&options, || detachment.is_awaited()).map_err(|error| ServeError::Search(error.to_string()))?;
        options.run |= found.run;
        groups = vec![found.names];
    }
    let count = groups.iter().map(Vec::len).sum();
    ensure_descriptors(count, shards).map_err(|source| ServeError::Descriptors { members: count, source })?;
    let timeouts = Timeouts::begin().with_members(member_timeout);
    let mut stack = stack(&groups, &args.spare_groups.0, args.has_member_arrays(), &options, &timeouts)?;
    if let Some(name) = &args.name {
        stack.arrays[0].name.clone_from(name);
    }
    stack.settings.read_errors_max = args.max_read_errors;
    stack.settings.on_full = args.on_full.into();
    stack.tell_apart().map_err(|uuid| ServeError::SameArray { uuid })?;
    let blank = blank::of_stack(&stack);
    let limit = args.memory_limit.map(|limit| limit.bytes());
    let plans = frontend::plans(&places, &stack, &timeouts)?;
    let memory = memory::plan(&stack, shards, &frontend::memory_of(&plans), limit)?;
    let frontends = frontend::listen(&places, plans, &stack, shards, memory.share, &timeouts)?;
    log::add_time();
    for (index, array) in stack.indexes().zip(&stack.arrays) {
        let member = |at: usize| stack.member_name(index, at);
        announce(&array.name, &array.plan, stack.read_only_text(index), member);
    }
    let serves_kernel = frontends.list.iter().any(|frontend| frontend.serves_kernel());
    give_up_privileges(&stack, shards, serves_kernel || args.mlock);
    let options = Options {
        ring: args.ring.into(),
        arenas: memory.arenas,
        spin: args.spin,
        processors,
        member_timeout,
        ..stack.host_options()
    };
    if !detachment.is_awaited() {
        return Err(ServeError::Search(SearchError::NotAwaited.to_string()));
    }
    let stack = stack.into_running(blank);
    life::run(session::Setup { stack, frontends, shards, options, detachment })?;
    Ok(ExitCode::SUCCESS)
}

fn detachment(args: &ServeArgs) -> Detachment {
    match (args.detached, args.background) {
        (false, _) => Detachment::None,
        (true, false) => Detachment::Detached,
        (true, true) => Detachment::NamesLog,
    }
}

/// Drops the privileges before any serving thread is started, so that no thread has them. Before that, opens everything
/// that may need them.
fn give_up_privileges(stack: &AssembledStack, shards: u16, has_disk: bool) {
    let members = stack.arrays.iter().flat_map(|array| match &array.members {
        Members::Claimed(members) => members.as_slice(),
        Members::Arrays(_) => &[],
    });
    members.for_each(|member| member.open_for(shards));
    keep_locked_memory();
    if has_disk {
        frontend::guard();
    }
    if let Err(error) = drop_privileges() {
        complain(&error);
    }
}

fn announce<'a>(name: &str, plan: &StartPlan, read_only: Option<String>, member: impl Fn(usize) -> &'a str) {
    let slots = plan.layout.slots();
    let level = plan.layout.level().name();
    if !plan.missing.is_empty() {
        let missing: Vec<String> = plan.missing.iter().map(|slot| slot.to_string()).collect();
        let present = usize::from(slots) - missing.len();
        warn(&format!("{name}: {level} starts degraded, {present} of {slots} slots, without {}", missing.join(", ")));
    }
    for (at, recovering) in plan.members.iter().enumerate().filter(|_| plan.read_only.is_none()) {
        if let Place::Recovering { slot, below } = recovering.place {
            let (member, size) = (member(at), recovering.superblock.size.0);
            warn(&format!("{name}: {member} ({slot}) holds {} of {size} sectors: its recovery continues", below.0));
        }
        if let Place::Replacing { slot, .. } = recovering.place
            && recovering.is_whole_replacement()
        {
            let second = member(at);
            warn(&format!(
                "{name}: {slot} has two members that hold everything, and {second} is the replacement: both stay; `uraid \
                 replace {name} {}` gives {second} the slot, `uraid fail {name} {second}` leaves it to the other",
                slot.0
            ));
        }
    }
    if let Some(line) = without_copy_line(plan) {
        warn(&format!("{name}: {line}"));
    }
    if let Some(reason) = read_only.filter(|_| plan.read_only != Some(ReadOnlyReason::Requested)) {
        warn(&format!("{name}: opened read-only: {reason}"));
    }
    let is_made_good = plan.ppl.as_ref().is_some_and(|ppl| ppl.is_complete);
    if plan.is_dirty && plan.read_only.is_none() && is_made_good {
        warn(&format!(
            "{name}: was not stopped cleanly: its partial parity log says what to make good, no resync is needed"
        ));
    } else if plan.is_dirty && plan.read_only.is_none() {
        let how_far = if plan.forced.is_dirty_degraded { ", as far as the members that are left allow," } else { "" };
        let what = "was not stopped cleanly or is new: it is made consistent";
        warn(&format!("{name}: {what}{how_far} while it takes requests"));
    }
}

fn shards_default() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(SHARDS_DEFAULT_MAX) as u16
}
