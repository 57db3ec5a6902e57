//! A raid0 that gets another shape while clients read and write it.
//! Owns: members that keep their bytes and take their time, clients that check each answer, the moving of the bytes. Not
//! here: several shards, members that fail.
//! Invariant: when a member's data have moved, their old places hold nothing of them: a request with the old shape is seen.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::join_all;
use uraid_block::{
    Arena, Device, ErrorKind, Fua, Geometry, IoError, MemoryDevice, Range, ReadPieces, SECTOR_BYTES, Sector, Sectors,
    WritePieces,
};
use uraid_engine::local::{LocalArray, LocalWorld};
use uraid_engine::{
    Array, AssembleOptions, Config, NewShape, ShapeError, StartPlan, World, assemble_examined, examine,
};
use uraid_format::create::{CreateOptions, NewMember, create, writes};
use uraid_layout::{Layout, Level, Spec};

const DEVICE: Sectors = Sectors(8192);
const CHUNK: u64 = 16;
const MEMBERS: u16 = 3;
/// What is left where data have been.
const GONE: u8 = 0xee;

/// Memory whose requests take from 1 to 60 microseconds, in no order.
struct Disk {
    memory: MemoryDevice,
    world: LocalWorld<Disk>,
    random: Rc<Cell<u64>>,
    inside: Rc<Cell<u64>>,
}

fn random(state: &Cell<u64>, below: u64) -> u64 {
    state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    (state.get() >> 33) % below
}

impl Disk {
    /// The bytes are there when the request ends, as late as can be.
    async fn take_time(&self) -> Inside {
        self.inside.set(self.inside.get() + 1);
        let inside = Inside(self.inside.clone());
        self.world.sleep(Duration::from_micros(1 + random(&self.random, 60))).await;
        inside
    }
}

/// A request to a member, until it is dropped.
struct Inside(Rc<Cell<u64>>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        let _inside = self.take_time().await;
        self.memory.read(at, into).await
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let _inside = self.take_time().await;
        self.memory.write(at, from, fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        let _inside = self.take_time().await;
        Ok(())
    }

    async fn discard(&self, _range: Range) -> Result<(), IoError> {
        Ok(())
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        let _inside = self.take_time().await;
        self.memory.write_zeroes(range).await
    }
}

type Client = Pin<Box<dyn Future<Output = ()>>>;

/// A running raid0 and what its members hold.
struct Rig {
    local: LocalArray<Disk>,
    array: Rc<Array<LocalWorld<Disk>>>,
    memory: Vec<MemoryDevice>,
    arena: Arena,
    random: Rc<Cell<u64>>,
    inside: Rc<Cell<u64>>,
    has_ended: Cell<bool>,
    answered: Cell<u64>,
    refused: Cell<u64>,
}

fn plan_of(memory: &[MemoryDevice]) -> StartPlan {
    let examined = |device: &MemoryDevice| examine(DEVICE, |at, into| device.read_at(at, into)).expect("a superblock");
    let examined: Vec<_> = memory.iter().map(examined).collect();
    assemble_examined(&examined, &AssembleOptions::default()).expect("all members are there")
}

fn started(seed: u64) -> Rc<Rig> {
    let options = CreateOptions { chunk: Sectors(CHUNK), ..CreateOptions::new(Level::Raid0, MEMBERS, [7; 16]) };
    let devices: Vec<NewMember> =
        (0..MEMBERS).map(|number| NewMember::Device { size: DEVICE, uuid: [number as u8 + 1; 16] }).collect();
    let creation = create(&options, &devices).expect("the options are right");
    let made = creation.superblocks.iter().flatten().map(|superblock| {
        let device = MemoryDevice::new(vec![0; DEVICE.len_bytes()]);
        for (at, bytes) in writes(superblock, None) {
            device.write_at(at.first_byte(), &bytes).expect("it fits");
        }
        device
    });
    let memory: Vec<MemoryDevice> = made.collect();
    let plan = plan_of(&memory);
    let world = LocalWorld::new(&plan, 0);
    let (random, inside) = (Rc::new(Cell::new(seed)), Rc::new(Cell::new(0)));
    let disk = |memory: &MemoryDevice| Disk {
        memory: memory.clone(),
        world: world.clone(),
        random: random.clone(),
        inside: inside.clone(),
    };
    let local = LocalArray::new(world.clone(), &plan, memory.iter().map(disk).collect(), Config::default());
    local.run(local.array().start()).expect("a new array starts");
    let array = local.array().clone();
    let arena = Arena::new(64, 16);
    let (has_ended, answered, refused) = (Cell::new(false), Cell::new(0), Cell::new(0));
    Rc::new(Rig { local, array, memory, arena, random, inside, has_ended, answered, refused })
}

impl Rig {
    /// Where each member's data begin, by its superblock on disk.
    fn offsets(&self) -> Vec<Sector> {
        plan_of(&self.memory).members.iter().map(|member| member.superblock.data_offset).collect()
    }

    /// Moves each member's data and leaves nothing where they were. `sizes`: what is kept of each member.
    fn shape_at(&self, from: &[Sector], to: &[Sector], sizes: &[Sectors]) -> NewShape {
        for ((device, kept), (from, to)) in self.memory.iter().zip(sizes).zip(from.iter().zip(to)) {
            let mut bytes = vec![0; kept.len_bytes()];
            let held = kept.len_bytes().min((DEVICE.0 - from.0) as usize * SECTOR_BYTES);
            device.read_at(from.first_byte(), &mut bytes[..held]).expect("it has data");
            let behind = (*from).min(*to);
            let gone = vec![GONE; (DEVICE.0 - behind.0) as usize * SECTOR_BYTES];
            device.write_at(behind.first_byte(), &gone).expect("it has room");
            device.write_at(to.first_byte(), &bytes).expect("it has room");
        }
        let spec = Spec { member_sizes: sizes.to_vec(), ..self.array.layout().spec().clone() };
        NewShape { layout: Layout::new(&spec).expect("as before"), data_offsets: to.to_vec() }
    }

    /// Swaps the shape while clients go on. `shift`: how far the data of each member move.
    async fn swap(&self, shifts: &[i64], sizes: &[Sectors]) {
        let from = self.offsets();
        let to: Vec<Sector> =
            from.iter().zip(shifts).map(|(at, shift)| Sector(at.0.strict_add_signed(*shift))).collect();
        let moving = async {
            for _ in 0..20 {
                assert_eq!(self.inside.get(), 0, "no request is inside while the bytes move");
                self.local.world().sleep(Duration::from_micros(7)).await;
            }
            Ok(self.shape_at(&from, &to, sizes))
        };
        self.array.set_shape(moving).await.expect("an open raid0 gets another shape");
        assert_eq!(self.offsets(), to, "the superblocks say so before a request goes on");
    }

    /// Reads and writes its own part of the array, and knows what each sector must hold.
    fn client(self: &Rc<Self>, number: u64, range: std::ops::Range<u64>) -> Client {
        let rig = self.clone();
        Box::pin(async move {
            let mut held = vec![0_u64; (range.end - range.start) as usize];
            let mut tag = number << 32;
            while !rig.has_ended.get() {
                let length = 1 + random(&rig.random, 40.min(range.end - range.start));
                let at = range.start + random(&rig.random, range.end - range.start - length + 1);
                let mut pieces = rig.arena.take_zeroed(length as usize * SECTOR_BYTES).expect("room");
                let of_request = (at - range.start) as usize..(at - range.start + length) as usize;
                if random(&rig.random, 2) == 0 {
                    let mut bytes = Vec::new();
                    for sector in &mut held[of_request] {
                        tag += 1;
                        *sector = tag;
                        bytes.extend(tag.to_le_bytes().repeat(SECTOR_BYTES / 8));
                    }
                    pieces.copy_from(&bytes);
                    rig.array.write(Sector(at), pieces.freeze(), Fua::No).await.expect("written");
                } else {
                    let read = rig.array.read(Sector(at), pieces).await.expect("read").to_vec();
                    let expected: Vec<u8> =
                        held[of_request].iter().flat_map(|tag| tag.to_le_bytes().repeat(SECTOR_BYTES / 8)).collect();
                    assert!(read == expected, "client {number} at {at}+{length}");
                }
                rig.answered.set(rig.answered.get() + 1);
            }
        })
    }
}

/// What every shape has of each member.
const SIZE_MIN: Sectors = Sectors(64 * CHUNK);

/// A client behind what every shape has: whatever it asks for is served, or refused as past the end.
fn tail_client(rig: &Rc<Rig>) -> Client {
    let rig = rig.clone();
    Box::pin(async move {
        let at = Sector(SIZE_MIN.0 * u64::from(MEMBERS) + 5);
        while !rig.has_ended.get() {
            let was_inside = at.0 + 8 <= rig.array.geometry().size.0;
            let pieces = rig.arena.take_zeroed(8 * SECTOR_BYTES).expect("room");
            let outcome = match random(&rig.random, 2) {
                0 => rig.array.write(at, pieces.freeze(), Fua::No).await,
                _ => rig.array.read(at, pieces).await.map(drop),
            };
            match outcome {
                Ok(()) => rig.answered.set(rig.answered.get() + 1),
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::OutOfRange);
                    rig.refused.set(rig.refused.get() + u64::from(was_inside));
                }
            }
            rig.local.world().sleep(Duration::from_micros(3)).await;
        }
    })
}

fn flush_client(rig: &Rc<Rig>) -> Client {
    let rig = rig.clone();
    Box::pin(async move {
        while !rig.has_ended.get() {
            rig.array.flush().await.expect("flushed");
            rig.local.world().sleep(Duration::from_micros(40)).await;
        }
    })
}

#[test]
fn no_request_is_lost_or_answered_wrongly_while_the_shape_changes() {
    let mut refused = 0;
    for seed in 1..9 {
        let rig = started(seed);
        let mut clients: Vec<Client> =
            (1..7).map(|number| rig.client(number, number * 400..(number + 1) * 400)).collect();
        clients.extend([tail_client(&rig), flush_client(&rig)]);
        let swapping = rig.clone();
        clients.push(Box::pin(async move {
            let rig = swapping;
            for (shifts, kept) in [
                // Not beside each other, and into the place of what was there.
                ([1024, 1024, 1024], SIZE_MIN),
                ([-8, 64, 700], SIZE_MIN + Sectors(32 * CHUNK)),
                ([0, 0, 0], SIZE_MIN),
                ([-1016, -1088, -1724], SIZE_MIN + Sectors(128 * CHUNK)),
            ] {
                let before = rig.answered.get();
                rig.local.world().sleep(Duration::from_millis(2)).await;
                assert!(rig.answered.get() > before + 20, "clients go on");
                rig.swap(&shifts, &[kept; MEMBERS as usize]).await;
                let size = Sectors(kept.0 * u64::from(MEMBERS));
                // A frontend asks the device, `detail` the status: both see it at once.
                assert_eq!((rig.array.geometry().size, rig.array.status().geometry.size), (size, size));
            }
            rig.local.world().sleep(Duration::from_millis(2)).await;
            rig.has_ended.set(true);
        }));
        rig.local.run(join_all(clients));
        refused += rig.refused.get();
        rig.local.run(rig.array.stop()).expect("a flushed raid0 stops");
    }
    assert!(refused > 0, "some request waited while the array became too small for it");
}

#[test]
fn a_shape_whose_bytes_could_not_be_moved_is_not_taken() {
    let rig = started(1);
    let (offsets, size) = (rig.offsets(), rig.array.geometry().size);
    let failing = rig.array.set_shape(async { Err(ErrorKind::Media.into()) });
    assert_eq!(rig.local.run(failing), Err(ShapeError::Move(ErrorKind::Media.into())));
    assert_eq!((rig.offsets(), rig.array.geometry().size), (offsets, size));
    let pieces = rig.arena.take_zeroed(SECTOR_BYTES).expect("room");
    assert!(rig.local.run(rig.array.read(Sector(0), pieces)).is_ok(), "the gate is open again");
    rig.local.run(rig.array.stop()).expect("a raid0 stops");
    let late = rig.array.set_shape(async { unreachable!("nothing moves in a stopped array") });
    assert_eq!(rig.local.run(late), Err(ShapeError::NotOpen));
}
