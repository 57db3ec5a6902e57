//! Layout names and defaults, in mdadm's spelling.
//! Owns: layout number <-> name, defaults of create. Not here: what a layout means (the level files).

use crate::Level;
use uraid_block::Sectors;

/// mdadm's default layout number.
pub const fn default_layout(level: Level) -> u32 {
    match level {
        Level::Raid0 => 1,
        Level::Raid10 => 0x102,
        Level::Raid5 | Level::Raid6 => 2,
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
    }
}

/// mdadm's default chunk: 512 KiB, zero for levels without chunks.
pub const fn default_chunk(level: Level) -> Sectors {
    match level {
        Level::Linear | Level::Raid1 => Sectors::ZERO,
        Level::Raid0 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => Sectors(1024),
    }
}

/// Number, mdadm's name, mdadm's short name.
type Names = &'static [(u32, &'static str, &'static str)];

const RAID0: Names = &[(1, "original", "1"), (2, "alternate", "2")];

const RAID5: Names = &[
    (0, "left-asymmetric", "la"),
    (1, "right-asymmetric", "ra"),
    (2, "left-symmetric", "ls"),
    (3, "right-symmetric", "rs"),
    (4, "parity-first", "parity-first"),
    (5, "parity-last", "parity-last"),
];

/// mdadm accepts DDF's names for raid5 too, under other names of its own; they are never printed.
const RAID5_OTHER: Names = &[
    (1, "ddf-zero-restart", "ddf-zero-restart"),
    (0, "ddf-N-restart", "ddf-N-restart"),
    (2, "ddf-N-continue", "ddf-N-continue"),
];

const RAID6: Names = &[
    (8, "ddf-zero-restart", "ddf-zero-restart"),
    (9, "ddf-N-restart", "ddf-N-restart"),
    (10, "ddf-N-continue", "ddf-N-continue"),
    (16, "left-asymmetric-6", "left-asymmetric-6"),
    (17, "right-asymmetric-6", "right-asymmetric-6"),
    (18, "left-symmetric-6", "left-symmetric-6"),
    (19, "right-symmetric-6", "right-symmetric-6"),
    (20, "parity-first-6", "parity-first-6"),
];

fn number(names: &[Names], name: &str) -> Option<u32> {
    let found = names.iter().copied().flatten().find(|(_, long, short)| name == *long || name == *short);
    found.map(|&(number, _, _)| number)
}

fn name(names: &[Names], layout: u32) -> String {
    let found = names.iter().copied().flatten().find(|(number, _, _)| *number == layout);
    found.map_or_else(|| layout.to_string(), |(_, long, _)| (*long).to_owned())
}

/// A layout's number from any of mdadm's spellings (and from the names that [`layout_name`] returns); `None` for an
/// unknown name, and for levels without layouts. [`crate::Layout::new`] checks whether there are enough members for it.
pub fn parse_layout(level: Level, name: &str) -> Option<u32> {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
        Level::Raid0 if name == "default" => Some(default_layout(level)),
        Level::Raid0 => number(&[RAID0], name),
        Level::Raid5 | Level::Raid6 if name == "default" => Some(default_layout(level)),
        Level::Raid5 => number(&[RAID5, RAID5_OTHER], name),
        Level::Raid6 => number(&[RAID5, RAID6], name),
        Level::Raid10 => parse_copies(name),
    }
}

/// "n2", "far3", "offset=2": a kind and how many copies.
fn parse_copies(name: &str) -> Option<u32> {
    let kinds = [("near", 'n'), ("far", 'f'), ("offset", 'o')];
    let (kind, rest) = kinds.into_iter().find_map(|(long, short)| {
        let rest = name.strip_prefix(long).map(|rest| rest.strip_prefix('=').unwrap_or(rest));
        rest.or_else(|| name.strip_prefix(short)).map(|rest| (short, rest))
    })?;
    if !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let copies = u32::from(rest.parse::<u8>().ok().filter(|&copies| copies > 0)?);
    match kind {
        'n' => Some(0x100 + copies),
        'f' => Some(1 + (copies << 8)),
        _ => Some(0x1_0001 + (copies << 8)),
    }
}

/// A layout's name as mdadm prints it ("left-symmetric", "near=2"); the number itself if it has no name; empty for
/// levels without layouts, and for a raid0 that records none.
pub fn layout_name(level: Level, layout: u32) -> String {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => String::new(),
        Level::Raid0 if layout == 0 => String::new(),
        Level::Raid0 => name(&[RAID0], layout),
        Level::Raid5 => name(&[RAID5], layout),
        Level::Raid6 => name(&[RAID5, RAID6], layout),
        Level::Raid10 => copies_name(layout),
    }
}

fn copies_name(layout: u32) -> String {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let far_kind = if layout & 0x1_0000 == 0 { "far" } else { "offset" };
    match (near, far) {
        (_, 1) => format!("near={near}"),
        (1, _) => format!("{far_kind}={far}"),
        (_, _) => format!("near={near}, {far_kind}={far}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_names_parse() {
        let raid6 = (0..=5).chain(8..=10).chain(16..=20);
        let copies = (2..=6).flat_map(|n| [0x100 + n, 1 + (n << 8), 0x1_0001 + (n << 8)]);
        let all = [(Level::Raid0, vec![1, 2]), (Level::Raid5, (0..=5).collect()), (Level::Raid6, raid6.collect())];
        for (level, layouts) in all.into_iter().chain([(Level::Raid10, copies.collect())]) {
            for layout in layouts {
                assert_eq!(parse_layout(level, &layout_name(level, layout)), Some(layout), "{level} {layout}");
            }
        }
    }

    #[test]
    fn the_spellings_of_mdadm_are_known() {
        for (level, name, layout) in [
            (Level::Raid5, "la", 0),
            (Level::Raid5, "rs", 3),
            (Level::Raid5, "default", 2),
            (Level::Raid5, "ddf-zero-restart", 1),
            (Level::Raid6, "ddf-zero-restart", 8),
            (Level::Raid6, "ls", 2),
            (Level::Raid6, "left-symmetric-6", 18),
            (Level::Raid10, "n2", 0x102),
            (Level::Raid10, "f2", 0x201),
            (Level::Raid10, "o3", 0x1_0301),
            (Level::Raid0, "alternate", 2),
        ] {
            assert_eq!(parse_layout(level, name), Some(layout), "{level} {name}");
        }
        assert_eq!(layout_name(Level::Raid10, 0x1_0201), "offset=2");
        assert_eq!(layout_name(Level::Raid10, 0x202), "near=2, far=2");
        assert_eq!(layout_name(Level::Raid6, 7), "7");
        assert_eq!((layout_name(Level::Raid0, 0).as_str(), layout_name(Level::Raid0, 3).as_str()), ("", "3"));
    }

    #[test]
    fn unknown_names_are_refused() {
        for name in ["", "n", "n0", "n256", "n+2", "x2", "2", "near=", "far=-1", "nn2"] {
            assert_eq!(parse_layout(Level::Raid10, name), None, "{name}");
        }
        assert_eq!(parse_layout(Level::Raid5, "left-symmetric-6"), None);
        assert_eq!(parse_layout(Level::Raid1, "n2"), None);
    }
}
