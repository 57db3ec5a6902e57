//! `uraid bitmap`: asks a running array to get a write-intent bitmap, or to lose it.
//! Owns: its options and help texts, the call and the line about it. Not here: what the array does (`overseer::bitmap`).

use crate::arguments::{BitmapPlace, bitmap_place, write_behind};
use clap::{Args, Command};
use serde_json::Value;
use std::path::PathBuf;
use uraid_block::Sectors;
use uraid_block::sizes::parse_size;
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::{BitmapCall, Method};
use uraid_option_values::usage_error_of;

pub(crate) const BITMAP: &str = "\
Give a running array a write-intent bitmap, or take it away: what `mdadm --grow --bitmap=internal` and
`--bitmap=none` do. With a bitmap, a start after a crash resyncs only what the bitmap names, and
`uraid re-add` copies only what a former member has missed. Clients are served meanwhile.

Refused while a resync, recovery, check or repair runs or is due, as by md: `uraid wait` waits for its end.
A new bitmap names only what is written from then on, so a member that left before cannot be re-added.";

pub(crate) const BITMAP_AFTER: &str = "\
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
    fn array_and_place(&self) -> (Option<&str>, BitmapPlace) {
        let (array, place) = match (self.array_and_place.as_slice(), &self.control) {
            ([array, place], None) => (Some(array.as_str()), place),
            ([place], Some(_)) => (None, place),
            _ => usage_error_of(verb(), "bitmap takes ARRAY WHERE, or --control SOCK WHERE"),
        };
        match bitmap_place(place) {
            Ok(BitmapPlace::None) if self.bitmap_chunk.is_some() => {
                usage_error_of(verb(), "--bitmap-chunk is of a bitmap that is added: WHERE is none")
            }
            Ok(BitmapPlace::None) if self.write_behind.is_some() => {
                usage_error_of(verb(), "--write-behind is of a bitmap that is added: WHERE is none")
            }
            Ok(place) => (array, place),
            Err(text) => usage_error_of(verb(), &text),
        }
    }
}

/// Its usage is in the messages.
fn verb() -> Command {
    BitmapArgs::augment_args(Command::new("bitmap"))
}

/// Changes the bitmap of a running array.
pub(crate) fn run(args: &BitmapArgs) -> Result<(), ClientError> {
    let (array, place) = args.array_and_place();
    let call = match place {
        BitmapPlace::Internal => BitmapCall::Add {
            chunk_sectors: args.bitmap_chunk.map(|chunk| chunk.0),
            write_behind: args.write_behind.unwrap_or(0),
        },
        BitmapPlace::None => BitmapCall::Remove {},
    };
    let mut client = client::find(array, args.control.as_deref())?;
    let answer = client.call(&Method::Bitmap(call))?;
    let name = answer.get("array").and_then(Value::as_str).unwrap_or("?");
    print(&match answer.get("chunk_sectors").and_then(Value::as_u64) {
        Some(chunk) => {
            let behind = match args.write_behind {
                Some(writes) => format!(", write-behind of at most {writes}"),
                None => String::new(),
            };
            format!("{name}: has a bitmap, a bit for each {}{behind}\n", Sectors(chunk).size())
        }
        None => format!("{name}: has no bitmap any more\n"),
    });
    Ok(())
}
