//! The members of an array as one shard drives them, each with its index.
//! Owns: [`Places`]: which index has a device on this shard. Not here: the state of a member (`master`), when devices
//! come and go (`membership`), the device of a slot (`view`).
//! Invariant: an index stands for one member as long as the array runs, and is never given to another. A device closes
//! when it was let go and the last request to it has ended.

use crate::shard::member_counts::{CountedMember, MemberCounts};
use crate::shard::world::World;
use crate::words::bad_blocks::BadBlockList;
use std::cell::RefCell;
use std::rc::Rc;
use uraid_block::Device;

/// The most members that an array has from its start to its stop, those that were removed included.
pub const MEMBERS_MAX: usize = 2048;

/// The devices of one shard, by the index of their member.
pub(crate) struct Places<W: World> {
    list: RefCell<Vec<Option<Rc<CountedMember<W>>>>>,
}

impl<W: World> Places<W> {
    /// Those of the start plan, in its order.
    pub(crate) fn new(world: &W, members: Vec<W::Member>) -> Places<W> {
        let counted = |(index, member)| Some(Rc::new(CountedMember::new(world.clone(), member, index)));
        Places { list: RefCell::new(members.into_iter().enumerate().map(counted).collect()) }
    }

    /// One past the highest index that had a device here.
    pub(crate) fn len(&self) -> usize {
        self.list.borrow().len()
    }

    /// The device of a member. A request holds it until it has its answer, so that it stays open that long.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Rc<CountedMember<W>> {
        self.list.borrow()[index].clone().expect("a member in use has a device on every shard")
    }

    /// Gives a member its device.
    pub(crate) fn install(&self, world: &W, index: usize, member: W::Member) {
        let mut list = self.list.borrow_mut();
        assert!(index >= list.len(), "an index is never used again");
        assert!(index < MEMBERS_MAX, "the steward gives out no more");
        list.resize_with(index, || None);
        list.push(Some(Rc::new(CountedMember::new(world.clone(), member, index))));
    }

    /// Sets the sectors that each member lacks: of those that are not in `lists`, none.
    pub(crate) fn set_bad_blocks(&self, lists: &[(usize, BadBlockList)]) {
        for (index, device) in self.list.borrow().iter().enumerate() {
            let list = lists.iter().find(|(member, _)| *member == index).map(|(_, list)| list.clone());
            if let Some(device) = device {
                device.set_bad_blocks(list.unwrap_or_default());
            }
        }
    }

    /// Ends the requests in flight to a member, if it has a device.
    pub(crate) fn cut_off(&self, index: usize) {
        let device = self.list.borrow().get(index).cloned().flatten();
        if let Some(device) = device {
            device.mark_dead();
        }
    }

    /// Lets the device of a member go, if it has one.
    pub(crate) fn let_go(&self, index: usize) {
        let device = self.list.borrow_mut().get_mut(index).and_then(Option::take);
        // Its end may run code of the member: not while the list is borrowed.
        drop(device);
    }

    /// The bytes that all members have read and written.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.borrow().iter().flatten().map(|device| device.bytes()).sum()
    }

    /// The counts of all members; zeroes for those without a device.
    pub(crate) fn counts(&self) -> Vec<MemberCounts> {
        let counts = |device: &Option<Rc<CountedMember<W>>>| device.as_ref().map(|device| device.counts());
        self.list.borrow().iter().map(|device| counts(device).unwrap_or_default()).collect()
    }
}
