//! A member that fails while a bitmap comes or goes, at every moment of that, and comes back: at once, after a stop, or
//! after a power cut.
//! Owns: that it is taken with the bits only where they name all that it lacks. Not here: one that left before (`bits`).

use super::*;
use uraid_sim::machine::world::SimWorld;

/// Written while the bitmap changes: it is over before they are.
const SECTORS: u64 = 45;

/// What the operator does when the member fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Add,
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    Command,
    /// A write of data.
    Data,
    /// A bitmap or a superblock.
    Metadata,
}

/// When it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// As soon as it may.
    Serving,
    Stopped,
    /// Power fails some steps after the member has.
    Cut(u64),
}

/// How members came back, in all cases.
#[derive(Default, Debug)]
struct Outcomes {
    by_bits: u64,
    too_old: u64,
    no_bitmap: u64,
    /// Its superblock lists no bitmap yet, and the others do.
    own_bitmap: u64,
    /// The next start took it.
    started: u64,
}

/// Bytes that a sector may hold: of the last write that was answered, and of one that was not.
type Cells = Rc<RefCell<Vec<(u8, Option<u8>)>>>;

/// Writes each of these sectors once, one after the other.
async fn write_each(array: Rc<uraid_engine::Array<SimWorld>>, world: SimWorld, cells: Cells, sectors: Vec<u64>) {
    for at in sectors {
        let byte = cells.borrow()[at as usize].0 ^ 0x80;
        cells.borrow_mut()[at as usize].1 = Some(byte);
        let mut pieces = world.client_arena().take(512).expect("room");
        pieces.fill(byte);
        array.write(Sector(at), pieces.freeze(), Fua::No).await.expect("the array can do without the member");
        cells.borrow_mut()[at as usize] = (byte, None);
    }
}

struct Case {
    rig: Rig,
    live: Live,
    cells: Cells,
    tasks: Vec<u64>,
    name: String,
}

/// What the disks of a stopped array hold before each case.
struct Before {
    rig: Rig,
    images: Vec<Option<Vec<u8>>>,
    /// One byte of each sector.
    content: Vec<u8>,
}

impl Before {
    /// An array whose bits are clear, or that has no bitmap yet.
    fn new((level, layout, slots): (i32, u32, u16), change: Change) -> Before {
        let mut rig = rig_with(level, layout, slots, 2);
        let live = start_with(&mut rig, &[slots], &config());
        let content = fill(&rig, &live);
        pause(&rig, &live, 4 * CLEAR_AFTER);
        if change == Change::Add {
            let array = live.arrays[0].clone();
            assert_eq!(all(&rig, &live, vec![async move { array.remove_bitmap().await }]), [Ok(())]);
        }
        stop(&rig, &live);
        let images = durable(&rig);
        rig.power_off();
        Before { rig, images, content: content.chunks(512).map(|sector| sector[0]).collect() }
    }

    fn start(&self, name: String) -> Case {
        let (rig, live) = begun(&self.rig, self.images.clone());
        let cells = self.content.iter().map(|byte| (*byte, None)).collect();
        Case { rig, live, cells: Rc::new(RefCell::new(cells)), tasks: Vec::new(), name }
    }
}

impl Case {
    fn spawn(&mut self, what: &'static str, work: impl Future<Output = ()> + 'static) {
        self.tasks.push(self.rig.executor.spawn(0, what, work));
    }

    fn change_bitmap(&mut self, change: Change) {
        let array = self.live.arrays[0].clone();
        let bitmap = bitmap_to_add(&self.rig.setup.shape, self.rig.setup.superblock(0).set_uuid, 1, 0);
        self.spawn("operator", async move {
            // A member that cannot take the bitmap leaves the array without.
            let _ = match change {
                Change::Add => array.add_bitmap(bitmap).await,
                Change::Remove => array.remove_bitmap().await,
            };
        });
    }

    fn begin_writes(&mut self) {
        for of_writer in 0..3 {
            let (array, world) = (self.live.arrays[0].clone(), self.live.worlds[0].clone());
            let sectors = (0..SECTORS).filter(|at| at % 3 == of_writer).collect();
            self.spawn("writer", write_each(array, world, self.cells.clone(), sectors));
        }
    }

    fn fail(&mut self, failure: Failure) {
        let effect = Effect::ErrorsFromNow(ErrorKind::Media);
        match failure {
            Failure::Command => {
                let array = self.live.arrays[0].clone();
                self.spawn("fail", async move {
                    assert_eq!(array.fail(SlotSet::EMPTY.with(Slot(1))).await, Ok(()));
                });
            }
            Failure::Data => self.rig.disk(1).add_fault(Fault { victim: Target::Writes, after: 0, effect }),
            Failure::Metadata => self.rig.disk(1).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect }),
        }
    }

    fn is_over(&self) -> bool {
        self.tasks.iter().all(|task| !self.rig.executor.is_running(*task))
    }

    fn steps(&self, steps: u64) {
        let end = self.rig.executor.now() + Duration::from_secs(60);
        self.rig.executor.run(steps, end, || self.is_over());
    }

    fn finish(&self) {
        run(&self.rig, &self.live, || self.is_over());
    }

    /// The member is out and works again; it has missed writes that came when nothing changed any more.
    fn leave(&mut self) {
        let status = self.live.arrays[0].status();
        if status.usable.contains(Slot(1)) {
            fail(&self.rig, &self.live, 1);
        }
        self.rig.disk(1).forget_faults();
        let index = status.members.len() - 1;
        let out = (0..=index).rev().find(|at| matches!(status.members[*at], MemberState::Faulty { .. }));
        leave(&self.rig, &self.live, out.unwrap_or(1));
        let (array, world) = (self.live.arrays[0].clone(), self.live.worlds[0].clone());
        let work = write_each(array, world, self.cells.clone(), vec![2, 11]);
        all(&self.rig, &self.live, vec![work]);
    }

    fn come_back(&mut self, outcomes: &mut Outcomes) {
        let outcome = return_now(&self.rig, &self.live, 1);
        match outcome {
            Ok(_) => outcomes.by_bits += 1,
            Err(ReAddError::TooOld { .. }) => outcomes.too_old += 1,
            Err(ReAddError::NoBitmap) => outcomes.no_bitmap += 1,
            Err(ReAddError::OwnBitmap) => outcomes.own_bitmap += 1,
            Err(other) => panic!("{}: {other}", self.name),
        }
        wait(&self.rig, &self.live);
    }

    /// The array after the next start, which reads what power left.
    fn start_again(self, images: Vec<Option<Vec<u8>>>) -> Case {
        self.rig.power_off();
        let (rig, live) = begun(&self.rig, images);
        Case { rig, live, cells: self.cells, tasks: Vec::new(), name: self.name }
    }

    /// A sector whose write was not answered, or not flushed before a power cut, may hold either.
    fn settle(&mut self, before: &[u8]) {
        wait(&self.rig, &self.live);
        let found = content_of(&self.rig, &self.live);
        for (at, sector) in found.chunks(512).enumerate() {
            let (last, unanswered) = self.cells.borrow()[at];
            let may_hold = sector[0] == last || Some(sector[0]) == unanswered || sector[0] == before[at];
            assert!(may_hold, "{}: sector {at} holds {}, written was {last}", self.name, sector[0]);
            self.cells.borrow_mut()[at] = (sector[0], None);
        }
    }

    fn check(&self) {
        let content: Vec<u8> = self.cells.borrow().iter().flat_map(|(byte, _)| [*byte; 512]).collect();
        check(&self.rig, &self.live, &content, &self.name);
        self.rig.power_off();
    }
}

/// Returns whether the change was over before the member failed.
fn one_case(
    before: &Before,
    (change, failure, then): (Change, Failure, Then),
    step: u64,
    outcomes: &mut Outcomes,
) -> bool {
    let shape = &before.rig.setup.shape;
    let name = format!("raid{} {:#x}, {change:?}, {failure:?} after {step} steps, {then:?}", shape.level, shape.layout);
    let mut case = before.start(name);
    case.change_bitmap(change);
    case.begin_writes();
    case.steps(step);
    let is_over = !case.rig.executor.is_running(case.tasks[0]);
    case.fail(failure);
    match then {
        Then::Serving => {
            case.finish();
            case.leave();
            case.come_back(outcomes);
        }
        Then::Stopped => {
            case.finish();
            case.leave();
            stop(&case.rig, &case.live);
            let images = durable(&case.rig);
            case = case.start_again(images);
            case.come_back(outcomes);
        }
        Then::Cut(later) => {
            case.steps(later);
            let images = case.rig.judge.images(&mut Rng::new(step ^ later << 8));
            case.rig.disk(1).forget_faults();
            case = case.start_again(images);
            case.settle(&before.content);
            if case.live.arrays[0].status().usable.contains(Slot(1)) {
                outcomes.started += 1;
            } else {
                let (array, world) = (case.live.arrays[0].clone(), case.live.worlds[0].clone());
                let work = write_each(array, world, case.cells.clone(), vec![2, 11]);
                all(&case.rig, &case.live, vec![work]);
                case.come_back(outcomes);
            }
        }
    }
    case.check();
    is_over
}

fn every_step(arrays: &[(i32, u32, u16)], change: Change, thens: &[Then], stride: usize) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for array in arrays {
        let before = Before::new(*array, change);
        for failure in [Failure::Command, Failure::Data, Failure::Metadata] {
            for then in thens {
                for step in (0..).step_by(stride) {
                    if one_case(&before, (change, failure, *then), step, &mut outcomes) {
                        break;
                    }
                }
            }
        }
    }
    outcomes
}

const ARRAYS: [(i32, u32, u16); 3] = [(1, 0, 3), (5, 2, 4), (10, 0x102, 4)];
/// A parity array that is dirty and degraded does not start.
const MIRRORS: [(i32, u32, u16); 2] = [(1, 0, 3), (10, 0x102, 4)];
const CUTS: [Then; 3] = [Then::Cut(30), Then::Cut(300), Then::Cut(1000)];

#[test]
fn a_member_that_fails_while_a_bitmap_is_added_returns_only_if_the_bits_name_what_it_lacks() {
    let outcomes = every_step(&ARRAYS, Change::Add, &[Then::Serving, Then::Stopped], stride(29));
    let Outcomes { by_bits, too_old, no_bitmap, own_bitmap, .. } = outcomes;
    let all = [by_bits, too_old, no_bitmap, own_bitmap];
    assert!(!all.contains(&0), "each is the answer at some moment: {outcomes:?}");
}

#[test]
fn a_member_that_fails_while_a_bitmap_is_removed_returns_only_if_the_bits_name_what_it_lacks() {
    let outcomes = every_step(&ARRAYS, Change::Remove, &[Then::Serving, Then::Stopped], stride(43));
    assert!(outcomes.no_bitmap > 0, "{outcomes:?}");
}

#[test]
fn whatever_a_power_cut_leaves_of_a_bitmap_that_comes_or_goes_no_member_is_taken_that_lacks_more() {
    let added = every_step(&MIRRORS, Change::Add, &CUTS, stride(59));
    assert!(added.by_bits > 0 && added.started > 0, "{added:?}");
    let removed = every_step(&MIRRORS, Change::Remove, &CUTS, stride(59));
    assert!(removed.started > 0 && removed.no_bitmap > 0, "{removed:?}");
}

/// A write that began before the bitmap has no bit, and the member has missed it: it may not return by a bitmap that is
/// only being added, which a flush delays here.
#[test]
fn no_member_returns_by_a_bitmap_that_no_superblock_lists() {
    let before = Before::new((1, 0, 3), Change::Add);
    let mut outcomes = Outcomes::default();
    for step in 0..60 {
        let mut case = before.start(format!("after {step} steps"));
        case.begin_writes();
        case.steps(step);
        let slow = Effect::Hang(Duration::from_secs(2));
        case.rig.disk(0).add_fault(Fault { victim: Target::Flushes, after: 0, effect: slow });
        case.change_bitmap(Change::Add);
        fail(&case.rig, &case.live, 1);
        leave(&case.rig, &case.live, 1);
        assert_eq!(return_now(&case.rig, &case.live, 1), Err(ReAddError::NoBitmap), "{}", case.name);
        case.finish();
        // One that could not take the bitmap any more leaves the array without.
        case.come_back(&mut outcomes);
        case.check();
    }
    // md does not ask for the member's own bitmap: the count of the new one must tell.
    assert_eq!((outcomes.by_bits, outcomes.own_bitmap), (0, 0), "it failed before the bitmap was there");
    assert!(outcomes.too_old > 0 && outcomes.no_bitmap > 0, "{outcomes:?}");
}

/// A member returned by the bits, and the one sector that it lacks cannot be read for now.
fn given_up(level: i32, layout: u32, slots: u16) -> (Rig, Live, Vec<u8>) {
    let mut rig = rig_with(level, layout, slots, 1);
    let live = start_with(&mut rig, &[slots], &config());
    let mut content = fill(&rig, &live);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    fail(&rig, &live, 1);
    leave(&rig, &live, 1);
    let lacking = rig.judge.model.copies.iter().position(|places| places.iter().any(|place| place.slot == 1));
    let lacking = lacking.expect("it holds data");
    write_now(&rig, &live, &mut content, lacking as u64, 99);
    let at = rig.judge.model.copies[lacking].iter().find(|place| place.slot == 1).expect("found before").sector;
    rig.disk(0).add_unreadable([rig.setup.data_offsets[0] + at]);
    let index = return_now(&rig, &live, 1).expect("the bits name it");
    wait(&rig, &live);
    let state = live.arrays[0].status().members[index];
    assert!(matches!(state, MemberState::Recovering { slot: Slot(1), .. }), "{state:?}");
    // Only a clean mirror lists it in its slot.
    run(&rig, &live, || !live.arrays[0].status().is_dirty);
    pause(&rig, &live, Duration::from_secs(1));
    (rig, live, content)
}

/// A recovery by the bits that was given up is one of all sectors when the array has another bitmap, whenever power fails
/// while it gets it.
#[test]
fn a_recovery_by_the_bits_of_a_bitmap_that_is_gone_does_not_go_on_by_the_next_one() {
    for (level, layout, slots) in [(1, 0, 2), (5, 2, 3), (10, 0x102, 3)] {
        let mut seen = (0, 0);
        for step in (0..).step_by(stride(3)) {
            let (rig, live, content) = given_up(level, layout, slots);
            let array = live.arrays[0].clone();
            let bitmap = bitmap_to_add(&rig.setup.shape, rig.setup.superblock(0).set_uuid, 1, 0);
            let changing = rig.executor.spawn(0, "operator", async move {
                assert_eq!(array.remove_bitmap().await, Ok(()));
                assert_eq!(array.add_bitmap(bitmap).await, Ok(()));
            });
            let (executor, end) = (rig.executor.clone(), rig.executor.now() + Duration::from_secs(60));
            rig.executor.run(step, end, || !executor.is_running(changing));
            let is_over = !rig.executor.is_running(changing);
            let images = durable(&rig);
            rig.power_off();
            // The sector can be read again.
            let (rig, live) = begun(&rig, images);
            wait(&rig, &live);
            let has_bitmap = live.arrays[0].status().bitmap.is_some();
            seen = (seen.0 + u32::from(has_bitmap), seen.1 + u32::from(!has_bitmap));
            let case = format!("raid{level}, power fails after {step} steps, then a bitmap: {has_bitmap}");
            assert!(live.arrays[0].status().usable.contains(Slot(1)), "{case}");
            check(&rig, &live, &content, &case);
            rig.power_off();
            if is_over {
                break;
            }
        }
        assert!(seen.0 > 0 && seen.1 > 0, "raid{level}: {seen:?}");
    }
}
