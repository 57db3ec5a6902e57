//! `uraid bench` on the command line.
//! Owns: its options and help texts. Not here: what they mean together (`uraid_bench::Work`), what is measured
//! (`uraid_bench`). Invariant: options that fio or create also have are spelled as there.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use std::path::PathBuf;
use std::time::Duration;
use uraid_bench::nbd::Others;
use uraid_bench::scenario::ScenarioName;
use uraid_bench::{Pattern, parse_bytes};
use uraid_block::Sectors;
use uraid_block::sizes::parse_size;
use uraid_layout::Level;
use uraid_option_values::{
    Policy, Processors, SPIN_TEXT, consistency_policy, level, number, parse_processors, parse_spin, parse_time,
};

/// What `uraid bench --help` begins with.
pub const BENCH: &str = "\
Measure an array, and in the same run what its members give without it.

Three things are driven by the same loop over the same members, in turn within each round, so that
a machine that is slow for a while is slow for all of them:
  array   through uraid's engine
  replay  the I/Os that the array makes of these requests, straight to the members
  ideal   requests of the same size and the same total depth, spread over the members
array / replay shows what the engine costs, array / ideal what the level costs. Each ratio is taken
within one round. The output has the median of all rounds, and the interval in which it lies with
the printed confidence (order statistics). CPU is the time of the shards' threads on a processor.
With members in memory, the CPU ratio is what the throughput ratio would be on an idle machine.

The members are those of an existing array, which is only read; or, with --level, members for a
trial array, which is gone afterwards. For a trial array, `mem:SIZE` is memory, and `null:SIZE`
stores nothing (it shows the cost of the engine alone); one of these alone stands for all members.
They answer at once; with `,completion=deferred` no read or write completes at once, so that several
are in flight, and with `,request=TIME` each takes this time: see TESTING below. The word
`missing` leaves a slot without a member, to measure a degraded array: `null:1T missing`.

In place of members, `nbd` with one or two URIs measures NBD servers, and `kernels` the parity kernels.

Two uses need --destructive, because files and block devices lose what they hold: as members of a
trial array, and when an existing array is written. That array stays marked dirty and is made
consistent when it is served the next time. Trial members are filled first, except block devices.";

/// What it ends with.
pub const BENCH_AFTER: &str = "\
EXAMPLES
  The engine on memory, 4 KiB random reads of a raid6:
      uraid bench -l 6 -n 8 -c 64K mem:64M --rw randread --bs 4K --iodepth 32
  What the engine costs, on members that cost nothing:
      uraid bench -l 6 -n 8 null:1T --gtod-reduce
  The same with requests in flight, and reads of a raid5 that has lost a member:
      uraid bench -l 6 -n 8 null:1T,completion=deferred --gtod-reduce
      uraid bench -l 5 -n 5 null:1T missing --gtod-reduce
  An array that exists, read-only:
      uraid bench --rw read --bs 128K --iodepth 16 /dev/sd[b-g]
  Files, which lose what they hold:
      uraid bench -l 5 -n 3 --destructive --rw randwrite a.img b.img c.img
  A server, and another one in turn with it, under a client that keeps its requests in flight:
      uraid bench nbd --bs 4K --iodepth 64 'nbd+unix:///pool?socket=/run/pool.nbd' \
          'nbd+unix:///?socket=/run/nbdkit.sock'
  A raid6 on memory beside another server, with nothing of disks in the figures:
      uraid bench -l 6 -n 8 -c 64K mem:64M --serve /run/trial.nbd &
      uraid bench nbd --size 256M --bs 4K --iodepth 64 --runtime 100ms --rounds 21 \
          'nbd+unix:///?socket=/run/trial.nbd' 'nbd+unix:///?socket=/run/nbdkit.sock'
  A server under a good client, alone and beside clients that take no replies or flood it:
      uraid bench nbd --rw read --bs 1M --iodepth 8 --runtime 1s --rounds 9 --destructive \
          --beside non-readers,zeroers,half-open,idle 'nbd+unix:///?socket=/run/trial.nbd'
  Members that take 20 us for each request, as a controller does, and are drained meanwhile:
      uraid bench -l 0 -n 2 -c 256K null:1T,request=20us --rw read --bs 192K --drain-every 10ms
  Parity kernels, each beside the portable one:
      uraid bench kernels
  A known report, by its name; all of them, for a program to read, and as a picture:
      uraid bench --scenario raid0-order
      uraid bench --scenario all --json --plot figures.svg > figures.json
  What a mounted file system makes of writes of stripes, and of fstrim:
      uraid bench --scenario alignment --directory /srv
      uraid bench --scenario raid10-discard --directory /srv
  A million drains among clients on two shards, or fewer:
      uraid bench --scenario drain-cycles --cycles 10000

JSON
  A list of objects: scenario, work, array, raw, against (what raw is), unit (of array and raw),
  ratio (array / raw: more is better of IOPS and GB/s, less of ns), ratio_low, ratio_high,
  cpu_ns_per_io; null where nothing was measured or there is nothing to compare with. Also
  cpu_ratio with its ends, confidence, raw_cpu_ns_per_io, cpu_ns_more (than raw), block_bytes of a
  request, latency_ns (p50, p99, p99_9, max), requests, counted (by the engine: requests, and rows by
  how they were written), in_flight (requests when a drain began, the median), member_ios (of each
  stream), is_chosen (whether arrays use this parity kernel).

TESTING
  Members for tests, here and in the other commands:
  bad:SECTOR[+COUNT][,SECTOR[+COUNT]...]:MEMBER
      a MEMBER whose reads and writes of these sectors fail as on a broken disk. SECTOR and COUNT are in
      sectors of 512 bytes, counted from the start of MEMBER
  mem:SIZE, null:SIZE
      memory, gone when the process ends; or no storage at all: reads give arbitrary bytes, writes are dropped.
      SIZE is in bytes, or has K, M, G or T, powers of 1024; so is that of bandwidth=SIZE
  mem:SIZE,request=TIME[,bandwidth=SIZE]
      the same, or null:, with a simulated cost: the member works on one request at a time. A request takes
      TIME (20us, 1ms), and with bandwidth=SIZE also the time that its bytes need at SIZE a second
  mem:SIZE,completion=deferred
      the same, or null:, but no read or write completes at once: others begin before, so that several
      are in flight";

const USAGE: &str = "uraid bench [OPTIONS] MEMBER...
       uraid bench [OPTIONS] nbd URI [URI]
       uraid bench [OPTIONS] kernels
       uraid bench [OPTIONS] --scenario NAME";

/// The options that a scenario sets itself.
const OWN_WORK: [&str; 20] = [
    "level",
    "members",
    "rw",
    "bs",
    "iodepth",
    "jobs",
    "shards",
    "cpus",
    "spin",
    "rwmixread",
    "offset",
    "size",
    "drain_every",
    "serve",
    "fuse",
    "control",
    "beside",
    "run",
    "force",
    "destructive",
];

/// The options that `kernels` and `nbd`, given in place of members, take.
const OF_WORDS: [(&str, &[&str]); 2] = [
    ("kernels", &["rounds", "json", "plot"]),
    (
        "nbd",
        &[
            "rw",
            "bs",
            "iodepth",
            "jobs",
            "shards",
            "cpus",
            "rwmixread",
            "offset",
            "size",
            "runtime",
            "rounds",
            "gtod_reduce",
            "beside",
            "destructive",
            "json",
            "plot",
        ],
    ),
];

/// The message about options that `kernels` or `nbd` do not take. `given` is as much of the command line as could be
/// parsed; `command` is that of `uraid bench`.
pub fn not_taken(command: &Command, given: &ArgMatches) -> Option<String> {
    let first = given.get_many::<String>("members")?.next()?;
    if first != "nbd" && given.value_source("beside") == Some(ValueSource::CommandLine) {
        return Some("--beside is of `bench nbd` only: it measures a server".to_owned());
    }
    let (word, taken) = OF_WORDS.into_iter().find(|(word, _)| word == first)?;
    let is_other =
        |id: &str| id != "members" && !taken.contains(&id) && given.value_source(id) == Some(ValueSource::CommandLine);
    let spelled = |arg: &Arg| arg.get_long().map(|long| format!("--{long}"));
    let spell = |is_wanted: &dyn Fn(&str) -> bool| {
        let options = command.get_arguments().filter(|arg| is_wanted(arg.get_id().as_str()));
        options.filter_map(spelled).collect::<Vec<_>>().join(", ")
    };
    let others = spell(&is_other);
    let taken = spell(&|id| taken.contains(&id));
    (!others.is_empty()).then(|| {
        format!(
            "`bench {word}` does not take {others}, only {taken}; a member that is called {word} is given as ./{word}"
        )
    })
}

fn trial_policy(text: &str) -> Result<Policy, String> {
    match consistency_policy(text)? {
        Policy::Bitmap => Err("give --scenario bitmap for what a bitmap costs, expected resync or ppl here".to_owned()),
        policy @ (Policy::Resync | Policy::Ppl) => Ok(policy),
    }
}

/// Options of `uraid bench`.
#[derive(Args, Debug)]
#[command(override_usage = USAGE)]
pub struct BenchArgs {
    /// A trial array of this RAID level: linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(short, long, value_parser = level, allow_hyphen_values = true, requires = "raid_devices")]
    pub level: Option<Level>,
    /// With --level: how many members
    #[arg(short = 'n', long, value_name = "N", requires = "level", value_parser = number::<u16>(0..=u16::MAX.into()))]
    pub raid_devices: Option<u16>,
    /// With --level: consecutive data on one member; a bare number is in KiB [default: as create chooses]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, requires = "level")]
    pub chunk: Option<Sectors>,
    /// With --level: how data and parity, or copies, are placed; see LAYOUTS in create's --help
    #[arg(short = 'p', long, visible_alias = "parity", value_name = "LAYOUT", requires = "level")]
    pub layout: Option<String>,
    /// With --level: `resync`, or `ppl` for a raid5 that keeps a partial parity log [default: resync]
    #[arg(short = 'k', long, value_name = "POLICY", value_parser = trial_policy, requires = "level")]
    pub consistency_policy: Option<Policy>,
    /// What to do: sequential or random, reads, writes or both
    #[arg(long, visible_alias = "readwrite", value_name = "WORK", default_value = "randread")]
    pub rw: Pattern,
    /// The size of a request in bytes; K, M, G, T are powers of 1024
    #[arg(long, visible_alias = "blocksize", value_name = "SIZE", value_parser = parse_bytes, default_value = "4K")]
    pub bs: u64,
    /// Requests in flight for each job
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = number::<u32>(0..=u32::MAX.into()))]
    pub iodepth: u32,
    /// Jobs on each shard: sequential ones have a part of the array each
    #[arg(long, visible_alias = "numjobs", value_name = "N", default_value_t = 1, value_parser = number::<u32>(0..=u32::MAX.into()))]
    pub jobs: u32,
    /// Threads, each with its own jobs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u16>(1..=256))]
    pub shards: u16,
    /// Pin each thread to one of these processors, such as 0-3 or 2,4,6: one shard for each
    #[arg(long, value_name = "LIST", value_parser = parse_processors, conflicts_with = "shards")]
    pub cpus: Option<Processors>,
    /// How long a shard polls for messages of other shards before it sleeps, as in `serve`; 0us: never
    #[arg(long, value_name = "TIME", value_parser = parse_spin, default_value = SPIN_TEXT)]
    pub spin: Duration,
    /// The percentage of reads in rw and randrw
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = number::<u8>(0..=100))]
    pub rwmixread: u8,
    /// Where in the array the work begins, in bytes; K, M, G, T are powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "0")]
    pub offset: u64,
    /// How much of the array the work touches, in bytes; K, M, G, T are powers of 1024 [default: all from --offset on]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// How long each of array, replay and ideal runs in each round: 3s, 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "3s")]
    pub runtime: Duration,
    /// How many rounds; 6 is the least that gives an interval of 95 %
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = number::<u32>(1..=1000))]
    pub rounds: u32,
    /// At this interval, wait until all requests then in flight have ended, as a change of the array's state does, and
    /// show how long that takes
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub drain_every: Option<Duration>,
    /// For the scenario drain-cycles: how many drains
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = number::<u64>(1..=u64::MAX))]
    #[arg(conflicts_with = "members")]
    pub cycles: u64,
    /// Do not take the time of each request: no latencies, and less of the clock in the figures
    #[arg(long)]
    pub gtod_reduce: bool,
    /// With --level: do not measure the trial array, serve it over NBD on this unix socket, on --shards threads, until
    /// SIGTERM or SIGINT
    #[arg(long, value_name = "SOCKET", requires = "level")]
    pub serve: Option<PathBuf>,
    /// With --serve: also as a file in this folder, as `uraid serve --fuse`
    #[arg(long, value_name = "FOLDER", requires = "serve")]
    pub fuse: Option<PathBuf>,
    /// With --serve: the control socket, by which `uraid detail --control` and the like reach the array
    #[arg(long, value_name = "SOCK", requires = "serve")]
    pub control: Option<PathBuf>,
    /// With `nbd` and one URI: measure the client alone and, in turn, beside each of these kinds of clients
    #[arg(long, value_name = "CLIENTS", value_delimiter = ',')]
    pub beside: Vec<Others>,
    /// With an existing array: start it even if more members are missing than its superblocks record
    #[arg(short = 'R', long, conflicts_with = "level")]
    pub run: bool,
    /// With an existing array: start it even if data may be wrong: dirty and degraded, or with members that missed the
    /// last writes
    #[arg(short, long, conflicts_with = "level")]
    pub force: bool,
    /// What the members hold, or what the array holds, may be lost
    #[arg(long)]
    pub destructive: bool,
    /// As one JSON array, see JSON
    #[arg(long)]
    pub json: bool,
    /// Also as a picture: ratios with their intervals, latencies
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Measure a built-in set of works on memory, each from a known performance report; `all` for all of them
    #[arg(long, value_name = "NAME", conflicts_with_all = OWN_WORK)]
    pub scenario: Option<ScenarioName>,
    /// With --scenario alignment or raid10-discard: on the file system of DIR, which is mounted on a running array
    /// (`uraid mount`, without --nbd); no file of it stays there
    #[arg(long, value_name = "DIR", requires = "scenario")]
    pub directory: Option<PathBuf>,
    /// The members of the array, or of the trial array in the order of their slots; or `nbd` and
    /// one or two URIs; or `kernels`
    #[arg(required_unless_present = "scenario", value_name = "MEMBER")]
    pub members: Vec<String>,
}
