//! Member files that are deleted, replaced or moved while an array runs on them.
//! Owns: looking at them every few seconds, what is said of it. Not here: members that fail (`watch`), the look itself
//! (`uraid_host`). Invariant: one look of an array at a time, and nothing waits long for it: a file system that hangs
//! keeps one helper thread.

use crate::session::Session;
use crate::stack::Members;
use crate::world::ArrayIndex;
use crate::{dates, warn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Notify, join_all, race};
use uraid_engine::MemberState;
use uraid_host::{Claimed, PathState};

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(2);
/// How long a report and a stop wait for a look.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);

/// The paths of one array's members, on shard 0.
pub struct MemberPaths {
    session: Rc<Session>,
    index: ArrayIndex,
    /// By member of the plan, as last seen; empty before the first look.
    states: RefCell<Vec<PathState>>,
    is_looking: Cell<bool>,
    looked: Notify,
}

impl MemberPaths {
    /// Of one array of the session.
    pub fn new(session: Rc<Session>, index: ArrayIndex) -> Rc<MemberPaths> {
        let (states, is_looking, looked) = (RefCell::new(Vec::new()), Cell::new(false), Notify::new());
        Rc::new(MemberPaths { session, index, states, is_looking, looked })
    }

    /// Looks until dropped.
    pub async fn watch(self: Rc<Self>) {
        loop {
            self.look().await;
            self.session.local().sleep(PERIOD).await;
        }
    }

    /// Looks at all; ends early where that takes long.
    pub async fn look(self: &Rc<Self>) {
        let local = self.session.local();
        if !self.is_looking.replace(true) {
            let paths = self.clone();
            local.spawn(async move { paths.look_to_the_end().await });
        }
        let done = self.looked.wait_for(|| (!self.is_looking.get()).then_some(()));
        race(done, local.sleep(LOOK_TIME_MAX)).await;
    }

    /// What was last seen of a member of the plan.
    pub fn state(&self, member: usize) -> PathState {
        self.states.borrow().get(member).copied().unwrap_or(PathState::Same)
    }

    /// To be said when the array was stopped as it should be: what it was stopped on that is gone with the process.
    pub fn say_what_vanishes(&self) {
        let stack = &self.session.setup().stack;
        let is_deleted = |member: &usize| self.state(*member) == PathState::Deleted;
        let deleted = (0..self.claimed().len()).filter(is_deleted).map(|member| stack.member_name(self.index, member));
        let deleted: Vec<&str> = deleted.collect();
        if !deleted.is_empty() {
            let array = stack.array(self.index);
            let how = if array.plan.read_only.is_some() { "is stopped" } else { "is clean" };
            let files = deleted.join(", ");
            warn(&format!("{}: {how}, but on files that vanish with this process: {files}", array.name));
        }
    }

    fn claimed(&self) -> &[Claimed] {
        match &self.session.setup().stack.array(self.index).members {
            Members::Claimed(members) => members,
            Members::Arrays(_) => &[],
        }
    }

    async fn look_to_the_end(&self) {
        let local = self.session.local();
        let mut now = join_all(self.claimed().iter().map(|member| member.path_state(&local))).await;
        let status = self.session.array(self.index).status();
        for (member, state) in now.iter_mut().enumerate() {
            let place = match status.members[member] {
                MemberState::Active(slot) => slot.to_string(),
                MemberState::Spare => "spare".to_owned(),
                // The array does not use it any more.
                MemberState::Faulty { .. } => {
                    *state = PathState::Same;
                    continue;
                }
            };
            let stack = &self.session.setup().stack;
            if let Some(text) = news(self.state(member), *state) {
                let (array, name) = (&stack.array(self.index).name, stack.member_name(self.index, member));
                warn(&format!("{} {array}: member {name} ({place}): {text}", dates::stamp(dates::now())));
            }
        }
        *self.states.borrow_mut() = now;
        self.is_looking.set(false);
        self.looked.notify_all();
    }
}

/// What is to be said when a path's state has changed.
fn news(before: PathState, now: PathState) -> Option<&'static str> {
    if before == now {
        return None;
    }
    match now {
        PathState::Same => None,
        PathState::Deleted => Some(
            "its file was deleted, or another one was renamed over it; the array goes on with it, and what it holds is \
             gone when the array stops: copy the array's data before that",
        ),
        PathState::Replaced => Some(
            "its path leads to another file now; the array goes on with the one that it has open, and its next start \
             needs the path that this one has now",
        ),
        PathState::Missing => Some(
            "its path leads to nothing now; the array goes on with the file that it has open, and its next start needs \
             the path that this one has now",
        ),
    }
}

/// The state as reports have it.
pub fn word(state: PathState) -> Option<String> {
    let word = match state {
        PathState::Same => return None,
        PathState::Deleted => "deleted",
        PathState::Replaced => "replaced",
        PathState::Missing => "missing",
    };
    Some(word.to_owned())
}
