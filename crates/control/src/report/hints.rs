//! Lines of a report to copy: for mkfs and for mdadm.conf.
//! Owns: the stripe geometry for file systems. Not here: the rest of the report (the parent).
//! Spec: docs/md/behaviour.md#io-hints: what mkfs detects by itself on md's own devices.

use super::Report;
use serde::Serialize;
use std::fmt::Write as _;

/// Lines to copy: mkfs options for the stripe geometry, and a line that stops mdadm from assembling the members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Hints {
    /// The mkfs options, which erase the array. `None` unless it is blank and has chunks that a file system could align
    /// to.
    mkfs_xfs: Option<String>,
    mkfs_ext4: Option<String>,
    /// For mdadm.conf.
    mdadm_conf: String,
}

/// The stripe geometry in mkfs's terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stripes {
    chunk_kib: u64,
    /// Chunks of data in a stripe.
    data: u32,
    /// Blocks of 4 KiB in a chunk.
    blocks: u64,
}

/// A file system whose mkfs can be told stripes, or has no option for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MkfsOf {
    /// With su and sw.
    Xfs,
    /// With stride and stripe_width.
    Ext4,
    /// Without an option for them.
    Btrfs,
}

impl Stripes {
    /// The options of mkfs; empty for Btrfs, which does not know stripes.
    fn args(self, of: MkfsOf) -> String {
        let Stripes { chunk_kib, data, blocks } = self;
        match of {
            MkfsOf::Xfs => format!("-d su={chunk_kib}k,sw={data}"),
            MkfsOf::Ext4 => format!("-b 4096 -E stride={blocks},stripe_width={}", u64::from(data) * blocks),
            MkfsOf::Btrfs => String::new(),
        }
    }
}

impl Report {
    /// The options of mkfs that align a file system to the array's stripes; empty if it has none.
    pub fn mkfs_args(&self, of: MkfsOf) -> String {
        self.stripes().map_or(String::new(), |stripes| stripes.args(of))
    }

    pub(super) fn write_hints(&self, out: &mut String) {
        let hints = self.hints();
        if let (Some(xfs), Some(ext4)) = (&hints.mkfs_xfs, &hints.mkfs_ext4) {
            out.push_str("\nTo make a new file system, aligned to its stripes (erases the array):\n");
            writeln!(out, "    {xfs}\n    {ext4}").expect("a string takes all");
        }
        out.push_str("\nThis line in mdadm.conf stops mdadm from assembling it automatically:\n");
        writeln!(out, "    {}", hints.mdadm_conf).expect("a string takes all");
    }

    pub(super) fn hints(&self) -> Hints {
        let stripes = self.stripes().filter(|_| self.is_blank);
        Hints {
            mkfs_xfs: stripes.map(|stripes| format!("mkfs.xfs {} DEVICE", stripes.args(MkfsOf::Xfs))),
            mkfs_ext4: stripes.map(|stripes| format!("mkfs.ext4 {} DEVICE", stripes.args(MkfsOf::Ext4))),
            mdadm_conf: format!("ARRAY <ignore> UUID={}", self.uuid),
        }
    }

    /// The stripe geometry; `None` without chunks that a file system could align to.
    fn stripes(&self) -> Option<Stripes> {
        let slots = u32::from(self.raid_devices);
        let data = match self.level.as_str() {
            "raid0" => slots,
            "raid4" | "raid5" => slots.checked_sub(1)?,
            "raid6" => slots.checked_sub(2)?,
            "raid10" => {
                // Only near copies lie beside each other: with `far=2`, all members are written before a stripe returns
                // to the first. If the copies do not divide the slots, a stripe covers all of them.
                let near = self.layout.as_deref()?.split(", ").find_map(|part| part.strip_prefix("near="));
                let near = near.map_or(Some(1), |near| near.parse::<u32>().ok())?;
                if slots.checked_rem(near)? == 0 { slots / near } else { slots }
            }
            _ => return None,
        };
        let is_aligned = self.chunk_sectors > 0 && self.chunk_sectors.is_multiple_of(8);
        is_aligned.then_some(Stripes { chunk_kib: self.chunk_sectors / 2, data, blocks: self.chunk_sectors / 8 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::degraded;
    use super::*;
    use uraid_block::Sectors;
    use uraid_layout::{Layout, Level, Spec, layout_name};

    /// The number of chunks in the optimal I/O size that md announces to file systems. For raid10 it is the number of
    /// members, divided by the near copies if that leaves no remainder; far and offset copies do not count.
    #[test]
    fn file_systems_are_told_the_stripes_that_md_tells_them() {
        let (near, far, offset) = (|n: u32| 0x100 + n, |n: u32| 1 + (n << 8), |n: u32| 0x1_0001 + (n << 8));
        let table: [(Level, u32, u16, Option<u32>); 34] = [
            (Level::Linear, 0, 2, None),
            (Level::Raid1, 0, 2, None),
            (Level::Raid0, 1, 1, Some(1)),
            (Level::Raid0, 1, 3, Some(3)),
            (Level::Raid0, 2, 5, Some(5)),
            (Level::Raid4, 0, 3, Some(2)),
            (Level::Raid5, 2, 3, Some(2)),
            (Level::Raid5, 5, 8, Some(7)),
            (Level::Raid6, 2, 4, Some(2)),
            (Level::Raid6, 10, 6, Some(4)),
            (Level::Raid6, 18, 6, Some(4)),
            (Level::Raid10, near(2), 2, Some(1)),
            (Level::Raid10, near(2), 3, Some(3)),
            (Level::Raid10, near(2), 4, Some(2)),
            (Level::Raid10, near(2), 5, Some(5)),
            (Level::Raid10, near(2), 6, Some(3)),
            (Level::Raid10, near(3), 3, Some(1)),
            (Level::Raid10, near(3), 4, Some(4)),
            (Level::Raid10, near(3), 6, Some(2)),
            (Level::Raid10, near(4), 6, Some(6)),
            (Level::Raid10, near(4), 8, Some(2)),
            (Level::Raid10, far(2), 2, Some(2)),
            (Level::Raid10, far(2), 3, Some(3)),
            (Level::Raid10, far(2), 4, Some(4)),
            (Level::Raid10, far(2), 5, Some(5)),
            (Level::Raid10, far(3), 6, Some(6)),
            (Level::Raid10, far(4), 4, Some(4)),
            (Level::Raid10, offset(2), 2, Some(2)),
            (Level::Raid10, offset(2), 4, Some(4)),
            (Level::Raid10, offset(2), 5, Some(5)),
            (Level::Raid10, offset(3), 6, Some(6)),
            (Level::Raid10, 0x202, 4, Some(2)),
            (Level::Raid10, 0x202, 8, Some(4)),
            (Level::Raid10, 0x303, 9, Some(3)),
        ];
        for (level, layout, raid_disks, expected) in table {
            let chunk = if level == Level::Raid1 { Sectors::ZERO } else { Sectors(1024) };
            let layout_text = Some(layout_name(level, layout)).filter(|name| !name.is_empty());
            let report = Report {
                level: level.name().to_owned(),
                layout: layout_text,
                raid_devices: raid_disks,
                chunk_sectors: chunk.0,
                ..degraded()
            };
            let found = report.stripes().map(|stripes| stripes.data);
            assert_eq!(found, expected, "{level} {layout:#x} {raid_disks}");
            // The engine announces the same to its clients.
            let member_sizes = match level {
                Level::Linear | Level::Raid0 => vec![Sectors(40_960); raid_disks.into()],
                Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => Vec::new(),
            };
            let size = if member_sizes.is_empty() { Sectors(40_960) } else { Sectors::ZERO };
            let layout = Layout::new(&Spec { level, layout, chunk, raid_disks, size, member_sizes }).expect("a layout");
            assert_eq!(layout.stripe().0, chunk.0 * u64::from(expected.unwrap_or(0)), "{level} {raid_disks}");
            let Some(data) = expected else { continue };
            let text = report.verbose_text();
            assert!(text.contains(&format!("mkfs.xfs -d su=512k,sw={data} DEVICE\n")), "{text}");
            assert!(text.contains(&format!("stride=128,stripe_width={} DEVICE\n", 128 * data)), "{text}");
        }
    }
}
