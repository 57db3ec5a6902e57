//! Good clients that note how long each of their requests takes.
//! Owns: their reads and writes of 4 KiB, the check of what they read, the table and the picture of their times.
//! Not here: what happens to the array meanwhile (`ten_minutes`).

use crate::common::{Client, MIB, Served, next_random};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
/// Blocks of one probe.
const BLOCKS: u64 = 256;
const PROBES: u64 = 3;

/// What a phase is called.
#[derive(Clone, Copy)]
pub(crate) struct Phase(pub(crate) &'static str);

#[derive(Clone, Copy)]
struct Sample {
    phase: u8,
    is_write: bool,
    begun: Duration,
    took: Duration,
}

/// Several of them, and what they have seen.
pub(crate) struct Probes {
    at: u64,
    phase: AtomicUsize,
    begun: Instant,
    samples: Mutex<Vec<Sample>>,
}

fn block(probe: u64, block: u64, version: u64) -> Vec<u8> {
    let word = (probe << 48 | block << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.repeat(BYTES / 8)
}

impl Probes {
    /// Each has 1 MiB from `at` on.
    pub(crate) fn new(at: u64) -> Probes {
        Probes { at, phase: AtomicUsize::new(0), begun: Instant::now(), samples: Mutex::default() }
    }

    /// Begins a phase: later requests count for it.
    pub(crate) fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        served: &'scope Served,
        is_over: &'scope AtomicBool,
    ) {
        for probe in 0..PROBES {
            scope.spawn(move || {
                let samples = self.run(probe, served.client(), is_over);
                self.samples.lock().expect("no probe panics").extend(samples);
            });
        }
    }

    fn run(&self, probe: u64, mut client: Client, is_over: &AtomicBool) -> Vec<Sample> {
        let base = self.at + probe * MIB;
        let mut samples = Vec::new();
        let mut versions = [0_u64; BLOCKS as usize];
        for (n, _) in versions.iter().enumerate() {
            let at = base + (n * BYTES) as u64;
            assert_eq!(client.write(at, &block(probe, n as u64, 0)).expect("connected"), 0);
        }
        let mut state = probe + 1;
        while !is_over.load(Ordering::Relaxed) {
            let random = next_random(&mut state);
            let (n, is_write) = ((random >> 33) % BLOCKS, random >> 60 & 1 == 0);
            let (at, version) = (base + n * BYTES as u64, &mut versions[n as usize]);
            let (phase, begun, clock) = (self.phase.load(Ordering::Relaxed), self.begun.elapsed(), Instant::now());
            if is_write {
                *version += 1;
                assert_eq!(client.write(at, &block(probe, n, *version)).expect("connected"), 0, "probe {probe}");
            } else {
                let read = client.read(at, BYTES).expect("connected").expect("no error");
                assert!(read == block(probe, n, *version), "probe {probe} reads what it did not write, at {at}");
            }
            samples.push(Sample { phase: phase as u8, is_write, begun, took: clock.elapsed() });
            // A client that has something else to do, too.
            std::thread::sleep(Duration::from_micros(500));
        }
        samples
    }

    fn times(&self, is_chosen: impl Fn(&Sample) -> bool) -> Times {
        let samples = self.samples.lock().expect("no probe panics");
        let mut times: Vec<Duration> = samples.iter().filter(|sample| is_chosen(sample)).map(|one| one.took).collect();
        times.sort();
        Times(times)
    }

    /// By phase: times of reads and writes, and what the server used at its end.
    pub(crate) fn table(&self, phases: &[Phase], used: &[(u64, usize)]) -> String {
        let mut text = "| phase | reads: p50, p99, max ms | writes: p50, p99, max ms | memory MiB | descriptors |\n\
                        |---|--:|--:|--:|--:|\n"
            .to_owned();
        for (index, (phase, (kilobytes, descriptors))) in phases.iter().zip(used).enumerate() {
            let of = |is_write| self.times(|one| usize::from(one.phase) == index && one.is_write == is_write);
            let (reads, writes) = (of(false).text(), of(true).text());
            let mebibytes = kilobytes / 1024;
            let _ = writeln!(text, "| {} | {reads} | {writes} | {mebibytes} | {descriptors} |", phase.0);
        }
        text
    }

    /// Each second's p50, p99 and slowest request, over time.
    pub(crate) fn plot(&self, phases: &[(Phase, f64)]) -> String {
        const LEFT: f64 = 60.0;
        const WIDTH: f64 = 900.0;
        const HEIGHT: f64 = 260.0;
        const TOP: f64 = 40.0;
        let seconds = self.begun.elapsed().as_secs().max(1);
        let x = |second: f64| LEFT + WIDTH * second / seconds as f64;
        // From 10 us to 10 s.
        let y = |seconds: f64| TOP + HEIGHT * (1.0 - (seconds.max(1e-5).log10() + 5.0) / 6.0);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            LEFT + WIDTH + 20.0,
            TOP + HEIGHT + 40.0
        );
        for (power, label) in (-5..=1).zip(["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]) {
            let at = y(10_f64.powi(power));
            let _ = writeln!(
                text,
                "<path d=\"M{LEFT} {at}H{}\" stroke=\"#ddd\"/><text x=\"4\" y=\"{}\">{label}</text>",
                LEFT + WIDTH,
                at + 4.0
            );
        }
        let mut begin = 0.0;
        for (index, (phase, share)) in phases.iter().enumerate() {
            let (at, row) = (x(begin * seconds as f64), 12.0 + 12.0 * (index % 2) as f64);
            let _ = writeln!(
                text,
                "<path d=\"M{at} {TOP}V{}\" stroke=\"#999\" stroke-dasharray=\"3\"/><text x=\"{}\" y=\"{row}\">{}</text>",
                TOP + HEIGHT,
                at + 2.0,
                phase.0
            );
            begin += share;
        }
        let seconds_times: Vec<Times> =
            (0..seconds).map(|second| self.times(|one| one.begun.as_secs() == second)).collect();
        for (name, share, colour, row) in
            [("p50", 0.5, "#0969da", 0.0), ("p99", 0.99, "#bc4c00", 1.0), ("max", 1.0, "#8250df", 2.0)]
        {
            let mut path = String::new();
            for (second, times) in seconds_times.iter().enumerate().filter(|(_, times)| !times.0.is_empty()) {
                let _ = write!(
                    path,
                    "{}{:.1} {:.1}",
                    if path.is_empty() { 'M' } else { 'L' },
                    x(second as f64 + 0.5),
                    y(times.at(share).as_secs_f64())
                );
            }
            let label = LEFT + 10.0 + 60.0 * row;
            let _ = writeln!(
                text,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/><text x=\"{label}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
                TOP + HEIGHT + 28.0
            );
        }
        text + "</svg>\n"
    }
}

/// In order.
struct Times(Vec<Duration>);

impl Times {
    fn at(&self, share: f64) -> Duration {
        let index = ((self.0.len() as f64 * share) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(index).copied().unwrap_or_default()
    }

    fn text(&self) -> String {
        let millis = |share| self.at(share).as_secs_f64() * 1e3;
        format!("{:.2}, {:.2}, {:.0}", millis(0.5), millis(0.99), millis(1.0))
    }
}
