//! One tiny array with all cached facts about it: contents, superblocks, the slow model.
//! Owns: [`Lab`]: the first image, the slow model's results for rows, parsed superblocks. Not here: running the engine.
//! Invariant: every cached value is a pure function of contents, computed once by the slow model or the real parser.

use super::content::{Content, Contents, PrehashedMap};
use super::media::{BITMAP_AT, Beside, DATA_AT, SUPER_AT};
use super::script::Tiny;
use crate::image::bits::{self, Bits, bitmap_of};
use crate::random::rng::mix;
use crate::reference::model::{Model, Place, RowSector, gf_power, gf_product};
use crate::reference::oracle::{describe, tag};
use crate::setup::Setup;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_format::bitmap::{BitmapImage, BitmapUnusable};
use uraid_format::create::BitmapToAdd;
use uraid_format::ppl::{PPL_HEADER_SECTORS, PplHeader, PplLog};
use uraid_format::{Features, Role, Superblock};

/// The contents of the superblocks and data of all members: member after member, cell after cell.
pub type Image = Vec<Content>;

/// A tiny array and the facts about it.
pub struct Lab {
    /// The array.
    pub tiny: Tiny,
    /// The slow model of where each sector lies.
    pub model: Model,
    /// All contents met.
    pub contents: Rc<RefCell<Contents>>,
    /// Cells per member: one superblock, the data, and the bitmap or the log, if there is one.
    pub cells: usize,
    /// Identifies the array in tags.
    pub array: u64,
    // Indexed by a mask of slots.
    serves_without: Vec<bool>,
    // One model per row, so that the slow model's result for a row can be cached.
    rows: Vec<Model>,
    row_mismatches: RefCell<PrehashedMap<u128, bool>>,
    row_reads: RefCell<PrehashedMap<u128, Option<Content>>>,
    superblocks: RefCell<PrehashedMap<u32, Rc<Superblock>>>,
}

impl Lab {
    /// With empty caches.
    pub fn new(tiny: Tiny) -> Lab {
        let model = Model::new(tiny.shape.clone());
        let one = |row: &RowSector| Model {
            shape: tiny.shape.clone(),
            copies: Vec::new(),
            rows: vec![row.clone()],
            row_of: Vec::new(),
        };
        let rows = model.rows.iter().map(one).collect();
        let cells = 1 + tiny.shape.size as usize + beside(&tiny).cells();
        let array = Setup::plain(tiny.shape.clone()).array;
        let serves_without = (0..1 << tiny.shape.slots).map(|lost| model.can_serve_without(&slots_of(lost))).collect();
        Lab {
            tiny,
            model,
            serves_without,
            contents: Rc::default(),
            cells,
            array,
            rows,
            row_mismatches: RefCell::default(),
            row_reads: RefCell::default(),
            superblocks: RefCell::default(),
        }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        usize::from(self.tiny.shape.slots)
    }

    /// The index of a place's content in an image.
    pub fn at(&self, place: Place) -> usize {
        usize::from(place.slot) * self.cells + 1 + place.sector as usize
    }

    /// Whether the array can serve all sectors without these slots.
    pub fn serves_without(&self, lost: u32) -> bool {
        self.serves_without[lost as usize]
    }

    /// The content that request `op` writes to a sector.
    pub fn tag(&self, x: u64, op: u64) -> Content {
        self.contents.borrow_mut().number(&tag(self.array, x, op))
    }

    /// The image of a clean, stopped array: every sector holds its own tag of request 0, and parity is right.
    pub fn first_image(&self) -> Image {
        let zero = self.contents.borrow_mut().number(&[0; SECTOR_BYTES]);
        let mut image = vec![zero; self.slots() * self.cells];
        for slot in 0..self.slots() {
            image[slot * self.cells] = self.first_superblock(slot as u16);
            let last = (slot + 1) * self.cells;
            if self.tiny.bits > 0 {
                image[last - 1] = self.first_bitmap();
            }
            if self.tiny.has_ppl {
                let header = self.first_header();
                image[last - self.beside().cells()..][..header.len()].copy_from_slice(&header);
            }
        }
        for (x, places) in self.model.copies.iter().enumerate() {
            let content = self.tag(x as u64, 0);
            places.iter().for_each(|place| image[self.at(*place)] = content);
        }
        for row in &self.model.rows {
            let (p, q) = self.parity(&image, row);
            image[self.at(row.p)] = p;
            if let Some(place) = row.q {
                image[self.at(place)] = q;
            }
        }
        image
    }

    fn parity(&self, image: &Image, row: &RowSector) -> (Content, Content) {
        let mut contents = self.contents.borrow_mut();
        let (mut p, mut q) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
        for (_, place, exponent) in &row.data {
            for (at, byte) in contents.bytes(image[self.at(*place)]).iter().enumerate() {
                p[at] ^= byte;
                q[at] ^= gf_product(*byte, gf_power(*exponent));
            }
        }
        (contents.number(&p), contents.number(&q))
    }

    fn first_superblock(&self, slot: u16) -> Content {
        let mut superblock = Setup::plain(self.tiny.shape.clone()).superblock(slot);
        superblock.roles.truncate(self.slots());
        for (number, role) in superblock.roles.iter_mut().enumerate() {
            if self.tiny.missing & 1 << number != 0 {
                *role = Role::Faulty;
            }
        }
        if self.tiny.bits > 0 {
            superblock.features = superblock.features.with(Features::BITMAP_OFFSET);
            superblock.bitmap_offset = BITMAP_AT as i32 - SUPER_AT as i32;
        }
        if let Beside::Log { at, sectors } = self.beside() {
            superblock.features = superblock.features.with(Features::PPL);
            superblock.bitmap_offset = ((sectors << 16) | (at - SUPER_AT)) as i32;
        }
        superblock.data_offset = Sector(DATA_AT);
        superblock.data_size = Sectors(data_sectors(&self.tiny));
        assert_eq!(superblock.written_bytes(), SECTOR_BYTES, "a superblock is one cell");
        let bytes = superblock.encode();
        self.contents.borrow_mut().number(bytes[..SECTOR_BYTES].try_into().expect("a sector"))
    }

    /// The bitmap that a script adds.
    pub fn bitmap_to_add(&self) -> BitmapToAdd {
        let set_uuid = Setup::plain(self.tiny.shape.clone()).superblock(0).set_uuid;
        let offset = BITMAP_AT as i32 - SUPER_AT as i32;
        BitmapToAdd { offset, ..bits::bitmap_to_add(&self.tiny.shape, set_uuid, self.tiny.bits, 0) }
    }

    /// A bitmap without a bit.
    fn first_bitmap(&self) -> Content {
        let bits = Bits { chunk: self.tiny.bits, clear_after: Duration::ZERO, are_set: false, write_behind: 0 };
        let setup = Setup::plain(self.tiny.shape.clone());
        let page = bits.page(&setup.shape, setup.superblock(0).set_uuid);
        self.contents.borrow_mut().number(page[..SECTOR_BYTES].try_into().expect("a sector"))
    }

    /// The bitmap of a member of an image, by the real parser.
    pub fn bitmap(&self, image: &Image, slot: usize) -> Result<BitmapImage, BitmapUnusable> {
        let superblock = self.superblock(image[slot * self.cells]).map_err(|_| BitmapUnusable::NoRoom)?;
        let member = *self.contents.borrow().bytes(image[(slot + 1) * self.cells - 1]);
        bitmap_of(&member[..], &superblock)
    }

    /// The header of a new log, as mdadm writes it.
    fn first_header(&self) -> Vec<Content> {
        let set_uuid = Setup::plain(self.tiny.shape.clone()).superblock(0).set_uuid;
        let header = PplHeader::empty(&set_uuid).encode();
        let mut contents = self.contents.borrow_mut();
        header.chunks_exact(SECTOR_BYTES).map(|bytes| contents.number(bytes.try_into().expect("a sector"))).collect()
    }

    /// The partial parity log of a member of an image, by the real parser.
    pub fn ppl(&self, image: &Image, slot: usize) -> Option<PplLog> {
        let Beside::Log { at, .. } = self.beside() else { return None };
        let superblock = self.superblock(image[slot * self.cells]).ok()?;
        let area = &image[(slot + 1) * self.cells - self.beside().cells()..(slot + 1) * self.cells];
        let contents = self.contents.borrow();
        let bytes: Vec<u8> = area.iter().flat_map(|content| *contents.bytes(*content)).collect();
        let start = at as usize * SECTOR_BYTES;
        PplLog::read_beside(&superblock, |from, into| {
            let from = (from as usize).checked_sub(start);
            let found = from.and_then(|from| bytes.get(from..from + into.len()));
            found.map(|found| into.copy_from_slice(found)).is_some()
        })
    }

    /// What a member has besides its superblock and data.
    pub fn beside(&self) -> Beside {
        beside(&self.tiny)
    }

    /// Sectors of a member.
    pub fn device_size(&self) -> Sectors {
        let behind = if self.tiny.has_ppl { self.beside().cells() as u64 } else { 0 };
        Sectors(DATA_AT + data_sectors(&self.tiny) + behind)
    }

    /// Parses a content as a superblock, with the real parser.
    pub fn superblock(&self, content: Content) -> Result<Rc<Superblock>, String> {
        if let Some(known) = self.superblocks.borrow().get(&content.0) {
            return Ok(known.clone());
        }
        let mut bytes = [0; 4096];
        bytes[..SECTOR_BYTES].copy_from_slice(self.contents.borrow().bytes(content));
        let parsed = Superblock::parse(&bytes, Sector(SUPER_AT), self.device_size());
        let parsed = Rc::new(parsed.map_err(|error| format!("M1: a superblock does not parse: {error}"))?);
        self.superblocks.borrow_mut().insert(content.0, parsed.clone());
        Ok(parsed)
    }

    /// The slow model's result for reading a sector while these slots are missing; `None` if too much is missing.
    pub fn read(&self, image: &Image, missing: u32, x: u64) -> Option<Content> {
        let is_here = |place: &&Place| missing & 1 << place.slot == 0;
        if let Some(place) = self.model.copies[x as usize].iter().find(is_here) {
            return Some(image[self.at(*place)]);
        }
        if !self.model.is_parity() {
            return None;
        }
        let row = self.model.row_of[x as usize];
        let key = self.row_key(image, missing, row) ^ u128::from(mix(x));
        if let Some(known) = self.row_reads.borrow().get(&key) {
            return *known;
        }
        let bytes = self.model.read(x, &|place| self.bytes(image, missing, place)).pop();
        let content = bytes.map(|bytes| self.contents.borrow_mut().number(&bytes));
        self.row_reads.borrow_mut().insert(key, content);
        content
    }

    /// A mismatch of copies or parity among the members that are not missing, by the slow model.
    pub fn find_mismatch(&self, image: &Image, missing: u32) -> Option<String> {
        let is_here = |place: &Place| missing & 1 << place.slot == 0;
        for (x, places) in self.model.copies.iter().enumerate() {
            let mut copies = places.iter().copied().filter(is_here);
            let Some(first) = copies.next() else { continue };
            if let Some(other) = copies.find(|other| image[self.at(*other)] != image[self.at(first)]) {
                return Some(format!("copies of sector {x} differ: {first:?} and {other:?}"));
            }
        }
        (0..self.rows.len())
            .find(|row| self.row_mismatches(image, missing, *row))
            .and_then(|row| self.rows[row].find_mismatch(&|place| self.bytes(image, missing, place), &|_| false))
    }

    fn row_mismatches(&self, image: &Image, missing: u32, row: usize) -> bool {
        let key = self.row_key(image, missing, row);
        if let Some(known) = self.row_mismatches.borrow().get(&key) {
            return *known;
        }
        let lies = self.rows[row].find_mismatch(&|place| self.bytes(image, missing, place), &|_| false).is_some();
        self.row_mismatches.borrow_mut().insert(key, lies);
        lies
    }

    /// A row's contents and missing members as one number.
    fn row_key(&self, image: &Image, missing: u32, row: usize) -> u128 {
        let row = &self.model.rows[row];
        let contents = self.contents.borrow();
        let places = row.data.iter().map(|(_, place, _)| *place).chain([row.p]).chain(row.q);
        let key = |place: Place| contents.key(self.at(place), image[self.at(place)]);
        places.map(key).fold(u128::from(missing) << 64, |sum, key| sum ^ key)
    }

    fn bytes(&self, image: &Image, missing: u32, place: Place) -> Option<[u8; SECTOR_BYTES]> {
        (missing & 1 << place.slot == 0).then(|| *self.contents.borrow().bytes(image[self.at(place)]))
    }

    /// A content as text.
    pub fn describe(&self, content: Content) -> String {
        describe(self.contents.borrow().bytes(content))
    }

    /// The superblock and data of every member of an image, as text.
    pub fn describe_image(&self, image: &Image, lost: u32) -> String {
        let mut text = String::new();
        for slot in 0..self.slots() {
            let cells = &image[slot * self.cells..(slot + 1) * self.cells];
            if (lost | self.tiny.missing) & 1 << slot != 0 {
                text += &format!("member {slot}: lost\n");
                continue;
            }
            match self.superblock(cells[0]) {
                Ok(found) => {
                    let roles: Vec<String> = found.roles.iter().map(|role| format!("{role:?}")).collect();
                    let state = if found.is_dirty() { "dirty" } else { "clean" };
                    text += &format!("member {slot}: events {}, {state}, {}\n", found.events, roles.join(" "));
                }
                Err(found) => text += &format!("member {slot}: {found}\n"),
            }
            let data_end = self.cells - self.beside().cells();
            for (sector, content) in cells[1..data_end].iter().enumerate() {
                text += &format!("  {sector}: {}\n", self.describe(*content));
            }
            if self.tiny.bits > 0 {
                text += &format!("  bitmap: {}\n", self.describe(cells[data_end]));
            }
            if self.tiny.has_ppl {
                text += &format!("  log: {:?}\n", self.ppl(image, slot));
            }
        }
        text
    }
}

/// md requires at least 10 sectors of data.
fn data_sectors(tiny: &Tiny) -> u64 {
    tiny.shape.size.max(10)
}

/// A log lies behind the data: the first header, the header with entries, and partial parity of a chunk.
fn beside(tiny: &Tiny) -> Beside {
    let sectors = 2 * PPL_HEADER_SECTORS.0 + tiny.shape.chunk;
    match tiny.bits {
        0 if tiny.has_ppl => Beside::Log { at: DATA_AT + data_sectors(tiny), sectors },
        0 => Beside::Nothing,
        _ => Beside::Bitmap,
    }
}

/// The slots of a mask.
pub fn slots_of(mask: u32) -> BTreeSet<u16> {
    (0..32).filter(|slot| mask & 1 << slot != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_image_matches_the_slow_model_and_a_change_does_not() {
        for text in ["1,0,3,0,4,0", "10,258,3,1,4,0", "5,2,4,1,3,0", "6,2,5,2,4,0", "6,2,4,1,3,1"] {
            let lab = Lab::new(Tiny::parse(text).expect("a good array"));
            let mut image = lab.first_image();
            assert_eq!(lab.find_mismatch(&image, lab.tiny.missing), None, "{text}");
            let place = lab.model.copies[0].iter().find(|place| place.slot != 0).or(lab.model.copies[0].first());
            image[lab.at(*place.expect("every sector is somewhere"))] = lab.tag(0, 9);
            assert!(lab.find_mismatch(&image, lab.tiny.missing).is_some(), "{text}");
        }
    }
}
