//! Running arrays as /proc/mdstat shows those of the kernel.
//! Owns: the picture, and its words for levels, states and members. Not here: the figures of a pass (`pass_progress`), the
//! facts (the parent).
//! Invariant: whatever the names of arrays and members are, blanks and line ends in the picture are its own.
//! Spec: docs/md/behaviour.md#procmdstat.

use super::{Bitmap, Member, Pass, REPLACEMENT, Report, WRITE_MOSTLY};
use std::path::Path;
use uraid_layout::Level;

/// The picture of these arrays.
pub fn mdstat(reports: &[Report]) -> String {
    let levels: Vec<String> = Level::ALL.iter().map(|level| format!("[{}]", level.name())).collect();
    let arrays: String = reports.iter().map(array).collect();
    format!("Personalities : {}\n{arrays}unused devices: <none>\n", levels.join(" "))
}

/// The lines of one array, and an empty one.
fn array(report: &Report) -> String {
    let Report { level, metadata, array_sectors, .. } = report;
    let last = report.state.last().map_or("", String::as_str);
    // md shows neither the level nor the slots of an array that does not serve.
    let (state, serves) = match last {
        "frozen" => (format!("broken {level}"), true),
        "read-only" => (format!("active (read-only) {level}"), true),
        "starting" | "stopping" | "stopped" => ("inactive".to_owned(), false),
        _ => (format!("active {level}"), true),
    };
    let members: String = members(&report.members);
    let version = if metadata == "0.90" { String::new() } else { format!(" super {metadata}") };
    let shape = if serves { shape(report) } else { String::new() };
    let pass = report.pass().map_or_else(String::new, |pass| pass_line(&pass));
    let bitmap = report.bitmap.as_ref().map_or_else(String::new, bitmap_line);
    let (name, kib) = (device(report), array_sectors / 2);
    format!("{name} : {state}{members}\n      {kib} blocks{version}{shape}\n{pass}{bitmap}\n")
}

/// `      bitmap: 3/3 pages [12KB], 65536KB chunk`. md counts the pages of its counters, 2048 chunks each, that are in memory,
/// because a chunk of them is dirty.
fn bitmap_line(bitmap: &Bitmap) -> String {
    let (pages, used) = (bitmap.chunks.div_ceil(2048), bitmap.pages_dirty);
    let chunk = match bitmap.chunk_sectors / 2 {
        0 => format!("{}B", bitmap.chunk_sectors * 512),
        kib => format!("{kib}KB"),
    };
    format!("      bitmap: {used}/{pages} pages [{}KB], {chunk} chunk\n", used * 4)
}

/// What follows the version of the superblocks: the level's words, and the slots where there is redundancy.
fn shape(report: &Report) -> String {
    let (chunk, slots) = (report.chunk_sectors / 2, report.picture());
    let layout = report.geometry.as_ref().map_or(0, |geometry| geometry.layout);
    match Level::parse(&report.level) {
        // Its rounding is no chunk of the layout.
        Some(Level::Linear) => format!(" {}k rounding", report.geometry.as_ref().map_or(0, |of| of.chunk / 2)),
        Some(Level::Raid0) => format!(" {chunk}k chunks"),
        Some(Level::Raid1) | None => format!(" {slots}"),
        Some(Level::Raid10) => format!(" {chunk}K chunks{} {slots}", copies(layout, report.raid_devices)),
        Some(level @ (Level::Raid4 | Level::Raid5 | Level::Raid6)) => {
            format!(" level {}, {chunk}k chunk, algorithm {layout} {slots}", level.md())
        }
    }
}

/// ` 2 near-copies`: the parts of raid10's layout word.
fn copies(layout: u32, slots: u16) -> String {
    let (near, far, is_offset) = (layout & 0xff, layout >> 8 & 0xff, layout & 0x1_0000 != 0);
    let mut out = String::new();
    if near > 1 {
        out = format!(" {near} near-copies");
    }
    if far > 1 {
        out = format!("{out} {far} {}-copies", if is_offset { "offset" } else { "far" });
    }
    // Where the far copies stay within sets of members.
    match layout >> 17 {
        0 => out,
        1 => format!("{out} {} devices per set", u32::from(slots) / far.max(1)),
        _ => format!("{out} {} devices per set", far * near),
    }
}

/// `md127`. Readers take lines that begin with `md` for arrays.
fn device(report: &Report) -> String {
    // A server of an older version gives no such name.
    report.device.clone().unwrap_or_else(|| format!("md_{}", word(&report.name)))
}

/// ` m0[0] m1[1] m2[3](F)`: file names, or whole paths where two members would be called the same.
fn members(members: &[Member]) -> String {
    let paths = || members.iter().filter_map(|member| member.path.as_deref());
    let short = |path: &str| {
        let name = Path::new(path).file_name().map_or(path.to_owned(), |name| name.to_string_lossy().into());
        word(&name)
    };
    let is_unique = |name: &str| paths().filter(|path| short(path) == name).count() == 1;
    let mut out = String::new();
    for member in members {
        let Some(path) = &member.path else { continue };
        let name = Some(short(path)).filter(|name| is_unique(name)).unwrap_or_else(|| word(path));
        let number = member.number.map_or("-".to_owned(), |number| number.to_string());
        let mark = match member.state.as_str() {
            "faulty" => "(F)",
            "spare" => "(S)",
            REPLACEMENT => "(R)",
            _ => "",
        };
        let flags = if member.flags.iter().any(|flag| flag == WRITE_MOSTLY) { "(W)" } else { "" };
        out = format!("{out} {name}[{number}]{flags}{mark}");
    }
    out
}

/// `      [==>..................]  resync = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec`
fn pass_line(pass: &Pass<'_>) -> String {
    let Pass { word, progress, .. } = pass;
    // The kernel has this word alone for a pass that waits, and shows no other one.
    if pass.is_pending {
        return if *word == "resync" { "      \tresync=PENDING\n".to_owned() } else { String::new() };
    }
    // md has no word of its own for it.
    let word = if *word == "repair" { "resync" } else { word };
    let (bar, done, total) = (progress.bar(), progress.done / 2, progress.total / 2);
    // A pass that has just ended: readers look for a blank before the number, and 100.0 leaves none.
    let percent = Some(progress.percent()).filter(|percent| percent.len() <= "99.9%".len());
    let percent = percent.unwrap_or_else(|| "99.9%".to_owned());
    let (finish, speed) = (progress.minutes_left(), progress.speed());
    format!("      {bar}  {word} ={percent:>6} ({done}/{total}) finish={finish} speed={speed}\n")
}

/// A name as those of the kernel's block devices: letters, digits and `_`, which all readers take for one word.
fn word(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Geometry, PassProgress};
    use uraid_block::Sectors;
    use uraid_format::create::{CreateOptions, NewMember, create};

    fn member(number: u32, path: &str, slot: Option<u16>, state: &str) -> Member {
        let (number, state, path) = (Some(number), state.to_owned(), Some(path.to_owned()));
        Member { number, slot, state, path, ..Member::removed(0) }
    }

    /// What a superblock says of its array.
    fn shape() -> Report {
        let options = CreateOptions::new(Level::Raid1, 2, [1; 16]);
        let member = |n| NewMember::Device { size: Sectors(1 << 16), uuid: [n; 16] };
        let created = create(&options, &[member(2), member(3)]).expect("a good geometry");
        Report::of_template(created.superblocks[0].as_ref().expect("it is there"), None)
    }

    fn report(level: &str, layout: u32, slots: u16) -> Report {
        let of_slot = |slot: u16| member(slot.into(), &format!("/disks/m{slot}"), Some(slot), "active sync");
        Report {
            name: "home".to_owned(),
            device: Some("md127".to_owned()),
            array_sectors: 40_960,
            level: level.to_owned(),
            chunk_sectors: 128,
            raid_devices: slots,
            state: vec!["clean".to_owned()],
            members: (0..slots).map(of_slot).collect(),
            geometry: Some(Geometry { layout, chunk: 128, size: 0, member_sizes: Vec::new() }),
            ..shape()
        }
    }

    /// What the kernel prints for these levels and layouts.
    #[test]
    fn each_level_is_described_as_by_the_kernel() {
        for (level, layout, slots, expected) in [
            ("linear", 0, 2, "64k rounding"),
            ("raid0", 2, 2, "64k chunks"),
            ("raid1", 0, 2, "[2/2] [UU]"),
            ("raid4", 0, 3, "level 4, 64k chunk, algorithm 0 [3/3] [UUU]"),
            ("raid5", 2, 3, "level 5, 64k chunk, algorithm 2 [3/3] [UUU]"),
            ("raid6", 18, 4, "level 6, 64k chunk, algorithm 18 [4/4] [UUUU]"),
            ("raid10", 0x102, 4, "64K chunks 2 near-copies [4/4] [UUUU]"),
            ("raid10", 0x201, 3, "64K chunks 2 far-copies [3/3] [UUU]"),
            ("raid10", 0x1_0301, 3, "64K chunks 3 offset-copies [3/3] [UUU]"),
            ("raid10", 0x2_0201, 4, "64K chunks 2 far-copies 2 devices per set [4/4] [UUUU]"),
            ("raid10", 0x4_0202, 4, "64K chunks 2 near-copies 2 far-copies 4 devices per set [4/4] [UUUU]"),
        ] {
            let shown = array(&report(level, layout, slots));
            assert!(shown.starts_with(&format!("md127 : active {level} m0[0] m1[1]")), "{shown}");
            assert!(shown.ends_with(&format!("\n      20480 blocks super 1.2 {expected}\n\n")), "{shown}");
        }
    }

    #[test]
    fn failed_members_spares_and_states_have_md_s_marks() {
        let mut report = report("raid1", 0, 3);
        report.members[1] = member(3, "/disks/b c", None, "faulty");
        report.members.push(Member::removed(1));
        report.members.push(member(4, "/spares/m2", None, "spare"));
        let shown = array(&report);
        let expected = "md127 : active raid1 m0[0] b_c[3](F) _disks_m2[2] _spares_m2[4](S)\n      20480 blocks super 1.2 \
                        [3/2] [U_U]\n\n";
        assert_eq!(shown, expected);
        let of = |state: &str, report: &Report| {
            array(&Report { state: vec!["clean".to_owned(), state.to_owned()], ..report.clone() })
        };
        assert!(of("frozen", &report).starts_with("md127 : broken raid1 m0[0]"));
        assert!(of("read-only", &report).starts_with("md127 : active (read-only) raid1 m0[0]"));
        let starting = of("starting", &report);
        assert!(
            starting.starts_with("md127 : inactive m0[0]") && starting.contains(" blocks super 1.2\n"),
            "{starting}"
        );
        report.metadata = "0.90".to_owned();
        assert!(array(&report).contains("\n      20480 blocks [3/2] [U_U]\n"));
    }

    #[test]
    fn a_pass_has_a_line_of_its_own() {
        let mut report = report("raid1", 0, 2);
        report.state.push("resyncing".to_owned());
        let progress = PassProgress {
            done: 2 * 37_043_392,
            total: 2 * 292_945_152,
            sectors_per_second: Some(2 * 33_440),
            seconds_left: Some(7653),
        };
        report.resync = Some(progress.clone());
        let expected = "\n      [==>..................]  resync = 12.6% (37043392/292945152) finish=127.5min \
                        speed=33440K/sec\n\n";
        assert!(array(&report).ends_with(expected), "{}", array(&report));
        // Readers look for a blank before the number, and for a number of minutes.
        report.resync = Some(PassProgress { done: progress.total, seconds_left: None, ..progress.clone() });
        assert!(array(&report).contains("]  resync = 99.9% ("), "{}", array(&report));
        let begun = PassProgress { done: 0, sectors_per_second: None, seconds_left: None, ..progress.clone() };
        report.resync = Some(begun);
        let begun = "  resync =  0.0% (0/292945152) finish=305151.2min speed=0K/sec\n";
        assert!(array(&report).contains(begun), "{}", array(&report));
        report.state = vec!["active".to_owned(), "frozen".to_owned()];
        assert!(array(&report).ends_with(" [2/2] [UU]\n      \tresync=PENDING\n\n"), "{}", array(&report));
        // The kernel shows nothing of another pass that waits.
        report.recovery = report.resync.take();
        assert!(array(&report).ends_with(" [2/2] [UU]\n\n"), "{}", array(&report));
    }

    #[test]
    fn names_break_no_line() {
        let mut hostile = report("raid1", 0, 1);
        hostile.name = "a\nmd1 : active\u{202e}".to_owned();
        hostile.device = None;
        let shown = mdstat(&[hostile]);
        assert_eq!(shown.lines().count(), 5, "{shown}");
        assert!(shown.contains("\nmd_a_md1___active_ : active raid1 m0[0]\n"), "{shown}");
        let nothing =
            "Personalities : [linear] [raid0] [raid1] [raid10] [raid4] [raid5] [raid6]\nunused devices: <none>\n";
        assert_eq!(mdstat(&[]), nothing);
    }
}
