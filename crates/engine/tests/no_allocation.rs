//! A healthy read costs no allocation, on any level: counted, on members in memory that answer at once.

#[path = "../../block/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use uraid_block::{
    Arena, Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, ShardIndex, Tick, WritePieces,
};
use uraid_engine::{Array, AssembleOptions, Candidate, Config, Mail, Pool, World, assemble};
use uraid_format::SetName;
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_layout::{Level, default_layout};

/// A member that takes everything and reads as its own number.
struct Instant {
    geometry: Geometry,
    number: u8,
}

impl Device for Instant {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, _at: Sector, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        into.fill(self.number);
        Ok(into)
    }

    async fn write(&self, _at: Sector, _from: WritePieces, _fua: Fua) -> Result<(), IoError> {
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

#[derive(Clone)]
struct Still(Rc<StillInside>);

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct StillInside {
    arena: Arena,
    mail: RefCell<Vec<Mail>>,
    tasks: RefCell<Vec<Task>>,
}

impl World for Still {
    type Member = Instant;

    fn now(&self) -> Tick {
        Tick(0)
    }

    fn unix_seconds(&self) -> u64 {
        0
    }

    fn sleep(&self, _time: Duration) -> impl Future<Output = ()> {
        std::future::pending()
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

fn started(level: Level, members: u16) -> Rc<Array<Still>> {
    let size = Sectors(1 << 16);
    let options = CreateOptions {
        version: uraid_format::Version::V1_2,
        level,
        layout: default_layout(level),
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
    };
    let devices: Vec<NewMember> =
        (0..members).map(|number| NewMember::Device { size, uuid: [number as u8 + 1; 16] }).collect();
    let creation = create(&options, &devices).expect("the options are right");
    let candidates: Vec<Candidate> = creation
        .superblocks
        .into_iter()
        .flatten()
        .map(|superblock| Candidate { superblock, device_size: size })
        .collect();
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
        zeroes_after_discard: false,
        volatile_cache: true,
    };
    let devices = (0..members).map(|number| Instant { geometry: geometry.clone(), number: number as u8 }).collect();
    let inside = StillInside { arena: Arena::new(16, 64), mail: RefCell::default(), tasks: RefCell::default() };
    let world = Still(Rc::new(inside));
    let array = Array::new(world.clone(), &plan, devices, Config::default());
    let starting = array.clone();
    let mut start = pin!(starting.start(|_| {}));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let done = start.as_mut().poll(&mut context);
        let mail: Vec<Mail> = world.0.mail.take();
        for piece in mail {
            array.deliver(piece);
        }
        let mut tasks = world.0.tasks.take();
        tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        world.0.tasks.borrow_mut().extend(tasks);
        if let Poll::Ready(outcome) = done {
            outcome.expect("a clean array starts");
            return array;
        }
    }
}

#[test]
fn a_healthy_read_allocates_nothing() {
    let levels = [
        (Level::Linear, 2),
        (Level::Raid0, 4),
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid4, 4),
        (Level::Raid5, 5),
        (Level::Raid6, 8),
    ];
    for (level, members) in levels {
        let array = started(level, members);
        let arena = Arena::new(4, 0);
        let mut context = Context::from_waker(Waker::noop());
        let before = allocations();
        for at in (0..10_000).step_by(8) {
            let into = arena.take(4096).expect("the last read gave its buffer back");
            let mut read = pin!(array.read(Sector(at), into));
            match read.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => assert_eq!(outcome.expect("the member is healthy").bytes(), 4096),
                Poll::Pending => panic!("a member that answers at once makes nobody wait"),
            }
        }
        assert_eq!(allocations() - before, 0, "{}", level.name());
    }
}
