//! The slow reference: every sector of an array, one by one, by docs/md/address-mapping.md.
//! Owns: [`Model`]. It shares nothing with the crate under test, not even a type.

/// Where every sector is.
pub(crate) struct Model {
    pub(crate) members: u64,
    pub(crate) copies: usize,
    /// `copies` places (member, sector) for each array sector, in copy order.
    pub(crate) places: Vec<(u64, u64)>,
    /// Parity levels: the slots of each row.
    pub(crate) rows: Vec<Row>,
    /// How many members, any of them, may be missing.
    pub(crate) tolerates: usize,
    /// Levels with copies: sets of members (bits) of which one must be present.
    pub(crate) groups: Vec<u64>,
}

/// One row of a parity level.
pub(crate) struct Row {
    pub(crate) p: u64,
    pub(crate) q: Option<u64>,
    pub(crate) data: Vec<u64>,
    pub(crate) exponents: Vec<u64>,
}

impl Model {
    pub(crate) fn size(&self) -> u64 {
        (self.places.len() / self.copies) as u64
    }

    /// Whether everything can be read or reconstructed with these members (bits) there.
    pub(crate) fn serves(&self, there: u64) -> bool {
        if self.copies == 1 {
            // Without copies the count decides: a raid0 may leave a member out that is too small for a whole chunk of
            // the array, md still wants it; and a row is reconstructed whichever members are missing.
            self.members as usize - there.count_ones() as usize <= self.tolerates
        } else {
            self.groups.iter().all(|group| group & there != 0)
        }
    }

    pub(crate) fn copies_of(&self, x: u64) -> &[(u64, u64)] {
        &self.places[x as usize * self.copies..][..self.copies]
    }

    /// Whether two array sectors, or two copies, are on the same place.
    pub(crate) fn collides(&self) -> bool {
        let mut sorted = self.places.clone();
        sorted.sort_unstable();
        sorted.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Whether two copies of a sector are on the same member.
    pub(crate) fn shares_members(&self) -> bool {
        (0..self.size()).any(|x| {
            let mut members: Vec<u64> = self.copies_of(x).iter().map(|place| place.0).collect();
            members.sort_unstable();
            members.dedup();
            members.len() < self.copies
        })
    }

    /// docs/md/address-mapping.md#linear
    pub(crate) fn linear(sizes: &[u64], rounding: u64) -> Model {
        let mut places = Vec::new();
        for (member, &size) in sizes.iter().enumerate() {
            let used = if rounding == 0 { size } else { size - size % rounding };
            places.extend((0..used).map(|sector| (member as u64, sector)));
        }
        Model { members: sizes.len() as u64, copies: 1, places, rows: Vec::new(), tolerates: 0, groups: Vec::new() }
    }

    /// docs/md/address-mapping.md#raid0
    pub(crate) fn raid0(sizes: &[u64], chunk: u64, layout: u32) -> Model {
        let rounded: Vec<u64> = sizes.iter().map(|size| size - size % chunk).collect();
        let array: u64 = rounded.iter().map(|size| size & !(chunk - 1)).sum();
        let mut places = Vec::new();
        let (mut start, mut device_start) = (0, 0);
        while (places.len() as u64) < array {
            let members: Vec<u64> = (0..sizes.len()).filter(|&k| rounded[k] > device_start).map(|k| k as u64).collect();
            let device_end = members.iter().map(|&k| rounded[k as usize]).min().expect("the zones hold the array");
            let m = members.len() as u64;
            let end = start + (device_end - device_start) * m;
            for x in start..end.min(array) {
                let row = (x - start) / (chunk * m);
                let sector = device_start + row * chunk + x % chunk;
                let number = if layout == 1 { x / chunk } else { (x - start) / chunk };
                places.push((members[(number % m) as usize], sector));
            }
            (start, device_start) = (end, device_end);
        }
        Model { members: sizes.len() as u64, copies: 1, places, rows: Vec::new(), tolerates: 0, groups: Vec::new() }
    }

    /// docs/md/address-mapping.md#raid1
    pub(crate) fn raid1(members: u64, size: u64) -> Model {
        let places = (0..size).flat_map(|x| (0..members).map(move |member| (member, x))).collect();
        Model {
            members,
            copies: members as usize,
            places,
            rows: Vec::new(),
            tolerates: members as usize - 1,
            groups: vec![(1 << members) - 1],
        }
    }

    /// docs/md/address-mapping.md#raid10; also of layouts that collide.
    pub(crate) fn raid10(shape: Raid10, chunk: u64, size: u64) -> Model {
        let mut model = Model::raid10_places(shape, chunk, size);
        // Enough rows until the pattern repeats: md checks every group even if the array is too short to have it.
        let turn = Model::raid10_places(shape, 1, shape.near * shape.far);
        let group = |x| turn.copies_of(x).iter().fold(0, |set, place| set | 1 << place.0);
        model.groups = (0..turn.size()).map(group).collect();
        model
    }

    fn raid10_places(shape: Raid10, chunk: u64, size: u64) -> Model {
        let Raid10 { members: d_count, near, far, is_offset, .. } = shape;
        let copies = near * far;
        let a = ((size / chunk) / far) * d_count / near;
        let used = (a * copies).div_ceil(d_count);
        let stride = if is_offset { chunk } else { (used / far) * chunk };
        let mut places = Vec::new();
        for x in 0..a * chunk {
            let (c, o) = (x / chunk, x % chunk);
            let (mut row, mut dev) = (c * near / d_count, c * near % d_count);
            if is_offset {
                row *= far;
            }
            let mut s = row * chunk + o;
            for _ in 0..near {
                places.push((dev, s));
                let mut d = dev;
                for f in 1..far {
                    d = shape.step(d);
                    places.push((d, s + f * stride));
                }
                dev += 1;
                if dev == d_count {
                    dev = 0;
                    s += chunk;
                }
            }
        }
        let tolerates = copies as usize - 1;
        Model { members: d_count, copies: copies as usize, places, rows: Vec::new(), tolerates, groups: Vec::new() }
    }

    /// docs/md/address-mapping.md#raid4-and-raid5
    pub(crate) fn raid5(level: u32, layout: u32, d: u64, chunk: u64, rows: u64) -> Model {
        let row_of = |s: u64| {
            let p = match (level, layout) {
                (4, _) | (5, 5) => d - 1,
                (5, 0 | 2) => d - 1 - s % d,
                (5, 1 | 3) => s % d,
                (5, 4) => 0,
                other => panic!("no layout {other:?}"),
            };
            let skip: Vec<u64> = (0..d).filter(|&disk| disk != p).collect();
            let data_of = |k: u64| match (level, layout) {
                (5, 2 | 3) => (p + 1 + k) % d,
                (5, 0 | 1) => skip[k as usize],
                (5, 4) => k + 1,
                _ => k,
            };
            let data: Vec<u64> = (0..d - 1).map(data_of).collect();
            Row { p, q: None, data, exponents: (0..d - 1).collect() }
        };
        Model::of_rows(d, chunk, (0..rows).map(row_of).collect(), 1)
    }

    /// docs/md/address-mapping.md#raid6
    pub(crate) fn raid6(layout: u32, d: u64, chunk: u64, rows: u64) -> Model {
        let m = d - 1;
        let row_of = |s: u64| {
            let p = match layout {
                0 | 2 | 10 => d - 1 - s % d,
                1 | 3 | 8 => s % d,
                4 | 20 => 0,
                5 => d - 2,
                9 => d - 1 - (s + 1) % d,
                16 | 18 => m - 1 - s % m,
                17 | 19 => s % m,
                other => panic!("no layout {other}"),
            };
            let q = match layout {
                0..=3 | 8 | 9 => (p + 1) % d,
                4 => 1,
                10 => (p + d - 1) % d,
                _ => d - 1,
            };
            let skip: Vec<u64> = (0..d).filter(|&disk| disk != p && disk != q).collect();
            let data_of = |k: u64| match layout {
                2 | 3 => (q + 1 + k) % d,
                4 => k + 2,
                5 => k,
                10 => (p + 1 + k) % d,
                18 | 19 => (p + 1 + k) % m,
                20 => k + 1,
                _ => skip[k as usize],
            };
            let data: Vec<u64> = (0..d - 2).map(data_of).collect();
            let walk: Vec<u64> = (1..d).map(|n| (q + n) % d).filter(|disk| data.contains(disk)).collect();
            let rank = |disk: &u64| walk.iter().position(|other| other == disk).expect("on the walk") as u64;
            let exponents = data.iter().map(|disk| if (8..=10).contains(&layout) { *disk } else { rank(disk) });
            let exponents = exponents.collect();
            Row { p, q: Some(q), data, exponents }
        };
        Model::of_rows(d, chunk, (0..rows).map(row_of).collect(), 2)
    }

    fn of_rows(members: u64, chunk: u64, rows: Vec<Row>, tolerates: usize) -> Model {
        let across = rows[0].data.len() as u64;
        let size = rows.len() as u64 * across * chunk;
        let place = |x: u64| {
            let (s, k) = (x / chunk / across, x / chunk % across);
            (rows[s as usize].data[k as usize], s * chunk + x % chunk)
        };
        let places = (0..size).map(place).collect();
        Model { members, copies: 1, places, rows, tolerates, groups: Vec::new() }
    }
}

/// A raid10 layout word in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid10 {
    pub(crate) members: u64,
    pub(crate) near: u64,
    pub(crate) far: u64,
    pub(crate) is_offset: bool,
    /// 0 original, 1 early, 2 fixed far sets.
    pub(crate) kind: u64,
}

impl Raid10 {
    /// Every combination on this many members that has from 2 to `members` copies.
    pub(crate) fn all(members: u64) -> Vec<Raid10> {
        let mut all = Vec::new();
        for near in 1..=members {
            for far in 1..=members / near {
                for is_offset in [false, true] {
                    for kind in 0..3 {
                        all.push(Raid10 { members, near, far, is_offset, kind });
                    }
                }
            }
        }
        all.retain(|shape| shape.near * shape.far >= 2);
        all
    }

    pub(crate) fn word(self) -> u32 {
        (self.near + (self.far << 8) + (u64::from(self.is_offset) << 16) + (self.kind << 17)) as u32
    }

    fn step(self, d: u64) -> u64 {
        let z = match self.kind {
            0 => self.members,
            1 => self.members / self.far,
            _ => self.near * self.far,
        };
        let tail = self.members % z;
        let l = (self.members / z - 1) * z;
        let n = d + self.near;
        if tail != 0 && n > l { l + (n - l) % (z + tail) } else { (d / z) * z + n % z }
    }
}
