//! `uraid bitmap`: asks a running array to get a write-intent bitmap, or to lose it.
//! Owns: the call and the line about it. Not here: what the array does (`overseer::bitmap`).

use crate::cli::{BitmapArgs, BitmapPlace};
use serde_json::Value;
use uraid_block::Sectors;
use uraid_control::client::{self, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::{BitmapCall, Method};

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
