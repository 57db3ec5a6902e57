//! Writes from memory that its owner changes while they are in flight, as a guest can.
//! Owns: members that change it whenever they have taken a write; comparing copies, and parity with data. Not here: the
//! pieces themselves (`uraid_block::foreign`).
//! Invariant: an array with redundancy stores one version of each sector; which one is the owner's own business.

#![allow(unsafe_code, reason = "memory that two sides use: that is what is tested")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::rc::Rc;
use uraid_block::{
    Changes, Device, ForeignMemory, Fua, Geometry, IoError, MemoryDevice, Range, ReadPieces, SECTOR_BYTES, Sector,
    Sectors, Slot, WritePieces,
};
use uraid_engine::local::{LocalArray, LocalWorld};
use uraid_engine::{AssembleOptions, Config, MemberPlan, StartPlan, assemble_examined, examine};
use uraid_format::create::{CreateOptions, NewMember, create, writes};
use uraid_layout::{Layout, Level, Row};
use uraid_parity::{check_p, check_pq};

const DEVICE: Sectors = Sectors(8192);
const CHUNK: Sectors = Sectors(16);

/// The memory of a guest. It is only touched through its address.
struct Guest {
    start: NonNull<u8>,
    bytes: usize,
    /// It leaves its memory alone.
    keeps: Cell<bool>,
}

impl Guest {
    fn new(bytes: usize) -> Rc<Guest> {
        let memory: Box<[u8]> = vec![0; bytes].into();
        Rc::new(Guest { start: NonNull::from(Box::leak(memory)).cast(), bytes, keeps: Cell::new(false) })
    }

    fn fill(&self, with: impl Fn(u8) -> u8) {
        for at in 0..self.bytes {
            // SAFETY: inside the memory, to which there is no reference.
            unsafe { self.start.add(at).write(with(self.start.add(at).read())) };
        }
    }

    /// Every byte becomes another one.
    fn scribble(&self) {
        if !self.keeps.get() {
            self.fill(|byte| byte.wrapping_add(1));
        }
    }

    fn lends(self: &Rc<Guest>, changes: Changes) -> ForeignMemory {
        // SAFETY: `held` keeps the memory, which this thread changes between polls only.
        unsafe { ForeignMemory::new(self.start, self.bytes, 4, changes, self.clone()) }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.bytes);
        // SAFETY: leaked in `new`, with this length.
        drop(unsafe { Box::from_raw(memory) });
    }
}

/// Memory that takes a write, and lets the guest change its own before another member takes it.
struct Disk {
    memory: MemoryDevice,
    guest: Rc<Guest>,
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.guest.scribble();
        self.memory.read(at, into).await
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let written = self.memory.write(at, from, fua).await;
        self.guest.scribble();
        written
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        self.memory.discard(range).await
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.memory.write_zeroes(range).await
    }
}

struct Rig {
    local: LocalArray<Disk>,
    memory: Vec<MemoryDevice>,
    plan: StartPlan,
    guest: Rc<Guest>,
    foreign: ForeignMemory,
}

fn started(level: Level, members: u16, guest_bytes: usize, changes: Changes) -> Rig {
    let options = CreateOptions { chunk: CHUNK, assume_clean: true, ..CreateOptions::new(level, members, [7; 16]) };
    let devices: Vec<NewMember> =
        (0..members).map(|number| NewMember::Device { size: DEVICE, uuid: [number as u8 + 1; 16] }).collect();
    let creation = create(&options, &devices).expect("the options are right");
    let made = creation.superblocks.iter().flatten().map(|superblock| {
        let device = MemoryDevice::new(vec![0; DEVICE.len_bytes()]);
        for (at, bytes) in writes(superblock, None) {
            device.write_at(at.first_byte(), &bytes).expect("it fits");
        }
        device
    });
    let memory: Vec<MemoryDevice> = made.collect();
    let examined = |device: &MemoryDevice| examine(DEVICE, |at, into| device.read_at(at, into)).expect("a superblock");
    let examined: Vec<_> = memory.iter().map(examined).collect();
    let plan = assemble_examined(&examined, &AssembleOptions::default()).expect("all members are there");
    let guest = Guest::new(guest_bytes);
    let disk = |memory: &MemoryDevice| Disk { memory: memory.clone(), guest: guest.clone() };
    let world = LocalWorld::new(&plan, 0);
    let local = LocalArray::new(world, &plan, memory.iter().map(disk).collect(), Config::default());
    local.run(local.array().start()).expect("a new array starts");
    let foreign = guest.lends(changes);
    Rig { local, memory, plan, guest, foreign }
}

impl Rig {
    /// Writes guest memory from its start, which holds ones at first.
    fn write(&self, at: Sector, length: Sectors) {
        self.guest.fill(|_| 1);
        let mut pieces = WritePieces::new();
        pieces.push(self.foreign.lend(0, length.len_bytes()).expect("inside, and free"));
        let array = self.local.array().clone();
        self.local.run(async move { array.write(at, pieces, Fua::No).await }).expect("all members are well");
        assert_eq!(self.foreign.pieces_in_use(), 0, "the guest has its memory back when the write is answered");
    }

    /// The data of each member.
    fn data(&self) -> Vec<Vec<u8>> {
        let of = |(memory, member): (&MemoryDevice, &MemberPlan)| {
            memory.bytes()[member.superblock.data_offset.first_byte() as usize..].to_vec()
        };
        self.memory.iter().zip(&self.plan.members).map(of).collect()
    }

    /// How many chunks of the first 16 rows hold data. Panics if the parity of a row is wrong.
    fn chunks_with_right_parity(&self) -> usize {
        let Layout::Parity(layout) = &self.plan.layout else { panic!("a level without parity") };
        let data = self.data();
        let mut written = 0;
        for row in 0..16 {
            let map = layout.row(Row(row));
            let block =
                |slot: Slot| &data[slot.index()][Sector(map.start.0).first_byte() as usize..][..CHUNK.len_bytes()];
            let blocks: Vec<&[u8]> = map.data.iter().map(|slot| block(*slot)).collect();
            written += blocks.iter().filter(|block| block.iter().any(|byte| *byte != 0)).count();
            let is_right = match map.syndrome {
                Some(syndrome) => check_pq(block(map.parity), block(syndrome), &blocks, &map.exponents),
                None => check_p(block(map.parity), &blocks),
            };
            assert!(is_right, "row {row}");
        }
        written
    }
}

#[test]
fn copies_are_equal_although_the_guest_writes_its_buffer_meanwhile() {
    // The slots that hold the same: of raid10 near 2, each pair.
    for (level, members, copies) in
        [(Level::Raid1, 2, &[(0, 1)][..]), (Level::Raid1, 3, &[(0, 1), (1, 2)]), (Level::Raid10, 4, &[(0, 1), (2, 3)])]
    {
        let rig = started(level, members, 64 * SECTOR_BYTES, Changes::AnyTime);
        rig.write(Sector(0), Sectors(64));
        rig.write(Sector(3), Sectors(9));
        let data = rig.data();
        for (one, other) in copies {
            assert!(data[*one] == data[*other], "{level:?} of {members}: slots {one} and {other} differ");
        }
        assert!(data.iter().all(|data| data.iter().any(|byte| *byte != 0)), "{level:?}: something was written");
    }
}

#[test]
fn parity_is_that_of_the_data_although_the_guest_writes_its_buffer_meanwhile() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid6, 6)] {
        let rig = started(level, members, 256 * SECTOR_BYTES, Changes::AnyTime);
        // Whole rows and parts of them; one sector; from within a chunk, and to within one.
        for (at, length) in [(0, 256), (5, 1), (11, 60), (100, 33), (64, 64)] {
            rig.write(Sector(at), Sectors(length));
        }
        assert!(rig.chunks_with_right_parity() >= 16, "{level:?} of {members}: 256 sectors were written");
    }
}

#[test]
fn without_redundancy_the_bytes_are_taken_where_they_are() {
    for (level, versions_of_two_members) in [(Level::Raid0, 2), (Level::Linear, 1)] {
        let rig = started(level, 2, 64 * SECTOR_BYTES, Changes::AnyTime);
        rig.write(Sector(0), Sectors(64));
        // The second member takes what the guest wrote after the first one.
        let written = rig.data().into_iter().flatten().filter(|byte| *byte != 0);
        let versions: BTreeSet<u8> = written.collect();
        assert_eq!(versions.len(), versions_of_two_members, "{level:?}: {versions:?}");
    }
}

#[test]
fn memory_that_its_owner_keeps_is_used_in_place() {
    let rig = started(Level::Raid6, 4, 64 * SECTOR_BYTES, Changes::Never);
    rig.guest.keeps.set(true);
    rig.write(Sector(0), Sectors(64));
    assert_eq!(rig.chunks_with_right_parity(), 4);
    let data = rig.data();
    let of_data = data.iter().flatten().filter(|byte| **byte == 1).count();
    assert!(of_data >= 64 * SECTOR_BYTES, "{of_data} bytes of data are there");
}
