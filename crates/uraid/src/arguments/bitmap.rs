//! A write-intent bitmap as mdadm's `--bitmap` and `--write-behind` describe it.
//! Owns: [`BitmapPlace`], how its words and the bound of write-behind are read. Not here: bitmaps themselves
//! (`uraid_format`).

use std::fmt;
use uraid_format::bitmap::WRITE_BEHIND_MAX;

/// Where an array has its bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BitmapPlace {
    /// Nowhere.
    None,
    /// Beside each superblock.
    Internal,
}

impl fmt::Display for BitmapPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            BitmapPlace::None => "none",
            BitmapPlace::Internal => "internal",
        })
    }
}

/// Reads how many writes may be behind.
pub(crate) fn write_behind(text: &str) -> Result<u32, String> {
    let found = text.parse().ok().filter(|found| (1..=WRITE_BEHIND_MAX).contains(found));
    found.ok_or_else(|| format!("{text} writes may not be behind, expected 1 to {WRITE_BEHIND_MAX}"))
}

/// Reads where a bitmap is to be.
pub(crate) fn bitmap_place(text: &str) -> Result<BitmapPlace, String> {
    match text {
        "none" => Ok(BitmapPlace::None),
        "internal" => Ok(BitmapPlace::Internal),
        "clustered" => {
            Err("uraid makes no clustered bitmaps, expected internal or none: hosts do not share an array".to_owned())
        }
        "lockless" => Err("uraid makes no lockless bitmaps (version 6), expected internal or none".to_owned()),
        other => Err(format!("no such bitmap: {other}, expected internal or none; md is giving up bitmaps in files")),
    }
}
