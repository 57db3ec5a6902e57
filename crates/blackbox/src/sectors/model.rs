//! The legal contents of every sector of an array.
//! Owns: a register per sector, its candidates. Not here: doing the writes (`writers`).
//! Invariant: a value stops being legal only when a write that began after its answer has been answered too.

use crate::random::{SECTOR, claim_of_tag, fill_tag};
use std::collections::BTreeSet;
use std::fmt;

/// A write, by its number; number 0 is the array's first content, all zeroes.
pub type Operation = u64;

/// Set in the number of an operation that writes zeroes instead of tags.
pub const ZEROES: u64 = 1 << 63;

/// Stands for an unknown write: a sector for which it is possible may hold anything.
const UNKNOWN: Operation = u64::MAX;

/// One value that a sector may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Candidate {
    operation: Operation,
    /// Ticks of the model's own clock; an operation in flight has no answer yet.
    begun: u64,
    answered: Option<u64>,
    /// When a later write made it illegal. It is kept while a read that began earlier is in flight.
    gone: Option<u64>,
}

impl Candidate {
    const FIRST: Candidate = Candidate { operation: ZEROES, begun: 0, answered: Some(0), gone: None };
}

/// Consecutive sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }

    /// The first byte.
    pub fn byte(self) -> u64 {
        self.first * SECTOR as u64
    }

    /// Its length in bytes.
    pub fn bytes(self) -> u32 {
        u32::try_from(self.count * SECTOR as u64).expect("a request is below 4 GiB")
    }
}

/// A sector with an illegal content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// Where.
    pub sector: u64,
    /// The sector and operation in its tag.
    pub claim: (u64, u64),
    /// Whether the bytes match their tag.
    pub is_whole: bool,
    /// The operations it may hold.
    pub allowed: Vec<Operation>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sector, operation) = self.claim;
        let what = if self.is_whole { "the content" } else { "garbage that starts like the content" };
        write!(out, "sector {} holds {what} of sector {sector}, operation {operation:#x}; ", self.sector)?;
        write!(out, "allowed are operations {:x?}", self.allowed)
    }
}

/// The result of checking many sectors.
#[derive(Clone, Default, Debug)]
pub struct Survey {
    /// Sectors checked.
    pub sectors: u64,
    /// Of these, sectors for which a crash had left a choice.
    pub open: u64,
    /// Of these, sectors with an illegal content.
    pub wrong: u64,
    /// The first of those.
    pub first_wrong: Option<Wrong>,
}

impl Survey {
    /// Adds the result of later sectors.
    pub fn add(&mut self, other: Survey) {
        self.sectors += other.sectors;
        self.open += other.open;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
    }
}

/// The registers of one array.
#[derive(Clone, Debug)]
pub struct Model {
    registers: Vec<Vec<Candidate>>,
    clock: u64,
    next: Operation,
    /// When each read in flight began.
    reads: BTreeSet<u64>,
    /// Sectors with a write in flight when the last run ended.
    in_flight: Vec<u64>,
    acknowledged: u64,
    flushed: u64,
}

impl Model {
    /// An array of this many sectors, all zeroes.
    pub fn new(sectors: u64) -> Model {
        Model {
            registers: vec![Vec::new(); sectors as usize],
            clock: 1,
            next: 1,
            reads: BTreeSet::new(),
            in_flight: Vec::new(),
            acknowledged: 0,
            flushed: 0,
        }
    }

    /// Bytes of all writes that were answered.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged
    }

    /// Of these, bytes answered before the start of an answered flush.
    pub fn flushed_bytes(&self) -> u64 {
        self.flushed
    }

    /// A flush begins; its mark is for `answer_flush`.
    pub fn begin_flush(&self) -> u64 {
        self.acknowledged
    }

    /// The flush that began with this mark was answered.
    pub fn answer_flush(&mut self, mark: u64) {
        self.flushed = self.flushed.max(mark);
    }

    /// How many sectors.
    pub fn sectors(&self) -> u64 {
        self.registers.len() as u64
    }

    /// A write begins: its value becomes legal. Call it before the first byte is sent.
    pub fn begin(&mut self, span: Span, is_zeroes: bool) -> Operation {
        let operation = self.next | if is_zeroes { ZEROES } else { 0 };
        self.next += 1;
        self.clock += 1;
        for register in &mut self.registers[span.range()] {
            if register.is_empty() {
                register.push(Candidate::FIRST);
            }
            register.push(Candidate { operation, begun: self.clock, answered: None, gone: None });
        }
        operation
    }

    /// A write was answered: values that had been answered before it began become illegal.
    pub fn answer(&mut self, span: Span, operation: Operation) {
        self.clock += 1;
        self.acknowledged += u64::from(span.bytes());
        let now = self.clock;
        let oldest_read = self.reads.first().copied().unwrap_or(u64::MAX);
        for register in &mut self.registers[span.range()] {
            let own = register.iter_mut().find(|candidate| candidate.operation == operation);
            let own = own.expect("an answered write is still possible");
            own.answered = Some(now);
            let begun = own.begun;
            for candidate in register.iter_mut().filter(|candidate| candidate.gone.is_none()) {
                if candidate.answered.is_some_and(|answered| answered < begun) {
                    candidate.gone = Some(now);
                }
            }
            register.retain(|candidate| candidate.gone.is_none_or(|gone| gone > oldest_read));
        }
    }

    /// A read begins; the values that it may return are kept until `end_read`. Call it before the first byte is sent.
    pub fn begin_read(&mut self) -> u64 {
        self.clock += 1;
        self.reads.insert(self.clock);
        self.clock
    }

    /// The read that began at `since` was answered with these bytes.
    pub fn end_read(&mut self, begun: u64, first: u64, bytes: &[u8]) -> Result<(), Wrong> {
        assert!(self.reads.remove(&begun), "a read ends once");
        self.walk(first, bytes, begun, |_, _| {})
    }

    /// The server is gone: no read is in flight any more.
    pub fn crash(&mut self) {
        self.reads.clear();
    }

    /// The run is over: the writes that are not answered now were in flight at its end. For `doubt_stripes`. Returns
    /// how many sectors that are.
    pub fn remember_in_flight(&mut self) -> u64 {
        let is_in_flight = |register: &Vec<Candidate>| register.iter().any(|one| one.answered.is_none());
        let sectors = (0..).zip(&self.registers).filter(|(_, register)| is_in_flight(register));
        self.in_flight = sectors.map(|(sector, _)| sector).collect();
        self.in_flight.len() as u64
    }

    /// Call it when an array is started by force, dirty and without a member that it needs. The stripes that were in
    /// flight at the end of the last run, and only these, may hold anything until they are overwritten. Returns how
    /// many sectors that are.
    pub fn doubt_stripes(&mut self, stripe: u64) -> u64 {
        let stripes: BTreeSet<u64> = self.in_flight.iter().map(|sector| sector / stripe).collect();
        let doubt = Candidate { operation: UNKNOWN, begun: self.clock, answered: Some(self.clock), gone: None };
        for first in stripes.iter().map(|number| number * stripe) {
            let end = (first + stripe).min(self.sectors());
            for register in &mut self.registers[first as usize..end as usize] {
                if register.is_empty() {
                    register.push(Candidate::FIRST);
                }
                register.retain(|candidate| candidate.operation != UNKNOWN);
                register.push(doubt);
            }
        }
        stripes.len() as u64 * stripe
    }

    /// Checks the bytes of consecutive sectors; returns the first with an illegal content.
    pub fn check(&self, first: u64, bytes: &[u8]) -> Result<(), Wrong> {
        self.walk(first, bytes, self.clock, |_, _| {})
    }

    /// Like `settle`, but checks all and counts. After wrong sectors the model is no longer usable.
    pub fn survey(&mut self, first: u64, bytes: &[u8]) -> Survey {
        match self.settle(first, bytes) {
            Ok(open) => Survey { sectors: (bytes.len() / SECTOR) as u64, open, ..Survey::default() },
            Err(_) => self.inspect(first, bytes),
        }
    }

    /// Like `check`, but checks all and counts.
    pub fn inspect(&self, first: u64, bytes: &[u8]) -> Survey {
        let each = (first..).zip(bytes.chunks_exact(SECTOR));
        let mut wrong = each.filter_map(|(sector, bytes)| self.check(sector, bytes).err());
        let first_wrong = wrong.next();
        let sum = u64::from(first_wrong.is_some()) + wrong.count() as u64;
        Survey { sectors: (bytes.len() / SECTOR) as u64, open: 0, wrong: sum, first_wrong }
    }

    /// Like `check`, after a crash: no write is in flight any more, and the value found in a sector becomes its
    /// only legal one. (A value that later changes again is as wrong as a lost one.)
    pub fn settle(&mut self, first: u64, bytes: &[u8]) -> Result<u64, Wrong> {
        let mut found = Vec::new();
        self.walk(first, bytes, self.clock, |sector, operation| found.push((sector, operation)))?;
        let mut in_flight = 0;
        for (sector, operation) in found {
            let register = &mut self.registers[sector as usize];
            register.retain(|candidate| candidate.gone.is_none());
            if register.len() > 1 {
                in_flight += 1;
            }
            // A sector that may hold anything may match none of them; it stays undecided.
            if operation != UNKNOWN {
                register.retain(|candidate| [operation, UNKNOWN].contains(&candidate.operation));
            }
            register.iter_mut().for_each(|candidate| candidate.answered = Some(self.clock));
        }
        Ok(in_flight)
    }

    /// Reports for each sector which of the values that were legal at `since` or later it holds.
    fn walk(&self, first: u64, bytes: &[u8], since: u64, mut found: impl FnMut(u64, Operation)) -> Result<(), Wrong> {
        assert_eq!(bytes.len() % SECTOR, 0);
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let register = &self.registers[sector as usize];
            let possible = || register.iter().filter(|candidate| candidate.gone.is_none_or(|gone| gone > since));
            // The latest first: it is nearly always the match.
            match possible().rev().find(|candidate| is_content(sector, candidate.operation, bytes)) {
                Some(candidate) => found(sector, candidate.operation),
                None if register.is_empty() && is_zero(bytes) => {}
                None if possible().any(|candidate| candidate.operation == UNKNOWN) => found(sector, UNKNOWN),
                None => return Err(self.wrong(sector, bytes, since)),
            }
        }
        Ok(())
    }

    fn wrong(&self, sector: u64, bytes: &[u8], since: u64) -> Wrong {
        let claim = claim_of_tag(bytes);
        let possible =
            self.registers[sector as usize].iter().filter(|candidate| candidate.gone.is_none_or(|gone| gone > since));
        let allowed = possible.map(|candidate| candidate.operation).collect();
        Wrong { sector, claim, is_whole: is_zero(bytes) || is_content(claim.0, claim.1, bytes), allowed }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn is_content(sector: u64, operation: Operation, bytes: &[u8]) -> bool {
    if operation == UNKNOWN {
        return false;
    }
    if operation & ZEROES != 0 {
        return is_zero(bytes);
    }
    // Most wrong candidates already differ in the numbers, so compare them before the whole content.
    claim_of_tag(bytes) == (sector, operation) && {
        let mut expected = [0; SECTOR];
        fill_tag(sector, operation, &mut expected);
        bytes == expected
    }
}

/// The content of a write operation's sectors.
pub fn content(span: Span, operation: Operation) -> Vec<u8> {
    assert_eq!(operation & ZEROES, 0);
    let mut bytes = vec![0; span.bytes() as usize];
    for (sector, bytes) in (span.first..).zip(bytes.chunks_exact_mut(SECTOR)) {
        fill_tag(sector, operation, bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { first: 3, count: 2 };

    #[test]
    fn an_answered_write_is_the_only_legal_value() {
        let mut model = Model::new(8);
        let first = model.begin(SPAN, false);
        model.answer(SPAN, first);
        let second = model.begin(SPAN, false);
        model.answer(SPAN, second);
        assert_eq!(model.check(3, &content(SPAN, second)), Ok(()));
        let wrong = model.check(3, &content(SPAN, first)).expect_err("an older value");
        assert_eq!((wrong.sector, wrong.claim, wrong.is_whole), (3, (3, first), true));
        assert_eq!(wrong.allowed, [second]);
        assert!(model.check(3, &[0; 1024]).is_err());
        assert!(model.check(0, &[0; 1536]).is_ok());
    }

    #[test]
    fn a_write_in_flight_may_be_there_or_not_but_never_in_part_of_a_sector() {
        let mut model = Model::new(8);
        let old = model.begin(SPAN, false);
        model.answer(SPAN, old);
        let new = model.begin(SPAN, false);
        let (old_bytes, new_bytes) = (content(SPAN, old), content(SPAN, new));
        assert!(model.check(3, &old_bytes).is_ok() && model.check(3, &new_bytes).is_ok());
        let torn_between = [&new_bytes[..512], &old_bytes[512..]].concat();
        assert!(model.check(3, &torn_between).is_ok());
        let torn_within = [&new_bytes[..256], &old_bytes[256..]].concat();
        assert!(!model.check(3, &torn_within).expect_err("garbage").is_whole);
    }

    #[test]
    fn of_overlapping_writes_either_is_legal_until_a_later_one_is_answered() {
        let mut model = Model::new(8);
        let (one, two) = (model.begin(SPAN, false), model.begin(SPAN, false));
        model.answer(SPAN, two);
        model.answer(SPAN, one);
        assert!(model.check(3, &content(SPAN, one)).is_ok() && model.check(3, &content(SPAN, two)).is_ok());
        let three = model.begin(SPAN, true);
        model.answer(SPAN, three);
        assert!(model.check(3, &content(SPAN, one)).is_err() && model.check(3, &[0; 1024]).is_ok());
    }

    #[test]
    fn a_value_found_after_a_crash_must_stay() {
        let mut model = Model::new(8);
        let old = model.begin(SPAN, false);
        model.answer(SPAN, old);
        let new = model.begin(SPAN, false);
        assert_eq!(model.settle(3, &content(SPAN, old)), Ok(2));
        assert!(model.check(3, &content(SPAN, old)).is_ok());
        assert!(model.check(3, &content(SPAN, new)).is_err());
    }

    #[test]
    fn a_read_may_return_only_values_that_were_legal_while_it_was_in_flight() {
        let mut model = Model::new(8);
        let write = |model: &mut Model| {
            let operation = model.begin(SPAN, false);
            model.answer(SPAN, operation);
            operation
        };
        let before = write(&mut model);
        let old = write(&mut model);
        let read = |model: &mut Model| (model.begin_read(), model.begin_read(), model.begin_read());
        let (one, two, three) = read(&mut model);
        let (between, new) = (write(&mut model), write(&mut model));
        assert_eq!(model.end_read(one, 3, &content(SPAN, old)), Ok(()));
        assert_eq!(model.end_read(two, 3, &content(SPAN, between)), Ok(()));
        assert!(model.end_read(three, 3, &content(SPAN, before)).is_err());
        let late = model.begin_read();
        assert!(model.end_read(late, 3, &content(SPAN, old)).is_err());
        assert!(model.check(3, &content(SPAN, new)).is_ok() && model.check(3, &content(SPAN, between)).is_err());
    }

    #[test]
    fn after_a_forced_start_only_the_stripes_in_flight_are_uncertain() {
        let mut model = Model::new(32);
        let all = Span { first: 0, count: 32 };
        let old = model.begin(all, false);
        model.answer(all, old);
        model.begin(Span { first: 9, count: 2 }, false);
        model.remember_in_flight();
        assert_eq!(model.doubt_stripes(8), 8);
        let garbage = [0xa5; 512];
        assert!((8..16).all(|sector| model.settle(sector, &garbage).is_ok()));
        assert!(model.check(7, &garbage).is_err() && model.check(16, &garbage).is_err());
        // Whatever it was, it may also be the old value; what is written over it is certain.
        assert_eq!(model.check(9, &content(Span { first: 9, count: 1 }, old)), Ok(()));
        let over = Span { first: 8, count: 2 };
        let new = model.begin(over, false);
        model.answer(over, new);
        assert!(model.check(8, &garbage).is_err() && model.check(10, &garbage).is_ok());
        assert_eq!(model.check(8, &content(over, new)), Ok(()));
    }

    #[test]
    fn a_read_in_flight_may_return_a_value_that_was_uncertain_before_a_write_was_answered() {
        let mut model = Model::new(8);
        model.begin(SPAN, false);
        model.remember_in_flight();
        assert_eq!(model.doubt_stripes(8), 8);
        let garbage = [0xa5; 1024];
        assert!(model.settle(3, &garbage).is_ok());
        let early = model.begin_read();
        let over = model.begin(SPAN, false);
        model.answer(SPAN, over);
        let late = model.begin_read();
        assert_eq!(model.end_read(early, 3, &garbage), Ok(()));
        assert!(model.end_read(late, 3, &garbage).is_err());
    }

    #[test]
    fn a_survey_counts_every_wrong_sector() {
        let mut model = Model::new(8);
        let operation = model.begin(SPAN, false);
        model.answer(SPAN, operation);
        let survey = model.survey(2, &[1; 2048]);
        assert_eq!((survey.sectors, survey.wrong), (4, 4));
        assert_eq!(survey.first_wrong.map(|wrong| wrong.sector), Some(2));
        assert_eq!((model.acknowledged_bytes(), model.flushed_bytes()), (1024, 0));
        let mark = model.begin_flush();
        let late = model.begin(SPAN, false);
        model.answer(SPAN, late);
        model.answer_flush(mark);
        assert_eq!((model.acknowledged_bytes(), model.flushed_bytes()), (2048, 1024));
    }

    #[test]
    fn one_flipped_bit_is_seen() {
        let mut model = Model::new(8);
        let operation = model.begin(SPAN, false);
        model.answer(SPAN, operation);
        for at in [0, 9, 511, 700, 1023] {
            let mut bytes = content(SPAN, operation);
            bytes[at] ^= 4;
            assert!(model.check(3, &bytes).is_err(), "byte {at}");
        }
    }
}
