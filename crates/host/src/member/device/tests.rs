//! A claimed file over a ring that the test controls.
//! Owns: tests of `device`. Not here: the ring (`fake_ring`), short and refused transfers (`file`), real rings (`tests/`).

use super::*;
use crate::BadSectors;
use crate::member::Claimed;
use crate::member::fake_ring::{Disk, drive};
use std::fs::File;
use std::path::PathBuf;
use uraid_block::buffer::SMALL_BLOCK_BYTES;

const SIZE: Sectors = Sectors(256);

/// A claimed file as a member, on a fake ring over `disk`; deleted with the test.
struct Rig {
    path: PathBuf,
    file: File,
    disk: Rc<Disk>,
    driver: Rc<Driver>,
    member: Member,
}

impl Rig {
    fn new(name: &str) -> Rig {
        Rig::sized(name, SIZE)
    }

    fn sized(name: &str, size: Sectors) -> Rig {
        let path = std::env::temp_dir().join(format!("uraid-device-{}-{name}", std::process::id()));
        let file = File::create(&path).expect("a file");
        file.set_len(size.bytes()).expect("room");
        let disk = Disk::new(size.len_bytes());
        let driver = disk.driver();
        let Claimed(claim) = Claimed::open(&path, Access::ReadWrite).expect("claimed");
        let member = Member::new(claim, driver.clone());
        Rig { path, file, disk, driver, member }
    }

    /// Cuts the last sector off the file while the next operation is in flight.
    fn shrink_at_next_end(&self) {
        let file = self.file.try_clone().expect("a descriptor");
        self.disk.at_next_end(-1, move |_| file.set_len(SIZE.bytes() - 512).expect("shrunk"));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn page() -> WritePieces {
    Arena::new(2, 0).take_zeroed(SMALL_BLOCK_BYTES).expect("room").freeze()
}

fn all() -> Range {
    Range::new(Sector(0), SIZE)
}

const GONE: Result<(), IoError> = Err(IoError { kind: ErrorKind::Gone, os: 0 });

#[test]
fn a_write_with_fua_is_stable_when_answered_and_others_after_a_flush() {
    let rig = Rig::new("fua");
    for (at, fua) in [(0, Fua::Yes), (8, Fua::No)] {
        assert_eq!(drive(&rig.driver, rig.member.write(Sector(at), page(), fua)), Ok(()));
        assert_eq!(rig.disk.is_stable(at as usize * 512..at as usize * 512 + 4096), fua == Fua::Yes);
    }
    assert_eq!(drive(&rig.driver, rig.member.flush()), Ok(()));
    assert!(rig.disk.is_stable(0..8192));
    rig.disk.refuse_durable_writes_from(0);
    assert_eq!(drive(&rig.driver, rig.member.write(Sector(64), page(), Fua::Yes)), Ok(()));
    assert!(rig.disk.is_stable(32 << 10..36 << 10) && rig.disk.syncs() == 2);
}

#[test]
fn zeroes_are_written_as_data_when_fallocate_is_refused() {
    let long = ZEROES_BYTES as u64 / 512;
    for (start, length) in [(0, 1), (1, long - 1), (long, long), (2 * long + 3, 7), (0, 2 * long + 5)] {
        let rig = Rig::sized("written-zeroes", Sectors(3 * long));
        rig.member.zero_way.set(ZeroWay::Buffers);
        let range = Range::new(Sector(start), Sectors(length));
        assert_eq!(drive(&rig.driver, rig.member.write_zeroes(range)), Ok(()));
        assert_eq!(drive(&rig.driver, rig.member.flush()), Ok(()));
        for sector in 0..3 * long {
            let bytes = sector as usize * 512..(sector as usize + 1) * 512;
            let is_inside = (start..start + length).contains(&sector);
            assert_eq!(rig.disk.is_stable(bytes), is_inside, "{start}+{length}: sector {sector}");
        }
    }
}

#[test]
fn a_file_that_shrinks_during_any_operation_is_gone() {
    let rig = Rig::new("zeroes");
    rig.shrink_at_next_end();
    assert_eq!(drive(&rig.driver, rig.member.write_zeroes(all())), GONE);
    let rig = Rig::new("write");
    rig.shrink_at_next_end();
    assert_eq!(drive(&rig.driver, rig.member.write(Sector(0), page(), Fua::No)), GONE);
    let rig = Rig::new("holes");
    rig.shrink_at_next_end();
    assert_eq!(drive(&rig.driver, rig.member.allocation(all())).map(drop), GONE);
}

#[test]
fn every_operation_reaches_the_last_sector_and_none_goes_beyond() {
    let rig = Rig::new("bounds");
    let last = SIZE.0 - 8;
    for (at, is_inside) in [(last, true), (last + 1, false), (SIZE.0, false), (u64::MAX, false), (u64::MAX - 7, false)]
    {
        let range = Range { start: Sector(at), length: Sectors(8) };
        let expected = if is_inside { Ok(()) } else { Err(IoError { kind: ErrorKind::OutOfRange, os: 0 }) };
        let into = || Arena::new(2, 0).take(SMALL_BLOCK_BYTES).expect("room");
        assert_eq!(drive(&rig.driver, rig.member.read(Sector(at), into())).map(drop), expected, "read at {at}");
        assert_eq!(drive(&rig.driver, rig.member.write(Sector(at), page(), Fua::No)), expected, "write at {at}");
        assert_eq!(drive(&rig.driver, rig.member.write_zeroes(range)), expected, "zeroes at {at}");
        assert_eq!(drive(&rig.driver, rig.member.discard(range)), expected, "discard at {at}");
        assert_eq!(drive(&rig.driver, rig.member.allocation(range)).map(drop), expected, "allocation at {at}");
    }
}

#[test]
fn an_error_on_a_listed_bad_sector_is_not_counted_as_a_device_error() {
    let path = std::env::temp_dir().join(format!("uraid-device-{}-listed", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(SIZE.bytes())).expect("room");
    let pretended = BadSectors::new([Range::new(Sector(8), Sectors(1))]);
    let target = crate::Target { bad: pretended, ..crate::Target::whole(&path).expect("UTF-8") };
    let mut claimed = Claimed::open_target(&target, Access::ReadWrite).expect("claimed");
    claimed.add_bad(BadSectors::new([Range::new(Sector(16), Sectors(2))]));
    let disk = Disk::new(SIZE.len_bytes());
    let Claimed(claim) = claimed;
    let member = Member::new(claim, disk.driver());
    let errors = [8, 16].map(|at| member.check_bad(Range::new(Sector(at), Sectors(1))).expect_err("bad"));
    assert_eq!(errors.map(|error| error.kind), [ErrorKind::Media; 2]);
    assert_eq!(errors.map(IoError::is_of_device), [true, false], "the list was read, the device was not");
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn two_request_futures_fit_an_allocation_that_the_allocator_caches() {
    let rig = Rig::new("futures");
    let (read, write) = (rig.member.read(Sector(0), ReadPieces::new()), rig.member.write(Sector(0), page(), Fua::No));
    // A small row write waits for two members at a time. The engine adds 176 bytes to each future. The allocator caches
    // blocks of up to 1,032 bytes; larger futures made such a write 5 % slower.
    assert!(size_of_val(&read) <= 208 && size_of_val(&write) <= 256, "{} {}", size_of_val(&read), size_of_val(&write));
}

/// The process may have no right to open the file again when its next array flushes it.
#[test]
fn a_member_leaves_its_flush_description_to_the_next_one_of_its_claim() {
    let rig = Rig::new("descriptions");
    let claim = rig.member.claim.clone();
    let kept = || claim.lock_reopened().len();
    let second = Member::new(claim.clone(), rig.driver.clone());
    assert_eq!(kept(), 0, "each has its own");
    drop(second);
    assert_eq!(kept(), 1);
    Claimed(claim.clone()).open_for(2);
    assert_eq!(kept(), 2, "only what is missing is opened");
    let third = Member::new(claim.clone(), rig.driver.clone());
    assert_eq!(kept(), 1);
    drop(third);
    assert_eq!(kept(), 2);
}
