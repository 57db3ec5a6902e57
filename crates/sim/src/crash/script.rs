//! What happens before a power cut: an array, its clients' requests, the order in which members answer.
//! Owns: [`Tiny`], [`Script`], [`Schedule`], each with a short text form. Not here: running them (`explore`).
//! Invariant: the text is complete: a finding can be replayed from it.
//!
//! ```text
//!   array     5,2,4,1,3,0      level, layout, slots, chunk, sectors used per member, mask of slots that are missing;
//!                              a seventh number: it has a bitmap, with this many sectors a bit;
//!                              the word ppl instead: it has a partial parity log
//!   script    w0+9 W4+1|f|s    groups of concurrent requests; a group starts when the previous one is answered:
//!                              w write, W FUA write, z zeroes (at+length), f flush, i idle until clean, s stop,
//!                              b add a bitmap, n remove it (mdadm: --bitmap=none);
//!                              x1@2, at the start of a script: member 1 is gone from its third data write on
//!   schedule  fifo lifo up down mix7
//! ```

use crate::random::rng::mix;
use crate::reference::model::Shape;
use std::fmt;

/// A tiny array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tiny {
    /// Its shape.
    pub shape: Shape,
    /// Slots that are recorded as missing since long before the script: bit n is slot n.
    pub missing: u32,
    /// Sectors of a chunk of the write-intent bitmap, a power of two; 0: there is none.
    pub bits: u64,
    /// Whether it has a partial parity log.
    pub has_ppl: bool,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptRequest {
    /// A write of `length` sectors from `at` on.
    Write {
        /// First sector.
        at: u64,
        /// Sectors.
        length: u64,
        /// Whether it is FUA.
        is_fua: bool,
    },
    /// Zeroes.
    Zeroes {
        /// First sector.
        at: u64,
        /// Sectors.
        length: u64,
    },
    /// A flush.
    Flush,
    /// Idle until the array marks itself clean.
    Idle,
    /// The array stops.
    Stop,
    /// The array gets a bitmap.
    AddBitmap,
    /// The array loses its bitmap.
    RemoveBitmap,
}

/// A member that is gone from a certain write on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Its slot.
    pub slot: u16,
    /// Data writes that it still performs.
    pub after: u64,
}

/// What the clients do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// A member that fails during the script.
    pub loss: Option<Loss>,
    /// Groups of concurrent requests.
    pub groups: Vec<Vec<ScriptRequest>>,
}

/// Which operation in flight ends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// The oldest.
    Fifo,
    /// The newest.
    Lifo,
    /// The operation of the lowest slot.
    Up,
    /// The operation of the highest slot.
    Down,
    /// A random one, by this seed.
    Mix(u64),
}

impl Tiny {
    /// Parses its text.
    pub fn parse(text: &str) -> Option<Tiny> {
        let (text, has_ppl) = text.strip_suffix(",ppl").map_or((text, false), |rest| (rest, true));
        let numbers: Option<Vec<u64>> = text.split(',').map(|part| part.parse().ok()).collect();
        let mut numbers = numbers?;
        let bits = if numbers.len() == 7 { numbers.pop()? } else { 0 };
        let [level, layout, slots, chunk, size, missing] = numbers[..] else { return None };
        (bits == 0 || bits.is_power_of_two()).then_some(())?;
        let shape = Shape {
            level: i32::try_from(level).ok()?,
            layout: u32::try_from(layout).ok()?,
            slots: u16::try_from(slots).ok().filter(|slots| (1..=8).contains(slots))?,
            chunk,
            size: Some(size).filter(|size| (1..=64).contains(size))?,
            member_sizes: Vec::new(),
        };
        matches!(shape.level, 1 | 4 | 5 | 6 | 10).then_some(())?;
        (!has_ppl || shape.level == 5 && bits == 0).then_some(())?;
        Some(Tiny { shape, missing: u32::try_from(missing).ok()?, bits, has_ppl })
    }

    /// The level as mdadm names it, such as "raid5".
    pub fn level_name(&self) -> &'static str {
        match self.shape.level {
            1 => "raid1",
            10 => "raid10",
            4 => "raid4",
            5 => "raid5",
            _ => "raid6",
        }
    }
}

impl fmt::Display for Tiny {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { level, layout, slots, chunk, size, .. } = &self.shape;
        write!(out, "{level},{layout},{slots},{chunk},{size},{}", self.missing)?;
        if self.bits > 0 {
            write!(out, ",{}", self.bits)?;
        }
        out.write_str(if self.has_ppl { ",ppl" } else { "" })
    }
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (at, length) = text.split_once('+')?;
    Some((at.parse().ok()?, length.parse().ok().filter(|length| *length > 0)?))
}

impl ScriptRequest {
    fn parse(text: &str) -> Option<ScriptRequest> {
        match text {
            "f" => return Some(ScriptRequest::Flush),
            "i" => return Some(ScriptRequest::Idle),
            "s" => return Some(ScriptRequest::Stop),
            "b" => return Some(ScriptRequest::AddBitmap),
            "n" => return Some(ScriptRequest::RemoveBitmap),
            _ => {}
        }
        let (at, length) = range(text.get(1..)?)?;
        match text.as_bytes()[0] {
            b'w' => Some(ScriptRequest::Write { at, length, is_fua: false }),
            b'W' => Some(ScriptRequest::Write { at, length, is_fua: true }),
            b'z' => Some(ScriptRequest::Zeroes { at, length }),
            _ => None,
        }
    }

    /// The sectors that it changes.
    pub fn sectors(&self) -> std::ops::Range<u64> {
        match *self {
            ScriptRequest::Write { at, length, .. } | ScriptRequest::Zeroes { at, length } => at..at + length,
            ScriptRequest::Flush
            | ScriptRequest::Idle
            | ScriptRequest::Stop
            | ScriptRequest::AddBitmap
            | ScriptRequest::RemoveBitmap => 0..0,
        }
    }
}

impl fmt::Display for ScriptRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptRequest::Write { at, length, is_fua: false } => write!(out, "w{at}+{length}"),
            ScriptRequest::Write { at, length, is_fua: true } => write!(out, "W{at}+{length}"),
            ScriptRequest::Zeroes { at, length } => write!(out, "z{at}+{length}"),
            ScriptRequest::Flush => out.write_str("f"),
            ScriptRequest::Idle => out.write_str("i"),
            ScriptRequest::Stop => out.write_str("s"),
            ScriptRequest::AddBitmap => out.write_str("b"),
            ScriptRequest::RemoveBitmap => out.write_str("n"),
        }
    }
}

impl Script {
    /// Parses its text.
    pub fn parse(text: &str) -> Option<Script> {
        let (loss, rest) = match text.strip_prefix('x') {
            None => (None, text),
            Some(rest) => {
                let (loss, rest) = rest.split_once(' ')?;
                let (slot, after) = loss.split_once('@')?;
                (Some(Loss { slot: slot.parse().ok()?, after: after.parse().ok()? }), rest)
            }
        };
        let group =
            |text: &str| -> Option<Vec<ScriptRequest>> { text.split_whitespace().map(ScriptRequest::parse).collect() };
        let groups: Option<Vec<Vec<ScriptRequest>>> = rest.split('|').map(group).collect();
        Some(Script { loss, groups: groups? })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Loss { slot, after }) = self.loss {
            write!(out, "x{slot}@{after} ")?;
        }
        let group = |group: &Vec<ScriptRequest>| group.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        out.write_str(&self.groups.iter().map(group).collect::<Vec<_>>().join("|"))
    }
}

impl Schedule {
    /// Parses its text.
    pub fn parse(text: &str) -> Option<Schedule> {
        match text {
            "fifo" => Some(Schedule::Fifo),
            "lifo" => Some(Schedule::Lifo),
            "up" => Some(Schedule::Up),
            "down" => Some(Schedule::Down),
            _ => Some(Schedule::Mix(text.strip_prefix("mix")?.parse().ok()?)),
        }
    }

    /// The index of the operation that ends at step `turn`, among the operations in flight, which are given by their
    /// members. Panics if there are none.
    pub fn next(self, in_flight: &[usize], turn: u64) -> usize {
        let of_slot = |slot: Option<&usize>| in_flight.iter().position(|member| Some(member) == slot);
        match self {
            Schedule::Fifo => 0,
            Schedule::Lifo => in_flight.len() - 1,
            Schedule::Up => of_slot(in_flight.iter().min()).expect("something is in flight"),
            Schedule::Down => of_slot(in_flight.iter().max()).expect("something is in flight"),
            Schedule::Mix(seed) => (mix(seed ^ mix(turn)) % in_flight.len() as u64) as usize,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Fifo => out.write_str("fifo"),
            Schedule::Lifo => out.write_str("lifo"),
            Schedule::Up => out.write_str("up"),
            Schedule::Down => out.write_str("down"),
            Schedule::Mix(seed) => write!(out, "mix{seed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in ["w0+9 W4+1|f|s", "x1@2 w0+3|f|w1+1 f|i|z0+2"] {
            assert_eq!(Script::parse(text).expect("a good script").to_string(), text);
        }
        for text in ["fifo", "lifo", "up", "down", "mix7"] {
            assert_eq!(Schedule::parse(text).expect("a good schedule").to_string(), text);
        }
        for text in ["5,2,4,1,3,1", "1,0,2,0,5,0,1", "5,2,4,1,3,0,ppl"] {
            assert_eq!(Tiny::parse(text).expect("a good array").to_string(), text);
        }
        assert!(Tiny::parse("0,2,4,1,3,1").is_none(), "nothing to lose on raid0");
        assert!(Tiny::parse("6,2,4,1,3,0,ppl").is_none(), "a log on raid6");
        assert!(Script::parse("w0+0").is_none() && Script::parse("q").is_none());
    }
}
