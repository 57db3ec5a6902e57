//! A write-intent bitmap: header, places of bits, counting.
//! Owns: parse, write, parse; arithmetic stays inside. Input: header 256, sector 3, then bits.

use crate::input::Input;
use uraid_block::MemberSector;
use uraid_format::bitmap::{BitmapHeader, BitmapStatistics, ChunkState};

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let header = match BitmapHeader::parse(&input.array()) {
        Ok(header) => header,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(BitmapHeader::parse(&header.encode()).as_ref(), Ok(&header));
    let sector = input.number();
    let chunk = header.chunk_of(MemberSector(sector));
    assert_eq!(chunk.is_some(), sector < header.sync_size.0);
    if let Some(chunk) = chunk {
        assert!(chunk < header.chunks());
        let sectors = header.sectors_of(chunk);
        assert!((sectors.start.0..sectors.end().0).contains(&sector) && sectors.end().0 <= header.sync_size.0);
        let (at, mask) = header.position_of(chunk);
        assert!(at < header.used_bytes() && mask != 0);
    }
    assert!(header.area_bytes() >= header.used_bytes());
    let mut statistics = BitmapStatistics::new(&header);
    statistics.add(input.bytes(100));
    statistics.add(input.rest());
    let known: u64 = ChunkState::ALL.iter().map(|state| statistics.count(*state)).sum();
    assert_eq!(known + statistics.unknown() + statistics.uncounted(), header.chunks());
}
