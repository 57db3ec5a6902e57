//! `uraid bench kernels`: how fast each parity kernel of this processor is, and which one arrays use.
//! Owns: the works, the memory, the clock, the tables. Not here: the kernels and the choice (`uraid_parity`), ISA-L
//! beside them (`cargo bench -p uraid-parity`). Invariant: within a round every kernel does the same work on the same
//! memory, in an order that changes from round to round. GB/s counts every block of a row once, parity included.

use crate::figures::{Interval, median};
use crate::report::table::{self, Row};
use crate::screen::Screen;
use std::fmt::Write;
use std::time::{Duration, Instant};
use uraid_parity::{Kernel, Lost, STREAMING_ROW_BYTES, Stores};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Data blocks of a row, at most.
const DATA_MAX: usize = 16;
/// The data blocks of a row, for a recovery.
const RECOVERED: usize = 8;
/// Blocks begin at a page, as those of an arena do.
const ALIGNMENT: usize = 4096;
/// How long a small row is repeated.
const HOT_SAMPLE: Duration = Duration::from_millis(1);
/// Bytes of memory for one sample of cold rows.
const COLD_SAMPLE_BYTES: usize = 16 * MIB;

/// Whether the row is in the cache when the kernel begins, and how the result is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The same row again and again: it stays in the first or second level cache.
    Hot,
    /// One row after the other; results are stored into the cache, as if they were read soon.
    Cold,
    /// One row after the other; results are stored past the cache.
    Streaming,
}

impl Place {
    const ALL: [Place; 3] = [Place::Hot, Place::Cold, Place::Streaming];

    fn name(self) -> &'static str {
        match self {
            Place::Hot => "hot",
            Place::Cold => "cold",
            Place::Streaming => "cold, past the cache",
        }
    }

    fn stores(self) -> Stores {
        match self {
            Place::Hot | Place::Cold => Stores::Cached,
            Place::Streaming => Stores::Streaming,
        }
    }

    fn block_bytes(self) -> usize {
        match self {
            Place::Hot => 16 * KIB,
            Place::Cold | Place::Streaming => 64 * KIB,
        }
    }

    /// The size of the memory that a kernel works through before it begins again at its start.
    fn memory_bytes(self, row: usize) -> usize {
        match self {
            Place::Hot => row,
            // Far more than a virtual machine's share of the last level cache.
            Place::Cold | Place::Streaming => 512 * MIB,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Xor,
    Pq,
    UpdateP,
    UpdatePq,
    RecoverByP,
    RecoverByQ,
    RecoverAndQ,
    RecoverTwo,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Work {
    kind: Kind,
    /// The number of data blocks of the row; for an update, the old and the new content of one block.
    data: usize,
}

impl Work {
    fn all() -> Vec<Work> {
        let of = |kind| move |data| Work { kind, data };
        let mut works: Vec<Work> = (2..=DATA_MAX).map(of(Kind::Xor)).collect();
        works.extend((2..=DATA_MAX).step_by(2).map(of(Kind::Pq)));
        works.extend([Kind::UpdateP, Kind::UpdatePq].map(|kind| Work { kind, data: 2 }));
        let recoveries = [Kind::RecoverByP, Kind::RecoverByQ, Kind::RecoverAndQ, Kind::RecoverTwo];
        works.extend(recoveries.map(|kind| Work { kind, data: RECOVERED }));
        works
    }

    fn name(self) -> String {
        let data = self.data;
        match self.kind {
            Kind::Xor => format!("xor of {data}"),
            Kind::Pq => format!("P and Q of {data}"),
            Kind::UpdateP => "update P".to_owned(),
            Kind::UpdatePq => "update P and Q".to_owned(),
            Kind::RecoverByP => format!("recover 1 of {data} by P"),
            Kind::RecoverByQ => format!("recover 1 of {data} by Q"),
            Kind::RecoverAndQ => format!("recover 1 of {data} and Q"),
            Kind::RecoverTwo => format!("recover 2 of {data}"),
        }
    }

    /// Updates in place always store into the cache: they have just read the lines into it.
    fn can_be(self, place: Place) -> bool {
        let is_update = matches!(self.kind, Kind::UpdateP | Kind::UpdatePq);
        !(is_update && place == Place::Streaming)
    }

    /// Parity blocks of the row.
    fn parity(self) -> usize {
        match self.kind {
            Kind::Xor | Kind::UpdateP | Kind::RecoverByP | Kind::RecoverByQ => 1,
            Kind::Pq | Kind::UpdatePq | Kind::RecoverAndQ | Kind::RecoverTwo => 2,
        }
    }

    fn blocks(self) -> usize {
        self.data + self.parity()
    }

    /// Runs the kernel on the rows of `memory`, one after the other, until `is_enough` returns true for the count so
    /// far.
    fn run(self, kernel: Kernel, memory: &mut [u8], block: usize, mut is_enough: impl FnMut(usize) -> bool) {
        let exponents: Vec<u8> = (0..self.data as u8).collect();
        let mut rows: Vec<Blocks<'_>> =
            memory.chunks_exact_mut(self.blocks() * block).map(|row| Blocks::new(row, self, block)).collect();
        let count = rows.len();
        let mut done = 0;
        while !is_enough(done) {
            rows[done % count].run(kernel, self.kind, &exponents);
            done += 1;
        }
    }
}

/// The blocks of one row.
struct Blocks<'m> {
    data: Vec<&'m mut [u8]>,
    first: &'m mut [u8],
    /// Empty if there is only one parity block.
    second: &'m mut [u8],
}

impl<'m> Blocks<'m> {
    fn new(row: &'m mut [u8], work: Work, block: usize) -> Blocks<'m> {
        let (data, parity) = row.split_at_mut(work.data * block);
        let (first, second) = parity.split_at_mut(block);
        Blocks { data: data.chunks_exact_mut(block).collect(), first, second }
    }

    fn run(&mut self, kernel: Kernel, kind: Kind, exponents: &[u8]) {
        let Blocks { data, first, second } = self;
        let lost = |data| Lost { data, p: false, q: false };
        match kind {
            Kind::Xor => with_sources(data, |data| kernel.generate_p(first, data)),
            Kind::Pq => with_sources(data, |data| kernel.generate_pq(first, second, data, exponents)),
            Kind::UpdateP => kernel.update_p(first, data[0], data[1]),
            Kind::UpdatePq => kernel.update_pq(first, second, data[0], data[1], 5),
            Kind::RecoverByP => recover(kernel, data, exponents, (Some(first), None), &lost(&[1])),
            Kind::RecoverByQ => recover(kernel, data, exponents, (None, Some(first)), &lost(&[1])),
            Kind::RecoverAndQ => {
                recover(kernel, data, exponents, (Some(first), Some(second)), &Lost { q: true, ..lost(&[1]) });
            }
            Kind::RecoverTwo => recover(kernel, data, exponents, (Some(first), Some(second)), &lost(&[0, 1])),
        }
    }
}

/// Calls `run` with the blocks in the form that a kernel takes.
fn with_sources(data: &[&mut [u8]], run: impl FnOnce(&[&[u8]])) {
    let mut sources: [&[u8]; DATA_MAX] = [&[]; DATA_MAX];
    sources.iter_mut().zip(data).for_each(|(source, block)| *source = block);
    run(&sources[..data.len()]);
}

fn recover(
    kernel: Kernel,
    data: &mut [&mut [u8]],
    exponents: &[u8],
    (p, q): (Option<&mut [u8]>, Option<&mut [u8]>),
    lost: &Lost<'_>,
) {
    kernel.recover(uraid_parity::Row { data, exponents, p, q }, lost).expect("the level tolerates this many losses");
}

/// The GB/s of every kernel: by kernel, by round.
struct Figures {
    work: Work,
    place: Place,
    speeds: Vec<Vec<f64>>,
}

/// Measures all kernels in all works.
pub fn run(rounds: u32, screen: &dyn Screen) -> Vec<Row> {
    let kernels = Kernel::available();
    let of_place =
        |place: Place| Work::all().into_iter().filter(move |work| work.can_be(place)).map(move |work| (place, work));
    let works: Vec<(Place, Work)> = Place::ALL.into_iter().flat_map(of_place).collect();
    let mut memory = vec![0x5a; Place::Cold.memory_bytes(0) + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let mut line = screen.progress("kernels");
    let mut all = Vec::new();
    for (n, (place, work)) in (0..).zip(&works) {
        line.show(n, works.len() as u64);
        all.push(measure(*work, *place, &kernels, rounds, &mut memory[start..]));
    }
    drop(line);
    screen.print(&text(&kernels, &all));
    all.iter().flat_map(|figures| rows(figures, &kernels)).collect()
}

fn measure(work: Work, place: Place, kernels: &[Kernel], rounds: u32, memory: &mut [u8]) -> Figures {
    let block = place.block_bytes();
    let row_bytes = work.blocks() * block;
    let memory = &mut memory[..place.memory_bytes(row_bytes)];
    let mut speeds = vec![Vec::new(); kernels.len()];
    // Each sample begins where the one before it ended, so that cold rows stay cold.
    let (sample_rows, mut from) = ((COLD_SAMPLE_BYTES / row_bytes).max(1), 0);
    for round in 0..=rounds as usize {
        for turn in 0..kernels.len() {
            let which = (round + turn) % kernels.len();
            let kernel = kernels[which].with_stores(place.stores());
            let (mut count, mut began) = (0, Instant::now());
            match place {
                Place::Hot => work.run(kernel, memory, block, |done| {
                    if done == 1 {
                        // Start the clock after the first call: before it, the cache holds other data.
                        began = Instant::now();
                    }
                    count = done;
                    done > 1 && began.elapsed() >= HOT_SAMPLE
                }),
                Place::Cold | Place::Streaming => {
                    let bytes = sample_rows * row_bytes;
                    if from + bytes > memory.len() {
                        from = 0;
                    }
                    work.run(kernel, &mut memory[from..from + bytes], block, |done| {
                        if done == 0 {
                            began = Instant::now();
                        }
                        count = done + 1;
                        done == sample_rows
                    });
                    from += bytes;
                }
            }
            let seconds = began.elapsed().as_secs_f64();
            // Ignore the first round, which touches its memory for the first time.
            if round > 0 {
                speeds[which].push((count - 1) as f64 * row_bytes as f64 / seconds / 1e9);
            }
        }
    }
    Figures { work, place, speeds }
}

fn rows(figures: &Figures, kernels: &[Kernel]) -> Vec<Row> {
    let portable = &figures.speeds[0];
    let one = |(kernel, speeds): (&Kernel, &Vec<f64>)| {
        let ratios: Vec<f64> = speeds.iter().zip(portable).map(|(own, other)| own / other).collect();
        let what = format!("{}, {}; {}", figures.work.name(), figures.place.name(), kernel.name());
        Row {
            raw: Some(median(portable)),
            against: "portable",
            block_bytes: Some(figures.place.block_bytes() as u64),
            is_chosen: Some(kernel.name() == Kernel::best().name()),
            ..Row::bare("kernels", &what, median(speeds), "GB/s")
        }
        .with_ratio(Some(Interval::of(&ratios)))
    };
    kernels.iter().zip(&figures.speeds).map(one).collect()
}

fn text(kernels: &[Kernel], all: &[Figures]) -> String {
    let mut out = chosen(kernels);
    for place in Place::ALL {
        let block = place.block_bytes() / KIB;
        let what = match place {
            Place::Hot => "the same row again and again",
            Place::Cold => "one row after the other through 512 MiB, results into the cache",
            Place::Streaming => "one row after the other through 512 MiB, results past the cache",
        };
        writeln!(out, "\n{}: blocks of {block} KiB, {what}; GB/s\n", place.name()).expect("a string takes all");
        let mut head = vec![String::new()];
        head.extend(kernels.iter().map(|kernel| kernel.name().to_owned()));
        head.push("best / portable".to_owned());
        let mut cells = vec![head];
        for figures in all.iter().filter(|figures| figures.place == place) {
            let mut line = vec![figures.work.name()];
            line.extend(figures.speeds.iter().map(|speeds| format!("{:.1}", median(speeds))));
            let rows = rows(figures, kernels);
            let best = rows.last().expect("the portable kernel is always there");
            line.push(table::ratio_text(best.ratio, best.ratio_low, best.ratio_high).unwrap_or_default());
            cells.push(line);
        }
        table::align(&mut out, &cells);
    }
    out
}

/// Which kernel arrays use, and why.
fn chosen(kernels: &[Kernel]) -> String {
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name()).collect();
    let lacking = Kernel::lacking();
    let mut out = format!("this processor has: {}", names.join(", "));
    if !lacking.is_empty() {
        write!(out, "; it lacks {}", lacking.join(", ")).expect("a string takes all");
    }
    let best = Kernel::best().name();
    let streaming = STREAMING_ROW_BYTES / MIB;
    writeln!(
        out,
        "\narrays use {best}: the last in the order of their speed, chosen once at start by the processor's features\n\
         results go past the cache where a row has {streaming} MiB or more, parity included, into it where it has less"
    )
    .expect("a string takes all");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_leaves_the_bytes_of_the_portable_one_after_every_work() {
        for work in Work::all() {
            let block = 256;
            let after = |kernel: Kernel| {
                let mut memory: Vec<u8> = (0..work.blocks() * block).map(|n| (n * 7 % 251) as u8).collect();
                let before = memory.clone();
                work.run(kernel, &mut memory, block, |done| done == 1);
                assert_ne!(memory, before, "{} does something", work.name());
                memory
            };
            let kernels = Kernel::available();
            for kernel in &kernels {
                assert!(after(*kernel) == after(kernels[0]), "{} of {}", work.name(), kernel.name());
            }
        }
    }

    #[test]
    fn works_go_through_the_rows_in_turn() {
        let work = Work { kind: Kind::Xor, data: 2 };
        let mut memory = [1, 2, 0, 4, 8, 0];
        work.run(Kernel::best(), &mut memory, 1, |done| done == 2);
        assert_eq!(memory, [1, 2, 3, 4, 8, 12]);
    }
}
