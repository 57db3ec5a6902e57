//! The scenarios `alignment` and `raid10-discard` on a mounted file system: what it makes of the same work.
//! Owns: the file that is written, what the array and the loop device count meanwhile. Not here: where the file lies and
//! what that should cost (`doctor`), the scenarios on memory (`uraid_bench`).
//! Invariant: the file has no name, so it is gone afterwards, however this ends. The counts are of the whole array: other writes to it are in them.

use crate::doctor::args::DoctorArgs;
use crate::doctor::{DoctorError, FileOnArray, Node};
use crate::shared::program::{ProgramError, run};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use uraid_bench::Screen;
use uraid_bench::scenario::ScenarioName;
use uraid_bench::table::Row;
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_control::client::{self, ClientError};
use uraid_control::report::{Counts, Report};
use uraid_doctor::size_text;

/// As in the report: 819 writes of two stripes.
const WRITES: u64 = 819;
/// Fewer show nothing.
const WRITES_MIN: u64 = 8;
/// What is deleted before fstrim, if there is room.
const DELETED_MAX: u64 = 2 << 30;
const DELETED_WRITE: u64 = 1 << 20;
/// O_DIRECT wants memory at a multiple of the device's block.
const ALIGN: usize = 4096;

/// Why a file system was not measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// The scenario has no form for file systems.
    #[error("--directory is of --scenario alignment and raid10-discard, found {found}")]
    Scenario { found: &'static str },
    /// There are no rows that a write could miss.
    #[error("{array}: has no stripes with parity, which --scenario alignment is about; expected raid4, raid5 or raid6")]
    NoStripes { array: String },
    /// The file system is full.
    #[error("{}: found room for {found} bytes, expected at least {expected}", folder.display())]
    NoRoom { folder: PathBuf, found: u64, expected: u64 },
    /// The file could not be made, written or removed.
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// fstrim is not there, or is refused.
    #[error(transparent)]
    Trim(#[from] ProgramError),
    /// There is no array under it.
    #[error("{}: {found}; expected a folder of a file system that `uraid mount` has mounted, without --nbd", folder.display())]
    NotOnArray { folder: PathBuf, found: String },
    /// The file was not found on the array.
    #[error(transparent)]
    Doctor(#[from] DoctorError),
    /// The array could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Measures, and shows the figures.
pub(super) fn measure(scenario: ScenarioName, folder: &Path, screen: &dyn Screen) -> Result<Vec<Row>, DirectoryError> {
    let name = scenario.name();
    let is_discard = scenario == ScenarioName::Raid10Discard;
    if !is_discard && scenario != ScenarioName::Alignment {
        return Err(DirectoryError::Scenario { found: name });
    }
    let file = TrialFile::create(folder)?;
    let found = match file.on_array() {
        Err(DirectoryError::Doctor(DoctorError::NotOnArray { found, .. })) => {
            return Err(DirectoryError::NotOnArray { folder: folder.to_owned(), found });
        }
        found => found?,
    };
    let on = format!("{} on {}, {}", folder.display(), found.report.name, crate::doctor::shape_text(&found.layout));
    drop(file);
    screen.print(&format!("== {name}\n\n  {on}\n"));
    let bench = Bench { name, on, folder, array: found, screen };
    let rows = if is_discard { bench.discard()? } else { bench.alignment()? };
    for row in &rows {
        screen.print(&format!("  {}\n", row.line()));
    }
    Ok(rows)
}

struct Bench<'a> {
    name: &'static str,
    /// The folder and the array, in words.
    on: String,
    folder: &'a Path,
    array: FileOnArray,
    screen: &'a dyn Screen,
}

impl Bench<'_> {
    fn row(&self, what: &str, value: f64, unit: &'static str) -> Row {
        Row::bare(self.name, &format!("{what}; {}", self.on), value, unit)
    }

    /// Direct writes of two stripes: which rows are written whole, and which should be, as the file lies.
    fn alignment(&self) -> Result<Vec<Row>, DirectoryError> {
        let array = &self.array.report.name;
        if !self.array.layout.level().is_parity() {
            return Err(DirectoryError::NoStripes { array: array.clone() });
        }
        let write = Sectors(2 * self.array.layout.stripe().0);
        let writes = room(self.folder, WRITES_MIN * write.bytes(), WRITES * write.bytes())? / write.bytes();
        let mut rows = Vec::new();
        for is_preallocated in [false, true] {
            let file = TrialFile::create(self.folder)?;
            if is_preallocated {
                file.allocate(writes * write.bytes())?;
            }
            let before = counts(&self.report()?);
            let seconds = file.write(writes, write.bytes(), self.screen)?;
            let after = counts(&self.report()?);
            let predicted = file.on_array()?.predict(write).cost;
            let rows_of = |counts: &Counts| [counts.rows_full, counts.rows_modified, counts.rows_reconstructed];
            let pairs = rows_of(&after).into_iter().zip(rows_of(&before));
            let counted: Vec<u64> = pairs.map(|(after, before)| after.saturating_sub(before)).collect();
            let share = |whole: u64, all: u64| 100.0 * whole as f64 / all.max(1) as f64;
            let how = if is_preallocated { "preallocated" } else { "not preallocated" };
            let what = format!("{writes} writes of {}, {how}", size_text(write));
            let whole =
                self.row(&format!("{what}, parts of rows written whole"), share(counted[0], counted.iter().sum()), "%");
            rows.push(whole.and(share(predicted.rows_full, predicted.rows()), "as the file lies"));
            rows.push(self.row(&what, (writes * write.bytes()) as f64 / seconds / 1e6, "MB/s"));
        }
        Ok(rows)
    }

    /// A file is deleted, and fstrim tells the array.
    fn discard(&self) -> Result<Vec<Row>, DirectoryError> {
        let bytes = room(self.folder, DELETED_WRITE, DELETED_MAX)?;
        let file = TrialFile::create(self.folder)?;
        file.write(bytes / DELETED_WRITE, DELETED_WRITE, self.screen)?;
        let number = fs::metadata(self.folder).map_err(failed(self.folder))?.dev();
        let discards = || Node::of(number).map_or(0, |device| device.discards());
        drop(file);
        let folder = File::open(self.folder).map_err(failed(self.folder))?;
        rustix::fs::syncfs(&folder).map_err(|error| failed(self.folder)(error.into()))?;
        let before = (discards(), member_requests(&self.report()?));
        let began = Instant::now();
        run(Command::new("fstrim").arg("--").arg(self.folder))?;
        let seconds = began.elapsed().as_secs_f64();
        let after = (discards(), member_requests(&self.report()?));
        let what = format!("fstrim after {} were deleted", size_text(Sectors(bytes / SECTOR_BYTES as u64)));
        let pieces = after.0.saturating_sub(before.0) as f64;
        let requests =
            self.row(&format!("{what}, member requests"), after.1.saturating_sub(before.1) as f64, "requests");
        Ok(vec![self.row(&what, seconds, "s"), requests.and(pieces, "discards of the device")])
    }

    fn report(&self) -> Result<Report, DirectoryError> {
        Ok(client::find(Some(&self.array.report.own_word()), None)?.status()?)
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    |source| DirectoryError::File { path, source }
}

/// The bytes to write: at most half of what is free.
fn room(folder: &Path, least: u64, most: u64) -> Result<u64, DirectoryError> {
    let status = rustix::fs::statvfs(folder).map_err(|error| failed(folder)(error.into()))?;
    let half = status.f_bavail.saturating_mul(status.f_frsize) / 2;
    if half < least {
        let folder = folder.to_owned();
        return Err(DirectoryError::NoRoom { folder, found: 2 * half, expected: 2 * least });
    }
    Ok(half.min(most))
}

fn counts(report: &Report) -> Counts {
    report.counts.unwrap_or_default()
}

/// Requests that write or give back space, of all members.
fn member_requests(report: &Report) -> u64 {
    let of = |member: &uraid_control::report::Member| {
        member.io.as_ref().map_or(0, |io| io.writes.count + io.discards.count + io.zeroes.count)
    };
    report.members.iter().map(of).sum()
}

/// A file without a name.
struct TrialFile {
    /// The one that it had, for messages.
    path: PathBuf,
    file: File,
}

impl TrialFile {
    fn create(folder: &Path) -> Result<TrialFile, DirectoryError> {
        let path = folder.join(format!("uraid-bench-{}", std::process::id()));
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(direct).open(&path);
        let file = file.map_err(failed(&path))?;
        fs::remove_file(&path).map_err(failed(&path))?;
        Ok(TrialFile { file, path })
    }

    fn on_array(&self) -> Result<FileOnArray, DirectoryError> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        Ok(FileOnArray::find(&path, &DoctorArgs::default())?)
    }

    fn allocate(&self, bytes: u64) -> Result<(), DirectoryError> {
        let done = rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes);
        done.map_err(|error| failed(&self.path)(error.into()))
    }

    /// Writes in order, without the page cache. The seconds that it took.
    fn write(&self, writes: u64, bytes: u64, screen: &dyn Screen) -> Result<f64, DirectoryError> {
        let room = vec![0xa5_u8; bytes as usize + ALIGN];
        let data = &room[room.as_ptr().align_offset(ALIGN)..][..bytes as usize];
        let mut progress = screen.progress("writing");
        let began = Instant::now();
        for nth in 0..writes {
            self.file.write_all_at(data, nth * bytes).map_err(failed(&self.path))?;
            progress.show(nth + 1, writes);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.file.sync_all().map_err(failed(&self.path))?;
        Ok(seconds)
    }
}
