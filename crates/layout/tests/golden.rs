//! The map of every level against vectors of an independent model that was compared with the kernel's own functions.
//! Owns: linear, raid0, raid10, raid456. The head of each file explains its fields. Sectors are counted from each
//! member's data_offset.

use serde_json::Value;
use uraid_block::{ArraySector, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::{Layout, Level, Row, Spec};

fn file(text: &str) -> Value {
    serde_json::from_str(text).expect("a vector file is JSON")
}

fn cases(file: &Value) -> &Vec<Value> {
    file["cases"].as_array().expect("a vector file has cases")
}

fn int(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a number"))
}

fn ints(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(int).collect()
}

fn place(slot: u64, at: u64) -> (Slot, MemberSector) {
    (Slot(slot as u16), MemberSector(at))
}

fn sized(level: Level, case: &Value, layout: u32, chunk: u64) -> Layout {
    let member_sizes: Vec<Sectors> = ints(&case["sizes"]).into_iter().map(Sectors).collect();
    let raid_disks = member_sizes.len() as u16;
    let spec = Spec { level, layout, chunk: Sectors(chunk), raid_disks, size: Sectors::ZERO, member_sizes };
    Layout::new(&spec).expect("a vector's geometry is sound")
}

#[test]
fn linear_agrees_with_the_vectors() {
    let file = file(include_str!("vectors/linear.json"));
    let mut points = 0;
    for case in cases(&file) {
        let layout = sized(Level::Linear, case, 0, int(&case["rounding"]));
        assert_eq!(layout.array_size().0, int(&case["array_sectors"]));
        for point in case["map"].as_array().expect("a map") {
            let point = ints(point);
            assert_eq!(layout.copies(ArraySector(point[0])).as_slice(), [place(point[1], point[2])]);
            points += 1;
        }
    }
    println!("linear: {points} points");
}

#[test]
fn raid0_agrees_with_the_vectors() {
    let file = file(include_str!("vectors/raid0.json"));
    let mut points = 0;
    for case in cases(&file) {
        let chunk = int(&case["chunk"]);
        let layout = sized(Level::Raid0, case, int(&case["layout"]) as u32, chunk);
        let size = int(&case["array_sectors"]);
        assert_eq!(layout.array_size().0, size);
        for (index, point) in case["chunks"].as_array().expect("chunks").iter().enumerate() {
            let (point, start) = (ints(point), index as u64 * chunk);
            for offset in (0..chunk).filter(|offset| start + offset < size) {
                let found = layout.copies(ArraySector(start + offset));
                assert_eq!(found.as_slice(), [place(point[0], point[1] + offset)], "chunk {index} of {case}");
            }
            points += 1;
        }
        for zone in case["zones"].as_array().expect("zones") {
            let first = layout.copies(ArraySector(int(&zone[0])));
            assert_eq!(first[0].1, MemberSector(int(&zone[2])), "the zone's start on its members");
        }
    }
    println!("raid0: {points} chunks");
}

#[test]
fn raid10_agrees_with_the_vectors() {
    let file = file(include_str!("vectors/raid10.json"));
    let (mut points, mut refused) = (0, 0);
    for case in cases(&file) {
        let chunk = int(&case["chunk"]);
        let spec = Spec {
            level: Level::Raid10,
            layout: int(&case["layout"]) as u32,
            chunk: Sectors(chunk),
            raid_disks: int(&case["disks"]) as u16,
            size: Sectors(int(&case["dev_size"])),
            member_sizes: Vec::new(),
        };
        let layout = Layout::new(&spec);
        assert_eq!(layout.is_ok(), case["sane"].as_bool().expect("sane"), "{case}");
        let Ok(layout) = layout else {
            refused += 1;
            continue;
        };
        assert_eq!(layout.array_size().0, int(&case["array_sectors"]));
        assert_eq!(layout.member_used(Slot(0)).0, int(&case["used_dev_sectors"]));
        assert_eq!(u64::from(layout.copies_count()), int(&case["near"]) * int(&case["far"]));
        let last = layout.array_size().0 / chunk - 1;
        let first_ones = case["chunks"].as_array().expect("chunks").iter().enumerate();
        for (index, copies) in first_ones.map(|(i, c)| (i as u64, c)).chain([(last, &case["last_chunk"])]) {
            let expected: Vec<_> = ints(copies).chunks(2).map(|pair| place(pair[0], pair[1])).collect();
            assert_eq!(layout.copies(ArraySector(index * chunk)).as_slice(), expected, "chunk {index} of {case}");
            points += 1;
        }
    }
    assert_eq!(refused, 2, "the vectors hold two layouts that put two chunks on one place");
    println!("raid10: {points} chunks");
}

#[test]
fn raid4_raid5_raid6_agree_with_the_vectors() {
    let file = file(include_str!("vectors/raid456.json"));
    let mut points = 0;
    for case in cases(&file) {
        let level = Level::from_md(int(&case["level"]) as i32).expect("4, 5 or 6");
        let spec = Spec {
            level,
            layout: int(&case["layout"]) as u32,
            chunk: Sectors(8),
            raid_disks: int(&case["disks"]) as u16,
            size: Sectors(8 * 1000),
            member_sizes: Vec::new(),
        };
        let layout = Layout::new(&spec).expect("a vector's geometry is sound");
        let Layout::Parity(parity) = &layout else { panic!("{level} has rows") };
        let stripes = case["stripes"].as_array().expect("stripes");
        for (row, stripe) in stripes.iter().enumerate() {
            let map = parity.row(Row(row as u64));
            let data = ints(&stripe["data"]);
            assert_eq!(u64::from(map.parity.0), int(&stripe["p"]), "P of row {row} of {case}");
            assert_eq!(map.syndrome.map(|slot| u64::from(slot.0)), stripe["q"].as_u64(), "Q of row {row} of {case}");
            assert_eq!(map.data.iter().map(|slot| u64::from(slot.0)).collect::<Vec<_>>(), data, "row {row} of {case}");
            if level == Level::Raid6 {
                let exponents: Vec<u64> = map.exponents.iter().map(|&exponent| exponent.into()).collect();
                assert_eq!(exponents, ints(&stripe["exp"]), "exponents of row {row} of {case}");
            }
            for (k, &slot) in data.iter().enumerate() {
                let chunk = (row * data.len() + k) as u64;
                let found = layout.copies(ArraySector(chunk * 8 + 3));
                assert_eq!(found.as_slice(), [place(slot, row as u64 * 8 + 3)]);
            }
            points += 1;
        }
    }
    println!("raid456: {points} rows");
}

/// The kernel of 2020 discarded the second copy from 70656, the start of the chunk (LP 1907262): R1.
#[test]
fn the_raid10_discard_of_2020_leaves_both_copies_of_the_sectors_before_it() {
    use uraid_block::ArrayRange;
    let (start, size) = (70968, 191176);
    for chunk in [128, 1024] {
        let spec = Spec {
            level: Level::Raid10,
            layout: 0x102,
            chunk: Sectors(chunk),
            raid_disks: 2,
            size: Sectors(2093056),
            member_sizes: Vec::new(),
        };
        let Ok(Layout::Copies(layout)) = Layout::new(&spec) else { panic!("a sound geometry") };
        for (start, size) in [(start, size), (start, size - 5)] {
            let range = ArrayRange::new(ArraySector(start), Sectors(size));
            let runs = layout.plan_discard(range, &SlotSet::first(2)).runs;
            let runs: Vec<_> = runs.iter().map(|run| (run.slot.0, run.at.0, run.length.0)).collect();
            assert_eq!(runs, [(0, start, size), (1, start, size)]);
        }
    }
}
