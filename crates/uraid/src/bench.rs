//! `uraid bench`: measures an array beside its own members, in the same run.
//! Owns: the way from the command line to the figures, refusals before anything is touched. Not here: each step (the
//! files beside this one). Invariant: every printed figure was measured in this run.
//!
//! ```text
//!   cli ──► work, target ──► trace: what would the array ask of its members? ──► programs
//!                                                                                  │
//!   table ◄── session: rounds of  array │ replay │ ideal  by the loop of `drive` ◄──┘
//! ```

mod cycles;
mod discard;
mod drive;
mod figures;
mod flight;
mod kernels;
mod nbd;
mod on_shards;
mod order;
mod plot;
mod program;
mod progress;
mod resync;
mod scenario;
mod session;
mod shards;
mod table;
mod target;
mod trace;
mod work;

use crate::cli::{BenchArgs, Processors, chunk_size, layout_number};
use crate::{names, print};
pub use nbd::Others;
pub use scenario::ScenarioName;
use session::{Case, MeasureError, Outcome};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::Row;
use target::{Target, TargetError, Trial};
use uraid_engine::AssembleOptions;
use uraid_host::{TooFewDescriptors, ensure_descriptors};
pub use work::{Pattern, parse_bytes};
use work::{Work, WorkError, whole_sectors};

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Such a work cannot be.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// There is no array to measure.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Servers could not be measured.
    #[error(transparent)]
    Nbd(#[from] nbd::NbdError),
    /// A trial array could not be served.
    #[error("the trial array is not served")]
    Serve(#[from] nbd::ServeTrialError),
    /// The run failed.
    #[error("{what}")]
    Measure {
        /// Which work.
        what: String,
        /// Why.
        source: MeasureError,
    },
    /// A drain or a client hangs.
    #[error("{what}")]
    Cycles {
        /// Which work.
        what: String,
        /// What is lost.
        source: cycles::CyclesError,
    },
    /// What the picture would replace is none.
    #[error("--plot {}: is there already and no picture: it does not begin with {}; name a new file", path.display(), plot::BEGIN)]
    PlotTaken {
        /// Where to.
        path: PathBuf,
    },
    /// The picture could not be written.
    #[error("--plot {}", path.display())]
    Plot {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The system allows too few open files.
    #[error("cannot drive {members} members")]
    Descriptors {
        /// How many.
        members: usize,
        /// What is missing.
        source: TooFewDescriptors,
    },
}

/// How long, how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    runtime: Duration,
    rounds: u32,
    has_latencies: bool,
    /// Of `drain-cycles`.
    cycles: u64,
}

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<(), BenchError> {
    let run = Run { runtime: args.runtime, rounds: args.rounds, has_latencies: !args.gtod_reduce, cycles: args.cycles };
    // Before anything is measured: fail early if the picture cannot be written.
    let picture = args.plot.as_deref().map(Picture::open).transpose()?;
    let rows = match args.scenario {
        Some(name) => scenario::run(name, &run, !args.json)?,
        None => own(args, &run)?,
    };
    if args.json && args.serve.is_none() {
        print(&table::json(&rows));
    }
    picture.map_or(Ok(()), |picture| picture.write(&plot::svg(&rows)))
}

/// The file of `--plot`. Its old content is kept until the new picture is ready.
struct Picture<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Picture<'a> {
    fn open(path: &'a Path) -> Result<Picture<'a>, BenchError> {
        let failed = |source| BenchError::Plot { path: path.to_owned(), source };
        let taken = || BenchError::PlotTaken { path: path.to_owned() };
        match File::options().create_new(true).write(true).open(path) {
            Ok(file) => return Ok(Picture { path, file }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        // Otherwise a typing error could overwrite a member with the picture.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(taken());
        }
        let file = File::options().read(true).write(true).open(path).map_err(failed)?;
        let mut begin = Vec::new();
        (&file).take(plot::BEGIN.len() as u64).read_to_end(&mut begin).map_err(failed)?;
        if !begin.is_empty() && begin != plot::BEGIN.as_bytes() {
            return Err(taken());
        }
        (&file).rewind().map_err(failed)?;
        Ok(Picture { path, file })
    }

    fn write(mut self, text: &str) -> Result<(), BenchError> {
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|source| BenchError::Plot { path: self.path.to_owned(), source })
    }
}

/// The work of the command line.
fn own(args: &BenchArgs, run: &Run) -> Result<Vec<Row>, BenchError> {
    let work = Work {
        pattern: args.rw,
        block: whole_sectors("--bs", args.bs, true)?,
        depth: args.iodepth,
        jobs: args.jobs,
        shards: args.cpus.as_ref().map_or(args.shards, Processors::count),
        processors: args.cpus.as_ref().map_or(&[][..], Processors::list).to_vec(),
        spin: args.spin,
        mix_reads: args.rwmixread,
        offset: whole_sectors("--offset", args.offset, false)?,
        size: args.size.map(|size| whole_sectors("--size", size, true)).transpose()?,
    };
    work.check()?;
    if args.members == ["kernels"] {
        return Ok(kernels::run(run.rounds, !args.json));
    }
    if args.members[0] == "nbd" {
        let (uris, is_shown) = (&args.members[1..], !args.json);
        return Ok(match args.beside.as_slice() {
            [] => nbd::run(uris, &work, run, args.destructive, is_shown)?,
            others => nbd::run_beside(uris, others, &work, run, args.destructive, is_shown)?,
        });
    }
    let members = args.raid_devices.map_or(args.members.len(), usize::from);
    ensure_descriptors(members, work.shards).map_err(|source| BenchError::Descriptors { members, source })?;
    // Before any member is touched: fail early if no client could reach the array.
    let listening = args.serve.as_ref().map(|socket| Ok((socket, nbd::listen(socket)?)));
    let listening = listening.transpose().map_err(BenchError::Serve)?;
    let target = match (args.level, args.raid_devices) {
        (Some(level), Some(raid_devices)) => {
            let layout = layout_number(level, args.layout.as_deref());
            let trial = Trial { level, raid_devices, layout, chunk: chunk_size(level, args.chunk) };
            Target::trial(&trial, &args.members, args.destructive)?
        }
        (None, _) | (_, None) => {
            let writes = work.pattern.writes().then(|| work.pattern.name());
            let options = AssembleOptions { read_only: writes.is_none(), run: args.run, force: args.force };
            Target::existing(&args.members, writes, &options, args.destructive)?
        }
    };
    if let Some((socket, listener)) = listening {
        let served = nbd::serve(&target, listener, socket, &work);
        target.leave()?;
        served?;
        return Ok(Vec::new());
    }
    let on = target.describe();
    let case = Case { drain_every: args.drain_every, ..Case::new(&target, &on, work, run) };
    let outcome = measured(&case, "own", &on, !args.json);
    // Also after a failure: the members must not look like an array.
    target.leave()?;
    outcome
}

/// A work called `what` has no figures.
fn measure_error(what: &str) -> impl Fn(MeasureError) -> BenchError {
    move |source| BenchError::Measure { what: what.to_owned(), source }
}

/// Measures one work on one array; shows the table where that is wanted.
fn measured(case: &Case<'_>, scenario: &str, on: &str, is_shown: bool) -> Result<Vec<Row>, BenchError> {
    let outcome = session::measure(case).map_err(measure_error(&case.name))?;
    Ok(shown(case, scenario, on, &outcome, is_shown))
}

/// The rows of what was measured; shows the table where that is wanted.
fn shown(case: &Case<'_>, scenario: &str, on: &str, outcome: &Outcome, is_shown: bool) -> Vec<Row> {
    let mut rows = Row::of_case(scenario, &case.work, on, outcome);
    if is_shown {
        print(&names::printable_lines(&table::case_table(&case.work, on, outcome, &rows)));
    }
    rows.extend(scenario::drain_rows(scenario, &case.name, &outcome.drains, is_shown));
    rows
}
