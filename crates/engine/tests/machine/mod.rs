//! One shard with a clock that the test controls, and members with a fixed time per operation.
//! Owns: a started array, driving what its clients do. Not here: several shards, failures, what was written (`uraid-sim`).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use uraid_block::{
    Arena, Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, ShardIndex, Tick, WritePieces,
};
use uraid_engine::{Array, AssembleOptions, Candidate, Config, Mail, Pool, World, assemble};
use uraid_format::SetName;
use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
use uraid_layout::{Level, default_layout};

/// A member that reads as its own number.
pub(crate) struct Member {
    geometry: Geometry,
    number: u8,
    world: Machine,
}

impl Member {
    async fn take_time(&self) {
        if !self.world.0.io_takes.is_zero() {
            self.world.sleep(self.world.0.io_takes).await;
        }
    }
}

impl Device for Member {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Sector, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.take_time().await;
        let inside = &self.world.0;
        let read = at.0..(at + into.length()).0;
        let unreadable = inside.unreadable.borrow();
        if unreadable
            .iter()
            .any(|(member, sector)| *member == self.number && read.contains(&(inside.data_offset.0 + sector)))
        {
            return Err(ErrorKind::Media.into());
        }
        let reads = &self.world.0.reads[usize::from(self.number)];
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

/// The shard.
#[derive(Clone)]
pub(crate) struct Machine(pub(crate) Rc<Inside>);

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct Inside {
    arena: Arena,
    now: Cell<Tick>,
    io_takes: Duration,
    /// How many reads each member has served.
    pub(crate) reads: Vec<Cell<u64>>,
    /// Members with sectors of their data that they cannot read.
    pub(crate) unreadable: RefCell<Vec<(u8, u64)>>,
    data_offset: Sectors,
    mail: RefCell<Vec<Mail>>,
    tasks: RefCell<Vec<Task>>,
}

impl World for Machine {
    type Member = Member;

    fn now(&self) -> Tick {
        self.0.now.get()
    }

    fn unix_seconds(&self) -> u64 {
        0
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        let (machine, end) = (self.clone(), self.now() + time);
        std::future::poll_fn(move |_| if machine.now() < end { Poll::Pending } else { Poll::Ready(()) })
    }

    fn shard(&self) -> ShardIndex {
        ShardIndex(0)
    }

    fn shards(&self) -> u16 {
        1
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.tasks.borrow_mut().push(Box::pin(task));
    }

    fn post(&self, _to: ShardIndex, mail: Mail) {
        self.0.mail.borrow_mut().push(mail);
    }

    fn arena(&self, _pool: Pool) -> &Arena {
        &self.0.arena
    }
}

/// The clock's step.
const STEP: Duration = Duration::from_micros(5);

impl Machine {
    /// Drives the array and these clients of it to their end; gives the time that took.
    pub(crate) fn run(&self, array: &Rc<Array<Machine>>, mut clients: Vec<Task>) -> Duration {
        let mut context = Context::from_waker(Waker::noop());
        let began = self.now();
        loop {
            // It is unknown whether there is more to do now: run all ready tasks a few times.
            for _ in 0..4 {
                clients.retain_mut(|client| client.as_mut().poll(&mut context).is_pending());
                self.0.mail.take().into_iter().for_each(|piece| array.deliver(piece));
                let mut tasks = self.0.tasks.take();
                tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
                self.0.tasks.borrow_mut().extend(tasks);
            }
            if clients.is_empty() {
                return self.now().since(began);
            }
            self.0.now.set(self.now() + STEP);
        }
    }
}

/// A started array of members that take the given time for each read and write.
pub(crate) fn started(level: Level, members: u16, io_takes: Duration) -> (Machine, Rc<Array<Machine>>) {
    started_as(level, default_layout(level), members, io_takes)
}

/// The same with a layout, as the superblock has it.
pub(crate) fn started_as(level: Level, layout: u32, members: u16, io_takes: Duration) -> (Machine, Rc<Array<Machine>>) {
    started_with(level, layout, members, io_takes, |_| true)
}

/// The same of members of which some can discard.
pub(crate) fn started_with(
    level: Level,
    layout: u32,
    members: u16,
    io_takes: Duration,
    can_discard: impl Fn(u16) -> bool,
) -> (Machine, Rc<Array<Machine>>) {
    let size = Sectors(1 << 16);
    let options = CreateOptions {
        version: uraid_format::Version::V1_2,
        level,
        layout,
        chunk: if matches!(level, Level::Raid1 | Level::Linear) { Sectors::ZERO } else { Sectors(128) },
        raid_disks: members,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::new("", "still").expect("the name is short"),
        now_seconds: 1,
        assume_clean: true,
        force: false,
        policy: NewPolicy::Resync,
    };
    let devices: Vec<NewMember> =
        (0..members).map(|number| NewMember::Device { size, uuid: [number as u8 + 1; 16] }).collect();
    let creation = create(&options, &devices).expect("the options are right");
    let candidates: Vec<Candidate> =
        creation.superblocks.into_iter().flatten().map(|superblock| Candidate::new(superblock, size)).collect();
    let data_offset = Sectors(candidates[0].superblock.data_offset.0);
    let plan = assemble(&candidates, &AssembleOptions::default()).expect("a new array assembles");
    let geometry = Geometry {
        size,
        logical_block: Sectors(1),
        physical_block: Sectors(1),
        chunk: Sectors::ZERO,
        stripe: Sectors::ZERO,
        io_max: size,
        segments_max: 1024,
        discard_granularity: Sectors(1),
        fast_holes: false,
        fast_zeroes: false,
        volatile_cache: true,
    };
    let machine = Machine(Rc::new(Inside {
        arena: Arena::new(16, 64),
        now: Cell::new(Tick(0)),
        io_takes,
        reads: (0..members).map(|_| Cell::new(0)).collect(),
        unreadable: RefCell::default(),
        data_offset,
        mail: RefCell::default(),
        tasks: RefCell::default(),
    }));
    let member = |number| {
        let discard_granularity = if can_discard(number) { Sectors(1) } else { Sectors::ZERO };
        let geometry = Geometry { discard_granularity, ..geometry.clone() };
        Member { geometry, number: number as u8, world: machine.clone() }
    };
    let array = Array::new(machine.clone(), &plan, (0..members).map(member).collect(), Config::default());
    let starting = array.clone();
    machine.run(&array, vec![Box::pin(async move { starting.start().await.expect("a clean array starts") })]);
    (machine, array)
}
