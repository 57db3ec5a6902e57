//! The arrays of a storm.
//! Owns: levels, layouts, member counts; which members may be lost together. Not here: their lives (`episode`).
//! Invariant: ten arrays in a row have every level once.

use crate::members::scratch::Shape;
use crate::members::superblock::Place;
use crate::random::Random;

/// Sectors of a mebibyte.
const MIB: u64 = 2048;

/// An array to be made.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) shape: Shape,
    /// In KiB; 0 where the level has none.
    pub(super) chunk_kib: u64,
    pub(super) place: Place,
    pub(super) shards: &'static str,
}

const fn shape(level: &'static str, layout: &'static str, members: u16, tolerates: u16) -> Shape {
    // Small: every sector is read after every kill. `chunk` is chosen later.
    Shape { level, layout, members, tolerates, chunk: "", member_mib: 6 }
}

const SHAPES: [Shape; 10] = [
    shape("raid5", "", 4, 1),
    shape("raid1", "", 2, 1),
    shape("raid6", "", 5, 2),
    shape("raid10", "n2", 4, 2),
    shape("raid0", "", 3, 0),
    shape("raid5", "right-asymmetric", 3, 1),
    shape("raid1", "", 3, 2),
    shape("raid10", "f2", 4, 2),
    shape("linear", "", 3, 0),
    shape("raid4", "", 4, 1),
];

const CHUNKS: [(u64, &str); 3] = [(4, "4K"), (16, "16K"), (64, "64K")];

impl Kind {
    /// The array of this number.
    pub(super) fn choose(index: u64, random: &mut Random) -> Kind {
        let mut shape = SHAPES[(index % SHAPES.len() as u64) as usize];
        let (chunk_kib, chunk) = CHUNKS[random.below(3) as usize];
        let place = Place::ALL[random.below(3) as usize];
        let shards = ["1", "2"][random.below(2) as usize];
        let has_chunk = !matches!(shape.level, "raid1" | "linear");
        if has_chunk {
            shape.chunk = chunk;
        }
        Kind { shape, chunk_kib: if has_chunk { chunk_kib } else { 0 }, place, shards }
    }

    pub(super) fn is_parity(&self) -> bool {
        matches!(self.shape.level, "raid4" | "raid5" | "raid6")
    }

    /// Whether a crash can leave the array inconsistent.
    pub(super) fn has_redundancy(&self) -> bool {
        self.shape.tolerates > 0
    }

    /// Sectors of one stripe's data.
    pub(super) fn stripe_sectors(&self) -> u64 {
        let parity = match self.shape.level {
            "raid4" | "raid5" => 1,
            "raid6" => 2,
            _ => 0,
        };
        u64::from(self.shape.members - parity) * self.chunk_kib * 2
    }

    /// Whether all data can be read without these members.
    pub(super) fn can_do_without(&self, lost: &[usize]) -> bool {
        let is_enough = lost.len() <= usize::from(self.shape.tolerates);
        // Of four members with two copies, neighbours share data: in n2 in pairs, in f2 each with the next, wrapping.
        let has_neighbours = lost.iter().any(|one| lost.iter().any(|other| one != other && (one + other) % 2 == 1));
        is_enough && !(self.shape.level == "raid10" && has_neighbours)
    }

    /// Whether a start without these members would compute data from parity.
    pub(super) fn guesses_without(&self, lost: &[usize]) -> bool {
        let last = usize::from(self.shape.members) - 1;
        let holds_data = |slot: &usize| self.shape.level != "raid4" || *slot != last;
        self.is_parity() && lost.iter().any(holds_data)
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        let Shape { level, layout, members, chunk, .. } = self.shape;
        let words = [level, layout, chunk, self.place.metadata()];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        format!("{} of {members}, {} shards", words.join(" "), self.shards)
    }
}

/// Sectors of one member, superblock and all.
pub(super) fn member_sectors(shape: &Shape) -> u64 {
    shape.member_mib * MIB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_arrays_have_every_level() {
        let mut random = Random(1);
        let levels: std::collections::BTreeSet<_> =
            (0..10).map(|index| Kind::choose(index, &mut random).shape.level).collect();
        assert_eq!(
            levels.into_iter().collect::<Vec<_>>(),
            ["linear", "raid0", "raid1", "raid10", "raid4", "raid5", "raid6"]
        );
    }

    #[test]
    fn neighbours_of_a_raid10_may_not_be_lost_together() {
        let mut random = Random(1);
        let raid10 = Kind::choose(3, &mut random);
        assert!(raid10.can_do_without(&[0, 2]) && raid10.can_do_without(&[3]) && raid10.can_do_without(&[1, 3]));
        assert!(!raid10.can_do_without(&[0, 1]) && !raid10.can_do_without(&[3, 0]) && !raid10.can_do_without(&[1, 2]));
        let raid6 = Kind::choose(2, &mut random);
        assert!(raid6.can_do_without(&[0, 1]) && !raid6.can_do_without(&[0, 1, 2]));
    }

    #[test]
    fn only_the_parity_of_a_raid4_can_go_without_a_guess() {
        let mut random = Random(1);
        let raid4 = Kind::choose(9, &mut random);
        assert!(!raid4.guesses_without(&[3]) && raid4.guesses_without(&[2]));
        assert!(!Kind::choose(1, &mut random).guesses_without(&[1]));
    }
}
