//! One running array as its control socket and the watch see it, on shard 0.
//! Owns: which call goes where, names of its members, what has changed since the last look. Not here: each call (the files
//! beside this one), what the array does (`engine`), starting and stopping the arrays of the process (`life`).
//! Invariant: it only reads and calls; the array never waits for it.

mod access;
mod bitmap;
mod checking;
pub(crate) mod control_socket;
mod fail;
mod maintenance;
mod membership;
mod notes;
mod passes;
pub(crate) mod paths;
mod replace;
mod report;
mod seen;
pub(crate) mod silence;
pub(crate) mod spare_groups;
mod stop;
pub(crate) mod watch;
pub(crate) mod words;

use crate::lines::frozen;
use crate::lines::pace::Pace;
use crate::overseer::paths::MemberPaths;
use crate::overseer::seen::{CheckRun, PassSeen};
use crate::session::Session;
use crate::stack::Running;
use crate::stack::roster::MemberPath;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::{ArrayIndex, HostArray};
use uraid_block::Slot;
use uraid_block::local::race;
use uraid_control::history::{self, Actor, CheckPlace};
use uraid_control::log::alert;
use uraid_control::protocol::{Method, NewDevices, RpcError};
use uraid_control::report::LeftOut;
use uraid_engine::view::Gate;
use uraid_engine::{MemberState, Status};
use uraid_format::MemberFlag;

/// The shortest time between two looks at the status, and that between two during a pass. It is also checked after
/// `fail`, and before and after the stop, so that no change is missed.
const PERIOD: Duration = Duration::from_millis(100);
/// The longest time between two looks: a member's errors alone change nothing else.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// One array of a session.
pub(crate) struct Overseer {
    session: Rc<Session>,
    index: ArrayIndex,
    array: Rc<HostArray>,
    /// The state of its members' paths.
    pub paths: Rc<MemberPaths>,
    /// The status that stderr has reported.
    said: RefCell<Status>,
    /// Whether `fail` is running. In a frozen array, `fail` closes the gate meanwhile, which must not be reported.
    is_failing: Cell<bool>,
    /// Of the pass over the array, for its report.
    pace: RefCell<Pace>,
    /// Indexes of members that were given their slots back since the start.
    returned: RefCell<BTreeSet<usize>>,
    /// What is kept of its checks.
    checks: CheckPlace,
    /// The check or repair that runs.
    check_run: RefCell<Option<CheckRun>>,
    /// What the history has said of passes.
    pass_seen: Cell<PassSeen>,
}

impl Overseer {
    /// For array `index` of the session.
    pub(crate) fn new(session: Rc<Session>, index: ArrayIndex) -> Overseer {
        let (array, paths) = (session.array(index), MemberPaths::new(session.clone(), index));
        let said = RefCell::new(array.status());
        let (is_failing, pace) = (Cell::new(false), RefCell::new(Pace::new()));
        let checks = history::checks_of(&session.uuid_text(index));
        let (returned, check_run, pass_seen) = (RefCell::default(), RefCell::default(), Cell::default());
        Overseer { session, index, array, paths, said, is_failing, pace, returned, checks, check_run, pass_seen }
    }

    /// Reports on stderr what has changed since the last call.
    pub(crate) fn say_changes(&self) {
        self.follow_check();
        if self.is_failing.get() {
            return;
        }
        let now = self.status();
        let seen = self.note_end(&now);
        let before = self.said.replace(now.clone());
        let returned = |index| self.returned.borrow().contains(&index);
        for watch::News { event, line, member } in
            watch::changes(&before, &now, |index| self.member_name(index), returned)
        {
            alert(&format!("{}: {line}", self.name()));
            let mut entry = self.session.entry(self.index, event, Actor::Engine, &line);
            if let Some(index) = member {
                // For programs: the path as reports have it, and what the member is now.
                let state = &now.members[index];
                entry = entry.with("member", self.member_paths(index).path.as_str());
                entry = entry.with("slot", state.slot().map(|slot| slot.0));
                entry = entry.with("in_sync", matches!(state, MemberState::Active(_)));
            }
            history::note(entry);
        }
        self.note_begin(&seen, &now);
    }

    /// Reports what changes, and notes how far a pass is, until dropped.
    pub(crate) async fn watch(self: Rc<Self>) {
        let local = self.session.local();
        loop {
            self.say_changes();
            let status = self.status();
            self.note_pace(&status);
            if status.pass.is_none() {
                // The arrays of a process look together, and so wake its thread once.
                let rest = PERIOD_MAX.as_nanos() as u64 - local.now().0 % PERIOD_MAX.as_nanos() as u64;
                race(self.array.next_change(), local.sleep(Duration::from_nanos(rest))).await;
            }
            local.sleep(PERIOD).await;
        }
    }

    /// A pass that waits until the array takes writes, or is paused, has no speed.
    fn note_pace(&self, status: &Status) {
        let mut pace = self.pace.borrow_mut();
        match status.pass.filter(|_| status.gate == Gate::Open && !self.array.are_passes_paused()) {
            Some(progress) => pace.note(progress.done),
            None => pace.forget(),
        }
    }

    fn running(&self) -> &Running {
        self.session.setup().stack.array(self.index)
    }

    /// The engine's status.
    pub(crate) fn status(&self) -> Status {
        self.array.status()
    }

    /// The array's name.
    pub(crate) fn name(&self) -> &str {
        &self.running().name
    }

    /// The name of member `index` of the plan on the command line.
    pub(crate) fn member_name(&self, index: usize) -> &str {
        self.session.setup().stack.member_name(self.index, index)
    }

    /// The process that it is part of.
    pub(crate) fn session(&self) -> &Rc<Session> {
        &self.session
    }

    /// The group of arrays with which it shares its spares.
    pub(crate) fn spare_group(&self) -> Option<&str> {
        self.running().spare_group.as_deref()
    }

    /// Whether spares may take slots now: the array is open, its passes are not paused (`uraid freeze`), and no maintenance
    /// was announced.
    pub(crate) fn takes_spares(&self) -> bool {
        let is_held = self.array.are_passes_paused() || self.maintenance_until().is_some();
        self.status().gate == Gate::Open && !is_held
    }

    /// Whether a spare is there that may take a slot.
    pub(crate) fn has_usable_spare(&self) -> bool {
        self.array.has_usable_spare()
    }

    fn member_paths(&self, index: usize) -> &MemberPath {
        &self.running().roster.seat(index).path
    }

    /// The names of the other arrays of the process, which stop together with this one.
    fn others(&self) -> Vec<&str> {
        let stack = &self.session.setup().stack;
        let others = stack.tops().into_iter().filter(|&top| top != self.index);
        others.map(|other| stack.array(other).name.as_str()).collect()
    }

    /// The slot that a caller names by number or path. Compares text only, because the path may not answer.
    fn slot_of(&self, member: &str) -> Result<Slot, RpcError> {
        let unknown = || RpcError::new(RpcError::NO_MEMBER, format!("{member}: no such member or slot"));
        let status = self.status();
        if let Ok(number) = member.parse::<u16>() {
            return if number < status.slots { Ok(Slot(number)) } else { Err(unknown()) };
        }
        let stack = &self.session.setup().stack;
        let left_out = self.running().left_out.iter().find(|left| stack.is_path_of(self.index, &left.path, member));
        let unknown = || match (left_out, self.array_with(member)) {
            (Some(LeftOut { reason, .. }), _) => {
                RpcError::refused(format!("{member}: was left out at the start: {reason}"))
            }
            (None, Some(array)) => {
                RpcError::refused(format!("{member}: is a member of {array}: `uraid fail {array} {member}`"))
            }
            (None, None) => unknown(),
        };
        let index = self.member_called(self.index, member).ok_or_else(unknown)?;
        match status.members[index] {
            MemberState::Active(slot) | MemberState::Recovering { slot, .. } => Ok(slot),
            MemberState::Replacing { slot, .. } => {
                Err(RpcError::refused(format!("{member}: does not hold all of {slot} yet")))
            }
            MemberState::Spare => Err(RpcError::refused(format!(
                "{member}: is a spare, which holds no data: `uraid remove {} {member}` takes it out",
                self.name()
            ))),
            MemberState::Removed => Err(RpcError::refused(format!("{member}: was removed"))),
            MemberState::Faulty { .. } => Err(RpcError::refused(format!("{member}: has failed already"))),
        }
    }

    /// The member of the array that `member` names. Of several devices that had the path one after the other it is the
    /// one that works, else the last one that was not removed, else the last one.
    fn member_called(&self, array: ArrayIndex, member: &str) -> Option<usize> {
        let stack = &self.session.setup().stack;
        let states = self.session.array(array).status().members;
        let seats = stack.array(array).roster.seats().enumerate();
        let called = seats.filter(|(_, seat)| stack.is_called(array, seat, member)).map(|(index, _)| index);
        called.max_by_key(|&index| match states[index] {
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare => (2, index),
            MemberState::Faulty { .. } => (1, index),
            MemberState::Removed => (0, index),
        })
    }

    /// An array of this process that has the member.
    fn array_with(&self, member: &str) -> Option<&str> {
        let stack = &self.session.setup().stack;
        let array = stack.indexes().find(|&array| self.member_called(array, member).is_some())?;
        Some(&stack.array(array).name)
    }

    /// The path of the member that has or had a slot since the start, with the slot: `/dev/sdb (slot 1)`.
    fn member_in(&self, slot: Slot) -> Option<String> {
        let had_it = |state: &MemberState| match *state {
            MemberState::Faulty { slot: of, .. } => of == Some(slot),
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare
            | MemberState::Removed => false,
        };
        let members = self.status().members;
        let index = members.iter().position(|state| state.slot() == Some(slot));
        let index = index.or_else(|| members.iter().position(had_it));
        index.map(|index| format!("{} ({slot})", self.member_name(index)))
    }

    /// The same, or the slot alone.
    fn member_or_slot(&self, slot: Slot) -> String {
        self.member_in(slot).unwrap_or_else(|| slot.to_string())
    }

    /// Why the array is frozen, if it is.
    fn frozen_over(&self) -> Option<String> {
        frozen::reason(&self.status(), |index| &self.member_paths(index).path)
    }
}

impl Overseer {
    /// Does what a caller asks, and returns the answer; docs/control-protocol.md says of each call when that is.
    pub(super) async fn call(&self, method: &Method) -> Result<Value, RpcError> {
        match method {
            Method::Status {} => Ok(json!(self.report().await)),
            Method::Fail { members } => self.fail(members).await,
            Method::Add(NewDevices { members, force }) => self.add_members(members, *force).await,
            Method::ReAdd { members } => self.re_add_members(members).await,
            Method::Remove { members } => self.remove_members(members).await,
            Method::Replace { members, with } => self.replace_members(members, with).await,
            Method::WriteMostly { members, set } => self.set_flag(members, MemberFlag::WriteMostly, *set).await,
            Method::Failfast { members, set } => self.set_flag(members, MemberFlag::FailFast, *set).await,
            Method::Bitmap(change) => self.change_bitmap(*change).await,
            Method::Check { resume } => self.begin_check(*resume),
            Method::Repair {} => self.begin_repair(),
            Method::Idle {} => self.end_check().await,
            Method::Freeze {} => self.pause_passes(true).await,
            Method::Unfreeze {} => self.pause_passes(false).await,
            Method::Speed { min, max, share } => self.set_speed(*min, *max, *share).await,
            Method::Mismatches {} => self.mismatches(),
            Method::Maintenance { seconds } => self.set_maintenance(*seconds),
            Method::ReadOnly {} => self.change_access(true).await,
            Method::ReadWrite {} => self.change_access(false).await,
            Method::Stop { all, force } => self.stop_all_arrays(*all, *force).await,
        }
    }
}
