//! An array opened for one task on one shard: read-only, without sockets, gone when the task ends.
//! Owns: [`Opened`], from names on the command line to an array that takes reads. Not here: what the task is (`copy`),
//! which members make up the array (`engine::assemble`).
//! Invariant: the members are claimed for reading, so nothing here can write to one.

use crate::assembly;
use crate::member::ArrayMember;
use crate::names;
use crate::serve::{self, Patience, ServeError};
use crate::stack;
use crate::world::{ArrayIndex, HostWorld, Letter};
use std::rc::Rc;
use uraid_engine::{Array, AssembleOptions, Config, StartError, StartPlan};
use uraid_host::{Access, Claimed, Local};

/// An array whose members are claimed; nothing runs yet.
pub struct Opened {
    /// Its name.
    pub name: String,
    /// Who stands where.
    pub plan: StartPlan,
    /// Members in the order of the plan.
    pub members: Vec<Claimed>,
    /// The operator said `--force`.
    pub force: bool,
}

/// What the operator allows.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// As in [`AssembleOptions`].
    pub force: bool,
    /// As in [`AssembleOptions`].
    pub run: bool,
}

/// Claims the members for reading and decides what array they are. Says on stderr who is left out, and why.
pub fn open(members: &[String], permission: Permission) -> Result<Opened, ServeError> {
    let (members, candidates) = serve::open(members, Access::ReadOnly, &Patience::begin())?;
    let names: Vec<String> = members.iter().map(|member| member.name().to_owned()).collect();
    let options = AssembleOptions { force: permission.force, run: permission.run, read_only: true };
    let plan = assembly::decide(&candidates, &names, &options)?;
    let mut by_candidate: Vec<Option<Claimed>> = members.into_iter().map(Some).collect();
    let chosen = plan.members.iter().map(|m| by_candidate[m.candidate].take().expect("a candidate is one member"));
    let members = chosen.collect();
    let name = names::short_name(&plan.template.set_name.as_str(), &plan.template.set_uuid);
    Ok(Opened { name, plan, members, force: permission.force })
}

impl Opened {
    /// Runs the array on one shard until `task` has ended, and gives its value.
    pub fn run<T, F>(&self, task: F) -> Result<T, StartError>
    where
        T: Send,
        F: AsyncFn(Local, Rc<Array<HostWorld>>) -> T + Send + Sync,
    {
        let options = stack::host_options(self.plan.layout.slots());
        let (task, options) = (&task, &options);
        let main = |shard: uraid_host::Shard<Letter>| async move {
            let members = self.members.iter().map(|member| ArrayMember::Host(member.on_shard(&shard))).collect();
            let config = Config { read_only: true, force: self.force, ..Config::default() };
            let array = Array::new(HostWorld::new(&shard, ArrayIndex(0), options), &self.plan, members, config);
            let at = array.clone();
            shard.on_mail(move |letter| match letter {
                Letter::Engine(_, mail) => at.deliver(mail),
                Letter::Client(_)
                | Letter::Close
                | Letter::Closed
                | Letter::CountsWanted
                | Letter::Counts(..)
                | Letter::End => unreachable!("one shard without faces gets the engine's mail only"),
            });
            array.start(|_| ()).await?;
            Ok(task((*shard).clone(), array.clone()).await)
        };
        let mut outcomes = uraid_host::run(1, options, main);
        outcomes.pop().expect("one shard gives one value")
    }
}
