//! Stops all arrays, and logs what it waits for.
//! Owns: the order in which arrays are stopped, how long each may take, the members that are named meanwhile. Not here:
//! when a stop begins, what else happens then (`session`), what the stop of one array does (`engine`).
//! Invariant: a time in a line counts from the beginning of the stop, including the wait for clients' requests, and the
//! array is given up by then. The lines of one array name no member twice.

use super::{DRAIN_TIME_MAX, Session};
use crate::session::message::ClientsLeft;
use crate::stack::{MadeOf, StackError};
use std::collections::BTreeSet;
use std::time::Duration;
use uraid_arrays::ArrayIndex;
use uraid_block::local::{Either, race};
use uraid_control::log::{warn, with_causes};
use uraid_control::report::UNANSWERED_MIN;
use uraid_engine::MemberState;
use uraid_host::Claimed;

/// How long an array may take to stop, besides the time in which its members must answer.
const STOP_TIME_MAX: Duration = Duration::from_secs(15);
/// The same if members have no time limit.
const STOP_TIME_MAX_UNBOUNDED: Duration = Duration::from_secs(60);
/// How often to check for members that have not answered requests of clients.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// What the log says about an array whose stop waits.
#[derive(Default)]
pub(crate) struct Waits {
    named: BTreeSet<String>,
    /// When the array is given up, counted from the beginning of the stop.
    end: Option<Duration>,
}

impl Waits {
    /// The members to name in a line now; `None`: no line. If there are no members, there is still one line.
    fn name(&mut self, members: Vec<String>, end: Duration) -> Option<Vec<String>> {
        let is_first = self.end.is_none();
        let new: Vec<String> = members.into_iter().filter(|member| !self.named.contains(member)).collect();
        if new.is_empty() && !is_first {
            return None;
        }
        self.named.extend(new.iter().cloned());
        self.end.get_or_insert(end);
        Some(new)
    }

    /// When to give up an array whose stop begins after `elapsed`: in whole seconds if `time_max` is whole seconds.
    fn end(&self, elapsed: Duration, time_max: Duration) -> Duration {
        let end = Duration::from_secs(elapsed.as_secs()) + time_max;
        self.end.map_or(end, |said| said.min(end))
    }
}

impl ClientsLeft {
    pub(crate) fn add(&mut self, other: ClientsLeft) {
        self.requests += other.requests;
        self.members.extend(other.members);
    }

    /// `3 requests of clients are not done after 20s; m1 has not answered`; `None` if all are done.
    pub(crate) fn text(&self) -> Option<String> {
        let members: Vec<&str> = self.members.iter().map(String::as_str).collect();
        let reason = match members.len() {
            0 => String::new(),
            1 => format!("; {} has not answered", members[0]),
            _ => format!("; {} have not answered", members.join(", ")),
        };
        let count = self.requests;
        (count > 0).then(|| match count {
            1 => format!("1 request of a client is not done after {DRAIN_TIME_MAX:?}{reason}"),
            _ => format!("{count} requests of clients are not done after {DRAIN_TIME_MAX:?}{reason}"),
        })
    }
}

impl Session {
    /// How long the stop has taken so far.
    fn stopping_for(&self) -> Duration {
        let began = self.stop_began.get().expect("arrays are stopped when that was asked for");
        self.station.shard.now().since(began)
    }

    fn stop_time_max(&self) -> Duration {
        self.setup().options.member_timeout.map_or(STOP_TIME_MAX_UNBOUNDED, |time| time + STOP_TIME_MAX)
    }

    /// Logs which members have not answered requests of clients. A stop waits for these requests first. Runs until
    /// dropped.
    pub(crate) async fn say_what_clients_wait_for(&self) {
        let stack = &self.setup().stack;
        loop {
            let first = UNANSWERED_MIN.saturating_sub(self.stopping_for());
            self.station.shard.sleep(first.max(LOOK_PERIOD)).await;
            let silent = self.silent_members().await;
            for top in stack.tops() {
                let is_below = |of: ArrayIndex| match &stack.array(top).made_of {
                    MadeOf::Devices => of == top,
                    MadeOf::Arrays(members) => members.contains(&of),
                };
                let its = silent.iter().filter(|(of, _)| is_below(*of));
                let its: Vec<String> = its.map(|(_, name)| name.clone()).collect();
                if !its.is_empty() {
                    // Arrays with higher indexes are stopped before this one, one after the other.
                    let turn = u32::try_from(self.runs.len() - top.0).expect("arrays are few");
                    self.say_stop_waits(top, its, DRAIN_TIME_MAX + self.stop_time_max() * turn);
                }
            }
        }
    }

    /// Members that are not failed and have not answered a request of any shard for a while, each with its array.
    async fn silent_members(&self) -> Vec<(ArrayIndex, String)> {
        let stack = &self.setup().stack;
        let mut silent = Vec::new();
        let shards = self.counts_of_all().await;
        for index in stack.indexes() {
            let counts: Vec<_> = shards.iter().filter_map(|shard| shard.get(&index)).collect();
            let states = self.station.arrays[index.0].status().members;
            for (at, (seat, state)) in stack.array(index).roster.seats().zip(states).enumerate() {
                let is_silent = counts.iter().any(|shard| shard.member(at).unanswered_for >= UNANSWERED_MIN);
                match state {
                    MemberState::Active(_)
                    | MemberState::Recovering { .. }
                    | MemberState::Replacing { .. }
                    | MemberState::Spare
                        if is_silent =>
                    {
                        silent.push((index, seat.name.clone()));
                    }
                    // No request waits for a failed member.
                    MemberState::Active(_)
                    | MemberState::Recovering { .. }
                    | MemberState::Replacing { .. }
                    | MemberState::Spare
                    | MemberState::Removed
                    | MemberState::Faulty { .. } => {}
                }
            }
        }
        silent
    }

    /// Logs the members that a stop waits for, unless they were logged before. `end`: when the array is given up,
    /// counted from the beginning of the stop.
    fn say_stop_waits(&self, array: ArrayIndex, members: Vec<String>, end: Duration) {
        let Some(members) = self.runs[array.0].waits.borrow_mut().name(members, end) else { return };
        let stack = &self.setup().stack;
        let who = if members.is_empty() { "its members".to_owned() } else { members.join(", ") };
        let name = &stack.array(array).name;
        let mut text = format!("{name}: the stop waits for {who} to answer, for at most {end:?} in all");
        for owner in stack.indexes().filter(|owner| self.station.arrays[owner.0].layout().tolerates() > 0) {
            let is_its = |name: &&String| stack.claimed().any(|(of, member)| of == owner && member.name() == **name);
            let its: Vec<&str> = members.iter().filter(is_its).map(String::as_str).collect();
            if !its.is_empty() {
                let without = if its.len() == 1 { its[0] } else { "these members" };
                let (name, its) = (&stack.array(owner).name, its.join(" "));
                text.push_str(&format!("; `uraid fail {name} {its}` lets it continue without {without}"));
            }
        }
        warn(&text);
    }

    fn say_stopped(&self, index: ArrayIndex) {
        let array = self.setup().stack.array(index);
        let how = if array.plan.read_only.is_some() { "is stopped" } else { "is stopped and clean" };
        warn(&format!("{}: {how}", array.name));
    }

    /// Releases the members of an array early: the kernel does not end a process while one of its members does not
    /// answer, and the other members need not stay claimed for that time. This happens only after a clean stop of an
    /// array with redundancy: members that still had requests in flight have been failed, and keep their locks.
    fn let_members_go(&self, index: ArrayIndex) {
        let states = self.station.arrays[index.0].status().members;
        for (seat, state) in self.setup().stack.array(index).roster.seats().zip(states) {
            match state {
                MemberState::Active(_)
                | MemberState::Recovering { .. }
                | MemberState::Replacing { .. }
                | MemberState::Spare => {
                    seat.claim().iter().for_each(Claimed::release_locks);
                }
                // A failed member may still have requests in flight from before it failed.
                MemberState::Removed | MemberState::Faulty { .. } => {}
            }
        }
    }

    /// Stops all arrays that were started, even if one of them fails to stop; the first error is the outcome.
    pub(crate) async fn stop_all(&self) -> Result<(), StackError> {
        let mut outcome = Ok(());
        for index in self.setup().stack.indexes().rev() {
            if !self.is_started(index) {
                continue;
            }
            let name = &self.setup().stack.array(index).name;
            let end = self.runs[index.0].waits.borrow().end(self.stopping_for(), self.stop_time_max());
            let before = self.station.arrays[index.0].status();
            let stopping = self.station.arrays[index.0].stop();
            let limit = async {
                self.station.shard.sleep(UNANSWERED_MIN).await;
                self.say_stop_waits(index, self.station.shard.unanswered_members(), end);
                self.station.shard.sleep(end.saturating_sub(self.stopping_for())).await;
            };
            let stopped = match race(stopping, limit).await {
                Either::Left(stopped) => {
                    if stopped.is_ok() && self.station.arrays[index.0].layout().tolerates() > 0 {
                        self.let_members_go(index);
                    }
                    stopped.map_err(|error| {
                        let after = self.station.arrays[index.0].status();
                        self.setup().stack.stop_error(index, &before, &after, error)
                    })
                }
                Either::Right(()) => {
                    // The requests in flight cannot be cancelled. As after a kill, the superblocks say dirty.
                    let requests = self.station.arrays[index.0].requests_in_flight();
                    let is_redundant = self.station.arrays[index.0].layout().level().is_redundant();
                    let (array, members) = (name.clone(), self.station.shard.unanswered_members());
                    Err(StackError::NotAnswering { array, members, requests, after: end, is_redundant })
                }
            };
            match (&stopped, &outcome) {
                (Ok(()), _) => self.say_stopped(index),
                // The first error is the outcome of all, and is reported at the end.
                (Err(_), Ok(())) => {}
                (Err(error), Err(_)) => warn(&with_causes(error)),
            }
            self.note_stop(index, stopped.as_ref().err());
            outcome = outcome.and(stopped);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_requests_hold_up_names_the_members_of_all_threads() {
        let left = |requests, members: &[&str]| ClientsLeft {
            requests,
            members: members.iter().map(|&member| member.to_owned()).collect(),
        };
        let mut all = left(0, &["m1"]);
        assert_eq!(all.text(), None);
        all.add(left(1, &[]));
        assert_eq!(all.text().as_deref(), Some("1 request of a client is not done after 20s; m1 has not answered"));
        all.add(left(2, &["m0", "m1"]));
        let expected = "3 requests of clients are not done after 20s; m0, m1 have not answered";
        assert_eq!(all.text().as_deref(), Some(expected));
    }

    #[test]
    fn a_stop_names_each_member_once_and_ends_when_it_said() {
        let (seconds, names) = (Duration::from_secs, |names: &[&str]| -> Vec<String> {
            names.iter().map(|&name| name.to_owned()).collect()
        });
        let mut waits = Waits::default();
        assert_eq!(waits.end(Duration::from_millis(2900), seconds(45)), seconds(47));
        // The stop waits for clients' requests.
        assert_eq!(waits.name(names(&["m1"]), seconds(65)), Some(names(&["m1"])));
        assert_eq!(waits.name(names(&["m1"]), seconds(65)), None);
        // First, clients' requests took a little longer than their limit; then, much less.
        assert_eq!(waits.end(Duration::from_millis(21_100), seconds(45)), seconds(65));
        assert_eq!(waits.end(seconds(3), seconds(45)), seconds(48));
        assert_eq!(waits.name(names(&["m1", "m2"]), seconds(65)), Some(names(&["m2"])));
        assert_eq!(waits.name(Vec::new(), seconds(65)), None);
        assert_eq!(Waits::default().name(Vec::new(), seconds(45)), Some(Vec::new()), "its members");
    }
}
