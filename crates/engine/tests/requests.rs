//! When a request is submitted and to which member, with a clock that the test controls.

use crate::machine::{Client, Machine, TestArray, started, started_as, started_with};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{
    Arena, ArrayRange, ArraySector, Device, ErrorKind, Fua, Range, ReadPieces, Sector, Sectors, Slot, SlotSet,
};
use uraid_engine::{RequestKind, WriteCost, write_cost};
use uraid_layout::{Level, default_layout};

const IO_TAKES: Duration = Duration::from_micros(50);
const CHUNK: u64 = 128;

/// A client that writes 100 pages in sequence and keeps this many of them in flight.
fn writers(array: &Rc<TestArray>, arena: &Arena, start: u64, depth: usize) -> Vec<Client> {
    let next = Rc::new(Cell::new(0));
    let writer = |_| -> Client {
        let (array, arena, next) = (array.clone(), arena.clone(), next.clone());
        Box::pin(async move {
            while next.get() < 100 {
                let page = next.replace(next.get() + 1);
                let bytes = arena.take_zeroed(4096).expect("room").freeze();
                array.write(Sector(start + page * 8), bytes, Fua::No).await.expect("written");
            }
        })
    };
    (0..depth).map(writer).collect()
}

#[test]
fn clients_that_wait_for_their_answers_are_not_held() {
    for depth in [1, 2, 3, 8] {
        let (machine, array) = started(Level::Raid5, 4, IO_TAKES);
        let arena = Arena::new(32, 0);
        let clients = [0, 64 * CHUNK].map(|start| writers(&array, &arena, start, depth));
        let took = machine.run(clients.into_iter().flatten().collect());
        // Twice a read and a write: the first write also marks the array dirty.
        let turns = 100_u32.div_ceil(depth as u32);
        assert!(took < turns * 4 * IO_TAKES, "{depth} at once: {took:?}");
    }
}

#[test]
fn a_stream_that_waits_for_no_answer_becomes_full_stripes() {
    // Stripes of two, three and four writes.
    for members in [3, 4, 5] {
        let (machine, array) = started(Level::Raid5, members, 10 * IO_TAKES);
        let arena = Arena::new(0, 60);
        let chunk = |n: u64| -> Client {
            let (array, arena, machine) = (array.clone(), arena.clone(), machine.clone());
            Box::pin(async move {
                machine.sleep(Duration::from_micros(200) * n as u32).await;
                let bytes = arena.take_zeroed(Sectors(CHUNK).len_bytes()).expect("room").freeze();
                array.write(Sector(n * CHUNK), bytes, Fua::No).await.expect("written");
            })
        };
        machine.run((0..60).map(chunk).collect());
        let counters = array.counters();
        // The first rows are not yet known to be of a stream.
        assert!(counters.rows_full >= 60 / u64::from(members - 1) - 2, "{members} members: {counters:?}");
    }
}

/// Writes a page of one row every `gap`, without waiting for answers. Returns the time that each write took, in the
/// order of the answers. The last one is FUA if `ends_durably`.
fn waits_of_a_stream(gap: Duration, count: u64, ends_durably: bool) -> Vec<Duration> {
    let (machine, array) = started(Level::Raid5, 4, 10 * IO_TAKES);
    let (arena, waits) = (Arena::new(64, 0), Rc::new(Cell::new(Vec::new())));
    let page = |n: u64| -> Client {
        let (array, arena, machine, waits) = (array.clone(), arena.clone(), machine.clone(), waits.clone());
        Box::pin(async move {
            machine.sleep(gap * n as u32).await;
            let bytes = arena.take_zeroed(4096).expect("room").freeze();
            let fua = if ends_durably && n + 1 == count { Fua::Yes } else { Fua::No };
            let began = machine.now();
            array.write(Sector(n * 8), bytes, fua).await.expect("written");
            let mut all = waits.take();
            all.push(machine.now().since(began));
            waits.set(all);
        })
    };
    machine.run((0..count).map(page).collect());
    waits.take()
}

/// From `gather`.
const HOLD_MAX: Duration = Duration::from_millis(1);
/// A row's reads and its writes.
const ROW_TAKES: Duration = Duration::from_millis(1);

#[test]
fn no_row_is_held_longer_than_the_longest_hold_however_long_its_stream_goes_on() {
    for gap in [50, 100, 200, 300, 450, 490].map(Duration::from_micros) {
        // One less than the row has, so that its end never comes.
        let waits = waits_of_a_stream(gap, 3 * CHUNK / 8 - 1, false);
        let longest = waits.into_iter().max().expect("there are writes");
        // A write that comes while the row is being written waits for that, too.
        assert!(longest <= ROW_TAKES + HOLD_MAX + ROW_TAKES, "{gap:?} apart: {longest:?}");
        assert!(longest > 2 * ROW_TAKES, "{gap:?} apart: {longest:?}; the row is held for more of its stream");
    }
}

#[test]
fn a_row_whose_stream_has_ended_is_held_for_twice_the_time_between_its_writes() {
    for gap in [100, 200, 300].map(Duration::from_micros) {
        for count in 4..20 {
            let waits = waits_of_a_stream(gap, count, false);
            let last = waits.last().copied().expect("there are writes");
            assert!(last <= 2 * ROW_TAKES + 2 * gap, "{gap:?} apart, {count}: {last:?}");
        }
    }
}

#[test]
fn a_write_that_must_be_durable_ends_the_hold_of_its_row() {
    for gap in [100, 200, 300].map(Duration::from_micros) {
        for count in 4..20 {
            let waits = waits_of_a_stream(gap, count, true);
            let last = waits.last().copied().expect("there are writes");
            assert!(last <= 2 * ROW_TAKES, "{gap:?} apart, {count}: {last:?}");
        }
    }
}

/// ```text
///   raid5 of 4 without member 1     pages of one row, 300 us apart, and a read of what member 1 held of it at any time
/// ```
/// The read waits for a row write in flight and for one that arrived before it, but for no hold.
#[test]
fn a_reader_of_a_row_ends_its_hold() {
    let gap = Duration::from_micros(300);
    for began in (0..60).map(|step| step * Duration::from_micros(100)) {
        let (machine, array) = started(Level::Raid5, 4, 10 * IO_TAKES);
        let failing = array.clone();
        machine.run(vec![Box::pin(async move {
            failing.fail(SlotSet::EMPTY.with(Slot(1))).await.expect("a member to spare")
        })]);
        let (arena, took) = (Arena::new(64, 0), Rc::new(Cell::new(Duration::ZERO)));
        let page = |n: u64| -> Client {
            let (array, arena, machine) = (array.clone(), arena.clone(), machine.clone());
            Box::pin(async move {
                machine.sleep(gap * n as u32).await;
                let bytes = arena.take_zeroed(4096).expect("room").freeze();
                array.write(Sector(n * 8), bytes, Fua::No).await.expect("written");
            })
        };
        let (reading, of_reader) = (array.clone(), took.clone());
        let (into, clock) = (arena.take(4096).expect("room"), machine.clone());
        let reader: Client = Box::pin(async move {
            clock.sleep(began).await;
            let start = clock.now();
            // Row 0 is the only one that has bytes of member 1 between the first two chunks.
            reading.read(Sector(CHUNK), into).await.expect("one member is lost");
            of_reader.set(clock.now().since(start));
        });
        machine.run((0..16).map(page).chain([reader]).collect());
        let longest = 2 * ROW_TAKES + 10 * IO_TAKES;
        assert!(took.get() <= longest, "after {began:?}: {:?}, {longest:?} at most", took.get());
    }
}

#[test]
fn a_stream_whose_client_begins_to_wait_for_answers_is_not_held_any_more() {
    let (machine, array) = started(Level::Raid5, 4, 10 * IO_TAKES);
    let arena = Arena::new(64, 0);
    let gap = Duration::from_micros(300);
    let write = |n: u64| {
        let (array, arena) = (array.clone(), arena.clone());
        async move {
            let bytes = arena.take_zeroed(4096).expect("room").freeze();
            array.write(Sector(n * 8), bytes, Fua::No).await.expect("written");
        }
    };
    // The pace of the stream is known when these have been answered.
    let page = |n: u64| -> Client {
        let (machine, write) = (machine.clone(), write(n));
        Box::pin(async move {
            machine.sleep(gap * n as u32).await;
            write.await;
        })
    };
    machine.run((0..6).map(page).collect());
    for n in 6..12 {
        let took = machine.run(vec![Box::pin(write(n))]);
        assert!(took <= ROW_TAKES, "page {n}: {took:?}");
    }
}

/// A client that writes a stripe in two pieces, two chunks and one, or in four short ones, each 100 us after the one before,
/// and waits for all of them before the next stripe.
#[test]
fn a_stripe_that_comes_in_pieces_is_written_whole_although_its_client_waits() {
    for pieces in [&[2 * CHUNK, CHUNK][..], &[CHUNK * 3 / 4; 4]] {
        let (machine, array) = started(Level::Raid5, 4, 10 * IO_TAKES);
        let arena = Arena::new(0, 60);
        let gap = Duration::from_micros(100);
        let piece = |at: u64, length: u64, after: Duration| -> Client {
            let (array, arena, machine) = (array.clone(), arena.clone(), machine.clone());
            Box::pin(async move {
                machine.sleep(after).await;
                let bytes = arena.take_zeroed(Sectors(length).len_bytes()).expect("room").freeze();
                array.write(Sector(at), bytes, Fua::No).await.expect("written");
            })
        };
        let stripe = |n: u64| 3 * CHUNK * n;
        for n in 0..40 {
            let start = |nth: usize| stripe(n) + pieces[..nth].iter().sum::<u64>();
            let each = (0..pieces.len()).map(|nth| piece(start(nth), pieces[nth], gap * nth as u32));
            machine.run(each.collect());
        }
        let counters = array.counters();
        assert!(counters.rows_full >= 36, "{pieces:?}: {counters:?}");
        let reads: u64 = machine.rules.reads.iter().map(Cell::get).sum();
        assert!(
            reads <= 6,
            "{pieces:?}: {reads} reads, but the rows after the first ones wait for all of their pieces"
        );
        // Pieces without a second one: once a row is held for it, and then no more.
        let waits = |n: u64| machine.run(vec![piece(stripe(40) + n * 8, 8, Duration::ZERO)]);
        let waits: Vec<Duration> = (0..8).map(waits).collect();
        assert!(waits.iter().all(|took| *took <= ROW_TAKES + 2 * gap), "{pieces:?}: {waits:?}");
        assert!(waits[1..].iter().all(|took| *took <= ROW_TAKES), "{pieces:?}: {waits:?}");
    }
}

#[test]
fn reads_over_several_members_take_turns_among_the_copies() {
    let (machine, array) = started(Level::Raid10, 4, Duration::ZERO);
    let (arena, reader) = (Arena::new(0, 2), array.clone());
    let before: Vec<u64> = machine.rules.reads.iter().map(Cell::get).collect();
    let client: Client = Box::pin(async move {
        for n in 0..100 {
            let into = arena.take(Sectors(2 * CHUNK).len_bytes()).expect("room");
            // Each begins a stripe and goes on after none.
            reader.read(Sector(n * 37 % 100 * 4 * CHUNK), into).await.expect("healthy members");
        }
    });
    machine.run(vec![client]);
    let served: Vec<u64> = machine.rules.reads.iter().zip(before).map(|(reads, before)| reads.get() - before).collect();
    assert_eq!(served, [50; 4]);
}

/// ```text
///   raid10 near=3 of 4      member 0   1      2      3
///                     ...   ...        ...    lost   ...ooo7     chunks of 8 for the picture; o: readable,
///                           ooooooX7   8ooo   lost   X8ooo...    X: not
/// ```
/// 7 and 8 are one read of member 3, which fails. What member 0 does not give of it either, member 3 gives by itself.
#[test]
fn a_sector_is_read_again_where_only_its_neighbour_was_unreadable() {
    let (machine, array) = started_as(Level::Raid10, 0x103, 4, Duration::ZERO);
    let failing = array.clone();
    machine.run(vec![Box::pin(
        async move { failing.fail(SlotSet::EMPTY.with(Slot(2))).await.expect("a member to spare") },
    )]);
    *machine.rules.unreadable.borrow_mut() = vec![(3, 2 * CHUNK), (0, 3 * CHUNK - 1)];
    let arena = Arena::new(8, 0);
    let client = |_| -> Client {
        let (array, arena) = (array.clone(), arena.clone());
        Box::pin(async move {
            let into = arena.take(Sectors(3).len_bytes()).expect("room");
            let bytes = array.read(Sector(3 * CHUNK - 1), into).await.expect("some member gives each sector");
            let found: Vec<u8> = bytes.to_vec().into_iter().step_by(512).collect();
            assert_eq!(found, [3, 1, 1]);
        })
    };
    machine.run((0..4).map(client).collect());
}

#[test]
fn an_array_offers_discards_where_every_member_takes_them() {
    for without in 0..5 {
        let can_discard = |member| member != without;
        let (_, array) = started_with(Level::Raid10, default_layout(Level::Raid10), 4, Duration::ZERO, can_discard);
        assert_eq!(array.geometry().discard_granularity.is_zero(), without < 4, "all but {without}");
    }
}

#[test]
fn no_request_reaches_past_the_end_of_an_array() {
    let levels = [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid10, Level::Raid4, Level::Raid5, Level::Raid6];
    for level in levels {
        let (machine, array) = started(level, 4, Duration::ZERO);
        let size = array.geometry().size.0;
        let inside = [(size - 1, 1), (size, 0), (0, 1)].map(|range| (range, true));
        let past = [(size, 1), (size - 1, 2), (size + 7, 1), (size + 1, 0), (u64::MAX, 1)].map(|range| (range, false));
        for ((at, length), is_inside) in inside.into_iter().chain(past) {
            let (of_request, arena) = (array.clone(), Arena::new(4, 0));
            let requests: Client = Box::pin(async move {
                let bytes = || match Sectors(length).len_bytes() {
                    0 => ReadPieces::new(),
                    bytes => arena.take_zeroed(bytes).expect("room"),
                };
                let range = Range::new(Sector(at), Sectors(length));
                let answers = [
                    of_request.read(range.start, bytes()).await.map(|_| ()),
                    of_request.write(range.start, bytes().freeze(), Fua::No).await,
                    of_request.write_zeroes(range).await,
                    of_request.discard(range).await,
                    of_request.allocation(range).await.map(|_| ()),
                ];
                let expected = if is_inside { Ok(()) } else { Err(ErrorKind::OutOfRange.into()) };
                assert_eq!(answers, [expected; 5], "{level:?}: {at}+{length} of {size}");
            });
            machine.run(vec![requests]);
        }
    }
}

/// What a write costs by [`write_cost`], and by the counts of the engine that performs it alone.
#[test]
fn the_cost_of_a_write_is_what_the_engine_counts() {
    let shapes = [
        (Level::Raid0, 3),
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid4, 4),
        (Level::Raid5, 6),
        (Level::Raid6, 7),
    ];
    for (level, members) in shapes {
        let (machine, array) = started(level, members, IO_TAKES);
        let arena = Arena::new(0, 60);
        let layout = array.layout();
        let stripe = if layout.stripe().is_zero() { 2 * CHUNK } else { layout.stripe().0 };
        let writer: Client = Box::pin({
            let array = array.clone();
            async move {
                // The first write also marks the array dirty.
                let first = arena.take_zeroed(4096).expect("room").freeze();
                array.write(Sector(0), first, Fua::No).await.expect("written");
                for start in (0..stripe + CHUNK).step_by(40) {
                    for length in [8, 40, CHUNK - 8, CHUNK, CHUNK + 8, 2 * CHUNK, 300, stripe, stripe + 64, 2 * stripe]
                    {
                        let before = counted(&array);
                        let bytes = arena.take_zeroed(length as usize * 512).expect("room").freeze();
                        array.write(Sector(start), bytes, Fua::No).await.expect("written");
                        let range = ArrayRange::new(ArraySector(start), Sectors(length));
                        let expected = write_cost(&layout, SlotSet::first(members), range);
                        let mut found = before;
                        let expected = expected.expect("a whole array can be written");
                        // These members get each request as it is asked for.
                        assert!(expected.device_reads <= expected.reads && expected.device_writes <= expected.writes);
                        found += WriteCost { device_reads: 0, device_writes: 0, ..expected };
                        assert_eq!(counted(&array), found, "{level} of {members}: {length} sectors from {start}");
                    }
                }
            }
        });
        machine.run(vec![writer]);
    }
}

fn counted(array: &TestArray) -> WriteCost {
    let of = |kind: RequestKind| array.member_counts().iter().map(|counts| counts.of[kind as usize].requests).sum();
    let counters = array.counters();
    WriteCost {
        reads: of(RequestKind::Read),
        writes: of(RequestKind::Write),
        device_reads: 0,
        device_writes: 0,
        rows_full: counters.rows_full,
        rows_modified: counters.rows_modified,
        rows_reconstructed: counters.rows_reconstructed,
    }
}

/// Rows of three chunks, each in pieces of these lengths (in eighths of a chunk), in order, begun `gap` apart. Returns
/// how long each row took.
fn rows_in_pieces(
    (machine, array): &(Machine, Rc<TestArray>),
    rows: std::ops::Range<u64>,
    pieces: &[(u64, u64)],
    gap: Duration,
) -> Vec<Duration> {
    let arena = Arena::new(0, 60);
    let piece = |row: u64, nth: usize| -> Client {
        let (at, length) = pieces[nth];
        let (array, arena, machine) = (array.clone(), arena.clone(), machine.clone());
        Box::pin(async move {
            machine.sleep(gap * nth as u32).await;
            let bytes = arena.take_zeroed(Sectors(length * CHUNK / 8).len_bytes()).expect("room").freeze();
            array.write(Sector(3 * CHUNK * row + at * CHUNK / 8), bytes, Fua::No).await.expect("written");
        })
    };
    rows.map(|row| machine.run((0..pieces.len()).map(|nth| piece(row, nth)).collect())).collect()
}

/// Two shards receive the pieces, and the shorter one is there first, also where it is very short.
#[test]
fn a_row_whose_end_comes_before_its_beginning_is_written_whole() {
    for pieces in [&[(16, 8), (0, 16)][..], &[(23, 1), (0, 23)], &[(8, 8), (16, 8), (0, 8)]] {
        let setup = started(Level::Raid5, 4, 10 * IO_TAKES);
        let gap = Duration::from_micros(100);
        rows_in_pieces(&setup, 0..40, pieces, gap);
        let counters = setup.1.counters();
        assert!(counters.rows_full >= 36, "{pieces:?}: {counters:?}");
    }
}

/// A client that writes a row in two pieces and waits for each, after one whose pieces came together.
#[test]
fn holds_in_vain_become_rare() {
    let setup = started(Level::Raid5, 4, 10 * IO_TAKES);
    rows_in_pieces(&setup, 0..10, &[(16, 8), (0, 16)], Duration::from_micros(100));
    let waits = |rows| rows_in_pieces(&setup, rows, &[(16, 8)], Duration::ZERO);
    let long = waits(100..140).into_iter().filter(|took| *took > ROW_TAKES).count();
    assert_eq!(long, 1, "a hold in vain, and no more until rows come in pieces again");
    assert!(waits(140..141)[0] <= ROW_TAKES);
}

#[test]
fn short_writes_are_not_held_because_long_ones_come_in_pieces() {
    let setup = started(Level::Raid5, 4, 10 * IO_TAKES);
    rows_in_pieces(&setup, 0..10, &[(16, 8), (0, 16)], Duration::from_micros(100));
    for row in 50..60 {
        let took = rows_in_pieces(&setup, row..row + 1, &[(5, 1)], Duration::ZERO)[0];
        assert!(took <= ROW_TAKES, "row {row}: {took:?}");
    }
}

#[test]
fn a_client_that_waits_for_each_part_of_a_row_is_not_held() {
    let setup = started(Level::Raid5, 4, 10 * IO_TAKES);
    for row in 0..20 {
        for part in [(16, 8), (0, 16)] {
            let took = rows_in_pieces(&setup, row..row + 1, &[part], Duration::ZERO)[0];
            // The first write also marks the array dirty.
            assert!(row == 0 || took <= ROW_TAKES, "row {row}: {took:?}");
        }
    }
}
