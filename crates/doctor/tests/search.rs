//! The doctor against arrays laid out by hand: it finds the right order, and reports when the order cannot be found.
//! Owns: arrays in memory, with a file system's marks, text, tables, noise. Not here: members on disk (the tests of
//! `uraid copy --order`).

use uraid_block::{ArraySector, SECTOR_BYTES, Sector, Sectors};
use uraid_doctor::{Members, Question, Ranking, SearchError, Tally, Trial, Verdict, search};
use uraid_layout::{Layout, Level, Row, Spec, parse_layout};

const DATA: u64 = 64;
const CHUNK: u64 = 16;

/// Members as bytes, in the order of their slots.
struct Disks(Vec<Vec<u8>>);

impl Members for Disks {
    fn read(&mut self, index: usize, at: Sector, into: &mut [u8; SECTOR_BYTES]) -> bool {
        let start = at.0 as usize * SECTOR_BYTES;
        self.0[index].get(start..start + SECTOR_BYTES).map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

/// Sectors of data on each member.
const USED: u64 = 4096;

fn layout(level: Level, name: &str, slots: u16) -> Layout {
    with_chunk(level, name, slots, CHUNK)
}

fn with_chunk(level: Level, name: &str, slots: u16, chunk: u64) -> Layout {
    let is_by_size = matches!(level, Level::Raid0 | Level::Linear);
    let sizes = if is_by_size { vec![Sectors(USED); usize::from(slots)] } else { Vec::new() };
    let size = if is_by_size { Sectors::ZERO } else { Sectors(USED) };
    let layout = if name.is_empty() { 0 } else { parse_layout(level, name).expect("a layout") };
    let spec = Spec { level, layout, chunk: Sectors(chunk), raid_disks: slots, size, member_sizes: sizes };
    Layout::new(&spec).expect("a geometry")
}

/// Lays `bytes` out over the members, including parity.
fn lay_out(layout: &Layout, bytes: &[u8]) -> Disks {
    let slots = usize::from(layout.slots());
    let mut disks = vec![vec![0; (DATA + USED) as usize * SECTOR_BYTES]; slots];
    for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
        for (slot, on_member) in layout.copies(ArraySector(at as u64)) {
            let start = (DATA + on_member.0) as usize * SECTOR_BYTES;
            disks[slot.index()][start..start + SECTOR_BYTES].copy_from_slice(sector);
        }
    }
    if let Layout::Parity(layout) = layout {
        for row in 0..layout.rows_count() {
            let map = layout.row(Row(row));
            let range = (DATA + map.start.0) as usize * SECTOR_BYTES;
            let range = range..range + layout.chunk().len_bytes();
            let data: Vec<Vec<u8>> = map.data.iter().map(|slot| disks[slot.index()][range.clone()].to_vec()).collect();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            uraid_parity::generate_p(&mut disks[map.parity.index()][range.clone()], &data);
            if let Some(slot) = map.syndrome {
                uraid_parity::generate_q(&mut disks[slot.index()][range], &data, &map.exponents);
            }
        }
    }
    Disks(disks)
}

fn noise(length: usize) -> Vec<u8> {
    let mut next = random(1);
    (0..length).map(|_| next() as u8).collect()
}

fn random(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    }
}

/// Lines of the project's own pages and sources, in a shuffled order.
fn text(length: usize) -> Vec<u8> {
    // Only pages that do not change: a new line would move the seams.
    let pages = [include_str!("../../../LICENSE-APACHE"), include_str!("../../../LICENSE-MIT")];
    let lines: Vec<&str> = pages.iter().flat_map(|page| page.lines()).filter(|line| !line.is_empty()).collect();
    let mut next = random(2);
    let mut text = Vec::with_capacity(length + 200);
    while text.len() < length {
        text.extend_from_slice(lines[next() as usize % lines.len()].as_bytes());
        text.push(b'\n');
    }
    text.truncate(length);
    text
}

/// A table: records of 32 bytes that count, with something else in them.
fn table(length: usize) -> Vec<u8> {
    let mut next = random(3);
    let record = |nth: u32| {
        let mut record = [0; 32];
        record[..4].copy_from_slice(&nth.to_le_bytes());
        record[8..12].copy_from_slice(&next().to_le_bytes());
        record
    };
    (0..length as u32 / 32).flat_map(record).collect()
}

/// An xfs of 22 groups of 536 sectors, as far as its superblocks go.
fn with_xfs(bytes: &mut [u8]) {
    const GROUP_BLOCKS: u32 = 67;
    for (group, at) in (0_u32..).zip((0..bytes.len() - 4096).step_by(GROUP_BLOCKS as usize * 4096)).take(22) {
        let sector = &mut bytes[at..at + 1024];
        sector.fill(0);
        sector[..4].copy_from_slice(b"XFSB");
        sector[4..8].copy_from_slice(&4096_u32.to_be_bytes());
        sector[32..48].copy_from_slice(b"one file system!");
        sector[84..88].copy_from_slice(&GROUP_BLOCKS.to_be_bytes());
        sector[88..92].copy_from_slice(&22_u32.to_be_bytes());
        sector[102..104].copy_from_slice(&512_u16.to_be_bytes());
        sector[512..516].copy_from_slice(b"XAGF");
        sector[520..524].copy_from_slice(&group.to_be_bytes());
    }
}

/// Searches for the members in another order, among these layouts.
fn ask(disks: Disks, mixed: &[usize], layouts: &[Layout]) -> Result<Ranking, SearchError> {
    let member_sizes = vec![Sectors(USED); mixed.len()];
    let trial = |layout: &Layout| Trial {
        layout: layout.clone(),
        data_offset: Sector(DATA),
        member_sizes: member_sizes.clone(),
    };
    let trials = layouts.iter().map(trial).collect();
    let mut disks = Disks(mixed.iter().map(|at| disks.0[*at].clone()).collect());
    search(&Question { trials, members: mixed.len() }, &mut disks)
}

fn expected(mixed: &[usize], slots: usize) -> Vec<Option<usize>> {
    (0..slots).map(|slot| mixed.iter().position(|member| *member == slot)).collect()
}

#[test]
fn q_gives_the_order_of_a_raid6_except_between_layouts_with_the_same_q() {
    for (names, has_marks) in [(&["ls", "rs"][..], false), (&["ls", "la", "rs", "ra"][..], true)] {
        check_q_gives_the_order(names, has_marks);
    }
    // The symmetric and the asymmetric layout put P and Q into the same places.
    let layouts = ["ls", "la"].map(|name| layout(Level::Raid6, name, 5));
    let bytes = noise(layouts[0].array_size().len_bytes());
    let found = ask(lay_out(&layouts[0], &bytes), &[3, 1, 4, 0, 2], &layouts).expect("a question");
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.candidates[..2].iter().all(|best| best.order == expected(&[3, 1, 4, 0, 2], 5)));
}

fn check_q_gives_the_order(names: &[&str], has_marks: bool) {
    let layouts: Vec<Layout> = names.iter().map(|name| layout(Level::Raid6, name, 5)).collect();
    for (right, truth) in layouts.iter().enumerate() {
        let mut bytes = noise(truth.array_size().len_bytes());
        if has_marks {
            with_xfs(&mut bytes);
        }
        for mixed in [[0, 1, 2, 3, 4], [3, 1, 4, 0, 2]] {
            let found = ask(lay_out(truth, &bytes), &mixed, &layouts).expect("a question");
            assert_eq!(found.tried, 120 * names.len() as u64);
            let best = &found.candidates[0];
            assert_eq!((best.trial, &best.order), (right, &expected(&mixed, 5)), "{}", names[right]);
            assert_eq!(best.rows, Tally { agreed: 16, asked: 16 });
            assert!(matches!(found.verdict, Verdict::Ahead(lead) if lead >= 2));
        }
    }
}

#[test]
fn the_marks_of_a_file_system_give_the_order_of_a_raid5_also_with_one_missing() {
    let layouts: Vec<Layout> = ["ls", "la", "rs", "ra"].iter().map(|name| layout(Level::Raid5, name, 4)).collect();
    let mut bytes = noise(layouts[0].array_size().len_bytes());
    with_xfs(&mut bytes);
    for mixed in [&[2, 0, 3, 1][..], &[3, 2, 0][..]] {
        let found = ask(lay_out(&layouts[0], &bytes), mixed, &layouts).expect("a question");
        let best = &found.candidates[0];
        assert_eq!((best.trial, &best.order), (0, &expected(mixed, 4)), "{found:?}");
        assert_eq!(best.marks.agreed, best.marks.asked);
        assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
    }
}

#[test]
fn the_marks_give_the_order_of_a_raid0() {
    let truth = layout(Level::Raid0, "", 3);
    let mut bytes = noise(truth.array_size().len_bytes());
    with_xfs(&mut bytes);
    let found = ask(lay_out(&truth, &bytes), &[2, 0, 1], &[truth]).expect("a question");
    assert_eq!(found.candidates[0].order, expected(&[2, 0, 1], 3));
    assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
}

#[test]
fn a_raid5_without_marks_or_without_data_is_undecided() {
    let truth = layout(Level::Raid5, "ls", 4);
    for bytes in [noise(truth.array_size().len_bytes()), vec![0; 512]] {
        let found = ask(lay_out(&truth, &bytes), &[0, 1, 2, 3], std::slice::from_ref(&truth)).expect("a question");
        assert_eq!((found.tried, found.verdict), (24, Verdict::Undecided));
    }
    let raid6 = layout(Level::Raid6, "ls", 4);
    let found = ask(lay_out(&raid6, &[0; 512]), &[0, 1, 2, 3], &[raid6]).expect("a question");
    assert_eq!((found.candidates[0].rows.asked, found.verdict), (0, Verdict::Undecided));
}

#[test]
fn marks_of_hostile_bytes_are_bounded() {
    let truth = layout(Level::Raid5, "ls", 3);
    for first in [&b"XFSB"[..], &b"EFI PART"[..], &b""[..]] {
        let mut bytes = vec![0xff; truth.array_size().len_bytes()];
        bytes[..first.len()].copy_from_slice(first);
        bytes[512..512 + first.len()].copy_from_slice(first);
        bytes[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        bytes[1024 + 24..1024 + 28].copy_from_slice(&[6, 0, 0, 0]);
        let found = ask(lay_out(&truth, &bytes), &[0, 1, 2], std::slice::from_ref(&truth)).expect("a question");
        assert!(found.candidates.iter().all(|candidate| candidate.marks.asked <= 5 * 64));
    }
}

#[test]
fn impossible_searches_are_refused() {
    let large = layout(Level::Raid6, "ls", 9);
    let all: Vec<usize> = (0..9).collect();
    assert!(matches!(ask(lay_out(&large, &[1; 512]), &all, &[large]), Err(SearchError::Slots { found: 9, .. })));
    let raid5 = layout(Level::Raid5, "ls", 4);
    assert!(matches!(ask(lay_out(&raid5, &[1; 512]), &[0, 1], &[raid5]), Err(SearchError::TooFew { found: 2, .. })));
}

/// The layouts that are tried when none is known.
fn common(slots: u16, chunk: u64) -> Vec<Layout> {
    ["ls", "la", "rs", "ra"].iter().map(|name| with_chunk(Level::Raid5, name, slots, chunk)).collect()
}

#[test]
fn text_gives_the_order_and_layout_of_a_raid5_without_marks() {
    for (right, truth) in common(4, CHUNK).iter().enumerate() {
        let bytes = text(truth.array_size().len_bytes());
        let mixed = [2, 0, 3, 1];
        let found = ask(lay_out(truth, &bytes), &mixed, &common(4, CHUNK)).expect("a question");
        let best = &found.candidates[0];
        assert_eq!((best.trial, &best.order), (right, &expected(&mixed, 4)), "{found:?}");
        assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
        assert!(best.seams.asked > 100 && best.seams.agreed * 10 > best.seams.asked * 9, "{best:?}");
        assert!(best.parity.asked > 20 && best.parity.agreed * 10 > best.parity.asked * 9, "{best:?}");
    }
}

#[test]
fn text_gives_the_order_of_a_degraded_raid5() {
    let truth = layout(Level::Raid5, "ls", 4);
    let bytes = text(truth.array_size().len_bytes());
    let mixed = [3, 0, 2];
    let found = ask(lay_out(&truth, &bytes), &mixed, &common(4, CHUNK)).expect("a question");
    assert_eq!((found.candidates[0].trial, &found.candidates[0].order), (0, &expected(&mixed, 4)), "{found:?}");
    assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
}

#[test]
fn text_and_tables_give_the_order_of_a_raid0_and_of_a_raid4() {
    for (level, content) in [
        (Level::Raid0, text as fn(usize) -> Vec<u8>),
        (Level::Raid0, table),
        (Level::Raid4, text),
        (Level::Raid4, table),
    ] {
        let truth = layout(level, "", 4);
        let bytes = content(truth.array_size().len_bytes());
        let mixed = [2, 0, 3, 1];
        let found = ask(lay_out(&truth, &bytes), &mixed, std::slice::from_ref(&truth)).expect("a question");
        assert_eq!(found.candidates[0].order, expected(&mixed, 4), "{level} {found:?}");
        assert!(matches!(found.verdict, Verdict::Ahead(_)), "{level} {found:?}");
    }
}

#[test]
fn text_gives_the_chunk_size_out_of_five() {
    let chunks = [8, 16, 32, 64, 128];
    for right in [8, 32, 128] {
        for (level, name) in [(Level::Raid5, "ls"), (Level::Raid0, "")] {
            let truth = with_chunk(level, name, 4, right);
            let bytes = text(truth.array_size().len_bytes());
            let tried: Vec<Layout> = chunks.iter().map(|chunk| with_chunk(level, name, 4, *chunk)).collect();
            let mixed = [1, 0, 3, 2];
            let found = ask(lay_out(&truth, &bytes), &mixed, &tried).expect("a question");
            let best = &found.candidates[0];
            let layout = &tried[best.trial];
            assert_eq!((layout.chunk().0, &best.order), (right, &expected(&mixed, 4)), "{level} {found:?}");
            assert!(matches!(found.verdict, Verdict::Ahead(_)), "{level} {right} {:?}", &found.candidates[..2]);
        }
    }
}

#[test]
fn random_bytes_are_undecided_on_levels_whose_order_only_content_shows() {
    for (level, name, slots) in [
        (Level::Raid0, "", 4),
        (Level::Raid4, "", 4),
        (Level::Raid5, "ls", 4),
        (Level::Raid5, "ls", 3),
        (Level::Raid10, "n2", 4),
        (Level::Raid10, "f2", 4),
        (Level::Raid10, "o2", 4),
        (Level::Linear, "", 3),
    ] {
        let tried: Vec<Layout> = match level {
            Level::Linear => vec![layout(level, name, slots)],
            Level::Raid0 | Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
                [8, 16, 64].map(|chunk| with_chunk(level, name, slots, chunk)).to_vec()
            }
        };
        let bytes = noise(layout(level, name, slots).array_size().len_bytes());
        let mixed: Vec<usize> = (0..usize::from(slots)).rev().collect();
        let found = ask(lay_out(&layout(level, name, slots), &bytes), &mixed, &tried).expect("a question");
        let best = &found.candidates[0];
        assert_eq!(found.verdict, Verdict::Undecided, "{level} {name} {:?}", &found.candidates[..2]);
        assert!(best.seams.asked < 5 && best.parity.asked == 0, "{level} {best:?}");
    }
}

#[test]
fn a_wrong_geometry_is_never_called_sure() {
    let mixed = [2, 0, 3, 1];
    // Another chunk, another level, members of two arrays.
    let raid0 = layout(Level::Raid0, "", 4);
    let of_raid0 = || lay_out(&raid0, &text(raid0.array_size().len_bytes()));
    let raid5 = layout(Level::Raid5, "ls", 4);
    let of_raid5 = || lay_out(&raid5, &text(raid5.array_size().len_bytes()));
    let mut two = of_raid5();
    two.0[2] = lay_out(&raid5, &noise(raid5.array_size().len_bytes())).0[2].clone();
    for (what, disks, tried) in [
        ("chunk halved", of_raid0(), vec![with_chunk(Level::Raid0, "", 4, CHUNK / 2)]),
        ("chunk doubled", of_raid0(), vec![with_chunk(Level::Raid0, "", 4, CHUNK * 2)]),
        ("chunk halved", of_raid5(), common(4, CHUNK / 2)),
        ("chunk doubled", of_raid5(), common(4, CHUNK * 2)),
        ("raid0 as raid5", of_raid0(), common(4, CHUNK)),
        ("raid5 as raid6", of_raid5(), vec![layout(Level::Raid6, "ls", 4)]),
        ("raid5 as raid10", of_raid5(), vec![layout(Level::Raid10, "n2", 4)]),
        ("raid5 as raid0", of_raid5(), vec![raid0.clone()]),
        ("a member of another array", two, common(4, CHUNK)),
    ] {
        let found = ask(disks, &mixed, &tried).expect("a question");
        let is_sure = matches!(found.verdict, Verdict::Ahead(_));
        assert!(!is_sure, "{what}: {:?} {:?}", found.verdict, &found.candidates[..2]);
    }
}

#[test]
fn copies_give_the_pairs_of_a_raid10_and_text_their_order() {
    for name in ["n2", "f2", "o2"] {
        let truth = layout(Level::Raid10, name, 4);
        let bytes = text(truth.array_size().len_bytes());
        let mixed = [2, 0, 3, 1];
        let tried = ["n2", "f2", "o2"].map(|name| layout(Level::Raid10, name, 4));
        let found = ask(lay_out(&truth, &bytes), &mixed, &tried).expect("a question");
        let best = &found.candidates[0];
        assert_eq!(tried[best.trial].spec().layout, truth.spec().layout, "{name} {found:?}");
        // Of two members that hold the same, the lower number comes first.
        let order = if name == "n2" { vec![Some(1), Some(3), Some(0), Some(2)] } else { expected(&mixed, 4) };
        assert_eq!(best.order, order, "{name} {found:?}");
        assert!(matches!(found.verdict, Verdict::Ahead(_)), "{name} {:?}", &found.candidates[..2]);
    }
    // Random bytes: the pairs are known, their order is not.
    let truth = layout(Level::Raid10, "n2", 4);
    let found = ask(lay_out(&truth, &noise(truth.array_size().len_bytes())), &[2, 0, 3, 1], &[truth]);
    let found = found.expect("a question");
    let leading: Vec<&Vec<Option<usize>>> = found.leading().iter().map(|candidate| &candidate.order).collect();
    let pairs = [[1, 3, 0, 2], [0, 2, 1, 3]].map(|order| order.map(Some).to_vec());
    assert!(leading.len() == 2 && pairs.iter().all(|pair| leading.contains(&pair)), "{leading:?}");
}

#[test]
fn a_raid10_without_one_of_each_pair_is_still_searched() {
    let truth = layout(Level::Raid10, "n2", 4);
    let bytes = text(truth.array_size().len_bytes());
    let found = ask(lay_out(&truth, &bytes), &[3, 0], &[truth]).expect("a question");
    let best = &found.candidates[0];
    assert_eq!(best.order, [Some(1), None, Some(0), None], "{found:?}");
}

#[test]
fn the_order_of_a_raid1_does_not_matter_and_a_member_that_differs_is_named() {
    let truth = layout(Level::Raid1, "", 3);
    let bytes = text(truth.array_size().len_bytes());
    let found = ask(lay_out(&truth, &bytes), &[2, 0, 1], std::slice::from_ref(&truth)).expect("a question");
    assert_eq!((found.tried, found.strays), (1, vec![0; 3]));
    assert!(matches!(found.verdict, Verdict::Ahead(_)));
    let mut disks = lay_out(&truth, &bytes);
    disks.0[1] = lay_out(&truth, &noise(bytes.len())).0[1].clone();
    let found = ask(disks, &[2, 0, 1], &[truth]).expect("a question");
    assert_eq!((found.strays, found.verdict), (vec![0, 0, 16], Verdict::Contradicted));
}

#[test]
fn marks_give_the_order_of_a_linear_array_of_unequal_members() {
    let sizes = [Sectors(4096), Sectors(3000), Sectors(2048)];
    let spec = |sizes: &[Sectors]| Spec {
        level: Level::Linear,
        layout: 0,
        chunk: Sectors::ZERO,
        raid_disks: 3,
        size: Sectors::ZERO,
        member_sizes: sizes.to_vec(),
    };
    let truth = Layout::new(&spec(&sizes)).expect("a geometry");
    let mut bytes = noise(truth.array_size().len_bytes());
    with_xfs(&mut bytes);
    let disks = lay_out(&truth, &bytes);
    let mixed = [2, 0, 1];
    let member_sizes: Vec<Sectors> = mixed.iter().map(|at| sizes[*at]).collect();
    let layout = Layout::new(&spec(&member_sizes)).expect("a geometry");
    let trials = vec![Trial { layout, data_offset: Sector(DATA), member_sizes }];
    let mut disks = Disks(mixed.iter().map(|at| disks.0[*at].clone()).collect());
    let found = search(&Question { trials, members: 3 }, &mut disks).expect("a question");
    assert_eq!(found.candidates[0].order, expected(&mixed, 3), "{found:?}");
    assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
}

#[test]
fn the_remaining_parity_gives_the_order_of_a_degraded_raid6() {
    let truth = layout(Level::Raid6, "ls", 5);
    let bytes = noise(truth.array_size().len_bytes());
    let mixed = [3, 1, 4, 0];
    let tried = ["ls", "rs"].map(|name| layout(Level::Raid6, name, 5));
    let found = ask(lay_out(&truth, &bytes), &mixed, &tried).expect("a question");
    let best = &found.candidates[0];
    assert_eq!((best.trial, &best.order, best.rows.agreed), (0, &expected(&mixed, 5), 16), "{found:?}");
    assert!(matches!(found.verdict, Verdict::Ahead(_)), "{:?}", &found.candidates[..2]);
}

#[test]
fn the_data_offset_is_found_by_the_first_data() {
    let truth = layout(Level::Raid5, "ls", 4);
    let bytes = text(truth.array_size().len_bytes());
    let mixed = [2, 0, 3, 1];
    let disks = lay_out(&truth, &bytes);
    let mut disks = Disks(mixed.iter().map(|at| disks.0[*at].clone()).collect());
    let trial = |data_offset: u64| {
        let size = Sectors(USED + DATA - data_offset - 512);
        let spec = Spec { size, ..truth.spec().clone() };
        Trial {
            layout: Layout::new(&spec).expect("a geometry"),
            data_offset: Sector(data_offset),
            member_sizes: Vec::new(),
        }
    };
    // Of these, 0 and 128 are whole rotations away from the right one.
    let trials = [0, 16, DATA, 128, 72].map(trial).to_vec();
    let found = search(&Question { trials, members: 4 }, &mut disks).expect("a question");
    assert_eq!((found.candidates[0].trial, &found.candidates[0].order), (2, &expected(&mixed, 4)), "{found:?}");
    assert!(matches!(found.verdict, Verdict::Ahead(_)), "{:?}", &found.candidates[..2]);
}

/// A GPT with one partition: two tables that name each other, as far as they are looked at.
fn with_gpt(bytes: &mut [u8], partition: u64) {
    let last = (bytes.len() / SECTOR_BYTES - 1) as u64;
    for (own, other, entries) in [(1, last, 2), (last, 1, last - 32)] {
        let header = &mut bytes[own as usize * SECTOR_BYTES..][..SECTOR_BYTES];
        header.fill(0);
        header[..8].copy_from_slice(b"EFI PART");
        header[24..32].copy_from_slice(&own.to_le_bytes());
        header[32..40].copy_from_slice(&other.to_le_bytes());
        header[56..72].copy_from_slice(b"one disk of many");
        let table = &mut bytes[entries as usize * SECTOR_BYTES..][..SECTOR_BYTES];
        table.fill(0);
        table[..16].copy_from_slice(b"a file system's ");
        table[32..40].copy_from_slice(&partition.to_le_bytes());
    }
}

#[test]
fn a_gpt_and_the_file_system_in_its_partition_give_the_order() {
    const PARTITION: u64 = 100;
    for (level, name) in [(Level::Raid5, "ls"), (Level::Raid0, "")] {
        let truth = layout(level, name, 3);
        let mut bytes = noise(truth.array_size().len_bytes());
        bytes[..SECTOR_BYTES].fill(0);
        let mixed = [1, 2, 0];
        // The table alone shows the first and the last member; a partition shows the rest.
        with_gpt(&mut bytes, PARTITION);
        let alone = ask(lay_out(&truth, &bytes), &mixed, std::slice::from_ref(&truth)).expect("a question");
        assert!(alone.leading().iter().any(|candidate| candidate.order == expected(&mixed, 3)), "{alone:?}");
        assert_eq!(alone.candidates[0].marks, Tally { agreed: 2, asked: 2 });
        with_xfs(&mut bytes[PARTITION as usize * SECTOR_BYTES..]);
        with_gpt(&mut bytes, PARTITION);
        let found = ask(lay_out(&truth, &bytes), &mixed, std::slice::from_ref(&truth)).expect("a question");
        assert_eq!(found.candidates[0].order, expected(&mixed, 3), "{found:?}");
        assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
    }
}
