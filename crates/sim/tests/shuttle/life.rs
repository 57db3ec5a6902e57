//! One execution: an array from its start to its stop, with clients on every shard.
//! Owns: [`live`], [`Scenario`], the clients' requests, the operator's commands. Not here: the checks (`judge`).
//! Invariant: most sectors belong to one client, which makes one request at a time; clients share rows. The first few
//! sectors are shared by all clients, so that writes of them overlap.

use crate::disk::Member;
use crate::judge::{Judge, content};
use crate::options::{ARENAS, ArenaBlocks, Options, RingChoice};
use crate::shard::{Shard, run};
use crate::world::{Message, ShuttleArray, ShuttleWorld};
use shuttle::rand::{Rng, thread_rng};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::local::Notify;
use uraid_block::{Device, Fua, ReadPieces, SECTOR_BYTES, Sector, Sectors, ShardIndex, Slot, SlotSet};
use uraid_engine::{Array, Config, FailError, PassError, StartError, StartPlan, World};
use uraid_sim::reference::model::{Model, Shape};

/// How long an array is idle before it becomes clean. Short: a shard that ends waits until its watch notices the stop.
const CLEAN_AFTER: Duration = Duration::from_millis(2);
/// Requests per client.
const REQUESTS: u64 = 3;

/// What goes wrong during the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// Nothing but requests and the stop.
    None,
    /// The operator fails a member.
    FailByHand,
    /// A member begins to fail all its operations.
    MemberFails,
    /// A member fails one flush, and drops the data that was to be flushed.
    FlushFails,
    /// One member is failed by command and another one fails.
    TwoFail,
    /// More fail than the level survives.
    TooManyFail,
    /// The array starts dirty: requests run beside the resync, and the stop may come during it.
    StartsDirty,
}

/// What is the same in all executions.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) shape: Shape,
    pub(crate) shards: u16,
    pub(crate) trouble: Trouble,
}

/// One execution, drawn from the schedule, so that the schedule determines it.
struct Case {
    judge: Judge,
    plan: StartPlan,
    clients_per_shard: u16,
    clients: u64,
    /// The number of sectors, from the start of the array, that all clients use.
    shared: u64,
    /// Consecutive sectors of one client, after the shared ones.
    stretch: u64,
    /// The stop comes after this many answers.
    stop_after: u64,
    /// The stop waits for the end of the resync.
    waits: bool,
    /// A second caller stops the array, too.
    stops_twice: bool,
    /// The operator fails a member after this many answers.
    fail_after: Option<u64>,
    victim: Slot,
    is_over_budget: bool,
    /// Requests are drawn from this many kinds; from the eighth on they are flushes.
    kinds: u32,
}

impl Case {
    fn draw(scenario: &Scenario, model: Arc<Model>) -> Case {
        let mut rng = thread_rng();
        let (slots, trouble) = (scenario.shape.slots, scenario.trouble);
        let judge = Judge::new(model, trouble == Trouble::StartsDirty, trouble == Trouble::TooManyFail);
        let clients_per_shard = rng.gen_range(1..=2);
        let clients = u64::from(clients_per_shard * scenario.shards);
        let shared = rng.gen_range(0..=3);
        let stretch_max = ((judge.model.array_size() - shared) / clients).min(2 * scenario.shape.chunk.max(1) + 1);
        let requests = clients * REQUESTS;
        let victim = rng.gen_range(0..slots);
        let fail_after = rng.gen_range(1..requests);
        let (fails_itself, fails_by_hand) = match trouble {
            Trouble::None | Trouble::StartsDirty | Trouble::FlushFails => (0, None),
            Trouble::FailByHand => (0, Some(fail_after)),
            Trouble::MemberFails => (1, None),
            Trouble::TwoFail => (1, Some(fail_after)),
            Trouble::TooManyFail => (slots, Some(fail_after).filter(|after| after % 4 == 0)),
        };
        for slot in (victim + 1..=victim + fails_itself).map(|slot| slot % slots) {
            judge.disks[usize::from(slot)].fail_from(rng.gen_range(0..40));
        }
        if trouble == Trouble::FlushFails {
            judge.disks[usize::from(victim)].fail_flush(rng.gen_range(0..4));
        }
        let stops_soon = trouble == Trouble::StartsDirty && rng.gen_range(0..2) == 0;
        Case {
            plan: judge.plan(false),
            judge,
            clients_per_shard,
            clients,
            shared,
            stretch: rng.gen_range(1..=stretch_max),
            stop_after: if stops_soon { 0 } else { rng.gen_range(0..=requests) },
            waits: trouble == Trouble::StartsDirty && !stops_soon && rng.gen_range(0..2) == 0,
            stops_twice: rng.gen_range(0..4) == 0,
            fail_after: fails_by_hand,
            victim: Slot(victim),
            kinds: if trouble == Trouble::FlushFails { 16 } else { 10 },
            is_over_budget: trouble == Trouble::TooManyFail,
        }
    }

    /// The sectors of a client, in stretches.
    fn stretches_of(&self, client: u64) -> Vec<Range<u64>> {
        let size = self.judge.model.array_size();
        let starts = (self.shared + client * self.stretch..size).step_by((self.clients * self.stretch) as usize);
        starts.map(|start| start..size.min(start + self.stretch)).collect()
    }
}

/// One execution of a scenario, from creation to end.
pub(crate) fn live(scenario: &Scenario, model: &Arc<Model>) {
    let case = Arc::new(Case::draw(scenario, model.clone()));
    let options = Options {
        ring: RingChoice::Threads,
        // The worlds have their own arenas, which are reused.
        arenas: [ArenaBlocks { small: 1, large: 0 }; ARENAS],
        spin: Duration::from_nanos(if thread_rng().gen_range(0..4) == 0 { 2 } else { 0 }),
        ..Options::default()
    };
    let inside = case.clone();
    run(scenario.shards, &options, move |shard| live_on(shard, inside.clone()));
    case.judge.is_over();
}

/// One shard's part of the execution.
struct Life {
    case: Arc<Case>,
    shard: Shard<Message>,
    world: ShuttleWorld,
    array: Rc<ShuttleArray>,
    clients: Cell<u16>,
    shards_done: Cell<u16>,
    has_started: Cell<bool>,
    is_stopping: Cell<bool>,
    has_stopped: Cell<bool>,
    may_end: Cell<bool>,
    changed: Notify,
}

async fn live_on(shard: Shard<Message>, case: Arc<Case>) {
    let world = ShuttleWorld::new(&shard);
    let members = (case.plan.members.iter())
        .map(|member| Member { disk: case.judge.disks[member.candidate].clone(), driver: shard.driver().clone() });
    let config = Config { clean_after: CLEAN_AFTER, ..Config::default() };
    let life = Rc::new(Life {
        array: Array::new(world.clone(), &case.plan, members.collect(), config),
        case,
        shard: shard.clone(),
        world,
        clients: Cell::new(0),
        shards_done: Cell::new(0),
        has_started: Cell::new(false),
        is_stopping: Cell::new(false),
        has_stopped: Cell::new(false),
        may_end: Cell::new(false),
        changed: Notify::new(),
    });
    let inbox = life.clone();
    shard.on_mail(move |message| inbox.take(message));
    life.begin();
    life.wait_until(|life| life.clients.get() == 0).await;
    shard.post(ShardIndex(0), Message::ClientsDone);
    if shard.index() == ShardIndex(0) {
        life.wait_until(|life| life.has_stopped.get() && life.shards_done.get() == life.shard.count()).await;
        (0..shard.count()).for_each(|to| shard.post(ShardIndex(to), Message::End));
    }
    life.wait_until(|life| life.may_end.get()).await;
    life.is_empty().await;
}

impl Life {
    fn begin(self: &Rc<Self>) {
        if self.shard.index() == ShardIndex(0) {
            let life = self.clone();
            self.shard.spawn(async move {
                match life.array.start().await {
                    Ok(()) => {
                        life.has_started.set(true);
                        life.changed.notify_all();
                    }
                    // Only a stop that came first may prevent the start.
                    Err(StartError::Stopping) if life.case.stop_after == 0 => {}
                    Err(_) if life.case.is_over_budget => life.shard.post(ShardIndex(0), Message::Stop),
                    Err(error) => panic!("the array does not start: {error:?}"),
                }
            });
            if self.case.stop_after == 0 {
                self.shard.post(ShardIndex(0), Message::Stop);
            }
        }
        let first = u64::from(self.shard.index().0 * self.case.clients_per_shard);
        self.clients.set(self.case.clients_per_shard);
        for client in first..first + u64::from(self.case.clients_per_shard) {
            let life = self.clone();
            self.shard.spawn(async move {
                let stretches = life.case.stretches_of(client);
                for _ in 0..REQUESTS {
                    life.request(&stretches).await;
                }
                life.clients.set(life.clients.get() - 1);
                life.changed.notify_all();
            });
        }
    }

    fn take(self: &Rc<Self>, message: Message) {
        match message {
            Message::Engine(mail) => self.array.deliver(mail),
            // The stop was already requested, and the start has failed.
            Message::Stop if self.is_stopping.replace(true) => {}
            Message::Stop => {
                let life = self.clone();
                self.shard.spawn(async move {
                    life.resync_over().await;
                    life.stop().await;
                });
                if self.case.stops_twice {
                    let life = self.clone();
                    self.shard.spawn(async move {
                        life.resync_over().await;
                        assert_eq!(life.array.stop().await, Ok(()), "a second stop is harmless");
                        assert!(life.case.judge.is_stopped(), "a second stop waits for the first");
                    });
                }
            }
            Message::Fail => {
                let life = self.clone();
                self.shard.spawn(async move { life.fail_by_hand().await });
            }
            Message::ClientsDone => self.shards_done.set(self.shards_done.get() + 1),
            Message::End => self.may_end.set(true),
        }
        self.changed.notify_all();
    }

    /// Waits until the resync has ended, if this stop is to wait for it.
    async fn resync_over(&self) {
        if self.case.waits {
            self.wait_until(|life| life.has_started.get()).await;
            match self.array.wait(|_| {}).await {
                Ok(progress) => assert_eq!(progress.done, progress.total, "the resync has ended"),
                // The other stop came first.
                Err(PassError::Stopped) if self.case.stops_twice => {}
                Err(error) => panic!("the resync of healthy members does not end: {error:?}"),
            }
        }
    }

    async fn stop(&self) {
        let outcome = self.array.stop().await;
        self.case.judge.was_stopped(outcome, !self.has_started.get(), &self.array.status());
        self.has_stopped.set(true);
        self.changed.notify_all();
    }

    async fn fail_by_hand(&self) {
        let victim = self.case.victim;
        match self.array.fail(SlotSet::EMPTY.with(victim)).await {
            Ok(()) => self.case.judge.was_failed(victim),
            Err(FailError::NotOpen) => {}
            Err(FailError::Frozen(_)) if self.case.is_over_budget => self.case.judge.was_not_recorded(victim),
            Err(FailError::NoMember { .. } | FailError::Needed { .. } | FailError::StaysFrozen(_))
                if self.case.is_over_budget => {}
            Err(error) => panic!("the member cannot be taken out: {error:?}"),
        }
    }

    async fn wait_until(&self, is_so: impl Fn(&Life) -> bool) {
        self.changed.wait_for(|| is_so(self).then_some(())).await;
    }

    /// One request of a client, to its own sectors or to the shared ones.
    async fn request(&self, stretches: &[Range<u64>]) {
        let (kind, sectors) = {
            let mut rng = thread_rng();
            let own = stretches[rng.gen_range(0..stretches.len())].clone();
            let from = if self.case.shared > 0 && rng.gen_range(0..3) == 0 { 0..self.case.shared } else { own };
            let start = rng.gen_range(from.clone());
            (rng.gen_range(0..self.case.kinds), start..rng.gen_range(start + 1..=from.end))
        };
        match kind {
            0..=2 => self.read(sectors).await,
            3..=4 => self.write(sectors, Fua::No).await,
            5..=6 => self.write(sectors, Fua::Yes).await,
            7 => self.write_zeroes(sectors).await,
            _ => self.flush().await,
        }
        let answers = self.case.judge.answers();
        if answers == self.case.stop_after {
            self.shard.post(ShardIndex(0), Message::Stop);
        }
        if Some(answers) == self.case.fail_after {
            self.shard.post(ShardIndex(0), Message::Fail);
        }
    }

    fn buffers(&self, sectors: &Range<u64>) -> ReadPieces {
        let bytes = (sectors.end - sectors.start) as usize * SECTOR_BYTES;
        self.world.client_arena().take(bytes).expect("clients have buffers")
    }

    async fn read(&self, sectors: Range<u64>) {
        let into = self.buffers(&sectors);
        let asked = self.case.judge.ask();
        let outcome = self.array.read(Sector(sectors.start), into).await;
        self.case.judge.was_read(sectors.start, asked, outcome);
    }

    async fn write(&self, sectors: Range<u64>, fua: Fua) {
        let mut pieces = self.buffers(&sectors);
        let number = self.case.judge.ask_write(&sectors, false);
        let bytes: Vec<u8> = sectors.clone().flat_map(|x| content(x, number)).collect();
        pieces.copy_from(&bytes);
        let outcome = self.array.write(Sector(sectors.start), pieces.freeze(), fua).await;
        self.case.judge.was_written(&sectors, number, fua, outcome);
    }

    async fn write_zeroes(&self, sectors: Range<u64>) {
        let number = self.case.judge.ask_write(&sectors, true);
        let range = uraid_block::Range::new(Sector(sectors.start), Sectors(sectors.end - sectors.start));
        let outcome = self.array.write_zeroes(range).await;
        self.case.judge.was_written(&sectors, number, Fua::No, outcome);
    }

    async fn flush(&self) {
        let asked = self.case.judge.ask();
        let outcome = self.array.flush().await;
        self.case.judge.was_flushed(asked, outcome);
    }

    /// After the stop this shard has no task, no request, and no leased block.
    async fn is_empty(&self) {
        for _ in 0..100 {
            if self.shard.tasks() == 0 {
                break;
            }
            self.world.sleep(CLEAN_AFTER).await;
        }
        assert_eq!(self.shard.tasks(), 0, "tasks left after the stop");
        assert_eq!(self.array.requests_in_flight(), 0, "requests in flight after the stop");
        assert_eq!(self.world.blocks_in_use(), [0; 5], "blocks in use after the stop, per pool");
    }
}
