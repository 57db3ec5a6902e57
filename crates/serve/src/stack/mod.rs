//! The arrays of one process: each on devices of the host, or on arrays before it in the list.
//! Owns: [`Assembled`], [`Stack`], the engine's settings, the memory for their clients, errors of running them. Not here:
//! which members make up an array (`assembly`), building, starting and stopping (`uraid_arrays`, `session`, `one_shot`).
//! Invariant: a member array comes before the array that is made of it, and is a member of one array only.

pub mod assembly;
pub mod roster;

use crate::lines::frozen;
use crate::stack::roster::{MemberPath, Roster, Seat};
use std::time::Duration;
use uraid_arrays::{ArrayIndex, ArraySetup, Members, options_for};
use uraid_control::client;
use uraid_control::log::warn;
use uraid_control::member_name;
use uraid_control::report::LeftOut;
use uraid_engine::verdict::OnFull;
use uraid_engine::{Config, StartError, StartPlan, Status, StopError};
use uraid_format::uuid;
use uraid_host::{ArenaBlocks, CLIENT_ARENA, Claimed, Options};

/// The buffers for the requests of each array's clients. A client may send 32 MiB at once; one request gets at most
/// half of the buffers.
pub(crate) const CLIENT_BLOCKS: ArenaBlocks = ArenaBlocks { small: 4096, large: 1280 };

/// An array that can be started.
pub struct Assembled {
    /// Its name.
    pub name: String,
    /// The slot of each member.
    pub plan: StartPlan,
    /// The members that it was assembled from. While it runs, their claims are those of `roster`.
    pub members: Members,
    /// The members while it runs, those that were added too. Empty before that.
    pub roster: Roster,
    /// Members that were given but are left out.
    pub left_out: Vec<LeftOut>,
    /// The arrays of one group share their spares.
    pub spare_group: Option<String>,
}

/// The arrays of a process.
pub struct Stack {
    /// Member arrays before those that are made of them.
    pub arrays: Vec<Assembled>,
    /// Whether `--force` was given.
    pub force: bool,
    /// More read errors than this fail a member; 0: never.
    pub read_errors_max: u32,
    /// What happens to full members.
    pub on_full: OnFull,
    /// Arrays that showed no data before they were served.
    pub blank: Vec<ArrayIndex>,
}

/// The default limit of read errors.
pub fn read_errors_max_default() -> u32 {
    Config::default().read_errors_max
}

/// Why arrays could not be run from start to stop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StackError {
    /// An array did not start.
    #[error("{array}: the array could not be started{why}")]
    Start {
        /// Its name.
        array: String,
        /// The members with errors, and what to do: see `frozen`.
        why: String,
        /// Why.
        source: StartError,
    },
    /// A signal arrived during the array's resync.
    #[error(
        "{array} was stopped before it was consistent: it stays marked dirty, and its next start continues its resync"
    )]
    Interrupted {
        /// Its name.
        array: String,
    },
    /// An array could not be stopped, because a member does not answer.
    #[error(
        "{array}: members have not answered after {after:?}{}{}; {}",
        if members.is_empty() { String::new() } else { format!(": {}", members.join(", ")) },
        match requests {
            0 => String::new(),
            1 => " (at least 1 request waits for them)".to_owned(),
            _ => format!(" (at least {requests} requests wait for them)"),
        },
        if *is_redundant {
            "the array stays marked dirty, and its next start makes it consistent"
        } else {
            "what was written since the last flush may be lost"
        }
    )]
    NotAnswering {
        /// Its name.
        array: String,
        /// The members with unanswered requests of shard 0.
        members: Vec<String>,
        /// How many requests wait on shard 0.
        requests: u64,
        /// How long the stop waited.
        after: Duration,
        /// Whether its level has redundancy, and so a dirty mark.
        is_redundant: bool,
    },
    /// An array is stopped, but not cleanly.
    #[error("{array}: the array was stopped: {how}")]
    Stop {
        /// Its name.
        array: String,
        /// What is wrong: see `frozen`.
        how: String,
    },
}

impl Stack {
    /// These arrays, with the engine's limit of read errors.
    pub fn new(arrays: Vec<Assembled>, force: bool) -> Stack {
        let (read_errors_max, on_full) = (read_errors_max_default(), OnFull::default());
        Stack { arrays, force, read_errors_max, on_full, blank: Vec::new() }
    }

    /// All arrays by index.
    pub fn indexes(&self) -> impl DoubleEndedIterator<Item = ArrayIndex> + use<> {
        (0..self.arrays.len()).map(ArrayIndex)
    }

    /// One of them.
    pub fn array(&self, index: ArrayIndex) -> &Assembled {
        &self.arrays[index.0]
    }

    /// The arrays that are not members of another one: clients may use them.
    pub fn tops(&self) -> Vec<ArrayIndex> {
        self.indexes().filter(|&index| !self.is_member(index)).collect()
    }

    /// Whether it is a member of another array. Then only that array may write it.
    pub(crate) fn is_member(&self, index: ArrayIndex) -> bool {
        self.arrays.iter().any(|array| match &array.members {
            Members::Claimed(_) => false,
            Members::Arrays(members) => members.contains(&index),
        })
    }

    /// The name of member `member` of an array's plan: as on the command line, or the name of the array that it is.
    pub fn member_name(&self, index: ArrayIndex, member: usize) -> &str {
        match &self.array(index).members {
            Members::Claimed(members) if members.is_empty() => &self.array(index).roster.seat(member).name,
            Members::Claimed(members) => members[member].name(),
            Members::Arrays(members) => &self.array(members[member]).name,
        }
    }

    /// Why an array could not be started, with its members' names.
    pub(crate) fn start_error(&self, index: ArrayIndex, status: &Status, source: StartError) -> StackError {
        let why = frozen::start_text(status, &source, |member| self.member_name(index, member));
        StackError::Start { array: self.array(index).name.clone(), why, source }
    }

    /// Why the stop of an array was not clean. `before`, `after`: its status before and after the stop.
    pub(crate) fn stop_error(
        &self,
        index: ArrayIndex,
        before: &Status,
        after: &Status,
        error: StopError,
    ) -> StackError {
        let reason = frozen::stop_reason(before, after, &error, |member| self.member_name(index, member));
        let is_degraded = before.level.is_parity() && before.usable.count() < usize::from(before.slots);
        StackError::Stop { array: self.array(index).name.clone(), how: frozen::stop_text(&error, reason, is_degraded) }
    }

    /// The name of a member in the form of reports: a path, or the name of an array.
    pub fn member_path(&self, index: ArrayIndex, member: usize) -> String {
        let name = self.member_name(index, member);
        match &self.array(index).members {
            Members::Claimed(_) => client::member_path(name),
            Members::Arrays(_) => name.to_owned(),
        }
    }

    /// Why an array opens read-only. For bad blocks, with the names of the members that have them.
    pub fn read_only_text(&self, index: ArrayIndex) -> Option<String> {
        assembly::read_only_text(&self.array(index).plan, |member| self.member_name(index, member).to_owned())
    }

    /// Gives the members of each array their seats, before anything is served: resolving links accesses the path, and the
    /// directory's file server may hang. From then on the seats have the claims.
    pub fn seat_members(&mut self) {
        for index in self.indexes() {
            let array = self.array(index);
            for (member, plan) in array.plan.members.iter().enumerate() {
                let name = self.member_name(index, member);
                let path = MemberPath { path: self.member_path(index, member), written: member_name::as_written(name) };
                let claim = match &array.members {
                    Members::Claimed(members) => Some(members[member].clone()),
                    Members::Arrays(_) => None,
                };
                array.roster.add(member, Seat::new(name, path, &plan.superblock, claim));
            }
        }
        for array in &mut self.arrays {
            if let Members::Claimed(members) = &mut array.members {
                members.clear();
            }
        }
    }

    /// The claimed members of all arrays.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = (ArrayIndex, Claimed)> {
        let of =
            |index: ArrayIndex| self.array(index).roster.seats().filter_map(move |seat| Some((index, seat.claim()?)));
        self.indexes().flat_map(of)
    }

    /// Whether a client's `text` means this member. Clients convert text that looks like a path: the name of an array
    /// arrives as the last part of a path.
    pub(crate) fn is_called(&self, index: ArrayIndex, seat: &Seat, text: &str) -> bool {
        let Seat { name, path, .. } = seat;
        match &self.array(index).members {
            Members::Claimed(_) => [name, &path.path, &path.written].iter().any(|known| *known == text),
            Members::Arrays(_) => text.rsplit('/').next() == Some(name),
        }
    }

    /// Whether a client's `text` means a member that was left out, whose path is `path`.
    pub(crate) fn is_path_of(&self, index: ArrayIndex, path: &str, text: &str) -> bool {
        match &self.array(index).members {
            Members::Claimed(_) => path == text,
            Members::Arrays(_) => text.rsplit('/').next() == Some(path),
        }
    }

    /// Gives arrays of the same name different ones, for sockets and exports. Fails if two have one UUID.
    pub fn tell_apart(&mut self) -> Result<(), String> {
        for index in 1..self.arrays.len() {
            let (before, rest) = self.arrays.split_at_mut(index);
            let is_taken = |name: &str| before.iter().any(|array| array.name == name);
            let array = &mut rest[0];
            if !is_taken(&array.name) {
                continue;
            }
            let uuid = uuid::text(&array.plan.template.set_uuid);
            let name = uuid[..8].to_owned();
            if is_taken(&name) {
                return Err(uuid);
            }
            warn(&format!("two arrays are called {}: the second is called {name} here", array.name));
            array.name = name;
        }
        Ok(())
    }

    /// The arrays as [`uraid_arrays`] builds them, in order.
    pub(crate) fn setups(&self, read_only: bool) -> Vec<ArraySetup<'_>> {
        let (force, read_errors_max, on_full) = (self.force, self.read_errors_max, self.on_full);
        let config = Config { read_only, force, read_errors_max, on_full, ..Config::default() };
        let arrays = self.arrays.iter();
        let members = |array: &Assembled| match &array.members {
            Members::Claimed(members) if members.is_empty() => {
                Members::Claimed(array.roster.seats().filter_map(Seat::claim).collect())
            }
            members @ (Members::Claimed(_) | Members::Arrays(_)) => members.clone(),
        };
        let arrays = arrays.map(|array @ Assembled { plan, .. }| ArraySetup {
            plan,
            members: members(array),
            config: config.clone(),
        });
        arrays.collect()
    }

    /// The slots of the widest array.
    pub(crate) fn slots_max(&self) -> u16 {
        self.arrays.iter().map(|array| array.plan.layout.slots()).max().unwrap_or(0)
    }

    /// The host's options for them: the arenas hold rows of the widest array.
    pub fn host_options(&self) -> Options {
        let mut options = options_for(self.slots_max());
        // One share for each served array, so that its clients do not wait for clients of another one.
        let served = self.tops().len() as u32;
        let ArenaBlocks { small, large } = CLIENT_BLOCKS;
        options.arenas[CLIENT_ARENA] = ArenaBlocks { small: small * served, large: large * served };
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_level_with_redundancy_is_said_to_be_marked_dirty() {
        let text = |is_redundant| {
            let (array, after) = ("home".to_owned(), Duration::from_secs(45));
            let members = vec!["m1".to_owned()];
            StackError::NotAnswering { array, members, requests: 2, after, is_redundant }.to_string()
        };
        assert!(text(true).starts_with("home: members have not answered after 45s: m1 (at least 2 requests "));
        assert!(text(true).ends_with("the array stays marked dirty, and its next start makes it consistent"));
        assert!(text(false).ends_with("what was written since the last flush may be lost"));
    }
}
