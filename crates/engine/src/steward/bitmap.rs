//! The owner of the write-intent bitmap: sets bits before data, and clears them when nothing needs them.
//! Owns: [`Bitmap`], every write of a bitmap, and their order. Not here: what a shard knows of the bits (`intent`),
//! which bitmaps are believed at a start (`assemble::bitmap`), bytes (`uraid_format::bitmap`).
//! Invariant: a bit is durable on every member with a slot before data of its chunk is written to any. It is cleared
//! only when each member of the array holds all that was written there, durably. A member's bitmap has at least the
//! events of its superblock.
//!
//! ```text
//!   set      a write asks -> page (FUA) to every member -> the write goes on
//!   clear    publish "forget all bits" -> drain -> a period in which a write that needs a bit asks for it again
//!              -> flush the members -> header with events_cleared -> pages without the bits that were not asked for
//!   stop     drain, flush, clean superblocks -> header with events_cleared -> pages without any bit
//!   round    bitmap headers with the new events -> superblocks (`recorder`)
//! ```
//!
//! All writes that wait share a round of pages. No bit is cleared while a slot lacks a member, or before a resync or
//! a recovery has ended: until then the bits say what a member that returns has missed.

use crate::Pool;
use crate::World;
use crate::assemble::BitmapPlan;
use crate::shard::buffers;
use crate::state::master::Change;
use crate::state::view::Gate;
use crate::steward::Steward;
use crate::steward::flusher::Flusher;
use crate::steward::judge::Judge;
use crate::words::mark::{self, Mark};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::local::{Notify, Permit, Semaphore, join_all, race};
use uraid_block::{Device, Fua, IoError, SECTOR_BYTES, Sector, Sectors};
use uraid_format::bitmap::{BITMAP_PAGE, BitmapImage};

/// Pages of one round that are written at the same time.
const PAGES_AT_ONCE: usize = 4;

/// The longest period between two rounds that clear bits, whatever a header says.
const CLEAR_AFTER_MAX: u32 = 3600;

/// A page as it is written.
struct PageWrite {
    page: usize,
    /// All of the page.
    bytes: Vec<u8>,
}

/// A member that could not take a part of the bitmap.
pub(crate) type FailedMember = (usize, IoError);

struct State {
    /// What the members are to hold.
    image: BitmapImage,
    /// Bits that are set durably on every member with a slot, and are not being cleared.
    durable: BitmapImage,
    /// Bits that a write has asked for since the shards forgot theirs.
    asked: BitmapImage,
    /// Pages with bits that the members do not hold yet.
    due: BTreeSet<usize>,
    /// Members that hold the bitmap, by their index.
    holders: Vec<usize>,
}

/// What the superblocks say of a bitmap, and so what a write needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// None lists it yet: bits are only noted.
    Noting,
    /// Some may list it: a bit is durable before its data.
    InForce,
    /// None lists it any more: no bit is needed.
    Ended,
}

/// The bitmap of an array; on shard 0 only.
pub(crate) struct Bitmap<W: World> {
    steward: Rc<Steward<W>>,
    judge: Rc<Judge<W>>,
    flusher: Rc<Flusher<W>>,
    /// One round of pages at a time.
    turn: Rc<Semaphore>,
    state: RefCell<State>,
    phase: Cell<Phase>,
    /// Members that do not hold it when it begins.
    behind: Vec<usize>,
    clear_after: Duration,
    /// Every request from before the shards last forgot their bits has left: only bits in `asked` are relied upon.
    has_forgotten: Cell<bool>,
    is_clearing: Cell<bool>,
    /// No clearing begins.
    holds_clearing: Cell<bool>,
    cleared: Notify,
}

/// What `detail` shows of a bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitmapStatus {
    /// What a bit stands for.
    pub chunk: Sectors,
    /// Chunks in all.
    pub chunks: u64,
    /// How many writes may be behind on write-mostly members; 0: none.
    pub write_behind: u32,
    /// Bits that are set.
    pub dirty: u64,
    /// Groups of 2048 bits of which some are set.
    pub groups_dirty: u64,
}

impl<W: World> Bitmap<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        judge: &Rc<Judge<W>>,
        flusher: &Rc<Flusher<W>>,
        plan: &BitmapPlan,
        phase: Phase,
    ) -> Rc<Bitmap<W>> {
        let image = plan.image.clone();
        let has_slot = |member: &usize| steward.master().members()[*member].written_slot().is_some();
        let holders = (0..steward.master().members().len()).filter(has_slot).collect();
        let seconds = u64::from(image.header().daemon_sleep_seconds.min(CLEAR_AFTER_MAX));
        let state =
            State { durable: image.clone(), asked: image.clone().cleared(), due: BTreeSet::new(), holders, image };
        Rc::new(Bitmap {
            steward: steward.clone(),
            judge: judge.clone(),
            flusher: flusher.clone(),
            turn: Semaphore::new(1),
            state: RefCell::new(state),
            phase: Cell::new(phase),
            behind: plan.behind.clone(),
            clear_after: steward.shared.config.clear_bits_after.unwrap_or(Duration::from_secs(seconds)),
            // No request has come yet.
            has_forgotten: Cell::new(true),
            is_clearing: Cell::new(false),
            holds_clearing: Cell::new(false),
            cleared: Notify::new(),
        })
    }

    pub(crate) fn status(&self) -> BitmapStatus {
        let state = self.state.borrow();
        let header = state.image.header();
        let mut groups_dirty = 0;
        let mut from = 0;
        while let Some(chunk) = state.image.next_set(from) {
            groups_dirty += 1;
            from = (chunk / 2048 + 1) * 2048;
        }
        let (chunk, chunks, dirty) = (header.chunk(), header.chunks(), state.image.count());
        BitmapStatus { chunk, chunks, write_behind: header.write_behind, dirty, groups_dirty }
    }

    /// A member with fewer events may have missed writes whose bits were cleared.
    pub(crate) fn events_cleared(&self) -> u64 {
        self.state.borrow().image.header().events_cleared
    }

    /// All bits as they are now.
    pub(crate) fn snapshot_bits(&self) -> Arc<BitmapImage> {
        Arc::new(self.state.borrow().image.clone())
    }

    /// Writes the whole bitmap to the members that do not hold it, before a superblock is written: it never has more events
    /// than its bitmap. Returns the members that failed. The caller judges them.
    pub(crate) async fn bring_up(&self) -> Vec<FailedMember> {
        if !self.behind.is_empty() {
            mark::hit(Mark::BitmapBroughtUp);
        }
        let _one = self.turn.acquire(1).await;
        failures(join_all(self.behind.iter().map(async |member| (*member, self.write_whole(*member).await))).await)
    }

    /// Makes every bit durable before its data from here on, and all bits that were noted until now. The error: a member
    /// that could not take them; bits are only noted, as before.
    pub(crate) async fn begin_to_set(&self) -> Result<(), FailedMember> {
        let _one = self.turn.acquire(1).await;
        // A write that asks from here on waits for the turn.
        self.phase.set(Phase::InForce);
        // A frozen array lists no bitmap.
        while self.steward.master().frozen_error().is_none()
            && let Some(pages) = self.take_due()
        {
            let failed = self.write_to_holders(&pages).await;
            if let Some(failed) = failed.first() {
                self.phase.set(Phase::Noting);
                return Err(*failed);
            }
            self.note_durable(&pages);
        }
        Ok(())
    }

    /// Writes the whole bitmap to a member that is about to take a slot. From then on the member gets every bit. The
    /// caller judges an error.
    pub(crate) async fn give_to(&self, member: usize) -> Result<(), IoError> {
        let _one = self.turn.acquire(1).await;
        if self.state.borrow().holders.contains(&member) {
            return Ok(());
        }
        self.write_whole(member).await?;
        self.state.borrow_mut().holders.push(member);
        Ok(())
    }

    /// Whether this bitmap of a former member has a bit for the same sectors as the array's.
    pub(crate) fn is_alike(&self, former: &BitmapImage) -> bool {
        former.is_alike(&self.state.borrow().image)
    }

    /// Sets the bits of a former member's bitmap, durably.
    pub(crate) async fn unite(&self, former: &BitmapImage) -> Result<(), IoError> {
        let _one = self.turn.acquire(1).await;
        {
            let state = &mut *self.state.borrow_mut();
            let mut from = 0;
            while let Some(chunk) = former.next_set(from) {
                from = chunk + 1;
                if state.durable.first_clear_in(chunk..chunk + 1).is_some() {
                    state.image.set(chunk);
                    state.due.insert(state.image.page_of(chunk));
                }
            }
        }
        self.write_due().await
    }

    /// Judges a member that could not take the bitmap.
    pub(crate) async fn judge(&self, member: usize, error: IoError) {
        self.judge.judge_members(&[(member, error)]).await;
    }

    /// Makes these bits durable. This never waits for a drain, so a request that is counted in an epoch may wait for
    /// this.
    pub(crate) async fn need(&self, chunks: Range<u64>) -> Result<(), IoError> {
        if !self.ask(chunks.clone()) || !self.is_in_force() {
            return Ok(());
        }
        let _one = self.turn.acquire(1).await;
        if !self.is_in_force() {
            return Ok(());
        }
        if self.state.borrow().durable.first_clear_in(chunks.clone()).is_none() {
            mark::hit(Mark::BitShared);
            return Ok(());
        }
        self.write_due().await?;
        assert!(self.state.borrow().durable.first_clear_in(chunks).is_none(), "a bit that was asked for is durable");
        Ok(())
    }

    /// Notes that these bits are needed. Returns whether some are not durable yet.
    fn ask(&self, chunks: Range<u64>) -> bool {
        let state = &mut *self.state.borrow_mut();
        assert!(chunks.end <= state.image.header().chunks(), "a write is inside the array");
        chunks.clone().for_each(|chunk| state.asked.set(chunk));
        let mut is_due = false;
        let mut from = chunks.start;
        while let Some(chunk) = state.durable.first_clear_in(from..chunks.end) {
            state.image.set(chunk);
            state.due.insert(state.image.page_of(chunk));
            is_due = true;
            from = chunk + 1;
        }
        is_due
    }

    /// Writes the bitmap's header with these events to these members, before their superblocks get them. Returns the
    /// members that failed. The caller judges them.
    pub(crate) async fn show_events(&self, events: u64, members: &[usize]) -> Vec<FailedMember> {
        let _one = self.turn.acquire(1).await;
        if !self.is_in_force() {
            return Vec::new();
        }
        self.state.borrow_mut().image.change_header(|header| header.events = events);
        let holders: Vec<usize> = members.iter().copied().filter(|member| self.is_holder(*member)).collect();
        let first = self.snapshot(0);
        failures(join_all(holders.iter().map(async |member| (*member, self.write_page(*member, &first).await))).await)
    }

    /// The members that hold the bitmap and have not failed.
    fn holders(&self) -> Vec<usize> {
        let is_trusted = |member: &usize| self.steward.master().members()[*member].is_trusted();
        self.state.borrow().holders.iter().copied().filter(is_trusted).collect()
    }

    fn is_in_force(&self) -> bool {
        self.phase.get() == Phase::InForce
    }

    fn is_holder(&self, member: usize) -> bool {
        self.state.borrow().holders.contains(&member)
    }

    fn snapshot(&self, page: usize) -> PageWrite {
        PageWrite { page, bytes: self.state.borrow().image.page_bytes(page).to_vec() }
    }

    /// Writes the pages that are due to all members that hold the bitmap. The caller has the turn.
    async fn write_due(&self) -> Result<(), IoError> {
        while let Some(pages) = self.take_due() {
            if let Err(error) = self.write_pages(&pages).await {
                self.state.borrow_mut().due.extend(pages.iter().map(|write| write.page));
                return Err(error);
            }
            self.note_durable(&pages);
        }
        Ok(())
    }

    /// Some pages that are due, as they are now.
    fn take_due(&self) -> Option<Vec<PageWrite>> {
        let some: Vec<usize> = self.state.borrow().due.iter().copied().take(PAGES_AT_ONCE).collect();
        let pages: Vec<PageWrite> = some.iter().map(|page| self.snapshot(*page)).collect();
        let state = &mut *self.state.borrow_mut();
        for PageWrite { page, bytes } in &pages {
            state.due.remove(page);
            // A bit that is being cleared is not durable from here on.
            state.durable.restrict_page(*page, bytes);
        }
        (!pages.is_empty()).then_some(pages)
    }

    fn note_durable(&self, pages: &[PageWrite]) {
        let state = &mut *self.state.borrow_mut();
        pages.iter().for_each(|write| state.durable.set_page(write.page, &write.bytes));
    }

    /// Writes pages to all members that hold the bitmap, at once. Members that fail are judged.
    async fn write_pages(&self, pages: &[PageWrite]) -> Result<(), IoError> {
        if let Some(error) = self.steward.master().frozen_error() {
            return Err(error);
        }
        let failed = self.write_to_holders(pages).await;
        self.settle(&failed).await
    }

    async fn write_to_holders(&self, pages: &[PageWrite]) -> Vec<FailedMember> {
        let holders = self.holders();
        assert!(!holders.is_empty(), "an array that is not frozen has members");
        let writes = holders.iter().flat_map(|member| pages.iter().map(|write| (*member, write)));
        failures(join_all(writes.map(async |(member, write)| (member, self.write_page(member, write).await))).await)
    }

    /// Judges members that could not take a part of the bitmap. The others have taken it.
    async fn settle(&self, failed: &[FailedMember]) -> Result<(), IoError> {
        if failed.is_empty() {
            return Ok(());
        }
        mark::hit(Mark::BitmapWriteFailed);
        self.judge.judge_members(failed).await;
        let master = self.steward.master();
        if let Some(error) = master.frozen_error() {
            return Err(error);
        }
        let is_out = |(member, _): &FailedMember| !master.members()[*member].is_trusted();
        assert!(failed.iter().all(is_out), "a member that lacks a bit is in use");
        Ok(())
    }

    async fn write_page(&self, member: usize, write: &PageWrite) -> Result<(), IoError> {
        let block = self.block_of(member);
        let length = self.state.borrow().image.page(write.page, block).len();
        self.write_bytes(member, Sectors(write.page as u64 * BITMAP_PAGE.0), &write.bytes[..length]).await
    }

    /// Writes the whole bitmap to one member, its header last: until then no start believes the bitmap there.
    async fn write_whole(&self, member: usize) -> Result<(), IoError> {
        let pages = self.state.borrow().image.pages();
        for page in 1..pages {
            self.write_page(member, &self.snapshot(page)).await?;
        }
        let (block, first) = (self.block_of(member), self.snapshot(0));
        let length = self.state.borrow().image.page(0, block).len();
        let head = block.len_bytes().min(length);
        if head < length {
            self.write_bytes(member, block, &first.bytes[head..length]).await?;
        }
        self.write_bytes(member, Sectors::ZERO, &first.bytes[..head]).await
    }

    fn block_of(&self, member: usize) -> Sectors {
        let block = self.steward.shared.members.get(member).geometry().logical_block;
        Sectors(block.0.clamp(1, BITMAP_PAGE.0))
    }

    /// `at`: from the start of the bitmap.
    async fn write_bytes(&self, member: usize, at: Sectors, bytes: &[u8]) -> Result<(), IoError> {
        let shared = &self.steward.shared;
        assert!(!shared.config.read_only, "nothing is written to a member of a read-only array");
        let start = self.steward.master().bitmap_start(member);
        let length = Sectors((bytes.len() / SECTOR_BYTES) as u64);
        let mut pieces = buffers::take(&shared.world, Pool::Metadata, length).await;
        pieces.copy_from(bytes);
        let at: Sector = start + at;
        shared.members.get(member).write(at, pieces.freeze(), Fua::Yes).await
    }

    /// Clears bits now and then until the array stops.
    pub(crate) async fn clear_now_and_then(self: Rc<Self>) {
        let shared = &self.steward.shared;
        loop {
            race(shared.world.sleep(self.clear_after), shared.stopped()).await;
            if self.steward.is_stopping.get() || self.phase.get() == Phase::Ended {
                return;
            }
            self.is_clearing.set(true);
            self.clear_some().await;
            if !self.steward.master().is_recorded() && self.may_write() {
                // Record the member's failure from here: there may be no write that waits for that record.
                let _ = shared.report(&[]).await;
            }
            self.is_clearing.set(false);
            self.cleared.notify_all();
        }
    }

    /// Lets no clearing begin, or lets them begin again.
    pub(crate) fn hold_clearing(&self, is_held: bool) {
        self.holds_clearing.set(is_held);
    }

    /// Waits until no bits are being cleared. After a stop has begun, no clearing begins.
    pub(crate) async fn clearing_over(&self) {
        let is_held = self.steward.is_stopping.get() || self.holds_clearing.get();
        assert!(is_held, "else another one may begin at once");
        self.cleared.wait_for(|| (!self.is_clearing.get()).then_some(())).await;
    }

    fn may_write(&self) -> bool {
        let is_kept = !self.steward.is_stopping.get() && !self.holds_clearing.get() && self.is_in_force();
        self.steward.master().gate() == Gate::Open && is_kept
    }

    fn may_clear(&self) -> bool {
        self.may_write() && self.steward.master().is_whole()
    }

    /// Whether there is a bit that no write can need any more.
    fn has_unneeded(&self) -> bool {
        let state = self.state.borrow();
        state.image.next_set_besides(0, &state.asked).is_some()
    }

    async fn clear_some(&self) {
        if !self.may_clear() {
            return;
        }
        if self.has_forgotten.get() && self.has_unneeded() {
            // Every write that relied on one of these bits has left, so the flush makes its data durable on all
            // members.
            let is_flushed = self.flusher.flush_round().await.is_ok();
            if is_flushed && self.may_clear() {
                self.clear().await;
            }
        }
        if self.may_clear() && self.state.borrow().image.next_set(0).is_some() {
            self.forget().await;
        }
    }

    /// Lets every shard forget its bits, and waits until no request is left that relies on a forgotten bit.
    async fn forget(&self) {
        self.has_forgotten.set(false);
        self.state.borrow_mut().asked.clear_all();
        // No await lies between these two steps: every request that asks for a bit from here on has not left yet.
        let epoch = self.steward.publish(Change::ForgetBits).await;
        self.steward.drain(epoch).await;
        self.has_forgotten.set(true);
    }

    /// Clears the bits that no write can need, once no other round is under way.
    async fn clear(&self) {
        let _one = self.turn.acquire(1).await;
        let events_cleared = self.steward.master().events_shown();
        let is_new = {
            let state = &mut *self.state.borrow_mut();
            let is_new = state.image.header().events_cleared < events_cleared;
            if is_new {
                state.image.change_header(|header| header.events_cleared = events_cleared);
                state.due.insert(0);
            }
            is_new
        };
        // A member with fewer events than `events_cleared` has missed more than the bits record. So the header with it
        // is written first, and bits are cleared only then.
        if is_new && self.write_due().await.is_err() {
            return;
        }
        if !self.has_unneeded() || !self.steward.master().is_whole() {
            return;
        }
        mark::hit(Mark::BitsCleared);
        {
            let state = &mut *self.state.borrow_mut();
            let mut from = 0;
            while let Some(chunk) = state.image.next_set_besides(from, &state.asked) {
                from = chunk + 1;
                state.image.clear(chunk);
                // A write that asks from here on waits until the bit is set again.
                state.durable.clear(chunk);
                state.due.insert(state.image.page_of(chunk));
            }
        }
        let _ = self.write_due().await;
    }

    /// Clears all bits of an array that was marked clean at its stop. No request is inside, and none will come. A member
    /// that cannot take it keeps its bits, which are not needed: it is not failed for that.
    pub(crate) async fn clear_at_stop(&self) {
        let _one = self.turn.acquire(1).await;
        let events_cleared = {
            let master = self.steward.master();
            assert_ne!(master.gate(), Gate::Open, "no write may come any more");
            // A start that was stopped has not brought the bitmaps and superblocks up to date.
            if !master.has_opened()
                || !master.is_whole()
                || master.is_dirty()
                || self.state.borrow().image.next_set(0).is_none()
            {
                return;
            }
            master.events_shown()
        };
        self.state.borrow_mut().image.change_header(|header| {
            header.events_cleared = header.events_cleared.max(events_cleared);
        });
        let first = self.snapshot(0);
        let pages = {
            let state = &mut *self.state.borrow_mut();
            state.image.clear_all();
            state.durable.clear_all();
            state.due.clear();
            state.image.pages()
        };
        let clear = async |member: usize| {
            for page in 0..pages {
                self.write_page(member, &self.snapshot(page)).await?;
            }
            Ok(())
        };
        // `events_cleared` first, on every member, as in `clear`. One that cannot take it keeps its bits.
        let show = async |member: usize| (member, self.write_page(member, &first).await);
        let shown = join_all(self.holders().into_iter().map(show)).await;
        let have_shown = shown.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(member, _)| *member);
        let outcomes: Vec<Result<(), IoError>> = join_all(have_shown.map(clear)).await;
        if outcomes.len() < shown.len() || outcomes.iter().any(Result::is_err) {
            mark::hit(Mark::BitmapWriteFailed);
        }
    }

    /// Notes that the bits name what was written since the superblocks counted these events. The next round of superblocks
    /// writes it.
    pub(crate) fn count_from(&self, events: u64) {
        self.state.borrow_mut().image.change_header(|header| header.events_cleared = events);
    }

    /// The array has no bitmap from here on. The caller has the turn.
    pub(crate) fn end(&self) {
        self.phase.set(Phase::Ended);
    }

    /// Waits until no round of pages is under way. None begins until the permit is dropped.
    pub(crate) async fn turn(&self) -> Permit {
        self.turn.acquire(1).await
    }
}

fn failures(outcomes: Vec<(usize, Result<(), IoError>)>) -> Vec<FailedMember> {
    let mut failed: Vec<FailedMember> = Vec::new();
    for (member, error) in outcomes.into_iter().filter_map(|(member, outcome)| Some((member, outcome.err()?))) {
        if failed.iter().all(|(other, _)| *other != member) {
            failed.push((member, error));
        }
    }
    failed
}
