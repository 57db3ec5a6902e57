//! The slow model agrees with the layout crate, for every shape that the simulator draws.
//! Owns: the comparison, in both directions. Not here: either of the two.

use uraid_block::{ArraySector, Sectors};
use uraid_layout::{Layout, Level, Spec};
use uraid_sim::random::rng::Rng;
use uraid_sim::reference::model::Model;
use uraid_sim::setup::Setup;

fn layout_of(setup: &Setup) -> Layout {
    let shape = &setup.shape;
    Layout::new(&Spec {
        level: Level::from_md(shape.level).expect("a level of md"),
        layout: shape.layout,
        chunk: Sectors(shape.chunk),
        raid_disks: shape.slots,
        size: Sectors(shape.size),
        member_sizes: shape.member_sizes.iter().map(|size| Sectors(*size)).collect(),
    })
    .expect("a shape that md could have")
}

#[test]
fn every_copy_and_every_parity_is_where_layout_says() {
    for seed in 0..3000 {
        let setup = Setup::draw(&mut Rng::new(seed));
        let (layout, model) = (layout_of(&setup), Model::new(setup.shape.clone()));
        assert_eq!(layout.array_size(), Sectors(model.array_size()), "{:?}", setup.shape);
        for (x, places) in model.copies.iter().enumerate() {
            let copies = layout.copies(ArraySector(x as u64));
            let found: Vec<(u16, u64)> = copies.iter().map(|(slot, at)| (slot.0, at.0)).collect();
            let expected: Vec<(u16, u64)> = places.iter().map(|place| (place.slot, place.sector)).collect();
            assert_eq!(found, expected, "sector {x} of {:?}", setup.shape);
        }
        for (index, row) in model.rows.iter().enumerate() {
            let Layout::Parity(layout) = &layout else { panic!("{:?} has rows", setup.shape) };
            let map = layout.row(uraid_layout::Row(index as u64 / setup.shape.chunk));
            assert_eq!(map.parity.0, row.p.slot, "{:?}", setup.shape);
            assert_eq!(map.syndrome.map(|slot| slot.0), row.q.map(|place| place.slot), "{:?}", setup.shape);
            let data: Vec<u16> = row.data.iter().map(|(_, place, _)| place.slot).collect();
            assert_eq!(map.data.iter().map(|slot| slot.0).collect::<Vec<_>>(), data, "{:?}", setup.shape);
            if row.q.is_some() {
                let exponents: Vec<u32> = row.data.iter().map(|(_, _, exponent)| *exponent).collect();
                let found: Vec<u32> = map.exponents.iter().map(|exponent| u32::from(*exponent)).collect();
                assert_eq!(found, exponents, "{:?}", setup.shape);
            }
        }
    }
}
