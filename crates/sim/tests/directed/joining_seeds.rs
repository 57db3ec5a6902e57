//! Members that fail, leave, join and are replaced in random order, with writes and power cuts in between.
//! Owns: a small swarm whose disks are in any slot; what each sector must hold. Not here: each step on its own
//! (`joining`), faults of members (the swarm of scenarios, whose members stay in their slots).

use super::joining::{assembled_anywhere, joining, leaving, rig_with_blank, wipe};
use super::spares::{CASES, content_of, wait};
use super::*;
use uraid_engine::RemoveError;
use uraid_engine::verdict::Operation;

const SEEDS: u64 = 120;
const ROUNDS: u64 = 4;

/// An array, and which disk each of its members is.
struct Run {
    rig: Rig,
    live: Live,
    rng: Rng,
    /// By index; `None`: it was removed.
    disks: Rc<RefCell<Vec<Option<u16>>>>,
    content: Vec<u8>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let (level, layout, slots) = *rng.pick(&CASES);
        let mut rig = rig_with_blank(level, layout, slots, rng.between(1, 3) as u16);
        rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
        let live = start(&mut rig, &[slots]);
        let content = vec![0; Sectors(rig.judge.model.array_size()).len_bytes()];
        let mut run = Run { rig, live, rng, disks: Rc::new(RefCell::new((0..slots).map(Some).collect())), content };
        (0..run.content.len() as u64 / 512).for_each(|at| run.write(at));
        run
    }

    fn write(&mut self, at: u64) {
        let byte = self.rng.between(1, 255) as u8;
        assert_eq!(all(&self.rig, &self.live, vec![write(&self.rig, &self.live, at, 1, byte)]), [Ok(())]);
        self.content[at as usize * 512..][..512].fill(byte);
    }

    fn states(&self) -> Vec<MemberState> {
        self.live.arrays[0].status().members
    }

    /// Begins a change of members.
    fn begin_change(&mut self) -> Option<u64> {
        let states = self.states();
        let failed: Vec<usize> =
            (0..states.len()).filter(|&index| matches!(states[index], MemberState::Faulty { .. })).collect();
        let is_free = |disk: &u16| !self.disks.borrow().contains(&Some(*disk));
        let free: Vec<u16> = (0..self.rig.judge.disks.len() as u16).filter(is_free).collect();
        let disks = self.disks.clone();
        let spare = states.contains(&MemberState::Spare);
        let second = states.iter().find_map(|state| state.written_slot().filter(|_| state.slot().is_none()));
        match self.rng.below(4) {
            0 if second.is_some() && self.rng.chance(1, 2) => {
                let slot = second.expect("it was asked");
                let array = self.live.arrays[0].clone();
                Some(self.rig.executor.spawn(0, "fail the second", async move {
                    // It may have the slot by now.
                    let _ = array.fail_replacement(slot).await;
                }))
            }
            0 if spare => {
                let slots = self.live.arrays[0].status().slots;
                let slot = Slot(self.rng.below(slots.into()) as u16);
                let array = self.live.arrays[0].clone();
                // Refused if the slot lacks a member, or its member is being replaced already.
                Some(self.rig.executor.spawn(0, "replace", async move {
                    let _ = array.replace(slot, None).await;
                }))
            }
            1 => {
                let usable: Vec<Slot> = self.live.arrays[0].status().usable.iter().collect();
                let slots = SlotSet::EMPTY.with(*self.rng.pick(&usable));
                let array = self.live.arrays[0].clone();
                // Refused if the array needs the member.
                Some(self.rig.executor.spawn(0, "fail", async move {
                    let _ = array.fail(slots).await;
                }))
            }
            2 if !failed.is_empty() => {
                let index = *self.rng.pick(&failed);
                let leaving = leaving(&self.live, index);
                Some(self.rig.executor.spawn(0, "leave", async move {
                    match leaving.await {
                        Ok(()) => disks.borrow_mut()[index] = None,
                        // It was replaced just now.
                        Err(error) => assert_eq!(error, RemoveError::Unrecorded),
                    }
                }))
            }
            _ if !free.is_empty() => {
                let disk = *self.rng.pick(&free);
                if self.rng.chance(1, 2) {
                    wipe(&self.rig, disk);
                }
                let joining = joining(&self.rig, &self.live, disk);
                disks.borrow_mut().push(Some(disk));
                assert_eq!(disks.borrow().len(), states.len() + 1, "it has the next index");
                Some(self.rig.executor.spawn(0, "join", async move {
                    joining.await.expect("there is room");
                }))
            }
            _ => None,
        }
    }

    /// Changes members beside a write.
    fn change(&mut self) {
        let Some(task) = self.begin_change() else { return };
        let at = self.rng.below(self.content.len() as u64 / 512);
        self.write(at);
        run(&self.rig, &self.live, || !self.rig.executor.is_running(task));
    }

    /// Power fails in the middle of a change. The disks that were failed or removed before stay away.
    fn cut_power(&mut self) {
        run(&self.rig, &self.live, || !self.live.arrays[0].status().is_dirty);
        // The superblocks say so a little later.
        let pause = self.rig.executor.clone();
        all(&self.rig, &self.live, vec![async move { pause.sleep(Duration::from_secs(1)).await }]);
        let away: BTreeSet<u16> = {
            let (states, disks) = (self.states(), self.disks.borrow());
            let works = |index: &usize| !matches!(states[*index], MemberState::Faulty { .. } | MemberState::Removed);
            let working: BTreeSet<u16> = (0..states.len()).filter(works).filter_map(|index| disks[index]).collect();
            (0..self.rig.judge.disks.len() as u16).filter(|disk| !working.contains(disk)).collect()
        };
        let before = self.disks.borrow().len();
        let task = self.begin_change();
        let (steps, executor) = (self.rng.below(120), self.rig.executor.clone());
        let end = executor.now() + Duration::from_secs(60);
        executor.run(steps, end, || task.is_none_or(|task| !executor.is_running(task)));
        // The one that was joining comes back, too.
        let joined: Vec<u16> =
            self.disks.borrow()[before.min(self.disks.borrow().len())..].iter().flatten().copied().collect();
        let disks = &self.rig.judge.disks;
        let images = (0u16..).zip(disks).map(|(at, disk)| {
            let image = disk.medium().durable().to_vec();
            let is_away = away.contains(&at) && !joined.contains(&at);
            Some(if is_away { vec![0; image.len()] } else { image })
        });
        let images: Vec<Option<Vec<u8>>> = images.collect();
        self.rig.judge.unreadable.borrow_mut().extend(0..disks.len() as u16);
        let mut after = self.rig.branch(images, self.rng.fork()).expect("whole superblocks");
        after.judge.is_over_budget.set(true);
        let plan = assembled_anywhere(&after);
        let live = after.boot(&plan, &Config::default()).expect("sizes agree");
        run(&after, &live, || live.started.get().is_some());
        assert_eq!(live.started.get(), Some(true));
        *self.disks.borrow_mut() = plan.members.iter().map(|member| Some(member.candidate as u16)).collect();
        std::mem::replace(&mut self.rig, after).power_off();
        self.live = live;
    }
}

#[test]
fn members_come_and_go_in_any_order_and_every_sector_stays() {
    let (mut joined, mut replaced) = (0, 0);
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..ROUNDS {
            for _ in 0..run.rng.between(1, 6) {
                run.change();
                if run.rng.chance(1, 2) {
                    wait(&run.rig, &run.live);
                }
            }
            assert!(content_of(&run.rig, &run.live) == run.content, "seed {seed}");
            joined += run.states().len();
            let is_replaced =
                |state: &MemberState| matches!(state, MemberState::Faulty { operation: Operation::Replaced, .. });
            replaced += run.states().iter().filter(|state| is_replaced(state)).count();
            run.cut_power();
            assert!(content_of(&run.rig, &run.live) == run.content, "seed {seed}, after a power cut");
        }
        run.rig.power_off();
    }
    assert!(joined as u64 > SEEDS * ROUNDS * 3, "members joined: {joined}");
    assert!(replaced as u64 > SEEDS / 4, "members were replaced: {replaced}");
}
