//! Luck from a seed.
//! Owns: [`Rng`], [`mix`]. Not here: which choices are made with it.
//! Invariant: the same seed gives the same numbers on every machine and in every build.

/// One round of splitmix64: a bijection of 64 bits that no xor sees through.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(mix(seed ^ 0x7572_6169_6473_696d))
    }

    /// The next number of 64 bits.
    #[allow(clippy::should_implement_trait, reason = "a stream without an end is no useful iterator here")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 up to, without, `bound`. Panics on a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        self.next() % bound
    }

    /// A number from `low` up to and with `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// Yes in `yes` of `of` cases.
    pub fn chance(&mut self, yes: u64, of: u64) -> bool {
        self.below(of) < yes
    }

    /// One of the things. Panics when there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Another stream that starts here.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next())
    }

    /// Brings the things into any order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::new(1);
        let first: Vec<u64> = (0..3).map(|_| rng.next()).collect();
        let mut again = Rng::new(1);
        assert_eq!(first, (0..3).map(|_| again.next()).collect::<Vec<_>>());
        assert_ne!(first[0], Rng::new(2).next());
    }

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut things: Vec<u32> = (0..20).collect();
        Rng::new(5).shuffle(&mut things);
        things.sort_unstable();
        assert_eq!(things, (0..20).collect::<Vec<_>>());
    }
}
