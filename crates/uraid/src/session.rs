//! Running arrays: what each shard does from the first mail to the last.
//! Owns: the order of start, open, close, stop and end over all shards and arrays. Not here: how long a stop may take and
//! what it says meanwhile (`stopping`), sockets' protocols (`export-nbd`, `control`), what one array answers (`overseer`),
//! any state of an array (`engine`).
//! Invariant: no shard ends before the arrays are stopped, because all shards carry their mail. A member array is
//! started before the array that is made of it, and stopped after it.
//!
//! ```text
//!   shard 0   start -> lines with the URIs -> accept ... told to stop -> Close to all -> all Closed -> stop -> End to
//!   all others    serve the clients that shard 0 gives ... on mail Close let them finish, Closed to shard 0 ... End
//! ```

mod stopping;

use crate::clients::ClientLog;
use crate::frontends::Frontends;
use crate::message::{ArrayCounts, ClientsLeft, Message};
use crate::overseer::Overseer;
use crate::paths::WAITS_MAX;
use crate::progress::ProgressLine;
use crate::report::UNANSWERED_MIN;
use crate::stack::{MemberPath, Stack, StackError};
use crate::{control, print, warn, watch};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stopping::Waits;
use uraid_arrays::{ArrayIndex, ArrayMail, HostArray, Members};
use uraid_block::local::{Either, Notify, Semaphore, join_all, race};
use uraid_block::sizes;
use uraid_block::{Sectors, ShardIndex, Tick};
use uraid_engine::PassError;
use uraid_export_nbd::{Export, Limits, Server, Statistics};
use uraid_host::{Claimed, LeftBehind, Local, Options, Shard, Signal, Stream};

/// How long to wait for the caller of `stop` to take its answer before the process ends anyway.
const LAST_ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// How long clients get to take their last replies.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);
/// How long the shards may take to send their counts.
const COUNTING_TIME_MAX: Duration = Duration::from_secs(1);
/// The shard that runs the engine's stewards, the control sockets and the signals.
const FIRST: ShardIndex = ShardIndex(0);

/// The inputs of a session.
pub(crate) struct Setup {
    /// The arrays.
    pub stack: Stack,
    /// The sockets.
    pub frontends: Frontends,
    pub shards: u16,
    /// The host's options.
    pub options: Options,
    /// How many clients each thread serves.
    pub limits: Limits,
    /// What each member is called. Computed before anything is served: resolving links reads the path, and the
    /// directory's server may hang.
    pub paths: Vec<Vec<MemberPath>>,
}

/// Runs the arrays to their end. The members stay open until the process ends: closing one that does not answer would
/// block before the outcome is reported.
pub(crate) fn run(setup: Setup) -> Result<(), StackError> {
    let setup = Arc::new(setup);
    let of = setup.clone();
    let left_behind = LeftBehind::new(move |members| {
        let_others_claim_but(&of.stack, members);
        say_left_behind(&of.stack, members);
    });
    // Even without a limit the age of requests must be known.
    let member_timeout = setup.options.member_timeout.or(Some(Duration::MAX));
    let (shards, options) = (setup.shards, Options { left_behind, member_timeout, ..setup.options.clone() });
    let outcomes = uraid_host::run(shards, &options, |shard| shard_main(shard, setup.clone()));
    std::mem::forget(setup);
    outcomes.into_iter().collect()
}

/// The claimed members of all arrays.
fn claimed(stack: &Stack) -> impl Iterator<Item = (ArrayIndex, &Claimed)> {
    stack.indexes().flat_map(|index| match &stack.array(index).members {
        Members::Claimed(members) => members.iter().map(|member| (index, member)).collect(),
        Members::Arrays(_) => Vec::new(),
    })
}

/// Releases all members except those in `left`, which still have requests in flight. All threads have ended, so nothing
/// reads or writes the others.
fn let_others_claim_but(stack: &Stack, left: &[String]) {
    let is_known = |name: &String| claimed(stack).any(|(_, member)| member.name() == name);
    // If one of the names is unknown, any member may be the one with requests in flight: release none.
    if left.iter().all(is_known) {
        let answered = claimed(stack).filter(|(_, member)| !left.iter().any(|name| name == member.name()));
        answered.for_each(|(_, member)| member.release_locks());
    }
}

/// Reports that the arrays are stopped but the kernel does not end this process.
fn say_left_behind(stack: &Stack, members: &[String]) {
    for member in members {
        let found = claimed(stack).find(|(_, claimed)| claimed.name() == member);
        let array = found.map_or("all arrays", |(index, _)| &stack.array(index).name);
        warn(&format!(
            "{array}: member {member} did not answer until the end: the kernel keeps this process, without its sockets, \
             until it does"
        ));
    }
}

/// The messages that one shard has received, and the tasks waiting for them.
#[derive(Default)]
struct Heard {
    close: Cell<bool>,
    end: Cell<bool>,
    closed_shards: Cell<u16>,
    clients_left: RefCell<ClientsLeft>,
    counts: RefCell<BTreeMap<ShardIndex, (Vec<ArrayCounts>, Statistics)>>,
    changed: Notify,
}

impl Heard {
    async fn wait(&self, what: impl Fn(&Heard) -> bool) {
        self.changed.wait_for(|| what(self).then_some(())).await;
    }
}

/// NBD on one shard.
type NbdServer = Server<Local, Stream, HostArray>;

/// The objects of one shard.
struct Station {
    shard: Shard<Message>,
    setup: Arc<Setup>,
    /// By [`ArrayIndex`].
    arrays: Vec<Rc<HostArray>>,
    nbd: Rc<NbdServer>,
    heard: Heard,
}

async fn shard_main(shard: Shard<Message>, setup: Arc<Setup>) -> Result<(), StackError> {
    let arrays = uraid_arrays::build(&shard, &setup.stack.setups(false), &setup.options);
    let exports = setup.frontends.exports.iter().map(|export| {
        let (assembled, array) = (setup.stack.array(export.array), arrays[export.array.0].clone());
        let description = format!("{} {}", assembled.name, array.layout().level().name());
        let read_only = export.read_only || assembled.plan.read_only.is_some();
        (Export { name: export.name.clone(), description, read_only }, array)
    });
    let nbd = Server::new((*shard).clone(), exports.collect(), setup.limits.clone());
    let (of, local, clients) = (setup.clone(), (*shard).clone(), ClientLog::default());
    nbd.log_to(move |news| clients.note(&of, news, local.unix_seconds()));
    let station = Rc::new(Station { shard, setup, arrays, nbd, heard: Heard::default() });
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

impl Station {
    fn hear(&self, message: Message) {
        let heard = &self.heard;
        match message {
            Message::Array(ArrayMail { array, mail }) => return self.arrays[array.0].deliver(mail),
            Message::Client(socket) => return self.nbd.adopt(socket, self.setup.frontends.spread.clone()),
            Message::CountsWanted => {
                let of = |array: &Rc<HostArray>| (array.counters(), array.member_counts());
                let counts = self.arrays.iter().map(of);
                let counts = counts.map(|(requests, members)| ArrayCounts { requests, members }).collect();
                return self.shard.post(FIRST, Message::Counts(self.shard.index(), counts, self.nbd.statistics()));
            }
            Message::Counts(of, counts, clients) => drop(heard.counts.borrow_mut().insert(of, (counts, clients))),
            Message::Close => heard.close.set(true),
            Message::End => heard.end.set(true),
            Message::Closed(left) => {
                heard.clients_left.borrow_mut().add(left);
                heard.closed_shards.set(heard.closed_shards.get() + 1);
            }
        }
        heard.changed.notify_all();
    }

    /// Lets this shard's clients finish, and reports that to shard 0.
    async fn close(&self) {
        let requests = self.nbd.stop(DRAIN_TIME_MAX).await;
        // The requests of one shard's clients wait for members on other shards, too.
        let members = self.unanswering();
        self.shard.post(FIRST, Message::Closed(ClientsLeft { requests, members }));
    }

    /// The members that have kept a request of this shard for a while.
    fn unanswering(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (index, array) in self.setup.stack.indexes().zip(&self.arrays) {
            let counts = array.member_counts();
            let slow = (0..).zip(&counts).filter(|(_, counts)| counts.unanswered_for >= UNANSWERED_MIN);
            names.extend(slow.map(|(member, _)| self.setup.stack.member_name(index, member).to_owned()));
        }
        names
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for index in 0..self.shard.count() {
            self.shard.post(ShardIndex(index), message());
        }
    }
}

async fn first_main(station: Rc<Station>) -> Result<(), StackError> {
    let session = Rc::new(Session::new(station.clone()));
    let local: Local = (*station.shard).clone();
    let mut overseers = Vec::new();
    for (index, listener) in station.setup.stack.indexes().zip(&station.setup.frontends.controls) {
        let overseer = Rc::new(Overseer::new(session.clone(), index));
        overseers.push(overseer.clone());
        let asked = session.clone();
        local.spawn(control::serve(local.clone(), listener.clone(), overseer, move || asked.is_stopping()));
    }
    let (signal, asked) = (local.terminated(), session.clone());
    local.spawn(async move {
        let name = match signal.await {
            Signal::Terminate => "SIGTERM",
            Signal::Interrupt => "SIGINT",
            Signal::HangUp => "SIGHUP",
        };
        asked.ask_to_stop(name, None);
    });
    let outcome = session.live(&overseers).await;
    session.finish(outcome.clone());
    let answers = session.changed.wait_for(|| (session.answers_due.get() == 0).then_some(()));
    race(answers, local.sleep(LAST_ANSWER_TIME_MAX)).await;
    // Remove the sockets before any member is closed: a member that does not answer blocks the process, but must not
    // keep the names of its arrays in use.
    station.setup.frontends.close();
    station.tell_all(|| Message::End);
    station.heard.wait(|heard| heard.end.get()).await;
    outcome
}

/// The state of one array's run.
#[derive(Default)]
struct Run {
    is_started: Cell<bool>,
    waits: RefCell<Waits>,
}

/// The process as a whole; on shard 0.
pub(crate) struct Session {
    station: Rc<Station>,
    /// By [`ArrayIndex`].
    runs: Vec<Run>,
    /// One round of counting at a time.
    counting: Rc<Semaphore>,
    is_ready: Cell<bool>,
    /// When a stop was asked for.
    stop_began: Cell<Option<Tick>>,
    answers_due: Cell<usize>,
    outcome: RefCell<Option<Result<(), StackError>>>,
    changed: Notify,
}

impl Session {
    fn new(station: Rc<Station>) -> Session {
        Session {
            runs: station.arrays.iter().map(|_| Run::default()).collect(),
            station,
            counting: Semaphore::new(1),
            is_ready: Cell::new(false),
            stop_began: Cell::new(None),
            answers_due: Cell::new(0),
            outcome: RefCell::new(None),
            changed: Notify::new(),
        }
    }

    /// The inputs of the session.
    pub(crate) fn setup(&self) -> &Setup {
        &self.station.setup
    }

    /// Shard 0.
    pub(crate) fn local(&self) -> Local {
        (*self.station.shard).clone()
    }

    /// One of the arrays, on shard 0.
    pub(crate) fn array(&self, index: ArrayIndex) -> Rc<HostArray> {
        self.station.arrays[index.0].clone()
    }

    /// Whether clients are served.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.get()
    }

    /// Logs the reason of the first call for all arrays except the failed one, whose error is the outcome.
    fn ask_to_stop(&self, reason: &str, failed: Option<ArrayIndex>) {
        if !self.is_stopping() {
            self.stop_began.set(Some(self.station.shard.now()));
            let stack = &self.setup().stack;
            let others = stack.indexes().filter(|&index| Some(index) != failed);
            others.for_each(|index| warn(&format!("{}: stops: {reason}", stack.array(index).name)));
        }
        self.changed.notify_all();
    }

    /// Whether a stop was asked for.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_began.get().is_some()
    }

    async fn stop_asked(&self) {
        self.changed.wait_for(|| self.is_stopping().then_some(())).await;
    }

    fn finish(&self, outcome: Result<(), StackError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.changed.notify_all();
    }

    /// A caller has asked for a stop. [`Session::stop_answered`] must follow.
    pub(crate) fn answer_is_due(&self) {
        self.answers_due.set(self.answers_due.get() + 1);
    }

    /// Stops all arrays; returns when they are stopped.
    pub(crate) async fn stop(&self) -> Result<(), StackError> {
        self.ask_to_stop("`uraid stop`", None);
        self.changed.wait_for(|| self.outcome.borrow().clone()).await
    }

    /// The caller has been told how the stop ended, or is gone.
    pub(crate) fn stop_answered(&self) {
        self.answers_due.set(self.answers_due.get() - 1);
        self.changed.notify_all();
    }

    /// The counts of each shard for one array, and the sum over the clients of the process. If a shard is slow, only
    /// what has arrived in time.
    pub(crate) async fn counts(&self, of: ArrayIndex) -> (Vec<ArrayCounts>, Statistics) {
        let _one = self.counting.acquire(1).await;
        let (shard, heard) = (&self.station.shard, &self.station.heard);
        heard.counts.borrow_mut().clear();
        self.station.tell_all(|| Message::CountsWanted);
        let all = heard.wait(|heard| heard.counts.borrow().len() >= usize::from(shard.count()));
        race(all, shard.sleep(COUNTING_TIME_MAX)).await;
        let all = heard.counts.borrow();
        let mut clients = Statistics::default();
        all.values().for_each(|(_, shard)| clients += *shard);
        (all.values().map(|(counts, _)| counts[of.0].clone()).collect(), clients)
    }

    /// From the first start to the last stop.
    async fn live(&self, overseers: &[Rc<Overseer>]) -> Result<(), StackError> {
        let started = self.start_all().await;
        if started.is_ok() && self.setup().stack.indexes().all(|index| self.is_started(index)) {
            self.serve(overseers).await;
        }
        join_all(overseers.iter().map(|overseer| overseer.paths.look(WAITS_MAX))).await;
        overseers.iter().for_each(|overseer| overseer.say_changes());
        let stopped = self.stop_all().await;
        overseers.iter().for_each(|overseer| overseer.say_changes());
        if started.is_ok() && stopped.is_ok() {
            overseers.iter().for_each(|overseer| overseer.paths.say_what_vanishes());
        }
        started.and(stopped)
    }

    fn is_started(&self, index: ArrayIndex) -> bool {
        self.runs[index.0].is_started.get()
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
                // The others would be started in vain.
                self.ask_to_stop(&format!("{name} could not be started"), Some(index));
                let status = self.station.arrays[index.0].status();
                return Err(self.setup().stack.start_error(index, &status, source));
            }
        }
        run.is_started.set(true);
        if self.array(index).status().resync.is_some() {
            self.station.shard.spawn(show_resync(self.array(index), name.clone()));
        }
        Ok(())
    }

    /// Serves until told to stop, then until all clients have gone.
    async fn serve(&self, overseers: &[Rc<Overseer>]) {
        let station = &self.station;
        let local: Local = (*station.shard).clone();
        self.is_ready.set(true);
        for overseer in overseers {
            local.spawn(watch::members(overseer.clone(), local.clone()));
            local.spawn(overseer.paths.clone().watch());
        }
        let frontends = &station.setup.frontends;
        let (spread, at) = (frontends.spread.clone(), station.clone());
        let give = move |to, socket| at.shard.post(to, Message::Client(socket));
        local.spawn(station.nbd.clone().listen(frontends.nbd.clone(), spread, give));
        self.setup().stack.indexes().for_each(|index| self.say_started(index));
        print(&frontends.exports.iter().map(|export| format!("{}\n", export.uri)).collect::<String>());
        self.stop_asked().await;
        self.is_ready.set(false);
        station.tell_all(|| Message::Close);
        let drained = async {
            station.close().await;
            station.heard.wait(|heard| heard.closed_shards.get() == station.shard.count()).await;
        };
        race(drained, self.say_what_clients_wait_for()).await;
        if let Some(text) = station.heard.clients_left.borrow().text() {
            let names: Vec<&str> = station.setup.stack.arrays.iter().map(|array| array.name.as_str()).collect();
            warn(&format!("{}: {text}", names.join(", ")));
        }
    }

    fn say_started(&self, index: ArrayIndex) {
        let (setup, array) = (self.setup(), self.array(index));
        let (name, status) = (&setup.stack.array(index).name, array.status());
        let exports = setup.frontends.exports.iter().filter(|export| export.array == index);
        let uris: Vec<&str> = exports.map(|export| export.uri.as_str()).collect();
        let place = if uris.is_empty() { "a member of another array".to_owned() } else { uris.join(" ") };
        let (level, usable, picture) = (array.layout().level().name(), status.usable.count(), status.picture());
        warn(&format!("{name}: {level} is started, {usable} of {} slots {picture}: {place}", status.slots));
    }
}

/// Shows how far the resync of an array is, until it ends.
async fn show_resync(array: Rc<HostArray>, name: String) {
    let mut line = ProgressLine::new(&format!("{name}: resync"));
    match array.wait(|progress| line.show(progress.done, progress.total)).await {
        Ok(progress) => line.finish(&progress),
        Err(PassError::Frozen(_)) => line.interrupted(),
        Err(PassError::Stopped) => {
            line.interrupted();
            let left = array.status().resync.map_or(Sectors::ZERO, |progress| progress.total - progress.done);
            let left = sizes::binary(left);
            warn(&format!("{name}: stopped with {left} of its resync left; the next start goes on there"));
        }
    }
}
