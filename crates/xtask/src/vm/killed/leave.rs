//! uraid's part: an array that is left before a new member holds everything.
//! Owns: making and filling the array, the moment of its end, what the superblocks say then. Not here: which arrays, what the
//! kernel must find (the parent).
//! Invariant: what the array holds is computed from what was written, not read back.

use super::{Case, End, LATE_SECTORS_MAX, Level, Work};
use crate::vm::host::{self, Served};
use crate::vm::ppl::torn;
use crate::vm::writers::{CHUNK_BYTES, Content, Load, Patterns, size_of};
use crate::vm::{Lab, at, lab_error, output_of};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The pass is made slower until uraid ends before it does, or faster until it has recorded enough.
const TRIES_MAX: u32 = 8;

/// Longer than uraid waits before it marks an idle array clean, and from one record of a pass to the next.
const IDLE: Duration = Duration::from_millis(700);
/// The part of [`super::LARGE_BYTES`] that is filled until the end.
const LARGE_TIME: Duration = Duration::from_millis(1500);

/// The array as uraid leaves it to the kernel.
pub(super) struct Left {
    /// What it must hold.
    pub(super) content: Content,
    /// How far the new member's superblock says that it has come.
    pub(super) recorded: u64,
    /// Whether the superblocks say what they must.
    pub(super) is_right: bool,
    /// In one line.
    pub(super) summary: String,
    /// What the superblocks of all members say, in a line for each.
    pub(super) examined: String,
}

/// Makes the array, and leaves it in the middle.
pub(super) fn leave(uraid: &Path, folder: &Path, patterns: &Patterns, case: &Case) -> Lab<Left> {
    let mut kib_a_second = case.drawn.kib_a_second;
    for _ in 0..TRIES_MAX {
        let (content, progress) = once(uraid, folder, patterns, case, kib_a_second)?;
        let superblocks = Superblocks::read(uraid, &case.images(folder))?;
        match superblocks.pace(case) {
            Pace::Right => {}
            Pace::Slow => {
                kib_a_second *= 2;
                continue;
            }
            Pace::Fast => {
                kib_a_second /= 2;
                continue;
            }
        }
        let (recorded, told, is_right) = superblocks.judge(case);
        let spoiled = superblocks.spoil(uraid, folder, case, &content)?;
        let spoiled = if spoiled == 0 { String::new() } else { format!(", {spoiled} sectors of parity spoiled") };
        let summary = format!("{told}, {progress} of the new member was done{spoiled}");
        return Ok(Left { content, recorded, is_right, summary, examined: superblocks.brief(case) });
    }
    lab_error("uraid never ended in the middle of the pass")
}

/// The member of each slot.
fn members(folder: &Path, case: &Case) -> Vec<PathBuf> {
    let mut images = case.images(folder);
    let new = images.pop().expect("there is a new member");
    if case.work == Work::Recovery {
        images[case.drawn.slot] = new;
    }
    images
}

/// Once. Returns what the array holds, and how far the pass had come, in percent.
fn once(uraid: &Path, folder: &Path, patterns: &Patterns, case: &Case, kib_a_second: u64) -> Lab<(Content, String)> {
    let images = case.images(folder);
    images.iter().try_for_each(|image| host::empty_image(image, case.member_bytes()))?;
    // What is not recovered holds something else.
    host::random_image(&images[case.slots], case.member_bytes())?;
    create(uraid, case, &images[..case.slots])?;
    let served = Served::start(uraid, folder, &[], &images[..case.slots])?;
    let size = size_of(&served)?;
    let mut content = Content::new(fill(&served, folder, patterns.fill(size))?);
    begin(uraid, &served, case, &images, kib_a_second)?;
    match case.end {
        End::Dirty | End::Stopped => {
            if case.drawn.is_late {
                std::thread::sleep(IDLE);
            }
            let load = Load::start(patterns, &served, size / CHUNK_BYTES * CHUNK_BYTES)?;
            std::thread::sleep(Duration::from_millis(case.drawn.milliseconds));
            let progress = progress(uraid, &served)?;
            if case.end == End::Dirty {
                served.kill(&images)?
            } else {
                served.stop()?
            }
            load.end(&mut content);
            Ok((content, progress))
        }
        End::Idle => {
            let mut other = patterns.fill(size);
            other.rotate_left(512);
            let content = Content::new(fill(&served, folder, other)?);
            std::thread::sleep(LARGE_TIME.max(IDLE));
            let progress = progress(uraid, &served)?;
            served.kill(&images)?;
            Ok((content, progress))
        }
    }
}

fn create(uraid: &Path, case: &Case, members: &[PathBuf]) -> Lab<()> {
    let mut create = Command::new(uraid);
    create.args(["create", "--assume-clean", "--level", case.level.name(), "--metadata", case.metadata]);
    create.args(["--raid-devices", &case.slots.to_string(), "--name", &case.name]);
    if !case.layout.is_empty() {
        create.args(["--layout", case.layout]);
    }
    if case.level != Level::Raid1 {
        create.args(["--chunk", "64K"]);
    }
    if case.level == Level::Raid5WithLog {
        create.args(["--consistency-policy", "ppl"]);
    } else if case.has_bitmap {
        create.args(["--bitmap", "internal", "--bitmap-chunk", "64K"]);
    }
    output_of(create.args(members)).map(|_| ())
}

/// Writes all of the array.
fn fill(served: &Served, folder: &Path, bytes: Vec<u8>) -> Lab<Vec<u8>> {
    let data = folder.join("data");
    at(&data, std::fs::write(&data, &bytes))?;
    host::nbdcopy(&data.display().to_string(), &served.uri)?;
    Ok(bytes)
}

/// Lets the new member be filled, slowly.
fn begin(uraid: &Path, served: &Served, case: &Case, images: &[PathBuf], kib_a_second: u64) -> Lab<()> {
    let (old, new) = (&images[case.drawn.slot], &images[case.slots]);
    served.speed_by_clients(uraid, kib_a_second)?;
    match case.work {
        Work::Recovery => {
            served.fail(uraid, old)?;
            served.change(uraid, "add", new)
        }
        Work::Replacement => {
            served.change(uraid, "add", new)?;
            served.change(uraid, "replace", old)
        }
    }
}

/// Where the xor of a row is.
fn parity_slot(case: &Case, row: usize) -> usize {
    match (case.level, case.layout) {
        (Level::Raid4, _) => case.slots - 1,
        (_, "right-asymmetric") => row % case.slots,
        (_, layout) => {
            assert_eq!(layout, "left-symmetric", "a layout of the list");
            case.slots - 1 - row % case.slots
        }
    }
}

fn progress(uraid: &Path, served: &Served) -> Lab<String> {
    let report = served.report(uraid)?;
    let number = |name: &str| report["recovery"][name].as_u64().or_else(|| report["replacement"][name].as_u64());
    Ok(match (number("done"), number("total")) {
        (Some(done), Some(total)) if total > 0 => format!("{} %", 100 * done / total),
        (_, _) => "all".to_owned(),
    })
}

/// Of a pass that uraid leaves.
enum Pace {
    Right,
    Slow,
    Fast,
}

/// What `uraid examine --json` tells of the members, by image.
struct Superblocks(serde_json::Value);

impl Superblocks {
    fn read(uraid: &Path, images: &[PathBuf]) -> Lab<Superblocks> {
        let text = output_of(Command::new(uraid).args(["examine", "--json"]).args(images))?;
        match serde_json::from_str(&text) {
            Ok(told) => Ok(Superblocks(told)),
            Err(error) => lab_error(format!("uraid examine --json prints no JSON: {error}: {text}")),
        }
    }

    /// Whether uraid has ended before the pass, and, if the kernel is to go on, not too near to an end.
    fn pace(&self, case: &Case) -> Pace {
        let (new, other) = (&self.0[case.slots], &self.0[(case.drawn.slot + 1) % case.slots]);
        let size = other["used_dev_size"].as_u64().unwrap_or(0);
        match (new["recovery_offset"].as_u64(), case.end) {
            (None, _) if new["slot"].is_u64() => Pace::Fast,
            (Some(at), End::Idle | End::Stopped) if at <= LATE_SECTORS_MAX => Pace::Slow,
            (Some(at), End::Idle | End::Stopped) if at + 2 * LATE_SECTORS_MAX >= size => Pace::Fast,
            (_, End::Dirty | End::Idle | End::Stopped) => Pace::Right,
        }
    }

    /// Says how far the new member has come, the state in a few words, and whether the superblocks are right.
    fn judge(&self, case: &Case) -> (u64, String, bool) {
        let new = &self.0[case.slots];
        let other = &self.0[(case.drawn.slot + 1) % case.slots];
        let is_dirty = other["resync_offset"].as_u64() == Some(0);
        let (is_listed, recorded) = (new["slot"].is_u64(), new["recovery_offset"].as_u64());
        let size = &other["used_dev_size"];
        let state = if is_dirty { "dirty" } else { "clean" };
        let told = match recorded.filter(|_| is_listed) {
            Some(recorded) => format!("{state}, recorded sector {recorded} of {size}"),
            None => format!("{state}, the new member a {}", new["device_role"].as_str().unwrap_or("?")),
        };
        let is_right = match (case.end, is_listed, recorded) {
            // A raid1 may be left in either way, as far as the kernel then loses nothing.
            (End::Dirty, false, None) => is_dirty && (case.is_hidden() || case.level == Level::Raid1),
            (End::Dirty, true, Some(_)) => is_dirty && !case.is_hidden(),
            (End::Idle | End::Stopped, true, Some(_)) => !is_dirty,
            (End::Dirty | End::Idle | End::Stopped, _, _) => false,
        };
        (recorded.unwrap_or(0), told, is_right)
    }

    /// Spoils parity of what was in flight, as if it had not been written: a killed process hands its writes to the kernel so
    /// fast that hardly one is missing. Returns the number of sectors.
    fn spoil(&self, uraid: &Path, folder: &Path, case: &Case, content: &Content) -> Lab<usize> {
        let members = members(folder, case);
        let recovering = (case.work == Work::Recovery).then_some(case.drawn.slot);
        if case.end != End::Dirty {
            return Ok(0);
        }
        if case.level == Level::Raid5WithLog {
            return torn::spoil(uraid, &members, case.layout.ends_with("-symmetric"), recovering);
        }
        // A bit may not have been set yet for a write that was not even begun, and nobody would look there.
        let is_by_bits = case.has_bitmap && case.work == Work::Replacement;
        let Some(data_chunks) = case.data_chunks().filter(|_| !is_by_bits) else { return Ok(0) };
        let mut sectors = 0;
        for (row, place) in content.open_columns(data_chunks) {
            let slot = parity_slot(case, row);
            if Some(slot) != recovering {
                let Some(data) = self.0[slot]["data_offset"].as_u64() else { return lab_error("no data offset") };
                let file = at(&members[slot], std::fs::OpenOptions::new().write(true).open(&members[slot]))?;
                let offset = data * 512 + (row * CHUNK_BYTES + place) as u64;
                at(&members[slot], file.write_all_at(&[0x5a; 512], offset))?;
                sectors += 1;
            }
        }
        Ok(sectors)
    }

    /// A line for each member.
    fn brief(&self, case: &Case) -> String {
        let lines = (0..=case.slots).map(|at| {
            let one = &self.0[at];
            let word = |name: &str| one[name].to_string();
            let names =
                ["device_role", "array_state", "state", "events", "resync_offset", "recovery_offset", "features"];
            let words: Vec<String> = names.iter().map(|name| format!("{name} {}", word(name))).collect();
            format!("  image {at}: {}", words.join(", "))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
