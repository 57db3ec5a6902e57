//! `uraid doctor`: what of an array, or of a file on it, costs I/O or safety.
//! Owns: which array is meant, what is read of it, the exit code. Not here: the rules (`uraid_doctor`), the array's bytes
//! (`doctor::source`), a file's place (`doctor::file`), words and drawings (`doctor::text`).
//! Invariant: nothing is written, to no member and through no array.
//! It never imports `copy`, where the order of members is searched for if their superblocks are lost.

pub(crate) mod args;
mod device;
mod file;
mod source;
mod text;

use crate::running::detail::DetailError;
use args::DoctorArgs;
pub(crate) use device::Node;
pub(crate) use file::FileOnArray;
use source::Source;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
pub(crate) use text::shape_text;
use uraid_bench::nbd::NbdError;
use uraid_block::{SECTOR_BYTES, Sector, Sectors, Slot, SlotSet};
use uraid_control::client::ClientError;
use uraid_control::log::{print, with_causes};
use uraid_control::report::Report;
use uraid_doctor::{Content, Facts, Finding, MemberFacts, Severity, Volume, examine};
use uraid_format::file_system::{self, HEAD_BYTES};
use uraid_format::partition::{self, TableError};
use uraid_format::signature;
use uraid_layout::Layout;
use uraid_serve::opening::ServeError;
use uraid_serve::stack::StackError;

/// The exit code of warnings.
const WARNINGS: u8 = 3;

/// Why there is nothing to say.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoctorError {
    /// No array is meant, or it cannot be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The members make up no array.
    #[error(transparent)]
    Detail(#[from] DetailError),
    /// The members could not be opened.
    #[error(transparent)]
    Open(#[from] ServeError),
    /// The array was not started to be read.
    #[error(transparent)]
    Run(#[from] StackError),
    /// The system has no more threads.
    #[error("cannot start the thread that looks at the array")]
    Thread(#[source] io::Error),
    /// A running array without an export that this process may use.
    #[error("{array}: has no export to read it by")]
    NoExport { array: String },
    /// A running array could not be read.
    #[error("{array}: cannot be read")]
    Nbd { array: String, source: NbdError },
    /// The file cannot be opened, or its extents are not told.
    #[error("{}{}", path.display(), if what.is_empty() { String::new() } else { format!(": {what}") })]
    File { path: PathBuf, what: &'static str, source: io::Error },
    /// It is a folder or a device.
    #[error("{}: is not a regular file: --file takes a file of a mounted file system", path.display())]
    NoFile { path: PathBuf },
    /// The device of the file system leads to no array.
    #[error("{}: {found}; name the array, and with --at the sector of it where that device begins", path.display())]
    NotOnArray { path: PathBuf, found: String },
    /// The file system has extents that are no places of a device.
    #[error("{}: {found}", path.display())]
    NoPlaces { path: PathBuf, found: String },
    /// An extent is past the end of the array.
    #[error("{}: extent at sector {at} of {array} ends past its {size} sectors: this array is not under the file, or --at is wrong", path.display())]
    Outside { path: PathBuf, array: String, at: u64, size: u64 },
}

/// Prints the findings about an array, or about a file on it.
pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, DoctorError> {
    if let Some(path) = &args.file {
        return file::run(path, args);
    }
    let source = Source::find(args)?;
    let facts = facts(&source.report, &source.layout);
    let size = facts.layout.array_size();
    let volumes = source.read(|read| volumes(size, read))?;
    let findings = examine(&facts, &volumes);
    let report = &source.report;
    print(&if args.json {
        format!("{}\n", text::json(report, &facts, &volumes, &findings))
    } else {
        text::text(report, &facts, &volumes, &findings)
    });
    Ok(code(&findings))
}

fn code(findings: &[Finding]) -> ExitCode {
    let has_warning = findings.iter().any(|finding| finding.severity == Severity::Warning);
    if has_warning { ExitCode::from(WARNINGS) } else { ExitCode::SUCCESS }
}

/// What the report of an array says, with what the system knows of its members.
fn facts(report: &Report, layout: &Layout) -> Facts {
    let mut facts = Facts {
        layout: layout.clone(),
        in_sync: SlotSet::EMPTY,
        logical_block: Sectors(1),
        policy: report.consistency_policy.clone(),
        file_write_max: Sectors((uraid_export_fuse::PAYLOAD_BYTES_MAX / SECTOR_BYTES) as u64),
        bitmap_chunk: report.bitmap.map(|bitmap| Sectors(bitmap.chunk_sectors)),
        members: Vec::new(),
    };
    for member in report.members.iter().filter(|member| member.state == "active sync") {
        let Some(slot) = member.slot else { continue };
        let name = member.path.clone().unwrap_or_default();
        let drive = device::drive_of_member(&name);
        let logical_block = drive.as_ref().and_then(|drive| drive.logical_block);
        facts.in_sync.insert(Slot(slot));
        facts.logical_block = facts.logical_block.max(logical_block.unwrap_or(Sectors(1)));
        facts.members.push(MemberFacts {
            data_start: member.data_offset.zip(drive.as_ref()).map(|(offset, drive)| Sector(drive.start.0 + offset)),
            physical_block: drive.as_ref().and_then(|drive| drive.physical_block),
            lacks_holes: drive.is_some_and(|drive| drive.lacks_holes),
            name,
        });
    }
    facts
}

/// Reads bytes of the array: from a byte on, all of them.
type Read<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// The partitions of the array, or the array as one.
fn volumes(size: Sectors, read: &mut Read<'_>) -> Vec<Volume> {
    let whole = |content| Volume { name: "the array".to_owned(), start: Sector(0), length: size, content };
    // A file system at the start of the array may have what looks like a table in its first sector.
    let at_start = content(size, Sector(0), size, read);
    if let Content::FileSystem(_) = at_start {
        return vec![whole(at_start)];
    }
    match partition::read(size.bytes(), &mut *read) {
        Ok(table) => {
            let mut volumes: Vec<Volume> = Vec::new();
            if let Some(damage) = table.damage {
                let text = format!("the partition table is damaged: {damage}");
                volumes.push(whole(Content::BadTable(text)));
            }
            for partition in table.partitions {
                let (start, length) = (partition.start, partition.length);
                let content = content(size, start, length, read);
                volumes.push(Volume { name: format!("partition {}", partition.number), start, length, content });
            }
            volumes
        }
        Err(TableError::None) => vec![whole(at_start)],
        Err(error) => vec![whole(Content::BadTable(with_causes(&error)))],
    }
}

/// What a part of the array holds.
pub(crate) fn content(size: Sectors, start: Sector, length: Sectors, read: &mut Read<'_>) -> Content {
    if length.is_zero() || start.0.checked_add(length.0).is_none_or(|end| end > size.0) {
        return Content::BadTable(format!("it ends past the {} sectors of the array", size.0));
    }
    let mut bytes_at = |from: Sector, sectors: Sectors| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; sectors.len_bytes()];
        read(from.0 * SECTOR_BYTES as u64, &mut bytes).map(|()| bytes)
    };
    let window = Sectors((signature::WINDOW_BYTES / SECTOR_BYTES) as u64).min(length);
    let head = bytes_at(start, window);
    let tail = bytes_at(Sector(start.0 + length.0 - window.0), window);
    let (head, tail) = match (head, tail) {
        (Ok(head), Ok(tail)) => (head, tail),
        (Err(error), _) | (_, Err(error)) => {
            return Content::Unreadable(format!("cannot be read: {}", uraid_host::io_text(&error)));
        }
    };
    match file_system::parse(&head[..HEAD_BYTES.min(head.len())]) {
        Ok(Some(found)) => Content::FileSystem(found),
        Err(error) => Content::Unreadable(error.to_string()),
        Ok(None) => match signature::detect(&head, &tail, length) {
            Some(found) => Content::Other(found.kind.text()),
            None => Content::Unknown,
        },
    }
}
