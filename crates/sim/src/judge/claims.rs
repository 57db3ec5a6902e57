//! Checks that nothing says more than is durable: superblocks, and the results of repairs.
//! Owns: [`Claims`]. Not here: whether the data is right (`oracle`), what a cut leaves of it (`judge`).
//! Invariant: asked when a superblock is submitted, as a power cut may keep it from then on and nothing else.
//! Spec: M3 of docs/reliability.md; docs/md/formats.md#version-1-superblock.
//!
//! ```text
//!   resync_offset    all ones: clean. No data may be uncertain on a member in a slot.
//!                    X: copies and parity agree below X. No data may be uncertain there.
//!   recovery_offset  X: the member holds all data below X. Below it only what clients wrote may be uncertain, while
//!                    the array is dirty.
//!   a feature that the superblock before had not, or a slot after a spare's role: bitmap, list of bad blocks and partial
//!                    parity log, as far as it names them, are on the member, whole.
//! ```

use crate::image::areas::{BITMAP_AT, BITMAP_SECTORS, LOG_AT, LOG_SECTORS, SUPER_AT};
use crate::image::bits::bitmap_of;
use crate::image::ppl::ppl_of;
use crate::judge::{Judge, bad_block_log_of};
use crate::machine::member::medium::Medium;
use crate::reference::model::Place;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_format::{Features, Role, Superblock};

/// Compares what is said of the members of one array with what they have stored; member n is in slot n.
pub(crate) struct Claims {
    judge: Rc<Judge>,
    /// Places that requests of clients have changed, as far as they are uncertain.
    by_clients: RefCell<BTreeSet<Place>>,
    /// A repair by command runs.
    is_repairing: Cell<bool>,
}

impl Claims {
    pub(crate) fn new(judge: Rc<Judge>) -> Claims {
        Claims { judge, by_clients: RefCell::default(), is_repairing: Cell::default() }
    }

    /// A request of a client may change these places from now on.
    pub(crate) fn note_client(&self, places: impl IntoIterator<Item = Place>) {
        self.by_clients.borrow_mut().extend(places);
    }

    pub(crate) fn set_repairing(&self, is_repairing: bool) {
        self.is_repairing.set(is_repairing);
    }

    /// All of the array's members have lost their power, or the array is stopped.
    pub(crate) fn forget(&self) {
        self.by_clients.borrow_mut().clear();
        self.is_repairing.set(false);
    }

    /// The sectors of a member's data, from its start, that a power cut may change.
    fn uncertain(&self, disk: u16) -> BTreeSet<Place> {
        let start = self.judge.setup.data_offsets[usize::from(disk)];
        let sectors = self.judge.disks[usize::from(disk)].medium().undecided_data();
        sectors.into_iter().map(|at| Place { slot: disk, sector: at - start }).collect()
    }

    /// Whether the array uses the place, and nothing of its stripe was corrupted silently: what is computed from that may be
    /// anything.
    fn counts(&self, place: Place) -> bool {
        let (oracle, sectors) = (self.judge.oracle.borrow(), self.judge.model.sectors_at(place));
        !sectors.is_empty() && sectors.into_iter().all(|x| !oracle.is_corrupted(x))
    }

    /// What a member's own superblock says that it holds, as it can be read now: all below this sector of its data.
    fn held(&self, disk: u16) -> u64 {
        let medium = self.judge.disks[usize::from(disk)].medium();
        held_by(superblock_in(medium.current()))
    }

    /// Up to where a member's own superblock says, as it can be read now, that all agrees.
    fn agreed(&self, disk: u16) -> u64 {
        let medium = self.judge.disks[usize::from(disk)].medium();
        u64::from_le_bytes(superblock_in(medium.current())[208..216].try_into().expect("eight bytes"))
    }

    /// Whether the place is below a resync's position: of each member on parity levels, of the array on the others.
    fn is_below(&self, place: Place, resync_offset: u64) -> bool {
        let at = if self.judge.model.is_parity() {
            Some(place.sector)
        } else {
            self.judge.model.sectors_at(place).into_iter().min()
        };
        at.is_some_and(|at| at < resync_offset)
    }

    /// A superblock is submitted. `is_exempt`: a member that has failed a request there, from which it is written again.
    pub(crate) fn check(
        &self,
        disk: u16,
        bytes: &[u8; 4096],
        is_open: &dyn Fn(Place) -> bool,
        is_exempt: &dyn Fn(Place) -> bool,
    ) -> Result<(), String> {
        let superblock = Superblock::parse(bytes, Sector(SUPER_AT), Sectors(u64::MAX >> 1));
        // One that cannot be read is found when it is complete.
        let Ok(superblock) = superblock else { return Ok(()) };
        let before = self.held(disk);
        // What a repair by command makes agree was wrong before, whatever the superblocks said of it.
        let is_new = self.agreed(disk) < superblock.resync_offset && !self.is_repairing.get();
        for (number, role) in (0u16..).zip(superblock.roles.iter().take(self.judge.disks.len())) {
            let Role::Slot(_) = role else { continue };
            let uncertain = self.uncertain(number);
            self.by_clients
                .borrow_mut()
                .retain(|place| place.slot != number || uncertain.contains(place) || is_open(*place));
            if self.judge.disks[usize::from(number)].is_liar() || uncertain.is_empty() {
                continue;
            }
            let below = if number == disk { held_by(bytes) } else { self.held(number) };
            let mut here = uncertain.iter().filter(|place| place.sector < below && !is_exempt(**place));
            let breaks = |place: &Place| self.is_below(*place, superblock.resync_offset) && self.counts(*place);
            if is_new && let Some(place) = here.clone().find(|place| breaks(place)) {
                let claimed = superblock.resync_offset;
                return Err(format!(
                    "M3: the superblock of disk {disk} says that all agrees below {claimed}, and {place:?} is not durable"
                ));
            }
            // All of a member in sync may be uncertain while the array is dirty: a resync makes it agree. So may what a
            // member in recovery holds of rows that a crash has left half written.
            let is_sure = self.judge.suspect.borrow().is_empty();
            if number == disk
                && before < u64::MAX
                && is_sure
                && let Some(place) =
                    here.find(|place| !self.by_clients.borrow().contains(place) && self.counts(**place))
            {
                return Err(format!(
                    "M3: the superblock of disk {disk} says that it holds all below {below}, and {place:?} is not durable"
                ));
            }
        }
        Ok(())
    }

    /// A superblock is submitted to this member: what it names beside itself, and the member's last one did not, must be
    /// durable there.
    pub(crate) fn check_areas(&self, disk: u16, bytes: &[u8; 4096]) -> Result<(), String> {
        let disk_of = &self.judge.disks[usize::from(disk)];
        if disk_of.is_liar() { Ok(()) } else { check_areas(disk, &disk_of.medium(), bytes) }
    }

    /// A repair has said that it is complete. `given_up`: members that the array has failed.
    pub(crate) fn check_repair(
        &self,
        given_up: &BTreeSet<u16>,
        is_exempt: &dyn Fn(Place) -> bool,
    ) -> Result<(), String> {
        for (number, disk) in (0u16..).zip(&self.judge.disks).filter(|(number, _)| !given_up.contains(number)) {
            let by_clients = self.by_clients.borrow();
            let uncertain = self.uncertain(number);
            let mut here = uncertain
                .iter()
                .filter(|place| !by_clients.contains(place) && !is_exempt(**place) && self.counts(**place));
            if !disk.is_liar()
                && let Some(place) = here.next()
            {
                return Err(format!("M3: a repair is complete, and {place:?} is not durable"));
            }
        }
        Ok(())
    }
}

/// See [`Claims::check_areas`].
fn check_areas(disk: u16, medium: &Medium, bytes: &[u8; 4096]) -> Result<(), String> {
    let parsed = |bytes: &[u8; 4096]| Superblock::parse(bytes, Sector(SUPER_AT), Sectors(u64::MAX >> 1)).ok();
    let Some(superblock) = parsed(bytes) else { return Ok(()) };
    let before = parsed(superblock_in(medium.current()).try_into().expect("a superblock's sectors"));
    let had_slot = before.as_ref().is_some_and(|before| before.own_role().slot().is_some());
    let takes_slot = !had_slot && superblock.own_role().slot().is_some();
    let names = |superblock: &Superblock, feature: Features| superblock.features.contains(feature);
    let is_new = |feature: Features| {
        names(&superblock, feature) && (takes_slot || !before.as_ref().is_some_and(|before| names(before, feature)))
    };
    let bitmap = BITMAP_AT..BITMAP_AT + BITMAP_SECTORS;
    let log = LOG_AT..LOG_AT + LOG_SECTORS;
    let parity_log = superblock.ppl_extent().map_or(0..0, |area| area.start.0..area.end().0);
    let durable = medium.durable();
    let own = superblock.set_uuid;
    let has_bitmap = || bitmap_of(durable, &superblock).is_ok_and(|bitmap| bitmap.header().set_uuid == own);
    let has_log = || bad_block_log_of(durable, &superblock).is_ok_and(|log| log.is_some());
    let has_parity_log = || ppl_of(durable, &superblock).is_some();
    let areas: [(&str, Features, _, &dyn Fn() -> bool); 3] = [
        ("bitmap", Features::BITMAP_OFFSET, bitmap, &has_bitmap),
        ("list of bad blocks", Features::BAD_BLOCKS, log, &has_log),
        ("partial parity log", Features::PPL, parity_log, &has_parity_log),
    ];
    for (name, feature, area, is_whole) in areas {
        // A spare's bitmap is written when it takes a slot.
        let counts = takes_slot || had_slot || feature == Features::BAD_BLOCKS;
        if counts && is_new(feature) && (medium.is_unflushed(area) || !is_whole()) {
            return Err(format!("M3: the superblock of disk {disk} names a {name} that is not durable there"));
        }
    }
    Ok(())
}

fn superblock_in(image: &[u8]) -> &[u8] {
    &image[SUPER_AT as usize * SECTOR_BYTES..][..4096]
}

/// The sectors that a member holds by its superblock: none as a spare, all without a recovery offset.
fn held_by(superblock: &[u8]) -> u64 {
    let u32_at = |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().expect("four bytes"));
    let role = 256 + 2 * (u32_at(160) as usize).min(1919);
    let is_in_slot = u16::from_le_bytes(superblock[role..role + 2].try_into().expect("two bytes")) < 0xfff0;
    let is_recovering = u32_at(8) & 2 != 0;
    match (is_in_slot, is_recovering) {
        (false, _) => 0,
        (true, true) => u64::from_le_bytes(superblock[152..160].try_into().expect("eight bytes")),
        (true, false) => u64::MAX,
    }
}
