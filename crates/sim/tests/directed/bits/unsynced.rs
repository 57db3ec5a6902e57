//! Rows that a crash left not in sync, as the bitmap says, and members that fail before the resync has reached them.
//! Owns: every stale block x every lost set, on every parity level: what is read, written, and left at the end. Not here:
//! arrays without a bitmap, whose every row is suspected (the swarm), starts that are refused (`engine`'s tests).

use super::super::spares::{content_of, fail, fill, wait};
use super::*;
use uraid_sim::reference::model::Place;

const LEVELS: [(i32, u32, u16); 6] = [(4, 0, 3), (5, 2, 2), (5, 2, 4), (5, 5, 3), (6, 2, 4), (6, 2, 5)];

/// The sector that was being written at the crash: its row is dirty.
const AT: u64 = 5;

struct Crashed {
    rig: Rig,
    live: Live,
    /// What the members hold, by sector of the array; a lost one may also be what it was before, or was to be.
    content: Vec<u8>,
    before: Vec<u8>,
    /// The sectors of the row.
    row: Vec<u64>,
}

fn rig_of(level: i32, layout: u32, slots: u16, shards: u16) -> Rig {
    let shape = Shape { level, layout, chunk: 2, slots, size: 12, member_sizes: Vec::new() };
    let mut rng = Rng::new(11);
    let executor = Executor::new(rng.fork(), false);
    let all = usize::from(slots) + 1;
    let setup =
        Setup { spares: 1, shards, data_offsets: vec![16; all], data_sizes: vec![12; all], ..Setup::plain(shape) };
    let setup = setup.with_bits(Some(Bits { chunk: 1, clear_after: CLEAR_AFTER, are_set: false, write_behind: 0 }));
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.is_over_budget.set(true);
    rig
}

fn bytes_of(content: &[u8], at: u64) -> &[u8] {
    &content[at as usize * 512..][..512]
}

/// An array after a crash in a write of `AT`, with its passes held. `stale`: the slot whose block of that row is not of the
/// same version as the others.
fn crashed(case: (i32, u32, u16), shards: u16, stale: Option<u16>) -> Crashed {
    let (level, layout, slots) = case;
    let mut rig = rig_of(level, layout, slots, shards);
    let live = start_with(&mut rig, &[slots], &config());
    let mut content = fill(&rig, &live);
    let array = live.arrays[0].clone();
    assert_eq!(all(&rig, &live, vec![async move { array.flush().await }]), [Ok(())]);
    pause(&rig, &live, 5 * CLEAR_AFTER);
    assert!(bits(&rig, 0).is_empty(), "all is clean");
    assert_eq!(all(&rig, &live, vec![write_as(&rig, &live, AT, 1, 99, Fua::Yes)]), [Ok(())]);
    content[AT as usize * 512..][..512].fill(99);
    let before = content.clone();
    let model = rig.judge.model.clone();
    let index = model.row_of[AT as usize];
    let row: Vec<u64> = {
        // Rows of the model are one sector high, those of the array a chunk.
        let chunk = |index: usize| model.rows[index].p.sector / 2;
        (0..model.array_size()).filter(|x| chunk(model.row_of[*x as usize]) == chunk(index)).collect()
    };
    let mut images: Vec<Option<Vec<u8>>> =
        rig.judge.disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
    if let Some(slot) = stale {
        let sector = model.rows[index].p.sector;
        let start = (rig.setup.data_offsets[usize::from(slot)] + sector) as usize * 512;
        images[usize::from(slot)].as_mut().expect("an image")[start..start + 512].fill(77);
        let of_slot = model.rows[index].data.iter().find(|(_, place, _)| *place == Place { slot, sector });
        if let Some((x, _, _)) = of_slot {
            content[*x as usize * 512..][..512].fill(77);
        }
    }
    rig.judge.unreadable.borrow_mut().extend(0..rig.judge.disks.len() as u16);
    let mut after = rig.branch(images, Rng::new(5)).expect("whole superblocks");
    rig.power_off();
    after.judge.is_over_budget.set(true);
    let images = after.judge.images(&mut after.rng);
    let Assembled::Plan(mut plan) = after.judge.assemble(&images, AssembleMode::Plain).expect("legal") else {
        panic!("{case:?}: all members are there");
    };
    plan.members.retain(|member| member.place != uraid_engine::Place::Spare);
    assert!(plan.is_dirty && plan.bitmap.is_some(), "{case:?}");
    let live = after.boot(&plan, &config()).expect("sizes agree");
    hold(&after, &live, true);
    run(&after, &live, || live.started.get().is_some());
    Crashed { rig: after, live, content, before, row }
}

fn hold(rig: &Rig, live: &Live, is_held: bool) {
    let array = live.arrays[0].clone();
    all(rig, live, vec![async move { array.pause_passes(is_held).await }]);
}

/// Reads every sector. Returns those that cannot be read; all others are right.
fn unreadable(crashed: &Crashed, case: &str) -> Vec<u64> {
    let (failed, wrong) = read_all(crashed);
    assert_eq!(wrong, [0; 0], "{case}");
    failed
}

/// Reads every sector. Returns those that cannot be read, and those that give what no member ever had there.
fn read_all(crashed: &Crashed) -> (Vec<u64>, Vec<u64>) {
    let Crashed { rig, live, content, before, .. } = crashed;
    let (mut failed, mut wrong) = (Vec::new(), Vec::new());
    for at in 0..rig.judge.model.array_size() {
        match all(rig, live, vec![read(live, at, 1)]).remove(0) {
            Ok(bytes) => {
                let is_right = bytes == bytes_of(content, at) || bytes == bytes_of(before, at);
                wrong.extend((!is_right).then_some(at));
            }
            Err(_) => failed.push(at),
        }
    }
    (failed, wrong)
}

/// The sectors of the dirty row whose member is lost.
fn lost_of_row(crashed: &Crashed, lost: &[u16]) -> Vec<u64> {
    let slot_of = |x: &u64| crashed.rig.judge.model.copies[*x as usize][0].slot;
    crashed.row.iter().copied().filter(|x| lost.contains(&slot_of(x))).collect()
}

fn lost_sets(level: i32, slots: u16) -> Vec<Vec<u16>> {
    let pairs = (0..slots).flat_map(|first| (first + 1..slots).map(move |second| vec![first, second]));
    (0..slots).map(|slot| vec![slot]).chain(pairs.filter(|_| level == 6)).collect()
}

/// Every stale block, and none, x every lost set, at one and three shards.
fn each(mut check: impl FnMut((i32, u32, u16), u16, Option<u16>, &[u16], &str)) {
    for case in LEVELS {
        let (level, layout, slots) = case;
        for lost in lost_sets(level, slots) {
            for stale in (0..slots).map(Some).chain([None]) {
                for shards in [1, 3] {
                    let text =
                        format!("raid{level} {layout:#x} of {slots}, {stale:?} stale, {lost:?} lost, {shards} shards");
                    check(case, shards, stale, &lost, &text);
                }
            }
        }
    }
}

#[test]
fn what_is_lost_in_a_dirty_row_is_an_error_and_never_wrong_before_and_after_the_resync() {
    let (mut refused, mut verified) = (0, 0);
    each(|case, shards, stale, lost, text| {
        let crashed = crashed(case, shards, stale);
        lost.iter().for_each(|slot| fail(&crashed.rig, &crashed.live, *slot));
        let of_row = lost_of_row(&crashed, lost);
        let failed = unreadable(&crashed, text);
        assert!(failed.iter().all(|at| of_row.contains(at)), "{text}: {failed:?} of {of_row:?}");
        // P and Q can tell one lost block; with one parity nothing can.
        if case.0 != 6 || lost.len() == 2 {
            assert_eq!(failed, of_row, "{text}");
        } else if stale.is_none() {
            assert_eq!(failed, [0; 0], "{text}: P and Q agree");
        }
        refused += failed.len();
        verified += of_row.len() - failed.len();
        hold(&crashed.rig, &crashed.live, false);
        wait(&crashed.rig, &crashed.live);
        assert_eq!(unreadable(&crashed, text), failed, "{text}: the resync tells no more");
        let array = crashed.live.arrays[0].clone();
        let stopped = all(&crashed.rig, &crashed.live, vec![async move { array.stop().await }]).remove(0);
        assert_eq!(stopped.is_ok(), failed.is_empty(), "{text}: it is called clean only if all is known");
        crashed.rig.power_off();
    });
    assert!(refused > 300 && verified > 30, "{refused} refused, {verified} verified");
}

#[test]
fn a_write_of_what_is_lost_makes_it_known_and_any_other_write_does_not() {
    each(|case, shards, stale, lost, text| {
        for resyncs in [false, true] {
            let mut crashed = crashed(case, shards, stale);
            lost.iter().for_each(|slot| fail(&crashed.rig, &crashed.live, *slot));
            if resyncs {
                hold(&crashed.rig, &crashed.live, false);
                wait(&crashed.rig, &crashed.live);
            }
            let failed = unreadable(&crashed, text);
            let others: Vec<u64> = crashed.row.iter().copied().filter(|at| !failed.contains(at)).collect();
            let put = |crashed: &mut Crashed, at: u64, byte: u8| {
                let answer = all(&crashed.rig, &crashed.live, vec![write(&crashed.rig, &crashed.live, at, 1, byte)]);
                assert_eq!(answer, [Ok(())], "{text}, sector {at}");
                crashed.content[at as usize * 512..][..512].fill(byte);
                crashed.before[at as usize * 512..][..512].fill(byte);
            };
            others.iter().for_each(|at| put(&mut crashed, *at, 201));
            let still = unreadable(&crashed, text);
            assert!(still.iter().all(|at| failed.contains(at)), "{text}: {still:?}");
            if case.0 != 6 {
                assert_eq!(still, failed, "{text}: their parity is as it was");
            }
            for at in still {
                put(&mut crashed, at, 202);
            }
            assert_eq!(unreadable(&crashed, text), [0; 0], "{text}: all is known");
            hold(&crashed.rig, &crashed.live, false);
            wait(&crashed.rig, &crashed.live);
            assert_eq!(content_of(&crashed.rig, &crashed.live), crashed.content, "{text}");
            crashed.rig.power_off();
        }
    });
}

/// A block that its member could not read in the resync, and gives again later, is not the one that parity was made for.
#[test]
fn what_a_member_could_not_read_in_the_resync_stays_unknown_to_the_others() {
    for case in LEVELS {
        let (level, layout, slots) = case;
        for unread in 0..slots {
            for lost in (0..slots).filter(|lost| *lost != unread) {
                let text = format!("raid{level} {layout:#x} of {slots}, {unread} unread, then {lost} lost");
                let crashed = crashed(case, 1, (0..slots).find(|slot| ![unread, lost].contains(slot)));
                let sector = crashed.rig.judge.model.rows[crashed.rig.judge.model.row_of[AT as usize]].p.sector;
                crashed.rig.disk(unread).add_unreadable([crashed.rig.setup.data_offsets[0] + sector]);
                hold(&crashed.rig, &crashed.live, false);
                wait(&crashed.rig, &crashed.live);
                crashed.rig.disk(unread).mend();
                fail(&crashed.rig, &crashed.live, lost);
                unreadable(&crashed, &text);
                crashed.rig.power_off();
            }
        }
    }
}

/// The resync makes Q fit what P gives for a block that a member cannot read. From then on they agree, and tell nothing
/// about the block: neither a write beside it nor a repair makes it known.
#[test]
fn parities_that_a_resync_made_agree_tell_nothing_of_an_unreadable_block() {
    let mut refused = 0;
    for case in LEVELS.into_iter().filter(|(level, ..)| *level == 6) {
        let (level, layout, slots) = case;
        for (unread, stale) in (0..slots).flat_map(|unread| (0..slots).map(move |stale| (unread, stale))) {
            if unread == stale {
                continue;
            }
            let text = format!("raid{level} {layout:#x} of {slots}, {unread} unread, {stale} stale");
            let mut crashed = crashed(case, 1, Some(stale));
            let model = crashed.rig.judge.model.clone();
            let row = &model.rows[model.row_of[AT as usize]];
            crashed.rig.disk(unread).add_unreadable([crashed.rig.setup.data_offsets[0] + row.p.sector]);
            hold(&crashed.rig, &crashed.live, false);
            wait(&crashed.rig, &crashed.live);
            for (x, place, _) in row.data.iter().filter(|(_, place, _)| place.slot != unread) {
                let answer = all(&crashed.rig, &crashed.live, vec![write(&crashed.rig, &crashed.live, *x, 1, 201)]);
                assert_eq!(answer, [Ok(())], "{text}, {place:?}");
                crashed.content[*x as usize * 512..][..512].fill(201);
                refused += unreadable(&crashed, &text).len();
            }
            let array = crashed.live.arrays[0].clone();
            array.begin_repair().expect("no other pass");
            run(&crashed.rig, &crashed.live, || array.checked().is_some());
            refused += unreadable(&crashed, &text).len();
            crashed.rig.power_off();
        }
    }
    assert!(refused > 30, "{refused} reads were refused");
}

/// The canary.
#[cfg(feature = "canaries")]
#[test]
fn blocks_that_are_computed_from_rows_not_in_sync_are_found() {
    use uraid_engine::canary::set;
    let mut found = 0;
    set(Some("ComputeUnsynced"));
    each(|case, shards, stale, lost, _| {
        let crashed = crashed(case, shards, stale);
        lost.iter().for_each(|slot| fail(&crashed.rig, &crashed.live, *slot));
        found += read_all(&crashed).1.len();
        crashed.rig.power_off();
    });
    set(None);
    assert!(found > 30, "{found} wrong sectors");
}
