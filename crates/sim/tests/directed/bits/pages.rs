//! Bitmaps of two pages, of which the first has eight sectors: header and bits go in several writes.
//! Owns: bits at the edges of sectors and pages, on every path that writes bits. Not here: when bits are set and cleared
//! (the parent); arrays this large are not in the swarm.

use super::super::re_adding::{former_member, return_now};
use super::*;
use uraid_sim::image::bits::bitmap_of;

/// Two pages: the first one holds 30,720 bits of one sector each, behind a header of 256 bytes.
const SIZE: u64 = 31_000;
/// The first and the last bit of a sector, of the first page, of the array.
const EDGES: [u64; 8] = [0, 2047, 2048, 6143, 6144, 30_719, 30_720, SIZE - 1];

/// A raid1 of two members, and a blank device if it is asked for.
fn rig_of_pages(spares: u16) -> Rig {
    let shape = Shape { level: 1, layout: 0, chunk: 0, slots: 2, size: SIZE, member_sizes: Vec::new() };
    let mut rng = Rng::new(11);
    let executor = Executor::new(rng.fork(), false);
    let all = usize::from(2 + spares);
    // The data begins behind both pages.
    let setup = Setup { spares, data_offsets: vec![32; all], data_sizes: vec![SIZE; all], ..Setup::plain(shape) };
    let setup = setup.with_bits(Some(Bits { chunk: 1, clear_after: CLEAR_AFTER, are_set: false, write_behind: 0 }));
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    // The guard knows bitmaps of one page.
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    for spare in 2..2 + spares {
        change_superblock(&rig, spare, |superblock| superblock.features = Features::default());
    }
    rig
}

/// The chunks whose bit is durable.
fn durable(rig: &Rig, disk: u16) -> Vec<u64> {
    let medium = rig.disk(disk).medium();
    let image = medium.durable();
    let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a place");
    let superblock = Superblock::parse(bytes, Sector(8), rig.disk(disk).geometry().size).expect("a superblock");
    let bitmap = bitmap_of(image, &superblock).expect("a bitmap");
    let (mut set, mut from) = (Vec::new(), 0);
    while let Some(chunk) = bitmap.next_set(from) {
        set.push(chunk);
        from = chunk + 1;
    }
    set
}

fn fail(rig: &Rig, live: &Live, slot: u16) {
    let array = live.arrays[0].clone();
    assert_eq!(all(rig, live, vec![async move { array.fail(SlotSet::EMPTY.with(Slot(slot))).await }]), [Ok(())]);
}

fn write_edges(rig: &Rig, live: &Live, byte: u8) {
    for at in EDGES {
        assert_eq!(all(rig, live, vec![write(rig, live, at, 1, byte)]), [Ok(())], "sector {at}");
    }
}

#[test]
fn a_bit_is_durable_with_its_write_wherever_in_the_pages_it_is_and_is_cleared_again() {
    let mut rig = rig_of_pages(0);
    let live = start_with(&mut rig, &[], &config());
    for at in EDGES {
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, at, 1, 1)]), [Ok(())]);
        assert!(durable(&rig, 0).contains(&at) && durable(&rig, 1).contains(&at), "sector {at}");
    }
    pause(&rig, &live, 4 * CLEAR_AFTER);
    assert_eq!((durable(&rig, 0), durable(&rig, 1)), (vec![], vec![]));
    // Two at once, over an edge.
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 30_719, 2, 2)]), [Ok(())]);
    assert_eq!(durable(&rig, 1), [30_719, 30_720]);
    assert!(rig.stop(&live).expect("legal"));
    assert_eq!((durable(&rig, 0), durable(&rig, 1)), (vec![], vec![]), "a clean stop clears all");
    rig.power_off();
}

#[test]
fn a_member_that_takes_a_slot_has_every_page() {
    let mut rig = rig_of_pages(1);
    let live = start_with(&mut rig, &[], &config());
    write_edges(&rig, &live, 1);
    fail(&rig, &live, 1);
    run(&rig, &live, || live.arrays[0].status().members[2] != MemberState::Spare);
    assert_eq!(durable(&rig, 2), EDGES, "when superblocks list it");
    rig.power_off();
}

/// Power fails at each of many steps of writes at the edges: copies that may differ have a bit.
#[test]
fn after_a_power_cut_every_copy_that_differs_has_a_bit() {
    for steps in (0..400).step_by(23) {
        let mut rig = rig_of_pages(0);
        let live = start_with(&mut rig, &[], &config());
        let writes: Vec<_> = EDGES.iter().map(|at| write(&rig, &live, *at, 1, 9)).collect();
        for write in writes {
            rig.executor.spawn(0, "write", async move {
                let _ = write.await;
            });
        }
        let end = rig.executor.now() + Duration::from_secs(1);
        rig.executor.run(steps, end, || false);
        let data = |slot: u16, at: u64| {
            let medium = rig.disk(slot).medium();
            medium.current()[(rig.setup.data_offsets[usize::from(slot)] + at) as usize * 512]
        };
        for at in EDGES.into_iter().filter(|at| data(0, *at) != data(1, *at)) {
            assert!(durable(&rig, 0).contains(&at) && durable(&rig, 1).contains(&at), "sector {at}, {steps} steps");
        }
        rig.power_off();
    }
}

/// Its own bits name what it was written apart, in any page.
#[test]
fn the_bits_that_a_returning_member_brings_are_set_in_every_page() {
    let mut rig = rig_of_pages(0);
    let live = start_with(&mut rig, &[], &config());
    write_edges(&rig, &live, 1);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    fail(&rig, &live, 1);
    let removing = super::super::joining::leaving(&live, 1);
    assert_eq!(all(&rig, &live, vec![removing]), [Ok(())]);
    // As if it had set them itself: bit n of a page is in byte 256 + n / 8 of the area.
    let mut image = rig.disk(1).medium().current().to_vec();
    for at in EDGES {
        image[(BITMAP_AT * 512 + 256 + at / 8) as usize] |= 1 << (at % 8);
    }
    rig.disk(1).replace(image);
    assert_eq!(durable(&rig, 1), EDGES);
    assert!(former_member(&rig, 1).bitmap.is_ok());
    // The recovery waits, so that no bit is cleared meanwhile.
    super::super::re_adding::set_speed(&rig, &live, uraid_engine::SpeedLimits { min: None, max: Some(1), share: None });
    return_now(&rig, &live, 1).expect("it lacks only what bits name");
    assert_eq!((durable(&rig, 0), durable(&rig, 1)), (EDGES.to_vec(), EDGES.to_vec()));
    rig.power_off();
}
