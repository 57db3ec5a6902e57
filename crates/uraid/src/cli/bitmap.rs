//! `uraid bitmap` on the command line.
//! Owns: its options and help texts. Not here: what it does (`running::bitmap`).

use super::create::{BitmapPlace, bitmap_place, write_behind};
use clap::Args;
use std::path::PathBuf;
use uraid_block::Sectors;
use uraid_block::sizes::parse_size;

pub(super) const BITMAP: &str = "\
Give a running array a write-intent bitmap, or take it away: what `mdadm --grow --bitmap=internal` and
`--bitmap=none` do. With a bitmap, a start after a crash resyncs only what the bitmap names, and
`uraid re-add` copies only what a former member has missed. Clients are served meanwhile.

Refused while a resync, recovery, check or repair runs or is due, as by md: `uraid wait` waits for its end.
A new bitmap names only what is written from then on, so a member that left before cannot be re-added.";

pub(super) const BITMAP_AFTER: &str = "\
EXAMPLES
  uraid bitmap home internal
  uraid bitmap home internal --bitmap-chunk 16M
  uraid bitmap home internal --write-behind
  uraid bitmap home internal --write-behind=64
  uraid bitmap home none
  uraid bitmap --control /tmp/home.ctl none

WHERE
  internal  beside each superblock, where `uraid create --bitmap=internal` has it
  none      the array has no bitmap; a bitmap of another chunk is had by `none`, then `internal`";

/// Options of `uraid bitmap`.
#[derive(Args, Debug)]
#[command(override_usage = "uraid bitmap [OPTIONS] ARRAY WHERE\n       uraid bitmap [OPTIONS] --control SOCK WHERE")]
pub(crate) struct BitmapArgs {
    /// The control socket of the process that serves the array, in place of ARRAY
    #[arg(long, value_name = "SOCK")]
    pub control: Option<PathBuf>,
    /// What a bit stands for: a power of two; a bare number is in KiB [default: as mdadm chooses]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub bitmap_chunk: Option<Sectors>,
    /// raid1: answer at most N writes at once before write-mostly members have them, at most 16383. Flushes wait for all
    /// members [default with the option alone: 256]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "256",
        value_parser = write_behind)]
    pub write_behind: Option<u32>,
    /// The array's name or one of its members, then `internal` or `none`
    #[arg(required = true, num_args = 1..=2, value_name = "ARRAY> <WHERE")]
    array_and_place: Vec<String>,
}

impl BitmapArgs {
    /// The array, unless --control selects it, and where the bitmap is to be. Ends the process with exit code 2 if the
    /// line says neither.
    pub(crate) fn array_and_place(&self) -> (Option<&str>, BitmapPlace) {
        let (array, place) = match (self.array_and_place.as_slice(), &self.control) {
            ([array, place], None) => (Some(array.as_str()), place),
            ([place], Some(_)) => (None, place),
            _ => super::usage_error_of("bitmap", "bitmap takes ARRAY WHERE, or --control SOCK WHERE"),
        };
        match bitmap_place(place) {
            Ok(BitmapPlace::None) if self.bitmap_chunk.is_some() => {
                super::usage_error_of("bitmap", "--bitmap-chunk is of a bitmap that is added: WHERE is none")
            }
            Ok(BitmapPlace::None) if self.write_behind.is_some() => {
                super::usage_error_of("bitmap", "--write-behind is of a bitmap that is added: WHERE is none")
            }
            Ok(place) => (array, place),
            Err(text) => super::usage_error_of("bitmap", &text),
        }
    }
}
