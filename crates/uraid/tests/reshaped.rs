//! Arrays whose reshape stopped half-way, on the real binary: copied as they are, told by `detail`, served by none.
//! Owns: arrays put together of two geometries. Not here: the decision (`engine::assemble`), md's own reshapes
//! (`xtask vm matrix --reshape`).

use crate::common::superblock::{FEATURES, Raw};
use crate::common::{MIB, Scratch, pattern};
use serde_json::json;
use std::fs;
use std::path::PathBuf;

const CHUNK: usize = 64 << 10;
const DATA: usize = MIB as usize;
const RESHAPE_ACTIVE: u32 = 1 << 2;
const NEW_OFFSET: u32 = 1 << 6;
const RAID_DISKS: usize = 92;
const NEW_LEVEL: usize = 100;
const POSITION: usize = 104;
const DELTA_DISKS: usize = 112;
const NEW_LAYOUT: usize = 116;
const NEW_CHUNK: usize = 120;
const NEW_OFFSET_BY: usize = 124;
const DEV_NUMBER: usize = 160;
const DEVICE_UUID: usize = 168;
const ROLES: usize = 256;
/// Left-symmetric.
const LAYOUT: u32 = 2;
/// Chunks of the array that lie below the position: whole stripes of two and of three data members.
const BELOW: usize = 12;

/// A raid5 of these slots, whose members hold the start of `data`.
fn filled(scratch: &Scratch, name: &str, slots: usize, data: &[u8]) -> Vec<PathBuf> {
    let members = scratch.members(name, slots, 5 * MIB);
    let options = format!("-l 5 -n {slots} -c 64K --data-offset 1M --assume-clean");
    scratch.create("home", &options, &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let size = data.len().min(client.size as usize);
    assert_eq!(client.write(0, &data[..size]).expect("connected"), 0);
    drop(client);
    served.stop().expect_done();
    members
}

/// A raid5 that was being reshaped between three and four members, and what it holds. `from`, `to`: slots.
fn half_way(scratch: &Scratch, from: usize, to: usize) -> (Vec<PathBuf>, Vec<u8>) {
    // Of three members: the smaller one of the two.
    let data = pattern(7, 8 * MIB as usize);
    let of = |slots| filled(scratch, &format!("m{from}-{to}-{slots}-"), slots, &data);
    let (old, new) = (of(from), of(to));
    let is_growing = to > from;
    let (below, above) = if is_growing { (&new, &old) } else { (&old, &new) };
    let rows = |slots: usize| BELOW / (slots - 1);
    let (end_below, begin_above) = (rows(below.len()) * CHUNK, rows(above.len()) * CHUNK);
    let contents = |members: &[PathBuf], slot: usize| members.get(slot).map(|path| fs::read(path).expect("a member"));
    let superblocks = contents(&old, 0).expect("slot 0");
    for slot in 0..from.max(to) {
        // A member that is new has superblocks like the others, which are changed below.
        let mut bytes = contents(&old, slot).unwrap_or_else(|| superblocks.clone());
        if let Some(other) = contents(below, slot) {
            bytes[DATA..DATA + end_below].copy_from_slice(&other[DATA..DATA + end_below]);
        }
        if let Some(other) = contents(above, slot) {
            bytes[DATA + begin_above..].copy_from_slice(&other[DATA + begin_above..]);
        }
        let path = scratch.path(&format!("half{from}-{to}-{slot}"));
        fs::write(&path, bytes).expect("a member");
        mark_reshaped(&path, slot as u32, from, to);
    }
    let members = (0..from.max(to)).map(|slot| scratch.path(&format!("half{from}-{to}-{slot}"))).collect();
    (members, data)
}

fn mark_reshaped(member: &std::path::Path, slot: u32, from: usize, to: usize) {
    let mut raw = Raw::read(member);
    let mut set = |field: usize, value: u32| raw.set(field, &value.to_le_bytes());
    set(FEATURES, RESHAPE_ACTIVE);
    set(RAID_DISKS, to as u32);
    set(NEW_LEVEL, 5);
    set(POSITION, (BELOW * CHUNK / 512) as u32);
    set(POSITION + 4, 0);
    set(DELTA_DISKS, (to as u32).wrapping_sub(from as u32));
    set(NEW_LAYOUT, LAYOUT);
    set(NEW_CHUNK, (CHUNK / 512) as u32);
    set(DEV_NUMBER, slot);
    set(DEVICE_UUID, slot + 1);
    for slot in 0..from.max(to) {
        raw.set(ROLES + 2 * slot, &(slot as u16).to_le_bytes());
    }
    raw.write();
}

#[test]
fn a_reshape_that_stopped_half_way_is_copied_from_both_geometries_and_changes_nothing() {
    for (from, to) in [(3, 4), (4, 3)] {
        let scratch = Scratch::new();
        let (members, data) = half_way(&scratch, from, to);
        let contents = || members.iter().map(|path| fs::read(path).expect("a member")).collect::<Vec<_>>();
        let before = contents();
        let out = scratch.path("rescued.img");
        let copy = |options: &[&str], members: &[PathBuf]| {
            let words = ["copy"].iter().chain(options).map(PathBuf::from);
            scratch.uraid(words.chain(members.iter().cloned()).chain([out.clone()]))
        };
        let (old, new) = (format!("raid5 of {from} slots"), format!("raid5 of {to} slots"));
        let said = [
            &format!("are read in the old geometry, {old}, left-symmetric, chunk 64K\n")[..],
            &format!("are read in the new geometry, {new}, left-symmetric, chunk 64K\n")[..],
            "--backup-file",
        ];
        copy(&[], &members).expect_done().expect_said(&said);
        assert!(fs::read(&out).expect("a copy") == data, "{from} to {to}");
        // Any one of the members is computed from the others, on both sides.
        for lost in 0..members.len() {
            let mut left = members.clone();
            left.remove(lost);
            copy(&["--run", "--overwrite"], &left).expect_done();
            assert!(fs::read(&out).expect("a copy") == data, "{from} to {to}, without {lost}");
        }
        assert!(contents() == before, "{from} to {to}: a member was written");
    }
}

#[test]
fn detail_tells_both_geometries_of_a_reshape_and_how_far_it_is_and_serve_refuses_it() {
    let scratch = Scratch::new();
    let (members, _) = half_way(&scratch, 3, 4);
    let words = |first: &[&str]| first.iter().map(PathBuf::from).chain(members.iter().cloned()).collect::<Vec<_>>();
    let done = scratch.uraid(words(&["detail"]));
    for line in [
        "State : clean, reshaping, Not Started \n",
        "Reshape Status : stopped at 9%, at sector 1536 of the array: below, the new geometry",
        "Delta Devices : 1, (3->4)",
        "Old Geometry : raid5 of 3 slots, left-symmetric, chunk 64K",
        "New Geometry : raid5 of 4 slots, left-symmetric, chunk 64K",
    ] {
        assert!(done.stdout.contains(line), "{line} is not in {}", done.stdout);
    }
    let json: serde_json::Value =
        serde_json::from_str(&scratch.uraid(words(&["detail", "--json"])).stdout).expect("JSON");
    let shape =
        |slots: u16| json!({"level": "raid5", "layout": "left-symmetric", "chunk_sectors": 128, "raid_devices": slots});
    let expected = json!({"position": 1536, "is_backwards": false, "delta_disks": 1, "from": shape(3), "to": shape(4)});
    assert_eq!(json["reshape"], expected);
    let refused = "the array is being reshaped, which only `uraid copy` reads so far";
    scratch.uraid(words(&["serve"])).expect_refused(&[refused]);
}

#[test]
fn a_reshape_whose_fields_are_impossible_is_refused_by_name() {
    let scratch = Scratch::new();
    let (members, _) = half_way(&scratch, 3, 4);
    for member in &members {
        let mut raw = Raw::read(member);
        raw.set(FEATURES, &(RESHAPE_ACTIVE | NEW_OFFSET).to_le_bytes());
        raw.set(NEW_OFFSET_BY, &(-4096_i32).to_le_bytes());
        raw.write();
    }
    let words = [PathBuf::from("copy")].into_iter().chain(members).chain([scratch.path("rescued.img")]);
    scratch.uraid(words).expect_refused(&["its reshape moves the data from sector 2048 by -4096 sectors"]);
}

/// One flipped bit of a healthy array.
#[test]
fn a_superblock_that_is_marked_as_being_reshaped_without_a_new_geometry_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 5 * MIB);
    scratch.create("home", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let mut raw = Raw::read(&members[1]);
    raw.set(FEATURES, &RESHAPE_ACTIVE.to_le_bytes());
    raw.write();
    let words = |verb: &str| [PathBuf::from(verb)].into_iter().chain(members.clone()).collect::<Vec<PathBuf>>();
    let copy = words("copy").into_iter().chain([scratch.path("rescued.img")]).collect::<Vec<PathBuf>>();
    let damaged = "its reshape fields are all zero, expected the new geometry: the superblock of a member is damaged";
    scratch.uraid(copy).expect_refused(&[damaged]);
    for verb in ["detail", "serve"] {
        let done = scratch.uraid(words(verb)).expect_refused(&[damaged]);
        assert!(!done.stderr.contains("start it with md"), "{}", done.stderr);
    }
}
