//! Running arrays: what each shard does from the first mail to the last.
//! Owns: the order of start, open, close, stop and end over all shards and arrays. Not here: how long a stop may take and
//! what is logged meanwhile (`stopping`), what the parts share (`session`), what one array answers (`overseer`).
//! Invariant: no shard ends before the arrays are stopped, because all shards carry their mail. A member array is
//! started before the array that is made of it, and stopped after it.
//!
//! ```text
//!   shard 0   start -> lines with the URIs -> accept ... told to stop -> Close to all -> all Closed -> stop -> End to
//!   all others    serve the clients that shard 0 gives ... on mail Close let them finish, Closed to shard 0 ... End
//! ```

use crate::lines::progress::PassLines;
use crate::overseer::Overseer;
use crate::overseer::control_socket;
use crate::overseer::paths::WAITS_MAX;
use crate::overseer::silence;
use crate::overseer::spare_groups;
use crate::session::message::Message;
use crate::session::{FIRST, Session, Setup, Station};
use crate::stack::{RunningStack, StackError};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_arrays::{ArrayIndex, HostArray};
use uraid_block::local::{Either, join_all, oneshot, race};
use uraid_block::{Device, SlotSet, sizes};
use uraid_control::history::Event;
use uraid_control::log::{print, warn};
use uraid_control::runtime::service_manager::ServiceManager;
use uraid_engine::{MemberState, PassError, PassKind, Status};
use uraid_host::{LeftBehind, Local, Options, Shard, Signal};

/// How long to wait for the caller of `stop` to take its answer before the process ends anyway.
const LAST_ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a stop waits for a spare that is being moved to another array.
const MOVE_TIME_MAX: Duration = Duration::from_secs(15);

/// Runs the arrays to their end. The members stay open until the process ends: closing a member that does not answer
/// would wait, and the outcome would not be printed.
pub fn run(setup: Setup) -> Result<(), StackError> {
    let setup = Arc::new(setup);
    let of = setup.clone();
    let left_behind = LeftBehind::new(move |members| {
        let_others_claim_but(&of.stack, members);
        say_left_behind(&of.stack, members);
    });
    // The age of requests is tracked even without a limit.
    let member_timeout = setup.options.member_timeout.or(Some(Duration::MAX));
    let (shards, options) = (setup.shards, Options { left_behind, member_timeout, ..setup.options.clone() });
    let outcomes = uraid_host::run(shards, &options, |shard| shard_main(shard, setup.clone()));
    std::mem::forget(setup);
    outcomes.into_iter().collect()
}

/// Releases the members that have answered all requests, whether or not their arrays stopped cleanly: every thread has
/// ended, so nothing reads or writes them any more. Members in `left` may still work on earlier requests.
fn let_others_claim_but(stack: &RunningStack, left: &[String]) {
    let is_known = |name: &String| stack.claimed().any(|(_, member)| member.name() == name);
    // If a name in `left` is unknown, it may stand for any member, so release none.
    if left.iter().all(is_known) {
        let answered = stack.claimed().filter(|(_, member)| !left.iter().any(|name| name == member.name()));
        answered.for_each(|(_, member)| member.release_locks());
    }
}

/// Reports the members for which the kernel keeps this process, although the arrays are stopped.
fn say_left_behind(stack: &RunningStack, members: &[String]) {
    for member in members {
        let found = stack.claimed().find(|(_, claimed)| claimed.name() == member);
        let array = found.map_or("all arrays", |(index, _)| &stack.array(index).name);
        warn(&format!(
            "{array}: member {member} has not answered: the kernel keeps this process, without its sockets, until it does"
        ));
    }
}

async fn shard_main(shard: Shard<Message>, setup: Arc<Setup>) -> Result<(), StackError> {
    let station = Station::new(shard, setup);
    let at = station.clone();
    station.shard.on_mail(move |message| at.hear(message));
    if station.shard.index() == FIRST {
        return first_main(station).await;
    }
    station.heard.wait(|heard| heard.close.get() || heard.end.get()).await;
    if station.heard.close.get() {
        station.close().await;
    }
    station.heard.wait(|heard| heard.end.get()).await;
    Ok(())
}

async fn first_main(station: Rc<Station>) -> Result<(), StackError> {
    let session = Rc::new(Session::new(station.clone()));
    let local: Local = (*station.shard).clone();
    let mut overseers = Vec::new();
    for (index, listener) in station.setup.stack.indexes().zip(&station.setup.frontends.controls) {
        let overseer = Rc::new(Overseer::new(session.clone(), index));
        overseers.push(overseer.clone());
        let asked = session.clone();
        local.spawn(control_socket::serve(local.clone(), listener.clone(), overseer, move || asked.is_stopping()));
    }
    local.spawn(silence::watch(session.clone()));
    if let Some(manager) = ServiceManager::of_environment() {
        let told = session.clone();
        local.spawn(async move { told.keep_told(manager).await });
    }
    let (signal, asked) = (local.terminated(), session.clone());
    local.spawn(async move {
        let signal = signal.await;
        let more = match signal {
            Signal::ProcessorTime => " (the limit on processor time: ulimit -t, LimitCPU=)",
            Signal::Terminate | Signal::Interrupt | Signal::HangUp | Signal::Quit => "",
            Signal::User1 | Signal::User2 | Signal::Alarm | Signal::OtherTimer | Signal::Power => "",
            Signal::Io | Signal::StackFault | Signal::RealTime => "",
        };
        asked.ask_to_stop(&format!("{}{more}", signal.name()), None);
    });
    let outcome = session.live(&overseers).await;
    session.finish(outcome.clone());
    let answers = session.changed.wait_for(|| (session.answers_due.get() == 0).then_some(()));
    race(answers, local.sleep(LAST_ANSWER_TIME_MAX)).await;
    // Close the sockets before any member is closed: a member that does not answer keeps the process, but must not keep
    // the names of its arrays.
    station.setup.frontends.close();
    station.tell_all(|| Message::End);
    station.heard.wait(|heard| heard.end.get()).await;
    outcome
}

impl Session {
    /// From the first start to the last stop.
    async fn live(&self, overseers: &[Rc<Overseer>]) -> Result<(), StackError> {
        let started = self.start_all().await;
        if started.is_ok() && self.setup().stack.indexes().all(|index| self.is_started(index)) {
            self.serve(overseers).await;
        } else {
            self.close_all().await;
        }
        join_all(overseers.iter().map(|overseer| overseer.paths.look(WAITS_MAX))).await;
        overseers.iter().for_each(|overseer| overseer.say_changes());
        let stopped = self.stop_all().await;
        for frontend in &self.setup().frontends.list {
            frontend.leave(&self.station.shard).await;
        }
        overseers.iter().for_each(|overseer| overseer.say_changes());
        overseers.iter().for_each(|overseer| overseer.end_check_of_stop());
        if started.is_ok() && stopped.is_ok() {
            overseers.iter().for_each(|overseer| overseer.paths.say_what_vanishes());
        }
        started.and(stopped)
    }

    /// Starts all member arrays together, then the arrays made of them. Returns early, with success, when told to stop.
    async fn start_all(&self) -> Result<(), StackError> {
        let stack = &self.setup().stack;
        for are_members in [true, false] {
            let floor: Vec<_> = stack.indexes().filter(|&index| stack.is_member(index) == are_members).collect();
            let outcomes = join_all(floor.iter().map(|&index| self.start(index))).await;
            outcomes.into_iter().collect::<Result<(), StackError>>()?;
            if !floor.iter().all(|&index| self.is_started(index)) {
                break;
            }
        }
        Ok(())
    }

    async fn start(&self, index: ArrayIndex) -> Result<(), StackError> {
        let run = &self.runs[index.0];
        let name = &self.setup().stack.array(index).name;
        match race(self.stop_asked(), self.station.arrays[index.0].start()).await {
            Either::Left(()) => {
                warn(&format!("{name}: stopped before it was started"));
                return Ok(());
            }
            Either::Right(Ok(())) => {}
            Either::Right(Err(source)) => {
                // There is no point in starting the others.
                self.ask_to_stop(&format!("{name} could not be started"), Some(index));
                let status = self.station.arrays[index.0].status();
                return Err(self.setup().stack.start_error(index, &status, source));
            }
        }
        run.is_started.set(true);
        if self.array(index).status().pass.is_some() {
            let is_made_good = self.setup().stack.array(index).plan.ppl.as_ref().is_some_and(|ppl| ppl.is_complete);
            self.station.shard.spawn(show_passes(self.array(index), name.clone(), is_made_good));
        }
        Ok(())
    }

    /// Serves until told to stop, then until all clients have gone.
    async fn serve(&self, overseers: &[Rc<Overseer>]) {
        let station = &self.station;
        let local: Local = (*station.shard).clone();
        self.is_ready.set(true);
        for overseer in overseers {
            local.spawn(overseer.clone().watch());
            local.spawn(overseer.paths.clone().watch());
        }
        let (over, moves_over) = oneshot();
        let moves = spare_groups::watch(overseers.to_vec());
        local.spawn(async move {
            moves.await;
            over.send(());
        });
        station.tell_all(|| Message::Serve);
        self.setup().stack.indexes().for_each(|index| self.say_started(index));
        let detachment = self.setup().detachment;
        let frontends = &station.setup.frontends;
        if !detachment.ready(&self.setup().stack.array(frontends.exports[0].array).name) {
            self.ask_to_stop("the command that started it in the background has ended", None);
        }
        let all = 0..frontends.exports.len();
        for frontend in &frontends.list {
            print(&all.clone().map(|export| format!("{}\n", frontend.address(export))).collect::<String>());
        }
        detachment.leave();
        // Who waits until clients are served.
        self.changed.notify_all();
        self.stop_asked().await;
        self.is_ready.set(false);
        race(self.close_all(), self.say_what_clients_wait_for()).await;
        if let Some(text) = station.heard.clients_left.borrow().text() {
            let names: Vec<&str> = station.setup.stack.arrays.iter().map(|array| array.name.as_str()).collect();
            warn(&format!("{}: {text}", names.join(", ")));
        }
        // A spare that has left one array and has not joined the other yet would be in none.
        race(moves_over, local.sleep(MOVE_TIME_MAX)).await;
    }

    /// Lets the clients of all shards finish, and closes their files.
    async fn close_all(&self) {
        let station = &self.station;
        station.tell_all(|| Message::Close);
        station.close().await;
        station.heard.wait(|heard| heard.closed_shards.get() == station.shard.count()).await;
    }

    fn say_started(&self, index: ArrayIndex) {
        let (setup, array) = (self.setup(), self.array(index));
        let (name, status) = (&setup.stack.array(index).name, array.status());
        let addresses = setup.frontends.addresses(index);
        let place = if addresses.is_empty() { "a member of another array".to_owned() } else { addresses.join(" ") };
        let (level, usable, picture) = (array.layout().level().name(), status.usable.count(), status.picture());
        let how = if array.is_read_only() { " read-only" } else { "" };
        let text = format!("{level} is started{how}, {usable} of {} slots {picture}: {place}", status.slots);
        warn(&format!("{name}: {text}"));
        self.note(index, Event::Started, &text);
        let is_degraded = usable < usize::from(status.slots);
        let has_log = setup.stack.array(index).plan.ppl.is_some();
        if array.layout().level().is_parity() && is_degraded && status.is_dirty && !has_log {
            let text = "started dirty and degraded: rows that were being written at the crash may hold wrong data";
            self.note(index, Event::WriteHole, text);
        }
    }
}

/// The slots whose member is being recovered.
fn recovering(status: &Status) -> SlotSet {
    let slots = status.members.iter().filter_map(|member| match member {
        MemberState::Recovering { slot, .. } => Some(*slot),
        MemberState::Active(_)
        | MemberState::Replacing { .. }
        | MemberState::Spare
        | MemberState::Removed
        | MemberState::Faulty { .. } => None,
    });
    slots.collect()
}

/// Shows the progress of the passes that an array starts with, until they end. The end of a recovery whose members have
/// failed is not logged here: another line names the failure. `is_made_good`: a partial parity log leaves no resync to do.
async fn show_passes(array: Rc<HostArray>, name: String, is_made_good: bool) {
    let mut line = PassLines::new(&format!("{name}: "));
    let begun = recovering(&array.status());
    match array.wait(&mut |progress| line.show(&progress)).await {
        Ok(progress) => {
            let status = array.status();
            let has_result = !begun.and(status.usable.or(recovering(&status))).is_empty();
            let has_found = [progress.corrected, progress.unreadable, progress.skipped].iter().any(|it| !it.is_zero());
            let needed_no_resync = progress.kind == PassKind::Resync && is_made_good && !has_found;
            let lost_members = progress.kind == PassKind::Recovery && !has_result;
            // The line of a pass by command is not this one.
            if needed_no_resync || lost_members || progress.kind.is_by_command() {
                line.interrupted();
            } else {
                line.finish(&progress);
            }
        }
        Err(PassError::Frozen(_)) => line.interrupted(),
        Err(PassError::Stopped) => {
            line.interrupted();
            let Some(pass) = array.status().pass else { return };
            let (left, word) = (sizes::binary(pass.total - pass.done), pass.kind.names().word);
            warn(&format!("{name}: stopped with {left} of its {word} left; the next start continues it"));
        }
    }
}
