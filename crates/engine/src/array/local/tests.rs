//! Tests of arrays in a world of one thread.
//! Owns: how the clock moves, devices that answer later, what is left when an array is dropped. Not here: what an array
//! does at which time (tests/requests.rs).

use super::*;
use crate::{AssembleOptions, Candidate, assemble};
use std::cell::Cell;
use uraid_block::local::{Notify, join_all};
use uraid_block::{ErrorKind, Fua, Geometry, IoError, MemoryDevice, Range, ReadPieces, Sector, Sectors, WritePieces};
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_layout::Level;

const SIZE: Sectors = Sectors(8 << 11);

/// While it is held, writes do not end.
#[derive(Default)]
struct Gate {
    is_held: Cell<bool>,
    changed: Notify,
}

impl Gate {
    fn hold(&self, is_held: bool) {
        self.is_held.set(is_held);
        self.changed.notify_all();
    }
}

struct Member {
    memory: MemoryDevice,
    gate: Rc<Gate>,
}

impl Device for Member {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.memory.read(at, into).await
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        self.gate.changed.wait_for(|| (!self.gate.is_held.get()).then_some(())).await;
        self.memory.write(at, from, fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        self.memory.discard(range).await
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.memory.write_zeroes(range).await
    }
}

/// A new raid5 of four, and the bytes of its members.
fn raid5(gate: &Rc<Gate>, assume_clean: bool) -> (LocalArray<Member>, Vec<MemoryDevice>) {
    let options = CreateOptions { chunk: Sectors(128), assume_clean, ..CreateOptions::new(Level::Raid5, 4, [7; 16]) };
    let devices = [1, 2, 3, 4].map(|n| NewMember::Device { size: SIZE, uuid: [n; 16] });
    let superblocks = create(&options, &devices).expect("the options are right").superblocks;
    let candidates: Vec<Candidate> =
        superblocks.into_iter().flatten().map(|superblock| Candidate::new(superblock, SIZE)).collect();
    let plan = assemble(&candidates, &AssembleOptions::default()).expect("a new array assembles");
    let bytes: Vec<MemoryDevice> = (0..4).map(|_| MemoryDevice::new(vec![0; SIZE.len_bytes()])).collect();
    let members = bytes.iter().map(|memory| Member { memory: memory.clone(), gate: gate.clone() }).collect();
    let local = LocalArray::new(LocalWorld::new(&plan, 1_000), &plan, members, Config::default());
    (local, bytes)
}

/// Writes of ragged pieces all over the array, all at once.
async fn write_much(array: &Array<LocalWorld<Member>>, arena: &Arena) {
    let writes = (0..60_u64).map(|n| async move {
        let mut bytes = arena.take(4096 + n as usize % 3 * 512).expect("room");
        bytes.fill(n as u8);
        array.write(Sector(n * 37 % 50 * 61), bytes.freeze(), Fua::No).await.expect("written");
    });
    join_all(writes).await;
}

#[test]
fn the_clock_goes_on_only_to_the_next_timer_and_only_when_nothing_is_ready() {
    let (local, _) = raid5(&Rc::default(), true);
    let arena = Arena::new(128, 0);
    local.run(local.array().start()).expect("it starts");
    local.run(write_much(local.array(), &arena));
    assert!(local.array().status().is_dirty);
    let written = local.world().now();
    assert!(written < Tick(0) + Duration::from_millis(100), "rows are held for a moment: {written:?}");
    let world = local.world().clone();
    local.run(world.sleep(Duration::from_secs(5)));
    assert_eq!(local.world().now(), written + Duration::from_secs(5));
    assert_eq!(local.world().unix_seconds(), 1_005);
    assert!(!local.array().status().is_dirty, "it was idle for longer than Config::clean_after");
}

#[test]
fn the_same_calls_have_the_same_course() {
    let course = || {
        let (local, bytes) = raid5(&Rc::default(), false);
        let arena = Arena::new(128, 0);
        local.run(local.array().start()).expect("it starts");
        local.run(write_much(local.array(), &arena));
        local.run(local.array().wait(|_| {})).expect("the resync ends");
        local.run(local.array().stop()).expect("it stops");
        (bytes.iter().map(|member| member.bytes().to_vec()).collect::<Vec<_>>(), local.world().now())
    };
    assert_eq!(course(), course());
}

#[test]
fn a_device_that_answers_later_is_driven_by_turns() {
    let gate = Rc::<Gate>::default();
    let (local, bytes) = raid5(&gate, true);
    local.run(local.array().start()).expect("it starts");
    gate.hold(true);
    let (array, arena, is_written) = (local.array().clone(), Arena::new(1, 0), Rc::new(Cell::new(false)));
    let answered = is_written.clone();
    local.world().spawn(async move {
        let mut data = arena.take(4096).expect("room");
        data.fill(0xa5);
        array.write(Sector(0), data.freeze(), Fua::No).await.expect("written");
        answered.set(true);
    });
    let mut now = local.world().now();
    for _ in 0..10 {
        now = now + Duration::from_millis(10);
        local.turn(now);
        assert!(!is_written.get(), "the members hold the write");
    }
    // As a program does when its I/O has ended: it calls the wakers, then takes a turn.
    gate.hold(false);
    local.turn(now);
    assert!(is_written.get());
    assert!(bytes[0].bytes().contains(&0xa5));
}

#[test]
#[should_panic(expected = "the clock is monotonic")]
fn a_clock_that_goes_back_is_refused() {
    let (local, _) = raid5(&Rc::default(), true);
    local.turn(Tick(10));
    local.turn(Tick(9));
}

/// The gate's handles: one here, one for each member.
#[test]
fn an_array_that_is_dropped_leaves_nothing_behind() {
    let gate = Rc::<Gate>::default();
    for (steps, is_stopped) in [(0, false), (1, false), (2, false), (2, true)] {
        let (local, _) = raid5(&gate, false);
        assert_eq!(Rc::strong_count(&gate), 5);
        if steps > 0 {
            // A resync begins.
            local.run(local.array().start()).expect("it starts");
        }
        if steps > 1 {
            gate.hold(!is_stopped);
            let (array, arena) = (local.array().clone(), Arena::new(128, 0));
            local.world().spawn(async move { write_much(&array, &arena).await });
            local.turn(local.world().now());
        }
        if is_stopped {
            local.run(local.array().stop()).expect("it stops");
            let refused = local.run(local.array().flush());
            assert_eq!(refused, Err(ErrorKind::Stopping.into()));
        }
        drop(local);
        gate.hold(false);
        assert_eq!(Rc::strong_count(&gate), 1, "after {steps} steps, stopped: {is_stopped}");
    }
}
