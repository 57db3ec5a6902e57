//! The areas beside a superblock: bitmap, list of bad blocks, partial parity log, journal.
//! Owns: reading and showing them. Not here: their bytes and places (`format`), their meaning for assembly (`engine`).
//! Invariant: an unreadable or invalid area is reported as such and hides nothing else. Each read is bounded. Spec:
//! docs/md/formats.md; `mdadm --examine-bitmap`, `--examine-badblocks`.

use super::words::field;
use crate::shared::probe::{ProbeError, Unclaimed};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use uraid_block::sizes::human;
use uraid_block::{SECTOR_BYTES, Sector};
use uraid_format::bad_blocks::BadBlockLog;
use uraid_format::bitmap::{BITMAP_HEADER_BYTES, BitmapHeader, BitmapStatistics, ChunkState};
use uraid_format::journal::JournalBlock;
use uraid_format::ppl::{PplHeader, PplLog};
use uraid_format::{Features, Role, SUPERBLOCK_BYTES, Superblock, uuid};

/// The most bytes of a bitmap that are read: 64 MiB, which hold a bit for each 64 MiB of 32 PiB. A longer bitmap is
/// damaged, or forged to keep `examine` busy: a sparse file can claim 2^51 bytes of bitmap.
const BITMAP_BYTES_MAX: u64 = 64 << 20;

/// The areas; `None` if the superblock does not announce one, an error's text if it is broken.
pub(super) struct Areas {
    pub bad_blocks: Option<Result<BadBlockLog, String>>,
    pub bitmap: Option<Result<(BitmapHeader, BitmapStatistics), String>>,
    pub ppl: Option<Result<PplHeader, String>>,
    pub journal: Option<Result<JournalBlock, String>>,
}

/// Reads the areas of a member.
pub(super) fn read(member: &Unclaimed, superblock: &Superblock) -> Areas {
    let features = superblock.features;
    let has_bitmap = features.contains(Features::BITMAP_OFFSET);
    let is_journal = superblock.own_role() == Role::Journal;
    let id = &superblock.set_uuid;
    Areas {
        bad_blocks: member.bad_blocks(superblock).map_err(list_error).transpose(),
        bitmap: has_bitmap.then(|| bitmap(member, superblock.bitmap_start())),
        ppl: superblock.ppl_word().map(|_| {
            // md's log is a ring: the last header counts, not the first.
            let last = PplLog::last_header_beside(superblock, |at, into| member.read_at(at, into).is_ok());
            let bytes = block(member, superblock.ppl_extent().map(|log| log.start))?;
            last.map_or_else(|| PplHeader::parse(&bytes, id).map_err(text_of), Ok)
        }),
        // A journal's recovery_offset is the place where the log begins, in sectors of the journal's data.
        journal: is_journal.then(|| {
            let at = superblock.data_offset.0.checked_add(superblock.recovery_offset);
            JournalBlock::parse(&*block(member, at.map(Sector))?, id).map_err(text_of)
        }),
    }
}

/// 4096 bytes of a member from a sector on.
pub(super) fn read_block(member: &Unclaimed, at: Sector) -> io::Result<Box<[u8; SUPERBLOCK_BYTES]>> {
    let mut block = Box::new([0; SUPERBLOCK_BYTES]);
    let byte = at.0.checked_mul(SECTOR_BYTES as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
    member.read_at(byte, &mut *block)?;
    Ok(block)
}

/// The error's text without the member's name, which is printed above.
fn list_error(error: ProbeError) -> String {
    match error {
        ProbeError::BadBlocks { source, .. } => text_of(source),
        ProbeError::BadBlocksRead { source, .. } => format!("it cannot be read: {source}"),
        ProbeError::Name(_)
        | ProbeError::Silent(_)
        | ProbeError::Read { .. }
        | ProbeError::Kind { .. }
        | ProbeError::Window { .. }
        | ProbeError::Short { .. }
        | ProbeError::Superblock { .. }
        | ProbeError::Partitioned { .. } => text_of(error),
    }
}

fn text_of(error: impl std::error::Error) -> String {
    error.to_string()
}

fn block(member: &Unclaimed, at: Option<Sector>) -> Result<Box<[u8; 4096]>, String> {
    let at = at.ok_or("its place is outside the device")?;
    read_block(member, at).map_err(|_| format!("sector {}, where it should be, cannot be read", at.0))
}

fn bitmap(member: &Unclaimed, at: Option<Sector>) -> Result<(BitmapHeader, BitmapStatistics), String> {
    /// Bits that are read at once.
    const PIECE_BYTES: u64 = 64 * 1024;
    let start = at.ok_or("its place is outside the device")?;
    let first = block(member, Some(start))?;
    let header: &[u8; BITMAP_HEADER_BYTES] = first.first_chunk().expect("4096 bytes hold the header");
    let header = BitmapHeader::parse(header).map_err(text_of)?;
    let mut statistics = BitmapStatistics::new(&header);
    let mut from = header.position_of(0).0;
    let end = header.used_bytes().min(from + BITMAP_BYTES_MAX);
    while from < end && statistics.uncounted() > 0 {
        let mut piece = vec![0; PIECE_BYTES.min(end - from) as usize];
        let place = start.0.checked_mul(SECTOR_BYTES as u64).and_then(|bytes| bytes.checked_add(from));
        let place = place.ok_or("it ends outside the device")?;
        member
            .read_at(place, &mut piece)
            .map_err(|error| format!("its bits cannot be read: {}", uraid_host::io_text(&error)))?;
        statistics.add(&piece);
        from += piece.len() as u64;
    }
    Ok((header, statistics))
}

/// After mdadm's text of the superblock: what `--examine-bitmap` and `--examine-badblocks` print, and the logs.
pub(super) fn write(out: &mut String, areas: &Areas) {
    let mut part = |name: &str, lines: Result<String, &String>| match lines {
        Ok(lines) => write!(out, "\n{name}:\n{lines}"),
        Err(error) => write!(out, "\n{name}:\n          Error : {error}\n"),
    };
    let written = [
        areas.bitmap.as_ref().map(|it| part("Bitmap", it.as_ref().map(|(header, bits)| bitmap_text(header, bits)))),
        areas.bad_blocks.as_ref().map(|it| part("Bad-blocks", it.as_ref().map(bad_blocks_text))),
        areas.ppl.as_ref().map(|it| part("Partial parity log", it.as_ref().map(ppl_text))),
        areas.journal.as_ref().map(|it| part("Journal", it.as_ref().map(journal_text))),
    ];
    assert!(written.into_iter().flatten().all(|written| written.is_ok()), "a string takes all");
}

fn bitmap_text(header: &BitmapHeader, bits: &BitmapStatistics) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| writeln!(out, "{name:>16} : {value}").expect("a string takes all");
    let dirty = bits.count(ChunkState::Dirty);
    let chunks = header.chunks();
    line("UUID", &uuid::text(&header.set_uuid));
    line("Events", &header.events.to_string());
    line("Events Cleared", &header.events_cleared.to_string());
    line("Chunksize", &format!("{} KiB", header.chunk_bytes / 1024));
    line("Daemon", &format!("{}s flush period", header.daemon_sleep_seconds));
    let behind = header.write_behind;
    line("Write Mode", &if behind > 0 { format!("Allow write behind, max {behind}") } else { "Normal".to_owned() });
    line("Sync Size", &format!("{}{}", header.sync_size.0 / 2, human(u128::from(header.sync_size.0) * 512)));
    let tenths = u128::from(dirty) * 1000 / u128::from(chunks.max(1));
    line("Bitmap", &format!("{chunks} bits (chunks), {dirty} dirty ({}.{}%)", tenths / 10, tenths % 10));
    if bits.uncounted() > 0 {
        let counted = chunks - bits.uncounted();
        line("Not Counted", &format!("the bitmap claims {chunks} bits, and only the first {counted} were read"));
    }
    out
}

fn bad_blocks_text(list: &BadBlockLog) -> String {
    let lines = list.ranges.iter().map(|range| format!("{:>20} for {} sectors\n", range.start.0, range.length.0));
    lines.collect()
}

fn ppl_text(header: &PplHeader) -> String {
    let mut out = String::new();
    field(&mut out, "Generation", &header.generation.to_string());
    field(&mut out, "Entries", &header.entries.len().to_string());
    for entry in &header.entries {
        let (at, data, parity, slot) = (entry.data_sector.0, entry.data_bytes, entry.parity_bytes, entry.parity_slot);
        let text = format!("array sector {at}, {data} bytes of data, {parity} of parity on slot {slot}");
        field(&mut out, "Entry", &text);
    }
    out
}

fn journal_text(block: &JournalBlock) -> String {
    let mut out = String::new();
    field(&mut out, "Sequence", &block.sequence.to_string());
    field(&mut out, "Position", &format!("{} sectors", block.position.0));
    field(&mut out, "Entries", &block.entries.len().to_string());
    out
}

/// The same as JSON, by name; `null` if the superblock does not announce the area.
pub(super) fn facts(areas: &Areas) -> Value {
    fn one<T>(area: Option<&Result<T, String>>, facts: impl Fn(&T) -> Value) -> Value {
        match area {
            None => Value::Null,
            Some(Ok(area)) => facts(area),
            Some(Err(error)) => json!({ "error": error }),
        }
    }
    let ranges = |list: &BadBlockLog| {
        let ranges = list.ranges.iter().map(|range| json!({ "sector": range.start.0, "sectors": range.length.0 }));
        Value::Array(ranges.collect())
    };
    json!({
        "bitmap": one(areas.bitmap.as_ref(), |(header, bits)| json!({
            "uuid": uuid::text(&header.set_uuid), "events": header.events, "events_cleared": header.events_cleared,
            "sync_size": header.sync_size.0, "chunk": header.chunk().0, "chunks": header.chunks(),
            "counted": header.chunks() - bits.uncounted(), "dirty": bits.count(ChunkState::Dirty),
        })),
        "bad_blocks": one(areas.bad_blocks.as_ref(), ranges),
        "ppl": one(areas.ppl.as_ref(), |log| json!({ "generation": log.generation, "entries": log.entries.len() })),
        "journal": one(areas.journal.as_ref(), |block| json!({
            "sequence": block.sequence, "position": block.position.0, "entries": block.entries.len(),
        })),
    })
}
