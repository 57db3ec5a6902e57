//! The legal contents of every sector.
//! Owns: the history of each sector, what a read may return while the array runs and after a crash.
//! Not here: the bytes of a write (`oracle::tags`), the clients (`client`), where sectors lie (`model`).
//! Invariant: an answered and flushed write is the only legal value until another write starts. A value that was never
//! written is never legal.
//!
//! ```text
//!   base {A}    write B |----ok----|         B replaces A for reads; after a crash A or B
//!                            write C |---    C or B; a flush submitted here covers B, not C
//!   crash -> {B, C}; the first read picks one, and later reads must return it
//! ```

mod tags;

use std::collections::BTreeMap;
use uraid_block::SECTOR_BYTES;

use tags::is_tag;
pub use tags::{describe, tag};

/// A possible content of a sector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Value {
    /// Zeroes: never written, or written as such.
    Zero,
    /// The tag of an operation.
    Op(u64),
    /// Anything: discarded, or without a guarantee.
    Any,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    op: u64,
    value: Value,
    // It replaces all writes that ended before this moment: its start, or the read that found it to be the last one.
    after: u64,
    end: Option<u64>,
    is_ok: bool,
    is_durable: bool,
    // For a failed write: what later reads have found.
    seen: Seen,
}

/// Whether a failed write has taken effect, as far as reads have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    NotYet,
    InEffect,
    WithoutEffect,
}

#[derive(Clone, Default, Debug)]
struct Register {
    base: Vec<Value>,
    // Values that some member may still hold although a read has returned another one, until a resync has completed.
    others: Vec<Value>,
    // No read decides between the values of the base: the policy guarantees nothing until a resync has completed.
    is_undecided: bool,
    // Bytes of its stripe were corrupted silently: without checksums nothing is guaranteed any more.
    is_corrupted: bool,
    // A write was refused half done: its row may be neither old nor new, whatever later requests do to this sector.
    is_torn: bool,
    records: Vec<Record>,
}

#[derive(Clone)]
struct ActiveRead {
    start: u64,
    // Sectors and values, in no order: one list for the whole read, because most sectors have only one value.
    allowed: Vec<(u64, Value)>,
    is_quiet: Vec<bool>,
}

/// The legal contents of every sector of an array.
#[derive(Clone)]
pub struct Oracle {
    array: u64,
    clock: u64,
    sectors: Vec<Register>,
    reads: BTreeMap<u64, ActiveRead>,
    flushes: BTreeMap<u64, u64>,
    matches: u64,
}

/// How many of the allowed values a sector's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fitting {
    None,
    One(Value),
    Several,
}

impl Register {
    fn readable(&self) -> Vec<Value> {
        self.values_by(|one| one.seen)
    }

    /// The legal values for members at rest, where earlier reads do not decide about failed writes.
    fn at_rest(&self) -> Vec<Value> {
        self.values_by(|_| Seen::NotYet)
    }

    /// The value of a sector that nobody has written lately.
    fn only(&self) -> Option<Value> {
        match (&self.records[..], &self.base[..]) {
            ([], [only]) => Some(*only),
            _ => None,
        }
    }

    fn values_by(&self, seen: impl Fn(&Record) -> Seen) -> Vec<Value> {
        if let Some(only) = self.only() {
            return vec![only];
        }
        let is_done = |one: &Record| one.end.is_some() && (one.is_ok || seen(one) == Seen::InEffect);
        let done: Vec<Record> = self.records.iter().copied().filter(is_done).collect();
        let is_over = |one: &Record, end: u64| done.iter().any(|newer| newer.op != one.op && newer.after > end);
        let mut values: Vec<Value> = (self.records.iter())
            .filter(|one| seen(one) != Seen::WithoutEffect && one.end.is_none_or(|end| !is_over(one, end)))
            .map(|one| one.value)
            .collect();
        if done.is_empty() {
            values.extend(&self.base);
        }
        values.sort_unstable();
        values.dedup();
        values
    }

    fn after_crash(&self) -> Vec<Value> {
        let mut values: Vec<Value> =
            self.records.iter().map(|one| one.value).chain(self.base.iter().copied()).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// No write is in flight, so a read's value is final, also after a failed write.
    fn is_quiet(&self) -> bool {
        !self.is_undecided && self.records.iter().all(|one| one.end.is_some())
    }

    /// A read has returned `value` while nothing was in flight: every read that starts later must return it.
    fn collapse(&mut self, value: Value, now: u64) {
        if self.records.is_empty() {
            let mut others = std::mem::replace(&mut self.base, vec![value]);
            self.others.append(&mut others);
            return;
        }
        let fitting: Vec<usize> = (0..self.records.len()).filter(|&at| self.records[at].value == value).collect();
        let has_failed = self.records.iter().any(|one| !one.is_ok);
        if let [only] = fitting[..]
            && !has_failed
        {
            self.records[only].after = now;
        }
        // A failed write stays possible after a crash: another member than the one that was read may hold it.
        for (at, record) in self.records.iter_mut().enumerate().filter(|(_, record)| !record.is_ok) {
            record.seen = match fitting[..] {
                [] => Seen::WithoutEffect,
                [only] if only == at => Seen::InEffect,
                [_] => Seen::WithoutEffect,
                _ => record.seen,
            };
        }
        self.prune();
    }

    /// Makes durable what was answered before this moment.
    fn settle_before(&mut self, moment: u64) {
        for record in &mut self.records {
            record.is_durable |= record.is_ok && record.end.is_some_and(|end| end < moment);
        }
        self.prune();
    }

    /// Drops values that durable writes have replaced for good.
    fn prune(&mut self) {
        let newest = self.records.iter().filter(|one| one.is_durable).map(|one| one.after).max();
        let Some(newest) = newest else { return };
        self.base.clear();
        self.others.clear();
        self.records.retain(|one| one.after >= newest || one.end.is_none_or(|end| end >= newest));
    }

    fn is_certain(&self) -> bool {
        let is_one =
            self.records.is_empty() || (self.records.len() == 1 && self.records[0].is_durable && self.base.is_empty());
        is_one && !self.is_torn
    }
}

impl Oracle {
    /// Every sector holds `initial`.
    pub fn new(array: u64, sectors: u64, initial: Value) -> Oracle {
        let register = Register { base: vec![initial], ..Register::default() };
        Oracle {
            array,
            clock: 1,
            sectors: vec![register; sectors as usize],
            reads: BTreeMap::new(),
            flushes: BTreeMap::new(),
            matches: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The bytes that operation `op` writes to a range.
    pub fn payload(&self, op: u64, at: u64, length: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length as usize * SECTOR_BYTES);
        for lba in at..at + length {
            bytes.extend_from_slice(&tag(self.array, lba, op));
        }
        bytes
    }

    /// The number of compared sectors.
    pub fn sectors_checked(&self) -> u64 {
        self.matches
    }

    /// A write, write of zeroes or discard starts.
    pub fn begin_write(&mut self, op: u64, at: u64, length: u64, value: Value) {
        let after = self.tick();
        for x in at..at + length {
            let record = Record { op, value, after, end: None, is_ok: false, is_durable: false, seen: Seen::NotYet };
            self.sectors[x as usize].records.push(record);
            for read in self.reads.values_mut() {
                if x >= read.start && x - read.start < read.is_quiet.len() as u64 {
                    read.allowed.push((x, value));
                    read.is_quiet[(x - read.start) as usize] = false;
                }
            }
        }
    }

    /// The write is answered. Returns the moment at which it started.
    pub fn end_write(&mut self, op: u64, at: u64, length: u64, is_ok: bool, is_fua: bool) -> u64 {
        let now = self.tick();
        let mut began = now;
        for register in &mut self.sectors[at as usize..(at + length) as usize] {
            for record in register.records.iter_mut().filter(|record| record.op == op) {
                record.end = Some(now);
                began = record.after;
                record.is_ok = is_ok;
                record.is_durable = is_ok && is_fua;
            }
            register.is_torn |= !is_ok;
            register.prune();
        }
        began
    }

    /// A FUA write was answered in rows of which a data member is missing; `sectors` are all sectors of these rows. The
    /// missing member's content is computed from all the others, so everything that was answered in these rows before
    /// the write began is durable, too.
    pub fn settle_rows_before(&mut self, sectors: &[u64], began: u64) {
        for &x in sectors {
            self.sectors[x as usize].settle_before(began);
        }
    }

    /// A flush starts.
    pub fn begin_flush(&mut self, op: u64) {
        let now = self.tick();
        self.flushes.insert(op, now);
    }

    /// The flush is answered.
    pub fn end_flush(&mut self, op: u64, is_ok: bool) {
        let start = self.flushes.remove(&op).expect("a flush ends once");
        if is_ok {
            self.settle_before(start);
        }
    }

    fn settle_before(&mut self, moment: u64) {
        self.sectors.iter_mut().for_each(|register| register.settle_before(moment));
    }

    /// A read starts.
    pub fn begin_read(&mut self, op: u64, at: u64, length: u64) {
        let range = &self.sectors[at as usize..(at + length) as usize];
        let mut allowed = Vec::with_capacity(range.len());
        for (x, register) in (at..).zip(range) {
            match register.only() {
                Some(only) => allowed.push((x, only)),
                None => allowed.extend(register.readable().into_iter().map(|value| (x, value))),
            }
        }
        let is_quiet = range.iter().map(Register::is_quiet).collect();
        self.reads.insert(op, ActiveRead { start: at, allowed, is_quiet });
    }

    /// A read failed and shows nothing.
    pub fn drop_read(&mut self, op: u64) {
        self.reads.remove(&op);
    }

    /// A read returned these bytes. The error says what is wrong with them.
    pub fn end_read(&mut self, op: u64, bytes: &[u8]) -> Result<(), String> {
        let now = self.tick();
        let mut read = self.reads.remove(&op).expect("a read ends once");
        assert_eq!(bytes.len(), read.is_quiet.len() * SECTOR_BYTES);
        read.allowed.sort_unstable();
        let mut rest = &read.allowed[..];
        for (index, sector) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
            let x = read.start + index as u64;
            self.matches += 1;
            let (of_sector, more) = rest.split_at(rest.partition_point(|(at, _)| *at <= x));
            rest = more;
            let fitting = self.fitting(x, of_sector.iter().map(|(_, value)| *value), sector);
            if fitting == Fitting::None {
                let found = describe(sector);
                let mut allowed: Vec<Value> = of_sector.iter().map(|(_, value)| *value).collect();
                allowed.dedup();
                return Err(format!("read op {op}: sector {x} holds {found}; allowed are {allowed:?}"));
            }
            if let Fitting::One(value @ (Value::Zero | Value::Op(_))) = fitting
                && read.is_quiet[index]
            {
                self.collapse(x, value, now);
            }
        }
        Ok(())
    }

    /// Which of the allowed values these bytes are.
    fn fitting(&self, x: u64, allowed: impl IntoIterator<Item = Value>, sector: &[u8]) -> Fitting {
        if self.sectors[x as usize].is_corrupted {
            return Fitting::One(Value::Any);
        }
        let fits = |value: &Value| match *value {
            Value::Any => true,
            Value::Zero => sector == [0; SECTOR_BYTES],
            // Compare the number first: computing a tag costs more than everything else.
            Value::Op(op) => sector[16..24] == op.to_le_bytes() && is_tag(sector, self.array, x, op),
        };
        let mut fitting = allowed.into_iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (None, _) => Fitting::None,
            (Some(only), None) => Fitting::One(only),
            (Some(_), Some(_)) => Fitting::Several,
        }
    }

    /// This becomes the value: every read that starts later must return it.
    fn collapse(&mut self, x: u64, value: Value, now: u64) {
        let register = &mut self.sectors[x as usize];
        if register.is_quiet() {
            register.collapse(value, now);
        }
    }

    /// Whether a sector may hold these bytes after a power cut now.
    pub fn may_hold_after_crash(&mut self, x: u64, sector: &[u8]) -> Result<(), String> {
        self.matches += 1;
        let register = &self.sectors[x as usize];
        let written = register.records.iter().map(|one| one.value);
        let all = written.chain(register.base.iter().copied()).chain(register.others.iter().copied());
        if self.fitting(x, all, sector) == Fitting::None {
            let mut allowed = register.after_crash();
            allowed.extend(&register.others);
            return Err(format!("sector {x} holds {}; allowed are {allowed:?}", describe(sector)));
        }
        Ok(())
    }

    /// Whether a sector may hold these bytes while the array is at rest.
    pub fn may_hold_at_rest(&mut self, x: u64, sector: &[u8]) -> Result<(), String> {
        self.matches += 1;
        let allowed = self.sectors[x as usize].at_rest();
        if self.fitting(x, allowed.iter().copied(), sector) == Fitting::None {
            return Err(format!("sector {x} holds {}; allowed are {allowed:?}", describe(sector)));
        }
        Ok(())
    }

    /// Marks the sector as silently corrupted: nothing is guaranteed any more.
    pub fn mark_corrupted(&mut self, x: u64) {
        self.sectors[x as usize].is_corrupted = true;
    }

    /// Whether the sector was corrupted silently.
    pub fn is_corrupted(&self, x: u64) -> bool {
        self.sectors[x as usize].is_corrupted
    }

    /// The number of silently corrupted sectors.
    pub fn corrupted_sectors(&self) -> u64 {
        self.sectors.iter().filter(|register| register.is_corrupted).count() as u64
    }

    /// Whether the sector may hold anything.
    pub fn is_any(&self, x: u64) -> bool {
        self.sectors[x as usize].after_crash().contains(&Value::Any)
    }

    /// Sectors whose contents may not be durable now.
    pub fn uncertain(&self) -> Vec<u64> {
        (0..self.sectors.len() as u64).filter(|&x| !self.sectors[x as usize].is_certain()).collect()
    }

    /// Power fails. Operations in flight never end.
    pub fn crash(&mut self) {
        for register in &mut self.sectors {
            register.base = register.after_crash();
            register.records.clear();
        }
        self.reads.clear();
        self.flushes.clear();
    }

    /// All members were flushed, and no operation is in flight.
    pub fn settle(&mut self) {
        let now = self.tick();
        self.settle_before(now);
    }

    /// A clean stop: everything readable is durable.
    pub fn stop(&mut self) {
        for register in &mut self.sectors {
            register.is_torn = false;
            register.base = register.at_rest();
            register.records.clear();
        }
        self.reads.clear();
        self.flushes.clear();
    }

    /// Nothing is guaranteed for this sector until it is written.
    pub fn give_up(&mut self, x: u64) {
        self.sectors[x as usize].base = vec![Value::Any];
    }

    /// Other members than before answer: where members may differ, earlier reads decide nothing any more.
    pub fn reopen(&mut self) {
        for register in &mut self.sectors {
            let others = std::mem::take(&mut register.others);
            if register.records.is_empty() {
                register.base.extend(others);
            }
        }
    }

    /// All members agree now: earlier reads are final, and reads decide again.
    pub fn resynced(&mut self) {
        for register in &mut self.sectors {
            register.others.clear();
            register.is_undecided = false;
            register.is_torn = false;
        }
    }

    /// Writes that no flush has covered may be lost although they were answered: a level without redundancy has met an
    /// error, or more members have failed than it survives.
    pub fn lose_unflushed(&mut self) {
        for record in self.sectors.iter_mut().flat_map(|register| &mut register.records) {
            record.is_ok &= record.end.is_none() || record.is_durable;
        }
        for read in self.reads.values_mut() {
            let sectors = read.start..read.start + read.is_quiet.len() as u64;
            for (x, register) in sectors.clone().zip(&self.sectors[sectors.start as usize..sectors.end as usize]) {
                read.allowed.extend(register.after_crash().into_iter().map(|value| (x, value)));
            }
            read.allowed.sort_unstable();
            read.allowed.dedup();
            read.is_quiet.fill(false);
        }
    }

    /// Sectors with more than one possible value.
    pub fn undecided(&self) -> Vec<u64> {
        (0..self.sectors.len() as u64).filter(|&x| self.sectors[x as usize].base.len() > 1).collect()
    }

    /// Sets whether a read decides between the possible values of this sector.
    pub fn set_undecided(&mut self, x: u64, is_undecided: bool) {
        self.sectors[x as usize].is_undecided = is_undecided;
    }

    /// The number of possible values after a crash.
    pub fn candidates(&self, x: u64) -> usize {
        self.sectors[x as usize].after_crash().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(oracle: &mut Oracle, op: u64, is_fua: bool) {
        oracle.begin_write(op, 0, 1, Value::Op(op));
        oracle.end_write(op, 0, 1, true, is_fua);
    }

    fn read(oracle: &mut Oracle, op: u64) -> Result<(), String> {
        oracle.begin_read(1000, 0, 1);
        let bytes = if op == 0 { [0; SECTOR_BYTES] } else { tag(9, 0, op) };
        oracle.end_read(1000, &bytes)
    }

    #[test]
    fn a_completed_write_replaces_the_old_value() {
        let mut oracle = Oracle::new(9, 1, Value::Zero);
        assert_eq!(read(&mut oracle, 0), Ok(()));
        wrote(&mut oracle, 1, false);
        assert_eq!(read(&mut oracle, 1), Ok(()));
        let found = read(&mut oracle, 0).unwrap_err();
        assert_eq!(found, "read op 1000: sector 0 holds zeroes; allowed are [Op(1)]");
        assert!(read(&mut oracle, 7).unwrap_err().contains("the bytes of sector 0 op 7"));
    }

    #[test]
    fn an_overlapping_write_may_or_may_not_be_seen() {
        let mut oracle = Oracle::new(9, 1, Value::Zero);
        oracle.begin_read(5, 0, 1);
        wrote(&mut oracle, 1, true);
        wrote(&mut oracle, 2, true);
        assert_eq!(oracle.end_read(5, &tag(9, 0, 1)), Ok(()), "between the two");
        assert!(read(&mut oracle, 1).is_err());
    }

    #[test]
    fn flushed_values_stay_and_the_first_read_decides_the_others() {
        let mut oracle = Oracle::new(9, 1, Value::Zero);
        wrote(&mut oracle, 1, false);
        oracle.begin_flush(2);
        wrote(&mut oracle, 3, false);
        oracle.end_flush(2, true);
        oracle.begin_write(4, 0, 1, Value::Op(4));
        oracle.crash();
        assert_eq!(oracle.candidates(0), 3);
        assert!(oracle.may_hold_after_crash(0, &[0; SECTOR_BYTES]).is_err(), "flushed over");
        assert_eq!(read(&mut oracle, 3), Ok(()));
        assert!(read(&mut oracle, 4).is_err(), "decided");
    }

    #[test]
    fn a_read_decides_between_concurrent_writes() {
        let mut oracle = Oracle::new(9, 1, Value::Zero);
        oracle.begin_write(1, 0, 1, Value::Op(1));
        oracle.begin_write(2, 0, 1, Value::Op(2));
        oracle.end_write(2, 0, 1, true, false);
        oracle.end_write(1, 0, 1, true, false);
        assert_eq!(read(&mut oracle, 2), Ok(()));
        assert!(read(&mut oracle, 1).is_err());
    }

    #[test]
    fn the_first_read_decides_about_a_failed_write_until_it_is_replaced() {
        let mut oracle = Oracle::new(9, 1, Value::Zero);
        oracle.begin_write(1, 0, 1, Value::Op(1));
        oracle.end_write(1, 0, 1, false, false);
        let mut without_effect = oracle.clone();
        assert_eq!(read(&mut oracle, 1), Ok(()));
        assert!(read(&mut oracle, 0).is_err(), "it has taken effect");
        assert_eq!(read(&mut without_effect, 0), Ok(()));
        assert!(read(&mut without_effect, 1).is_err(), "it has not");
        assert_eq!(without_effect.candidates(0), 2, "another member may hold it all the same");
        wrote(&mut oracle, 2, false);
        assert!(read(&mut oracle, 1).is_err());
    }

    #[test]
    fn a_torn_row_stays_uncertain_after_later_requests() {
        let mut oracle = Oracle::new(9, 1, Value::Zero);
        wrote(&mut oracle, 1, true);
        assert_eq!(oracle.uncertain(), []);
        oracle.begin_write(2, 0, 1, Value::Op(2));
        oracle.end_write(2, 0, 1, false, true);
        // A discard that touches no member is answered and flushed, and the row is still torn.
        oracle.begin_write(3, 0, 1, Value::Any);
        oracle.end_write(3, 0, 1, true, true);
        assert_eq!(oracle.uncertain(), [0]);
        oracle.resynced();
        assert_eq!(oracle.uncertain(), []);
    }

    #[test]
    fn the_xor_of_tags_is_no_tag() {
        let xor = |a: [u8; 512], b: [u8; 512]| -> Vec<u8> { a.iter().zip(b).map(|(a, b)| a ^ b).collect() };
        assert_ne!(xor(tag(1, 0, 1), tag(1, 0, 2))[32..], xor(tag(1, 1, 1), tag(1, 1, 2))[32..]);
    }
}
