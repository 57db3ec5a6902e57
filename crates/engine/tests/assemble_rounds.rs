//! Assembly over all of them: every partial round of superblock writes of four members, every order of candidates.
//! Owns: a small model of who writes which superblock when. Not here: single situations (tests/assemble.rs).
//! Invariant checked: what a durable round left out is never taken, whatever of the next rounds landed.

use std::collections::BTreeSet;
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, Place, StartPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_format::{Role, Superblock};
use uraid_layout::{Layout, Level};

const MEMBERS: usize = 4;
const DEVICE: Sectors = Sectors(40960);
const LEVELS: [Level; 4] = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];

/// What the array in memory knows, what is on the disks, and what must never be forgotten.
#[derive(Clone)]
struct Model {
    layout: Layout,
    events: u64,
    is_dirty: bool,
    active: BTreeSet<usize>,
    /// What each disk holds; `None` for a torn superblock.
    disks: Vec<Option<Superblock>>,
    /// Left out by a round that reached all others: these may lack answered writes.
    stale: BTreeSet<usize>,
    /// A dirty mark landed everywhere, and no clean one has been begun: writes may be half done.
    must_be_dirty: bool,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Fail(usize),
    Dirty,
    Clean,
}

const ACTIONS: [Action; 6] =
    [Action::Fail(0), Action::Fail(1), Action::Fail(2), Action::Fail(3), Action::Dirty, Action::Clean];

/// What became of one write of the last round.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Landed {
    Old,
    New,
    Torn,
}

impl Model {
    fn new(level: Level) -> Model {
        let chunk = if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) };
        let options = CreateOptions { chunk, assume_clean: true, ..CreateOptions::new(level, MEMBERS as u16, [7; 16]) };
        let device = |n: usize| NewMember::Device { size: DEVICE, uuid: [n as u8 + 1; 16] };
        let made = create(&options, &(0..MEMBERS).map(device).collect::<Vec<_>>()).unwrap();
        Model {
            layout: made.layout,
            events: 0,
            is_dirty: false,
            active: (0..MEMBERS).collect(),
            disks: made.superblocks,
            stale: BTreeSet::new(),
            must_be_dirty: false,
        }
    }

    fn can_serve(&self, members: &BTreeSet<usize>) -> bool {
        self.layout.can_serve(&members.iter().map(|at| Slot(*at as u16)).collect::<SlotSet>())
    }

    /// Whether the engine would do this now: it never records the loss of a member that it cannot do without.
    fn allows(&self, action: Action) -> bool {
        match action {
            Action::Fail(member) => {
                let mut rest = self.active.clone();
                rest.remove(&member) && self.can_serve(&rest)
            }
            Action::Dirty => !self.is_dirty,
            Action::Clean => self.is_dirty,
        }
    }

    /// Changes the memory; the round that records it is [`Model::write`].
    fn begin(&mut self, action: Action) {
        self.events += 1;
        match action {
            Action::Fail(member) => {
                self.active.remove(&member);
            }
            Action::Dirty => self.is_dirty = true,
            Action::Clean => (self.is_dirty, self.must_be_dirty) = (false, false),
        }
    }

    fn image(&self, member: usize) -> Superblock {
        let old = self.disks[member].clone().expect("who is written was read");
        let role = |n: usize| if self.active.contains(&n) { Role::Slot(Slot(n as u16)) } else { Role::Faulty };
        let mut roles = vec![Role::Spare; old.roles.len()];
        roles.iter_mut().take(MEMBERS).enumerate().for_each(|(n, entry)| *entry = role(n));
        let resync_offset = if self.is_dirty { 0 } else { Superblock::CLEAN };
        Superblock { events: self.events, resync_offset, roles, ..old }
    }

    /// One round: every active member is written, and this is what became of it.
    fn write(&mut self, landed: &[Landed]) {
        let targets: Vec<usize> = self.active.iter().copied().collect();
        assert_eq!(targets.len(), landed.len());
        for (member, landed) in targets.into_iter().zip(landed) {
            match landed {
                Landed::Old => {}
                Landed::New => self.disks[member] = Some(self.image(member)),
                Landed::Torn => self.disks[member] = None,
            }
        }
        if landed.iter().all(|landed| *landed == Landed::New) {
            self.stale = (0..MEMBERS).filter(|at| !self.active.contains(at)).collect();
            self.must_be_dirty = self.is_dirty;
        }
    }

    fn write_whole(&mut self) {
        self.write(&vec![Landed::New; self.active.len()]);
    }

    fn candidates(&self, given: impl Iterator<Item = usize>) -> Vec<Candidate> {
        let disk = |at: usize| self.disks[at].clone();
        given.filter_map(disk).map(|superblock| Candidate::new(superblock, DEVICE)).collect()
    }

    /// Starts anew after a crash, as the engine does: the lagging ones are brought up first.
    fn restart(&mut self, plan: &StartPlan, levelled: bool) {
        self.events = plan.events;
        self.is_dirty = plan.template.is_dirty();
        self.active = placed(plan).into_iter().collect();
        if levelled {
            let image = plan.template.clone();
            for at in plan.lagging() {
                let own = &plan.members[at].superblock;
                let Superblock { dev_number, device_uuid, .. } = *own;
                self.disks[dev_number as usize] = Some(Superblock { dev_number, device_uuid, ..image.clone() });
            }
        }
    }
}

/// The disks in slots, by number.
fn placed(plan: &StartPlan) -> Vec<usize> {
    let in_slot = plan.members.iter().filter(|member| member.place != Place::Spare);
    in_slot.map(|member| member.superblock.dev_number as usize).collect()
}

/// Every way that `writes` writes can end.
fn outcomes(writes: usize, kinds: &[Landed]) -> Vec<Vec<Landed>> {
    let mut all = vec![Vec::new()];
    for _ in 0..writes {
        all = all.iter().flat_map(|ends| kinds.iter().map(|kind| [&ends[..], &[*kind]].concat())).collect();
    }
    all
}

/// Every sequence of at most `length` actions that the engine would do, each durable everywhere.
fn histories(start: &Model, length: usize) -> Vec<Model> {
    let mut all = vec![start.clone()];
    let mut newest = all.clone();
    for _ in 0..length {
        let mut next = Vec::new();
        for model in &newest {
            for action in ACTIONS.into_iter().filter(|action| model.allows(*action)) {
                let mut model = model.clone();
                model.begin(action);
                model.write_whole();
                next.push(model);
            }
        }
        all.extend(next.iter().cloned());
        newest = next;
    }
    all
}

const AS_IS: AssembleOptions = AssembleOptions { force: false, run: false, read_only: false };
const RUN: AssembleOptions = AssembleOptions { force: false, run: true, read_only: false };
const FORCE: AssembleOptions = AssembleOptions { force: true, run: false, read_only: false };

/// What must hold of whatever is on the disks, with any of them missing.
fn check_missing_members(model: &Model) {
    for given in 1..1 << MEMBERS {
        let members = (0..MEMBERS).filter(|at| given & 1 << at != 0);
        let knows = |at: usize| model.disks[at].is_some() && !model.stale.contains(&at);
        if !members.clone().any(knows) {
            // All members that record that the others are stale are gone.
            continue;
        }
        let candidates = model.candidates(members);
        if let Ok(plan) = assemble(&candidates, &RUN) {
            for at in placed(&plan) {
                assert!(!model.stale.contains(&at), "stale {at} of {given:04b} was taken: {candidates:?}");
            }
            let alone = model.layout.level() == Level::Raid1 && plan.members.len() == 1;
            assert!(plan.is_dirty || alone || !model.must_be_dirty, "{given:04b} was not dirty: {candidates:?}");
        }
        if let Ok(plan) = assemble(&candidates, &FORCE) {
            for member in plan.members {
                let at = member.superblock.dev_number as usize;
                assert!(!model.stale.contains(&at) || plan.forced.raised.contains(&member.candidate));
            }
        }
    }
}

/// With all disks there and readable the array starts without help, unless it is dirty and degraded.
fn check_all_members(model: &Model) -> Result<StartPlan, AssembleError> {
    let candidates = model.candidates(0..MEMBERS);
    let start = assemble(&candidates, &AS_IS);
    match &start {
        Ok(plan) => {
            let placed: BTreeSet<usize> = placed(plan).into_iter().collect();
            assert!(model.active.is_subset(&placed), "{:?} of {:?}: {candidates:?}", placed, model.active);
        }
        Err(AssembleError::DirtyDegraded { .. }) => {
            assert!(model.active.len() < MEMBERS && model.layout.level().is_parity());
        }
        Err(error) => panic!("{error}: {candidates:?}"),
    }
    start
}

#[test]
fn what_assembles_is_never_stale_whatever_part_of_a_round_landed() {
    let mut seen = 0;
    for level in LEVELS {
        for before in histories(&Model::new(level), 2) {
            for action in ACTIONS.into_iter().filter(|action| before.allows(*action)) {
                let mut begun = before.clone();
                begun.begin(action);
                for landed in outcomes(begun.active.len(), &[Landed::Old, Landed::New, Landed::Torn]) {
                    let mut crashed = begun.clone();
                    crashed.write(&landed);
                    check_missing_members(&crashed);
                    if !landed.contains(&Landed::Torn) {
                        // The drive that is failing may still be read, and may still be listed.
                        let _ = check_all_members(&crashed);
                    }
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 4_500, "{seen}");
}

#[test]
fn a_second_crash_right_after_the_first_makes_nobody_stale_and_takes_nobody_stale() {
    let torn_free = [Landed::Old, Landed::New];
    let mut seen = 0;
    for level in LEVELS {
        for before in histories(&Model::new(level), 1) {
            for action in ACTIONS.into_iter().filter(|action| before.allows(*action)) {
                let mut begun = before.clone();
                begun.begin(action);
                for landed in outcomes(begun.active.len(), &torn_free) {
                    let mut crashed = begun.clone();
                    crashed.write(&landed);
                    seen += crash_again(&crashed, &torn_free);
                }
            }
        }
    }
    assert!(seen > 12_000, "{seen}");
}

/// Starts a crashed array and crashes it in the next round; answers how many ways there were.
fn crash_again(crashed: &Model, kinds: &[Landed]) -> usize {
    let Ok(plan) = check_all_members(crashed) else { return 0 };
    let mut running = crashed.clone();
    running.restart(&plan, true);
    let mut seen = 0;
    for action in ACTIONS.into_iter().filter(|action| running.allows(*action)) {
        let mut begun = running.clone();
        begun.begin(action);
        for landed in outcomes(begun.active.len(), kinds) {
            let mut again = begun.clone();
            again.write(&landed);
            check_missing_members(&again);
            let _ = check_all_members(&again);
            seen += 1;
        }
    }
    seen
}

#[test]
fn without_bringing_up_the_lagging_members_a_second_crash_would_make_them_stale() {
    let mut model = Model::new(Level::Raid5);
    model.begin(Action::Dirty);
    model.write(&[Landed::New, Landed::Old, Landed::Old, Landed::Old]);
    let plan = check_all_members(&model).unwrap();
    assert_eq!(plan.lagging().collect::<Vec<_>>(), [1, 2, 3]);
    for levelled in [true, false] {
        let mut running = model.clone();
        running.restart(&plan, levelled);
        running.begin(Action::Clean);
        running.write(&[Landed::New, Landed::Old, Landed::Old, Landed::Old]);
        let start = assemble(&running.candidates(0..MEMBERS), &AS_IS);
        assert_eq!(start.is_ok(), levelled);
    }
}

#[test]
fn two_parts_that_each_ran_without_the_other_are_refused_and_every_other_pair_of_runs_is_not() {
    for level in LEVELS {
        for runs in 0..16 * 16 * 4u32 {
            let (first, second, rounds) = (runs & 15, runs >> 4 & 15, 1 + (runs >> 8));
            let mut model = Model::new(level);
            let run = |model: &mut Model, given: u32, rounds: u32| {
                let given = (0..MEMBERS).filter(|at| given & 1 << at != 0);
                let Ok(plan) = assemble(&model.candidates(given), &RUN) else { return None };
                model.restart(&plan, true);
                for _ in 0..rounds {
                    model.events += 1;
                    model.write_whole();
                }
                Some(model.active.clone())
            };
            let (Some(one), Some(other)) = (run(&mut model, first, 2), run(&mut model, second, rounds)) else {
                continue;
            };
            let start = assemble(&model.candidates(0..MEMBERS), &RUN);
            if one.is_disjoint(&other) {
                assert!(matches!(start, Err(AssembleError::SplitBrain { .. })), "{first:04b} {second:04b}: {start:?}");
            } else {
                let plan = start.unwrap_or_else(|error| panic!("{first:04b} {second:04b}: {error}"));
                assert_eq!(placed(&plan).into_iter().collect::<BTreeSet<_>>(), other);
            }
        }
    }
}

/// A decision with candidates called by their disks, so that decisions on different orders can be compared.
fn decision(candidates: &[Candidate], options: &AssembleOptions) -> String {
    let disk = |at: usize| candidates[at].superblock.dev_number;
    match assemble(candidates, options) {
        Ok(plan) => {
            let members: Vec<_> = plan.members.iter().map(|m| (disk(m.candidate), m.place)).collect();
            let mut refused: Vec<_> = plan.refused.iter().map(|r| (disk(r.candidate), r.reason.to_string())).collect();
            let mut raised: Vec<_> = plan.forced.raised.iter().map(|at| disk(*at)).collect();
            refused.sort();
            raised.sort();
            let rest = (plan.missing, plan.is_dirty, plan.read_only, plan.events, plan.template);
            format!("{members:?} {refused:?} {raised:?} {rest:?}")
        }
        Err(error) => {
            // Lists of candidates are in their given order; their number and kind must not change.
            let text = error.named(&|at| format!("disk {}", disk(at))).to_string();
            let mut words: Vec<&str> = text.split([' ', ',', ';', ':']).collect();
            words.sort_unstable();
            format!("{words:?}")
        }
    }
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let insert = |order: &Vec<usize>, at: usize| [&order[..at], &[count - 1], &order[at..]].concat();
    shorter.iter().flat_map(|order| (0..count).map(move |at| insert(order, at))).collect()
}

#[test]
fn the_order_of_the_candidates_decides_nothing() {
    let orders = orders(MEMBERS);
    assert_eq!(orders.len(), 24);
    for level in LEVELS {
        for before in histories(&Model::new(level), 1) {
            // Any member may be older or newer than the rounds say: split brains, stale sets and duplicates included.
            for twist in 0..27u64 {
                let mut candidates = before.candidates(0..MEMBERS);
                for (at, step) in [(0, twist % 3), (1, twist / 3 % 3), (2, twist / 9)] {
                    candidates[at].superblock.events += step;
                }
                if twist == 26 {
                    candidates[1].superblock.set_uuid = [8; 16];
                    candidates[2].superblock.set_uuid = [8; 16];
                }
                for options in [AS_IS, FORCE] {
                    let expected = decision(&candidates, &options);
                    for order in &orders {
                        let turned: Vec<_> = order.iter().map(|at| candidates[*at].clone()).collect();
                        assert_eq!(decision(&turned, &options), expected, "{order:?}");
                    }
                }
            }
        }
    }
}
