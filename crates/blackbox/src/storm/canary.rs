//! Storms that must fail: members are put back to an earlier content, as by a disk that lied about its writes.
//! Owns: the lies. Not here: detecting them (`episode`, `model`).
//! Invariant: each leaves an array that uraid may rightly call clean; only the bytes are old.

use super::episode::Episode;
use super::figures::Figures;
use super::trouble::Trouble;
use crate::random::mix;
use std::fs;

/// A lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// All members of a raid6 are put back to one earlier moment.
    AllRolledBack,
    /// One member of a raid5 is put back, except for its superblock.
    OneRolledBack,
    /// One member of a raid0, whose superblocks never change, is put back completely.
    StripeRolledBack,
    /// One copy of a mirror is put back, except for its superblock: it shows when the other one is lost.
    CopyRolledBack,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 4] =
        [Canary::AllRolledBack, Canary::OneRolledBack, Canary::StripeRolledBack, Canary::CopyRolledBack];

    /// The number of the array that it uses.
    fn array(self) -> u64 {
        match self {
            Canary::OneRolledBack => 0,
            Canary::CopyRolledBack => 1,
            Canary::AllRolledBack => 2,
            Canary::StripeRolledBack => 4,
        }
    }

    /// Runs it; good figures mean that it was not detected.
    pub fn play(self, seed: u64) -> Figures {
        let index = self.array();
        let mut episode = Episode::new(index, mix(seed ^ mix(index)));
        let ended = self.lie(&mut episode);
        let mut sum = Figures { seed, ..Figures::default() };
        sum.add(episode.figures());
        if let Err(trouble) = ended {
            sum.blame(&trouble, &format!("{self:?}, {}", episode.log()));
        }
        sum
    }

    fn lie(self, episode: &mut Episode) -> Result<(), Trouble> {
        episode.write_and_stop()?;
        episode.look(&[])?;
        let before: Vec<Vec<u8>> =
            episode.present().iter().map(|path| fs::read(path).expect("it is our file")).collect();
        episode.write_and_stop()?;
        // The content found now must be found again below.
        episode.look(&[])?;
        let paths = episode.present();
        let superblock = episode.superblock_bytes();
        let count = if self == Canary::AllRolledBack { paths.len() } else { 1 };
        for (path, mut old) in paths.iter().zip(before).take(count) {
            if matches!(self, Canary::OneRolledBack | Canary::CopyRolledBack) {
                let now = fs::read(path).expect("it is our file");
                old[superblock.clone()].copy_from_slice(&now[superblock.clone()]);
            }
            fs::write(path, old).expect("it is our file");
        }
        if self == Canary::CopyRolledBack { episode.look(&[1]) } else { episode.look(&[]) }
    }
}
