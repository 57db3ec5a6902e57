//! One running array as its control socket and the watch see it, on shard 0.
//! Owns: its report, names of its members, `fail`. Not here: members that come and go (`membership`), what the array does (`engine`), starting and stopping the
//! arrays of the process (`session`).
//! Invariant: it only reads and calls; the array never waits for it.

mod access;
mod bitmap;
pub(crate) mod control_socket;
mod membership;
mod passes;
pub(crate) mod paths;
mod replace;
pub(crate) mod silence;
pub(crate) mod spare_groups;
mod stop;
pub(crate) mod watch;
pub(crate) mod words;

use crate::lines::frozen;
use crate::lines::member_errors;
use crate::lines::pace::Pace;
use crate::overseer::control_socket::Controlled;
use crate::overseer::paths::MemberPaths;
use crate::session::Session;
use crate::session::message::ArrayCounts;
use crate::stack::Assembled;
use crate::stack::roster::MemberPath;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::{ArrayIndex, HostArray};
use uraid_block::{Slot, SlotSet};
use uraid_control::dates;
use uraid_control::log::{self, warn, with_causes};
use uraid_control::protocol::pass_calls::PassCall;
use uraid_control::protocol::{BitmapCall, Method, NewDevice, RpcError};
use uraid_control::report::{
    self, Clients, Counts, LeftOut, Member, MemberIo, MemberRequests, PassLimits, Report, SlowestRequest,
};
use uraid_control::words::member_words;
use uraid_engine::view::Gate;
use uraid_engine::{
    BadBlockList, FailError, MemberCounts, MemberState, PassKind, RequestKind, SpeedLimits, Status, StaysFrozen,
};
use uraid_export_nbd::Statistics;
use uraid_format::MemberFlag;
use uraid_layout::Level;

/// How often the status is checked. It is also checked after `fail`, and before and after the stop, so that no change
/// is missed.
const PERIOD: Duration = Duration::from_millis(100);

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
}

impl Overseer {
    /// For array `index` of the session. Logs members that do not answer, from the array's start to its stop.
    pub(crate) fn new(session: Rc<Session>, index: ArrayIndex) -> Overseer {
        session.local().spawn(silence::watch(session.clone(), index));
        let (array, paths) = (session.array(index), MemberPaths::new(session.clone(), index));
        let said = RefCell::new(array.status());
        let (is_failing, pace) = (Cell::new(false), RefCell::new(Pace::new()));
        Overseer { session, index, array, paths, said, is_failing, pace, returned: RefCell::default() }
    }

    /// Reports on stderr what has changed since the last call.
    pub(crate) fn say_changes(&self) {
        if self.is_failing.get() {
            return;
        }
        let now = self.status();
        let before = self.said.replace(now.clone());
        let returned = |index| self.returned.borrow().contains(&index);
        for line in watch::changes(&before, &now, |index| self.member_name(index), returned) {
            warn(&format!("{}: {line}", self.name()));
        }
    }

    /// Reports what changes, and notes how far a pass is, until dropped.
    pub(crate) async fn watch(self: Rc<Self>) {
        let local = self.session.local();
        loop {
            self.say_changes();
            self.note_pace(&self.status());
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

    fn assembled(&self) -> &Assembled {
        self.session.setup().stack.array(self.index)
    }

    /// The engine's status.
    pub(crate) fn status(&self) -> Status {
        self.array.status()
    }

    /// The array's name.
    pub(crate) fn name(&self) -> &str {
        &self.assembled().name
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
        self.assembled().spare_group.as_deref()
    }

    /// Whether spares may take slots now: the array is open, and its passes are not paused (`uraid freeze`).
    pub(crate) fn takes_spares(&self) -> bool {
        self.status().gate == Gate::Open && !self.array.are_passes_paused()
    }

    /// Whether a spare is there that may take a slot.
    pub(crate) fn has_usable_spare(&self) -> bool {
        self.array.has_usable_spare()
    }

    fn member_paths(&self, index: usize) -> &MemberPath {
        &self.assembled().roster.seat(index).path
    }

    /// `None`: it was removed.
    fn member_entry(&self, index: usize, status: &Status, io: MemberIo) -> Option<Member> {
        let flags = report::flag_words(status.flags[index].iter().copied());
        let seat = self.assembled().roster.seat(index);
        let (number, data_offset) = (Some(seat.number), Some(seat.data_offset.0));
        let MemberPath { path, written } = self.member_paths(index).clone();
        let (written, path) = (Some(written).filter(|written| *written != path), Some(path));
        let path_state = paths::word(self.paths.state(index));
        let entry = move |slot: Option<Slot>, state: &str, reason| {
            let (slot, state) = (slot.map(|slot| slot.0), state.to_owned());
            Member { number, slot, state, path, written, reason, data_offset, flags, path_state, io: Some(io) }
        };
        Some(match status.members[index] {
            MemberState::Active(slot) => entry(Some(slot), "active sync", None),
            MemberState::Recovering { slot, .. } => entry(Some(slot), "spare rebuilding", None),
            MemberState::Replacing { slot, .. } if status.at_rest.contains(slot) => {
                entry(Some(slot), report::WHOLE_REPLACEMENT, None)
            }
            MemberState::Replacing { slot, .. } => entry(Some(slot), report::REPLACEMENT, None),
            MemberState::Spare => entry(None, "spare", None),
            MemberState::Removed => return None,
            MemberState::Faulty { operation, error, .. } => {
                entry(None, "faulty", Some(member_errors::failure_text(operation, error)))
            }
        })
    }

    fn member_io(&self, counts: &MemberCounts, bad_blocks: &BadBlockList, is_needed: bool) -> MemberIo {
        let of = |kind| {
            let of_kind = counts.kind(kind);
            MemberRequests { count: of_kind.requests, bytes: of_kind.bytes, errors: of_kind.errors }
        };
        let (now, local) = (dates::now(), self.session.local());
        let slowest = counts.slowest.map(|slowest| SlowestRequest {
            kind: slowest.kind.name().to_owned(),
            us: u64::try_from(slowest.time.as_micros()).unwrap_or(u64::MAX),
            ended: now.saturating_sub(local.now().since(slowest.at).as_secs()),
        });
        MemberIo {
            reads: of(RequestKind::Read),
            writes: of(RequestKind::Write),
            flushes: of(RequestKind::Flush),
            discards: of(RequestKind::Discard),
            zeroes: of(RequestKind::Zeroes),
            read_elsewhere_sectors: counts.read_elsewhere.0,
            bad_blocks: bad_blocks.ranges().iter().map(|range| (range.start.0, range.length.0)).collect(),
            slowest,
            unanswered_ms: u64::try_from(counts.unanswered_for.as_millis()).unwrap_or(u64::MAX),
            is_needed,
        }
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
        let left_out = self.assembled().left_out.iter().find(|left| stack.is_path_of(self.index, &left.path, member));
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
            MemberState::Spare => Err(RpcError::refused(format!("{member}: is a spare"))),
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

    /// The engine's words, with paths in place of slots.
    fn fail_text(&self, slots: SlotSet, error: &FailError) -> String {
        match error {
            FailError::NoMember { slot } => match self.member_in(*slot) {
                // The superblocks do not list it in its slot yet.
                Some(member) if self.status().members.iter().any(|state| state.slot() == Some(*slot)) => {
                    format!("{member}: takes its slot just now; try again")
                }
                Some(member) => format!("{member}: has failed already"),
                None => format!("{slot}: no member works there"),
            },
            FailError::Needed { left: _, working, needed } => {
                let members: Vec<String> = slots.iter().map(|slot| self.member_or_slot(slot)).collect();
                let members = members.join(", ");
                let why = match self.array.layout().level() {
                    // The number says nothing: it matters which members hold copies of the same data.
                    Level::Raid1 | Level::Raid10 => "some data would have no copy left".to_owned(),
                    Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                        format!("{working} members work, {needed} are needed")
                    }
                };
                format!("the array cannot serve without {members}: {why}")
            }
            FailError::StaysFrozen(StaysFrozen::CannotWrite { slot, error }) => {
                let member = self.member_or_slot(*slot);
                format!(
                    "the array stays frozen: {member} would stay and cannot be written: make room for it, or name it in \
                     the same command ({error})"
                )
            }
            FailError::StaysFrozen(StaysFrozen::CannotRead { slot, error }) => {
                let member = self.member_or_slot(*slot);
                format!(
                    "the array stays frozen: {member} cannot be read where a write was left half done; stop it and start \
                     it again ({error})"
                )
            }
            FailError::StaysFrozen(StaysFrozen::LostData { slot }) => {
                let member = self.member_or_slot(*slot);
                format!(
                    "the array stays frozen: a write was left half done in a stripe that lacks the data of {member}; stop \
                     it and start it again"
                )
            }
            FailError::Frozen(_) => match self.frozen_over() {
                Some(reason) => format!("{error} ({reason})"),
                None => with_causes(error),
            },
            FailError::ReadOnly => self.is_read_only_text(),
            FailError::NotOpen | FailError::StaysFrozen(_) => with_causes(error),
        }
    }
}

impl Controlled for Overseer {
    async fn report(&self) -> Report {
        self.paths.look(paths::WAITS_MAX).await;
        let (counts, clients) = self.session.counts(self.index).await;
        let status = self.status();
        let mut report = Report::of_template(&self.assembled().plan.template, Some(self.array.layout()));
        self.name().clone_into(&mut report.name);
        let io = |index: usize| {
            let of_shards = counts.iter().map(|shard| shard.member(index));
            let sum = of_shards.fold(MemberCounts::default(), |sum, shard| sum.and(&shard));
            self.member_io(&sum, &status.bad_blocks[index], status.errors[index].is_needed)
        };
        let mut members: Vec<Member> =
            (0..status.members.len()).filter_map(|index| self.member_entry(index, &status, io(index))).collect();
        let filled: SlotSet = status.members.iter().filter_map(MemberState::slot).collect();
        members.extend((0..status.slots).filter(|slot| !filled.contains(Slot(*slot))).map(Member::removed));
        members.sort_by_key(Member::order);
        report.members = members;
        report.events = status.events;
        report.updated = status.updated;
        self.note_pace(&status);
        if let Some(pass) = status.pass {
            let progress = Some(self.pace.borrow().progress(pass.done, pass.total));
            match pass.kind {
                PassKind::Resync => report.resync = progress,
                PassKind::Recovery | PassKind::Replace => report.recovery = progress,
                PassKind::Check => report.check = progress,
                PassKind::Repair => report.repair = progress,
            }
        }
        bitmap::show(&status, &mut report);
        report.passes_frozen = self.array.are_passes_paused();
        let limits = self.array.speed();
        report.pass_limits = Some(PassLimits::new(limits.min.unwrap_or(SpeedLimits::MIN_KIB), limits.max));
        report.last_check = self.check_result(false);
        report.read_only = self.session.setup().stack.read_only_text(self.index);
        report.left_out.clone_from(&self.assembled().left_out);
        report.spare_group.clone_from(&self.assembled().spare_group);
        report.state = state_words(&status, self.session.is_stopping());
        report.frozen = self.frozen_over();
        let counts = sum(&counts);
        let setup = self.session.setup();
        report.is_blank = counts.writes == 0 && setup.stack.blank.contains(&self.index);
        report.counts = Some(counts);
        report.clients = Some(requests(&clients, setup.frontends.exports.len()));
        let member_timeout = setup.options.member_timeout.unwrap_or_default();
        let is_parity = self.array.layout().level().is_parity();
        report.device = setup.frontends.devices.get(self.index.0).map(|device| device.text());
        let mut server = report::Server {
            pid: std::process::id(),
            uris: Vec::new(),
            is_ready: self.session.is_ready(),
            shards: setup.shards,
            last_record_us: status.last_record.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            kernel: is_parity.then(|| uraid_parity::Kernel::best().name().to_owned()),
            member_timeout_ms: u64::try_from(member_timeout.as_millis()).ok(),
            log: log::file().map(|path| path.display().to_string()),
            exports: Vec::new(),
        };
        let is_read_only = matches!(status.gate, Gate::NoNewWrites | Gate::ReadOnly);
        setup.frontends.show(self.index, is_read_only, &mut server);
        report.server = Some(server);
        report
    }

    async fn fail(&self, members: &[String]) -> Result<Value, RpcError> {
        let (words, members): (Vec<String>, Vec<String>) =
            members.iter().cloned().partition(|member| *member == member_words::DETACHED);
        let (replacements, firsts): (Vec<_>, Vec<_>) =
            members.iter().partition(|member| self.replacement_called(member).is_some());
        let named = firsts.into_iter().map(|member| self.slot_of(member)).collect::<Result<SlotSet, RpcError>>()?;
        let detached = if words.is_empty() { SlotSet::EMPTY } else { self.detached_slots().await };
        let slots = named.or(detached);
        self.say_changes();
        for member in replacements {
            self.fail_replacement(member).await?;
        }
        if !slots.is_empty() {
            self.is_failing.set(true);
            let outcome = self.array.fail(slots).await;
            self.is_failing.set(false);
            let outcome = outcome.map_err(|error| RpcError::refused(self.fail_text(slots, &error)));
            self.say_changes();
            outcome?;
        }
        let (picture, lost) = (self.status().picture(), self.status().without_source);
        let caution = (!lost.is_zero()).then(|| watch::lost_line(lost));
        let detached = detached.minus(named).iter().map(|slot| self.member_or_slot(slot));
        let members: Vec<String> = members.into_iter().chain(detached).collect();
        Ok(json!({ "array": self.name(), "members": members, "slots": picture, "caution": caution }))
    }

    async fn add(&self, members: &[NewDevice], force: bool) -> Result<Value, RpcError> {
        self.add_members(members, force).await
    }

    async fn re_add(&self, members: &[String]) -> Result<Value, RpcError> {
        self.re_add_members(members).await
    }

    async fn remove(&self, members: &[String]) -> Result<Value, RpcError> {
        self.remove_members(members).await
    }

    async fn replace(&self, members: &[String], with: &[String]) -> Result<Value, RpcError> {
        self.replace_members(members, with).await
    }

    async fn set_flag(&self, members: &[String], flag: MemberFlag, is_set: bool) -> Result<Value, RpcError> {
        self.set_flag_of(members, flag, is_set).await
    }

    async fn access(&self, is_read_only: bool) -> Result<Value, RpcError> {
        self.change_access(is_read_only).await
    }

    async fn bitmap(&self, call: BitmapCall) -> Result<Value, RpcError> {
        self.change_bitmap(call).await
    }

    async fn passes(&self, call: PassCall) -> Result<Value, RpcError> {
        self.call_passes(call).await
    }

    async fn stop(&self, all: bool, force: bool) -> Result<(), RpcError> {
        self.stop_all_arrays(all, force).await
    }

    fn answered(&self, method: &Method) {
        match method {
            Method::Stop { .. } => self.session.stop_answered(),
            Method::Status
            | Method::Fail { .. }
            | Method::Add { .. }
            | Method::ReAdd { .. }
            | Method::Remove { .. }
            | Method::Replace { .. }
            | Method::SetFlag { .. }
            | Method::Access { .. }
            | Method::Bitmap(_)
            | Method::Passes(_) => (),
        }
    }
}

/// The sum over all shards.
fn sum(counts: &[ArrayCounts]) -> Counts {
    counts.iter().map(|shard| &shard.requests).fold(Counts::default(), |sum, shard| Counts {
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

/// The requests of the process's clients.
fn requests(counted: &Statistics, exports: usize) -> Clients {
    Clients {
        exports,
        connections: counted.connections,
        connected: counted.connected,
        reads: counted.reads,
        read_bytes: counted.read_bytes,
        writes: counted.writes,
        written_bytes: counted.written_bytes,
        flushes: counted.flushes,
        trims: counted.trims,
        write_zeroes: counted.write_zeroes,
        caches: counted.caches,
        block_statuses: counted.statuses,
        refused: counted.refused,
        failed: counted.failed,
    }
}

/// mdadm's words for the state.
fn state_words(status: &Status, is_stopping: bool) -> Vec<String> {
    let mut words = vec![if status.is_dirty { "active" } else { "clean" }];
    if status.usable.count() < usize::from(status.slots) {
        words.push("degraded");
    }
    match status.gate {
        Gate::Open => words.extend(status.pass.map(|pass| match pass.kind {
            PassKind::Resync => "resyncing",
            PassKind::Recovery | PassKind::Replace => "recovering",
            PassKind::Check => "checking",
            PassKind::Repair => "repairing",
        })),
        Gate::Closed if is_stopping => words.push("stopping"),
        Gate::Closed => words.push("starting"),
        Gate::NoNewWrites | Gate::ReadOnly => words.push("read-only"),
        Gate::Frozen(_) => words.push("frozen"),
        Gate::Stopped => words.push("stopped"),
    }
    words.into_iter().map(str::to_owned).collect()
}
