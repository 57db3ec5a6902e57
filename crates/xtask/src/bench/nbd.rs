//! `cargo xtask bench nbd`: arrays over NBD beside `nbdkit memory`, with the same client: our own, then fio.
//! Owns: starting the servers, alternating rounds of fio, the table for docs/proof.md. Not here: what makes a server
//! fast, our own client (`uraid bench nbd`).
//! Invariant: all figures of a round are taken within that round, and each server gets the same time and order.
//!
//! Members are in memory (for fio: files on tmpfs), so that no disk is measured. Client and server share the machine's
//! processors: if the ratio is 1 and the CPU per request is lower, the server is better and the client is the bottleneck.

use super::{ROUNDS_MIN, Run, show, succeed};
use crate::programs::packages;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What each server exports at least and each job touches, in MiB.
const SPAN_MIB: u64 = 512;
/// Members are this much larger than their share, in MiB: superblock, data offset, rounding.
const MEMBER_SLACK_MIB: u64 = 10;
/// The unit of CPU time in proc(5). Linux reports 100 to user space on every architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;
/// A server that is not listening after this time has failed.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The index of the server that the others are compared with.
const REFERENCE: usize = 0;
const SERVERS: u64 = 3;

struct Job {
    name: &'static str,
    rw: &'static str,
    block: &'static str,
    block_bytes: u64,
}

const JOBS: [Job; 4] = [
    Job { name: "4 KiB random reads", rw: "randread", block: "4k", block_bytes: 4 << 10 },
    Job { name: "4 KiB random writes", rw: "randwrite", block: "4k", block_bytes: 4 << 10 },
    Job { name: "1 MiB sequential reads", rw: "read", block: "1M", block_bytes: 1 << 20 },
    Job { name: "1 MiB sequential writes", rw: "write", block: "1M", block_bytes: 1 << 20 },
];

/// The works of `uraid bench nbd` that have budgets.
const OWN_WORKS: [&str; 4] = [
    "--rw randread --bs 4K --iodepth 64",
    "--rw randwrite --bs 4K --iodepth 64 --destructive",
    "--rw read --bs 128K --iodepth 16",
    "--rw write --bs 128K --iodepth 16 --destructive",
];

/// A running server, killed on drop.
struct Server {
    name: String,
    socket: PathBuf,
    child: Child,
}

impl Server {
    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; what it served goes with its directory.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy)]
struct Sample {
    requests_per_second: f64,
    bytes_per_second: f64,
    /// The server's CPU time, in seconds per million requests.
    cpu_per_million: f64,
}

/// A directory on tmpfs, gone with the run.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The approximate duration.
pub(super) fn time(run: &Run) -> Duration {
    let own = own_runtime(run) * 5 / 4 * (OWN_WORKS.len() as u64 * 2 * own_rounds(run)) as u32;
    own + Duration::from_secs(run.seconds * run.rounds * JOBS.len() as u64 * SERVERS)
}

/// Measures all servers.
pub(super) fn measure(run: &Run) -> Result<(), String> {
    for program in ["fio", "nbdkit"] {
        packages::find(program).ok_or_else(|| format!("{program} is not installed: cargo xtask packages"))?;
    }
    let scratch = Scratch(format!("/dev/shm/uraid-bench-{}", std::process::id()).into());
    // Declared after `scratch`, so that the servers are dropped before their files.
    let mut servers = vec![nbdkit(&scratch.0)?];
    servers.push(array(&run.uraid, &scratch.0, "raid6", 8, 6)?);
    servers.push(array(&run.uraid, &scratch.0, "raid0", 4, 4)?);
    for server in &servers {
        // Sparse memory answers reads without having read anything.
        fio(server, &["--rw=write", "--bs=1M"])?;
    }
    own_client(run, &trial(&run.uraid, &scratch.0)?, &servers[REFERENCE])?;
    let samples = rounds(run, &servers)?;
    print_table(&servers, &samples);
    Ok(())
}

/// Many short rounds: what slows the machine down for a while slows down both.
fn own_rounds(run: &Run) -> u64 {
    3 * run.rounds.max(ROUNDS_MIN)
}

fn own_runtime(run: &Run) -> Duration {
    Duration::from_millis(100 * run.seconds)
}

/// A raid6 on the server's own memory: its figures include no file system.
fn trial(uraid: &Path, directory: &Path) -> Result<Server, String> {
    let socket = directory.join("trial.sock");
    let member = format!("mem:{}M", SPAN_MIB.div_ceil(6) + MEMBER_SLACK_MIB);
    let mut command = Command::new(uraid);
    command.args(["bench", "--level", "raid6", "--raid-devices", "8", "--chunk", "64K", &member, "--serve"]);
    command.arg(&socket);
    listening("uraid raid6, 8 members of memory", socket, command)
}

/// Measures an array and the reference in turn, with the client that keeps its requests in flight.
fn own_client(run: &Run, array: &Server, reference: &Server) -> Result<(), String> {
    let (rounds, runtime) = (own_rounds(run).to_string(), format!("{}ms", own_runtime(run).as_millis()));
    for work in OWN_WORKS {
        println!("{} beside {}", array.name, reference.name);
        let mut command = Command::new(&run.uraid);
        command.args(["bench", "nbd", "--rounds", &rounds, "--runtime", &runtime]).args(work.split(' '));
        command.arg("--size").arg(format!("{SPAN_MIB}M"));
        show(command.args([array.uri(), reference.uri()]))?;
        println!();
    }
    Ok(())
}

/// By job, by server, by round.
fn rounds(run: &Run, servers: &[Server]) -> Result<Vec<Vec<Vec<Sample>>>, String> {
    let mut samples: Vec<Vec<Vec<Sample>>> =
        JOBS.iter().map(|_| servers.iter().map(|_| Vec::new()).collect()).collect();
    for round in 0..run.rounds {
        for (job, samples) in JOBS.iter().zip(&mut samples) {
            let mut order: Vec<usize> = (0..servers.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let sample = sample(&servers[at], job, run.seconds)?;
                let Sample { requests_per_second, cpu_per_million, .. } = sample;
                eprintln!(
                    "round {}, {}, {}: {requests_per_second:.0}/s, {cpu_per_million:.1} s of CPU per million",
                    round + 1,
                    job.name,
                    servers[at].name
                );
                samples[at].push(sample);
            }
        }
    }
    Ok(samples)
}

fn nbdkit(directory: &Path) -> Result<Server, String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let socket = directory.join("nbdkit.sock");
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--unix"]).arg(&socket).args(["memory", &format!("{SPAN_MIB}M")]);
    listening("nbdkit memory", socket, command)
}

fn array(uraid: &Path, directory: &Path, level: &str, members: u64, data: u64) -> Result<Server, String> {
    let bytes = (SPAN_MIB.div_ceil(data) + MEMBER_SLACK_MIB) << 20;
    let mut paths = Vec::new();
    for member in 0..members {
        let path = directory.join(format!("{level}-{member}"));
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        paths.push(path);
    }
    let mut create = Command::new(uraid);
    create.args(["create", "--level", level, "--raid-devices", &members.to_string(), "--name", level]);
    succeed(create.arg("--assume-clean").args(&paths))?;
    let socket = directory.join(format!("{level}.sock"));
    let mut serve = Command::new(uraid);
    serve.arg("serve").arg("--nbd").arg(format!("unix:{}", socket.display())).args(&paths);
    serve.env("URAID_RUNTIME_DIR", directory);
    listening(&format!("uraid {level}, {members} members"), socket, serve)
}

fn listening(name: &str, socket: PathBuf, mut command: Command) -> Result<Server, String> {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|error| format!("{name}: {error}"))?;
    let server = Server { name: name.to_owned(), socket, child };
    let start = Instant::now();
    while let Err(error) = UnixStream::connect(&server.socket) {
        if start.elapsed() > START_TIMEOUT {
            return Err(format!("{name} does not listen: {error}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}

/// fio's terse output, version 3: fields between semicolons.
fn fio(server: &Server, arguments: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new("fio");
    command.args(["--name=bench", "--ioengine=nbd", "--output-format=terse", "--terse-version=3"]);
    command.args(["--iodepth=32", "--numjobs=1", "--norandommap"]);
    command.arg(format!("--uri={}", server.uri()));
    let output = succeed(command.arg(format!("--size={SPAN_MIB}M")).args(arguments))?;
    let line = output.lines().find(|line| line.starts_with("3;")).ok_or("fio printed no result")?;
    Ok(line.split(';').map(str::to_owned).collect())
}

fn sample(server: &Server, job: &Job, seconds: u64) -> Result<Sample, String> {
    let before = cpu_seconds(server)?;
    let (rw, block) = (format!("--rw={}", job.rw), format!("--bs={}", job.block));
    let fields = fio(server, &[&rw, &block, "--time_based", &format!("--runtime={seconds}")])?;
    let cpu = cpu_seconds(server)? - before;
    // KiB moved, KiB per second, requests per second: of the reads from field 5 on, of the writes from 46.
    let first = if job.rw.ends_with("read") { 5 } else { 46 };
    let field = |at: usize| {
        let text = fields.get(first + at).map_or("nothing", String::as_str);
        text.parse::<f64>().map_err(|_| format!("fio printed {text:?}, expected a number"))
    };
    let requests = field(0)? * 1024.0 / job.block_bytes as f64;
    Ok(Sample {
        requests_per_second: field(2)?,
        bytes_per_second: field(1)? * 1024.0,
        cpu_per_million: cpu / requests * 1e6,
    })
}

/// User and system time of all its threads, ended ones too.
fn cpu_seconds(server: &Server) -> Result<f64, String> {
    let path = format!("/proc/{}/stat", server.child.id());
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", server.name))?;
    // The second field, a name in brackets, may contain spaces and brackets. Fields 14 and 15 are the 12th and 13th
    // after it.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>();
    ticks.map(|ticks| ticks / TICKS_PER_SECOND).map_err(|_| format!("{path} has another form than proc(5) says"))
}

/// The median, the smallest and the largest value.
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// Panics for no values.
pub(super) fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (values[0], values[values.len() - 1]);
    Spread { median: f64::midpoint(values[values.len() / 2], values[(values.len() - 1) / 2]), min, max }
}

fn print_table(servers: &[Server], samples: &[Vec<Vec<Sample>>]) {
    println!("| | server | requests/s (min..max) | MB/s | of nbdkit's, by round (min..max) | CPU s per million |");
    println!("|---|---|--:|--:|--:|--:|");
    for (job, samples) in JOBS.iter().zip(samples) {
        for (at, (server, own)) in servers.iter().zip(samples).enumerate() {
            let rate = spread(own.iter().map(|sample| sample.requests_per_second));
            let bytes = spread(own.iter().map(|sample| sample.bytes_per_second));
            let cpu = spread(own.iter().map(|sample| sample.cpu_per_million));
            let pairs = own.iter().zip(&samples[REFERENCE]);
            let ratio = spread(pairs.map(|(own, other)| own.requests_per_second / other.requests_per_second));
            let ratio = match at {
                REFERENCE => "1".to_owned(),
                _ => format!("{:.2} ({:.2}..{:.2})", ratio.median, ratio.min, ratio.max),
            };
            println!(
                "| {} | {} | {:.0} ({:.0}..{:.0}) | {:.0} | {ratio} | {:.1} |",
                if at == 0 { job.name } else { "" },
                server.name,
                rate.median,
                rate.min,
                rate.max,
                bytes.median / 1e6,
                cpu.median
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let Spread { median, min, max } = spread([4.0, 1.0, 3.0, 2.0].into_iter());
        assert_eq!((median, min, max), (2.5, 1.0, 4.0));
        assert_eq!(spread([7.0].into_iter()).median, 7.0);
    }
}
