//! Spares that the arrays of one process share (`serve --spare-group`), on shard 0.
//! Owns: when a spare moves to another array, which one, what is logged. Not here: removing and adding a member
//! (`overseer::membership`), when a spare takes a slot (`engine`), which arrays are in a group (the command line).
//! Invariant: an array that lacks a member, or whose members are not all in sync, keeps its spares. A device is in one
//! array at most: the superblocks of the one no longer list it, durably, before a byte is written for the other.
//! Why: docs/decisions/0021-a-spare-moves-between-arrays.md.

use crate::overseer::Overseer;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};
use uraid_block::Sectors;
use uraid_block::local::race;
use uraid_control::history::Event;
use uraid_control::log::{warn, with_causes};
use uraid_control::names::printable;
use uraid_engine::{MemberState, Status};

/// How often the arrays are looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// How long an array gets no spare after a move to it has failed: the next one may fail as well, and the spare of the next
/// array would be in none.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A spare that its array can do without.
struct Offer {
    from: Rc<Overseer>,
    /// Its index there.
    member: usize,
    size: Sectors,
}

/// Why an array that lacks a spare gets none now.
enum NotMoved {
    /// One line for each spare that does not fit.
    Unfit(Vec<String>),
    /// What went wrong.
    Failed(String),
}

/// An array that may get spares.
struct Taker {
    array: Rc<Overseer>,
    group: String,
    /// The lines that were logged since it lacks a spare.
    said: BTreeSet<String>,
    not_before: Option<Instant>,
}

/// Moves spares until a stop is asked for; a move that has begun then is completed.
pub(crate) async fn watch(arrays: Vec<Rc<Overseer>>) {
    let of_group = |array: &Rc<Overseer>| {
        let group = array.spare_group()?.to_owned();
        Some(Taker { array: array.clone(), group, said: BTreeSet::new(), not_before: None })
    };
    let mut takers: Vec<Taker> = arrays.iter().filter_map(of_group).collect();
    let Some(session) = takers.first().map(|taker| taker.array.session().clone()) else { return };
    while !session.is_stopping() {
        for taker in &mut takers {
            taker.look(&arrays).await;
        }
        race(session.stop_asked(), session.local().sleep(PERIOD)).await;
    }
}

impl Taker {
    /// Moves a spare to this array if it lacks one.
    async fn look(&mut self, arrays: &[Rc<Overseer>]) {
        if !lacks_spare(&self.array) {
            self.said.clear();
            return;
        }
        if self.not_before.is_some_and(|time| Instant::now() < time) {
            return;
        }
        let group = Some(self.group.as_str());
        let others = arrays.iter().filter(|other| other.spare_group() == group && !Rc::ptr_eq(other, &self.array));
        let others: Vec<&Rc<Overseer>> = others.collect();
        let lines = match move_one(&self.array, &self.group, &others).await {
            Ok(()) => return,
            Err(NotMoved::Unfit(lines)) => lines,
            Err(NotMoved::Failed(line)) => {
                self.not_before = Some(Instant::now() + RETRY_AFTER);
                vec![line]
            }
        };
        for line in lines {
            let line = format!("{}: {line}", prefix(&self.array, &self.group));
            if self.said.insert(line.clone()) {
                warn(&line);
            }
        }
    }
}

fn prefix(to: &Overseer, group: &str) -> String {
    format!("{}: spare group {}", printable(to.name()), printable(group))
}

/// Whether an array has a slot without a member, and no spare that can take it. A member to which another one is being
/// copied takes no other slot.
fn lacks_spare(array: &Overseer) -> bool {
    let has_slot = |state: &&MemberState| matches!(state, MemberState::Active(_) | MemberState::Recovering { .. });
    let Status { members, slots, .. } = array.status();
    let filled = members.iter().filter(has_slot).count();
    array.takes_spares() && filled < usize::from(slots) && !array.has_usable_spare()
}

/// Whether all slots of an array have members in sync, so that it needs none of its spares now.
fn is_whole(array: &Overseer) -> bool {
    let Status { usable, slots, .. } = array.status();
    array.takes_spares() && usable.count() == usize::from(slots)
}

/// The spares that these arrays can do without, the smallest first.
fn offers(others: &[&Rc<Overseer>]) -> Vec<Offer> {
    let mut offers = Vec::new();
    for from in others.iter().filter(|from| is_whole(from)) {
        let members = from.status().members;
        let spares = (0..members.len()).filter(|&index| members[index] == MemberState::Spare);
        let of_spare = |member| Some(Offer { from: Rc::clone(from), member, size: from.claim_of(member)?.size() });
        offers.extend(spares.filter_map(of_spare));
    }
    offers.sort_by_key(|offer| offer.size);
    offers
}

/// Moves a spare to an array that lacks one, if there is one that fits.
async fn move_one(to: &Overseer, group: &str, others: &[&Rc<Overseer>]) -> Result<(), NotMoved> {
    let mut unfit = Vec::new();
    for offer in offers(others) {
        let Offer { from, member, size } = &offer;
        match to.check_room(*size) {
            Ok(()) => return move_spare(&offer, to, group).await.map_err(NotMoved::Failed),
            // The array itself takes no member now: frozen, full, about to stop. Its own lines say so.
            Err(None) => return Ok(()),
            Err(Some(error)) => {
                let (spare, from) = (printable(from.member_name(*member)), printable(from.name()));
                unfit.push(format!("the spare {spare} of {from} is not moved to it: {error}"));
            }
        }
    }
    Err(NotMoved::Unfit(unfit))
}

/// Both steps. The error says where the device is now.
async fn move_spare(offer: &Offer, to: &Overseer, group: &str) -> Result<(), String> {
    let Offer { from, member, .. } = offer;
    let _one = from.session().seating().await;
    // A command may have changed one of the arrays before this had the permit.
    let is_spare = from.status().members[*member] == MemberState::Spare;
    if !is_spare || !is_whole(from) || !lacks_spare(to) || from.session().is_stopping() {
        return Ok(());
    }
    let (name, spare) = (printable(to.name()), printable(from.member_name(*member)));
    let giver = printable(from.name());
    warn(&format!(
        "{}: lacks a member and has no spare: the spare {spare} of {giver} moves to it; should this process end before \
         {name} lists it, it is in no array, and `uraid add --force {name} {spare}` adds it",
        prefix(to, group),
    ));
    let text = format!("the spare {spare} of {giver} moves to {name}");
    [to, from].into_iter().for_each(|array| array.session.note(array.index, Event::SpareMoved, &text));
    let released = from.release_spare(*member).await;
    let released = released
        .map_err(|error| format!("the spare {spare} of {giver} is not moved to it: {}", with_causes(&error)))?;
    to.take_in(released).await.map_err(|error| {
        let why = with_causes(&error);
        format!("the spare {spare} was removed from {giver}, and is in no array now: {why}; `uraid add` adds it to one")
    })
}
