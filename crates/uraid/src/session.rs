//! A running array: what each shard does from the first mail to the last.
//! Owns: the order of start, open, close, stop and end over all shards; the answers of the control socket; what is
//! said on stderr while the array runs. Not here: sockets' protocols (`export-nbd`, `control`), any state of the array
//! (`engine`). Invariant: no shard ends before the array is stopped, because all of them carry its mail.
//!
//! ```text
//!   shard 0   start -> line with the URI -> accept ... told to stop -> Close to all -> all Closed -> stop -> End to all
//!   others    serve the clients that shard 0 gives ... on mail Close let them finish, Closed to shard 0 ... End
//! ```

use crate::control::{self, Controlled};
use crate::detail;
use crate::progress::ProgressLine;
use crate::report::{self, Counts, Member, Report, Resync};
use crate::rpc::{Method, RpcError};
use crate::serve::Faces;
use crate::watch;
use crate::world::{HostWorld, Letter};
use crate::{client, print, warn};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, Semaphore, race};
use uraid_block::{ShardIndex, Slot};
use uraid_engine::view::Gate;
use uraid_engine::{Array, Config, Counters, MemberState, Progress, StartError, StartPlan, Status, StopError};
use uraid_export_nbd::{Export, Limits, Server};
use uraid_host::{Claimed, Local, Options, Shard, Stream};

/// How long the answer to `stop` may take to leave before the process ends all the same.
const LAST_ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// How long clients get to take their last replies.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);
/// How long the shards may take to say what they have counted.
const COUNTING_TIME_MAX: Duration = Duration::from_secs(1);
/// The shard that the engine's steward, the control socket and the signals are on.
const FIRST: ShardIndex = ShardIndex(0);

/// Why a session ended badly.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionError {
    /// It never got ready.
    #[error("the array could not be started")]
    Start(#[from] StartError),
    /// It is stopped, but not as it should be.
    #[error("the array was stopped")]
    Stop(#[from] StopError),
}

/// All that a session starts from.
pub struct Setup {
    /// The array's name.
    pub name: String,
    /// Who stands where.
    pub plan: StartPlan,
    /// Members in the order of the plan.
    pub members: Vec<Claimed>,
    /// Where it is reached.
    pub faces: Faces,
    /// The operator said `--force`.
    pub force: bool,
    /// Threads.
    pub shards: u16,
    /// How the machine is set up.
    pub host_options: Options,
}

impl Setup {
    fn is_read_only(&self) -> bool {
        self.plan.read_only.is_some()
    }
}

/// Runs the array to its end.
pub fn run(setup: Setup) -> Result<(), SessionError> {
    let (shards, options) = (setup.shards, setup.host_options.clone());
    let setup = Arc::new(setup);
    let outcomes = uraid_host::run(shards, &options, |shard| shard_main(shard, setup.clone()));
    outcomes.into_iter().collect()
}

/// What one shard has heard so far, and what waits for it.
#[derive(Default)]
struct Heard {
    close: Cell<bool>,
    end: Cell<bool>,
    closed_shards: Cell<u16>,
    counts: RefCell<BTreeMap<ShardIndex, Counters>>,
    changed: Notify,
}

impl Heard {
    async fn wait(&self, what: impl Fn(&Heard) -> bool) {
        self.changed.wait_for(|| what(self).then_some(())).await;
    }
}

/// NBD on one shard.
type NbdServer = Server<Local, Stream, Array<HostWorld>>;

/// What one shard works with.
struct Station {
    shard: Shard<Letter>,
    setup: Arc<Setup>,
    array: Rc<Array<HostWorld>>,
    nbd: Rc<NbdServer>,
    heard: Heard,
}

async fn shard_main(shard: Shard<Letter>, setup: Arc<Setup>) -> Result<(), SessionError> {
    let members = setup.members.iter().map(|member| member.on_shard(&shard)).collect();
    let config = Config { read_only: setup.is_read_only(), force: setup.force, ..Config::default() };
    let array = Array::new(HostWorld(shard.clone()), &setup.plan, members, config);
    let export = Export {
        name: setup.faces.export.clone(),
        description: format!("{} {}", setup.name, array.layout().level().name()),
        read_only: setup.is_read_only(),
    };
    let nbd = Server::new((*shard).clone(), vec![(export, array.clone())], Limits::default());
    let station = Rc::new(Station { shard, setup, array, nbd, heard: Heard::default() });
    let at = station.clone();
    station.shard.on_mail(move |letter| at.hear(letter));
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
    fn hear(&self, letter: Letter) {
        let heard = &self.heard;
        match letter {
            Letter::Engine(mail) => return self.array.deliver(mail),
            Letter::Client(socket) => return self.nbd.adopt(socket, self.setup.faces.spread.clone()),
            Letter::CountsWanted => {
                return self.shard.post(FIRST, Letter::Counts(self.shard.index(), self.array.counters()));
            }
            Letter::Counts(of, counts) => drop(heard.counts.borrow_mut().insert(of, counts)),
            Letter::Close => heard.close.set(true),
            Letter::End => heard.end.set(true),
            Letter::Closed => heard.closed_shards.set(heard.closed_shards.get() + 1),
        }
        heard.changed.notify_all();
    }

    /// Lets this shard's clients finish, and says so to shard 0.
    async fn close(&self) {
        let left = self.nbd.stop(DRAIN_TIME_MAX).await;
        if left > 0 {
            warn(&format!("{}: {left} requests are still under way after {DRAIN_TIME_MAX:?}", self.setup.name));
        }
        self.shard.post(FIRST, Letter::Closed);
    }

    fn tell_all(&self, letter: impl Fn() -> Letter) {
        for index in 0..self.shard.count() {
            self.shard.post(ShardIndex(index), letter());
        }
    }
}

async fn first_main(station: Rc<Station>) -> Result<(), SessionError> {
    let session = Rc::new(Session::new(station.clone()));
    let local: Local = (*station.shard).clone();
    local.spawn(control::serve(local.clone(), station.setup.faces.control.clone(), session.clone()));
    let (signal, asked) = (local.terminated(), session.clone());
    local.spawn(async move {
        signal.await;
        asked.ask_to_stop();
    });
    let outcome = first_life(&station, &session).await;
    session.finish(outcome.clone());
    let answers = session.changed.wait_for(|| (session.answers_due.get() == 0).then_some(()));
    race(answers, local.sleep(LAST_ANSWER_TIME_MAX)).await;
    station.tell_all(|| Letter::End);
    station.heard.wait(|heard| heard.end.get()).await;
    outcome
}

async fn first_life(station: &Rc<Station>, session: &Rc<Session>) -> Result<(), SessionError> {
    let setup = &station.setup;
    let mut line = ProgressLine::new("resync");
    let show = |progress: Progress| {
        session.progress.set(Some(progress));
        line.show(progress.done, progress.total);
    };
    match race(session.stop_asked(), session.array.start(show)).await {
        Either::Left(()) => {
            // Not by the array's `stop`: what the resync has not reached must stay marked dirty.
            line.interrupted();
            warn(&format!("{}: stopped before it was consistent; the next start begins anew", setup.name));
            return Ok(());
        }
        Either::Right(outcome) => outcome?,
    }
    if let Some(progress) = session.progress.take() {
        line.finish(&progress);
    }
    session.is_ready.set(true);
    let local: Local = (*station.shard).clone();
    local.spawn(watch::members(session.clone(), local.clone()));
    let (spread, at) = (setup.faces.spread.clone(), station.clone());
    let give = move |to, socket| at.shard.post(to, Letter::Client(socket));
    local.spawn(station.nbd.clone().listen(setup.faces.nbd.clone(), spread, give));
    print(&format!("{}\n", setup.faces.uri));
    session.stop_asked().await;
    session.is_ready.set(false);
    station.tell_all(|| Letter::Close);
    station.close().await;
    station.heard.wait(|heard| heard.closed_shards.get() == station.shard.count()).await;
    Ok(session.array.stop().await?)
}

/// The array as the control socket and the watch see it; on shard 0.
pub struct Session {
    station: Rc<Station>,
    setup: Arc<Setup>,
    array: Rc<Array<HostWorld>>,
    /// One round of counting at a time.
    counting: Rc<Semaphore>,
    progress: Cell<Option<Progress>>,
    is_ready: Cell<bool>,
    is_stop_asked: Cell<bool>,
    answers_due: Cell<usize>,
    outcome: RefCell<Option<Result<(), SessionError>>>,
    changed: Notify,
}

impl Session {
    fn new(station: Rc<Station>) -> Session {
        Session {
            setup: station.setup.clone(),
            array: station.array.clone(),
            station,
            counting: Semaphore::new(1),
            progress: Cell::new(None),
            is_ready: Cell::new(false),
            is_stop_asked: Cell::new(false),
            answers_due: Cell::new(0),
            outcome: RefCell::new(None),
            changed: Notify::new(),
        }
    }

    fn ask_to_stop(&self) {
        self.is_stop_asked.set(true);
        self.changed.notify_all();
    }

    async fn stop_asked(&self) {
        self.changed.wait_for(|| self.is_stop_asked.get().then_some(())).await;
    }

    fn finish(&self, outcome: Result<(), SessionError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.changed.notify_all();
    }

    /// What the array says about itself.
    pub fn status(&self) -> Status {
        self.array.status()
    }

    /// The array's name.
    pub fn name(&self) -> &str {
        &self.setup.name
    }

    /// What member `index` of the plan was named on the command line.
    pub fn member_name(&self, index: usize) -> &str {
        self.setup.members[index].name()
    }

    /// What all shards have counted; what has come after a while where one is slow.
    async fn counts(&self) -> Counts {
        let _one = self.counting.acquire(1).await;
        let (shard, heard) = (&self.station.shard, &self.station.heard);
        heard.counts.borrow_mut().clear();
        self.station.tell_all(|| Letter::CountsWanted);
        let all = heard.wait(|heard| heard.counts.borrow().len() >= usize::from(shard.count()));
        race(all, shard.sleep(COUNTING_TIME_MAX)).await;
        heard.counts.borrow().values().fold(Counts::default(), |sum, shard| Counts {
            reads: sum.reads + shard.reads,
            writes: sum.writes + shard.writes,
            rows_full: sum.rows_full + shard.rows_full,
            rows_modified: sum.rows_modified + shard.rows_modified,
            rows_reconstructed: sum.rows_reconstructed + shard.rows_reconstructed,
            rows_recovered: sum.rows_recovered + shard.rows_recovered,
            writes_absorbed: sum.writes_absorbed + shard.writes_absorbed,
            reads_retried: sum.reads_retried + shard.reads_retried,
            read_errors: sum.read_errors + shard.read_errors,
        })
    }

    fn member_entry(&self, index: usize, state: &MemberState) -> Member {
        let number = Some(self.setup.plan.members[index].superblock.dev_number);
        let path = Some(client::member_path(self.member_name(index)));
        let entry = |slot: Option<Slot>, state: &str, reason| {
            let (slot, state) = (slot.map(|slot| slot.0), state.to_owned());
            Member { number, slot, state, path, reason }
        };
        match *state {
            MemberState::Active(slot) => entry(Some(slot), "active sync", None),
            MemberState::Spare => entry(None, "spare", None),
            MemberState::Faulty { operation, error, .. } => {
                entry(None, "faulty", Some(watch::failure_text(operation, error)))
            }
        }
    }

    fn slot_of(&self, member: &str) -> Result<Slot, RpcError> {
        let unknown = || RpcError::refused(format!("{member}: no such member or slot"));
        let status = self.status();
        if let Ok(number) = member.parse::<u16>() {
            return if number < status.slots { Ok(Slot(number)) } else { Err(unknown()) };
        }
        let is_named = |&index: &usize| {
            let name = self.member_name(index);
            name == member || client::member_path(name) == member
        };
        let index = (0..status.members.len()).find(is_named).ok_or_else(unknown)?;
        match status.members[index] {
            MemberState::Active(slot) => Ok(slot),
            MemberState::Spare => Err(RpcError::refused(format!("{member}: is a spare"))),
            MemberState::Faulty { .. } => Err(RpcError::refused(format!("{member}: has failed already"))),
        }
    }
}

impl Controlled for Session {
    async fn report(&self) -> Report {
        let counts = self.counts().await;
        let status = self.status();
        let mut report = detail::shape_of(&self.setup.plan.template, self.array.layout());
        let mut members: Vec<Member> =
            status.members.iter().enumerate().map(|(index, state)| self.member_entry(index, state)).collect();
        for slot in (0..status.slots).filter(|&slot| !status.usable.contains(Slot(slot))) {
            members.push(Member::removed(slot));
        }
        members.sort_by_key(Member::order);
        report.members = members;
        report.events = status.events;
        let progress = self.progress.get();
        report.resync = progress.map(|progress| Resync { done: progress.done.0, total: progress.total.0 });
        report.state = state_words(&status, report.resync.is_some());
        report.counts = Some(counts);
        report.server = Some(report::Server {
            pid: std::process::id(),
            uris: vec![self.setup.faces.uri.clone()],
            is_ready: self.is_ready.get(),
            shards: self.setup.shards,
            last_record_us: status.last_record.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        });
        report
    }

    async fn fail(&self, member: &str) -> Result<Value, RpcError> {
        let slot = self.slot_of(member)?;
        self.array.fail(slot).await.map_err(RpcError::refused)?;
        Ok(json!({ "array": self.setup.name, "member": member, "slots": self.status().picture() }))
    }

    async fn stop(&self) -> Result<(), RpcError> {
        self.answers_due.set(self.answers_due.get() + 1);
        self.ask_to_stop();
        let outcome = self.changed.wait_for(|| self.outcome.borrow().clone()).await;
        outcome.map_err(RpcError::refused)
    }

    fn answered(&self, method: &Method) {
        match method {
            Method::Stop => {
                self.answers_due.set(self.answers_due.get() - 1);
                self.changed.notify_all();
            }
            Method::Status | Method::Fail { .. } => (),
        }
    }
}

/// mdadm's words for the state.
fn state_words(status: &Status, is_resyncing: bool) -> Vec<String> {
    let mut words = vec![if status.is_dirty { "active" } else { "clean" }];
    if status.usable.count() < usize::from(status.slots) {
        words.push("degraded");
    }
    match status.gate {
        Gate::Open => (),
        Gate::Closed if is_resyncing => words.push("resyncing"),
        Gate::Closed => words.push("starting"),
        Gate::ReadOnly => words.push("read-only"),
        Gate::Frozen(_) => words.push("frozen"),
        Gate::Stopped => words.push("stopped"),
    }
    words.into_iter().map(str::to_owned).collect()
}
