//! An array on members with a fixed time per operation, on a clock that moves only when nothing else is to do.
//! Owns: a started array, driving what its clients do. Not here: several shards, failures, what was written (`uraid-sim`).

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::join_all;
use uraid_block::{Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, Tick, WritePieces};
use uraid_engine::local::{LocalArray, LocalWorld};
use uraid_engine::{Array, AssembleOptions, Candidate, Config, World, assemble};
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_layout::{Level, default_layout};

/// A member that reads as its own number.
pub(crate) struct Member {
    geometry: Geometry,
    number: u8,
    world: LocalWorld<Member>,
    rules: Rc<Rules>,
}

/// What all members share.
pub(crate) struct Rules {
    io_takes: Duration,
    /// How many reads each member has served.
    pub(crate) reads: Vec<Cell<u64>>,
    /// Members with sectors of their data that they cannot read.
    pub(crate) unreadable: RefCell<Vec<(u8, u64)>>,
    data_offset: Sectors,
}

impl Member {
    async fn take_time(&self) {
        if !self.rules.io_takes.is_zero() {
            self.world.sleep(self.rules.io_takes).await;
        }
    }
}

impl Device for Member {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, at: Sector, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.take_time().await;
        let rules = &self.rules;
        let read = at.0..(at + into.length()).0;
        let unreadable = rules.unreadable.borrow();
        if unreadable
            .iter()
            .any(|(member, sector)| *member == self.number && read.contains(&(rules.data_offset.0 + sector)))
        {
            return Err(ErrorKind::Media.into());
        }
        let reads = &rules.reads[usize::from(self.number)];
        reads.set(reads.get() + 1);
        into.fill(self.number);
        Ok(into)
    }

    async fn write(&self, _at: Sector, _from: WritePieces, _fua: Fua) -> Result<(), IoError> {
        self.take_time().await;
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    async fn discard(&self, _range: Range) -> Result<(), IoError> {
        Ok(())
    }

    async fn write_zeroes(&self, _range: Range) -> Result<(), IoError> {
        Ok(())
    }
}

/// The array's machine. Clones are handles of the same one.
#[derive(Clone)]
pub(crate) struct Machine {
    local: Rc<LocalArray<Member>>,
    pub(crate) rules: Rc<Rules>,
}

/// The array of these tests.
pub(crate) type TestArray = Array<LocalWorld<Member>>;

/// A client of it.
pub(crate) type Client = Pin<Box<dyn Future<Output = ()>>>;

impl Machine {
    /// Drives the array and these clients of it to their end; gives the time that took.
    pub(crate) fn run(&self, clients: Vec<Client>) -> Duration {
        let began = self.now();
        self.local.run(join_all(clients));
        self.now().since(began)
    }

    pub(crate) fn now(&self) -> Tick {
        self.local.world().now()
    }

    pub(crate) fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        self.local.world().sleep(time)
    }
}

/// A started array of members that take the given time for each read and write.
pub(crate) fn started(level: Level, members: u16, io_takes: Duration) -> (Machine, Rc<TestArray>) {
    started_as(level, default_layout(level), members, io_takes)
}

/// The same with a layout, as the superblock has it.
pub(crate) fn started_as(level: Level, layout: u32, members: u16, io_takes: Duration) -> (Machine, Rc<TestArray>) {
    started_with(level, layout, members, io_takes, |_| true)
}

/// The same of members of which some can discard.
pub(crate) fn started_with(
    level: Level,
    layout: u32,
    members: u16,
    io_takes: Duration,
    can_discard: impl Fn(u16) -> bool,
) -> (Machine, Rc<TestArray>) {
    let size = Sectors(1 << 16);
    let chunk = if matches!(level, Level::Raid1 | Level::Linear) { Sectors::ZERO } else { Sectors(128) };
    let options = CreateOptions { layout, chunk, assume_clean: true, ..CreateOptions::new(level, members, [7; 16]) };
    let devices: Vec<NewMember> =
        (0..members).map(|number| NewMember::Device { size, uuid: [number as u8 + 1; 16] }).collect();
    let creation = create(&options, &devices).expect("the options are right");
    let candidates: Vec<Candidate> =
        creation.superblocks.into_iter().flatten().map(|superblock| Candidate::new(superblock, size)).collect();
    let data_offset = Sectors(candidates[0].superblock.data_offset.0);
    let plan = assemble(&candidates, &AssembleOptions::default()).expect("a new array assembles");
    let rules = Rc::new(Rules {
        io_takes,
        reads: (0..members).map(|_| Cell::new(0)).collect(),
        unreadable: RefCell::default(),
        data_offset,
    });
    let world = LocalWorld::new(&plan, 0);
    let member = |number| {
        let discard_granularity = if can_discard(number) { Sectors(1) } else { Sectors::ZERO };
        let geometry = Geometry { discard_granularity, ..Geometry::of_disk(size) };
        Member { geometry, number: number as u8, world: world.clone(), rules: rules.clone() }
    };
    let local = LocalArray::new(world.clone(), &plan, (0..members).map(member).collect(), Config::default());
    local.run(local.array().start()).expect("a clean array starts");
    let array = local.array().clone();
    (Machine { local: Rc::new(local), rules }, array)
}
