//! A member's place in the array, and sets of such places.
//! Owns: [`Slot`], [`SlotSet`]. Not here: which member is in a slot (`engine`).

use std::fmt;

/// A member's place in the array, from 0 (md: role, mdadm: RaidDevice).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Slot(pub u16);

impl Slot {
    /// The index into a table with one entry per slot.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "slot {}", self.0)
    }
}

/// A set of slots below [`SlotSet::SLOTS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotSet([u64; 4]);

impl SlotSet {
    /// The number of slots that a set can hold; arrays with more members are refused at assembly.
    pub const SLOTS_MAX: u16 = 256;

    /// The empty set.
    pub const EMPTY: SlotSet = SlotSet([0; 4]);

    /// The slots from 0 to `count` - 1. Panics above [`SlotSet::SLOTS_MAX`].
    #[inline]
    pub fn first(count: u16) -> SlotSet {
        assert!(count <= Self::SLOTS_MAX);
        let mut set = SlotSet::EMPTY;
        for slot in 0..count {
            set.insert(Slot(slot));
        }
        set
    }

    /// Adds a slot. Panics at or above [`SlotSet::SLOTS_MAX`].
    #[inline]
    pub fn insert(&mut self, slot: Slot) {
        self.0[slot.index() / 64] |= 1 << (slot.index() % 64);
    }

    /// Removes a slot.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        self.0[slot.index() / 64] &= !(1 << (slot.index() % 64));
    }

    /// This set plus one slot.
    #[inline]
    pub fn with(mut self, slot: Slot) -> SlotSet {
        self.insert(slot);
        self
    }

    /// This set minus one slot.
    #[inline]
    pub fn without(mut self, slot: Slot) -> SlotSet {
        self.remove(slot);
        self
    }

    /// Whether the slot is in the set.
    #[inline]
    pub fn contains(&self, slot: Slot) -> bool {
        self.0[slot.index() / 64] & (1 << (slot.index() % 64)) != 0
    }

    /// The slots of this set that are also in `other`.
    #[inline]
    pub fn and(self, other: SlotSet) -> SlotSet {
        SlotSet(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// The slots that are in either set.
    #[inline]
    pub fn or(self, other: SlotSet) -> SlotSet {
        SlotSet(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The slots of this set that are not in `other`.
    #[inline]
    pub fn minus(self, other: SlotSet) -> SlotSet {
        SlotSet(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Whether all of its slots are in `other`.
    #[inline]
    pub fn is_within(self, other: SlotSet) -> bool {
        self.minus(other).is_empty()
    }

    /// The number of slots in the set.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.iter().filter(|word| **word != 0).map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set has no slots.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// The slots, ascending.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        (0..4usize).flat_map(move |word| {
            let mut bits = self.0[word];
            std::iter::from_fn(move || {
                if bits == 0 {
                    return None;
                }
                let bit = bits.trailing_zeros() as u16;
                bits &= bits - 1;
                Some(Slot(word as u16 * 64 + bit))
            })
        })
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> SlotSet {
        let mut set = SlotSet::EMPTY;
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter().map(|slot| slot.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_returns_its_slots_in_order() {
        let set: SlotSet = [Slot(200), Slot(3), Slot(64), Slot(63)].into_iter().collect();
        assert_eq!(set.iter().map(|slot| slot.0).collect::<Vec<_>>(), [3, 63, 64, 200]);
        assert_eq!(set.count(), 4);
        assert!(set.without(Slot(64)).contains(Slot(63)));
        assert!(!set.without(Slot(64)).contains(Slot(64)));
        assert_eq!(SlotSet::first(256).count(), 256);
    }

    #[test]
    fn slot_sets_behave_like_sets_of_numbers() {
        const SLOTS: [u16; 8] = [0, 1, 63, 64, 65, 127, 192, 255];
        let numbers = |bits: u32| -> BTreeSet<u16> {
            (0..8).filter(|bit| bits & (1 << bit) != 0).map(|bit| SLOTS[bit as usize]).collect()
        };
        let set = |numbers: &BTreeSet<u16>| numbers.iter().map(|slot| Slot(*slot)).collect::<SlotSet>();
        let slots = |set: SlotSet| set.iter().map(|slot| slot.0).collect::<BTreeSet<u16>>();
        for a in (0..256).map(numbers) {
            let this = set(&a);
            assert_eq!((slots(this), this.count(), this.is_empty()), (a.clone(), a.len(), a.is_empty()));
            for slot in SLOTS {
                assert_eq!(this.contains(Slot(slot)), a.contains(&slot));
                assert_eq!(slots(this.with(Slot(slot))), &a | &BTreeSet::from([slot]));
                assert_eq!(slots(this.without(Slot(slot))), &a - &BTreeSet::from([slot]));
            }
            for b in (0..256).map(numbers) {
                let other = set(&b);
                assert_eq!(slots(this.and(other)), &a & &b);
                assert_eq!(slots(this.or(other)), &a | &b);
                assert_eq!(slots(this.minus(other)), &a - &b);
                assert_eq!(this.is_within(other), a.is_subset(&b));
            }
        }
        for count in [0, 1, 63, 64, 65, 255, 256] {
            assert_eq!(slots(SlotSet::first(count)), (0..count).collect());
        }
    }
}
