//! The running arrays of a process, as a whole.
//! Owns: [`Setup`], [`Session`], a shard's messages and counts, the request to stop. Not here: the order of start,
//! serving and end (`life`), the stop of the arrays (`stopping`), sockets' protocols (`export-nbd`, `control_socket`), what one
//! array answers (`overseer`), any state of an array (`engine`).

pub(crate) mod message;
mod notes;
mod service;
mod stopping;

use crate::background::Detachment;
use crate::frontend::{ArrayExport, Frontends, OnShard, Served, Serving};
use crate::session::message::{ArrayCounts, ClientsLeft, Message, ShardCounts};
use crate::stack::{RunningStack, StackError};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stopping::Waits;
use uraid_arrays::{ArrayIndex, ArrayMail, HostArray};
use uraid_block::local::{Notify, Permit, Semaphore, join_all, race};
use uraid_block::{ShardIndex, Tick};
use uraid_control::log::warn;
use uraid_control::report::UNANSWERED_MIN;
use uraid_export_nbd::Statistics;
use uraid_host::{Local, Options, Shard};

/// How long clients get to take their last replies.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);
/// How long the shards may take to send their counts.
const COUNTING_TIME_MAX: Duration = Duration::from_secs(1);
/// The shard of the engine's stewards, the control sockets and the signals.
pub(crate) const FIRST: ShardIndex = ShardIndex(0);

/// The inputs of a session.
pub struct Setup {
    /// The arrays.
    pub stack: RunningStack,
    /// How clients reach them.
    pub frontends: Frontends,
    /// Threads.
    pub shards: u16,
    /// The host's options.
    pub options: Options,
    /// Whether this process serves in the background.
    pub detachment: Detachment,
}

/// The messages that one shard has received, and the tasks waiting for them.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) close: Cell<bool>,
    pub(crate) end: Cell<bool>,
    pub(crate) closed_shards: Cell<u16>,
    /// Shards that have done what the last [`Message::Install`] or [`Message::LetGo`] asks for.
    pub(crate) seated: Cell<u16>,
    pub(crate) clients_left: RefCell<ClientsLeft>,
    pub(crate) counts: RefCell<BTreeMap<ShardIndex, (ShardCounts, Statistics)>>,
    pub(crate) changed: Notify,
}

impl Heard {
    pub(crate) async fn wait(&self, what: impl Fn(&Heard) -> bool) {
        self.changed.wait_for(|| what(self).then_some(())).await;
    }
}

/// The objects of one shard.
pub(crate) struct Station {
    pub(crate) shard: Shard<Message>,
    pub(crate) setup: Arc<Setup>,
    /// By [`ArrayIndex`].
    pub(crate) arrays: Vec<Rc<HostArray>>,
    /// This shard's part of each frontend, in order.
    pub(crate) frontends: Vec<Rc<dyn Serving>>,
    pub(crate) heard: Heard,
}

/// An export with its array, which is one of these.
fn served<'a>(export: &'a ArrayExport, stack: &'a RunningStack, arrays: &[Rc<HostArray>]) -> Served<'a> {
    let array = stack.array(export.array);
    let read_only = export.read_only || array.plan.read_only.is_some();
    Served { export, array: arrays[export.array.0].clone(), array_name: &array.name, read_only }
}

impl Station {
    /// Builds the arrays and the frontends' parts on this shard.
    pub(crate) fn new(shard: Shard<Message>, setup: Arc<Setup>) -> Rc<Station> {
        let arrays = uraid_arrays::build(&shard, &setup.stack.setups(), &setup.options);
        let served = |export| served(export, &setup.stack, &arrays);
        let frontends = setup.frontends.list.iter().enumerate().map(|(index, frontend)| {
            let to = shard.clone();
            let give = Rc::new(move |shard, client| to.post(shard, Message::Client(index, client)));
            let served = setup.frontends.exports.iter().map(served).collect();
            frontend.on_shard(&OnShard { local: &shard, served, give })
        });
        let frontends = frontends.collect();
        Rc::new(Station { shard, setup, arrays, frontends, heard: Heard::default() })
    }

    pub(crate) fn hear(&self, message: Message) {
        let heard = &self.heard;
        match message {
            Message::Array(ArrayMail { array, mail }) => return self.arrays[array.0].deliver(mail),
            Message::Client(frontend, client) => return self.frontends[frontend].adopt(client),
            Message::Serve => return self.frontends.iter().for_each(|frontend| frontend.clone().serve()),
            Message::CountsWanted(of) => {
                let counts = |index: ArrayIndex| {
                    let array = &self.arrays[index.0];
                    let (requests, times, members) = (array.counters(), array.request_times(), array.member_counts());
                    (index, ArrayCounts { requests, times, members })
                };
                let is_wanted = |index: &ArrayIndex| of.is_none_or(|of| of == *index);
                let counts = self.setup.stack.indexes().filter(is_wanted).map(counts).collect();
                return self.shard.post(FIRST, Message::Counts(self.shard.index(), counts, self.statistics()));
            }
            Message::Counts(of, counts, clients) => drop(heard.counts.borrow_mut().insert(of, (counts, clients))),
            Message::Install(array, index, member) => {
                let shard: &Local = &self.shard;
                uraid_arrays::install(&self.arrays[array.0], shard, index, &member);
                return self.shard.post(FIRST, Message::Seated);
            }
            Message::LetGo(array, index) => {
                self.arrays[array.0].let_go(index);
                return self.shard.post(FIRST, Message::Seated);
            }
            Message::Seated => heard.seated.set(heard.seated.get() + 1),
            Message::Close => heard.close.set(true),
            Message::End => heard.end.set(true),
            Message::Closed(left) => {
                heard.clients_left.borrow_mut().add(left);
                heard.closed_shards.set(heard.closed_shards.get() + 1);
            }
        }
        heard.changed.notify_all();
    }

    /// What this shard's clients have asked for so far.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        self.frontends.iter().for_each(|frontend| sum += frontend.statistics());
        sum
    }

    /// Lets this shard's clients finish, and reports that to shard 0.
    pub(crate) async fn close(&self) {
        let left = join_all(self.frontends.iter().map(|frontend| frontend.stop(DRAIN_TIME_MAX))).await;
        let requests = left.into_iter().sum();
        // Requests of this shard's clients may also wait for members on other shards.
        let members = self.unanswering();
        self.shard.post(FIRST, Message::Closed(ClientsLeft { requests, members }));
    }

    /// The members that have kept a request of this shard for a while.
    pub(crate) fn unanswering(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (index, array) in self.setup.stack.indexes().zip(&self.arrays) {
            let counts = array.member_counts();
            let slow = (0..).zip(&counts).filter(|(_, counts)| counts.unanswered_for >= UNANSWERED_MIN);
            names.extend(slow.map(|(member, _)| self.setup.stack.member_name(index, member).to_owned()));
        }
        names
    }

    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        for index in 0..self.shard.count() {
            self.shard.post(ShardIndex(index), message());
        }
    }
}

/// The state of one array's run.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) is_started: Cell<bool>,
    pub(crate) waits: RefCell<Waits>,
    /// Until when no spare starts, by command, in seconds since 1970.
    pub(crate) maintenance: Cell<Option<u64>>,
}

/// The process as a whole; on shard 0.
pub(crate) struct Session {
    pub(crate) station: Rc<Station>,
    /// By [`ArrayIndex`].
    pub(crate) runs: Vec<Run>,
    /// One round of counting at a time.
    pub(crate) counting: Rc<Semaphore>,
    /// One member comes or goes at a time.
    pub(crate) seating: Rc<Semaphore>,
    pub(crate) is_ready: Cell<bool>,
    /// When a stop was asked for.
    pub(crate) stop_began: Cell<Option<Tick>>,
    /// Why.
    pub(crate) stop_reason: RefCell<String>,
    pub(crate) answers_due: Cell<usize>,
    pub(crate) outcome: RefCell<Option<Result<(), StackError>>>,
    pub(crate) changed: Notify,
}

impl Session {
    pub(crate) fn new(station: Rc<Station>) -> Session {
        Session {
            runs: station.arrays.iter().map(|_| Run::default()).collect(),
            station,
            counting: Semaphore::new(1),
            seating: Semaphore::new(1),
            is_ready: Cell::new(false),
            stop_began: Cell::new(None),
            stop_reason: RefCell::default(),
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
    pub(crate) fn ask_to_stop(&self, reason: &str, failed: Option<ArrayIndex>) {
        if !self.is_stopping() {
            self.stop_began.set(Some(self.station.shard.now()));
            let stack = &self.setup().stack;
            let others = stack.indexes().filter(|&index| Some(index) != failed);
            others.for_each(|index| warn(&format!("{}: stops: {reason}", stack.array(index).name)));
            self.stop_reason.replace(reason.to_owned());
        }
        self.changed.notify_all();
    }

    /// Whether a stop was asked for.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_began.get().is_some()
    }

    /// Returns when a stop was asked for.
    pub(crate) async fn stop_asked(&self) {
        self.changed.wait_for(|| self.is_stopping().then_some(())).await;
    }

    pub(crate) fn finish(&self, outcome: Result<(), StackError>) {
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

    /// The caller has received the result of the stop, or is gone.
    pub(crate) fn stop_answered(&self) {
        self.answers_due.set(self.answers_due.get() - 1);
        self.changed.notify_all();
    }

    /// The counts of each shard for one array, and the sum over the clients of the process. Counts of slow shards that
    /// have not arrived in time are left out.
    pub(crate) async fn counts(&self, of: ArrayIndex) -> (Vec<ArrayCounts>, Statistics) {
        let (shards, clients) = self.counts_of(Some(of)).await;
        (shards.into_iter().filter_map(|mut counts| counts.remove(&of)).collect(), clients)
    }

    /// The same for all arrays.
    pub(crate) async fn counts_of_all(&self) -> Vec<ShardCounts> {
        self.counts_of(None).await.0
    }

    async fn counts_of(&self, of: Option<ArrayIndex>) -> (Vec<ShardCounts>, Statistics) {
        let _one = self.counting.acquire(1).await;
        let (shard, heard) = (&self.station.shard, &self.station.heard);
        heard.counts.borrow_mut().clear();
        self.station.tell_all(|| Message::CountsWanted(of));
        let all = heard.wait(|heard| heard.counts.borrow().len() >= usize::from(shard.count()));
        race(all, shard.sleep(COUNTING_TIME_MAX)).await;
        let all = heard.counts.take();
        let mut clients = Statistics::default();
        all.values().for_each(|(_, shard)| clients += *shard);
        (all.into_values().map(|(counts, _)| counts).collect(), clients)
    }

    /// Waits until no member comes or goes, and keeps others from it until the permit is dropped.
    pub(crate) async fn seating(&self) -> Permit {
        self.seating.acquire(1).await
    }

    /// Sends a message about a member's device to all shards; returns when each of them has done it. The caller has the
    /// permit of [`Session::seating`].
    pub(crate) async fn seat(&self, message: impl Fn() -> Message) {
        let heard = &self.station.heard;
        heard.seated.set(0);
        self.station.tell_all(message);
        heard.wait(|heard| heard.seated.get() == self.station.shard.count()).await;
    }

    pub(crate) fn is_started(&self, index: ArrayIndex) -> bool {
        self.runs[index.0].is_started.get()
    }
}
