//! A simulated member's medium: durable and cached sectors, and what a power cut leaves of them.
//! Owns: [`Medium`], versions of sectors, flush, [`CrashMode`]. Not here: latency, faults, the `Device` implementation
//! (`member`).
//! Invariant: a sector is written whole or not at all. After a crash it holds its durable bytes or those of one write
//! that was not yet covered by a flush.
//!
//! ```text
//!   sector 9:  durable | v1 (complete) | v2 (complete) | v3 (in flight, seen) |
//!              flush submitted after v2 completed  ->  v2 becomes durable, v1 is forgotten, v3 stays uncertain
//! ```

use crate::random::rng::{Rng, mix};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uraid_block::SECTOR_BYTES;

/// A sector's bytes by one write, not yet durable.
#[derive(Clone)]
struct Version {
    // The order in which writes became visible.
    effect: u64,
    // The operation that wrote it.
    write: u64,
    is_complete: bool,
    bytes: Rc<Vec<u8>>,
    offset: usize,
}

impl Version {
    fn sector(&self) -> &[u8] {
        &self.bytes[self.offset..self.offset + SECTOR_BYTES]
    }
}

struct Write {
    at: u64,
    bytes: Rc<Vec<u8>>,
    is_visible: bool,
    is_fua: bool,
}

/// What a power cut leaves of writes that no flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashMode {
    /// Everything.
    All,
    /// Nothing.
    None,
    /// Everything up to a random moment.
    Prefix,
    /// Any version of each sector.
    Random,
    /// Each write whole or not at all.
    Whole,
    /// Each write up to a random sector of it.
    Torn,
    /// Superblocks kept, data lost.
    OnlySuper,
    /// Data kept, superblocks lost.
    OnlyData,
}

impl CrashMode {
    /// All of them.
    pub const ALL: [CrashMode; 8] = [
        CrashMode::All,
        CrashMode::None,
        CrashMode::Prefix,
        CrashMode::Random,
        CrashMode::Whole,
        CrashMode::Torn,
        CrashMode::OnlySuper,
        CrashMode::OnlyData,
    ];
}

/// The bytes of one member.
pub struct Medium {
    current: Vec<u8>,
    durable: Vec<u8>,
    cache: BTreeMap<u64, Vec<Version>>,
    writes: BTreeMap<u64, Write>,
    write_next: u64,
    effect_next: u64,
    data_start: u64,
}

fn span(sector: u64) -> std::ops::Range<usize> {
    let start = sector as usize * SECTOR_BYTES;
    start..start + SECTOR_BYTES
}

/// Makes the last covered version of a sector durable, and forgets all up to it.
fn settle(durable: &mut [u8], sector: u64, versions: &mut Vec<Version>, is_covered: impl Fn(&Version) -> bool) {
    if let Some(last) = versions.iter().rposition(is_covered) {
        durable[span(sector)].copy_from_slice(versions[last].sector());
        versions.drain(..=last);
    }
}

impl Medium {
    /// A medium with these bytes, all durable. Sectors below `data_start` are metadata.
    pub fn new(bytes: Vec<u8>, data_start: u64) -> Medium {
        assert!(bytes.len().is_multiple_of(SECTOR_BYTES));
        Medium {
            durable: bytes.clone(),
            current: bytes,
            cache: BTreeMap::new(),
            writes: BTreeMap::new(),
            write_next: 0,
            effect_next: 0,
            data_start,
        }
    }

    /// What a read returns now.
    pub fn current(&self) -> &[u8] {
        &self.current
    }

    /// What certainly survives power failure.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Starts a write, neither visible nor complete yet. Returns its number.
    pub fn submit(&mut self, at: u64, bytes: Vec<u8>, is_fua: bool) -> u64 {
        let number = self.write_next;
        self.write_next += 1;
        self.writes.insert(number, Write { at, bytes: Rc::new(bytes), is_visible: false, is_fua });
        number
    }

    /// Makes a write visible to reads.
    pub fn show(&mut self, number: u64) {
        let Some(write) = self.writes.get_mut(&number) else { return };
        if std::mem::replace(&mut write.is_visible, true) {
            return;
        }
        let effect = self.effect_next;
        self.effect_next += 1;
        for (index, sector) in (write.at..write.at + (write.bytes.len() / SECTOR_BYTES) as u64).enumerate() {
            let version = Version {
                effect,
                write: number,
                is_complete: false,
                bytes: write.bytes.clone(),
                offset: index * SECTOR_BYTES,
            };
            self.current[span(sector)].copy_from_slice(version.sector());
            self.cache.entry(sector).or_default().push(version);
        }
    }

    /// Completes a write: visible, and durable if it was FUA.
    pub fn complete(&mut self, number: u64) {
        self.show(number);
        let write = self.writes.remove(&number).expect("a write is completed once");
        for sector in write.at..write.at + (write.bytes.len() / SECTOR_BYTES) as u64 {
            let versions = self.cache.entry(sector).or_default();
            for version in versions.iter_mut().filter(|version| version.write == number) {
                version.is_complete = true;
            }
            if write.is_fua {
                settle(&mut self.durable, sector, versions, |version| version.write == number);
                if versions.is_empty() {
                    self.cache.remove(&sector);
                }
            }
        }
    }

    /// Ends a write that is answered with an error, performed or not.
    pub fn abandon(&mut self, number: u64, has_effect: bool) {
        if has_effect {
            self.show(number);
        }
        self.writes.remove(&number);
    }

    /// The writes that a flush submitted now will cover.
    pub fn flush_mark(&self) -> FlushMark {
        let complete =
            self.cache.values().flatten().filter(|version| version.is_complete).map(|version| version.write).collect();
        FlushMark(complete)
    }

    /// Makes the covered writes durable.
    pub fn flush(&mut self, mark: &FlushMark) {
        let durable = &mut self.durable;
        self.cache.retain(|sector, versions| {
            settle(durable, *sector, versions, |version| mark.0.contains(&version.write));
            !versions.is_empty()
        });
    }

    /// A failed flush: some of the covered writes will not survive a power cut, and no later flush reports them again.
    /// Until then reads still return them, as from a page cache.
    pub fn flush_failed(&mut self, mark: &FlushMark, rng: &mut Rng) {
        for versions in self.cache.values_mut() {
            if rng.chance(1, 2) {
                versions.retain(|version| !mark.0.contains(&version.write));
            }
        }
        self.flush(mark);
    }

    /// Makes all cached writes durable: a stop without a crash.
    pub fn settle_all(&mut self) {
        self.writes.clear();
        self.cache.clear();
        self.durable.copy_from_slice(&self.current);
    }

    /// Whether a metadata write, which a power cut may tear, is in flight.
    pub fn writes_super(&self) -> bool {
        self.writes.values().any(|write| write.at < self.data_start)
    }

    /// Data sectors that may not survive a power cut.
    pub fn uncertain_data(&self) -> BTreeSet<u64> {
        let flying = self.writes.values().flat_map(|write| {
            let length = (write.bytes.len() / SECTOR_BYTES) as u64;
            write.at..write.at + length
        });
        let all = self.cache.keys().copied().chain(flying);
        all.filter(|sector| *sector >= self.data_start).collect()
    }

    /// Whether a write to these sectors is answered, and a power cut may lose it.
    pub fn is_unflushed(&self, sectors: std::ops::Range<u64>) -> bool {
        let is_lost = |sector: u64, one: &Version| one.is_complete && one.sector() != &self.durable[span(sector)];
        self.cache.range(sectors).any(|(sector, versions)| versions.iter().any(|one| is_lost(*sector, one)))
    }

    /// Data sectors that may have other bytes after a power cut than another one would leave.
    pub fn undecided_data(&self) -> BTreeSet<u64> {
        let is_other = |sector: u64, bytes: &[u8]| bytes != &self.durable[span(sector)];
        let cached = self.cache.range(self.data_start..);
        let cached = cached.filter(|(sector, versions)| versions.iter().any(|one| is_other(**sector, one.sector())));
        let flying = self.writes.values().flat_map(|write| {
            let sectors = (write.at..).zip(write.bytes.chunks(SECTOR_BYTES));
            sectors.filter(|(sector, bytes)| is_other(*sector, bytes)).map(|(sector, _)| sector)
        });
        let all = cached.map(|(sector, _)| *sector).chain(flying);
        all.filter(|sector| *sector >= self.data_start).collect()
    }

    /// The metadata writes that a crash may keep or drop, oldest first, visible or not.
    pub fn uncertain_super_writes(&self) -> Vec<u64> {
        let cached = (self.cache.range(..self.data_start)).flat_map(|(_, versions)| versions).map(|one| one.write);
        let flying = (self.writes.iter()).filter(|(_, write)| write.at < self.data_start).map(|(&number, _)| number);
        let mut list: Vec<u64> = cached.chain(flying).collect();
        list.sort_unstable();
        list.dedup();
        list
    }

    /// The bytes that a power cut now could leave: metadata writes as `keeps_super` decides, data as in `mode`.
    pub fn image(&self, mode: CrashMode, rng: &mut Rng, keeps_super: Option<&dyn Fn(u64) -> bool>) -> Vec<u8> {
        let mut image = self.durable.clone();
        // Of writes that no read has seen, by sector: they come after all that are in the cache.
        let mut unseen: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
        let mut hidden: Vec<(&u64, &Write)> = self.writes.iter().filter(|(_, write)| !write.is_visible).collect();
        rng.shuffle(&mut hidden);
        for (at, (&number, write)) in hidden.into_iter().enumerate() {
            for index in 0..write.bytes.len() / SECTOR_BYTES {
                let version = Version {
                    effect: self.effect_next + at as u64,
                    write: number,
                    is_complete: false,
                    bytes: write.bytes.clone(),
                    offset: index * SECTOR_BYTES,
                };
                unseen.entry(write.at + index as u64).or_default().push(version);
            }
        }
        let cut = rng.next();
        let versions = self.cache.values().chain(unseen.values()).flatten();
        let last_effect = versions.map(|version| version.effect).max().unwrap_or(0);
        let prefix = rng.below(last_effect + 2);
        let none = Vec::new();
        let of_cache =
            self.cache.iter().map(|(sector, versions)| (*sector, versions, unseen.get(sector).unwrap_or(&none)));
        let others = unseen.iter().filter(|(sector, _)| !self.cache.contains_key(sector));
        for (sector, versions, later) in of_cache.chain(others.map(|(sector, later)| (*sector, &none, later))) {
            let is_super = sector < self.data_start;
            let is_kept = |version: &Version| {
                if is_super && let Some(keeps) = keeps_super {
                    return keeps(version.write);
                }
                let draw = mix(cut ^ version.write);
                match mode {
                    CrashMode::All => true,
                    CrashMode::None => false,
                    CrashMode::Prefix => version.effect < prefix,
                    CrashMode::Random => mix(draw ^ sector) & 1 == 0,
                    CrashMode::Whole => draw & 1 == 0,
                    CrashMode::Torn => {
                        let sectors = (version.bytes.len() / SECTOR_BYTES) as u64;
                        ((version.offset / SECTOR_BYTES) as u64) < draw % (sectors + 1)
                    }
                    CrashMode::OnlySuper => is_super,
                    CrashMode::OnlyData => !is_super,
                }
            };
            if let Some(version) = later.iter().rev().chain(versions.iter().rev()).find(|version| is_kept(version)) {
                image[span(sector)].copy_from_slice(version.sector());
            }
        }
        image
    }

    /// A power cut: the surviving bytes become the durable contents.
    pub fn crash(&mut self, mode: CrashMode, rng: &mut Rng) {
        let image = self.image(mode, rng, None);
        self.replace(image);
    }

    /// Replaces the contents; all are durable.
    pub fn replace(&mut self, image: Vec<u8>) {
        assert_eq!(image.len(), self.current.len());
        self.current.copy_from_slice(&image);
        self.durable = image;
        self.cache.clear();
        self.writes.clear();
    }
}

/// The writes that a flush covers: those that were complete when it was submitted.
pub struct FlushMark(std::collections::BTreeSet<u64>);

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(byte: u8) -> Vec<u8> {
        vec![byte; SECTOR_BYTES]
    }

    fn write(medium: &mut Medium, at: u64, byte: u8) {
        let number = medium.submit(at, sector(byte), false);
        medium.complete(number);
    }

    #[test]
    fn only_flushed_bytes_are_certain() {
        let mut medium = Medium::new(vec![0; 4 * SECTOR_BYTES], 0);
        write(&mut medium, 1, 7);
        let mark = medium.flush_mark();
        write(&mut medium, 1, 8);
        medium.flush(&mark);
        assert_eq!((medium.current()[512], medium.durable()[512]), (8, 7));
        assert_eq!(medium.image(CrashMode::None, &mut Rng::new(1), None)[512], 7);
        assert_eq!(medium.image(CrashMode::All, &mut Rng::new(1), None)[512], 8);
        medium.crash(CrashMode::None, &mut Rng::new(1));
        assert_eq!(medium.current()[512], 7);
    }

    #[test]
    fn a_write_that_was_in_flight_may_survive() {
        let mut medium = Medium::new(vec![0; 2 * SECTOR_BYTES], 0);
        medium.submit(0, sector(5), false);
        assert_eq!(medium.current()[0], 0);
        let kept = (0..40).filter(|&n| medium.image(CrashMode::Random, &mut Rng::new(n), None)[0] == 5).count();
        assert!((5..35).contains(&kept), "{kept}");
    }

    #[test]
    fn fua_is_durable_and_replaces_older_versions() {
        let mut medium = Medium::new(vec![0; 2 * SECTOR_BYTES], 0);
        write(&mut medium, 0, 1);
        let number = medium.submit(0, sector(2), true);
        medium.complete(number);
        assert_eq!(medium.image(CrashMode::None, &mut Rng::new(1), None)[0], 2);
        assert_eq!(medium.image(CrashMode::Random, &mut Rng::new(3), None)[0], 2);
    }

    #[test]
    fn a_failed_flush_loses_writes_and_the_next_one_succeeds() {
        let mut medium = Medium::new(vec![0; 64 * SECTOR_BYTES], 0);
        for at in 0..64 {
            write(&mut medium, at, 9);
        }
        let mark = medium.flush_mark();
        medium.flush_failed(&mark, &mut Rng::new(1));
        medium.flush(&medium.flush_mark());
        let lost = (0..64).filter(|&at| medium.durable()[at * SECTOR_BYTES] == 0).count();
        assert!((10..54).contains(&lost), "{lost}");
    }

    #[test]
    fn metadata_writes_can_be_kept_one_by_one() {
        let mut medium = Medium::new(vec![0; 4 * SECTOR_BYTES], 1);
        write(&mut medium, 0, 1);
        medium.submit(0, sector(2), true);
        assert_eq!(medium.uncertain_super_writes(), [0, 1]);
        let only = |number: u64| medium.image(CrashMode::None, &mut Rng::new(1), Some(&move |n| n == number))[0];
        assert_eq!((only(0), only(1), only(2)), (1, 2, 0));
    }
}
