//! Zeroes, holes and discards on parity levels.
//! Owns: every range of small arrays, whole and degraded, from every shard: what changes, and how many requests members
//! get. Not here: freezes in them (`frozen`), crashes, which the swarm has.

use super::frozen::redundancy;
use super::*;
use uraid_sim::machine::member::{Access, Op, Watch};

/// Counts what a member gets: requests and sectors of zeroes, reads and writes.
#[derive(Default)]
struct ZeroesWatch {
    requests: Cell<u64>,
    sectors: Cell<u64>,
    reads: Cell<u64>,
    writes: Cell<u64>,
}

impl Watch for ZeroesWatch {
    fn submitted(&self, access: Access) -> Result<(), String> {
        match access.op {
            Op::Zeroes => {
                self.requests.update(|requests| requests + 1);
                self.sectors.update(|sectors| sectors + access.length);
            }
            Op::Read => self.reads.update(|reads| reads + 1),
            // The superblock is at sectors 8 to 16, data behind it.
            Op::Write { .. } if access.at < 16 => {}
            Op::Write { .. } => self.writes.update(|writes| writes + 1),
            Op::Flush | Op::Discard => {}
        }
        Ok(())
    }
}

/// What makes zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Zeroes,
    /// Exact, too.
    Holes,
    /// Of whole rows only.
    Discard,
}

/// A request for zeroes, from this shard.
pub(super) fn zero(rig: &Rig, live: &Live, shard: usize, at: u64, length: u64) -> Request {
    clear(rig, live, shard, Verb::Zeroes, (at, length))
}

pub(super) fn clear(rig: &Rig, live: &Live, shard: usize, verb: Verb, (at, length): (u64, u64)) -> Request {
    let (array, guard) = (live.arrays[shard].clone(), rig.guard.clone());
    guard.open_range(at, length);
    Box::pin(async move {
        let range = uraid_block::Range::new(Sector(at), Sectors(length));
        let answer = match verb {
            Verb::Zeroes => array.write_zeroes(range).await,
            Verb::Holes => array.punch_hole(range).await,
            Verb::Discard => array.discard(range).await,
        };
        guard.close_range(at, length);
        if answer.is_err() {
            guard.leave_torn(at, length);
        }
        answer
    })
}

/// ```text
///   raid5 of 4, chunks of two sectors, rows of six
///     zeroes of 4..14:    as data 4..6, row 1, as data 12..14
///     a discard of it:    row 1
/// ```
fn every_range_is_exact_and_whole_rows_are_one_request(verb: Verb) {
    for (level, slots) in [(4, 3), (5, 3), (5, 4), (6, 4), (6, 5)] {
        for shards in [1, 2, 3] {
            for away in [None, Some(0), Some(slots - 1)] {
                let mut rig = rig_that_discards(7, shards, level, slots, false, true);
                let live = start(&mut rig, away.as_slice());
                let watches: Vec<Rc<ZeroesWatch>> = (0..slots).map(|_| Rc::default()).collect();
                for (slot, watch) in (0..slots).zip(&watches) {
                    rig.disk(slot).set_watch(Some(watch.clone()));
                }
                let stripe = 2 * u64::from(slots - if level == 6 { 2 } else { 1 });
                let geometry = live.arrays[0].geometry();
                assert_eq!(geometry.discard_granularity, Sectors(stripe));
                let size = geometry.size.0;
                for (start, end) in (0..size).flat_map(|start| (start + 1..=size).map(move |end| (start, end))) {
                    let case = format!("raid{level} of {slots}, {shards} shards, without {away:?}: {start}..{end}");
                    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())], "{case}");
                    for watch in &watches {
                        watch.requests.set(0);
                        watch.sectors.set(0);
                    }
                    let from = (start + end) as usize % usize::from(shards);
                    let request = clear(&rig, &live, from, verb, (start, end - start));
                    assert_eq!(all(&rig, &live, vec![request]), [Ok(())], "{case}");
                    let rows = start.div_ceil(stripe) * stripe..end / stripe * stripe;
                    let sectors: u64 = watches.iter().map(|watch| watch.sectors.get()).sum();
                    if verb == Verb::Holes {
                        // The parts of rows at its ends are holes of the data members; their parity is written.
                        let lost = if away.is_some() { end - start } else { 0 };
                        assert!(sectors + lost >= end - start, "{case}: {sectors} sectors");
                    }
                    for (slot, watch) in (0..slots).zip(&watches) {
                        let whole = u64::from(!rows.is_empty() && Some(slot) != away);
                        let has_parts = verb == Verb::Holes && rows != (start..end);
                        let requests = watch.requests.get();
                        let is_right = if has_parts { requests >= whole } else { requests == whole };
                        assert!(is_right, "{case}, member {slot}: {requests} requests");
                    }
                    let cleared = if verb == Verb::Discard { rows } else { start..end };
                    let expected: Vec<u8> =
                        (0..size).flat_map(|at| [if cleared.contains(&at) { 0 } else { 7 }; 512]).collect();
                    assert!(all(&rig, &live, vec![read(&live, 0, size)])[0].as_ref() == Ok(&expected), "{case}");
                }
                if away.is_none() {
                    assert_eq!(redundancy(&mut rig), Ok(()), "raid{level} of {slots}");
                }
                rig.power_off();
            }
        }
    }
}

#[test]
fn every_range_of_zeroes_is_exact_and_whole_rows_are_one_request_for_each_member() {
    every_range_is_exact_and_whole_rows_are_one_request(Verb::Zeroes);
}

#[test]
fn every_range_of_holes_is_exact_and_whole_rows_are_one_request_for_each_member() {
    every_range_is_exact_and_whole_rows_are_one_request(Verb::Holes);
}

#[test]
fn every_discard_clears_the_whole_rows_of_its_range_and_nothing_else() {
    every_range_is_exact_and_whole_rows_are_one_request(Verb::Discard);
}

/// What the members of an array got for two holes that meet within a row: reads and writes of the first, and of the second.
/// `written`: between them, a sector of the first one.
fn holes_that_meet(
    (level, slots, shards): (i32, u16, u16),
    (knows_holes, fill): (bool, Option<u8>),
    written: Option<u64>,
) -> [(u64, u64); 2] {
    let mut rig = rig_that_discards(7, shards, level, slots, false, knows_holes);
    let live = start(&mut rig, &[]);
    let size = live.arrays[0].geometry().size.0;
    if let Some(byte) = fill {
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, byte)]), [Ok(())]);
    }
    let watches: Vec<Rc<ZeroesWatch>> = (0..slots).map(|_| Rc::default()).collect();
    for (slot, watch) in (0..slots).zip(&watches) {
        rig.disk(slot).set_watch(Some(watch.clone()));
    }
    let counted = || {
        let sum = |count: fn(&ZeroesWatch) -> &Cell<u64>| watches.iter().map(|watch| count(watch).take()).sum();
        (sum(|watch| &watch.reads), sum(|watch| &watch.writes))
    };
    // raid5 of 4: rows of six. The holes are row 0, two sectors of row 1; then its other four, and all later rows.
    let meet = 8;
    assert_eq!(all(&rig, &live, vec![clear(&rig, &live, 0, Verb::Holes, (0, meet))]), [Ok(())]);
    let first = counted();
    if let Some(at) = written {
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, at, 1, 9)]), [Ok(())]);
        counted();
    }
    let last = usize::from(shards) - 1;
    assert_eq!(all(&rig, &live, vec![clear(&rig, &live, last, Verb::Holes, (meet, size - meet))]), [Ok(())]);
    let second = counted();
    let expected: Vec<u8> = (0..size).flat_map(|at| [if Some(at) == written { 9 } else { 0 }; 512]).collect();
    let case = format!("raid{level} of {slots}, {shards} shards, {fill:?}, {written:?}");
    assert!(all(&rig, &live, vec![read(&live, 0, size)])[0].as_ref() == Ok(&expected), "{case}");
    assert_eq!(redundancy(&mut rig), Ok(()), "{case}");
    rig.power_off();
    [first, second]
}

#[test]
fn holes_that_meet_within_a_row_read_and_write_no_parity() {
    for (level, slots) in [(4, 4), (5, 4), (6, 5)] {
        for shards in [1, 3] {
            let array = (level, slots, shards);
            assert_eq!(holes_that_meet(array, (true, None), None), [(0, 0), (0, 0)], "files that know their holes");
            // One chunk of the row is looked at; its neighbour then makes all of the row zeroes.
            assert_eq!(holes_that_meet(array, (false, None), None), [(1, 0), (0, 0)], "new disks");
            let [(reads, _), second] = holes_that_meet(array, (false, Some(7)), None);
            assert!(reads > 1 && second == (0, 0), "used disks: {reads} reads, then {second:?}");
        }
    }
}

#[test]
fn a_write_between_holes_that_meet_is_kept_and_in_parity() {
    for (level, slots) in [(4, 4), (5, 4), (6, 5)] {
        for shards in [1, 3] {
            for disks in [(true, None), (false, None), (true, Some(7)), (false, Some(7))] {
                for at in [5, 6, 7] {
                    holes_that_meet((level, slots, shards), disks, Some(at));
                }
            }
        }
    }
}

/// Members that may hold anything after a discard would spoil parity; and a row that is discarded is not logged.
#[test]
fn parity_levels_discard_nothing_where_members_do_not_give_zeroes() {
    for (level, slots) in [(4, 3), (5, 3), (6, 4)] {
        let mut rig = rig_of(7, 2, level, slots, false);
        let live = start(&mut rig, &[]);
        let geometry = live.arrays[0].geometry();
        assert!(geometry.discard_granularity.is_zero(), "raid{level}");
        let size = geometry.size.0;
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, size, 7)]), [Ok(())]);
        assert_eq!(all(&rig, &live, vec![clear(&rig, &live, 1, Verb::Discard, (0, size))]), [Ok(())]);
        assert!(all(&rig, &live, vec![read(&live, 0, size)])[0] == Ok(vec![7; size as usize * 512]), "raid{level}");
        rig.power_off();
    }
}

/// Writes and zeroes of the same rows, at the same time: whether parity fits afterwards, whichever came last.
fn written_beside_zeroes(level: i32, slots: u16, shards: u16) -> Result<(), String> {
    let mut rig = rig_of(11, shards, level, slots, false);
    let live = start(&mut rig, &[]);
    let size = live.arrays[0].geometry().size.0;
    for round in 0..40 {
        let mut requests: Vec<Request> = vec![zero(&rig, &live, round % usize::from(shards), 0, size)];
        for at in (0..size).step_by(3) {
            requests.push(Box::pin(write(&rig, &live, at, 1 + at % 3, 1 + round as u8)));
        }
        let turn = round % requests.len();
        requests.rotate_left(turn);
        requests.push(zero(&rig, &live, 0, 1, size - 2));
        assert!(all(&rig, &live, requests).iter().all(Result::is_ok), "raid{level}, {shards} shards");
        redundancy(&mut rig).map_err(|found| format!("raid{level}, {shards} shards: {found}"))?;
    }
    rig.power_off();
    Ok(())
}

#[test]
fn zeroes_beside_writes_of_the_same_rows_leave_parity_right() {
    for (level, slots) in [(4, 3), (5, 4), (6, 5)] {
        for shards in [1, 3] {
            assert_eq!(written_beside_zeroes(level, slots, shards), Ok(()));
        }
    }
}

/// The canary of zeroes that do not lock their rows.
#[cfg(feature = "canaries")]
#[test]
fn zeroes_that_take_no_turns_with_writes_of_their_rows_are_found() {
    use uraid_engine::canary::set;
    for (level, slots) in [(4, 3), (5, 4), (6, 5)] {
        set(Some("SkipHold"));
        let outcome = written_beside_zeroes(level, slots, 3);
        set(None);
        assert!(outcome.is_err(), "raid{level}");
    }
}
