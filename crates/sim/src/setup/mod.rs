//! The setup of a seed: the array, its members, its clients, before the run.
//! Owns: [`Setup`], the first superblocks, the first disks. Not here: the run (`scenario`). Called by all rooms
//! above.
//! Invariant: every array drawn here is one that md could have made, only smaller.

pub mod kinds;
pub mod mix;

use crate::image::areas::{BITMAP_AT, BITMAP_SECTORS, LOG_AT, LOG_SECTORS, PPL_AT, SUPER_AT};
use crate::image::bits::Bits;
use crate::image::{logs, ppl};
use crate::machine::executor::Executor;
use crate::machine::fault_kind::FaultKind;
use crate::machine::member::{Disk, Latency};
use crate::random::rng::{self, Rng};
use crate::reference::model::Shape;
use crate::setup::kinds::Kinds;
use crate::setup::mix::Mix;
use std::rc::Rc;
use uraid_block::{Geometry, SECTOR_BYTES, Sector, Sectors, Slot, SlotSet};
use uraid_format::{BadBlocks, Features, MemberFlag, Role, SetName, Superblock};

/// Whether more members fail than the level survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverBudget {
    /// No.
    Never,
    /// Operations fail on any number of members, but no member and no cached data is lost: a restart repairs
    /// everything.
    Passing,
    /// Any fault may happen. Only wrong bytes count, and the seed ends then.
    ForGood,
}

/// Everything that is drawn once per seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The array.
    pub shape: Shape,
    /// Members without a slot, numbered after the others.
    pub spares: u16,
    /// Identifies the array in its tags and superblocks.
    pub array: u64,
    /// First data sector of each member.
    pub data_offsets: Vec<u64>,
    /// Sectors for data on each member.
    pub data_sizes: Vec<u64>,
    /// Logical shards.
    pub shards: u16,
    /// The frequencies of requests.
    pub mix: Mix,
    /// How many clients.
    pub clients: u64,
    /// How many requests each client makes per round.
    pub requests: u64,
    /// Rounds before the last one.
    pub rounds: u64,
    /// Whether the array starts dirty, with random contents.
    pub starts_dirty: bool,
    /// Whether members fail.
    pub has_faults: bool,
    /// Whether power fails.
    pub has_crashes: bool,
    /// Whether the array is opened read-only and read before a start.
    pub opens_read_only: bool,
    /// Whether a stop may arrive while the array is still starting.
    pub stops_while_starting: bool,
    /// Whether the round before the last exceeds what the level survives.
    pub over_budget: OverBudget,
    /// The number of large blocks of each pool is multiplied by this: large chunks need more.
    pub pool_factor: u32,
    /// Discard granularity of the members in sectors, 0 for none, and whether discarded sectors read as zeroes.
    pub discard: (u64, bool),
    /// The longest delay of mail, in nanoseconds.
    pub mail_delay_max: u64,
    /// How long members take.
    pub latency: Latency,
    /// Large blocks of each pool beyond the minimum.
    pub spare_blocks: u32,
    /// The longest window of a resync.
    pub pass_window: Sectors,
    /// 1 answer in N is followed by a judged crash image.
    pub image_one_in: u64,
    /// What can go wrong with members.
    pub kinds: Kinds,
    /// A long seed: rounds continue until it has had enough operations and faults.
    pub is_long: bool,
    /// Entries of the role tables. With more than 128 a superblock is larger than a sector, and can be torn.
    pub roles: u16,
    /// A member that is thirty times as slow as the others.
    pub slow_disk: Option<u16>,
    /// The write-intent bitmap, if it has one.
    pub bits: Option<Bits>,
    /// Whether the members have bad-block logs.
    pub has_logs: bool,
    /// Whether the members have partial parity logs.
    pub has_ppl: bool,
    /// The members of a mirror that are write-mostly.
    pub write_mostly: SlotSet,
    /// The members of a mirror that are failfast. An operator clears the flag and sets it again.
    pub failfast: SlotSet,
    /// The members with a volatile write cache. What another one has answered is durable.
    pub caches: SlotSet,
    /// How many times as long each member takes.
    pub slowness: Vec<u64>,
    /// An array that starts dirty has copies that differ in the last byte of a sector only.
    pub differs_late: bool,
}

fn draw_level(rng: &mut Rng) -> (i32, u32, u16) {
    let near = |n: u32| 0x100 + n;
    let far = |n: u32| 1 + (n << 8);
    match rng.below(16) {
        0 => (-1, 0, rng.between(2, 4) as u16),
        1 => (0, *rng.pick(&[1, 2]), rng.between(2, 5) as u16),
        2..=4 => (1, 0, rng.between(1, 4) as u16),
        5..=8 => {
            let layout = *rng.pick(&[near(2), near(2), near(3), far(2), far(3), 0x1_0000 + far(2), 0x1_0000 + far(3)]);
            let copies = (layout & 255) * ((layout >> 8) & 255);
            (10, layout, rng.between(u64::from(copies), 6) as u16)
        }
        9 => (4, 0, rng.between(2, 5) as u16),
        10..=12 => (5, rng.below(6) as u32, rng.between(2, 6) as u16),
        _ => {
            let layout = *rng.pick(&[0, 1, 2, 2, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20]);
            (6, layout, rng.between(4, 8) as u16)
        }
    }
}

fn draw_mix(rng: &mut Rng, stripe: u64) -> Mix {
    let mut weight = |of: u64, out_of: u64, high: u64| if rng.chance(of, out_of) { rng.between(1, high) } else { 0 };
    let mut mix = Mix {
        read: weight(9, 10, 10),
        write: weight(19, 20, 12),
        fua: weight(1, 2, 4),
        flush: weight(2, 3, 4),
        discard: weight(1, 3, 3),
        zeroes: weight(1, 3, 3),
        pause: weight(1, 3, 1),
        length_max: 1,
        may_overlap: false,
    };
    if mix.write + mix.fua + mix.zeroes == 0 {
        mix.write = 1;
    }
    mix.length_max = *rng.pick(&[1, 4, stripe, 3 * stripe]);
    mix.may_overlap = rng.chance(2, 3);
    mix
}

impl Setup {
    /// Draws the setup of a seed.
    pub fn draw(rng: &mut Rng) -> Setup {
        let (level, layout, slots) = draw_level(rng);
        const N: OverBudget = OverBudget::Never;
        // Larger than the engine's scratch blocks and windows of 128 sectors.
        let is_big = rng.chance(1, 50);
        let chunk = if level == 1 { 0 } else { 1 << if is_big { 8 } else { rng.below(4) } };
        let unit = chunk.max(1);
        let far = if level == 10 { u64::from((layout >> 8) & 255) } else { 1 };
        let rows = if is_big { far } else { rng.between(1, 6) * far };
        let size = if level == 1 { rng.between(8, if is_big { 400 } else { 48 }) } else { unit * rows };
        let is_plain = level <= 0;
        let same = unit + rng.between(10, 40);
        let spares = if !is_plain && rng.chance(1, 6) { 1 } else { 0 };
        let data_size = |rng: &mut Rng| match (is_plain, rng.chance(1, 2)) {
            (true, true) => unit + rng.between(10, 40),
            (true, false) => same,
            (false, _) => size.max(10) + rng.below(4),
        };
        let data_sizes: Vec<u64> = (0..slots + spares).map(|_| data_size(rng)).collect();
        let data_offsets = (0..slots + spares).map(|_| 16 + rng.below(9)).collect();
        let member_sizes = if is_plain { data_sizes.clone() } else { Vec::new() };
        let shape = Shape { level, layout, chunk, slots, size: if is_plain { 0 } else { size }, member_sizes };
        let mix = draw_mix(rng, unit * u64::from(slots));
        let kinds = Kinds::draw(rng);
        let slow = *rng.pick(&[0, 0, 16, 100]);
        let max = *rng.pick(&[1_000, 80_000, 3_000_000]);
        let array = rng.next();
        let setup = Setup {
            shape,
            spares,
            array,
            data_offsets,
            data_sizes,
            shards: *rng.pick(&[1, 1, 2, 3, 4]),
            mix,
            clients: *rng.pick(&[1, 2, 4, 8, 16]),
            requests: rng.between(1, 24),
            rounds: rng.between(1, 4),
            starts_dirty: !is_plain && rng.chance(1, 4),
            has_faults: rng.chance(2, 3),
            has_crashes: rng.chance(3, 4),
            opens_read_only: rng.chance(1, 3),
            stops_while_starting: rng.chance(1, 2),
            over_budget: *rng.pick(&[N, N, N, N, N, N, OverBudget::Passing, OverBudget::ForGood]),
            pool_factor: if is_big { 8 } else { 1 },
            discard: *rng.pick(&[(0, false), (1, true), (1, false)]),
            mail_delay_max: *rng.pick(&[0, 500, 50_000]),
            latency: Latency { min: 100, max, slow_one_in: slow },
            spare_blocks: *rng.pick(&[0, 1, 8]),
            pass_window: Sectors(*rng.pick(&[1, 3, 8, 128])),
            image_one_in: if is_big { 64 } else { *rng.pick(&[2, 8, 32]) },
            is_long: false,
            roles: if kinds.has(FaultKind::TornSuper) { *rng.pick(&[384, 1000]) } else { 128 },
            slow_disk: if rng.chance(1, 8) { Some(rng.below(u64::from(slots)) as u16) } else { None },
            kinds,
            bits: None,
            has_logs: false,
            has_ppl: false,
            write_mostly: SlotSet::EMPTY,
            failfast: SlotSet::EMPTY,
            caches: SlotSet::EMPTY,
            slowness: Vec::new(),
            differs_late: false,
        };
        let (setup, may_be_behind) = setup.with_unequal_members().with_write_mostly();
        let setup = setup.with_failfast();
        let bits = if is_plain { None } else { Bits::draw(setup.array, setup.starts_dirty, may_be_behind) };
        // Derived from a drawn number, so that all else that existing seeds draw stays the same.
        let has_logs = !is_plain && rng::mix(setup.array ^ 0xbad).is_multiple_of(3);
        let setup = setup.with_bits(bits);
        let setup = if has_logs { setup.with_logs() } else { setup };
        let has_ppl = level == 5 && setup.bits.is_none() && !rng::mix(setup.array ^ 0x991).is_multiple_of(3);
        if has_ppl { setup.with_ppl() } else { setup }
    }

    /// The same array with members of their own: in half of the seeds some have no volatile cache, in a third they differ in
    /// speed, in a quarter their copies differ late. Derived from a drawn number, as below.
    fn with_unequal_members(self) -> Setup {
        let draw = rng::mix(self.array ^ 0xcac4e);
        let members = self.shape.slots + self.spares;
        let has_cache = |slot: &Slot| draw & 1 == 0 || draw >> (8 + slot.0) & 1 == 1;
        let factor = |slot: u16| [1, 1, 3, 10][(rng::mix(draw ^ u64::from(slot)) & 3) as usize];
        let slowness = (0..members).map(|slot| if draw.is_multiple_of(3) { factor(slot) } else { 1 }).collect();
        let differs_late = rng::mix(self.array ^ 0x1a7e).is_multiple_of(4);
        Setup { caches: (0..members).map(Slot).filter(has_cache).collect(), slowness, differs_late, ..self }
    }

    /// The same array with write-mostly members (see [`Setup::flagged`]), and whether writes may be behind on one.
    fn with_write_mostly(self) -> (Setup, bool) {
        let flags = rng::mix(self.array ^ 0x3057);
        let write_mostly = self.flagged(flags);
        let may_be_behind =
            self.shape.level == 1 && !write_mostly.is_empty() && write_mostly.count() < usize::from(self.shape.slots);
        // Many of these wait for a slow member.
        let slow_disk = write_mostly.iter().next().map(|slot| slot.0).filter(|_| may_be_behind && flags & 2 == 2);
        (Setup { write_mostly, slow_disk: slow_disk.or(self.slow_disk), ..self }, may_be_behind)
    }

    /// The same array with failfast members.
    fn with_failfast(self) -> Setup {
        let failfast = self.flagged(rng::mix(self.array ^ 0xfa57));
        Setup { failfast, ..self }
    }

    /// The members of a mirror that have a flag: none in half of the seeds, all in an eighth, in the others any member by a
    /// chance of one in two. `flags` is derived from a drawn number, as above.
    fn flagged(&self, flags: u64) -> SlotSet {
        let has_flags = matches!(self.shape.level, 1 | 10) && flags & 1 == 1;
        let is_flagged = |slot: &Slot| has_flags && (flags & 12 == 12 || flags >> (8 + slot.0) & 1 == 1);
        (0..self.shape.slots).map(Slot).filter(is_flagged).collect()
    }

    /// The same array with a write-intent bitmap, for which the data begins further behind.
    pub fn with_bits(mut self, bits: Option<Bits>) -> Setup {
        if bits.is_some() {
            self.data_offsets.iter_mut().for_each(|offset| *offset += BITMAP_SECTORS);
        }
        Setup { bits, ..self }
    }

    /// The same array with a bad-block log on every member, for which the data begins further behind.
    pub fn with_logs(mut self) -> Setup {
        let room = LOG_AT + LOG_SECTORS - BITMAP_AT - if self.bits.is_some() { BITMAP_SECTORS } else { 0 };
        self.data_offsets.iter_mut().for_each(|offset| *offset += room);
        Setup { has_logs: true, ..self }
    }

    /// The same array with a partial parity log on every member, for which the data begins further behind.
    pub fn with_ppl(mut self) -> Setup {
        assert!(self.bits.is_none() && self.shape.level == 5, "md has it on raid5 only, and without a bitmap");
        let begins = if self.has_logs { PPL_AT } else { BITMAP_AT };
        let room = PPL_AT - begins + ppl::sectors(self.shape.chunk);
        self.data_offsets.iter_mut().for_each(|offset| *offset += room);
        Setup { has_ppl: true, ..self }
    }

    /// Draws the setup of a long seed: members always have faults, but never more than it can continue with.
    pub fn draw_long(rng: &mut Rng) -> Setup {
        let mut setup = Setup::draw(rng);
        while setup.pool_factor > 1 {
            setup = Setup::draw(rng);
        }
        let (requests, clients) = (rng.between(4, 16), *rng.pick(&[2, 4, 4, 8, 16]));
        let image_one_in = *rng.pick(&[16, 32, 64]);
        Setup { is_long: true, has_faults: true, requests, clients, image_one_in, ..setup }
    }

    /// An array of this shape without random faults: one shard, fast members.
    pub fn plain(shape: Shape) -> Setup {
        let slots = usize::from(shape.slots);
        let mix = Mix {
            read: 1,
            write: 4,
            fua: 1,
            flush: 1,
            discard: 0,
            zeroes: 0,
            pause: 0,
            length_max: 3,
            may_overlap: false,
        };
        Setup {
            spares: 0,
            array: 0x1234_5678,
            data_offsets: vec![16; slots],
            data_sizes: vec![shape.size.max(10); slots],
            shape,
            shards: 1,
            mix,
            clients: 1,
            requests: 6,
            rounds: 1,
            starts_dirty: false,
            has_faults: false,
            has_crashes: false,
            opens_read_only: false,
            stops_while_starting: false,
            over_budget: OverBudget::Never,
            pool_factor: 1,
            discard: (0, false),
            mail_delay_max: 0,
            latency: Latency { min: 1_000, max: 30_000, slow_one_in: 0 },
            spare_blocks: 1,
            pass_window: Sectors(128),
            image_one_in: 1_000_000,
            kinds: Kinds::default(),
            is_long: false,
            roles: 128,
            slow_disk: None,
            bits: None,
            has_logs: false,
            has_ppl: false,
            write_mostly: SlotSet::EMPTY,
            failfast: SlotSet::EMPTY,
            caches: SlotSet::first(256),
            slowness: Vec::new(),
            differs_late: false,
        }
    }

    /// The name of the level.
    pub fn level_name(&self) -> &'static str {
        match self.shape.level {
            -1 => "linear",
            0 => "raid0",
            1 => "raid1",
            10 => "raid10",
            4 => "raid4",
            5 => "raid5",
            _ => "raid6",
        }
    }

    /// The level and layout in one word, for counting coverage.
    pub fn kind(&self) -> String {
        match self.shape.level {
            -1 | 1 | 4 => self.level_name().to_string(),
            _ => format!("{}/{:#x}", self.level_name(), self.shape.layout),
        }
    }

    /// Whether the level survives the loss of a member.
    pub fn is_redundant(&self) -> bool {
        self.shape.level > 0
    }

    /// Whether writes may be answered before a member has them.
    pub fn has_write_behind(&self) -> bool {
        let has_bound = self.bits.is_some_and(|bits| bits.write_behind > 0);
        self.shape.level == 1 && has_bound && !self.write_mostly.is_empty()
    }

    /// The first superblock of a member.
    pub fn superblock(&self, slot: u16) -> Superblock {
        let shape = &self.shape;
        let mut features = Features::default();
        if shape.level == 0 {
            features = Features::RAID0_LAYOUT;
        }
        // Spares of the swarm stay spares: the engine takes none that has bad blocks. The simulator's members do not
        // move between slots; directed tests let spares take them.
        if slot >= shape.slots {
            features = features.with(Features::BAD_BLOCKS);
        }
        if self.bits.is_some() {
            features = features.with(Features::BITMAP_OFFSET);
        }
        if self.has_ppl {
            features = features.with(Features::PPL);
        }
        let mut set_uuid = [0x5a; 16];
        set_uuid[..8].copy_from_slice(&self.array.to_le_bytes());
        let mut device_uuid = set_uuid;
        device_uuid[15] = slot as u8;
        let roles =
            (0..self.roles).map(|number| if number < shape.slots { Role::Slot(Slot(number)) } else { Role::Spare });
        Superblock {
            version: uraid_format::Version::V1_2,
            features,
            set_uuid,
            set_name: SetName::new("", "sim").expect("a short name"),
            created: 1_600_000_000,
            level: shape.level,
            layout: shape.layout,
            size: Sectors(shape.size),
            chunk: Sectors(shape.chunk),
            raid_disks: u32::from(shape.slots),
            bitmap_offset: match self.bits {
                Some(_) => (BITMAP_AT - SUPER_AT) as i32,
                None if self.has_ppl => ppl::word(shape.chunk),
                None => 0,
            },
            reshape: None,
            data_offset: Sector(self.data_offsets[usize::from(slot)]),
            data_size: Sectors(self.data_sizes[usize::from(slot)]),
            super_offset: Sector(SUPER_AT),
            recovery_offset: 0,
            dev_number: u32::from(slot),
            corrected_reads: 0,
            device_uuid,
            devflags: MemberFlag::FailFast.put(
                MemberFlag::WriteMostly.put(0, self.write_mostly.contains(Slot(slot))),
                self.failfast.contains(Slot(slot)),
            ),
            bad_blocks: match self.has_logs {
                true => BadBlocks { shift: 0, size: LOG_SECTORS as u16, offset: (LOG_AT - SUPER_AT) as i32 },
                false => BadBlocks::default(),
            },
            updated: 1_600_000_000,
            events: 1,
            resync_offset: if self.starts_dirty { 0 } else { Superblock::CLEAN },
            logical_block_size: 0,
            roles: roles.collect(),
        }
    }

    /// Creates the disks as `mdadm --create` would leave them.
    pub fn make_disks(&self, executor: &Executor, rng: &mut Rng) -> Vec<Rc<Disk>> {
        (0..self.shape.slots + self.spares).map(|slot| self.make_disk(executor, rng, slot)).collect()
    }

    /// The size and limits of a member.
    fn geometry(&self, slot: u16) -> Geometry {
        let (offset, data) = (self.data_offsets[usize::from(slot)], self.data_sizes[usize::from(slot)]);
        let size = offset + data + rng::mix(self.array ^ u64::from(slot)) % 3;
        Geometry {
            size: Sectors(size),
            logical_block: Sectors(1),
            physical_block: Sectors(1),
            chunk: Sectors::ZERO,
            stripe: Sectors::ZERO,
            io_max: Sectors(2048),
            segments_max: 1024,
            discard_granularity: Sectors(self.discard.0),
            fast_holes: self.discard.1,
            fast_zeroes: false,
            volatile_cache: self.caches.contains(Slot(slot)),
        }
    }

    fn make_disk(&self, executor: &Executor, rng: &mut Rng, slot: u16) -> Rc<Disk> {
        let offset = self.data_offsets[usize::from(slot)];
        let mut bytes = vec![0; self.geometry(slot).size.len_bytes()];
        if self.starts_dirty {
            let mut noise = rng.noise();
            for (at, byte) in bytes[offset as usize * SECTOR_BYTES..].iter_mut().enumerate() {
                let own = noise.next() as u8;
                let is_last = at % SECTOR_BYTES == SECTOR_BYTES - 1;
                *byte = if self.differs_late && !is_last { rng::mix(at as u64) as u8 } else { own };
            }
        }
        let start = SUPER_AT as usize * SECTOR_BYTES;
        bytes[start..start + 4096].copy_from_slice(&self.superblock(slot).encode()[..]);
        if let Some(bits) = &self.bits {
            let start = BITMAP_AT as usize * SECTOR_BYTES;
            let page = bits.page(&self.shape, self.superblock(slot).set_uuid);
            bytes[start..start + page.len()].copy_from_slice(&page);
        }
        if self.has_logs {
            logs::clear(&mut bytes);
        }
        if self.has_ppl {
            ppl::put_first(&mut bytes, self.shape.chunk, &self.superblock(slot).set_uuid);
        }
        let own = self.slowness.get(usize::from(slot)).copied().unwrap_or(1);
        let factor = if self.slow_disk == Some(slot) { 30 } else { own };
        let latency = Latency { min: self.latency.min * factor, max: self.latency.max * factor, ..self.latency };
        let disk = Disk::new(executor, slot, self.geometry(slot), bytes, offset, latency);
        disk.set_failfast(self.failfast.contains(Slot(slot)));
        disk
    }
}

#[cfg(test)]
mod tests;
