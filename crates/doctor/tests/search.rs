//! The doctor against arrays laid out by hand: it finds the order that is there, and says so when nothing tells it.
//! Owns: arrays in memory, with a file system's marks. Not here: members on disk (the tests of `uraid copy --order`).

use uraid_block::{ArraySector, SECTOR_BYTES, Sector, Sectors};
use uraid_doctor::{Members, Question, Ranking, SearchError, Trial, Verdict, search};
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

fn layout(level: Level, name: &str, slots: u16) -> Layout {
    let sizes = if level == Level::Raid0 { vec![Sectors(4096); usize::from(slots)] } else { Vec::new() };
    let size = if level == Level::Raid0 { Sectors::ZERO } else { Sectors(4096) };
    let layout = if name.is_empty() { 0 } else { parse_layout(level, name).expect("a layout") };
    let spec = Spec { level, layout, chunk: Sectors(CHUNK), raid_disks: slots, size, member_sizes: sizes };
    Layout::new(&spec).expect("a geometry")
}

/// Lays `bytes` out, parity and all.
fn lay_out(layout: &Layout, bytes: &[u8]) -> Disks {
    let slots = usize::from(layout.slots());
    let mut disks = vec![vec![0; (DATA + 4096) as usize * SECTOR_BYTES]; slots];
    for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
        for (slot, on_member) in layout.copies(ArraySector(at as u64)) {
            let start = (DATA + on_member.0) as usize * SECTOR_BYTES;
            disks[slot.index()][start..start + SECTOR_BYTES].copy_from_slice(sector);
        }
    }
    if layout.level().is_parity() {
        for row in 0..layout.rows_count() {
            let map = layout.row(Row(row));
            let range = (DATA + map.start.0) as usize * SECTOR_BYTES;
            let range = range..range + CHUNK as usize * SECTOR_BYTES;
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
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
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

/// The members in another order, searched for with these layouts.
fn ask(disks: Disks, mixed: &[usize], layouts: &[Layout]) -> Result<Ranking, SearchError> {
    let trials = layouts.iter().map(|layout| Trial { layout: layout.clone(), data_offset: Sector(DATA) }).collect();
    let mut disks = Disks(mixed.iter().map(|at| disks.0[*at].clone()).collect());
    search(&Question { trials, members: mixed.len() }, &mut disks)
}

fn expected(mixed: &[usize], slots: usize) -> Vec<Option<usize>> {
    (0..slots).map(|slot| mixed.iter().position(|member| *member == slot)).collect()
}

#[test]
fn q_tells_the_order_of_a_raid6_and_marks_the_layouts_that_are_the_same_to_q() {
    for (names, has_marks) in [(&["ls", "rs"][..], false), (&["ls", "la", "rs", "ra"][..], true)] {
        q_tells(names, has_marks);
    }
    // The symmetric and the asymmetric layout put P and Q into the same places.
    let layouts = ["ls", "la"].map(|name| layout(Level::Raid6, name, 5));
    let bytes = noise(layouts[0].array_size().len_bytes());
    let found = ask(lay_out(&layouts[0], &bytes), &[3, 1, 4, 0, 2], &layouts).expect("a question");
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.candidates[..2].iter().all(|best| best.order == expected(&[3, 1, 4, 0, 2], 5)));
}

fn q_tells(names: &[&str], has_marks: bool) {
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
            assert_eq!((best.rows, found.rows_asked), (16, 16));
            assert!(matches!(found.verdict, Verdict::Ahead(lead) if lead >= 2));
        }
    }
}

#[test]
fn the_marks_of_a_file_system_tell_the_order_of_a_raid5_also_with_one_missing() {
    let layouts: Vec<Layout> = ["ls", "la", "rs", "ra"].iter().map(|name| layout(Level::Raid5, name, 4)).collect();
    let mut bytes = noise(layouts[0].array_size().len_bytes());
    with_xfs(&mut bytes);
    for mixed in [&[2, 0, 3, 1][..], &[3, 2, 0][..]] {
        let found = ask(lay_out(&layouts[0], &bytes), mixed, &layouts).expect("a question");
        let best = &found.candidates[0];
        assert_eq!((best.trial, &best.order), (0, &expected(mixed, 4)), "{found:?}");
        assert_eq!(best.marks, best.marks_asked);
        assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
    }
}

#[test]
fn the_marks_tell_the_order_of_a_raid0() {
    let truth = layout(Level::Raid0, "", 3);
    let mut bytes = noise(truth.array_size().len_bytes());
    with_xfs(&mut bytes);
    let found = ask(lay_out(&truth, &bytes), &[2, 0, 1], &[truth]).expect("a question");
    assert_eq!(found.candidates[0].order, expected(&[2, 0, 1], 3));
    assert!(matches!(found.verdict, Verdict::Ahead(_)), "{found:?}");
}

#[test]
fn data_without_a_mark_on_a_raid5_is_undecided_and_so_is_nothing_at_all() {
    let truth = layout(Level::Raid5, "ls", 4);
    for bytes in [noise(truth.array_size().len_bytes()), vec![0; 512]] {
        let found = ask(lay_out(&truth, &bytes), &[0, 1, 2, 3], std::slice::from_ref(&truth)).expect("a question");
        assert_eq!((found.tried, found.verdict), (24, Verdict::Undecided));
    }
    let raid6 = layout(Level::Raid6, "ls", 4);
    let found = ask(lay_out(&raid6, &[0; 512]), &[0, 1, 2, 3], &[raid6]).expect("a question");
    assert_eq!((found.rows_asked, found.verdict), (0, Verdict::Undecided));
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
        assert!(found.candidates.iter().all(|candidate| candidate.marks_asked <= 64));
    }
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let mirror = layout(Level::Raid1, "", 2);
    assert!(matches!(ask(lay_out(&mirror, &[1; 512]), &[0, 1], &[mirror]), Err(SearchError::Level { found: "raid1" })));
    let large = layout(Level::Raid6, "ls", 9);
    let all: Vec<usize> = (0..9).collect();
    assert!(matches!(ask(lay_out(&large, &[1; 512]), &all, &[large]), Err(SearchError::Slots { found: 9, .. })));
    let raid5 = layout(Level::Raid5, "ls", 4);
    assert!(matches!(ask(lay_out(&raid5, &[1; 512]), &[0, 1], &[raid5]), Err(SearchError::TooFew { found: 2, .. })));
}
