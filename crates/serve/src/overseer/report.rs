//! The report of a running array: what `uraid detail` shows.
//! Owns: its facts, gathered from the array, the shards and the frontends; mdadm's words for the state. Not here: how a
//! report is written (`uraid_control::report`).
//! Invariant: it only asks; nothing changes by a report.

use super::{Overseer, bitmap, paths};
use crate::lines::member_errors;
use crate::session::message::ArrayCounts;
use crate::stack::roster::MemberPath;
use std::time::Duration;
use uraid_block::{Slot, SlotSet};
use uraid_control::report::{
    self, Clients, Counts, Member, MemberIo, MemberRequests, PassLimits, Report, SlowestRequest,
};
use uraid_control::{dates, history, log};
use uraid_engine::view::Gate;
use uraid_engine::{
    BadBlockList, MemberCounts, MemberState, ReportedAs, RequestKind, RequestTimes, SpeedLimits, Status, Times,
};
use uraid_export_nbd::Statistics;

impl Overseer {
    /// Its state now.
    pub(super) async fn report(&self) -> Report {
        self.paths.look(paths::WAITS_MAX).await;
        let (counts, clients) = self.session.counts(self.index).await;
        let status = self.status();
        let mut report = Report::of_template(&self.running().plan.template, Some(&self.array.layout()));
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
            match pass.kind.names().reported_as {
                ReportedAs::Resync => report.resync = progress,
                ReportedAs::Recovery => report.recovery = progress,
                ReportedAs::Check => report.check = progress,
                ReportedAs::Repair => report.repair = progress,
            }
        }
        bitmap::show(&status, &mut report);
        report.passes_frozen = self.array.are_passes_paused();
        let limits = self.array.speed();
        let (min, share) = (limits.min.unwrap_or(SpeedLimits::MIN_KIB), self.array.pass_share().percent());
        report.pass_limits = Some(PassLimits::new(min, limits.max, Some(share)));
        report.last_check = self.check_result(false);
        self.follow_check();
        report.checks = self.check_record();
        report.maintenance_until = self.maintenance_until();
        report.history_error = history::error();
        report.read_only = self.session.setup().stack.read_only_text(self.index);
        report.left_out.clone_from(&self.running().left_out);
        report.spare_group.clone_from(&self.running().spare_group);
        report.state = state_words(&status, self.session.is_stopping());
        report.frozen = self.frozen_over();
        report.times = Some(times(&counts));
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

    /// `None`: it was removed.
    fn member_entry(&self, index: usize, status: &Status, io: MemberIo) -> Option<Member> {
        let flags = report::flag_words(status.flags[index].iter().copied());
        let seat = self.running().roster.seat(index);
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

/// How long the requests of all shards took.
fn times(counts: &[ArrayCounts]) -> report::RequestTimes {
    let sum = counts.iter().fold(RequestTimes::default(), |sum, shard| sum.and(&shard.times));
    let nanos = |bound: Duration| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    let of = |times: Times| report::Times { counts: times.counts.to_vec(), sum_ns: times.sum };
    report::RequestTimes {
        bounds_ns: (0..Times::BUCKETS).filter_map(Times::bound).map(nanos).collect(),
        reads: of(sum.reads),
        writes: of(sum.writes),
        flushes: of(sum.flushes),
    }
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
        Gate::Open => words.extend(status.pass.map(|pass| pass.kind.names().state)),
        Gate::Closed if is_stopping => words.push("stopping"),
        Gate::Closed => words.push("starting"),
        Gate::NoNewWrites | Gate::ReadOnly => words.push("read-only"),
        Gate::Frozen(_) => words.push("frozen"),
        Gate::Stopped => words.push("stopped"),
    }
    words.into_iter().map(str::to_owned).collect()
}
