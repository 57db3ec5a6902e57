//! node_exporter's metrics of md, for arrays that uraid serves.
//! Owns: `node_md_*`. Not here: their names (`names`), our own metrics.
//! Invariant: each value is what node_exporter computes from the text of `uraid mdstat`, which the same report gives.
//! Spec: node_exporter's mdadm collector; docs/md/behaviour.md#procmdstat.

use super::family::{Families, Labels};
use super::names::{self, MD_STATE};
use uraid_control::report::Report;

/// The words of `node_md_state`. A reshape and a broken array are in none.
const STATES: [&str; 5] = ["active", "inactive", "recovering", "resync", "check"];

/// Adds those of one array.
pub(super) fn add(families: &mut Families, device: &str, report: &Report) {
    let labels = || -> Labels { vec![("device", device.to_owned())] };
    let with = |state: &str| -> Labels { vec![("device", device.to_owned()), ("state", state.to_owned())] };
    let now = state(report);
    for state in STATES {
        families.whole(MD_STATE, with(state), u64::from(now == state));
    }
    let in_state = |state: &str| report.members.iter().filter(|member| member.state == state).count() as u64;
    let slots = report.slots();
    let (in_sync, down) = (slots.matches('U').count() as u64, slots.matches('_').count() as u64);
    let required = u64::from(report.raid_devices);
    let present = report.members.iter().filter(|member| member.path.is_some()).count() as u64;
    // Where mdstat has no picture of the slots, all members in its line count.
    let (active, required, down) = match report.level.as_str() {
        _ if now == "inactive" => (0, 0, 0),
        "raid0" | "linear" => (present, present, 0),
        _ => (in_sync, required, down),
    };
    for (state, count) in
        [("active", active), ("failed", in_state("faulty")), ("spare", in_state("spare")), ("down", down)]
    {
        families.whole(names::MD_DISKS, with(state), count);
    }
    families.whole(names::MD_DISKS_REQUIRED, labels(), required);
    let blocks = report.array_sectors / 2;
    families.whole(names::MD_BLOCKS, labels(), blocks);
    families.whole(names::MD_BLOCKS_SYNCED, labels(), synced(report, blocks));
    families.whole(names::MD_RAID_DISKS, labels(), report.raid_devices.into());
    let degraded = if matches!(report.level.as_str(), "raid0" | "linear") { 0 } else { slots.matches('_').count() };
    families.whole(names::MD_DEGRADED, labels(), degraded as u64);
}

/// The word for the state; a word that [`STATES`] has not for one that node_exporter leaves out.
fn state(report: &Report) -> &'static str {
    let is_shown = |word: &str| word == "resync" || report.pass().is_some_and(|pass| !pass.is_pending);
    match (report.pass().map(|pass| pass.word), report.state.last().map(String::as_str)) {
        // md calls a repair a resync.
        (Some("resync" | "repair"), _) if is_shown(report.pass().map_or("", |pass| pass.word)) => "resync",
        (Some("recovery"), _) if is_shown("recovery") => "recovering",
        (Some("check"), _) if is_shown("check") => "check",
        (_, Some("frozen")) => "broken",
        (_, Some("starting" | "stopping" | "stopped")) => "inactive",
        (_, Some(_) | None) => "active",
    }
}

/// KiB that are in sync: all, unless a pass is shown.
fn synced(report: &Report, blocks: u64) -> u64 {
    match report.pass() {
        Some(pass) if !pass.is_pending => pass.progress.done / 2,
        Some(pass) if pass.word == "resync" => 0,
        Some(_) | None => blocks,
    }
}
