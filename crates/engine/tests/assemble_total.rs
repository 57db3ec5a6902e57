//! Assembly returns a decision for any superblocks that parse.
//! Owns: hostile and contradictory sets, with a small generator of its own. Not here: plausible ones
//! (tests/assemble.rs, tests/assemble_rounds.rs).

use uraid_block::{Sectors, Slot};
use uraid_engine::{AssembleOptions, Candidate, MemberPlan, Place, StartPlan, assemble};
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_format::{Features, Role, Superblock, location_v12};
use uraid_layout::Level;

const DEVICE: Sectors = Sectors(40960);

/// xorshift64*: enough for tests, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

fn array(level: Level) -> Vec<Candidate> {
    let options = CreateOptions {
        chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
        spare_devices: u16::from(!matches!(level, Level::Linear | Level::Raid0)),
        now_seconds: 1_700_000_000,
        assume_clean: true,
        ..CreateOptions::new(level, 4, [7; 16])
    };
    let count = options.raid_disks + options.spare_devices;
    let members: Vec<_> = (0..count).map(|n| NewMember::Device { size: DEVICE, uuid: [n as u8; 16] }).collect();
    let made = create(&options, &members).unwrap().superblocks.into_iter().flatten();
    made.map(|superblock| Candidate::new(superblock, DEVICE)).collect()
}

/// One change of the array, or of what all members say about it.
fn twist(random: &mut Random, superblock: &mut Superblock) {
    let odd = [0, 1, 2, 3, 7, 8, 128, 255, 256, 1000, 1 << 31, u64::from(u32::MAX)];
    match random.below(15) {
        0 => {
            superblock.events =
                random.pick(&[0, 1, 2, Superblock::EVENTS_WRITE_END, Superblock::EVENTS_END - 1, u64::MAX])
        }
        1 => superblock.level = random.pick(&[-4, -1, 0, 1, 4, 5, 6, 10]),
        2 => superblock.layout = random.pick(&odd) as u32,
        3 => superblock.chunk = Sectors(random.pick(&odd)),
        4 => superblock.raid_disks = random.pick(&[1, 2, 3, 5, 255, 256, 257, 1920]),
        5 => superblock.size = Sectors(random.pick(&odd)),
        6 => superblock.data_size = Sectors(random.pick(&[10, 128, 36864, (1 << 54) - 1])),
        7 => superblock.features = Features(1 << random.below(14)),
        8 => superblock.dev_number = random.pick(&[0, 1, 2, 3, 4, 127, 128, u32::MAX]),
        9 => superblock.resync_offset = random.next(),
        10 => superblock.recovery_offset = random.next(),
        11 => superblock.roles.truncate(random.below(7) as usize),
        12 => superblock.device_uuid = [random.below(5) as u8; 16],
        13 => superblock.set_uuid = [random.below(3) as u8; 16],
        _ => {
            let count = superblock.roles.len().min(6) as u64;
            if count > 0 {
                let role = Role::from_raw(random.pick(&[0, 1, 2, 3, 4, 300, 0xfeff, 0xff00, 0xfffd, 0xfffe, 0xffff]));
                superblock.roles[random.below(count) as usize] = role;
            }
        }
    }
}

/// Starting an array for writing records absent members as failed. Without an option these must
/// not include a member that the freshest superblock has in a slot.
fn assert_nobody_is_given_up(plan: &StartPlan, seed: u64) {
    for (number, role) in (0u32..).zip(&plan.template.roles) {
        let Some(slot) = role.slot().filter(|slot| u32::from(slot.0) < plan.template.raid_disks) else { continue };
        let is_kept = |member: &MemberPlan| {
            let is_placed = match member.place {
                Place::Slot(of) => of == slot && !is_rebuilt(member),
                Place::Recovering { slot: of, .. } | Place::Replacing { slot: of, .. } => of == slot,
                Place::Spare => false,
            };
            member.superblock.dev_number == number && is_placed
        };
        assert!(plan.members.iter().any(is_kept), "seed {seed}: number {number} in {slot} would be given up");
    }
}

fn is_rebuilt(member: &MemberPlan) -> bool {
    member.superblock.features.contains(Features::RECOVERY_OFFSET)
}

#[test]
fn every_set_of_superblocks_that_parse_gets_an_answer() {
    let mut started = 0;
    let mut refused = 0;
    let mut kept = 0;
    for seed in 1..=20_000u64 {
        let mut random = Random(seed);
        let mut candidates = array(Level::ALL[random.below(7) as usize]);
        for _ in 0..random.below(4) {
            // A change that all members tell, or one of them alone.
            let change = random.next() | 1;
            let only = random.below(6);
            for (at, candidate) in candidates.iter_mut().enumerate() {
                if only >= 4 || only == at as u64 {
                    twist(&mut Random(change), &mut candidate.superblock);
                }
            }
        }
        let parses = |candidate: &Candidate| {
            Superblock::parse(&candidate.superblock.encode(), location_v12(), DEVICE).as_ref()
                == Ok(&candidate.superblock)
        };
        candidates.retain(parses);
        for candidate in &mut candidates {
            candidate.device_size = random.pick(&[DEVICE, DEVICE, DEVICE, Sectors(24), Sectors(u64::MAX)]);
        }
        let options = AssembleOptions { force: seed % 3 == 0, run: seed % 2 == 0, read_only: false };
        match assemble(&candidates, &options) {
            Ok(plan) => {
                started += 1;
                let all = plan.members.iter().map(|member| member.candidate);
                let mut all: Vec<usize> = all.chain(plan.refused.iter().map(|refused| refused.candidate)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..candidates.len()).collect::<Vec<_>>(), "seed {seed}: everybody is in one list");
                for slot in (0..plan.layout.slots()).map(Slot) {
                    let holders = plan.members.iter().filter(|member| member.place == Place::Slot(slot)).count();
                    assert_eq!(holders, usize::from(!plan.missing.contains(slot)), "seed {seed}, {slot}");
                }
                if !options.run && !options.force && plan.read_only.is_none() {
                    kept += 1;
                    assert_nobody_is_given_up(&plan, seed);
                }
                for refused in &plan.refused {
                    assert!(!refused.reason.to_string().is_empty());
                }
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(started > 2_000 && refused > 2_000, "{started} started, {refused} refused: too one-sided");
    assert!(kept > 500, "{kept} started for writing without an option: too few to say anything");
}
