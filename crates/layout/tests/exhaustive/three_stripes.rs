//! Three stripes of everything: every level and layout, 2 to 8 members, chunks of 1, 2 and 8 sectors.
//! Owns: that domain, its size, the table of it. Not here: the conditions on a case (`check`, `parity`, `runs`).
//! `cargo test --release -p uraid-layout --test suite three_stripes -- --nocapture`; a debug build has no chunks of 8.
//!
//! A stripe is one chunk on every member, with far copies one in each section. On m members it holds m data chunks of
//! linear and raid0 (members that differ hold 3 m together), 1 of raid1, m / near of raid10, m - 1 of raid4 and raid5,
//! m - 2 of raid6. With N data chunks of c sectors in its three stripes an array has S = c N sectors and S (S + 3) / 2
//! ranges: each start with each length from 0 to the end. A case is a range and a kind, read, write or discard, so a
//! geometry has 3 S (S + 3) / 2 = 1.5 c^2 N^2 + 4.5 c N cases; c being 1, 2 and 8, they are 103.5 N^2 + 49.5 N.
//!
//! ```text
//!          geometries on 2 to 8 members, for each chunk                 sum of N^2  of N      cases
//!  linear    88  members of 5, 28, 11, 11, ... sets of depths                21258  1272    2263167
//!  raid0    183  ... in both layouts; equal members also without one         44343  2649    4720626
//!  raid1      7  three chunks on every member                                   63    21       7560
//!  raid10   440  334 sound words: near, far, offset, kind of far sets; 106    92182  5442    9810216
//!                of them, whose near copies do not divide the members, twice
//!  raid4      7                                                               1260    84     134568
//!  raid5     42  6 layouts                                                    7560   504     807408
//!  raid6     70  14 layouts on 4 to 8 members: raid5's, DDF's, the "-6"      11340   840    1215270
//!                                                                           178006 10812   18958815
//! ```
//!
//! Without the empty ranges they are 18,602,019. Reads are planned for two choices of copy where there are two.
//! With members missing, a case is also a set of members that the array can do without, up to 5 members in chunks of 1
//! and 2, and reads are planned for every choice of copy.
//! Parity repeats after m rows, not three: `domain::raid456` covers whole rotations.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test times itself, and takes every core")]

use super::check::{Cases, Effort, check};
use super::domain::{Case, sized, spec};
use super::model::{Model, Raid10};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use uraid_layout::Level;

/// A geometry, and how many data sectors its three stripes have, by a formula of this file.
type Geometry = (Case, u64);

/// Depths of the members in chunks, three on average: what three stripes are when members differ. Of two and three
/// members all there are; of more: even, in twos, in threes, with one long and with one short member.
fn depths(m: u64) -> Vec<Vec<u64>> {
    if m <= 3 {
        let total = 3 * m;
        let all = (0..total.pow(m as u32)).map(|n| (0..m as u32).map(|k| n / total.pow(k) % total).collect());
        return all.filter(|depths: &Vec<u64>| !depths.contains(&0) && depths.iter().sum::<u64>() == total).collect();
    }
    let repeated = |period: &[u64]| -> Vec<u64> {
        let whole = m as usize / period.len() * period.len();
        (0..m as usize).map(|k| if k < whole { period[k % period.len()] } else { 3 }).collect()
    };
    let one = |depth: u64, at: u64| -> Vec<u64> {
        // The others are equally long, except for one that takes the rest.
        let other = (3 * m - depth) / (m - 1);
        let rest = 3 * m - depth - other * (m - 1);
        (0..m).map(|k| if k == at { depth } else { other + if k == (at + 1) % m { rest } else { 0 } }).collect()
    };
    let lone = [0, m / 2, m - 1];
    let mut all =
        vec![repeated(&[3]), repeated(&[2, 4]), repeated(&[4, 2]), repeated(&[1, 3, 5]), repeated(&[5, 3, 1])];
    all.extend(lone.map(|at| one(2 * m + 1, at)));
    all.extend(lone.map(|at| one(1, at)));
    all
}

fn linear(m: u64, chunk: u64, all: &mut Vec<Geometry>) {
    for sizes in depths(m).iter().map(|depths| sizes(depths, chunk)) {
        let case = Case::new(&sized(Level::Linear, 0, chunk, &sizes), Model::linear(&sizes, chunk));
        all.push((case, 3 * m * chunk));
    }
}

/// Both layouts; with equal members also no layout.
fn raid0(m: u64, chunk: u64, all: &mut Vec<Geometry>) {
    for depths in depths(m) {
        let is_even = depths.iter().all(|&depth| depth == 3);
        let sizes = sizes(&depths, chunk);
        for layout in if is_even { 0..=2 } else { 1..=2 } {
            let case = Case::new(&sized(Level::Raid0, layout, chunk, &sizes), Model::raid0(&sizes, chunk, layout));
            all.push((case, 3 * m * chunk));
        }
    }
}

/// With a part of a chunk behind the last whole one, which is never used.
fn sizes(depths: &[u64], chunk: u64) -> Vec<u64> {
    depths.iter().zip(0..).map(|(&depth, k)| depth * chunk + k % chunk).collect()
}

/// Every word that is sound. Where near copies do not divide the members a row is no whole number of data chunks: three
/// rows, of which the last is not filled, and as many as it takes to come round three times.
fn raid10(m: u64, chunk: u64, all: &mut Vec<Geometry>) {
    for shape in Raid10::all(m) {
        let rows: &[u64] = if m.is_multiple_of(shape.near) { &[3] } else { &[3, 3 * shape.near] };
        for rows in rows {
            let size = rows * shape.far * chunk;
            let model = Model::raid10(shape, chunk, size);
            if !model.collides() && !model.shares_members() {
                let case = Case::new(&spec(Level::Raid10, shape.word(), chunk, m, size), model);
                all.push((case, rows * m / shape.near * chunk));
            }
        }
    }
}

fn parity(m: u64, chunk: u64, all: &mut Vec<Geometry>) {
    let mut push = |level, layout, model, data: u64| {
        all.push((Case::new(&spec(level, layout, chunk, m, 3 * chunk), model), 3 * chunk * data));
    };
    push(Level::Raid4, 0, Model::raid5(4, 0, m, chunk, 3), m - 1);
    (0..=5).for_each(|layout| push(Level::Raid5, layout, Model::raid5(5, layout, m, chunk, 3), m - 1));
    for layout in (0..=5).chain(8..=10).chain(16..=20).filter(|_| m >= 4) {
        push(Level::Raid6, layout, Model::raid6(layout, m, chunk, 3), m - 2);
    }
}

/// The whole domain, the largest first, so that workers finish at about the same time.
fn geometries(members_max: u64, chunks: &[u64]) -> Vec<Geometry> {
    let mut all = Vec::new();
    for &chunk in chunks {
        for m in 2..=members_max {
            linear(m, chunk, &mut all);
            raid0(m, chunk, &mut all);
            all.push((Case::new(&spec(Level::Raid1, 0, 0, m, 3 * chunk), Model::raid1(m, 3 * chunk)), 3 * chunk));
            raid10(m, chunk, &mut all);
            parity(m, chunk, &mut all);
        }
    }
    all.sort_by_key(|(case, _)| std::cmp::Reverse(case.model.places.len()));
    all
}

/// One line of the table.
#[derive(Clone, Copy, Default)]
struct Line {
    geometries: u64,
    cases: Cases,
    /// By the formula: ranges x 3 kinds x sets of members.
    expected: u64,
    busy: Duration,
}

impl Line {
    fn add(&mut self, other: &Line) {
        self.geometries += other.geometries;
        self.cases += other.cases;
        self.expected += other.expected;
        self.busy += other.busy;
    }
}

/// Checks every geometry on every core.
fn check_all(geometries: &[Geometry], effort: Effort) -> BTreeMap<Level, Line> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut lines: BTreeMap<Level, Line> = BTreeMap::new();
        while let Some((case, sectors)) = geometries.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            let cases = check(case, effort);
            let line = lines.entry(case.layout.level()).or_default();
            line.geometries += 1;
            line.cases += cases;
            // Each start has the lengths from 0 to the end.
            line.expected += sectors * (sectors + 3) / 2 * 3 * sets_count(case, effort);
            line.busy += started.elapsed();
        }
        lines
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut total: BTreeMap<Level, Line> = BTreeMap::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            for (level, line) in worker.join().expect("a case failed, see above") {
                total.entry(level).or_default().add(&line);
            }
        }
    });
    total
}

/// How many sets of members an array can do without, the empty one included.
fn sets_count(case: &Case, effort: Effort) -> u64 {
    let m = case.model.members;
    match (effort, case.layout.level()) {
        (Effort::Healthy, _) | (_, Level::Linear | Level::Raid0) => 1,
        // Any but all.
        (_, Level::Raid1) => (1 << m) - 1,
        (_, Level::Raid4 | Level::Raid5) => 1 + m,
        (_, Level::Raid6) => 1 + m + m * (m - 1) / 2,
        (_, Level::Raid10) => (0..1 << m).filter(|&there| case.model.serves(there)).count() as u64,
    }
}

/// `told`: of each level, how many geometries and cases there are.
fn run(name: &str, geometries: &[Geometry], effort: Effort, told: &[(Level, u64, u64)]) {
    let started = Instant::now();
    let lines = check_all(geometries, effort);
    let print = |name: &str, line: &Line| {
        let Cases { reads, writes, discards, plans } = line.cases;
        let (count, total, busy) = (line.geometries, line.cases.total(), line.busy.as_secs_f64());
        println!("{name:8}{count:>11}{reads:>11}{writes:>11}{discards:>11}{total:>12}{plans:>12}{busy:>9.1}");
    };
    println!("three stripes, {name}");
    println!("level    geometries      reads     writes   discards       cases       plans  seconds");
    let mut all = Line::default();
    for (level, line) in &lines {
        print(level.name(), line);
        all.add(line);
    }
    print("all", &all);
    println!("seconds are of the threads together; {:.1} passed", started.elapsed().as_secs_f64());
    for (level, line) in &lines {
        assert_eq!(line.cases.total(), line.expected, "{level}: a case was left out");
    }
    let found: Vec<_> = lines.iter().map(|(&level, line)| (level, line.geometries, line.cases.total())).collect();
    assert_eq!(found, told, "the domain has another size than the one that is told");
}

/// Level, geometries for each chunk, sum of N^2, sum of N: see the head.
const SUMS: [(Level, u64, u64, u64); 7] = [
    (Level::Linear, 88, 21_258, 1_272),
    (Level::Raid0, 183, 44_343, 2_649),
    (Level::Raid1, 7, 63, 21),
    (Level::Raid10, 440, 92_182, 5_442),
    (Level::Raid4, 7, 1_260, 84),
    (Level::Raid5, 42, 7_560, 504),
    (Level::Raid6, 70, 11_340, 840),
];

#[test]
fn three_stripes_of_everything() {
    let (name, chunks, size): (_, &[u64], _) = if cfg!(debug_assertions) {
        ("2 to 8 members, chunks of 1 and 2 (chunks of 8: cargo test --release -p uraid-layout)", &[1, 2], 1_481_007)
    } else {
        ("2 to 8 members, chunks of 1, 2 and 8", &[1, 2, 8], 18_958_815)
    };
    let of_chunk = |c: u64, squares: u64, sum: u64| 3 * (c * c * squares + 3 * c * sum) / 2;
    let told = SUMS.map(|(level, each, squares, sum)| {
        (level, each * chunks.len() as u64, chunks.iter().map(|&c| of_chunk(c, squares, sum)).sum::<u64>())
    });
    assert_eq!(told.iter().map(|line| line.2).sum::<u64>(), size);
    run(name, &geometries(8, chunks), Effort::Healthy, &told);
}

#[test]
fn three_stripes_of_everything_with_every_tolerated_set_missing() {
    let (members_max, chunks): (_, &[u64]) = (5, &[1, 2]);
    let told = [
        (Level::Linear, 110, 56_619),
        (Level::Raid0, 228, 117_450),
        (Level::Raid1, 8, 6_048),
        (Level::Raid10, 284, 2_000_460),
        (Level::Raid4, 8, 12_825),
        (Level::Raid5, 48, 76_950),
        (Level::Raid6, 56, 217_350),
    ];
    let name = "2 to 5 members, chunks of 1 and 2, every tolerated set missing";
    run(name, &geometries(members_max, chunks), Effort::ToleratedSets, &told);
}
