//! One file of a mounted file system: the array under it, its extents there.
//! Owns: the way from a file to sectors of an array. Not here: devices in sysfs (`doctor::device`), flags and predictions
//! (`uraid_doctor`), what is printed (`doctor::text`).
//! Invariant: extents are printed only if each of them is inside the array.
//!
//! ```text
//!   file -> extents (FIEMAP) -> its block device -> partition -> loop device -> file of `uraid serve --fuse` -> array
//! ```

use super::args::DoctorArgs;
use super::device::Node;
use super::source::Source;
use super::text::{self, OfFile};
use super::{DoctorError, WARNINGS};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_control::client;
use uraid_control::log::print;
use uraid_control::report::Report;
use uraid_doctor::{Extent, Prediction, predict};
use uraid_host::{FileExtent, file_extents};
use uraid_layout::Layout;

/// The size of a write where the level has no stripes.
const WRITE: Sectors = Sectors(2048);

/// A file, and where its file system has it on an array.
pub(crate) struct FileOnArray {
    /// Its length.
    pub bytes: u64,
    /// The array.
    pub report: Report,
    pub layout: Layout,
    /// The sector of the array where the file system begins.
    pub base: Sector,
    /// All of them inside the array.
    pub extents: Vec<Extent>,
}

impl FileOnArray {
    /// Finds the array under a file, or takes the one that the arguments name.
    pub(crate) fn find(path: &Path, args: &DoctorArgs) -> Result<FileOnArray, DoctorError> {
        let failed = |what| move |source| DoctorError::File { path: path.to_owned(), what, source };
        // Asked before it is opened: to open a FIFO would wait for its other end.
        let status = fs::metadata(path).map_err(failed(""))?;
        if !status.is_file() {
            return Err(DoctorError::NoFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(failed(""))?;
        if is_btrfs(&file) {
            let found = "the addresses of Btrfs are its own, and not those of the array".to_owned();
            return Err(DoctorError::NoPlaces { path: path.to_owned(), found });
        }
        let (Source { report, layout, .. }, base) = array_under(path, status.dev(), args)?;
        let found = file_extents(&file).map_err(failed("its file system does not tell where it lies (FIEMAP)"))?;
        let extents = extents_of(path, &found, base)?;
        if let Some(extent) = extents.iter().find(|extent| extent.end().0 > layout.array_size().0) {
            let (array, at, size) = (report.name, extent.at.0, layout.array_size().0);
            return Err(DoctorError::Outside { path: path.to_owned(), array, at, size });
        }
        Ok(FileOnArray { bytes: status.len(), report, layout, base, extents })
    }

    /// What writing it in order costs.
    pub(crate) fn predict(&self, write: Sectors) -> Prediction {
        predict(&self.layout, &self.extents, write).expect("all extents are inside the array")
    }
}

/// Prints where a file lies, and what writing it costs.
pub(super) fn run(path: &Path, args: &DoctorArgs) -> Result<ExitCode, DoctorError> {
    let found = FileOnArray::find(path, args)?;
    let stripe = found.layout.stripe();
    let write = args.bs.unwrap_or(if stripe.is_zero() { WRITE } else { stripe });
    let prediction = found.predict(write);
    let FileOnArray { bytes, report, layout, base, extents } = &found;
    let (array, base) = (&*report.name, *base);
    let of_file = OfFile { path, bytes: *bytes, array, base, layout, extents, write, prediction };
    print(&if args.json { format!("{}\n", of_file.json()) } else { of_file.text() });
    if args.plot {
        print(&text::plot(layout, extents));
    }
    let is_partial = prediction.cost.rows_modified + prediction.cost.rows_reconstructed > 0;
    Ok(if is_partial { ExitCode::from(WARNINGS) } else { ExitCode::SUCCESS })
}

fn is_btrfs(file: &File) -> bool {
    const BTRFS: u64 = 0x9123_683e;
    rustix::fs::fstatfs(file).is_ok_and(|status| status.f_type as u64 == BTRFS)
}

/// The array under a file, and the sector of it where the file system begins.
fn array_under(path: &Path, device: u64, args: &DoctorArgs) -> Result<(Source, Sector), DoctorError> {
    let not_on_array = |found: String| DoctorError::NotOnArray { path: path.to_owned(), found };
    let node = Node::of(device);
    let start = node.as_ref().map_or(Sector(0), Node::start);
    if args.control.is_some() || !args.named.is_empty() {
        let offset = node.as_ref().and_then(Node::backing).map_or(0, |(_, offset)| offset.0);
        let base = args.at.unwrap_or(offset).saturating_add(start.0);
        return Ok((Source::find(args)?, Sector(base)));
    }
    let Some(node) = node else {
        return Err(not_on_array("its file system has no block device of its own".to_owned()));
    };
    let Some((backing, offset)) = node.backing() else {
        return Err(not_on_array(format!("it lies on /dev/{}, which is no loop device", node.name())));
    };
    let has_file = |report: &Report| {
        let exports = report.server.iter().flat_map(|server| &server.exports);
        exports.filter_map(|export| export.file.as_deref()).any(|file| Path::new(file) == backing)
    };
    let report = client::running()?.reports.into_iter().find(has_file);
    let report = report.ok_or_else(|| {
        not_on_array(format!(
            "it lies on /dev/{}, on {}, which is the file of no running array",
            node.name(),
            backing.display()
        ))
    })?;
    Ok((Source::of_running(report)?, Sector(offset.0 + start.0)))
}

/// The extents as sectors of the array.
fn extents_of(path: &Path, found: &[FileExtent], base: Sector) -> Result<Vec<Extent>, DoctorError> {
    let no_places = |found: String| DoctorError::NoPlaces { path: path.to_owned(), found };
    let sector = SECTOR_BYTES as u64;
    let one = |extent: &FileExtent| {
        if extent.flags.has_no_place() {
            let at = extent.file;
            return Err(no_places(format!(
                "its bytes from {at} on are not at a place of their own: inline, compressed or not written yet"
            )));
        }
        if [extent.file, extent.device, extent.length].iter().any(|bytes| !bytes.is_multiple_of(sector)) {
            return Err(no_places(format!("its extent from byte {} on is not of whole sectors", extent.file)));
        }
        Ok(Extent {
            file: Sector(extent.file / sector),
            at: Sector((extent.device / sector).saturating_add(base.0)),
            length: Sectors(extent.length / sector),
            is_unwritten: extent.flags.is_unwritten(),
            is_shared: extent.flags.is_shared(),
        })
    };
    found.iter().map(one).collect()
}
