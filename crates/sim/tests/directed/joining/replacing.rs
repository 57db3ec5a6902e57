//! A member that is copied to another one, which then takes its slot.
//! Owns: what the new member holds, failures of either and power cuts at each step of it, sectors that cannot be read.
//! Not here: assembly of such arrays (`uraid-engine`'s own tests), replacements in random order (`member_seeds`), what takes its time (`delayed`).

mod delayed;

use super::*;
use uraid_engine::{PassKind, ReplaceError};
use uraid_format::Features;

/// A filled array with a spare, which has an index.
struct Ready {
    rig: Rig,
    live: Live,
    content: Vec<u8>,
    spare: usize,
}

/// A copy takes many windows.
fn config() -> Config {
    Config { pass_window: Sectors(2), ..Config::default() }
}

fn ready(level: i32, layout: u32, slots: u16, shards: u16) -> Ready {
    let mut rig = rig_with_blank(level, layout, slots, shards);
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    let live = start_with(&mut rig, &[slots], &config());
    let content = fill(&rig, &live);
    let spare = join(&rig, &live, slots).expect("it joins");
    Ready { rig, live, content, spare }
}

impl Ready {
    fn replacing(&self, slot: u16) -> impl Future<Output = Result<usize, ReplaceError>> + 'static {
        let array = self.live.arrays[0].clone();
        async move { array.replace(Slot(slot), None).await }
    }

    fn replace(&self, slot: u16) -> Result<usize, ReplaceError> {
        all(&self.rig, &self.live, vec![self.replacing(slot)]).remove(0)
    }

    /// Begins a replacement and runs this many steps of it. Returns whether it was over before.
    fn replace_for(&self, slot: u16, steps: u64) -> bool {
        let (replacing, array) = (self.replacing(slot), self.live.arrays[0].clone());
        let task = self.rig.executor.spawn(0, "replace", async move {
            let _ = replacing.await;
            let _ = array.wait(|_| {}).await;
        });
        let executor = self.rig.executor.clone();
        let end = executor.now() + Duration::from_secs(60);
        executor.run(steps, end, || !executor.is_running(task));
        !executor.is_running(task)
    }

    fn state(&self, index: usize) -> MemberState {
        self.live.arrays[0].status().members[index]
    }

    fn wait_until_clean(&self) {
        let array = self.live.arrays[0].clone();
        run(&self.rig, &self.live, || !array.status().is_dirty);
    }
}

#[test]
fn a_spare_holds_all_of_the_member_that_it_replaces_and_has_its_slot() {
    for (level, layout, slots) in CASES {
        for shards in [1, 3] {
            for victim in 0..slots {
                let case = format!("raid{level} {layout:#x} of {slots}, slot {victim}, {shards} shards");
                let mut ready = ready(level, layout, slots, shards);
                // Writes before, between and after the windows.
                let writes: Vec<_> =
                    (0..8).map(|at| write(&ready.rig, &ready.live, 2 * at, 1, 200 + at as u8)).collect();
                let rig = &ready.rig;
                for (at, writing) in writes.into_iter().enumerate() {
                    let pause = rig.executor.clone();
                    rig.executor.spawn(0, "write", async move {
                        pause.sleep(Duration::from_micros(50 * at as u64)).await;
                        writing.await.expect("all members work");
                    });
                    ready.content[2 * at * 512..][..512].fill(200 + at as u8);
                }
                assert_eq!(ready.replace(victim), Ok(ready.spare), "{case}");
                wait(&ready.rig, &ready.live);
                assert_eq!(ready.state(ready.spare), MemberState::Active(Slot(victim)), "{case}");
                let replaced = ready.state(victim.into());
                assert!(matches!(replaced, MemberState::Faulty { .. }), "{case}: {replaced:?}");
                let pause = ready.rig.executor.clone();
                all(&ready.rig, &ready.live, vec![async move { pause.sleep(Duration::from_secs(1)).await }]);
                assert_eq!(leave(&ready.rig, &ready.live, victim.into()), Ok(()), "{case}");
                need(&ready.rig, &ready.live, victim);
                assert!(content_of(&ready.rig, &ready.live) == ready.content, "{case}");
                ready.rig.power_off();
            }
        }
    }
}

#[test]
fn whichever_member_fails_at_any_step_nothing_is_lost() {
    for (level, layout, slots) in [(1, 0, 2), (10, 0x102, 3), (5, 2, 3), (6, 2, 4)] {
        let (mut promoted, mut given_up, mut replaced) = (0, 0, 0);
        for fails_first in [true, false] {
            for steps in (0..).step_by(7) {
                let case = format!("raid{level} of {slots}, {steps} steps, first: {fails_first}");
                let mut ready = ready(level, layout, slots, 1);
                let is_over = ready.replace_for(1, steps);
                let (array, spare) = (ready.live.arrays[0].clone(), ready.spare);
                let failing = async move {
                    // Refused if it has no second member, or the superblocks do not list it yet.
                    let _ = match fails_first {
                        true => array.fail(SlotSet::EMPTY.with(Slot(1))).await,
                        false => array.fail_replacement(Slot(1)).await,
                    };
                };
                all(&ready.rig, &ready.live, vec![failing]);
                let writes: Vec<_> = (0..4).map(|at| write(&ready.rig, &ready.live, 3 * at, 1, 99)).collect();
                assert!(all(&ready.rig, &ready.live, writes).iter().all(Result::is_ok), "{case}");
                (0..4).for_each(|at| ready.content[3 * at * 512..][..512].fill(99));
                wait(&ready.rig, &ready.live);
                match (ready.state(1), ready.state(spare)) {
                    (MemberState::Faulty { .. }, MemberState::Active(_)) if fails_first => promoted += 1,
                    (MemberState::Faulty { .. }, MemberState::Active(_)) => replaced += 1,
                    (MemberState::Active(_), MemberState::Faulty { .. }) => given_up += 1,
                    _ => {}
                }
                assert!(content_of(&ready.rig, &ready.live) == ready.content, "{case}");
                if live_slots(&ready).contains(Slot(1)) {
                    need(&ready.rig, &ready.live, 1);
                    assert!(content_of(&ready.rig, &ready.live) == ready.content, "{case}");
                }
                ready.rig.power_off();
                if is_over {
                    break;
                }
            }
        }
        assert!(promoted > 0 && given_up > 0 && replaced > 0, "raid{level}: {promoted}, {given_up}, {replaced}");
    }
}

fn live_slots(ready: &Ready) -> SlotSet {
    ready.live.arrays[0].status().usable
}

/// What the disks hold if power fails now, and the array that starts with it.
fn after_power_cut(ready: &Ready, seed: u64) -> (Rig, Live, Option<Place>) {
    let disks = &ready.rig.judge.disks;
    let images = disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
    ready.rig.judge.unreadable.borrow_mut().extend(0..disks.len() as u16);
    let mut after = ready.rig.branch(images, Rng::new(seed)).expect("whole superblocks");
    after.judge.is_over_budget.set(true);
    let plan = assembled_anywhere(&after);
    assert_eq!(plan.read_only, None, "it takes writes");
    let spare = disks.len() - 1;
    let place = plan.members.iter().find(|member| member.candidate == spare).map(|member| member.place);
    let live = after.boot(&plan, &config()).expect("sizes agree");
    run(&after, &live, || live.started.get().is_some());
    assert_eq!(live.started.get(), Some(true));
    (after, live, place)
}

/// With and without a write under way. It may be there or not; but then all members must agree.
#[test]
fn whenever_power_fails_the_copy_goes_on_and_nothing_is_lost() {
    for (level, layout, slots) in [(1, 0, 2), (10, 0x102, 3), (5, 2, 3), (6, 2, 4)] {
        for writes in [false, true] {
            let (mut as_spare, mut copying, mut continued, mut has_slot) = (0, 0, 0, 0);
            for steps in (0..).step_by(3) {
                let case = format!("raid{level} of {slots}, {steps} steps, writes: {writes}");
                let ready = ready(level, layout, slots, 1);
                ready.wait_until_clean();
                let writing = write(&ready.rig, &ready.live, 4, 1, 99);
                let pause = ready.rig.executor.clone();
                if writes {
                    ready.rig.executor.spawn(0, "write", async move {
                        pause.sleep(Duration::from_micros(10 * steps)).await;
                        let _ = writing.await;
                    });
                }
                let is_over = ready.replace_for(1, steps);
                let (after, live, place) = after_power_cut(&ready, steps);
                match place {
                    Some(Place::Replacing { below, .. }) if below.is_zero() => copying += 1,
                    Some(Place::Replacing { .. }) => continued += 1,
                    Some(Place::Slot(_)) => has_slot += 1,
                    Some(Place::Spare) => as_spare += 1,
                    Some(Place::Recovering { .. }) | None => panic!("{case}: {place:?}"),
                }
                let mut found = content_of(&after, &live);
                wait(&after, &live);
                assert!(content_of(&after, &live) == found, "{case}: a sector changed");
                need(&after, &live, 1);
                assert!(content_of(&after, &live) == found, "{case}: members differ");
                if writes && found[4 * 512] == 99 {
                    found[4 * 512..5 * 512].copy_from_slice(&ready.content[4 * 512..5 * 512]);
                }
                assert!(found == ready.content, "{case}");
                after.power_off();
                ready.rig.power_off();
                if is_over {
                    break;
                }
            }
            let seen = [as_spare, copying, has_slot];
            assert!(seen.iter().all(|count| *count > 0), "raid{level}, writes {writes}: {seen:?}, {continued}");
        }
    }
}

#[test]
fn what_the_member_cannot_read_comes_from_the_others() {
    for (level, layout, slots) in CASES {
        for sector in [0, 5, 23] {
            let ready = ready(level, layout, slots, 1);
            ready.rig.disk(1).add_latent([DATA_AT + sector]);
            ready.replace(1).expect("there is a spare");
            wait(&ready.rig, &ready.live);
            let case = format!("raid{level} {layout:#x} of {slots}, sector {sector}");
            assert_eq!(ready.state(ready.spare), MemberState::Active(Slot(1)), "{case}");
            need(&ready.rig, &ready.live, 1);
            assert!(content_of(&ready.rig, &ready.live) == ready.content, "{case}");
            ready.rig.power_off();
        }
    }
}

#[test]
fn what_no_member_can_read_ends_the_copy_and_the_first_one_stays() {
    for (level, layout, slots) in [(1, 0, 2), (5, 2, 3), (10, 0x102, 4)] {
        let ready = ready(level, layout, slots, 1);
        (0..slots).for_each(|disk| ready.rig.disk(disk).add_latent([DATA_AT + 4]));
        ready.replace(1).expect("there is a spare");
        wait(&ready.rig, &ready.live);
        assert_eq!(ready.state(1), MemberState::Active(Slot(1)), "raid{level}");
        assert!(matches!(ready.state(ready.spare), MemberState::Replacing { .. }), "raid{level}");
        ready.rig.power_off();
    }
}

#[test]
fn a_clean_stop_in_the_middle_goes_on_where_it_was() {
    for (level, layout, slots) in [(1, 0, 2), (10, 0x102, 4), (5, 2, 4), (6, 2, 5)] {
        let ready = ready(level, layout, slots, 1);
        ready.wait_until_clean();
        let hang = Effect::Hang(Duration::from_secs(5));
        ready.rig.disk(slots).add_fault(Fault { victim: Target::Writes, after: 5, effect: hang });
        ready.replace(1).expect("there is a spare");
        let array = ready.live.arrays[0].clone();
        let pause = ready.rig.executor.clone();
        let stopping = async move {
            pause.sleep(Duration::from_secs(1)).await;
            array.stop().await
        };
        assert_eq!(all(&ready.rig, &ready.live, vec![stopping]), [Ok(())], "raid{level}");
        let (after, live, place) = after_power_cut(&ready, 3);
        let Some(Place::Replacing { below, .. }) = place else { panic!("raid{level}: {place:?}") };
        assert!(!below.is_zero(), "raid{level}: it begins anew");
        assert_eq!(wait(&after, &live), [PassKind::Replace]);
        need(&after, &live, 1);
        assert!(content_of(&after, &live) == ready.content, "raid{level}");
        after.power_off();
        ready.rig.power_off();
    }
}

#[test]
fn what_cannot_be_replaced_is_refused_and_nothing_changes() {
    let ready = ready(5, 2, 3, 1);
    let events = ready.live.arrays[0].status().events;
    let array = ready.live.arrays[0].clone();
    let with = async move { array.replace(Slot(1), Some(0)).await };
    assert_eq!(all(&ready.rig, &ready.live, vec![with]), [Err(ReplaceError::NotASpare)]);
    assert_eq!(ready.live.arrays[0].status().events, events);
    assert_eq!(leave(&ready.rig, &ready.live, ready.spare), Ok(()));
    assert_eq!(ready.replace(1), Err(ReplaceError::NoSpare));
    fail(&ready.rig, &ready.live, 1);
    assert_eq!(ready.replace(1), Err(ReplaceError::NotInSync { slot: Slot(1) }));
    ready.rig.power_off();
}

/// Whether the array has its content if power fails when the spare has the slot.
fn survives_power_cut_at_the_end() -> bool {
    let ready = ready(5, 2, 3, 1);
    ready.wait_until_clean();
    ready.replace(1).expect("there is a spare");
    let array = ready.live.arrays[0].clone();
    run(&ready.rig, &ready.live, || array.status().members[ready.spare] == MemberState::Active(Slot(1)));
    let pause = ready.rig.executor.clone();
    all(&ready.rig, &ready.live, vec![async move { pause.sleep(Duration::from_millis(1)).await }]);
    let (after, live, place) = after_power_cut(&ready, 1);
    assert_eq!(place, Some(Place::Slot(Slot(1))), "the superblocks say so");
    let is_whole = content_of(&after, &live) == ready.content;
    after.power_off();
    ready.rig.power_off();
    is_whole
}

#[test]
fn a_member_that_replaced_another_one_was_flushed() {
    assert!(survives_power_cut_at_the_end());
}

/// The canary of that order.
#[cfg(feature = "canaries")]
#[test]
fn a_member_that_has_its_slot_before_it_was_flushed_is_found() {
    use uraid_engine::canary::set;
    set(Some("ReplaceUnflushed"));
    let is_whole = survives_power_cut_at_the_end();
    set(None);
    assert!(!is_whole);
}

/// The superblocks of a member that replaces another one, in md's bytes.
#[test]
fn superblocks_say_what_md_says() {
    let ready = ready(1, 0, 2, 1);
    let hang = Effect::Hang(Duration::from_secs(1));
    ready.rig.disk(2).add_fault(Fault { victim: Target::Writes, after: 2, effect: hang });
    ready.replace(1).expect("there is a spare");
    let superblock = |disk: u16| {
        let bytes: [u8; 4096] = ready.rig.disk(disk).medium().durable()[8 * 512..16 * 512].try_into().expect("a place");
        Superblock::parse(&bytes, Sector(8), Sectors(1000)).expect("a good one")
    };
    let both = Features::REPLACEMENT.with(Features::RECOVERY_OFFSET);
    // While the array is dirty, md must not take it for a member.
    let array = ready.live.arrays[0].clone();
    assert!(array.status().is_dirty && !superblock(2).features.intersects(both));
    assert_eq!(superblock(0).roles[..3], [Role::Slot(Slot(0)), Role::Slot(Slot(1)), Role::Spare]);
    run(&ready.rig, &ready.live, || !array.status().is_dirty && superblock(2).features.contains(both));
    assert_eq!(superblock(0).roles[..3], [Role::Slot(Slot(0)), Role::Slot(Slot(1)), Role::Slot(Slot(1))]);
    wait(&ready.rig, &ready.live);
    run(&ready.rig, &ready.live, || !array.status().is_dirty);
    assert!(!superblock(2).features.intersects(both));
    assert_eq!(superblock(0).roles[..3], [Role::Slot(Slot(0)), Role::Faulty, Role::Slot(Slot(1))]);
    assert!(superblock(1).events + 2 <= superblock(0).events, "out of reach of `mdadm --assemble --force`");
    ready.rig.power_off();
}
