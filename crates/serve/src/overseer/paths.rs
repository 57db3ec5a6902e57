//! Member files that are deleted, replaced or moved while an array runs on them.
//! Owns: checking them every few seconds, the messages. Not here: members that fail (`watch`), the check itself
//! (`uraid_host`). Invariant: one check of a member at a time, and no task waits long for it: a file system that hangs
//! occupies one helper thread, and delays no report of other members.

use crate::session::Session;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::ArrayIndex;
use uraid_block::Tick;
use uraid_block::local::{Notify, race};
use uraid_control::log::warn;
use uraid_engine::MemberState;
use uraid_host::PathState;

/// The period of the checks.
const PERIOD: Duration = Duration::from_secs(2);
/// How long a report or a stop waits for a check: too short for a caller to notice. A check takes microseconds unless a
/// path hangs.
pub(crate) const WAITS_MAX: Duration = Duration::from_millis(40);
/// A check that has run for longer than this hangs. Nothing waits for it, and the path keeps its last known state.
const HANGS_AFTER: Duration = Duration::from_secs(1);

/// The paths of one array's members, on shard 0.
pub(crate) struct MemberPaths {
    session: Rc<Session>,
    index: ArrayIndex,
    /// By member.
    members: RefCell<Vec<Rc<Seen>>>,
    looked: Notify,
}

/// One member's path.
struct Seen {
    /// The last known state.
    state: Cell<PathState>,
    /// When the current check began; `None` if there is none.
    looking: Cell<Option<Tick>>,
    /// How many checks have ended.
    ended: Cell<u64>,
}

impl MemberPaths {
    /// The paths of one array of the session.
    pub(crate) fn new(session: Rc<Session>, index: ArrayIndex) -> Rc<MemberPaths> {
        Rc::new(MemberPaths { session, index, members: RefCell::default(), looked: Notify::new() })
    }

    /// The path of each member, those that were added too.
    fn all(&self) -> Vec<Rc<Seen>> {
        let unseen = || Seen { state: Cell::new(PathState::Same), looking: Cell::new(None), ended: Cell::new(0) };
        let mut members = self.members.borrow_mut();
        let count = self.session.setup().stack.array(self.index).roster.seats().count();
        members.resize_with(count, || Rc::new(unseen()));
        members.clone()
    }

    /// Checks until dropped.
    pub(crate) async fn watch(self: Rc<Self>) {
        loop {
            self.look(PERIOD).await;
            self.session.local().sleep(PERIOD).await;
        }
    }

    /// Checks all paths, and waits for at most `waits_max`.
    pub(crate) async fn look(self: &Rc<Self>, waits_max: Duration) {
        let local = self.session.local();
        let now = local.now();
        // Do not wait for checks that other callers begin meanwhile.
        let mut waited: Vec<(Rc<Seen>, u64)> = Vec::new();
        for (member, seen) in self.all().into_iter().enumerate() {
            match seen.looking.get() {
                Some(since) if now.since(since) > HANGS_AFTER => continue,
                Some(_) => {}
                // The array no longer uses the member, and its path may hang.
                None if self.place(member).is_none() => {
                    seen.state.set(PathState::Same);
                    continue;
                }
                None => {
                    seen.looking.set(Some(now));
                    let paths = self.clone();
                    local.spawn(async move { paths.look_at(member).await });
                }
            }
            let ended = seen.ended.get();
            waited.push((seen, ended));
        }
        let have_ended = || waited.iter().all(|(seen, before)| seen.ended.get() > *before).then_some(());
        race(self.looked.wait_for(have_ended), local.sleep(waits_max)).await;
    }

    /// The last known state of a member of the plan.
    pub(crate) fn state(&self, member: usize) -> PathState {
        self.all().get(member).map_or(PathState::Same, |seen| seen.state.get())
    }

    /// Call it after a clean stop: warns that deleted members are gone when the process ends.
    pub(crate) fn say_what_vanishes(&self) {
        let stack = &self.session.setup().stack;
        let is_deleted = |member: &usize| self.state(*member) == PathState::Deleted;
        let deleted = (0..self.all().len()).filter(is_deleted).map(|member| stack.member_name(self.index, member));
        let deleted: Vec<&str> = deleted.collect();
        if !deleted.is_empty() {
            let array = stack.array(self.index);
            let how = if array.plan.read_only.is_some() { "is stopped" } else { "is clean" };
            let files = deleted.join(", ");
            warn(&format!("{}: {how}, but on files that vanish with this process: {files}", array.name));
        }
    }

    /// The place of a member that the array uses.
    fn place(&self, member: usize) -> Option<String> {
        match self.session.array(self.index).status().members[member] {
            MemberState::Active(slot) | MemberState::Recovering { slot, .. } | MemberState::Replacing { slot, .. } => {
                Some(slot.to_string())
            }
            MemberState::Spare => Some("spare".to_owned()),
            MemberState::Removed | MemberState::Faulty { .. } => None,
        }
    }

    async fn look_at(&self, member: usize) {
        let seen = self.all()[member].clone();
        let claim = self.session.setup().stack.array(self.index).roster.seat(member).claim();
        let now = match claim {
            Some(claim) => claim.path_state(&self.session.local()).await,
            None => None,
        };
        let place = self.place(member);
        let before = seen.state.get();
        // A path that cannot be checked counts as unchanged.
        let now = if place.is_some() { now.unwrap_or(before) } else { PathState::Same };
        seen.state.set(now);
        if let (Some(place), Some(text)) = (place, news(before, now)) {
            let stack = &self.session.setup().stack;
            let (array, name) = (&stack.array(self.index).name, stack.member_name(self.index, member));
            warn(&format!("{array}: member {name} ({place}): {text}"));
        }
        seen.looking.set(None);
        seen.ended.set(seen.ended.get() + 1);
        self.looked.notify_all();
    }
}

/// The message if a path's state has changed.
fn news(before: PathState, now: PathState) -> Option<&'static str> {
    if before == now {
        return None;
    }
    match now {
        PathState::Same => Some("its path leads to it again"),
        PathState::Deleted => Some(
            "its file was deleted, or another one was renamed over it; the array goes on with it, and what it holds is \
             gone when the array stops: copy the array's data before that",
        ),
        PathState::Replaced => Some(
            "its path leads to another file now; the array goes on with the one that it has open, and its next start \
             needs the path that this one has now",
        ),
        PathState::Missing => Some(
            "its path leads nowhere now; the array goes on with the file that it has open, and its next start needs \
             the path that this one has now",
        ),
    }
}

/// The state in reports.
pub(crate) fn word(state: PathState) -> Option<String> {
    let word = match state {
        PathState::Same => return None,
        PathState::Deleted => "deleted",
        PathState::Replaced => "replaced",
        PathState::Missing => "missing",
    };
    Some(word.to_owned())
}
