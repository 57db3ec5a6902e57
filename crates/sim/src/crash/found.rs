//! A violation, and the crashes that led to it.
//! Owns: [`Crash`] and its text, [`Found`]. Not here: what reproduces it (`report`), how it was found (`explore`).

use std::fmt;

/// One crash: the moment, the lost members, the subset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// The number of the moment, from 1.
    pub point: u64,
    /// The slots that are lost with it: bit n is slot n.
    pub lost: u32,
    /// The number of the subset.
    pub subset: u64,
}

impl fmt::Display for Crash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.point, self.lost, self.subset)
    }
}

impl Crash {
    /// Parses the text of a crash.
    pub fn parse(text: &str) -> Option<Crash> {
        let mut numbers = text.split(':');
        let crash = Crash {
            point: numbers.next()?.parse().ok()?,
            lost: numbers.next()?.parse().ok()?,
            subset: numbers.next()?.parse().ok()?,
        };
        numbers.next().is_none().then_some(crash)
    }
}

/// A violation, and the crash or consecutive crashes that led to it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The violation.
    pub what: String,
    /// The crashes. The last one has no subset if no single image is to blame.
    pub crashes: Vec<Crash>,
}
