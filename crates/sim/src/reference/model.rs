//! The slow reference model: where every sector lies, and what parity must be.
//! Owns: [`Model`], written only from docs/md/address-mapping.md. Not here: speed.
//! Invariant: it shares no code with `layout`, `parity` or `engine`. It is a table of every sector, made once for a tiny
//! array.
//! Spec: docs/md/address-mapping.md; docs/md/behaviour.md#when-an-array-starts.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;
use uraid_block::SECTOR_BYTES;

/// One sector of one member, counted from its data offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The slot.
    pub slot: u16,
    /// The sector.
    pub sector: u64,
}

/// The geometry of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// md's number of the level.
    pub level: i32,
    /// md's number of the layout.
    pub layout: u32,
    /// In sectors.
    pub chunk: u64,
    /// The number of slots.
    pub slots: u16,
    /// Sectors used per member. Linear and raid0 use `member_sizes` instead.
    pub size: u64,
    /// Sectors of data per member, for linear and raid0.
    pub member_sizes: Vec<u64>,
}

/// A row of a parity level that is one sector high.
#[derive(Clone, Debug)]
pub struct RowSector {
    /// Array sector, place, exponent of its coefficient in Q.
    pub data: Vec<(u64, Place, u32)>,
    /// P.
    pub p: Place,
    /// Q, on raid6.
    pub q: Option<Place>,
}

/// The place of every sector.
pub struct Model {
    /// The array.
    pub shape: Shape,
    /// Per array sector all its copies, in copy order; one copy on levels without redundancy.
    pub copies: Vec<Vec<Place>>,
    /// On parity levels: the rows, each one sector high; `chunk` of them make a row of chunks.
    pub rows: Vec<RowSector>,
    /// On parity levels: per array sector the index in `rows`.
    pub row_of: Vec<usize>,
}

type Bytes = [u8; SECTOR_BYTES];

/// A product in GF(2^8) modulo 0x11d, bit by bit.
pub fn gf_product(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

/// 2 to the power n.
pub fn gf_power(n: u32) -> u8 {
    (0..n % 255).fold(1, |power, _| gf_product(power, 2))
}

fn gf_inverse(a: u8) -> u8 {
    (1..=255).find(|&b| gf_product(a, b) == 1).expect("only zero has no inverse")
}

impl Model {
    /// Computes the tables of an array.
    pub fn new(shape: Shape) -> Model {
        let mut model = Model { shape, copies: Vec::new(), rows: Vec::new(), row_of: Vec::new() };
        match model.shape.level {
            -1 => model.fill_linear(),
            0 => model.fill_raid0(),
            1 => {
                let slots = model.shape.slots;
                let all = |sector| (0..slots).map(|slot| Place { slot, sector }).collect();
                model.copies = (0..model.shape.size).map(all).collect();
            }
            10 => model.fill_raid10(),
            4..=6 => model.fill_parity(),
            other => panic!("level {other} has no model"),
        }
        model
    }

    /// The size of the array in sectors.
    pub fn array_size(&self) -> u64 {
        self.copies.len() as u64
    }

    /// Whether the level has parity.
    pub fn is_parity(&self) -> bool {
        !self.rows.is_empty()
    }

    /// How many lost blocks a row survives: the number of its parities.
    pub fn parities(&self) -> usize {
        match self.shape.level {
            6 => 2,
            4 | 5 => 1,
            _ => 0,
        }
    }

    fn fill_linear(&mut self) {
        for slot in 0..self.shape.slots {
            let size = self.shape.member_sizes[usize::from(slot)];
            let size = size.checked_div(self.shape.chunk).map_or(size, |chunks| chunks * self.shape.chunk);
            self.copies.extend((0..size).map(|sector| vec![Place { slot, sector }]));
        }
    }

    fn fill_raid0(&mut self) {
        let chunk = self.shape.chunk;
        let sizes: Vec<u64> = self.shape.member_sizes.iter().map(|size| size / chunk * chunk).collect();
        let mut bounds: Vec<u64> = sizes.clone();
        bounds.sort_unstable();
        bounds.dedup();
        let mut zone_start_on_member = 0;
        for bound in bounds {
            let members: Vec<u16> =
                (0..self.shape.slots).filter(|&slot| sizes[usize::from(slot)] > zone_start_on_member).collect();
            let count = members.len() as u64;
            let start = self.array_size();
            for x in start..start + count * (bound - zone_start_on_member) {
                let row = (x - start) / (chunk * count);
                let sector = zone_start_on_member + row * chunk + x % chunk;
                let number = if self.shape.layout == 1 { x / chunk } else { (x - start) / chunk };
                self.copies.push(vec![Place { slot: members[(number % count) as usize], sector }]);
            }
            zone_start_on_member = bound;
        }
    }

    fn fill_raid10(&mut self) {
        let word = u64::from(self.shape.layout);
        let (near, far, is_offset, kind) = (word & 255, (word >> 8) & 255, (word >> 16) & 1 == 1, (word >> 17) & 3);
        let (disks, chunk) = (u64::from(self.shape.slots), self.shape.chunk);
        let chunks = (self.shape.size / chunk) / far * disks / near;
        let used = (chunks * near * far).div_ceil(disks);
        let stride = if is_offset { chunk } else { used / far * chunk };
        let set = match kind {
            0 => disks,
            1 => disks / far,
            _ => near * far,
        };
        let tail = disks % set;
        let last = (disks / set - 1) * set;
        let step = |device: u64| {
            let next = device + near;
            if tail > 0 && next > last { last + (next - last) % (set + tail) } else { device / set * set + next % set }
        };
        for x in 0..chunks * chunk {
            let (c, offset) = (x / chunk, x % chunk);
            let (mut row, mut device) = ((c * near) / disks, (c * near) % disks);
            if is_offset {
                row *= far;
            }
            let mut sector = row * chunk + offset;
            let mut places = Vec::new();
            for _ in 0..near {
                let mut place = device;
                places.push(Place { slot: place as u16, sector });
                for copy in 1..far {
                    place = step(place);
                    places.push(Place { slot: place as u16, sector: sector + copy * stride });
                }
                device += 1;
                if device == disks {
                    device = 0;
                    sector += chunk;
                }
            }
            self.copies.push(places);
        }
    }

    /// P, Q and the data slots of a row of chunks.
    fn row_slots(&self, row: u64) -> (u16, Option<u16>, Vec<u16>, Vec<u32>) {
        let disks = u64::from(self.shape.slots);
        let (s, d, m) = (row % disks, disks, disks - 1);
        let around = |from: u64, modulo: u64, count: u64| (0..count).map(|k| (from + 1 + k) % modulo).collect();
        let skip = |p: u64, q: u64| (0..d).filter(|&slot| slot != p && slot != q).collect::<Vec<u64>>();
        let (level, layout) = (self.shape.level, self.shape.layout);
        let (p, q, data): (u64, Option<u64>, Vec<u64>) = match (level, layout) {
            (4, _) | (5, 5) => (d - 1, None, (0..d - 1).collect()),
            (5, 0) => (d - 1 - s, None, skip(d - 1 - s, d)),
            (5, 1) => (s, None, skip(s, d)),
            (5, 2) => (d - 1 - s, None, around(d - 1 - s, d, d - 1)),
            (5, 3) => (s, None, around(s, d, d - 1)),
            (5, 4) => (0, None, (1..d).collect()),
            (6, 0) => (d - 1 - s, Some((d - s) % d), skip(d - 1 - s, (d - s) % d)),
            (6, 1) => (s, Some((s + 1) % d), skip(s, (s + 1) % d)),
            (6, 2) => (d - 1 - s, Some((d - s) % d), around((d - s) % d, d, d - 2)),
            (6, 3) => (s, Some((s + 1) % d), around((s + 1) % d, d, d - 2)),
            (6, 4) => (0, Some(1), (2..d).collect()),
            (6, 5) => (d - 2, Some(d - 1), (0..d - 2).collect()),
            (6, 8) => (s, Some((s + 1) % d), skip(s, (s + 1) % d)),
            (6, 9) => {
                let p = d - 1 - (row + 1) % d;
                (p, Some((p + 1) % d), skip(p, (p + 1) % d))
            }
            (6, 10) => {
                let p = d - 1 - s;
                (p, Some((p + d - 1) % d), around(p, d, d - 2))
            }
            (6, 16) => (m - 1 - row % m, Some(d - 1), skip(m - 1 - row % m, d - 1)),
            (6, 17) => (row % m, Some(d - 1), skip(row % m, d - 1)),
            (6, 18) => (m - 1 - row % m, Some(d - 1), around(m - 1 - row % m, m, d - 2)),
            (6, 19) => (row % m, Some(d - 1), around(row % m, m, d - 2)),
            (6, 20) => (0, Some(d - 1), (1..d - 1).collect()),
            other => panic!("layout {other:?} has no model"),
        };
        let is_ddf = level == 6 && (8..=10).contains(&layout);
        let exponents = data.iter().map(|&slot| match q {
            None => 0,
            Some(_) if is_ddf => slot as u32,
            // The number of data disks between Q and this one, in order of slots.
            Some(q) => {
                let walk = (1..d).map(|step| (q + step) % d).take_while(|&met| met != slot);
                walk.filter(|&met| met != p).count() as u32
            }
        });
        let exponents = exponents.collect();
        (p as u16, q.map(|q| q as u16), data.iter().map(|&slot| slot as u16).collect(), exponents)
    }

    fn fill_parity(&mut self) {
        let chunk = self.shape.chunk;
        let data_disks = u64::from(self.shape.slots) - self.parities() as u64;
        let rows = self.shape.size / chunk;
        let array_size = (rows * chunk * data_disks) as usize;
        self.copies = vec![Vec::new(); array_size];
        self.row_of = vec![0; array_size];
        for row in 0..rows {
            let (p, q, data, exponents) = self.row_slots(row);
            for offset in 0..chunk {
                let sector = row * chunk + offset;
                let place = |slot| Place { slot, sector };
                let mut cells = Vec::new();
                for (k, (&slot, &exponent)) in data.iter().zip(&exponents).enumerate() {
                    let x = (row * data_disks + k as u64) * chunk + offset;
                    self.copies[x as usize] = vec![place(slot)];
                    self.row_of[x as usize] = self.rows.len();
                    cells.push((x, place(slot), exponent));
                }
                self.rows.push(RowSector { data: cells, p: place(p), q: q.map(place) });
            }
        }
    }

    /// Whether every sector can be served without these slots.
    pub fn can_serve_without(&self, lost: &BTreeSet<u16>) -> bool {
        if self.is_parity() {
            return lost.range(..self.shape.slots).count() <= self.parities();
        }
        if self.shape.level == 10 {
            // md's rule, which ignores how little of a tiny array is used: docs/md/address-mapping.md#raid10.
            let (near, far) = (self.shape.layout & 255, (self.shape.layout >> 8) & 255);
            let slots = u32::from(self.shape.slots);
            let is_alive = |start: u32| (0..near * far).any(|k| !lost.contains(&(((start + k) % slots) as u16)));
            return (0..slots).all(|step| is_alive(step * near % slots));
        }
        self.copies.iter().all(|places| places.iter().any(|place| !lost.contains(&place.slot)))
    }

    /// Whether all data in the stripes of a place can still be read without the places of `is_bad`.
    pub fn survives_at(&self, place: Place, is_bad: &dyn Fn(Place) -> bool) -> bool {
        if self.is_parity() {
            let Some(row) = self.rows.get(place.sector as usize) else { return true };
            let places = row.data.iter().map(|(_, place, _)| *place).chain(row.q).chain([row.p]);
            return places.filter(|place| is_bad(*place)).count() <= self.parities();
        }
        let of_place = self.copies.iter().filter(|places| places.contains(&place));
        of_place.into_iter().all(|places| places.iter().any(|place| !is_bad(*place)))
    }

    /// The array sectors whose stripes have a block at this place.
    pub fn sectors_at(&self, place: Place) -> Vec<u64> {
        if self.is_parity() {
            let row = self.rows.get(place.sector as usize);
            return row.into_iter().flat_map(|row| &row.data).map(|(x, _, _)| *x).collect();
        }
        let numbered = self.copies.iter().enumerate().filter(|(_, places)| places.contains(&place));
        numbered.map(|(x, _)| x as u64).collect()
    }

    /// The right content of a place, from the members in `get`; zeroes where the array has no sector.
    pub fn content(&self, place: Place, get: &dyn Fn(Place) -> Option<Bytes>) -> Option<Bytes> {
        if let Some(x) = self.copies.iter().position(|places| places.contains(&place)) {
            return self.read(x as u64, get).first().copied();
        }
        let Some(row) = self.rows.get(place.sector as usize).filter(|row| row.p == place || row.q == Some(place))
        else {
            return Some([0; SECTOR_BYTES]);
        };
        let data = solve(row, get)?;
        let mut sum = [0; SECTOR_BYTES];
        for ((_, _, exponent), bytes) in row.data.iter().zip(&data) {
            add_scaled(&mut sum, bytes, if row.p == place { 1 } else { gf_power(*exponent) });
        }
        Some(sum)
    }

    /// Whether data, not only parity, lies on these slots.
    pub fn hides_data(&self, lost: &BTreeSet<u16>) -> bool {
        self.copies.iter().flatten().any(|place| lost.contains(&place.slot))
    }

    /// The array sectors of all rows (one sector high) that contain one of `sectors` and have data on a missing member.
    pub fn row_sectors_without_data(&self, sectors: Range<u64>, is_missing: &dyn Fn(u16) -> bool) -> Vec<u64> {
        if !self.is_parity() {
            return Vec::new();
        }
        let rows: BTreeSet<usize> = sectors.map(|x| self.row_of[x as usize]).collect();
        let rows = rows.into_iter().map(|row| &self.rows[row]);
        let rows = rows.filter(|row| row.data.iter().any(|(_, place, _)| is_missing(place.slot)));
        rows.flat_map(|row| &row.data).map(|(x, _, _)| *x).collect()
    }

    /// All places that a change of these array sectors may write, each once: their copies, or their own places and the
    /// parity of all sectors of their rows of chunks.
    pub fn image_of(&self, sectors: Range<u64>) -> Vec<Place> {
        let copies = &self.copies[sectors.start as usize..sectors.end as usize];
        let mut places: Vec<Place> = copies.iter().flatten().copied().collect();
        if self.is_parity() {
            let chunk = self.shape.chunk as usize;
            let mut rows: Vec<usize> = sectors.map(|x| self.row_of[x as usize] / chunk).collect();
            rows.sort_unstable();
            rows.dedup();
            for row in rows.into_iter().flat_map(|row| &self.rows[row * chunk..(row + 1) * chunk]) {
                places.push(row.p);
                places.extend(row.q);
            }
        }
        places
    }

    /// The bytes of an array sector, from the members in `get`: one per readable copy, or the computed one. Empty if
    /// too much is lost.
    pub fn read(&self, x: u64, get: &dyn Fn(Place) -> Option<Bytes>) -> Vec<Bytes> {
        let copies: Vec<Bytes> = self.copies[x as usize].iter().filter_map(|&place| get(place)).collect();
        if !copies.is_empty() || !self.is_parity() {
            return copies;
        }
        let row = &self.rows[self.row_of[x as usize]];
        let Some(data) = solve(row, get) else { return Vec::new() };
        row.data.iter().zip(data).find(|((at, _, _), _)| *at == x).map(|(_, bytes)| bytes).into_iter().collect()
    }

    /// A mismatch of copies or parity among the members in `get`; `None` if there is none. On levels with copies,
    /// sectors in `skip` are not compared.
    pub fn find_mismatch(&self, get: &dyn Fn(Place) -> Option<Bytes>, skip: &dyn Fn(u64) -> bool) -> Option<String> {
        self.find_mismatch_except(get, skip, &|_| false)
    }

    /// The same, except for the stripes of corrupted sectors.
    pub fn find_mismatch_except(
        &self,
        get: &dyn Fn(Place) -> Option<Bytes>,
        skip: &dyn Fn(u64) -> bool,
        is_corrupted: &dyn Fn(u64) -> bool,
    ) -> Option<String> {
        for (x, places) in self.copies.iter().enumerate() {
            let mut copies = places.iter().filter_map(|&place| Some((place, get(place)?)));
            if let Some((first, bytes)) = copies.next()
                && let Some((other, _)) = copies.find(|(_, other)| *other != bytes)
                && !skip(x as u64)
                && !is_corrupted(x as u64)
            {
                return Some(format!("copies of array sector {x} differ: {first:?} and {other:?}"));
            }
        }
        for (index, row) in self.rows.iter().enumerate() {
            if row.data.iter().any(|(x, _, _)| is_corrupted(*x)) {
                continue;
            }
            let Some(data) = solve(row, get) else { continue };
            let sum = |scale: &dyn Fn(u32) -> u8| {
                let mut sum = [0u8; SECTOR_BYTES];
                for ((_, _, exponent), bytes) in row.data.iter().zip(&data) {
                    add_scaled(&mut sum, bytes, scale(*exponent));
                }
                sum
            };
            if get(row.p).is_some_and(|p| p != sum(&|_| 1)) {
                return Some(format!("P of row sector {index} is wrong: {row:?}"));
            }
            if row.q.and_then(get).is_some_and(|q| q != sum(&gf_power)) {
                return Some(format!("Q of row sector {index} is wrong: {row:?}"));
            }
        }
        None
    }
}

fn add_scaled(target: &mut Bytes, source: &Bytes, factor: u8) {
    if factor == 1 {
        target.iter_mut().zip(source).for_each(|(target, source)| *target ^= source);
        return;
    }
    let multiples = &MULTIPLES.get_or_init(all_products)[usize::from(factor)];
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= multiples[usize::from(*source)];
    }
}

static MULTIPLES: OnceLock<Vec<[u8; 256]>> = OnceLock::new();

fn all_products() -> Vec<[u8; 256]> {
    (0..=255).map(|a| std::array::from_fn(|b| gf_product(a, b as u8))).collect()
}

/// The data of a row, with lost blocks computed; `None` if more blocks are lost than parities remain.
fn solve(row: &RowSector, get: &dyn Fn(Place) -> Option<Bytes>) -> Option<Vec<Bytes>> {
    let mut data: Vec<Option<Bytes>> = row.data.iter().map(|&(_, place, _)| get(place)).collect();
    let lost: Vec<usize> = (0..data.len()).filter(|&k| data[k].is_none()).collect();
    let (mut p, mut q) = (get(row.p), row.q.and_then(get));
    for (k, bytes) in data.iter().enumerate() {
        let Some(bytes) = bytes else { continue };
        if let Some(p) = &mut p {
            add_scaled(p, bytes, 1);
        }
        if let Some(q) = &mut q {
            add_scaled(q, bytes, gf_power(row.data[k].2));
        }
    }
    // Now P is the xor of the lost blocks, and Q their weighted sum.
    match (lost[..].split_first(), p, q) {
        (None, _, _) => {}
        (Some((&only, [])), Some(p), _) => data[only] = Some(p),
        (Some((&only, [])), None, Some(q)) => {
            let mut block = [0; SECTOR_BYTES];
            add_scaled(&mut block, &q, gf_inverse(gf_power(row.data[only].2)));
            data[only] = Some(block);
        }
        (Some((&a, &[b])), Some(p), Some(mut q)) => {
            let (ga, gb) = (gf_power(row.data[a].2), gf_power(row.data[b].2));
            add_scaled(&mut q, &p, gb);
            let mut block = [0; SECTOR_BYTES];
            add_scaled(&mut block, &q, gf_inverse(ga ^ gb));
            let mut other = p;
            add_scaled(&mut other, &block, 1);
            (data[a], data[b]) = (Some(block), Some(other));
        }
        (Some(_), _, _) => return None,
    }
    data.into_iter().collect()
}
