//! Reads what a device carries of an array, and assembles what was read.
//! Owns: [`examine`], [`Examined`], [`assemble_examined`]. Not here: the bytes (`format`), the decision (`assemble`), how a
//! device is read: the caller gives a function.
//! Invariant: nothing is written, and any bytes are an error or a candidate.

use super::{AssembleError, AssembleOptions, Candidate, StartPlan, assemble};
use uraid_block::Sectors;
use uraid_format::bad_blocks::{self, BadBlockLog, BadBlocksError};
use uraid_format::bitmap::{BitmapImage, BitmapUnusable};
use uraid_format::ppl::PplLog;
use uraid_format::{Features, FindError, find};

/// All that assembly needs of one device.
#[derive(Clone, Debug)]
pub struct Examined {
    /// Its superblock, with its bad-block log and its partial parity log where it has them.
    pub candidate: Candidate,
    /// Its bitmap, if its superblock says that there is one.
    pub bitmap: Option<Result<BitmapImage, BitmapUnusable>>,
}

/// Why a device is no candidate. `E`: the error of the caller's reads.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError<E: std::error::Error + 'static> {
    /// It has no good superblock.
    #[error(transparent)]
    Superblock(#[from] FindError<E>),
    /// What its bad-block log says is not valid.
    #[error("the bad-block list is not valid")]
    BadBlocks(#[from] BadBlocksError),
    /// Its bad-block log could not be read.
    #[error("the bad-block list could not be read")]
    BadBlocksRead(#[source] E),
}

/// Reads the superblock of a device of this size, and all that lies beside it (mdadm: `--examine`). `read` fills a buffer
/// from a byte of the device on, and is asked for nothing past its end.
///
/// A bitmap or a partial parity log that cannot be read is no error here: the array starts without it, or read-only, as
/// [`StartPlan::take_bitmaps`] and [`assemble`] say.
pub fn examine<E: std::error::Error + 'static>(
    size: Sectors,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Examined, ExamineError<E>> {
    let superblock = find(size, |at, block| read(at.first_byte(), block))?.superblock;
    let bad_blocks = match bad_blocks::counting_extent(&superblock)? {
        None => BadBlockLog::default(),
        Some(list) => {
            let mut bytes = vec![0; list.length.len_bytes()];
            read(list.start.first_byte(), &mut bytes).map_err(ExamineError::BadBlocksRead)?;
            BadBlockLog::parse(&bytes, superblock.bad_blocks.shift)?
        }
    };
    let mut is_read = |at: u64, into: &mut [u8]| read(at, into).is_ok();
    let has_bitmap = superblock.features.contains(Features::BITMAP_OFFSET);
    let bitmap = has_bitmap.then(|| BitmapImage::read_beside(&superblock, &mut is_read));
    let ppl = PplLog::read_beside(&superblock, is_read);
    Ok(Examined { candidate: Candidate { superblock, device_size: size, bad_blocks: Some(bad_blocks), ppl }, bitmap })
}

/// [`assemble`] of devices that were examined, with [`StartPlan::take_bitmaps`]. Candidates have the indexes of `found`.
pub fn assemble_examined(found: &[Examined], options: &AssembleOptions) -> Result<StartPlan, AssembleError> {
    let candidates: Vec<Candidate> = found.iter().map(|found| found.candidate.clone()).collect();
    let mut plan = assemble(&candidates, options)?;
    plan.take_bitmaps(|candidate| found[candidate].bitmap.clone().unwrap_or(Err(BitmapUnusable::NoRoom)));
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{Device, ErrorKind, IoError, MemoryDevice};
    use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create, writes};
    use uraid_format::{Superblock, SuperblockError};
    use uraid_layout::Level;

    fn raid1_with_a_bitmap() -> Vec<(MemoryDevice, Superblock)> {
        let policy = NewPolicy::Bitmap { chunk: None, write_behind: 0 };
        let options = CreateOptions { policy, ..CreateOptions::new(Level::Raid1, 2, [7; 16]) };
        let members = [1, 2].map(|n| NewMember::Device { size: Sectors(8 << 11), uuid: [n; 16] });
        let created = create(&options, &members).expect("the options are right");
        let member = |superblock: Superblock| {
            let device = MemoryDevice::new(vec![0; 8 << 20]);
            for (at, bytes) in writes(&superblock, created.bitmap.as_ref()) {
                device.write_at(at.first_byte(), &bytes).expect("inside");
            }
            (device, superblock)
        };
        created.superblocks.into_iter().flatten().map(member).collect()
    }

    fn examined(device: &MemoryDevice) -> Result<Examined, ExamineError<IoError>> {
        examine(device.geometry().size, |at, into| device.read_at(at, into))
    }

    #[test]
    fn an_array_whose_bitmap_was_examined_takes_writes() {
        let members = raid1_with_a_bitmap();
        let found: Vec<Examined> = members.iter().map(|(device, _)| examined(device).expect("just made")).collect();
        let plan = assemble_examined(&found, &AssembleOptions::default()).expect("both are there");
        assert!(plan.read_only.is_none() && plan.bitmap.is_some());
        assert_eq!(
            found.iter().map(|found| &found.candidate.superblock).collect::<Vec<_>>(),
            [&members[0].1, &members[1].1]
        );
    }

    #[test]
    fn a_device_is_no_candidate_without_a_superblock_or_with_a_broken_list() {
        let blank = MemoryDevice::new(vec![0; 8 << 20]);
        let found = examined(&blank).expect_err("it is blank");
        assert!(
            matches!(
                found,
                ExamineError::Superblock(FindError::Superblock { source: SuperblockError::Magic { .. }, .. })
            ),
            "{found:?}"
        );
        let (device, mut superblock) = raid1_with_a_bitmap().remove(0);
        superblock.features = superblock.features.with(Features::BAD_BLOCKS);
        device.write_at(superblock.super_offset.first_byte(), &superblock.encode()[..]).expect("inside");
        assert!(examined(&device).is_ok(), "the list is empty");
        let list = superblock.bad_blocks_extent().expect("mdadm makes room for one");
        // Zero sectors, at sector 1.
        device.write_at(list.start.first_byte(), &(1_u64 << 10).to_le_bytes()).expect("inside");
        let broken = examined(&device);
        assert!(matches!(broken, Err(ExamineError::BadBlocks(BadBlocksError::Empty { entry: 0 }))), "{broken:?}");
        let unreadable = examine(device.geometry().size, |at, into| match at == list.start.first_byte() {
            true => Err(IoError::new(ErrorKind::Media)),
            false => device.read_at(at, into),
        });
        assert!(matches!(unreadable, Err(ExamineError::BadBlocksRead(_))), "{unreadable:?}");
    }
}
