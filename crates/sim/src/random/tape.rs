//! The recorded choices of a run: a seed makes a tape, and the tape reproduces the run.
//! Owns: [`Tape`], its text form, [`Recorder`], which records and replays. Not here: how choices are drawn (`rng`), how a
//! tape is shrunk (`shrink`).
//! Invariant: replaying a recording gives the same run. After its end a tape gives the simplest choice, 0, for ever. A
//! tape belongs to the simulator version that wrote it: a new choice in the middle changes the meaning of older tapes.
//!
//! Every stream of random numbers has its own lane, named by how it was forked. So cutting a part out of one lane does
//! not shift the choices of another:
//!
//! ```text
//!   lane 0        the first stream: the array, its clients            5,,2,1
//!   lane 0.0      order of tasks, latencies ...                       1,,,3
//!   lane 0.2.1    the second fork of the third fork of the first      7
//!   as text       0=5,,2,1+0.0=1,,,3+0.2.1=7                          an empty number is 0
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// The name of a lane: the fork numbers from the first stream to it.
pub type Path = Vec<u16>;

/// The name of the first lane.
pub const FIRST: [u16; 1] = [0];

/// All choices of a run, by lane.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tape {
    /// The choices of each lane, oldest first.
    pub lanes: BTreeMap<Path, Vec<u64>>,
}

/// Why a text is not a tape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapeError {
    /// The part that is invalid.
    pub found: String,
}

impl fmt::Display for TapeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} is no part of a tape, expected a lane as 0.2=5,,1", self.found)
    }
}

impl Tape {
    /// Parses lanes such as `0.2=5,,1`, joined by `+`; white space is ignored.
    pub fn parse(text: &str) -> Result<Tape, TapeError> {
        let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let mut lanes = BTreeMap::new();
        for lane in text.split('+').filter(|lane| !lane.is_empty()) {
            let wrong = || TapeError { found: lane.chars().take(40).collect() };
            let (path, values) = lane.split_once('=').ok_or_else(wrong)?;
            let path: Result<Path, _> = path.split('.').map(str::parse).collect();
            let number = |value: &str| if value.is_empty() { Ok(0) } else { value.parse() };
            let values: Result<Vec<u64>, _> = values.split(',').map(number).collect();
            lanes.insert(path.map_err(|_| wrong())?, values.map_err(|_| wrong())?);
        }
        Ok(Tape { lanes }.trimmed())
    }

    /// The tape without trailing zeroes, which the end of a lane implies.
    pub fn trimmed(mut self) -> Tape {
        for values in self.lanes.values_mut() {
            let used = values.iter().rposition(|value| *value != 0).map_or(0, |last| last + 1);
            values.truncate(used);
        }
        self.lanes.retain(|_, values| !values.is_empty());
        self
    }

    /// The number of choices.
    pub fn choices(&self) -> usize {
        self.lanes.values().map(Vec::len).sum()
    }

    /// A measure for comparing tapes: each choice counts one, plus its number of bits.
    pub fn weight(&self) -> u64 {
        self.lanes.values().flatten().map(|value| 1 + u64::from(64 - value.leading_zeros())).sum()
    }
}

impl fmt::Display for Tape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (path, values)) in self.lanes.iter().enumerate() {
            let path: Vec<String> = path.iter().map(u16::to_string).collect();
            let number = |value: &u64| if *value == 0 { String::new() } else { value.to_string() };
            let values: Vec<String> = values.iter().map(number).collect();
            write!(out, "{}{}={}", if at == 0 { "" } else { "+" }, path.join("."), values.join(","))?;
        }
        Ok(())
    }
}

struct LaneState {
    path: Path,
    recorded: Vec<u64>,
    /// `None` if it is drawn.
    source: Option<Vec<u64>>,
}

/// Which lanes of a run come from a tape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replayed {
    /// None: every choice is fresh.
    Nothing,
    /// The first one: the array and its clients. All other choices are fresh.
    First,
    /// All.
    All,
}

/// Records the choices of a run. In a lane that it replays, it returns the choices of a tape instead of fresh ones.
pub struct Recorder {
    replayed: Replayed,
    source: Tape,
    lanes: Vec<LaneState>,
}

/// One lane of a recorder.
pub struct Lane {
    recorder: Rc<RefCell<Recorder>>,
    index: usize,
    forks: u16,
}

impl Recorder {
    /// Records choices, of which these are replayed from a tape.
    pub fn new(replayed: Replayed, source: Tape) -> Rc<RefCell<Recorder>> {
        Rc::new(RefCell::new(Recorder { replayed, source, lanes: Vec::new() }))
    }

    /// The choices so far.
    pub fn recorded(&self) -> Tape {
        let lanes = self.lanes.iter().map(|lane| (lane.path.clone(), lane.recorded.clone())).collect();
        Tape { lanes }.trimmed()
    }

    fn open(&mut self, path: Path) -> usize {
        let is_replayed = match self.replayed {
            Replayed::Nothing => false,
            Replayed::First => path == FIRST,
            Replayed::All => true,
        };
        let source = is_replayed.then(|| self.source.lanes.get(&path).cloned().unwrap_or_default());
        self.lanes.push(LaneState { path, recorded: Vec::new(), source });
        self.lanes.len() - 1
    }
}

impl Lane {
    /// The first lane.
    pub fn first(recorder: &Rc<RefCell<Recorder>>) -> Lane {
        let index = recorder.borrow_mut().open(FIRST.to_vec());
        Lane { recorder: recorder.clone(), index, forks: 0 }
    }

    /// The next lane below this one.
    pub fn fork(&mut self) -> Lane {
        let mut recorder = self.recorder.borrow_mut();
        let mut path = recorder.lanes[self.index].path.clone();
        path.push(self.forks);
        self.forks += 1;
        let index = recorder.open(path);
        Lane { recorder: self.recorder.clone(), index, forks: 0 }
    }

    /// Makes a choice below `bound`: `fresh`, or the tape's.
    pub fn choose(&self, bound: u64, fresh: u64) -> u64 {
        let lane = &mut self.recorder.borrow_mut().lanes[self.index];
        let value = match &lane.source {
            Some(source) => source.get(lane.recorded.len()).copied().unwrap_or(0).min(bound - 1),
            None => fresh,
        };
        lane.recorded.push(value);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_round_trips_through_text_without_trailing_zeroes() {
        let text = "0=5,,2,1+0.0=1,,,3+0.2.1=7";
        assert_eq!(Tape::parse(text).map(|tape| tape.to_string()), Ok(text.to_string()));
        assert_eq!(Tape::parse(" 0=5,,\n+1=0,,0 ").map(|tape| tape.to_string()), Ok("0=5".to_string()));
        assert_eq!(Tape::parse("0=5+x=1").map_err(|error| error.found), Err("x=1".to_string()));
        assert_eq!(Tape::parse("7").map_err(|error| error.found), Err("7".to_string()));
    }
}
