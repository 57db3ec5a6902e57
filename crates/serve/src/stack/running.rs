//! Arrays that serve: who their members are, from the first start to the end of the process.
//! Owns: [`Running`], [`RunningStack`], which member a client's text means. Not here: what can be asked of arrays before that
//! (`assembled`), when members come and go (`overseer::membership`), an array's state (`engine`).
//! Invariant: every member has a seat, and its claim is there and nowhere else.

use crate::stack::roster::{Roster, Seat};
use crate::stack::{Settings, StackError, assembly};
use uraid_arrays::{ArrayIndex, ArraySetup, Members};
use uraid_control::report::LeftOut;
use uraid_engine::{StartError, StartPlan, Status, StopError};
use uraid_host::Claimed;

/// What the members of an array are.
pub(crate) enum MadeOf {
    /// Devices, whose claims the seats have.
    Devices,
    /// Arrays of the same process, by member of the plan.
    Arrays(Vec<ArrayIndex>),
}

/// An array that serves.
pub(crate) struct Running {
    /// Its name.
    pub(crate) name: String,
    /// What it was started from.
    pub(crate) plan: StartPlan,
    /// What its members are.
    pub(crate) made_of: MadeOf,
    /// Its members, those that were added too.
    pub(crate) roster: Roster,
    /// Members that were given but are left out.
    pub(crate) left_out: Vec<LeftOut>,
    /// The arrays of one group share their spares.
    pub(crate) spare_group: Option<String>,
}

/// The arrays of a process that serve.
pub struct RunningStack {
    /// Member arrays before those that are made of them.
    pub(crate) arrays: Vec<Running>,
    /// What they are told in common.
    pub(super) settings: Settings,
    /// Arrays that showed no data before they were served.
    pub(crate) blank: Vec<ArrayIndex>,
}

impl RunningStack {
    /// All arrays by index.
    pub(crate) fn indexes(&self) -> impl DoubleEndedIterator<Item = ArrayIndex> + use<> {
        (0..self.arrays.len()).map(ArrayIndex)
    }

    /// One of them.
    pub(crate) fn array(&self, index: ArrayIndex) -> &Running {
        &self.arrays[index.0]
    }

    /// The arrays that are not members of another one: clients may use them.
    pub(crate) fn tops(&self) -> Vec<ArrayIndex> {
        self.indexes().filter(|&index| !self.is_member(index)).collect()
    }

    /// Whether it is a member of another array. Then only that array may write it.
    pub(crate) fn is_member(&self, index: ArrayIndex) -> bool {
        self.arrays.iter().any(|array| match &array.made_of {
            MadeOf::Devices => false,
            MadeOf::Arrays(members) => members.contains(&index),
        })
    }

    /// The name of a member: as on the command line, or the name of the array that it is.
    pub(crate) fn member_name(&self, index: ArrayIndex, member: usize) -> &str {
        &self.array(index).roster.seat(member).name
    }

    /// Why an array could not be started, with its members' names.
    pub(crate) fn start_error(&self, index: ArrayIndex, status: &Status, source: StartError) -> StackError {
        StackError::start(&self.array(index).name, status, source, |member| self.member_name(index, member))
    }

    /// Why the stop of an array was not clean. `before`, `after`: its status before and after the stop.
    pub(crate) fn stop_error(
        &self,
        index: ArrayIndex,
        before: &Status,
        after: &Status,
        error: StopError,
    ) -> StackError {
        StackError::stop(&self.array(index).name, before, after, error, |member| self.member_name(index, member))
    }

    /// Why an array opened read-only. For bad blocks, with the names of the members that have them.
    pub(crate) fn read_only_text(&self, index: ArrayIndex) -> Option<String> {
        assembly::read_only_text(&self.array(index).plan, |member| self.member_name(index, member).to_owned())
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
        match &self.array(index).made_of {
            MadeOf::Devices => [name, &path.path, &path.written].iter().any(|known| *known == text),
            MadeOf::Arrays(_) => text.rsplit('/').next() == Some(name),
        }
    }

    /// Whether a client's `text` means a member that was left out, whose path is `path`.
    pub(crate) fn is_path_of(&self, index: ArrayIndex, path: &str, text: &str) -> bool {
        match &self.array(index).made_of {
            MadeOf::Devices => path == text,
            MadeOf::Arrays(_) => text.rsplit('/').next() == Some(path),
        }
    }

    /// The arrays as [`uraid_arrays`] builds them, in order. A shard calls this before any member joins or leaves.
    pub(crate) fn setups(&self) -> Vec<ArraySetup<'_>> {
        let config = self.settings.config(false);
        let arrays = self.arrays.iter().map(|Running { plan, made_of, roster, .. }| {
            let members = match made_of {
                MadeOf::Devices => Members::Claimed(roster.seats().filter_map(Seat::claim).collect()),
                MadeOf::Arrays(members) => Members::Arrays(members.clone()),
            };
            ArraySetup { plan, members, config: config.clone() }
        });
        arrays.collect()
    }
}
