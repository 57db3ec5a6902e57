//! `cargo bench -p uraid-parity [-- FILTER] [--kernel NAME] [--stores cached|streaming] [--size KIB]`: our kernels beside
//! ISA-L's, on the same blocks, in turns.
//! Owns: memory, clocks, the table. Not here: the calls (`works`), the library (`isal`).
//! Invariant: a ratio is taken between two calls that followed each other. Without ISA-L only our own speed is shown.
//!
//! "hot" repeats one row, which stays in the first or second level cache; "cold" walks over more memory than the last level
//! holds, each row once, ours and theirs in turns. GB/s counts every block of the row once. Time is this thread's on a
//! processor, so that other programs disturb the caches only.

#![allow(unsafe_code, reason = "ISA-L's functions and its blocks, the clock of a thread")]

mod isal;
mod works;

use isal::Isal;
use std::time::Duration;
use uraid_parity::{Kernel, Stores};
use works::{Blocks, Kind, Prepared, Work};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// More than twice the last level of the largest processors, and more than a virtual machine's share of it by far.
const COLD_BYTES: usize = 1200 * MIB;
/// One side of one pair, hot.
const HOT_SAMPLE: Duration = Duration::from_micros(300);
const HOT_PAIRS: usize = 151;
/// One side of one pair, cold.
const COLD_SAMPLE_BYTES: usize = 4 * MIB;
const COLD_PASSES: usize = 3;
const SIZES: [usize; 3] = [4 * KIB, 64 * KIB, 512 * KIB];
/// The largest block.
const SCRATCH_BYTES: usize = 2 * MIB;
/// A page: what the arena of a server gives out is aligned to it.
const ALIGNMENT: usize = 4096;

struct Options {
    filter: Option<String>,
    kernel: Kernel,
    /// Bytes of a block, where one size is asked for.
    size: Option<usize>,
    /// One short round: what `cargo test --benches` wants to know is only whether it runs.
    is_test: bool,
}

#[expect(clippy::disallowed_methods, reason = "a bench is told on its command line what to measure")]
fn options() -> Options {
    let mut options = Options { filter: None, kernel: Kernel::best(), size: None, is_test: true };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            "--bench" => options.is_test = false,
            "--kernel" => {
                let name = arguments.next().expect("--kernel wants a name");
                let mut all = Kernel::available().into_iter();
                options.kernel = all.find(|kernel| kernel.name() == name).expect("this processor has no such kernel");
            }
            "--size" => {
                let kib = arguments.next().and_then(|text| text.parse::<usize>().ok()).expect("--size wants KiB");
                assert!(kib * KIB <= SCRATCH_BYTES, "--size is at most {} KiB", SCRATCH_BYTES / KIB);
                options.size = Some(kib * KIB);
            }
            "--stores" => {
                options.kernel = options.kernel.with_stores(match arguments.next().as_deref() {
                    Some("cached") => Stores::Cached,
                    Some("streaming") => Stores::Streaming,
                    other => panic!("--stores wants cached or streaming, not {other:?}"),
                });
            }
            _ if argument.starts_with("--") => {}
            _ => options.filter = Some(argument),
        }
    }
    options
}

fn works(size: Option<usize>) -> Vec<Work> {
    let mut works = Vec::new();
    for size in size.map_or(SIZES.to_vec(), |size| vec![size]) {
        let mut add = |kind, data| works.push(Work { kind, data, size });
        for kind in [Kind::Xor, Kind::Pq, Kind::RecoverByQ, Kind::RecoverAndQ, Kind::RecoverTwo] {
            [4, 8, 16].into_iter().for_each(|data| add(kind, data));
        }
        [Kind::UpdateP, Kind::UpdatePq].into_iter().for_each(|kind| add(kind, 2));
    }
    works
}

fn main() {
    let options = options();
    let names: Vec<_> = Kernel::available().iter().map(|kernel| kernel.name()).collect();
    println!("kernels here: {}; measured: {}", names.join(", "), options.kernel.name());
    let isal = Isal::find();
    if isal.is_none() {
        println!("libisal.so.2 is not there (Debian: libisal2): no comparison");
    }
    println!("{:<15} {:>6} {:>8} {:>5}  {:>7} {:>7}  ratio [95 %]", "work", "blocks", "size", "", "ours", "isal");
    let cold_bytes = if options.is_test { 32 * MIB } else { COLD_BYTES };
    let mut memory = vec![1u8; cold_bytes + 2 * ALIGNMENT + SCRATCH_BYTES];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let (scratch, memory) = memory[start..].split_at_mut(SCRATCH_BYTES);
    for work in works(options.size) {
        for place in [Place::Hot, Place::Cold] {
            let label = format!("{} {} {}K {}", work.name(), work.data, work.size / KIB, place.name());
            let is_asked_for = options.filter.as_ref().is_none_or(|filter| label.contains(&filter[..]));
            // Rows of 4 KiB would not show a cold cache, and rows of 512 KiB do not stay in a hot one.
            let fits = match place {
                Place::Hot => work.size < 512 * KIB,
                Place::Cold => work.size > 4 * KIB,
            };
            if is_asked_for && (fits || options.size.is_some()) {
                let memory = &mut memory[..cold_bytes];
                let measured = Bench { isal, kernel: options.kernel, work, is_test: options.is_test };
                measured.run(place, memory, scratch.as_mut_ptr());
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Place {
    Hot,
    Cold,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Hot => "hot",
            Place::Cold => "cold",
        }
    }
}

struct Bench {
    isal: Option<Isal>,
    kernel: Kernel,
    work: Work,
    is_test: bool,
}

/// Seconds of each side for the same number of calls.
struct Pair {
    ours: f64,
    isal: f64,
    calls: usize,
}

impl Bench {
    fn run(&self, place: Place, memory: &mut [u8], scratch: *mut u8) {
        let mut prepared = self.isal.as_ref().map(|isal| Prepared::new(isal, self.work));
        if let (Some(isal), Some(prepared)) = (&self.isal, &mut prepared) {
            for has_delta in [true, false] {
                prepared.has_delta = has_delta;
                Blocks::assert_same(isal, self.kernel, self.work, prepared);
            }
        }
        let measure = |prepared: Option<&Prepared>, memory: &mut [u8]| match place {
            Place::Hot => self.hot(prepared, memory, scratch),
            Place::Cold => self.cold(prepared, memory, scratch),
        };
        if self.work.kind != Kind::UpdatePq {
            return self.report(place, &measure(prepared.as_ref(), memory));
        }
        // ISA-L has two ways to update; the better one is the one to beat.
        let runs = [true, false].map(|has_delta| {
            let prepared = prepared.clone().map(|prepared| Prepared { has_delta, ..prepared });
            measure(prepared.as_ref(), memory)
        });
        let [with_delta, twice] = &runs;
        let seconds = |pairs: &[Pair]| median(pairs.iter().map(|pair| pair.isal / pair.calls as f64).collect());
        self.report(place, if seconds(with_delta) <= seconds(twice) { with_delta } else { twice });
    }

    fn isal(&self, blocks: &mut Blocks<'_>, prepared: Option<&Prepared>, scratch: *mut u8) {
        if let (Some(isal), Some(prepared)) = (&self.isal, prepared) {
            blocks.isal(isal, self.work, prepared, scratch);
        }
    }

    fn hot(&self, prepared: Option<&Prepared>, memory: &mut [u8], scratch: *mut u8) -> Vec<Pair> {
        let mut blocks = Blocks::new(&mut memory[..self.work.blocks() * self.work.size], self.work);
        let started = thread_time();
        let mut calls = 0;
        while thread_time() - started < HOT_SAMPLE {
            blocks.ours(self.kernel, self.work);
            calls += 1;
        }
        let pairs = if self.is_test { 2 } else { HOT_PAIRS };
        let mut sides = |ours_first: bool| {
            let mut seconds = [0.0; 2];
            for side in [ours_first, !ours_first] {
                // Each side finds the cache as it leaves it itself.
                for round in 0..2 {
                    let started = thread_time();
                    for _ in 0..if round == 0 { calls / 8 + 1 } else { calls } {
                        match side {
                            true => blocks.ours(self.kernel, self.work),
                            false => self.isal(&mut blocks, prepared, scratch),
                        }
                    }
                    seconds[usize::from(side)] = (thread_time() - started).as_secs_f64();
                }
            }
            Pair { ours: seconds[1], isal: seconds[0], calls }
        };
        (0..pairs).map(|pair| sides(pair % 2 == 0)).collect()
    }

    fn cold(&self, prepared: Option<&Prepared>, memory: &mut [u8], scratch: *mut u8) -> Vec<Pair> {
        let row_bytes = self.work.blocks() * self.work.size;
        let mut rows: Vec<_> = memory.chunks_exact_mut(row_bytes).map(|row| Blocks::new(row, self.work)).collect();
        let calls = (COLD_SAMPLE_BYTES / row_bytes).clamp(1, rows.len() / 2);
        let mut pairs = Vec::new();
        for pass in 0..if self.is_test { 1 } else { COLD_PASSES } {
            for (index, group) in rows.chunks_exact_mut(2 * calls).enumerate() {
                let mut seconds = [0.0; 2];
                for (row, blocks) in group.iter_mut().enumerate() {
                    let is_ours = (row + pass + index) % 2 == 0;
                    let started = thread_time();
                    match is_ours {
                        true => blocks.ours(self.kernel, self.work),
                        false => self.isal(blocks, prepared, scratch),
                    }
                    seconds[usize::from(is_ours)] += (thread_time() - started).as_secs_f64();
                }
                pairs.push(Pair { ours: seconds[1], isal: seconds[0], calls });
            }
        }
        pairs
    }

    fn report(&self, place: Place, pairs: &[Pair]) {
        let bytes = (self.work.blocks() * self.work.size) as f64;
        let speed = |seconds: fn(&Pair) -> f64| {
            bytes / median(pairs.iter().map(|pair| seconds(pair) / pair.calls as f64).collect()) / 1e9
        };
        let ours = speed(|pair| pair.ours);
        let (name, blocks, size) = (self.work.name(), self.work.blocks(), self.work.size / KIB);
        print!("{name:<15} {blocks:>6} {size:>4} KiB {:>5}  {ours:>7.1}", place.name());
        if self.isal.is_none() {
            return println!();
        }
        let mut ratios: Vec<f64> = pairs.iter().map(|pair| pair.isal / pair.ours).collect();
        ratios.sort_by(f64::total_cmp);
        // The 95 % interval of a median lies between the order statistics at n/2 +- 0.98 sqrt(n).
        let (middle, reach) = (ratios.len() as f64 / 2.0, 0.98 * (ratios.len() as f64).sqrt());
        let at = |place: f64| ratios[(place.max(0.0) as usize).min(ratios.len() - 1)];
        let (low, ratio, high) = (at(middle - reach), at(middle), at(middle + reach));
        println!(" {:>7.1}  {ratio:.2} [{low:.2}, {high:.2}]", speed(|pair| pair.isal));
    }
}

/// How long this thread has had a processor.
fn thread_time() -> Duration {
    // SAFETY: of plain integers, for which zero is a value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the place is one of a timespec.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every Linux has the clock of a thread");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
