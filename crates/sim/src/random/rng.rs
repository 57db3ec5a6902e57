//! Random choices from a seed, or from a tape.
//! Owns: [`Rng`], [`mix`]. Not here: which choices are made with it, what a tape is (`tape`).
//! Invariant: the same seed gives the same numbers on every machine and in every build, whether a tape records them or
//! not. For every choice, 0 is the simplest value: no fault, the smallest size.

use crate::random::tape::{Lane, Recorder, Replayed, Tape};
use std::cell::RefCell;
use std::rc::Rc;

/// One round of splitmix64: a bijection of 64 bits that is not linear under xor.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random choices.
pub struct Rng {
    state: u64,
    lane: Option<Lane>,
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { state: mix(seed ^ 0x7572_6169_6473_696d), lane: None }
    }

    /// The same stream, with every choice recorded.
    pub fn recorded(seed: u64) -> (Rng, Rc<RefCell<Recorder>>) {
        let recorder = Recorder::new(Replayed::Nothing, Tape::default());
        (Rng { lane: Some(Lane::first(&recorder)), ..Rng::new(seed) }, recorder)
    }

    /// The stream of a tape.
    pub fn replayed(tape: Tape) -> (Rng, Rc<RefCell<Recorder>>) {
        let recorder = Recorder::new(Replayed::All, tape);
        (Rng { lane: Some(Lane::first(&recorder)), ..Rng::new(0) }, recorder)
    }

    /// The stream of a tape's first lane, whose forks are those of a seed.
    pub fn redrawn(tape: Tape, seed: u64) -> (Rng, Rc<RefCell<Recorder>>) {
        let recorder = Recorder::new(Replayed::First, tape);
        (Rng { lane: Some(Lane::first(&recorder)), ..Rng::new(seed) }, recorder)
    }

    fn fresh(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// The next number of 64 bits.
    #[allow(clippy::should_implement_trait, reason = "a stream without an end is no useful iterator here")]
    pub fn next(&mut self) -> u64 {
        let fresh = self.fresh();
        match &self.lane {
            None => fresh,
            Some(lane) => lane.choose(u64::MAX, fresh),
        }
    }

    /// A number in `0..bound`. Panics if the bound is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        let fresh = self.fresh() % bound;
        match &self.lane {
            None => fresh,
            Some(lane) => lane.choose(bound, fresh),
        }
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// True with probability `yes` / `of`.
    pub fn chance(&mut self, yes: u64, of: u64) -> bool {
        self.below(of) >= of - yes
    }

    /// True until a tape ends. Work that asks this before each piece can be cut short by the tape.
    pub fn goes_on(&mut self) -> bool {
        self.lane.as_ref().is_none_or(|lane| lane.choose(2, 1) == 1)
    }

    /// One of the items; put the simplest first. Panics if there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// A new stream that starts here.
    pub fn fork(&mut self) -> Rng {
        let seed = self.fresh();
        Rng { lane: self.lane.as_mut().map(Lane::fork), ..Rng::new(seed) }
    }

    /// A stream seeded by one choice; its own numbers are not recorded on the tape.
    pub fn noise(&mut self) -> Rng {
        Rng::new(self.next())
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in 1..things.len() {
            things.swap(at, at - self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::tape::FIRST;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
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
        assert_ne!(things, (0..20).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..20).collect::<Vec<_>>());
    }

    fn some(mut rng: Rng) -> Vec<u64> {
        let mut child = rng.fork();
        let mut drawn = vec![rng.below(10), child.below(7), rng.next(), child.between(3, 9)];
        drawn.push(u64::from(rng.goes_on()));
        drawn.push(rng.fork().below(100));
        drawn
    }

    #[test]
    fn a_recorded_stream_equals_the_plain_one_and_its_replay() {
        let (rng, recorder) = Rng::recorded(4);
        let drawn = some(rng);
        assert_eq!(drawn, some(Rng::new(4)));
        let tape = recorder.borrow().recorded();
        assert_eq!(tape.choices(), 6, "{tape}");
        assert_eq!(drawn, some(Rng::replayed(tape).0));
    }

    #[test]
    fn a_redrawn_stream_has_the_first_lane_of_its_tape_and_the_forks_of_its_seed() {
        let (rng, recorder) = Rng::recorded(4);
        let before = some(rng);
        let tape = recorder.borrow().recorded();
        let (rng, recorder) = Rng::redrawn(tape.clone(), 5);
        let after = some(rng);
        let redrawn = recorder.borrow().recorded();
        assert_eq!(redrawn.lanes[&FIRST.to_vec()], tape.lanes[&FIRST.to_vec()]);
        assert_eq!([after[0], after[2]], [before[0], before[2]]);
        assert_ne!([after[1], after[3], after[5]], [before[1], before[3], before[5]]);
        assert_eq!(after, some(Rng::replayed(redrawn).0));
    }

    #[test]
    fn an_empty_tape_always_gives_the_simplest_choice() {
        let mut rng = Rng::replayed(Tape::default()).0;
        assert_eq!((rng.next(), rng.between(4, 9), rng.chance(9, 10), rng.goes_on()), (0, 4, false, false));
        let mut things = [1, 2, 3];
        rng.shuffle(&mut things);
        assert_eq!((things, *rng.pick(&[7, 8])), ([1, 2, 3], 7));
    }
}
