//! An array of its own that is served and full of data, for tests in which members come and go.
//! Owns: [`Rig`]. Not here: what a test does with it.

use super::{Done, Scratch, Served, pattern};
use std::path::PathBuf;

/// The array `home`.
pub struct Rig {
    pub served: Served,
    /// Those in slots, then the spares.
    pub members: Vec<PathBuf>,
    /// What clients must read.
    pub data: Vec<u8>,
    // Dropped after the server.
    pub scratch: Scratch,
}

impl Rig {
    pub fn new(level: &str, slots: usize, spares: usize, member_bytes: u64) -> Rig {
        let scratch = Scratch::new();
        let members = scratch.members("m", slots + spares, member_bytes);
        scratch.create("home", &format!("-l {level} -n {slots} -x {spares} --assume-clean"), &members);
        let served = scratch.ready(&[], &members);
        let data = pattern(61, served.client().size as usize);
        let rig = Rig { served, members, data, scratch };
        rig.served.write_all(0, &rig.data);
        rig
    }

    #[track_caller]
    pub fn expect_data(&self) {
        assert_eq!(self.served.first_difference(&self.data), None, "{}", self.served.stderr());
    }

    pub fn run(&self, verb: &str, words: &[&str]) -> Done {
        self.scratch.uraid([verb, "home"].into_iter().chain(words.iter().copied()))
    }

    pub fn path(&self, member: usize) -> String {
        self.members[member].display().to_string()
    }

    pub fn detail(&self) -> String {
        self.run("detail", &[]).expect_done().stdout
    }

    pub fn stop(self) {
        let done = self.served.stop();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
}
