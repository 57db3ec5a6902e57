//! What mdadm and uraid make of the same members, and say of the same bytes.
//! Owns: which bytes of two superblocks must be equal, which lines of two reports. Not here: who makes the arrays (the
//! parent).
//! Spec: docs/format/superblock-1.md.

use crate::programs::packages;
use crate::vm::kernel::Release;
use crate::vm::{Lab, at, lab_error, output_of, superblock};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

const FEATURES_AT: usize = 8;
/// Feature bit 10, in the second byte of them.
const ONE_LOG: u8 = 1 << 2;
/// Feature bit 11.
const RING: u8 = 1 << 3;

/// What two arrays need not share: ids, names and times, and how far they have come.
const OWN: [(&str, Range<usize>); 6] = [
    ("set_uuid, set_name, ctime", 16..72),
    ("device_uuid", 168..184),
    ("utime", 192..200),
    ("events", 200..208),
    ("resync_offset", 208..216),
    ("sb_csum", 216..220),
];

/// "equal", or the first byte in which the superblocks of two arrays differ that need not. `ones` are the kernel's.
pub(super) fn compare(release: Release, metadata: &str, ones: &[PathBuf], others: &[PathBuf]) -> Lab<String> {
    for (slot, (one, other)) in ones.iter().zip(others).enumerate() {
        let (mut one, mut other) = (superblock::read(metadata, one)?, superblock::read(metadata, other)?);
        // mdadm says that there is one log, and md that there is a ring, as soon as it starts an array that has room for one.
        if one[FEATURES_AT + 1] & RING != 0 && other[FEATURES_AT + 1] & ONE_LOG != 0 {
            one[FEATURES_AT + 1] ^= RING | ONE_LOG;
        }
        // uraid records none, for the older kernels.
        assert_eq!(other[superblock::LOGICAL_BLOCK_SIZE], [0; 4]);
        other[superblock::LOGICAL_BLOCK_SIZE].copy_from_slice(&superblock::recorded_by(release).to_le_bytes());
        let is_own = |at: &usize| OWN.iter().any(|(_, range)| range.contains(at));
        let differs = |at: &usize| one.get(*at) != other.get(*at);
        let mut found = (0..one.len().max(other.len())).filter(|at| !is_own(at)).filter(differs);
        if let Some(first) = found.next() {
            let part = |bytes: &[u8]| format!("{:02x?}", &bytes[first..bytes.len().min(first + 8)]);
            return Ok(format!("member {slot} differs from byte {first} on: {} and {}", part(&one), part(&other)));
        }
    }
    Ok("equal".to_owned())
}

/// "equal" if `mdadm --examine` has no complaint about the members, and `uraid examine` has all of its lines.
pub(super) fn examine(uraid: &Path, members: &[PathBuf]) -> Lab<String> {
    let Some(mdadm) = packages::find("mdadm") else { return lab_error("mdadm is missing") };
    for member in members {
        let theirs = Command::new(&mdadm).arg("--examine").arg(member).output();
        let theirs = at(&mdadm, theirs)?;
        let text = String::from_utf8_lossy(&theirs.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&theirs.stderr).into_owned();
        if !theirs.status.success() || !complaint.is_empty() || !text.contains(" - correct") {
            return Ok(format!("mdadm says {complaint}{text}"));
        }
        if !text.lines().any(|line| line.trim_start().starts_with("PPL : ")) {
            return Ok(format!("mdadm sees no log: {text}"));
        }
        let ours = output_of(Command::new(uraid).arg("examine").arg(member))?;
        // uraid names its time zone.
        let is_time = |line: &&str| line.contains(" Time : ");
        for line in text.lines().filter(|line| !is_time(line)) {
            if !ours.lines().any(|ours| ours.trim() == line.trim()) {
                return Ok(format!("mdadm's line {line:?} is not in {ours}"));
            }
        }
    }
    Ok("equal".to_owned())
}
