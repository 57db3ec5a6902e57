//! Small geometries of every level.
//! Owns: the choice of geometries. Not here: three stripes of everything (`three_stripes`), the conditions (`check`).

use super::model::{Model, Raid10};
use uraid_block::Sectors;
use uraid_layout::{Layout, Level, Spec};

/// A geometry, for the crate and for the model.
pub(crate) struct Case {
    pub(crate) layout: Layout,
    pub(crate) model: Model,
}

impl Case {
    pub(crate) fn new(spec: &Spec, model: Model) -> Case {
        let layout = Layout::new(spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
        Case { layout, model }
    }
}

pub(crate) fn spec(level: Level, layout: u32, chunk: u64, raid_disks: u64, size: u64) -> Spec {
    let (chunk, size) = (Sectors(chunk), Sectors(size));
    Spec { level, layout, chunk, raid_disks: raid_disks as u16, size, member_sizes: Vec::new() }
}

pub(crate) fn sized(level: Level, layout: u32, chunk: u64, sizes: &[u64]) -> Spec {
    let member_sizes = sizes.iter().map(|&size| Sectors(size)).collect();
    Spec { member_sizes, ..spec(level, layout, chunk, sizes.len() as u64, 0) }
}

/// Two to six members of uneven sizes, with and without rounding.
pub(crate) fn linear() -> Vec<Case> {
    let mut cases = Vec::new();
    for members in 1..=6u64 {
        for salt in 0..3 {
            let sizes: Vec<u64> = (0..members).map(|k| 4 + (k * 5 + salt * 3) % 7).collect();
            for rounding in [0, 1, 3, 4] {
                let spec = sized(Level::Linear, 0, rounding, &sizes);
                cases.push(Case::new(&spec, Model::linear(&sizes, rounding)));
            }
        }
    }
    cases
}

/// Members of one to three chunks: all combinations of up to three members, then a selection; with and without a
/// remainder.
pub(crate) fn raid0(chunk: u64, members_max: u64) -> Vec<Case> {
    let mut depths: Vec<Vec<u64>> = Vec::new();
    for members in 1..=members_max.min(3) as u32 {
        depths.extend((0..3u64.pow(members)).map(|n| (0..members).map(|k| 1 + n / 3u64.pow(k) % 3).collect()));
    }
    for members in 4..=members_max {
        depths.push(vec![2; members as usize]);
        depths.push((0..members).map(|k| 1 + k % 3).collect());
        depths.push((0..members).map(|k| 3 - k % 2).collect());
        depths.push((0..members).map(|k| if k == 1 { 3 } else { 1 }).collect());
        depths.push((0..members).map(|k| if k == 2 { 1 } else { 2 }).collect());
    }
    let mut cases = Vec::new();
    for depths in depths {
        let sizes: Vec<u64> = depths.iter().zip(0..).map(|(&depth, k)| depth * chunk + k % chunk).collect();
        for layout in [1, 2] {
            let spec = sized(Level::Raid0, layout, chunk, &sizes);
            cases.push(Case::new(&spec, Model::raid0(&sizes, chunk, layout)));
        }
    }
    cases
}

pub(crate) fn raid1() -> Vec<Case> {
    let shapes = (1..=6).flat_map(|members| [5, 17].map(|size| (members, size)));
    shapes
        .map(|(members, size)| Case::new(&spec(Level::Raid1, 0, 0, members, size), Model::raid1(members, size)))
        .collect()
}

/// Every valid layout number. Members hold two stripes or a little more: the last row of near layouts is incomplete if
/// possible, and the end of each member is shorter than a chunk.
pub(crate) fn raid10(chunk: u64, members_max: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in (2..=members_max).flat_map(Raid10::all) {
        let rows = if shape.members.is_multiple_of(shape.near) { 3 } else { 2 * shape.near - 1 };
        let size = rows * shape.far * chunk + chunk / 2;
        let model = Model::raid10(shape, chunk, size);
        if !model.collides() && !model.shares_members() {
            cases.push(Case::new(&spec(Level::Raid10, shape.word(), chunk, shape.members, size), model));
        }
    }
    cases
}

/// Every layout; enough rows for a full rotation of parity.
pub(crate) fn raid456(chunk: u64, members_max: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for members in 2..=members_max {
        let size = members * chunk + chunk / 2;
        let raid4 = spec(Level::Raid4, 0, chunk, members, size);
        cases.push(Case::new(&raid4, Model::raid5(4, 0, members, chunk, members)));
        for layout in 0..=5 {
            let spec = spec(Level::Raid5, layout, chunk, members, size);
            cases.push(Case::new(&spec, Model::raid5(5, layout, members, chunk, members)));
        }
        if members < 4 {
            continue;
        }
        for layout in (0..=5).chain(8..=10).chain(16..=20) {
            let spec = spec(Level::Raid6, layout, chunk, members, size);
            cases.push(Case::new(&spec, Model::raid6(layout, members, chunk, members)));
        }
    }
    cases
}
