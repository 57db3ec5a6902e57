//! Arrays that are assembled and can be started: their plans, and the claims of their members.
//! Owns: [`Assembled`], [`AssembledStack`], the names that tell arrays apart, the sizes of what they need to run. Not here:
//! which members make up an array (`assembly`), what is true while arrays serve (`running`).
//! Invariant: `members[i]` of an array is member `i` of its plan.

use crate::stack::roster::{MemberPath, Roster, Seat};
use crate::stack::running::{MadeOf, Running};
use crate::stack::{CLIENT_BLOCKS, RunningStack, Settings, StackError, assembly};
use uraid_arrays::{ArrayIndex, ArraySetup, Members, options_for};
use uraid_control::client;
use uraid_control::log::warn;
use uraid_control::member_name;
use uraid_control::report::LeftOut;
use uraid_engine::{StartError, StartPlan, Status, StopError};
use uraid_format::uuid;
use uraid_host::{ArenaBlocks, CLIENT_ARENA, Options};

/// An array that can be started.
pub struct Assembled {
    /// Its name.
    pub name: String,
    /// The slot of each member.
    pub plan: StartPlan,
    /// The members of the plan, in its order.
    pub members: Members,
    /// Members that were given but are left out.
    pub left_out: Vec<LeftOut>,
    /// The arrays of one group share their spares.
    pub spare_group: Option<String>,
}

/// The arrays of a process that can be started: to serve, which makes them a [`RunningStack`], or for one offline task,
/// after which they can be started again.
pub struct AssembledStack {
    /// Member arrays before those that are made of them.
    pub arrays: Vec<Assembled>,
    /// What they are told in common.
    pub settings: Settings,
}

impl AssembledStack {
    /// These arrays, with the engine's limit of read errors.
    pub fn new(arrays: Vec<Assembled>, force: bool) -> AssembledStack {
        AssembledStack { arrays, settings: Settings::new(force) }
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
            Members::Claimed(members) => members[member].name(),
            Members::Arrays(members) => &self.array(members[member]).name,
        }
    }

    /// The name of a member in the form of reports: a path, or the name of an array.
    pub fn member_path(&self, index: ArrayIndex, member: usize) -> String {
        let name = self.member_name(index, member);
        match &self.array(index).members {
            Members::Claimed(_) => client::member_path(name),
            Members::Arrays(_) => name.to_owned(),
        }
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

    /// Why an array opens read-only. For bad blocks, with the names of the members that have them.
    pub fn read_only_text(&self, index: ArrayIndex) -> Option<String> {
        assembly::read_only_text(&self.array(index).plan, |member| self.member_name(index, member).to_owned())
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
        let config = self.settings.config(read_only);
        let arrays = self.arrays.iter().map(|Assembled { plan, members, .. }| ArraySetup {
            plan,
            members: members.clone(),
            config: config.clone(),
        });
        arrays.collect()
    }

    /// The arrays as they serve; those in `blank` show no data yet. Gives the members of each array their seats, before
    /// anything is served: resolving links accesses the path, and the directory's file server may hang. From then on the
    /// seats have the claims.
    pub fn into_running(self, blank: Vec<ArrayIndex>) -> RunningStack {
        let rosters: Vec<Roster> = self.indexes().map(|index| self.roster(index)).collect();
        let arrays = self.arrays.into_iter().zip(rosters).map(|(array, roster)| {
            let Assembled { name, plan, members, left_out, spare_group } = array;
            let made_of = match members {
                Members::Claimed(_) => MadeOf::Devices,
                Members::Arrays(members) => MadeOf::Arrays(members),
            };
            Running { name, plan, made_of, roster, left_out, spare_group }
        });
        RunningStack { arrays: arrays.collect(), settings: self.settings, blank }
    }

    /// The members of an array's plan in their seats.
    fn roster(&self, index: ArrayIndex) -> Roster {
        let (roster, array) = (Roster::default(), self.array(index));
        for (member, plan) in array.plan.members.iter().enumerate() {
            let name = self.member_name(index, member);
            let path = MemberPath { path: self.member_path(index, member), written: member_name::as_written(name) };
            let claim = match &array.members {
                Members::Claimed(members) => Some(members[member].clone()),
                Members::Arrays(_) => None,
            };
            roster.add(member, Seat::new(name, path, &plan.superblock, claim));
        }
        roster
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
