//! `uraid bench`: measures an array beside its own members, in the same run.
//! Owns: from the command line to the figures, the file of `--plot`, refusals before anything is touched. Not here:
//! what is measured, and how (`uraid_bench`), files of a file system (`uraid`).
//! Invariant: only figures that were measured in this run are printed.

mod args;
mod screen;
mod serve;
mod target;

pub use args::{BENCH, BENCH_AFTER, BenchArgs, not_taken};
use screen::Terminal;
use serve::ServeTrialError;
use std::error::Error;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use target::TargetError;
use uraid_bench::scenario::ScenarioName;
use uraid_bench::table::{self, Row};
use uraid_bench::{Case, Run, Screen, Trial, Work, WorkError, kernels, nbd, plot, scenario, whole_sectors};
use uraid_control::log::print;
use uraid_engine::AssembleOptions;
use uraid_format::create::NewPolicy;
use uraid_host::{TooFewDescriptors, ensure_descriptors};
use uraid_option_values::{Policy, Processors, chunk_size, layout_number};

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The work is impossible.
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
    Serve(#[from] ServeTrialError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] uraid_bench::BenchError),
    /// A file system could not be measured.
    #[error(transparent)]
    Directory(Box<dyn Error>),
    /// The file of `--plot` exists and is not a picture.
    #[error("--plot {}: exists and is not a picture: it does not begin with {}; name a new file", path.display(), plot::BEGIN)]
    PlotTaken {
        /// Of `--plot`.
        path: PathBuf,
    },
    /// The picture could not be written.
    #[error("--plot {}", path.display())]
    Plot {
        /// Of `--plot`.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system allows too few open files.
    #[error("cannot drive {members} members")]
    Descriptors {
        /// How many.
        members: usize,
        /// The limit.
        source: TooFewDescriptors,
    },
}

/// Measures a scenario on the file system of a folder, and shows the figures.
pub type OnFileSystem = fn(ScenarioName, &Path, &dyn Screen) -> Result<Vec<Row>, Box<dyn Error>>;

/// Measures and prints. With --directory, the caller measures: it knows how a file of a file system lies on an array.
pub fn run(args: &BenchArgs, on_file_system: OnFileSystem) -> Result<(), BenchError> {
    let run = Run { runtime: args.runtime, rounds: args.rounds, has_latencies: !args.gtod_reduce, cycles: args.cycles };
    // Before anything is measured: fail early if the picture cannot be written.
    let picture = args.plot.as_deref().map(Picture::open).transpose()?;
    let screen = Terminal { has_tables: !args.json };
    let rows = match args.scenario {
        Some(name) => match &args.directory {
            Some(folder) => on_file_system(name, folder, &screen).map_err(BenchError::Directory)?,
            None => scenario::run(name, &run, &screen)?,
        },
        None => own(args, &run, &screen)?,
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
        // Refuse anything else: a typing error must not overwrite a member.
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
fn own(args: &BenchArgs, run: &Run, screen: &Terminal) -> Result<Vec<Row>, BenchError> {
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
        return Ok(kernels::run(run.rounds, screen));
    }
    if args.members[0] == "nbd" {
        let uris = &args.members[1..];
        return Ok(match args.beside.as_slice() {
            [] => nbd::run(uris, &work, run, args.destructive, screen)?,
            others => nbd::run_beside(uris, others, &work, run, args.destructive, screen)?,
        });
    }
    let members = args.raid_devices.map_or(args.members.len(), usize::from);
    ensure_descriptors(members, work.shards).map_err(|source| BenchError::Descriptors { members, source })?;
    // Before any member is touched: fail early if no client could reach the array.
    let places = serve::listen(args).map_err(BenchError::Serve)?;
    let target = match (args.level, args.raid_devices) {
        (Some(level), Some(raid_devices)) => {
            let layout = layout_number(level, args.layout.as_deref());
            let policy = if args.consistency_policy == Some(Policy::Ppl) { NewPolicy::Ppl } else { NewPolicy::Resync };
            let trial = Trial { level, raid_devices, layout, chunk: chunk_size(level, args.chunk), policy };
            target::trial(&trial, &args.members, args.destructive, screen)?
        }
        (None, _) | (_, None) => {
            let writes = work.pattern.writes().then(|| work.pattern.name());
            let options = AssembleOptions { read_only: writes.is_none(), run: args.run, force: args.force };
            target::existing(&args.members, writes, &options, args.destructive)?
        }
    };
    if let Some(places) = places {
        let served = serve::serve(&target, places, &work);
        target::leave(&target)?;
        served?;
        return Ok(Vec::new());
    }
    let on = target.describe();
    let case = Case { drain_every: args.drain_every, ..Case::new(&target, &on, work, run) };
    let outcome = uraid_bench::measured(&case, "own", &on, screen);
    // Wipe the trial's superblocks even after a failure: the members must not look like an array.
    target::leave(&target)?;
    Ok(outcome?)
}
