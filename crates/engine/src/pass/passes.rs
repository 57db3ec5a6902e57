//! What the schedule of passes and the kinds of passes share, on shard 0.
//! Owns: [`Passes`], its state, what every shard is told about the speed of passes. Not here: which pass is next, and the
//! course of one (`schedule`), what distinguishes the kinds (`kinds`).

use crate::shard::mail::{Answer, Call};
use crate::shard::world::World;
use crate::state::view::Gate;
use crate::steward::Steward;
use crate::steward::current_bitmap::CurrentBitmap;
use crate::steward::flusher::Flusher;
use crate::steward::ppl::Ppl;
use crate::steward::recorder::Recorder;
use crate::words::findings::Checked;
use crate::words::mark::{self, Mark};
use crate::words::progress::{self, PassKind, PassOrder, PassReport, Progress, Share, SpeedLimits, Steering};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::Notify;
use uraid_block::{Sectors, Slot, SlotSet, Tick};

/// The passes of an array; on shard 0 only.
pub(crate) struct Passes<W: World> {
    pub(super) steward: Rc<Steward<W>>,
    pub(super) recorder: Rc<Recorder<W>>,
    pub(super) flusher: Rc<Flusher<W>>,
    pub(super) bitmap: Rc<CurrentBitmap<W>>,
    pub(super) ppl: Option<Rc<Ppl<W>>>,
    /// There is a task that runs passes.
    pub(super) is_driven: Cell<bool>,
    /// A pass runs, or a spare takes its slot.
    pub(super) is_running: Cell<bool>,
    pub(super) is_flushing: Cell<bool>,
    /// Members with a slot, or the second place of one, that writes under way may not go to.
    pub(super) undrained: Cell<u32>,
    /// The number of the last order.
    pub(super) number: Cell<u64>,
    /// Slots whose recovery met sectors that no member could give.
    pub(super) given_up: Cell<SlotSet>,
    /// The same, of copies to another member.
    pub(super) copy_given_up: Cell<SlotSet>,
    pub(super) progress: Cell<Progress>,
    /// The check or repair that a command asked for, until it has ended.
    pub(super) asked: Cell<Option<PassKind>>,
    /// Where it begins.
    pub(super) asked_from: Cell<Sectors>,
    /// No spare takes a slot, by command.
    pub(super) are_spares_held: Cell<bool>,
    /// The result of the last check or repair.
    pub(super) checked: RefCell<Option<Checked>>,
    pub(super) steering: Cell<Steering>,
    /// When the shards were asked last in this pass, and what their clients had moved by then.
    pub(super) client_bytes: Cell<Option<(Tick, u64)>>,
    pub(super) changed: Notify,
}

/// What is known of the clients of all shards.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Clients {
    /// They are active on some shard, of several. Alone, a shard sees that itself.
    are_active: bool,
    /// What they move, in KiB a second of each member.
    kib: u64,
}

impl<W: World> Passes<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        recorder: &Rc<Recorder<W>>,
        flusher: &Rc<Flusher<W>>,
        bitmap: &Rc<CurrentBitmap<W>>,
        ppl: Option<Rc<Ppl<W>>>,
    ) -> Rc<Passes<W>> {
        let total = progress::total(&steward.shared.layout());
        Rc::new(Passes {
            steward: steward.clone(),
            recorder: recorder.clone(),
            flusher: flusher.clone(),
            bitmap: bitmap.clone(),
            ppl,
            is_driven: Cell::new(false),
            is_running: Cell::new(false),
            is_flushing: Cell::new(false),
            undrained: Cell::new(0),
            number: Cell::new(0),
            given_up: Cell::new(SlotSet::EMPTY),
            copy_given_up: Cell::new(SlotSet::EMPTY),
            progress: Cell::new(Progress { total, ..Progress::default() }),
            asked: Cell::new(None),
            asked_from: Cell::new(Sectors::ZERO),
            are_spares_held: Cell::new(false),
            checked: RefCell::default(),
            steering: Cell::default(),
            client_bytes: Cell::new(None),
            changed: Notify::new(),
        })
    }

    /// Whether a member has a slot, or the second place of one, and writes under way may not go to it.
    pub(crate) fn has_undrained(&self) -> bool {
        self.undrained.get() > 0
    }

    /// A spare, and the slot that it is to take; none while spares are held.
    pub(super) fn wanted_spare(&self) -> Option<(usize, Slot)> {
        if self.are_spares_held.get() { None } else { self.steward.master().wanted_spare() }
    }

    /// Lets no spare take a slot, or lets them again.
    pub(crate) fn hold_spares(&self, are_held: bool) {
        self.are_spares_held.set(are_held);
        self.steward.shared.view_changed.notify_all();
    }

    /// Whether this is the order of the pass that runs: no freeze has ended since it began.
    pub(super) fn is_current(&self, order: &PassOrder) -> bool {
        self.steward.pass_order.get() == Some(*order)
    }

    /// Whether the superblocks may record how far the members of this order were filled.
    pub(super) fn may_record_filled(&self, order: &PassOrder) -> bool {
        let steward = &self.steward;
        self.is_current(order) && steward.master().gate() == Gate::Open && !steward.is_stopping.get()
    }

    /// All below `below` is done on every shard, and was flushed: the next superblocks say how far these members were filled.
    pub(super) fn record_filled(&self, order: &PassOrder, below: Sectors) {
        mark::hit(Mark::RecoveryCheckpoint);
        let steward = &self.steward;
        steward.note_recovered(Some((*order, below)));
    }

    /// The share of a pass with these limits: of the one that runs, where they set none.
    pub(super) fn share(&self, limits: SpeedLimits) -> Share {
        let of_pass = || self.steward.pass_order.get().map_or(Share::DEFAULT, |order| order.kind.share(self));
        limits.share.unwrap_or_else(of_pass)
    }

    /// What clients do now, from what all shards report.
    pub(super) fn clients(&self, reports: &[PassReport]) -> Clients {
        let now = self.steward.shared.world.now();
        let moved = reports.iter().map(|report| report.client_bytes).sum();
        let before = self.client_bytes.replace(Some((now, moved)));
        let are_active = reports.len() > 1 && reports.iter().any(|report| report.has_clients);
        let Some((then, moved_before)) = before else { return Clients { are_active, kib: 0 } };
        // A member that was removed takes its bytes along.
        let bytes = moved.saturating_sub(moved_before) / u64::from(self.steward.shared.layout().slots());
        let nanos = now.since(then).as_nanos().max(1);
        let kib = u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos / 1024).unwrap_or(u64::MAX);
        Clients { are_active, kib }
    }

    /// Tells every shard what it needs to know of the clients of all, and the share of the pass, if that has changed.
    pub(super) async fn tell_of_clients(&self, clients: Clients) {
        let before = self.steering.get();
        let share = self.share(before.limits);
        let is_alike = before.clients_kib.abs_diff(clients.kib) <= before.clients_kib / 16;
        let clients_kib = if is_alike { before.clients_kib } else { clients.kib };
        let after = Steering { has_clients: clients.are_active, clients_kib, share, ..before };
        if after != before {
            self.steer(|steering| *steering = after).await;
        }
    }

    /// Changes what every shard is told: pause, end, speed.
    pub(super) async fn steer(&self, change: impl FnOnce(&mut Steering)) {
        let mut steering = self.steering.get();
        change(&mut steering);
        self.steering.set(steering);
        self.steward.shared.view_changed.notify_all();
        self.steward.shared.calls.call_all(|| Call::Steer(steering)).await.into_iter().for_each(Answer::done);
    }
}
